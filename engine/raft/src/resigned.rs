//! Resigned: led this epoch and has given it up, or was restarted after leading it.
//!
//! Tells the voters by EndQuorumEpoch until each has acknowledged, looks for a newer leader by
//! Fetch, and gives its epoch up altogether when the election timer ends. It never leads this epoch
//! again: what it had appended may be lost (KAFKA-10527). Nothing is written on entry.

use crate::output::Outputs;
use crate::raft::{Raft, State};
use crate::types::{Instant, NodeId, ReplicaKey};
use alloc::vec::Vec;

/// What only a resigned leader has.
#[derive(Clone, Debug)]
pub(crate) struct Resigned {
    /// When to leave this epoch.
    pub(crate) election_deadline: Instant,
    /// Voters that have not acknowledged yet.
    pub(crate) unacknowledged: Vec<NodeId>,
    /// Who should stand first, best first; told in EndQuorumEpoch.
    pub(crate) preferred: Vec<ReplicaKey>,
    /// Voters at whose address nobody listens. If that is all of them, there is no successor to
    /// wait for.
    pub(crate) gone: Vec<NodeId>,
}

impl Raft {
    /// Gives the leadership up in favour of the voters with the longest flushed logs.
    pub(crate) fn resign(&mut self, now: Instant, reason: &'static str, out: &mut Outputs) {
        let State::Leader(leader) = &self.state else {
            unreachable!("only a leader resigns");
        };
        let preferred = leader.successors();
        let resigned = self.new_resigned(now, preferred);
        let unchanged = *self.election();
        self.enter(State::Resigned(resigned), unchanged, None, reason, out);
    }

    /// A resigned leader that has told nobody yet.
    pub(crate) fn new_resigned(&mut self, now: Instant, preferred: Vec<ReplicaKey>) -> Resigned {
        Resigned {
            election_deadline: self.random_election_deadline(now),
            unacknowledged: self.other_voters().collect(),
            preferred,
            gone: Vec::new(),
        }
    }

    /// A voter has heard that this leader resigns.
    pub(crate) fn on_end_acknowledged(&mut self, from: NodeId) {
        self.requests.succeeded(from);
        if let State::Resigned(resigned) = &mut self.state {
            resigned.unacknowledged.retain(|id| *id != from);
        }
    }

    /// A voter refused the connection.
    pub(crate) fn on_voter_gone(&mut self, id: NodeId) {
        let is_voter = self.voters().get(id).is_some();
        if let State::Resigned(resigned) = &mut self.state
            && is_voter
            && !resigned.gone.contains(&id)
        {
            resigned.gone.push(id);
        }
    }

    /// A voter answered, so it is there.
    pub(crate) fn on_voter_there(&mut self, id: NodeId) {
        if let State::Resigned(resigned) = &mut self.state {
            resigned.gone.retain(|gone| *gone != id);
        }
    }

    /// Whether a resigned leader has anybody who could succeed it.
    pub(crate) fn may_be_succeeded(&self) -> bool {
        let State::Resigned(resigned) = &self.state else {
            return false;
        };
        resigned.gone.len() < self.other_voters().count()
    }

    /// The election timer of a resigned leader: its epoch is over.
    pub(crate) fn leave_own_epoch(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(epoch) = self.next_epoch() {
            let reason = "the epoch that this replica led is over";
            self.become_unattached(now, epoch, None, reason, out);
            return;
        }
        let later = self.random_election_deadline(now);
        if let State::Resigned(resigned) = &mut self.state {
            resigned.election_deadline = later;
        }
    }
}
