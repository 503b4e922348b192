//! Whether a node lives, and whether it is of use: what /livez and /readyz say.
//!
//! Live: the process need not be restarted. Ready: it takes part in a quorum that works. A node
//! that waits for its peers is live and not ready; restarting it would help nobody.

use super::inquiry::{NodeStatus, Silence};
use crate::replica::{LogSize, QuotaLevel};
use quorate_raft::{Instant, Role};
use serde::Serialize;

/// A raft loop that has not turned for longer than this is stuck.
const STUCK_AFTER_MS: u64 = 5_000;

/// A follower is caught up if it had all that its leader had committed this long ago at most.
const CAUGHT_UP_WITHIN_MS: u64 = 10_000;

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// The answer in words, good or bad.
    pub says: String,
}

impl Check {
    fn new(name: &'static str, ok: bool, says: impl Into<String>) -> Self {
        let says = says.into();
        Self { name, ok, says }
    }

    /// The line of `?verbose`, in the form of Kubernetes' own.
    pub(super) fn line(&self) -> String {
        let sign = if self.ok { '+' } else { '-' };
        format!("[{sign}]{}: {}\n", self.name, self.says)
    }
}

/// Whether the raft loop turns.
pub(super) fn liveness(now: Instant, silence: Option<Silence>) -> Check {
    match silence {
        None => Check::new("raft-loop", true, "turning"),
        Some(Silence::NotStarted) => {
            Check::new("raft-loop", true, "starting: the log is being opened")
        }
        Some(Silence::Since(since)) => {
            let ms = now.ms_since(since);
            let says = format!("has not turned for {ms} ms");
            Check::new("raft-loop", ms < STUCK_AFTER_MS, says)
        }
    }
}

/// Everything that must hold for a node to be ready.
pub(super) fn readiness(now: Instant, status: Result<&NodeStatus, Silence>) -> Vec<Check> {
    let status = match status {
        Ok(status) => status,
        Err(Silence::NotStarted) => {
            let says = "the log is being opened";
            return vec![Check::new("raft-loop", false, says)];
        }
        Err(silence) => {
            let mut check = liveness(now, Some(silence));
            check.ok = false;
            return vec![check];
        }
    };
    let running = if status.is_stopping {
        Check::new("running", false, "the node is shutting down")
    } else {
        Check::new("running", true, "not shutting down")
    };
    let mut checks = vec![liveness(now, None), running, leader_known(status)];
    match status.role {
        Role::Leader => checks.push(epoch_begun(status)),
        Role::Follower => checks.extend([leader_heard(status), caught_up(status)]),
        _ => {}
    }
    checks.extend(log_size(status.log_size));
    checks
}

/// Always good: the quorum works, and what is there can be read.
fn log_size(size: LogSize) -> Option<Check> {
    let max = size.max?;
    let (bytes, percent) = (size.bytes, size.percent());
    let used = format!("{bytes} of {max} bytes (log.max.bytes), {percent} %");
    let says = match size.level() {
        QuotaLevel::Ample => used,
        QuotaLevel::Alarm => format!("ALARM: {used}"),
        QuotaLevel::UsedUp => format!("READ-ONLY: {used}; what clients append is refused"),
    };
    Some(Check::new("log-size", true, says))
}

fn leader_known(status: &NodeStatus) -> Check {
    let epoch = status.epoch;
    match (status.role, status.leader.leader_id) {
        // It names itself for as long as nobody else leads.
        (Role::Resigned, _) => {
            let says =
                format!("this node has resigned, and nobody leads a later epoch than {epoch}");
            Check::new("leader", false, says)
        }
        (Role::Leader | Role::Follower, Some(id)) => {
            Check::new("leader", true, format!("node {id} leads epoch {epoch}"))
        }
        // It may still name the last one.
        (Role::Prospective | Role::Candidate, _) => {
            let says = format!("none; this node stands for election after epoch {epoch}");
            Check::new("leader", false, says)
        }
        _ => Check::new("leader", false, format!("none is known in epoch {epoch}")),
    }
}

fn epoch_begun(status: &NodeStatus) -> Check {
    match status.high_watermark {
        Some(offset) => Check::new("high-watermark", true, format!("{offset}")),
        None => {
            let says = "unknown: nothing of this epoch is on a majority of the voters yet";
            Check::new("high-watermark", false, says)
        }
    }
}

fn leader_heard(status: &NodeStatus) -> Check {
    if status.hears_leader {
        return Check::new("fetching", true, "the leader answers");
    }
    Check::new(
        "fetching",
        false,
        "the leader has not answered a Fetch in time",
    )
}

fn caught_up(status: &NodeStatus) -> Check {
    let leader = status.leader_high_watermark;
    let behind = leader.map(|leader| leader.0.saturating_sub(status.log_end.0).max(0));
    let since = status.caught_up_at.map(|at| status.at.ms_since(at));
    let ok = since.is_some_and(|ms| ms <= CAUGHT_UP_WITHIN_MS);
    let says = match (behind, since) {
        (None, _) => "the leader has not said yet what is committed".to_owned(),
        (Some(0), _) => "has all that is committed".to_owned(),
        (Some(behind), None) => format!("{behind} committed records behind, since the start"),
        (Some(behind), Some(ms)) => {
            format!("{behind} committed records behind; had all of them {ms} ms ago")
        }
    };
    Check::new("caught-up", ok, says)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::inquiry::Change;
    use super::*;
    use quorate_raft::{Epoch, LeaderInfo, Offset, VoterSet};

    pub(in super::super) fn ms(ms: u64) -> Instant {
        Instant(0).plus_ms(ms)
    }

    pub(in super::super) fn status(role: Role, leader_id: Option<i32>) -> NodeStatus {
        NodeStatus {
            at: ms(100_000),
            wall_ms: 1_000_000,
            role,
            is_voter: true,
            epoch: Epoch(7),
            voted: None,
            leader: LeaderInfo {
                epoch: Epoch(7),
                leader_id,
                endpoint: None,
            },
            high_watermark: None,
            log_start: Offset(0),
            log_end: Offset(50),
            log_size: LogSize {
                bytes: 0,
                max: None,
            },
            last_epoch: Epoch(6),
            flushed: Offset(50),
            leader_high_watermark: None,
            hears_leader: false,
            caught_up_at: None,
            is_stopping: false,
            voters: VoterSet::default(),
            quorum: None,
            changed: Change {
                wall_ms: 0,
                reason: "started",
            },
        }
    }

    /// Names of the checks that failed.
    fn failed(status: &NodeStatus) -> Vec<&'static str> {
        let checks = readiness(status.at, Ok(status));
        let failed = checks.iter().filter(|check| !check.ok);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn without_a_leader_nobody_is_ready() {
        for role in [Role::Unattached, Role::Prospective, Role::Candidate] {
            assert_eq!(failed(&status(role, None)), ["leader"]);
            let last = failed(&status(role, Some(2)));
            assert_eq!(last, ["leader"], "the last one is not followed any more");
        }
        assert_eq!(failed(&status(Role::Resigned, Some(1))), ["leader"]);
    }

    #[test]
    fn a_leader_is_ready_once_its_epoch_has_committed() {
        let mut leader = status(Role::Leader, Some(1));
        assert_eq!(failed(&leader), ["high-watermark"]);
        leader.high_watermark = Some(Offset(50));
        assert!(failed(&leader).is_empty());
        leader.is_stopping = true;
        assert_eq!(failed(&leader), ["running"]);
    }

    #[test]
    fn a_follower_is_ready_while_it_hears_its_leader_and_keeps_up() {
        let mut follower = status(Role::Follower, Some(1));
        assert_eq!(failed(&follower), ["fetching", "caught-up"]);
        follower.hears_leader = true;
        follower.leader_high_watermark = Some(Offset(90));
        assert_eq!(failed(&follower), ["caught-up"]);
        follower.caught_up_at = Some(ms(90_000));
        assert!(failed(&follower).is_empty());
        follower.caught_up_at = Some(ms(89_999));
        let checks = readiness(follower.at, Ok(&follower));
        let line = checks.last().unwrap().line();
        assert_eq!(
            line,
            "[-]caught-up: 40 committed records behind; had all of them 10001 ms ago\n"
        );
    }

    #[test]
    fn the_size_of_the_log_is_told_and_makes_nobody_useless() {
        let mut leader = status(Role::Leader, Some(1));
        leader.high_watermark = Some(Offset(50));
        let said = |bytes, leader: &mut NodeStatus| {
            let max = Some(1000);
            leader.log_size = LogSize { bytes, max };
            let checks = readiness(leader.at, Ok(leader));
            assert!(checks.iter().all(|check| check.ok));
            checks.last().unwrap().says.clone()
        };
        let plain = "10 of 1000 bytes (log.max.bytes), 1 %";
        assert_eq!(said(10, &mut leader), plain);
        assert!(said(950, &mut leader).starts_with("ALARM: 950 of 1000"));
        assert!(said(1000, &mut leader).starts_with("READ-ONLY: 1000 of 1000"));
        leader.log_size.max = None;
        assert_eq!(
            readiness(leader.at, Ok(&leader)).last().unwrap().name,
            "high-watermark"
        );
    }

    #[test]
    fn a_loop_that_is_stuck_is_not_live_and_one_that_starts_is() {
        assert!(liveness(ms(9), None).ok);
        assert!(liveness(ms(9), Some(Silence::NotStarted)).ok);
        assert!(liveness(ms(5_999), Some(Silence::Since(ms(1_000)))).ok);
        assert!(!liveness(ms(6_000), Some(Silence::Since(ms(1_000)))).ok);
        for silence in [Silence::NotStarted, Silence::Since(ms(1_000))] {
            assert!(!readiness(ms(1_001), Err(silence))[0].ok);
        }
    }
}
