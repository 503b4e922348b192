//! What the raft loop notices about itself: counts, the stages of commits, its state when asked.
//!
//! Owned by the loop and called from it; decides nothing. The cost is per turn, apart from a few
//! additions per batch.

use crate::admin::inquiry::{Change, NodeStatus, Respondent};
use crate::clock::Now;
use crate::connections::Origin;
use crate::log_loop::LogDone;
use crate::logging::Throttle;
use crate::metrics::{CommitTrace, Metrics, refusal_of};
use crate::replica::{LogSize, QuotaLevel, Replica};
use quorate_net::{ApiRequest, ApiResponse};
use quorate_raft::{ErrorCode, Instant, NodeId, Offset, Role};
use quorate_storage::{LogEvent, ReadError, StampedBatch};
use std::sync::Arc;
use std::time::Duration;

/// Conflicting messages told in ten seconds at most: a stranger on a controller listener can send
/// any number of them.
const CONFLICT_LINES: Throttle = Throttle::new(10, 10_000);

/// Faults of the log told in ten seconds at most: whoever wants the records asks again and again.
const READ_FAULT_LINES: Throttle = Throttle::new(10, 10_000);

/// The loop's eyes.
pub struct Observer {
    metrics: Arc<Metrics>,
    trace: CommitTrace,
    respondent: Respondent,
    turn: TurnAppends,
    /// When this replica stood for election, until a leader is known.
    election_since: Option<Instant>,
    changed: Change,
    caught_up_at: Option<Instant>,
    conflict_lines: Throttle,
    quota_level: QuotaLevel,
    read_fault_lines: Throttle,
}

/// What was appended in this turn.
#[derive(Default)]
struct TurnAppends {
    batches: u64,
    bytes: u64,
    records: u64,
    fetched: u64,
    end: Offset,
    /// When the oldest of the requests came in.
    received: Option<Instant>,
}

impl Observer {
    /// Writes to `metrics`, answers through `respondent`. `commit_slow_ms` as in the configuration.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, respondent: Respondent, commit_slow_ms: u64) -> Self {
        let slow = Some(Duration::from_millis(commit_slow_ms)).filter(|slow| !slow.is_zero());
        Self {
            trace: CommitTrace::new(Arc::clone(&metrics.commits), slow),
            metrics,
            respondent,
            turn: TurnAppends::default(),
            election_since: None,
            changed: Change {
                wall_ms: 0,
                reason: "starting",
            },
            caught_up_at: None,
            conflict_lines: CONFLICT_LINES,
            quota_level: QuotaLevel::Ample,
            read_fault_lines: READ_FAULT_LINES,
        }
    }

    /// A client's request is about to be served.
    pub fn on_request(&mut self, now: Instant, origin: Origin, request: &ApiRequest) {
        if let ApiRequest::Produce(_) = request {
            let waited = now.0.saturating_sub(origin.received.0);
            self.metrics.commits.queue.record(waited);
            let oldest = self.turn.received.get_or_insert(origin.received);
            *oldest = (*oldest).min(origin.received);
        }
    }

    /// A batch goes to the log writer.
    pub fn on_append(&mut self, role: Role, batch: &StampedBatch) {
        let records = batch.end_offset.0 - batch.base_offset.0;
        let records = records.unsigned_abs();
        if role == Role::Leader {
            self.turn.batches += 1;
            self.turn.bytes += batch.bytes.len() as u64;
            self.turn.records += records;
            self.turn.end = batch.end_offset;
        } else {
            self.turn.fetched += records;
        }
    }

    /// The log writer has done something. To be told before the replica is.
    pub fn on_log(&mut self, done: &LogDone) {
        if let (LogEvent::Flushed(flushed), Some(times)) = (&done.event, done.times) {
            self.trace.on_flushed(flushed.end_offset, times);
        }
    }

    /// The log is cut.
    pub fn on_truncate(&mut self) {
        self.metrics.raft.truncations.add(1);
        self.trace.clear();
    }

    /// The high watermark rose.
    pub fn on_committed(&mut self, now: Instant, high_watermark: Offset) {
        self.trace.on_committed(now, high_watermark);
    }

    /// The replica changed its state.
    pub fn on_became(
        &mut self,
        now: Now,
        role: Role,
        leader_id: Option<NodeId>,
        reason: &'static str,
    ) {
        let raft = &self.metrics.raft;
        raft.transitions[index_of(role)].count(reason);
        self.changed = Change {
            wall_ms: now.wall_ms,
            reason,
        };
        if role != Role::Leader {
            self.trace.clear();
        }
        match (role, leader_id) {
            (Role::Prospective | Role::Candidate, _) => {
                self.election_since.get_or_insert(now.instant);
            }
            (Role::Leader, _) | (Role::Follower, Some(_)) => {
                if let Some(since) = self.election_since.take() {
                    let took = now.instant.0.saturating_sub(since.0);
                    raft.elections.record(now.instant, took, 1);
                }
            }
            _ => {}
        }
    }

    /// A message conflicts with the state of this node.
    pub fn on_conflict(&mut self, now: Instant, what: &'static str, from: Option<NodeId>) {
        self.metrics.raft.conflicts.add(1);
        if let Some(untold) = self.conflict_lines.admit(now) {
            let words = "a message conflicts with the state of this node";
            tracing::error!(what, ?from, untold, "{words}");
        }
    }

    /// The log could not be read where it should be sound.
    pub fn on_read_fault(&mut self, now: Instant, error: &ReadError) {
        self.metrics.raft.read_faults.add(1);
        if let Some(untold) = self.read_fault_lines.admit(now) {
            tracing::error!(%error, untold, "the log is damaged; what is there is not given out");
        }
    }

    /// A peer's request is answered with this error or none.
    pub fn on_peer_answer(&self, error: ErrorCode) {
        self.metrics.raft.refusals.count(error);
    }

    /// A request is answered.
    pub fn on_answer(&self, response: &ApiResponse) {
        self.metrics.raft.refusals.count(refusal_of(response));
    }

    /// All answers of the turn that began at `now` are with their connections, at `worked`.
    pub fn on_worked(&mut self, now: Instant, worked: Instant, replica: &Replica) {
        self.count_appends(now);
        if let Some(slow) = self.trace.on_answered(worked) {
            tracing::warn!(
                end_offset = slow.end.0,
                total_ms = slow.total_ms,
                stage = slow.stage,
                stage_ms = slow.stage_ms,
                untold = slow.untold,
                "a commit was slow"
            );
        }
        if has_caught_up(replica) {
            self.caught_up_at = Some(now);
        }
        let (raft, core) = (&self.metrics.raft, replica.raft());
        raft.turns.add(1);
        raft.high_watermark
            .set(core.high_watermark().map_or(-1, |offset| offset.0));
        raft.log_end.set(core.log_end_offset().0);
        raft.unflushed_bytes.set_size(replica.unflushed_bytes());
        raft.idle_since.set(worked.0.max(1));
        self.watch_log_size(replica.log_size());
    }

    /// Says once that the log comes near its quota, and once that it is there.
    fn watch_log_size(&mut self, size: LogSize) {
        let level = size.level();
        if level > self.quota_level {
            let words = match level {
                QuotaLevel::UsedUp => {
                    "the log is as large as log.max.bytes allows: while this \
                    node leads, what clients append is refused"
                }
                _ => "the log comes near log.max.bytes",
            };
            let (bytes, percent) = (size.bytes, size.percent());
            tracing::warn!(bytes, max_bytes = size.max, percent, "{words}");
        }
        self.quota_level = level;
    }

    fn count_appends(&mut self, now: Instant) {
        let turn = std::mem::take(&mut self.turn);
        let raft = &self.metrics.raft;
        if turn.batches > 0 {
            let received = turn.received.unwrap_or(now);
            self.trace
                .on_appended(now, turn.end, turn.batches, received);
            raft.appended.record(now, turn.records, 1);
            raft.append_batches.add(turn.batches);
            raft.append_bytes.add(turn.bytes);
            raft.append_records.add(turn.records);
        }
        if turn.fetched > 0 {
            raft.fetched.record(now, turn.fetched, 1);
            raft.fetch_records.add(turn.fetched);
        }
    }

    /// The loop is back from the kernel.
    pub fn on_returned(&self, worked: Instant, now: Instant) {
        let raft = &self.metrics.raft;
        raft.idle_since.set(0);
        raft.idle.record(now, now.0.saturating_sub(worked.0), 1);
    }

    /// The counters, for what the loop publishes of its parts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Describes the node to whoever has asked.
    pub fn maybe_answer(&mut self, now: Now, replica: &Replica, is_stopping: bool) {
        if !self.respondent.is_asked() {
            return;
        }
        let raft = replica.raft();
        let following = raft.following();
        let hears_leader = following
            .is_some_and(|leader| leader.has_fetched && leader.fetch_deadline >= now.instant);
        self.respondent.answer(NodeStatus {
            at: now.instant,
            wall_ms: now.wall_ms,
            role: raft.role(),
            is_voter: raft.is_voter(),
            epoch: raft.epoch(),
            voted: raft.voted(),
            leader: raft.leader_info(),
            high_watermark: raft.high_watermark(),
            log_start: raft.log_start_offset(),
            log_end: raft.log_end_offset(),
            log_size: replica.log_size(),
            last_epoch: raft.last_epoch(),
            flushed: raft.flushed_offset(),
            leader_high_watermark: following.and_then(|leader| leader.leader_high_watermark),
            hears_leader,
            caught_up_at: self.caught_up_at,
            is_stopping,
            voters: raft.voters().clone(),
            quorum: raft.describe(now.instant),
            changed: self.changed,
        });
    }
}

/// Whether this follower has all that its leader says is committed.
fn has_caught_up(replica: &Replica) -> bool {
    let raft = replica.raft();
    let Some(leader) = raft.following() else {
        return false;
    };
    let committed = leader.leader_high_watermark;
    leader.has_fetched && committed.is_some_and(|committed| committed <= raft.log_end_offset())
}

/// The place of a state in `metrics::ROLES`.
fn index_of(role: Role) -> usize {
    match role {
        Role::Unattached => 0,
        Role::Prospective => 1,
        Role::Candidate => 2,
        Role::Leader => 3,
        Role::Follower => 4,
        Role::Resigned => 5,
    }
}
