//! The committed log: flushed by a majority when it becomes so, the same everywhere, never cut,
//! never hidden again, and the only thing that readers see.

use super::{DurableLog, Entry, LogCopy, Violation};
use quorate_raft::{Epoch, NodeId, Offset};
use std::collections::BTreeMap;

/// The committed log as all nodes together have revealed it.
#[derive(Debug, Default)]
pub struct Committed {
    log: LogCopy,
    /// Per running node: the epoch of its last report, and its high watermark.
    high_watermarks: BTreeMap<NodeId, (Epoch, Offset)>,
}

impl Committed {
    /// The committed log.
    #[must_use]
    pub fn log(&self) -> &LogCopy {
        &self.log
    }

    /// `node`, which is in `epoch` and whose log is `own`, says that everything below
    /// `high_watermark` is committed. `voters`: the disks of all voters.
    ///
    /// # Errors
    /// If it went back, if it is another log than was committed, or one that no majority has.
    pub fn on_commit<'a>(
        &mut self,
        node: NodeId,
        epoch: Epoch,
        high_watermark: Offset,
        own: &LogCopy,
        voters: impl Iterator<Item = &'a DurableLog> + Clone,
    ) -> Result<(), Violation> {
        let before = self.high_watermarks.insert(node, (epoch, high_watermark));
        let known = match before {
            Some((_, from)) if from > high_watermark => {
                let to = high_watermark;
                return Err(Violation::HighWatermarkWentBack {
                    node,
                    epoch,
                    from,
                    to,
                });
            }
            Some((_, from)) => from,
            None => Offset(0),
        };
        let is_end = own.at(Offset(high_watermark.0 - 1)).map(|batch| batch.end);
        if is_end != Some(high_watermark) {
            return Err(Violation::CommittedNothing {
                node,
                high_watermark,
            });
        }
        for &batch in own
            .from(known)
            .iter()
            .take_while(|batch| batch.end <= high_watermark)
        {
            match self.log.at(batch.base) {
                Some(expected) if expected != batch => {
                    let found = Some(batch);
                    return Err(Violation::CommittedDiffers {
                        node,
                        expected,
                        found,
                    });
                }
                Some(_) => {}
                None => self.extend(node, batch, voters.clone())?,
            }
        }
        Ok(())
    }

    fn extend<'a>(
        &mut self,
        node: NodeId,
        batch: Entry,
        voters: impl Iterator<Item = &'a DurableLog>,
    ) -> Result<(), Violation> {
        let (mut holders, mut count) = (0, 0);
        for voter in voters {
            count += 1;
            holders += usize::from(voter.flushed().at(batch.base) == Some(batch));
        }
        if holders <= count / 2 {
            return Err(Violation::CommittedWithoutMajority {
                node,
                batch,
                holders,
                voters: count,
            });
        }
        self.log.push(node, batch)
    }

    /// `node` cut these batches off its log.
    ///
    /// # Errors
    /// If one of them is committed.
    pub fn on_cut(&self, node: NodeId, cut: &[Entry]) -> Result<(), Violation> {
        match cut
            .iter()
            .find(|batch| self.log.at(batch.base) == Some(**batch))
        {
            Some(&batch) => Err(Violation::CutCommitted { node, batch }),
            None => Ok(()),
        }
    }

    /// `node` showed a batch to a reader.
    ///
    /// # Errors
    /// If it is not committed.
    pub fn on_shown(&self, node: NodeId, shown: Entry) -> Result<(), Violation> {
        match self.log.at(shown.base) {
            Some(batch) if batch == shown => Ok(()),
            committed => Err(Violation::ShownUncommitted {
                node,
                shown,
                committed,
            }),
        }
    }

    /// `node` stopped: it learns the high watermark anew.
    pub fn on_stopped(&mut self, node: NodeId) {
        self.high_watermarks.remove(&node);
    }

    /// The final log of `node`, after everything has come to rest.
    ///
    /// # Errors
    /// If it is not the committed log.
    pub fn on_final(&self, node: NodeId, log: &LogCopy) -> Result<(), Violation> {
        for &expected in self.log.entries() {
            let found = log.at(expected.base);
            if found != Some(expected) {
                return Err(Violation::CommittedDiffers {
                    node,
                    expected,
                    found,
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
    use bytes::Bytes;

    fn disk(node: NodeId, entries: &[Entry], flushed: usize) -> DurableLog {
        let mut disk = DurableLog::new(node);
        for (index, entry) in entries.iter().enumerate() {
            let bytes = Bytes::from(vec![1 + u8::try_from(index).unwrap(); 61]);
            disk.on_append(*entry, bytes.clone()).unwrap();
            if index < flushed {
                disk.on_flush(&bytes).unwrap();
            }
        }
        disk
    }

    const A: i64 = 2;

    fn two() -> [Entry; 2] {
        [entry(0, A, 1, 7), entry(A, 5, 1, 8)]
    }

    #[test]
    fn commit_without_a_flushed_majority_is_found() {
        let disks = [disk(1, &two(), 2), disk(2, &two(), 1), disk(3, &[], 0)];
        let mut committed = Committed::default();
        let own = log(&two());
        committed
            .on_commit(1, Epoch(1), Offset(A), &own, disks.iter())
            .unwrap();
        let found = committed.on_commit(1, Epoch(1), Offset(5), &own, disks.iter());
        assert!(matches!(
            found,
            Err(Violation::CommittedWithoutMajority {
                holders: 1,
                voters: 3,
                ..
            })
        ));
    }

    #[test]
    fn high_watermark_that_falls_or_splits_a_batch_is_found() {
        let disks = [disk(1, &two(), 2)];
        let mut committed = Committed::default();
        let own = log(&two());
        assert!(
            committed
                .on_commit(1, Epoch(1), Offset(1), &own, disks.iter())
                .is_err()
        );
        let mut committed = Committed::default();
        committed
            .on_commit(1, Epoch(1), Offset(5), &own, disks.iter())
            .unwrap();
        assert!(matches!(
            committed.on_commit(1, Epoch(1), Offset(A), &own, disks.iter()),
            Err(Violation::HighWatermarkWentBack { .. })
        ));
        committed.on_stopped(1);
        assert!(
            committed
                .on_commit(1, Epoch(1), Offset(A), &own, disks.iter())
                .is_ok()
        );
    }

    #[test]
    fn other_committed_record_is_found_whoever_has_it() {
        let disks = [disk(1, &two(), 2)];
        let mut committed = Committed::default();
        committed
            .on_commit(1, Epoch(1), Offset(5), &log(&two()), disks.iter())
            .unwrap();
        let other = log(&[entry(0, A, 1, 7), entry(A, 5, 2, 9)]);
        assert!(matches!(
            committed.on_commit(2, Epoch(2), Offset(5), &other, disks.iter()),
            Err(Violation::CommittedDiffers { node: 2, .. })
        ));
        assert!(committed.on_final(2, &other).is_err());
        assert!(committed.on_final(2, &log(&two()[..1])).is_err());
        assert_eq!(committed.on_final(2, &log(&two())), Ok(()));
        assert!(committed.on_shown(2, entry(A, 5, 2, 9)).is_err());
        assert!(committed.on_shown(2, entry(5, 6, 2, 9)).is_err());
        assert_eq!(committed.on_shown(2, two()[1]), Ok(()));
        assert!(committed.on_cut(2, &two()[1..]).is_err());
        assert_eq!(committed.on_cut(2, &[entry(A, 5, 2, 9)]), Ok(()));
    }
}
