//! Prospective: asks whether an election would be won before it raises its epoch (KIP-996,
//! pre-vote).
//!
//! Nothing is written on entry. The leader and the vote of the epoch are kept, for the replica may
//! well go back to following.

use crate::output::Outputs;
use crate::quorum::Tally;
use crate::raft::{Raft, State};
use crate::types::{Instant, NodeId};

/// What only a prospective candidate has.
#[derive(Clone, Debug)]
pub(crate) struct Prospective {
    /// When to stop asking.
    pub(crate) election_deadline: Instant,
    pub(crate) tally: Tally,
    /// The leader of this epoch has said that it resigns: there is nobody to go back to, and those
    /// that refuse may only not have heard of it yet.
    pub(crate) leader_resigned: bool,
}

impl Raft {
    /// Starts to ask for pre-votes. A quorum of one is won at once.
    pub(crate) fn become_prospective(
        &mut self,
        now: Instant,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        assert!(self.is_voter(), "an observer stood for election");
        let leader_resigned = match &self.state {
            State::Follower(follower) => follower.leader_resigned,
            _ => false,
        };
        let state = Prospective {
            election_deadline: self.random_election_deadline(now),
            tally: Tally::new(self.voters(), self.local_id()),
            leader_resigned,
        };
        if let State::Resigned(_) = self.state {
            // Only an only voter goes this way, and it has nobody to lead it.
            assert_eq!(self.voters().len(), 1, "resigned, then prospective");
        }
        let (unchanged, endpoint) = (*self.election(), self.leader_endpoint.clone());
        self.enter(State::Prospective(state), unchanged, endpoint, reason, out);
        self.settle_pre_vote(now, out);
    }

    /// Takes the answer of a voter; it may change its mind later.
    pub(crate) fn on_pre_vote(
        &mut self,
        now: Instant,
        from: NodeId,
        granted: bool,
        out: &mut Outputs,
    ) {
        let State::Prospective(state) = &mut self.state else {
            return;
        };
        if !state.tally.record(from, granted) {
            self.conflict("a pre-vote of a replica that is no voter", Some(from), out);
            return;
        }
        if granted {
            self.requests.succeeded(from);
        } else {
            // Asked again after a pause: the answer may change as long as this election is open.
            self.requests.failed(now, from, &mut self.rng);
        }
        self.settle_pre_vote(now, out);
    }

    /// A voter that knows no pre-votes: stand for election without them (KIP-996).
    pub(crate) fn on_pre_vote_unsupported(&mut self, now: Instant, out: &mut Outputs) {
        if let State::Prospective(_) = self.state {
            self.become_candidate(now, "a voter does not know pre-votes", out);
        }
    }

    fn settle_pre_vote(&mut self, now: Instant, out: &mut Outputs) {
        let State::Prospective(state) = &self.state else {
            return;
        };
        if state.tally.is_won() {
            self.become_candidate(now, "a majority would vote for this replica", out);
        } else if state.tally.is_lost() && !state.leader_resigned {
            self.leave_prospective(now, "a majority would not vote for this replica", out);
        }
    }

    /// Goes back to the leader, if there is one to go back to; else waits unattached.
    pub(crate) fn leave_prospective(
        &mut self,
        now: Instant,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        let State::Prospective(state) = &self.state else {
            unreachable!("left prospective in another state");
        };
        let (epoch, leader_id) = (self.epoch(), self.leader_id());
        match (leader_id, self.leader_endpoint.clone()) {
            (Some(leader_id), Some(endpoint)) if !state.leader_resigned => {
                self.become_follower(now, epoch, leader_id, endpoint, reason, out);
            }
            _ => self.become_unattached(now, epoch, leader_id, reason, out),
        }
    }
}
