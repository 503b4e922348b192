//! The state of the quorum as lines of text. Pure: no terminal, no clock.

use super::status::QuorumStatus;
use quorate_raft::NodeId;

/// A follower that has not fetched for longer than this is told as silent. A healthy one fetches
/// at least every 500 ms.
const SILENT_AFTER_MS: i64 = 3000;

/// A Fetch may be counted this long after the death of who sent it.
const DEAD_FETCH_MS: i64 = 500;

/// One voter, as far as the supervisor knows it itself.
#[derive(Clone, Debug)]
pub(super) struct VoterRow {
    pub id: NodeId,
    pub address: String,
    pub peer_address: String,
    /// The URL of its page, or "-".
    pub page: String,
    /// Set once its process has ended.
    pub gone: Option<Gone>,
}

/// The end of a voter's process.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    /// In words.
    pub how: String,
    /// In ms since 1970.
    pub at_ms: i64,
}

/// The table: one line about the quorum, a heading, one line per voter.
pub(super) fn lines(
    cluster_id: &str,
    voters: &[VoterRow],
    status: Option<&QuorumStatus>,
    now_ms: i64,
) -> Vec<String> {
    let quorum = match status {
        Some(status) => format!(
            "leader {}   epoch {}   high watermark {}",
            status.leader_id, status.leader_epoch, status.high_watermark
        ),
        None => "no leader".to_owned(),
    };
    let mut lines = vec![
        format!("cluster {cluster_id}   {quorum}"),
        format!(
            "{:>5}  {:<21}  {:<23}  {:>12}  {:>10}  {}",
            "voter", "clients", "page", "log end", "lag", "state"
        ),
    ];
    lines.extend(voters.iter().map(|voter| row(voter, status, now_ms)));
    lines
}

fn row(voter: &VoterRow, status: Option<&QuorumStatus>, now_ms: i64) -> String {
    let (log_end, lag) = offsets(voter.id, status);
    format!(
        "{:>5}  {:<21}  {:<23}  {log_end:>12}  {lag:>10}  {}",
        voter.id,
        voter.address,
        voter.page,
        state(voter, status, now_ms)
    )
}

/// Log end and lag of a voter, as the leader knows them.
fn offsets(id: NodeId, status: Option<&QuorumStatus>) -> (String, String) {
    let end_of = |id: NodeId| {
        let replica = status?.replicas.iter().find(|replica| replica.id == id)?;
        (replica.log_end_offset.0 >= 0).then_some(replica.log_end_offset.0)
    };
    let leader = status.and_then(|status| end_of(status.leader_id));
    match (end_of(id), leader) {
        (Some(own), Some(leader)) => {
            let lag = leader.saturating_sub(own).max(0);
            (own.to_string(), lag.to_string())
        }
        (Some(own), None) => (own.to_string(), "-".into()),
        _ => ("-".into(), "-".into()),
    }
}

/// What a voter is doing, in a few words.
fn state(voter: &VoterRow, status: Option<&QuorumStatus>, now_ms: i64) -> String {
    let last_fetch = status.and_then(|status| {
        let mut replicas = status.replicas.iter();
        let replica = replicas.find(|replica| replica.id == voter.id)?;
        Some(replica.last_fetch_timestamp)
    });
    let leads = status.is_some_and(|status| status.leader_id == voter.id);
    let role = match last_fetch {
        _ if leads => "leader",
        Some(fetched) if fetched > now_ms.saturating_sub(SILENT_AFTER_MS) => "follower",
        Some(_) => "silent",
        None => "running",
    };
    match &voter.gone {
        None => role.to_owned(),
        Some(gone) if leads || last_fetch > Some(gone.at_ms.saturating_add(DEAD_FETCH_MS)) => {
            format!("{role} (started again by somebody else)")
        }
        Some(gone) => format!("gone: {}", gone.how),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::ReplicaStatus;
    use super::*;
    use quorate_raft::{Epoch, Offset};

    const NOW: i64 = 1_000_000;

    fn voter(id: NodeId) -> VoterRow {
        VoterRow {
            id,
            address: format!("127.0.0.1:909{id}"),
            peer_address: format!("127.0.0.1:919{id}"),
            page: format!("http://127.0.0.1:924{id}/"),
            gone: None,
        }
    }

    fn gone(id: NodeId, at_ms: i64) -> VoterRow {
        let how = "killed by SIGKILL".into();
        VoterRow {
            gone: Some(Gone { how, at_ms }),
            ..voter(id)
        }
    }

    /// Leader 1, and voter 2 that last fetched at `fetched`.
    fn status(fetched: i64) -> QuorumStatus {
        let replica = |id, end, last_fetch_timestamp| ReplicaStatus {
            id,
            log_end_offset: Offset(end),
            last_fetch_timestamp,
        };
        QuorumStatus {
            leader_id: 1,
            leader_epoch: Epoch(3),
            high_watermark: Offset(40),
            replicas: vec![
                replica(1, 50, NOW),
                replica(2, 40, fetched),
                replica(3, -1, -1),
            ],
        }
    }

    #[test]
    fn the_table_shows_offsets_and_lag_as_the_leader_knows_them() {
        let voters = [voter(1), voter(2), voter(3)];
        let lines = lines("C", &voters, Some(&status(NOW)), NOW);
        assert_eq!(
            lines[0],
            "cluster C   leader 1   epoch 3   high watermark 40"
        );
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines[2])[3..], ["50", "0", "leader"]);
        assert_eq!(words(&lines[3])[3..], ["40", "10", "follower"]);
        assert_eq!(words(&lines[4])[3..], ["-", "-", "silent"]);
    }

    #[test]
    fn without_a_leader_only_processes_are_known() {
        let lines = lines("C", &[voter(1), gone(2, NOW)], None, NOW);
        assert!(lines[0].ends_with("no leader"));
        assert!(lines[2].ends_with("running"));
        assert!(lines[3].ends_with("gone: killed by SIGKILL"));
    }

    #[test]
    fn a_killed_voter_is_gone_although_it_fetched_a_moment_ago() {
        assert!(state(&gone(2, NOW), Some(&status(NOW)), NOW).starts_with("gone"));
        assert_eq!(state(&voter(2), Some(&status(NOW - 4000)), NOW), "silent");
    }

    #[test]
    fn a_gone_voter_that_fetches_again_was_started_by_somebody_else() {
        let again = state(&gone(2, NOW - 5000), Some(&status(NOW)), NOW);
        assert!(again.starts_with("follower (started again"), "{again}");
        let leads = state(&gone(1, NOW - 5000), Some(&status(NOW)), NOW);
        assert!(leads.starts_with("leader (started again"), "{leads}");
    }
}
