//! BeginQuorumEpoch and EndQuorumEpoch requests: a leader makes itself known, or resigns.

use crate::error_code::ErrorCode;
use crate::message::{BeginQuorumEpochRequest, EndQuorumEpochRequest, EpochResponse, Response};
use crate::output::{Output, Outputs, RequestToken};
use crate::raft::{EPOCH_LIMIT, Raft, State};
use crate::types::{Endpoint, Epoch, Instant, NodeId};

impl Raft {
    /// A BeginQuorumEpoch request came in (Kafka `KafkaRaftClient.handleBeginQuorumEpochRequest`).
    pub(crate) fn on_begin(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &BeginQuorumEpochRequest,
        out: &mut Outputs,
    ) {
        let error = self.take_begin(now, request, out).err();
        let response = Response::BeginQuorumEpoch(self.epoch_response(error));
        let output = Output::Respond { token, response };
        self.election.answer(token, output, out);
    }

    fn take_begin(
        &mut self,
        now: Instant,
        request: &BeginQuorumEpochRequest,
        out: &mut Outputs,
    ) -> Result<(), ErrorCode> {
        let endpoint = request.endpoint.clone();
        self.accept_leader(now, request.epoch, request.leader_id, endpoint, out)?;
        if let State::Prospective(state) = &self.state
            && !state.leader_resigned
        {
            // The leader is alive after all.
            self.leave_prospective(now, "the leader made itself known again", out);
        }
        self.on_leader_contact(now);
        // Only now: the leadership is true whoever the message was for.
        if request.voter.is_some_and(|key| !self.is_meant(key)) {
            return Err(ErrorCode::INVALID_VOTER_KEY);
        }
        Ok(())
    }

    /// An EndQuorumEpoch request came in (Kafka `KafkaRaftClient.handleEndQuorumEpochRequest`).
    pub(crate) fn on_end(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &EndQuorumEpochRequest,
        out: &mut Outputs,
    ) {
        let endpoint = request.endpoint.clone();
        let accepted = self.accept_leader(now, request.epoch, request.leader_id, endpoint, out);
        if accepted.is_ok() {
            self.on_leader_resigned(now, &request.preferred_candidates);
        }
        let response = Response::EndQuorumEpoch(self.epoch_response(accepted.err()));
        let output = Output::Respond { token, response };
        self.election.answer(token, output, out);
    }

    fn epoch_response(&self, error: Option<ErrorCode>) -> EpochResponse {
        EpochResponse {
            error: error.unwrap_or(ErrorCode::NONE),
            leader: self.leader_info(),
        }
    }

    /// Takes note of a leader that speaks for itself, and follows it if that is news.
    fn accept_leader(
        &mut self,
        now: Instant,
        epoch: Epoch,
        leader_id: NodeId,
        endpoint: Option<Endpoint>,
        out: &mut Outputs,
    ) -> Result<(), ErrorCode> {
        let is_in_range = epoch < EPOCH_LIMIT;
        if is_in_range && epoch < self.epoch() {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if !is_in_range || leader_id < 0 {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let known = (epoch == self.epoch())
            .then_some(self.leader_id())
            .flatten();
        if let Some(what) = self.why_not_leader(leader_id, known) {
            self.conflict(what, Some(leader_id), out);
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if leader_id == self.local_id() {
            return Ok(());
        }
        let is_followed = known.is_some() && !matches!(self.state, State::Unattached(_));
        match endpoint.or_else(|| self.voter_endpoint(leader_id)) {
            Some(endpoint) if is_followed => self.leader_endpoint = Some(endpoint),
            Some(endpoint) => {
                let reason = "the leader made itself known";
                self.become_follower(now, epoch, leader_id, endpoint, reason, out);
            }
            None if is_followed => {}
            None => return Err(ErrorCode::INVALID_REQUEST),
        }
        Ok(())
    }

    /// What contradicts that `leader_id` leads, `known` being the leader of that epoch.
    fn why_not_leader(&self, leader_id: NodeId, known: Option<NodeId>) -> Option<&'static str> {
        match known {
            Some(known) if known == leader_id => None,
            Some(_) => Some("a second leader in one epoch"),
            None if leader_id == self.local_id() => Some("another replica with this node's id"),
            // As for votes: a stranger must not depose anybody. An observer may not know the
            // voters, it follows whoever leads.
            None if self.is_voter() && self.voters().get(leader_id).is_none() => {
                Some("a leader that is no voter")
            }
            None => None,
        }
    }
}
