//! Candidate: stands for election in a new epoch, its own vote given.
//!
//! Its Vote requests leave once its own vote is durable. A lost election is followed by another
//! pre-vote after a pause that doubles each time (KIP-595, binary exponential backoff); Kafka waits
//! out the election timer.

use crate::output::{ElectionState, Outputs};
use crate::quorum::Tally;
use crate::raft::{Raft, State};
use crate::requests::backoff_ms;
use crate::types::{Instant, NodeId};

/// What only a candidate has.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// When to give this election up.
    pub(crate) election_deadline: Instant,
    pub(crate) tally: Tally,
    /// The refusals of a majority have been acted on.
    lost: bool,
}

impl Raft {
    /// Raises the epoch and votes for itself. A quorum of one is won at once.
    pub(crate) fn become_candidate(
        &mut self,
        now: Instant,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        let Some(epoch) = self.next_epoch() else {
            self.leave_prospective(now, "there is no epoch left", out);
            return;
        };
        let next = ElectionState {
            epoch,
            leader_id: None,
            voted: Some(self.config.local),
        };
        let state = State::Candidate(self.new_candidate(now));
        self.enter(state, next, None, reason, out);
        self.maybe_win(now, out);
    }

    /// A fresh candidacy, its timer running.
    pub(crate) fn new_candidate(&mut self, now: Instant) -> Candidate {
        Candidate {
            election_deadline: self.random_election_deadline(now),
            tally: Tally::new(self.voters(), self.local_id()),
            lost: false,
        }
    }

    /// Takes the answer of a voter. A vote that was given is not taken back.
    pub(crate) fn on_vote_answer(
        &mut self,
        now: Instant,
        from: NodeId,
        granted: bool,
        out: &mut Outputs,
    ) {
        let State::Candidate(state) = &mut self.state else {
            return;
        };
        self.requests.succeeded(from);
        match state.tally.answer(from) {
            Some(before) if before != granted => {
                self.conflict("a voter changed its vote", Some(from), out);
                return;
            }
            _ => {}
        }
        if !state.tally.record(from, granted) {
            self.conflict("a vote of a replica that is no voter", Some(from), out);
            return;
        }
        self.maybe_win(now, out);
        self.maybe_lose(now);
    }

    /// Becomes leader if a majority has granted. Also for a candidate that was restored.
    pub(crate) fn maybe_win(&mut self, now: Instant, out: &mut Outputs) {
        if let State::Candidate(state) = &self.state
            && state.tally.is_won()
        {
            let granting = state.tally.granting();
            self.become_leader(now, granting, out);
        }
    }

    fn maybe_lose(&mut self, now: Instant) {
        let State::Candidate(state) = &mut self.state else {
            return;
        };
        if state.lost || !state.tally.is_lost() {
            return;
        }
        state.lost = true;
        self.lost_elections = self.lost_elections.saturating_add(1);
        let pause = backoff_ms(
            self.config.retry_backoff_ms,
            self.config.election_backoff_max_ms,
            self.lost_elections,
            &mut self.rng,
        );
        // All of it at random, or two candidates that split the votes would meet again.
        let again = now.plus_ms(1 + self.rng.below(pause));
        state.election_deadline = state.election_deadline.min(again);
    }
}
