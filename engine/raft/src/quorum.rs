//! Majority arithmetic: who has won an election, and what a majority has on stable storage.
//!
//! Nothing but counting; what is counted, and when it may count, is decided by the states.

use crate::types::{NodeId, Offset, VoterSet};
use alloc::vec::Vec;

/// The largest offset that a majority of `ends` has reached; `None` counts as having nothing.
///
/// Each element is the flushed end of one voter, the leader's among them
/// (KIP-595, Fetch, step 3; Kafka `LeaderState.maybeUpdateHighWatermark`).
pub(crate) fn majority_offset<I>(ends: I) -> Option<Offset>
where
    I: Iterator<Item = Option<Offset>> + Clone,
{
    let majority = ends.clone().count() / 2 + 1;
    let reached_by_majority = |offset: &Offset| {
        let reached = ends.clone().flatten().filter(|end| end >= offset).count();
        reached >= majority
    };
    ends.clone().flatten().filter(reached_by_majority).max()
}

/// The votes of one election.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    votes: Vec<(NodeId, Option<bool>)>,
}

impl Tally {
    /// An election among `voters` in which `local` has voted for itself.
    ///
    /// # Panics
    /// If `local` is not a voter: an observer never stands.
    pub(crate) fn new(voters: &VoterSet, local: NodeId) -> Self {
        let mut tally = Self {
            votes: voters
                .voters()
                .iter()
                .map(|voter| (voter.key.id, None))
                .collect(),
        };
        assert!(tally.record(local, true), "an observer stood for election");
        tally
    }

    /// Notes the answer of `voter` in place of an earlier one. False: it is no voter.
    pub(crate) fn record(&mut self, voter: NodeId, granted: bool) -> bool {
        match self.votes.iter_mut().find(|(id, _)| *id == voter) {
            Some((_, vote)) => {
                *vote = Some(granted);
                true
            }
            None => false,
        }
    }

    /// What `voter` answered last.
    pub(crate) fn answer(&self, voter: NodeId) -> Option<bool> {
        let entry = self.votes.iter().find(|(id, _)| *id == voter);
        entry.and_then(|(_, vote)| *vote)
    }

    fn count(&self, wanted: Option<bool>) -> usize {
        self.votes
            .iter()
            .filter(|(_, vote)| *vote == wanted)
            .count()
    }

    fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    pub(crate) fn is_won(&self) -> bool {
        self.count(Some(true)) >= self.majority()
    }

    /// Whether the voters that have not refused are too few.
    pub(crate) fn is_lost(&self) -> bool {
        self.count(Some(true)) + self.count(None) < self.majority()
    }

    /// Those that granted their vote, ascending.
    pub(crate) fn granting(&self) -> Vec<NodeId> {
        let granted = self.votes.iter().filter(|(_, vote)| *vote == Some(true));
        granted.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::types::{Endpoint, ReplicaKey, Voter};

    fn voters(count: i32) -> VoterSet {
        let voter = |id| Voter {
            key: ReplicaKey::of(id),
            endpoint: Endpoint {
                host: "h".into(),
                port: 1,
            },
        };
        VoterSet::new((1..=count).map(voter).collect())
    }

    /// Sorts and picks, as the papers put it.
    fn naive_majority_offset(ends: &[Option<Offset>]) -> Option<Offset> {
        let mut sorted = ends.to_vec();
        sorted.sort();
        sorted.reverse();
        sorted.get(sorted.len() / 2).copied().flatten()
    }

    #[test]
    fn majority_offset_equals_its_naive_twin() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let count = rng.index(8);
            let mut ends = Vec::new();
            for _ in 0..count {
                let offset = i64::try_from(rng.below(6)).unwrap();
                ends.push((rng.below(4) > 0).then_some(Offset(offset)));
            }
            assert_eq!(
                majority_offset(ends.iter().copied()),
                naive_majority_offset(&ends),
                "{ends:?}"
            );
        }
    }

    #[test]
    fn tally_equals_its_naive_twin() {
        let mut rng = Rng::new(4);
        for _ in 0..5_000 {
            let count = i32::try_from(rng.index(7)).unwrap() + 1;
            let mut tally = Tally::new(&voters(count), 1);
            let mut answers = alloc::collections::BTreeMap::from([(1, true)]);
            for _ in 0..rng.index(6) {
                let voter = i32::try_from(rng.index(7)).unwrap() + 1;
                let granted = rng.below(2) == 0;
                assert_eq!(tally.record(voter, granted), voter <= count);
                if voter <= count {
                    answers.insert(voter, granted);
                }
            }
            let total = usize::try_from(count).unwrap();
            let granted = answers.values().filter(|granted| **granted).count();
            let refused = answers.len() - granted;
            assert_eq!(tally.is_won(), 2 * granted > total);
            assert_eq!(tally.is_lost(), 2 * (total - refused) <= total);
        }
    }

    #[test]
    fn election_of_one_is_won_at_once() {
        let tally = Tally::new(&voters(1), 1);
        assert!(tally.is_won());
        assert_eq!(tally.granting(), [1]);
    }

    #[test]
    fn election_of_three_is_won_by_one_other_and_lost_by_two() {
        let mut tally = Tally::new(&voters(3), 2);
        assert!(!tally.is_won() && !tally.is_lost());
        tally.record(1, false);
        assert!(!tally.is_lost());
        tally.record(3, false);
        assert!(tally.is_lost());
        tally.record(3, true);
        assert!(tally.is_won());
        assert_eq!(tally.granting(), [2, 3]);
        assert_eq!(tally.answer(1), Some(false));
    }
}
