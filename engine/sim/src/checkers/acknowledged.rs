//! What clients were told: an acknowledged batch is in every final log at its offset, a refused one
//! is in none, and no batch is in the log twice. Batches of an idempotent producer, which it sends
//! again and again, are there in its order.

use super::{LogCopy, Violation};
use quorate_raft::{NodeId, Offset};
use std::collections::BTreeMap;

/// One batch of one client, sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The client heard nothing, or that it may or may not be there.
    Unknown,
    Refused,
    Acknowledged(Offset),
}

/// All batches that were ever sent.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// By content.
    ops: BTreeMap<u64, (OpId, Outcome)>,
    /// Idempotent producers by the content of their batches.
    in_order: BTreeMap<u64, usize>,
}

impl Acknowledged {
    /// A client sends a batch with this content.
    ///
    /// # Panics
    /// If there is one with this content: clients never repeat themselves.
    pub fn on_sent(&mut self, op: OpId, content: u64) {
        let before = self.ops.insert(content, (op, Outcome::Unknown));
        assert!(before.is_none(), "two batches with the same content");
    }

    /// An idempotent producer makes a batch with this content. It does not give up sending it.
    pub fn on_sent_in_order(&mut self, op: OpId, content: u64, producer: usize) {
        self.on_sent(op, content);
        self.in_order.insert(content, producer);
    }

    /// Its leader refused to append it. An idempotent producer sends it again.
    pub fn on_refused(&mut self, op: OpId, content: u64) {
        if !self.in_order.contains_key(&content) {
            self.ops.insert(content, (op, Outcome::Refused));
        }
    }

    /// A client is told that its batch is committed at `offset`.
    ///
    /// # Errors
    /// If it is not.
    pub fn on_acknowledged(
        &mut self,
        op: OpId,
        content: u64,
        offset: Offset,
        committed: &LogCopy,
    ) -> Result<(), Violation> {
        self.ops
            .insert(content, (op, Outcome::Acknowledged(offset)));
        match committed.at(offset) {
            Some(batch) if batch.base == offset && batch.content == content => Ok(()),
            found => Err(Violation::AcknowledgedUncommitted { op, offset, found }),
        }
    }

    /// The final log of `node`.
    ///
    /// # Errors
    /// If an acknowledged batch is missing, or one is there that must not be.
    pub fn on_final(&self, node: NodeId, log: &LogCopy) -> Result<(), Violation> {
        let mut places = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for &batch in log.entries().iter().filter(|batch| !batch.is_control) {
            let sent = self.ops.get(&batch.content);
            let is_first = places.insert(batch.content, batch.base).is_none();
            match sent {
                Some((op, Outcome::Refused)) => {
                    return Err(Violation::RefusedAppeared {
                        op: *op,
                        offset: batch.base,
                    });
                }
                Some((op, _)) if is_first => {
                    if let Some(producer) = self.in_order.get(&batch.content)
                        && newest
                            .insert(producer, *op)
                            .is_some_and(|before| before > *op)
                    {
                        return Err(Violation::OutOfOrder {
                            op: *op,
                            offset: batch.base,
                        });
                    }
                }
                _ => return Err(Violation::NotFromClients { batch }),
            }
        }
        for (content, (op, outcome)) in &self.ops {
            if let Outcome::Acknowledged(offset) = *outcome
                && places.get(content) != Some(&offset)
            {
                return Err(Violation::AcknowledgedLost {
                    op: *op,
                    offset,
                    node,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_copy::tests::{entry, log};
    use super::*;

    fn sent(outcome: Outcome) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        acknowledged.on_sent(OpId(4), 7);
        acknowledged.ops.insert(7, (OpId(4), outcome));
        acknowledged
    }

    #[test]
    fn acknowledgement_of_what_is_not_committed_is_found() {
        let mut acknowledged = sent(Outcome::Unknown);
        let committed = log(&[entry(0, 2, 1, 7)]);
        assert!(
            acknowledged
                .on_acknowledged(OpId(4), 7, Offset(2), &committed)
                .is_err()
        );
        assert!(
            acknowledged
                .on_acknowledged(OpId(4), 8, Offset(0), &committed)
                .is_err()
        );
        assert_eq!(
            acknowledged.on_acknowledged(OpId(4), 7, Offset(0), &committed),
            Ok(())
        );
    }

    #[test]
    fn lost_moved_and_doubled_batches_are_found() {
        let acknowledged = sent(Outcome::Acknowledged(Offset(0)));
        assert_eq!(acknowledged.on_final(1, &log(&[entry(0, 2, 1, 7)])), Ok(()));
        assert!(acknowledged.on_final(1, &log(&[])).is_err());
        let moved = sent(Outcome::Acknowledged(Offset(3)));
        assert!(moved.on_final(1, &log(&[entry(0, 2, 1, 7)])).is_err());
        let doubled = log(&[entry(0, 2, 1, 7), entry(2, 4, 1, 7)]);
        assert!(acknowledged.on_final(1, &doubled).is_err());
    }

    #[test]
    fn numbered_batches_out_of_their_order_are_found() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.on_sent_in_order(OpId(1), 7, 0);
        acknowledged.on_sent_in_order(OpId(2), 8, 0);
        acknowledged.on_sent_in_order(OpId(3), 9, 1);
        acknowledged.on_refused(OpId(1), 7);
        let good = log(&[entry(0, 2, 1, 9), entry(2, 4, 1, 7), entry(4, 5, 1, 8)]);
        assert_eq!(acknowledged.on_final(1, &good), Ok(()));
        let swapped = log(&[entry(0, 1, 1, 8), entry(1, 3, 1, 7), entry(3, 5, 1, 9)]);
        assert!(acknowledged.on_final(1, &swapped).is_err());
    }

    #[test]
    fn refused_and_invented_batches_are_found() {
        let refused = sent(Outcome::Refused);
        assert!(refused.on_final(1, &log(&[entry(0, 2, 1, 7)])).is_err());
        assert!(refused.on_final(1, &log(&[entry(0, 2, 1, 6)])).is_err());
        assert_eq!(refused.on_final(1, &log(&[])), Ok(()));
    }
}
