//! Answers to this replica's own requests, and requests that got none.
//!
//! Every answer, errors included, carries the epoch and leader that its sender knows; that is taken
//! note of first (Kafka `KafkaRaftClient.maybeHandleCommonResponse`), and only an answer of this
//! epoch goes on to the state.

use crate::config::RequestFailure;
use crate::error_code::ErrorCode;
use crate::message::{BatchMeta, EpochResponse, FetchResponse, LeaderInfo, Response, VoteResponse};
use crate::output::{Outputs, RequestId};
use crate::raft::{EPOCH_LIMIT, Raft, State};
use crate::requests::RequestKind;
use crate::types::{Instant, NodeId};

impl Raft {
    pub(crate) fn dispatch_response(
        &mut self,
        now: Instant,
        from: NodeId,
        id: RequestId,
        response: &Response,
        batches: &[BatchMeta],
        out: &mut Outputs,
    ) {
        let Some(kind) = self.requests.complete(from, id) else {
            return;
        };
        self.on_voter_there(from);
        match (kind, response) {
            (RequestKind::Vote, Response::Vote(answer)) => {
                self.on_vote_response(now, from, answer, out);
            }
            (RequestKind::BeginQuorumEpoch, Response::BeginQuorumEpoch(answer)) => {
                if self.is_acknowledged(now, from, answer, out) {
                    self.on_begin_acknowledged(from);
                }
            }
            (RequestKind::EndQuorumEpoch, Response::EndQuorumEpoch(answer)) => {
                if self.is_acknowledged(now, from, answer, out) {
                    self.on_end_acknowledged(from);
                }
            }
            (RequestKind::Fetch, Response::Fetch(answer)) => {
                self.on_fetch_response(now, from, answer, batches, out);
            }
            _ => {
                self.requests.failed(now, from, &mut self.rng);
                self.conflict("an answer to another kind of request", Some(from), out);
            }
        }
    }

    pub(crate) fn dispatch_failure(
        &mut self,
        now: Instant,
        from: NodeId,
        id: RequestId,
        failure: RequestFailure,
        out: &mut Outputs,
    ) {
        let Some(kind) = self.requests.complete(from, id) else {
            return;
        };
        self.requests.failed(now, from, &mut self.rng);
        if failure == RequestFailure::Refused {
            self.on_voter_gone(from);
        }
        if kind == RequestKind::Vote && failure == RequestFailure::UnsupportedVersion {
            self.on_pre_vote_unsupported(now, out);
        }
    }

    fn on_vote_response(
        &mut self,
        now: Instant,
        from: NodeId,
        answer: &VoteResponse,
        out: &mut Outputs,
    ) {
        if answer.error == ErrorCode::UNSUPPORTED_VERSION {
            self.requests.failed(now, from, &mut self.rng);
            self.on_pre_vote_unsupported(now, out);
            return;
        }
        if !self.is_of_this_epoch(now, from, &answer.leader, out) {
            return;
        }
        if !answer.error.is_none() {
            self.requests.failed(now, from, &mut self.rng);
            return;
        }
        match self.state {
            State::Prospective(_) => self.on_pre_vote(now, from, answer.granted, out),
            State::Candidate(_) => self.on_vote_answer(now, from, answer.granted, out),
            // Every change of state forgets the requests of the one before.
            _ => unreachable!("a vote came to somebody who had not asked"),
        }
    }

    fn is_acknowledged(
        &mut self,
        now: Instant,
        from: NodeId,
        answer: &EpochResponse,
        out: &mut Outputs,
    ) -> bool {
        if !self.is_of_this_epoch(now, from, &answer.leader, out) {
            return false;
        }
        if !answer.error.is_none() {
            self.requests.failed(now, from, &mut self.rng);
        }
        answer.error.is_none()
    }

    fn on_fetch_response(
        &mut self,
        now: Instant,
        from: NodeId,
        answer: &FetchResponse,
        batches: &[BatchMeta],
        out: &mut Outputs,
    ) {
        if !self.is_of_this_epoch(now, from, &answer.leader, out) {
            return;
        }
        match self.state {
            State::Follower(_) => self.on_fetch_answer(now, from, answer, batches, out),
            // The search for a leader found none yet.
            _ => self.requests.knew_nothing(now, from, &mut self.rng),
        }
    }

    /// Takes note of what the sender of an answer knows. False: that decided everything, or the
    /// answer is of no use.
    fn is_of_this_epoch(
        &mut self,
        now: Instant,
        from: NodeId,
        info: &LeaderInfo,
        out: &mut Outputs,
    ) -> bool {
        if info.epoch > self.epoch() && info.epoch < EPOCH_LIMIT {
            self.enter_newer_epoch(now, from, info, out);
            return false;
        }
        if info.epoch != self.epoch() {
            if info.epoch >= EPOCH_LIMIT {
                self.conflict("an epoch with none above it", Some(from), out);
            }
            self.requests.failed(now, from, &mut self.rng);
            return false;
        }
        match (info.leader_id.filter(|id| *id >= 0), self.leader_id()) {
            (None, _) => true,
            (Some(leader_id), known) if known.is_some_and(|known| known != leader_id) => {
                self.useless("a second leader in one epoch", now, from, out)
            }
            (Some(leader_id), None) if leader_id == self.local_id() => self.useless(
                "the leadership of an epoch that this replica did not win",
                now,
                from,
                out,
            ),
            (Some(_), _) => !self.follows_now(now, info, out),
        }
    }

    fn useless(
        &mut self,
        what: &'static str,
        now: Instant,
        from: NodeId,
        out: &mut Outputs,
    ) -> bool {
        self.conflict(what, Some(from), out);
        self.requests.failed(now, from, &mut self.rng);
        false
    }

    /// Follows the leader of this epoch that `info` names, unless that is no news.
    fn follows_now(&mut self, now: Instant, info: &LeaderInfo, out: &mut Outputs) -> bool {
        let is_news = self.leader_id().is_none() || matches!(self.state, State::Unattached(_));
        let Some(leader_id) = info.leader_id.filter(|_| is_news) else {
            return false;
        };
        let endpoint = info.endpoint.clone();
        let Some(endpoint) = endpoint.or_else(|| self.voter_endpoint(leader_id)) else {
            return false;
        };
        let reason = "an answer named the leader";
        self.become_follower(now, info.epoch, leader_id, endpoint, reason, out);
        true
    }

    fn enter_newer_epoch(
        &mut self,
        now: Instant,
        from: NodeId,
        info: &LeaderInfo,
        out: &mut Outputs,
    ) {
        let mut leader_id = info.leader_id.filter(|id| *id >= 0);
        if leader_id == Some(self.local_id()) {
            // This node has lost its disk, or another one has its id.
            self.conflict(
                "a newer epoch that this replica is to have led",
                Some(from),
                out,
            );
            leader_id = None;
        }
        let endpoint =
            leader_id.and_then(|id| info.endpoint.clone().or_else(|| self.voter_endpoint(id)));
        let reason = "an answer came from a newer epoch";
        match (leader_id, endpoint) {
            (Some(leader_id), Some(endpoint)) => {
                self.become_follower(now, info.epoch, leader_id, endpoint, reason, out);
            }
            _ => self.become_unattached(now, info.epoch, leader_id, reason, out),
        }
    }
}
