//! Vote requests: who gets this replica's vote, or the promise of it.
//!
//! The rules of KIP-595 (Vote) and KIP-996 (pre-vote), one row per state. A vote is given once per
//! epoch; the answer waits until it is on disk (see `held`).

use crate::error_code::ErrorCode;
use crate::message::{Response, VoteRequest, VoteResponse};
use crate::output::{ElectionState, Output, Outputs, RequestToken};
use crate::quorum::Tally;
use crate::raft::{EPOCH_LIMIT, Raft, State};
use crate::types::{Epoch, Instant, Offset, ReplicaKey};

impl Raft {
    /// A Vote request came in (Kafka `KafkaRaftClient.handleVoteRequest`).
    pub(crate) fn on_vote(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &VoteRequest,
        out: &mut Outputs,
    ) {
        let (error, granted) = match self.decide_vote(now, request, out) {
            Ok(granted) => (ErrorCode::NONE, granted),
            Err(error) => (error, false),
        };
        let response = Response::Vote(VoteResponse {
            error,
            leader: self.leader_info(),
            granted,
        });
        let output = Output::Respond { token, response };
        self.election.answer(token, output, out);
    }

    fn decide_vote(
        &mut self,
        now: Instant,
        request: &VoteRequest,
        out: &mut Outputs,
    ) -> Result<bool, ErrorCode> {
        let VoteRequest { epoch, replica, .. } = *request;
        if !is_in_range(request) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if epoch < self.epoch() {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if replica.id < 0 || replica.id == self.local_id() {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if epoch > self.epoch() {
            if !self.voters().contains(replica) {
                // Kafka would take the epoch over, and with it whoever was removed from the quorum
                // or never was in it could depose the leader again and again.
                self.conflict(
                    "a vote asked by a replica that is no voter",
                    Some(replica.id),
                    out,
                );
                return Ok(false);
            }
            let reason = "a voter stands for election in a newer epoch";
            self.become_unattached(now, epoch, None, reason, out);
        }
        if request.voter.is_some_and(|key| !self.is_meant(key)) {
            return Err(ErrorCode::INVALID_VOTER_KEY);
        }
        Ok(self.vote(now, request))
    }

    /// Whether a request for the voter `key` is for this replica. A negative id names nobody.
    pub(crate) fn is_meant(&self, key: ReplicaKey) -> bool {
        let local = self.config.local;
        let is_directory = !key.directory_id.is_defined() || key.directory_id == local.directory_id;
        key.id < 0 || (key.id == local.id && is_directory)
    }

    /// The rule of the current state, for a request of this epoch.
    fn vote(&mut self, now: Instant, request: &VoteRequest) -> bool {
        let is_up_to_date = self.log.is_no_longer_than(request.last);
        if request.pre_vote {
            if !is_up_to_date {
                self.hurry_after_shorter_log(now);
            }
            return is_up_to_date && self.may_pre_vote();
        }
        if !matches!(self.state, State::Unattached(_) | State::Prospective(_)) {
            return false;
        }
        let ElectionState {
            epoch,
            leader_id,
            voted,
        } = *self.election();
        match (voted, leader_id) {
            // The log was compared when the vote was given.
            (Some(voted), _) => voted.matches(request.replica),
            (None, Some(_)) => false,
            (None, None) if is_up_to_date => {
                let voted = ElectionState {
                    epoch,
                    leader_id,
                    voted: Some(request.replica),
                };
                self.add_vote(now, voted);
                true
            }
            (None, None) => false,
        }
    }

    /// Whether a pre-vote of an up-to-date replica is granted: not against a leader that is known
    /// to be there (KIP-996), unless that leader has said that it resigns.
    fn may_pre_vote(&self) -> bool {
        match &self.state {
            State::Leader(_) => false,
            State::Follower(follower) => !follower.has_fetched || follower.leader_resigned,
            _ => true,
        }
    }

    /// Gives this epoch's vote. The replica stays in its state, but starts it anew.
    fn add_vote(&mut self, now: Instant, voted: ElectionState) {
        self.election.set(voted);
        self.requests.reset();
        let deadline = self.random_election_deadline(now);
        let tally = self
            .is_voter()
            .then(|| Tally::new(self.voters(), self.local_id()));
        match (&mut self.state, tally) {
            (State::Unattached(state), Some(_)) => state.election_deadline = Some(deadline),
            (State::Prospective(state), Some(tally)) => {
                state.election_deadline = deadline;
                state.tally = tally;
            }
            _ => {}
        }
    }
}

/// A vote is for an epoch after that of the last record, a pre-vote asks in the current one. An
/// epoch with none above it would end all elections.
fn is_in_range(request: &VoteRequest) -> bool {
    let last = request.last;
    let is_after_log =
        last.epoch < request.epoch || (request.pre_vote && last.epoch == request.epoch);
    last.offset >= Offset(0)
        && last.epoch >= Epoch(0)
        && is_after_log
        && request.epoch < EPOCH_LIMIT
}
