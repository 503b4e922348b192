//! Producers and consumers: what they ask, whom they believe to lead, what they were told.
//!
//! A producer has one batch under way, sends it once, and waits for the answer or gives up. A
//! consumer reads on from where it was, and starts again at a random place now and then.

use crate::checkers::{OpId, content_of};
use crate::queue::Nanos;
use crate::rng::Rng;
use quorate_raft::{Epoch, NodeId, Offset};
use quorate_storage::format::{BatchBuilder, NewRecord};

/// A batch on its way to a node.
#[derive(Clone, Debug)]
pub(crate) struct Produced {
    pub(crate) client: usize,
    pub(crate) op: OpId,
    pub(crate) batch: Vec<u8>,
    pub(crate) records: u32,
    pub(crate) content: u64,
}

/// A batch that a leader has appended and not committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) client: usize,
    pub(crate) op: OpId,
    pub(crate) content: u64,
    /// `None`: it is there, and the node does not know where.
    pub(crate) base: Option<Offset>,
    /// Exclusive.
    pub(crate) end: Offset,
}

/// What a producer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Committed,
    /// Nothing was appended; this is the leader as far as the node knows.
    NotLeader(Option<NodeId>),
    /// Nothing was appended, and the same node may take it later.
    Again,
    /// The leadership ended first: it may be committed or not.
    Unknown,
}

/// A producer.
#[derive(Debug)]
pub(crate) struct Client {
    /// Index of the node that it takes for the leader.
    pub(crate) target: usize,
    /// Its batch under way.
    pub(crate) waits_for: Option<OpId>,
    /// When it gives up waiting, or sends its next batch.
    pub(crate) wakes_at: Nanos,
    /// It sends nothing new.
    pub(crate) is_done: bool,
}

/// A consumer.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) target: usize,
    /// The next offset that it wants.
    pub(crate) position: Offset,
    /// The newest epoch of a leader that answered it.
    pub(crate) epoch: Epoch,
    /// When it asks next.
    pub(crate) wakes_at: Nanos,
}

/// Makes batches, no two with the same content.
#[derive(Debug)]
pub(crate) struct Batches {
    rng: Rng,
    made: u64,
}

impl Batches {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, made: 0 }
    }

    pub(crate) fn next(&mut self, client: usize, timestamp: i64) -> Produced {
        self.fill(client, timestamp, BatchBuilder::produced())
    }

    /// The next batch of an idempotent producer: id, epoch and first sequence number.
    pub(crate) fn next_numbered(
        &mut self,
        client: usize,
        timestamp: i64,
        (id, epoch, sequence): (i64, i16, i32),
    ) -> Produced {
        let builder = BatchBuilder::produced().idempotent(id, epoch, sequence);
        self.fill(client, timestamp, builder)
    }

    fn fill(&mut self, client: usize, timestamp: i64, mut builder: BatchBuilder) -> Produced {
        let op = OpId(self.made);
        self.made += 1;
        let records = self.rng.between(1, 5);
        // Now and then a batch of several blocks of the disk.
        let padding_max = if self.rng.chance(30) { 4_000 } else { 60 };
        for index in 0..records {
            let padding = usize::try_from(self.rng.below(padding_max)).expect("small");
            let value = format!("{client}-{}-{index}-{:x<padding$}", op.0, "");
            builder.push(NewRecord::value(timestamp, value.as_bytes()));
        }
        let batch = builder.build();
        let content = content_of(&batch);
        let records = u32::try_from(records).expect("at most 5");
        Produced {
            client,
            op,
            batch,
            records,
            content,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::format::check_produced;

    #[test]
    fn batches_are_what_a_node_accepts_and_never_alike() {
        let mut batches = Batches::new(Rng::new(3));
        let made: Vec<Produced> = (0..50).map(|_| batches.next(1, 5)).collect();
        for produced in &made {
            assert!(check_produced(&produced.batch).is_ok());
        }
        let mut contents: Vec<u64> = made.iter().map(|produced| produced.content).collect();
        contents.sort_unstable();
        contents.dedup();
        assert_eq!(contents.len(), 50);
    }
}
