//! Unattached: knows the epoch, follows nobody, and looks for the leader by Fetch.
//!
//! A voter stands for election when its timer ends; an observer has no timer. The only state, with
//! Prospective, that gives a vote.

use crate::output::{ElectionState, Outputs};
use crate::raft::{Raft, State};
use crate::types::{Epoch, Instant, NodeId};

/// What only an unattached replica has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unattached {
    /// When a voter stands for election; `None` for an observer.
    pub(crate) election_deadline: Option<Instant>,
}

impl Raft {
    /// Enters a newer epoch, or after a failed pre-vote the same one, without following anybody.
    pub(crate) fn become_unattached(
        &mut self,
        now: Instant,
        epoch: Epoch,
        leader_id: Option<NodeId>,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        assert_ne!(leader_id, Some(self.local_id()), "unattached to itself");
        let election_deadline = self.inherited_election_deadline(now);
        let voted = (epoch == self.epoch())
            .then_some(self.election().voted)
            .flatten();
        let next = ElectionState {
            epoch,
            leader_id,
            voted,
        };
        let state = State::Unattached(Unattached { election_deadline });
        self.enter(state, next, None, reason, out);
    }

    /// The election timer of an unattached replica goes on where that of the state before was, so
    /// that somebody who raises epochs cannot put off everybody's election for ever
    /// (Kafka `QuorumState.transitionToUnattached`). A timer that is over starts anew: with nothing
    /// left this replica would stand again before it could look for a leader.
    fn inherited_election_deadline(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_voter() {
            return None;
        }
        let before = match &self.state {
            State::Unattached(state) => state.election_deadline,
            State::Prospective(state) if !state.tally.is_lost() => Some(state.election_deadline),
            State::Candidate(state) => Some(state.election_deadline),
            State::Resigned(state) => Some(state.election_deadline),
            State::Prospective(_) | State::Leader(_) | State::Follower(_) => None,
        };
        match before {
            Some(deadline) if deadline > now => Some(deadline),
            _ => Some(self.random_election_deadline(now)),
        }
    }
}
