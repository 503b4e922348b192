//! One vote per epoch and voter, on disk before anybody hears of it, remembered across crashes.

use super::Violation;
use quorate_raft::{ElectionState, Epoch, NodeId};
use std::collections::BTreeMap;

/// The votes as disks hold them and as nodes speak of them.
#[derive(Debug, Default)]
pub struct Votes {
    given: BTreeMap<(NodeId, Epoch), NodeId>,
    durable: BTreeMap<NodeId, ElectionState>,
}

impl Votes {
    /// The disk of `node` holds `election` now.
    ///
    /// # Errors
    /// If the epoch went back, or the vote of an epoch is a second one.
    pub fn on_persisted(&mut self, node: NodeId, election: ElectionState) -> Result<(), Violation> {
        if let Some(before) = self.durable.insert(node, election)
            && before.epoch > election.epoch
        {
            let (from, to) = (before.epoch, election.epoch);
            return Err(Violation::ElectionWentBack { node, from, to });
        }
        let itself = election.leader_id.filter(|leader| *leader == node);
        match itself.or(election.voted.map(|voted| voted.id)) {
            Some(candidate) => self.give(node, election.epoch, candidate),
            None => Ok(()),
        }
    }

    /// `voter` tells `candidate`, another node or itself, that it has its vote in `epoch`.
    ///
    /// # Errors
    /// If its disk does not hold that vote yet, or it gave another one.
    pub fn on_told(
        &mut self,
        voter: NodeId,
        epoch: Epoch,
        candidate: NodeId,
    ) -> Result<(), Violation> {
        let durable = self.durable.get(&voter).copied().unwrap_or_default();
        let holds = durable.epoch > epoch
            || durable.epoch == epoch && durable.voted.is_some_and(|voted| voted.id == candidate)
            // Who leads has voted for itself; who follows has kept its vote or its leader.
            || durable.epoch == epoch && durable.leader_id.is_some();
        if !holds {
            return Err(Violation::VoteNotDurable {
                voter,
                epoch,
                candidate,
            });
        }
        self.give(voter, epoch, candidate)
    }

    /// `node` restarted and read `election` from its disk.
    ///
    /// # Errors
    /// If that is not what was durable.
    pub fn on_recovered(&self, node: NodeId, election: ElectionState) -> Result<(), Violation> {
        let durable = self.durable.get(&node).copied().unwrap_or_default();
        if stored(durable) == stored(election) || election.epoch > durable.epoch {
            return Ok(());
        }
        // A write that was not reported any more may have landed.
        let keeps_vote = election.voted.map(|voted| voted.id)
            == durable.voted.map(|voted| voted.id)
            || election.leader_id.is_some();
        if election.epoch == durable.epoch && (durable.voted.is_none() || keeps_vote) {
            return Ok(());
        }
        Err(Violation::RecoveredWrongElection { node })
    }

    fn give(&mut self, voter: NodeId, epoch: Epoch, to: NodeId) -> Result<(), Violation> {
        match self.given.insert((voter, epoch), to) {
            Some(first) if first != to => Err(Violation::VotedTwice {
                voter,
                epoch,
                first,
                second: to,
            }),
            _ => Ok(()),
        }
    }
}

/// What the file format keeps of an election (version 0 has no directory ids).
fn stored(election: ElectionState) -> (Epoch, Option<NodeId>, Option<NodeId>) {
    (
        election.epoch,
        election.leader_id,
        election.voted.map(|voted| voted.id),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_raft::ReplicaKey;

    fn voted(epoch: i32, id: NodeId) -> ElectionState {
        let voted = Some(ReplicaKey::of(id));
        ElectionState {
            epoch: Epoch(epoch),
            leader_id: None,
            voted,
        }
    }

    #[test]
    fn vote_that_is_told_before_it_is_written_is_found() {
        let mut votes = Votes::default();
        let early = votes.on_told(1, Epoch(2), 3);
        assert_eq!(
            early,
            Err(Violation::VoteNotDurable {
                voter: 1,
                epoch: Epoch(2),
                candidate: 3
            })
        );
        votes.on_persisted(1, voted(2, 3)).unwrap();
        assert_eq!(votes.on_told(1, Epoch(2), 3), Ok(()));
        assert!(
            votes.on_told(1, Epoch(2), 2).is_err(),
            "the vote of another"
        );
    }

    #[test]
    fn second_vote_and_falling_epoch_are_found() {
        let mut votes = Votes::default();
        votes.on_persisted(1, voted(2, 3)).unwrap();
        assert!(matches!(
            votes.on_persisted(1, voted(2, 1)),
            Err(Violation::VotedTwice {
                first: 3,
                second: 1,
                ..
            })
        ));
        assert!(matches!(
            votes.on_persisted(1, voted(1, 3)),
            Err(Violation::ElectionWentBack { .. })
        ));
    }

    #[test]
    fn leader_that_voted_for_another_is_found() {
        let mut votes = Votes::default();
        votes.on_persisted(1, voted(2, 3)).unwrap();
        let itself = ElectionState {
            epoch: Epoch(2),
            leader_id: Some(1),
            voted: None,
        };
        assert!(matches!(
            votes.on_persisted(1, itself),
            Err(Violation::VotedTwice { .. })
        ));
    }

    #[test]
    fn forgotten_vote_is_found_at_the_restart() {
        let mut votes = Votes::default();
        votes.on_persisted(1, voted(2, 3)).unwrap();
        assert_eq!(votes.on_recovered(1, voted(2, 3)), Ok(()));
        assert_eq!(votes.on_recovered(1, voted(3, 1)), Ok(()));
        assert!(votes.on_recovered(1, voted(1, 3)).is_err());
        assert!(votes.on_recovered(1, ElectionState::default()).is_err());
    }
}
