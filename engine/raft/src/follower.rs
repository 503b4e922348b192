//! Follower: fetches from the leader of its epoch, appends what it sends, and cuts its own log
//! where it diverges. An observer does the same and never stands for election.
//!
//! The next Fetch acknowledges, so it leaves only when the log is flushed (see `sends`). Whatever a
//! leader answers, nothing below the known high watermark is ever cut.

use crate::error_code::ErrorCode;
use crate::log_view::LogView;
use crate::message::{BatchMeta, FetchResponse};
use crate::output::{ElectionState, Output, Outputs};
use crate::raft::{Raft, State};
use crate::types::{Endpoint, Epoch, Instant, NodeId, Offset, OffsetAndEpoch, ReplicaKey};

/// One batch holds at most as many records as an int32 delta can number.
const BATCH_RECORDS_MAX: i64 = i32::MAX as i64;

/// What only a follower has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    /// When a voter stands for election.
    pub(crate) fetch_deadline: Instant,
    /// A Fetch has succeeded since this leader is followed: no pre-votes against it any more.
    pub(crate) has_fetched: bool,
    /// The leader has resigned this epoch. Pre-votes are granted from then on, and its answers do
    /// not put off the election.
    pub(crate) leader_resigned: bool,
    /// What this leader last said its high watermark was; it can only rise.
    pub(crate) leader_high_watermark: Option<Offset>,
}

impl Follower {
    pub(crate) fn new(fetch_deadline: Instant) -> Self {
        Self {
            fetch_deadline,
            has_fetched: false,
            leader_resigned: false,
            leader_high_watermark: None,
        }
    }
}

impl Raft {
    /// Follows `leader_id` in `epoch`.
    pub(crate) fn become_follower(
        &mut self,
        now: Instant,
        epoch: Epoch,
        leader_id: NodeId,
        endpoint: Endpoint,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        assert_ne!(leader_id, self.local_id(), "a replica followed itself");
        let voted = (epoch == self.epoch())
            .then_some(self.election().voted)
            .flatten();
        let fetch_deadline = now.plus_ms(self.config.fetch_timeout_ms);
        self.lost_elections = 0;
        let next = ElectionState {
            epoch,
            leader_id: Some(leader_id),
            voted,
        };
        let state = State::Follower(Follower::new(fetch_deadline));
        self.enter(state, next, Some(endpoint), reason, out);
    }

    /// The leader gave a sign of life: its answer, whatever it says, or its BeginQuorumEpoch.
    pub(crate) fn on_leader_contact(&mut self, now: Instant) {
        let fetch_timeout_ms = self.config.fetch_timeout_ms;
        if let State::Follower(follower) = &mut self.state
            && !follower.leader_resigned
        {
            follower.fetch_deadline = now.plus_ms(fetch_timeout_ms);
        }
    }

    /// The leader resigns: stand for election after the pause that this replica's place among the
    /// preferred successors gives (Kafka `KafkaRaftClient.endEpochElectionBackoff`).
    pub(crate) fn on_leader_resigned(&mut self, now: Instant, preferred: &[ReplicaKey]) {
        let place = preferred.iter().position(|key| {
            key.id == self.local_id()
                && (!key.directory_id.is_defined()
                    || key.directory_id == self.config.local.directory_id)
        });
        let max_ms = self.config.election_backoff_max_ms;
        let pause = successor_backoff_ms(place, preferred.len(), max_ms);
        match &mut self.state {
            State::Follower(follower) => {
                follower.leader_resigned = true;
                follower.fetch_deadline = now.plus_ms(pause);
            }
            State::Prospective(prospective) => prospective.leader_resigned = true,
            _ => {}
        }
    }

    /// A replica with a shorter log asked for this one's pre-vote after the leader resigned. It
    /// cannot win without this one, so this one need not wait for its turn.
    pub(crate) fn hurry_after_shorter_log(&mut self, now: Instant) {
        if let State::Follower(follower) = &mut self.state
            && follower.leader_resigned
        {
            follower.fetch_deadline = follower.fetch_deadline.min(now);
        }
    }

    /// The answer to a Fetch, in this epoch, while following. `from` need not be the leader.
    pub(crate) fn on_fetch_answer(
        &mut self,
        now: Instant,
        from: NodeId,
        answer: &FetchResponse,
        batches: &[BatchMeta],
        out: &mut Outputs,
    ) {
        let is_of_leader = answer.leader.leader_id == self.leader_id()
            && (self.leader_id() == Some(from) || answer.error.is_none());
        if !is_of_leader {
            self.requests.knew_nothing(now, from, &mut self.rng);
            return;
        }
        if !answer.error.is_none() {
            self.on_fetch_refused(now, from, answer.error);
            return;
        }
        self.on_leader_contact(now);
        let taken = match answer.diverging {
            Some(diverging) => self.on_diverging(diverging, from, out),
            None => self.on_records(answer, batches, from, out),
        };
        if let State::Follower(follower) = &mut self.state {
            follower.has_fetched = true;
        }
        if taken {
            self.requests.succeeded(from);
        } else {
            self.requests.failed(now, from, &mut self.rng);
        }
    }

    /// The leader answers a Fetch with an error of this epoch. That it does not lead (any more)
    /// says what its EndQuorumEpoch says, which may be late or lost; any other error proves it
    /// alive.
    fn on_fetch_refused(&mut self, now: Instant, from: NodeId, error: ErrorCode) {
        self.requests.failed(now, from, &mut self.rng);
        let gave_up = [
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ErrorCode::BROKER_NOT_AVAILABLE,
        ];
        if !gave_up.contains(&error) {
            self.on_leader_contact(now);
            return;
        }
        let pause = 1 + self.rng.below(self.config.election_backoff_max_ms);
        if let State::Follower(follower) = &mut self.state
            && !follower.leader_resigned
        {
            follower.leader_resigned = true;
            follower.fetch_deadline = follower.fetch_deadline.min(now.plus_ms(pause));
        }
    }

    /// Appends the batches of an answer, all that fit, or none if there is anything wrong with
    /// them.
    fn on_records(
        &mut self,
        answer: &FetchResponse,
        batches: &[BatchMeta],
        from: NodeId,
        out: &mut Outputs,
    ) -> bool {
        let Some(count) = acceptable_batches(&self.log, self.epoch(), batches) else {
            self.conflict("batches that do not continue the log", Some(from), out);
            return false;
        };
        if count > 0 {
            for batch in &batches[..count] {
                self.log.append_to(batch.end_offset, batch.epoch);
            }
            out.push(Output::AppendFetched { count });
        }
        self.on_leader_high_watermark(answer.high_watermark, from, out);
        let is_progress = batches.is_empty() || count > 0;
        if !is_progress {
            self.conflict(
                "batches of a newer epoch than the leader's",
                Some(from),
                out,
            );
        }
        is_progress
    }

    /// Follows the leader's high watermark as far as the own log reaches.
    fn on_leader_high_watermark(
        &mut self,
        high_watermark: Option<Offset>,
        from: NodeId,
        out: &mut Outputs,
    ) {
        let State::Follower(follower) = &mut self.state else {
            return;
        };
        let known = follower.leader_high_watermark;
        match (high_watermark, known) {
            (None, None) => {}
            (None, Some(_)) => {
                self.conflict("a leader that forgot its high watermark", Some(from), out);
            }
            (Some(next), known)
                if next < known.unwrap_or(next) || next < self.committed.unwrap_or(next) =>
            {
                self.conflict("a high watermark that falls", Some(from), out);
            }
            (Some(next), _) => {
                follower.leader_high_watermark = Some(next);
                self.commit_to(next.min(self.log.end()), out);
            }
        }
    }

    /// The leader's log parts from this one: cut back to where they may agree and ask again
    /// (KIP-595, FetchResponse; Kafka `ReplicatedLog.truncateToEndOffset`). A cut below the high
    /// watermark would undo what was committed: the log is kept, whoever is wrong.
    fn on_diverging(&mut self, diverging: OffsetAndEpoch, from: NodeId, out: &mut Outputs) -> bool {
        if diverging.offset < Offset(0) || diverging.epoch < Epoch(0) {
            self.conflict("a diverging epoch out of range", Some(from), out);
            return false;
        }
        let end = self.log.truncation_offset(diverging);
        let kept = self.committed.unwrap_or_default().max(self.log.start());
        if end < kept || diverging.offset < kept {
            self.conflict("a divergence below the high watermark", Some(from), out);
            return false;
        }
        if end >= self.log.end() {
            self.conflict("a divergence beyond the log end", Some(from), out);
            return false;
        }
        let generation = self.log.truncate_to(end);
        out.push(Output::Truncate {
            end_offset: end,
            generation,
        });
        true
    }
}

/// How many of the batches to append: those up to the first of a newer epoch than the leader's.
/// `None` if they do not continue the log.
fn acceptable_batches(log: &LogView, epoch: Epoch, batches: &[BatchMeta]) -> Option<usize> {
    let (mut end, mut last_epoch) = (log.end(), log.last_epoch());
    for (index, batch) in batches.iter().enumerate() {
        if batch.epoch > epoch {
            return Some(index);
        }
        let records = batch.end_offset.0.checked_sub(batch.base_offset.0)?;
        let is_next = batch.base_offset == end && batch.epoch >= last_epoch;
        if !is_next || !(1..=BATCH_RECORDS_MAX).contains(&records) {
            return None;
        }
        (end, last_epoch) = (batch.end_offset, batch.epoch);
    }
    Some(batches.len())
}

/// The pause of the successor at `place` of `count`: none for the first, then doubling up to
/// `max_ms`, which is also for those that are not named.
fn successor_backoff_ms(place: Option<usize>, count: usize, max_ms: u64) -> u64 {
    let shift = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    match place {
        None => max_ms,
        Some(0) => 0,
        Some(place) => {
            let base = max_ms.checked_shr(shift(count - 1)).unwrap_or(0);
            let factor = 1u64.checked_shl(shift(place - 1)).unwrap_or(u64::MAX);
            base.saturating_mul(factor).min(max_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EpochStart, LogState};

    fn log_of_ten() -> LogView {
        LogView::new(LogState {
            start_offset: Offset(0),
            end_offset: Offset(10),
            epochs: [EpochStart {
                epoch: Epoch(3),
                start_offset: Offset(0),
            }]
            .to_vec(),
        })
    }

    fn batch(base: i64, end: i64, epoch: i32) -> BatchMeta {
        BatchMeta {
            base_offset: Offset(base),
            end_offset: Offset(end),
            epoch: Epoch(epoch),
        }
    }

    fn accepted(batches: &[BatchMeta]) -> Option<usize> {
        acceptable_batches(&log_of_ten(), Epoch(5), batches)
    }

    #[test]
    fn batches_must_continue_the_log_and_each_other() {
        assert_eq!(accepted(&[]), Some(0));
        assert_eq!(accepted(&[batch(10, 12, 3), batch(12, 13, 5)]), Some(2));
        assert_eq!(accepted(&[batch(9, 12, 3)]), None);
        assert_eq!(accepted(&[batch(11, 12, 3)]), None);
        assert_eq!(accepted(&[batch(10, 12, 3), batch(13, 14, 3)]), None);
        assert_eq!(accepted(&[batch(10, 10, 3)]), None);
        assert_eq!(accepted(&[batch(10, 9, 3)]), None);
        assert_eq!(accepted(&[batch(10, i64::MAX, 3)]), None);
        assert_eq!(accepted(&[batch(i64::MIN, i64::MAX, 3)]), None);
    }

    #[test]
    fn batch_epochs_must_not_fall() {
        assert_eq!(accepted(&[batch(10, 12, 2)]), None);
        assert_eq!(accepted(&[batch(10, 12, 5), batch(12, 13, 4)]), None);
    }

    #[test]
    fn batches_are_dropped_from_the_first_of_a_newer_epoch_on() {
        let batches = [batch(10, 12, 3), batch(12, 13, 6), batch(13, 14, 6)];
        assert_eq!(accepted(&batches), Some(1));
        assert_eq!(accepted(&batches[1..]), Some(0));
    }

    #[test]
    fn successors_stand_one_after_the_other() {
        let pauses = |count| {
            let places = (0..count).map(Some).chain([None]);
            let pause = |place| successor_backoff_ms(place, count, 1000);
            places.map(pause).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(pauses(1), [0, 1000]);
        assert_eq!(pauses(2), [0, 500, 1000]);
        assert_eq!(pauses(4), [0, 125, 250, 500, 1000]);
        assert_eq!(successor_backoff_ms(Some(90), 100, 1000), 0);
    }
}
