//! Leader: assigns offsets and epoch to appends, serves Fetches, and raises the high watermark.
//! Step 3 of the 5 of an append: before it the raft loop, after it the log writer.
//!
//! It counts flushed offsets only, its own included, and commits only over a record of its own
//! epoch. What it serves is what it has appended, flushed or not, so that the disks work at once.

use crate::config::{Appended, NotLeader};
use crate::error_code::ErrorCode;
use crate::log_view::FetchPosition;
use crate::message::{FetchRequest, FetchResponse};
use crate::output::{ElectionState, Output, Outputs, RequestToken};
use crate::progress::{Observers, Progress};
use crate::quorum::majority_offset;
use crate::raft::{Raft, State};
use crate::types::{Epoch, Instant, NodeId, Offset, OffsetAndEpoch, ReplicaKey};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Fetches that may wait at once. Voters have one each; the rest is for observers, of which those
/// without an id cannot be told apart. Above it a Fetch is answered at once.
const PARKED_MAX: usize = 4096;

/// A Fetch that waits for news.
#[derive(Clone, Debug)]
struct Parked {
    token: RequestToken,
    request: FetchRequest,
    deadline: Instant,
    /// This leader's high watermark when the Fetch came. A newer one is news.
    high_watermark: Option<Offset>,
}

/// What only a leader has.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    /// Log end when this epoch began. Only an offset above it may become the high watermark
    /// (KIP-595, Fetch, step 3).
    pub(crate) epoch_start: Offset,
    /// The LeaderChange record is appended; before that there are no appends and no records.
    pub(crate) has_begun: bool,
    /// Voters that granted their vote, for the LeaderChange record.
    granting: Vec<NodeId>,
    /// Unknown until a record of this epoch is on a majority. Invariant: above `epoch_start`.
    pub(crate) high_watermark: Option<Offset>,
    /// The other voters.
    pub(crate) voters: BTreeMap<NodeId, Progress>,
    pub(crate) observers: Observers,
    /// When to resign for want of a majority; `None` for an only voter.
    check_quorum_deadline: Option<Instant>,
    /// Voters that fetched since the last time they were a majority.
    fetched: Vec<NodeId>,
    /// When to announce the epoch to those that do not fetch; `None` for an only voter.
    begin_deadline: Option<Instant>,
    /// In order of arrival; at most [`PARKED_MAX`].
    parked: Vec<Parked>,
}

impl Leader {
    /// Who should stand next: the other voters by flushed end, the longest first, then by id
    /// (KIP-595, EndQuorumEpoch; Kafka `LeaderState.nonLeaderVotersByDescendingFetchOffset`).
    pub(crate) fn successors(&self) -> Vec<ReplicaKey> {
        let mut voters: Vec<&Progress> = self.voters.values().collect();
        voters.sort_by_key(|progress| (core::cmp::Reverse(progress.end), progress.key));
        voters.iter().map(|progress| progress.key).collect()
    }

    /// Whether there are records for a Fetch at `offset`.
    fn has_records(&self, log_end: Offset, offset: Offset) -> bool {
        self.has_begun && log_end > offset
    }

    /// Whether a replica that knows `known` has a newer high watermark to hear of.
    fn has_newer_high_watermark(&self, known: Option<Offset>) -> bool {
        self.has_begun && self.high_watermark > known
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let parked = self.parked.iter().map(|parked| parked.deadline).min();
        let deadlines = [self.check_quorum_deadline, self.begin_deadline, parked];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn forget(&mut self, token: RequestToken) {
        self.parked.retain(|parked| parked.token != token);
    }

    /// The Fetches that waited, as the leadership ends.
    pub(crate) fn take_parked(&mut self) -> Vec<(RequestToken, i32)> {
        let parked = self.parked.drain(..);
        parked
            .map(|parked| (parked.token, parked.request.max_bytes))
            .collect()
    }
}

impl Raft {
    /// Leads the epoch it was a candidate in. What depends on it (the LeaderChange record, the
    /// announcements) waits until that is durable.
    pub(crate) fn become_leader(&mut self, now: Instant, granting: Vec<NodeId>, out: &mut Outputs) {
        let others = self.other_voters();
        let voters: BTreeMap<_, _> = others
            .map(|id| (id, Progress::new(ReplicaKey::of(id))))
            .collect();
        let has_peers = !voters.is_empty();
        let check_quorum_deadline = now.plus_ms(self.check_quorum_ms());
        let leader = Leader {
            epoch_start: self.log.end(),
            has_begun: false,
            granting,
            high_watermark: None,
            voters,
            observers: Observers::default(),
            check_quorum_deadline: has_peers.then_some(check_quorum_deadline),
            fetched: Vec::new(),
            begin_deadline: has_peers.then_some(now),
            parked: Vec::new(),
        };
        self.lost_elections = 0;
        let next = ElectionState {
            epoch: self.epoch(),
            leader_id: Some(self.local_id()),
            voted: None,
        };
        let reason = "a majority voted for this replica";
        self.enter(State::Leader(leader), next, None, reason, out);
    }

    /// Appends the LeaderChange record once the leadership is durable
    /// (KIP-595, "LeaderChangeMessage").
    pub(crate) fn maybe_begin_epoch(&mut self, out: &mut Outputs) {
        let epoch = self.epoch();
        let voters = self.voters().voters().iter().map(|v| v.key.id).collect();
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        if leader.has_begun || !self.election.is_durable() {
            return;
        }
        leader.has_begun = true;
        assert_eq!(
            self.log.end(),
            leader.epoch_start,
            "appended before the epoch began"
        );
        let granting = core::mem::take(&mut leader.granting);
        let base_offset = self.log.append_to(Offset(leader.epoch_start.0 + 1), epoch);
        out.push(Output::AppendLeaderChange {
            base_offset,
            epoch,
            voters,
            granting,
        });
    }

    /// See [`Raft::append`].
    pub(crate) fn append_records(&mut self, record_count: u32) -> Result<Appended, NotLeader> {
        assert!(record_count > 0, "append of nothing");
        let epoch = self.epoch();
        match &self.state {
            State::Leader(leader) if leader.has_begun && !self.has_storage_failed => {
                let end = Offset(self.log.end().0 + i64::from(record_count));
                let base_offset = self.log.append_to(end, epoch);
                Ok(Appended { base_offset, epoch })
            }
            _ => Err(NotLeader {
                leader: self.leader_info(),
            }),
        }
    }

    /// A Fetch came in. The order of the checks is Kafka's
    /// (`KafkaRaftClient.handleFetchRequest`).
    pub(crate) fn on_fetch(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &FetchRequest,
        out: &mut Outputs,
    ) {
        if let Some(error) = self.check_fetch(request) {
            self.refuse_fetch(token, request.max_bytes, error, out);
            return;
        }
        let position = OffsetAndEpoch {
            offset: request.fetch_offset,
            epoch: request.last_fetched_epoch,
        };
        match self.log.validate(position) {
            FetchPosition::BelowStart => {
                let error = ErrorCode::OFFSET_OUT_OF_RANGE;
                self.refuse_fetch(token, request.max_bytes, error, out);
            }
            FetchPosition::Diverging(end) => {
                let response = self.fetch_response(ErrorCode::NONE, Some(end), None);
                self.answer_fetch(token, request.max_bytes, response, out);
            }
            FetchPosition::Valid => {
                self.on_acknowledged(now, request, out);
                self.answer_or_park(now, token, request, out);
            }
        }
    }

    fn check_fetch(&self, request: &FetchRequest) -> Option<ErrorCode> {
        let epoch = request.current_leader_epoch;
        let in_range = request.fetch_offset >= Offset(0)
            && request.last_fetched_epoch >= Epoch(0)
            && request.last_fetched_epoch <= epoch
            && request.max_wait_ms >= 0;
        if !in_range {
            Some(ErrorCode::INVALID_REQUEST)
        } else if epoch < self.epoch() {
            Some(ErrorCode::FENCED_LEADER_EPOCH)
        } else if epoch > self.epoch() {
            Some(ErrorCode::UNKNOWN_LEADER_EPOCH)
        } else if !matches!(self.state, State::Leader(_)) {
            Some(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        } else {
            None
        }
    }

    pub(crate) fn refuse_fetch(
        &mut self,
        token: RequestToken,
        max_bytes: i32,
        error: ErrorCode,
        out: &mut Outputs,
    ) {
        let response = self.fetch_response(error, None, None);
        self.answer_fetch(token, max_bytes, response, out);
    }

    fn answer_fetch(
        &mut self,
        token: RequestToken,
        max_bytes: i32,
        response: FetchResponse,
        out: &mut Outputs,
    ) {
        // Held records could be cut from the log before they leave.
        assert!(response.records_from.is_none() || self.election.is_durable());
        let output = Output::RespondFetch {
            token,
            response,
            max_bytes,
        };
        self.election.answer(token, output, out);
    }

    fn fetch_response(
        &self,
        error: ErrorCode,
        diverging: Option<OffsetAndEpoch>,
        records_from: Option<Offset>,
    ) -> FetchResponse {
        let high_watermark = match &self.state {
            State::Leader(leader) if error.is_none() => leader.high_watermark,
            _ => None,
        };
        FetchResponse {
            error,
            leader: self.leader_info(),
            high_watermark,
            log_start_offset: self.log.start(),
            diverging,
            records_from,
        }
    }

    /// A valid Fetch acknowledges everything below its offset, endorses the leader, and keeps it in
    /// office. Only one whose position is in this log counts: nobody can acknowledge another log.
    fn on_acknowledged(&mut self, now: Instant, request: &FetchRequest, out: &mut Outputs) {
        let (log_end, local_id) = (self.log.end(), self.local_id());
        let is_voter = self.voters().contains(request.replica);
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        if request.replica.id == local_id || request.replica.id < 0 {
            return;
        }
        let progress = if is_voter {
            leader.voters.get_mut(&request.replica.id)
        } else {
            leader.observers.track(now, request.replica)
        };
        if let Some(progress) = progress {
            progress.key = request.replica;
            progress.on_fetch(now, request.fetch_offset, log_end);
        }
        if is_voter {
            self.on_voter_contact(now, request.replica.id);
            self.maybe_advance_high_watermark(out);
        }
    }

    /// Check-quorum: the timer starts anew whenever the voters that fetched are, with the leader, a
    /// majority (KAFKA-15489; Kafka `LeaderState.updateCheckQuorumForFollowingVoter`).
    fn on_voter_contact(&mut self, now: Instant, voter: NodeId) {
        let others_needed = self.voters().majority() - 1;
        let restarted = now.plus_ms(self.check_quorum_ms());
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        if !leader.fetched.contains(&voter) {
            leader.fetched.push(voter);
        }
        if leader.fetched.len() >= others_needed {
            leader.fetched.clear();
            leader.check_quorum_deadline = Some(restarted);
        }
    }

    /// Raises the high watermark to what a majority has flushed, if that is a record of this epoch.
    pub(crate) fn maybe_advance_high_watermark(&mut self, out: &mut Outputs) {
        let flushed = self.log.flushed();
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        let others = leader.voters.values().map(|progress| progress.end);
        let Some(offset) = majority_offset(others.chain([Some(flushed)])) else {
            return;
        };
        if offset > leader.epoch_start && Some(offset) > leader.high_watermark {
            leader.high_watermark = Some(offset);
            self.commit_to(offset, out);
        }
    }

    fn answer_or_park(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &FetchRequest,
        out: &mut Outputs,
    ) {
        let (log_end, linger_ms) = (self.log.end(), self.config.fetch_hw_linger_ms);
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        // A request that says nothing about the high watermark does not ask for a newer one.
        let known = match request.high_watermark {
            None => leader.high_watermark,
            Some(offset) => (offset >= Offset(0)).then_some(offset),
        };
        let mut wait_ms = u64::from(request.max_wait_ms.unsigned_abs());
        if leader.has_newer_high_watermark(known) {
            wait_ms = wait_ms.min(linger_ms);
        }
        let has_records = leader.has_records(log_end, request.fetch_offset);
        if has_records || wait_ms == 0 || leader.parked.len() >= PARKED_MAX {
            self.answer_with_records(token, request, out);
            return;
        }
        leader.parked.push(Parked {
            token,
            request: request.clone(),
            deadline: now.plus_ms(wait_ms),
            high_watermark: leader.high_watermark,
        });
    }

    fn answer_with_records(
        &mut self,
        token: RequestToken,
        request: &FetchRequest,
        out: &mut Outputs,
    ) {
        let (log_end, offset) = (self.log.end(), request.fetch_offset);
        let has_records =
            matches!(&self.state, State::Leader(leader) if leader.has_records(log_end, offset));
        let records_from = has_records.then_some(offset);
        let response = self.fetch_response(ErrorCode::NONE, None, records_from);
        self.answer_fetch(token, request.max_bytes, response, out);
    }

    /// Answers the parked Fetches for which there are records. Those for which there is a newer
    /// high watermark are answered soon: an answer without records uses up the Fetch that the next
    /// record needs.
    pub(crate) fn answer_parked_with_news(&mut self, now: Instant, out: &mut Outputs) {
        let lingered = now.plus_ms(self.config.fetch_hw_linger_ms);
        if let State::Leader(leader) = &mut self.state {
            let high_watermark = leader.high_watermark.filter(|_| leader.has_begun);
            for parked in &mut leader.parked {
                if high_watermark > parked.high_watermark {
                    parked.deadline = parked.deadline.min(lingered);
                }
            }
        }
        self.answer_parked(out, |leader, log_end, parked| {
            leader.has_records(log_end, parked.request.fetch_offset) || parked.deadline <= now
        });
    }

    fn answer_parked(
        &mut self,
        out: &mut Outputs,
        is_due: impl Fn(&Leader, Offset, &Parked) -> bool,
    ) {
        let log_end = self.log.end();
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        if !leader
            .parked
            .iter()
            .any(|parked| is_due(leader, log_end, parked))
        {
            return;
        }
        let all = core::mem::take(&mut leader.parked);
        let (due, waiting) = all
            .into_iter()
            .partition(|parked| is_due(leader, log_end, parked));
        leader.parked = waiting;
        let due: Vec<Parked> = due;
        for parked in due {
            self.answer_with_records(parked.token, &parked.request, out);
        }
    }

    /// Fires the leader's timers.
    pub(crate) fn on_leader_timers(&mut self, now: Instant, out: &mut Outputs) {
        self.answer_parked(out, |_, _, parked| parked.deadline <= now);
        let half_fetch_timeout_ms = self.config.fetch_timeout_ms / 2;
        let State::Leader(leader) = &mut self.state else {
            return;
        };
        if leader.check_quorum_deadline.is_some_and(|due| due <= now) {
            self.resign(now, "no majority of the voters fetches", out);
            return;
        }
        if leader.begin_deadline.is_some_and(|due| due <= now) {
            leader.begin_deadline = Some(now.plus_ms(half_fetch_timeout_ms.max(1)));
            for progress in leader.voters.values_mut() {
                progress.is_silent = progress
                    .last_fetch
                    .is_none_or(|fetched| now.ms_since(fetched) >= half_fetch_timeout_ms);
            }
        }
    }

    /// A voter has taken note of this leader.
    pub(crate) fn on_begin_acknowledged(&mut self, from: NodeId) {
        self.requests.succeeded(from);
        if let State::Leader(leader) = &mut self.state
            && let Some(progress) = leader.voters.get_mut(&from)
        {
            progress.is_silent = false;
        }
    }
}
