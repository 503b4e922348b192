//! What a seed decides before the run begins: the quorum, its timeouts, its network, its disks, how
//! much goes wrong. And what the world may be told to do wrong on purpose.

use crate::queue::{MS, Nanos, S, US};
use crate::rng::Rng;

/// A lie that the world tells, to show that the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A group counts as flushed when it is written.
    FlushSkipped,
    /// An election counts as persisted and was never written.
    ElectionNotWritten,
    /// A client is told that its batch is committed when it is only appended.
    AcknowledgedTooEarly,
    /// A leader takes no notice of sequence numbers.
    SequencesIgnored,
    /// Readers are given what is appended, committed or not.
    UncommittedShown,
}

/// Everything about a run that its seed decides at once.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Voters: ids from 1.
    pub voters: usize,
    /// Observers: ids behind the voters'.
    pub observers: usize,
    /// Nodes look for a leader at nameless bootstrap servers instead of the voters they know.
    pub bootstrap: bool,
    /// Faults happen until then.
    pub faults_until: Nanos,
    /// Mean time from one fault to the next.
    pub fault_interval: Nanos,
    /// `controller.quorum.election.timeout.ms`; the other timeouts follow from it.
    pub election_timeout_ms: u64,
    /// `fetch.hw.linger.ms`.
    pub fetch_hw_linger_ms: u64,
    /// How long messages take.
    pub network: Delays,
    /// Messages of 1000 whose connection breaks.
    pub breaks_per_mille: u64,
    /// How long disk operations take.
    pub disk: Delays,
    /// How long a loop takes to look at its inbox.
    pub turn: Delays,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of a group.
    pub group_bytes_max: usize,
    /// Bytes of flushed batches that a replica keeps in memory.
    pub tail_bytes: usize,
    /// Producers.
    pub clients: usize,
    /// Idempotent producers.
    pub idempotent_clients: usize,
    /// Mean pause of a producer between an answer and its next batch.
    pub think: Nanos,
    /// Consumers.
    pub readers: usize,
    /// What the world does wrong on purpose.
    pub mutant: Option<Mutant>,
}

/// How long something takes: mostly `usual`, now and then up to `long`.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Bounds of the usual case.
    pub usual: (Nanos, Nanos),
    /// Upper bound of the unusual one.
    pub long: Nanos,
    /// Unusual cases of 1000.
    pub long_per_mille: u64,
}

impl Delays {
    /// One delay.
    pub fn next(self, rng: &mut Rng) -> Nanos {
        if rng.chance(self.long_per_mille) {
            return rng.between(self.usual.1, self.long);
        }
        rng.between(self.usual.0, self.usual.1)
    }

    /// The same without unusual cases.
    #[must_use]
    pub fn healthy(self) -> Self {
        Self {
            long_per_mille: 0,
            ..self
        }
    }
}

impl Scenario {
    /// What `seed` stands for.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let network_high = rng.pick(&[500 * US, 2 * MS, 5 * MS]);
        let disk_high = rng.pick(&[200 * US, 500 * US, 2 * MS]);
        Self {
            seed,
            voters: rng.pick(&[3, 3, 3, 5]),
            observers: rng.index(2),
            bootstrap: rng.chance(300),
            faults_until: rng.between(8, 14) * S,
            fault_interval: rng.pick(&[400 * MS, 800 * MS, 1500 * MS]),
            election_timeout_ms: rng.pick(&[150, 300, 600, 1000]),
            fetch_hw_linger_ms: rng.pick(&[0, 1, 5]),
            network: Delays {
                usual: (50 * US, network_high),
                long: 200 * MS,
                long_per_mille: rng.pick(&[0, 2, 10]),
            },
            breaks_per_mille: rng.pick(&[0, 2, 20]),
            disk: Delays {
                usual: (20 * US, disk_high),
                long: 100 * MS,
                long_per_mille: rng.pick(&[0, 1, 5]),
            },
            turn: Delays {
                usual: (2 * US, 30 * US),
                long: 5 * MS,
                long_per_mille: 1,
            },
            segment_bytes: rng.pick(&[32, 64, 256]) * 1024,
            group_bytes_max: rng.pick(&[8, 16, 64]) * 1024,
            tail_bytes: rng.pick(&[1, 8, 1024]) * 1024,
            clients: rng.pick(&[1, 3, 6]),
            think: rng.pick(&[2 * MS, 10 * MS, 30 * MS]),
            readers: rng.pick(&[1, 2]),
            idempotent_clients: rng.pick(&[0, 1, 3]),
            mutant: None,
        }
    }

    /// Voters and observers.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.voters + self.observers
    }

    /// `controller.quorum.fetch.timeout.ms`, in Kafka's proportion to the election timeout.
    #[must_use]
    pub fn fetch_timeout_ms(&self) -> u64 {
        2 * self.election_timeout_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_one_seed_does_not() {
        let shape = |seed| format!("{:?}", Scenario::of(seed));
        assert_eq!(shape(7), shape(7));
        assert_ne!(shape(7), shape(8));
    }

    #[test]
    fn every_size_of_quorum_occurs() {
        let mut sizes: Vec<_> = (0..100)
            .map(Scenario::of)
            .map(|scenario| (scenario.voters, scenario.observers))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, [(3, 0), (3, 1), (5, 0), (5, 1)]);
    }
}
