//! What the disk of one node must still have after any crash, and what it may have at most.
//!
//! Told by whoever carries the writes and flushes out, not by the storage code: a batch counts from
//! the moment at which a flush of the file that holds its bytes has ended well.

use super::{Entry, LogCopy, Violation};
use bytes::Bytes;
use quorate_raft::{Epoch, NodeId, Offset};
use std::collections::VecDeque;

/// The log of one node, in memory and on its disk.
#[derive(Debug, Default)]
pub struct DurableLog {
    node: NodeId,
    appended: LogCopy,
    flushed: LogCopy,
    /// Appended and not flushed, with their bytes.
    pending: VecDeque<(Entry, Bytes)>,
    /// The log as it was before cuts whose end the disk has not reported.
    before_cuts: Vec<LogCopy>,
}

impl DurableLog {
    /// An empty log of `node`.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    /// Everything that is appended, flushed or not.
    #[must_use]
    pub fn appended(&self) -> &LogCopy {
        &self.appended
    }

    /// What a crash must leave.
    #[must_use]
    pub fn flushed(&self) -> &LogCopy {
        &self.flushed
    }

    /// The node appends a batch.
    ///
    /// # Errors
    /// If it does not continue the log.
    pub fn on_append(&mut self, batch: Entry, bytes: Bytes) -> Result<(), Violation> {
        self.appended.push(self.node, batch)?;
        self.pending.push_back((batch, bytes));
        Ok(())
    }

    /// The node cuts its log: from now on nothing beyond `end` has to survive. Gives what is cut.
    pub fn on_cut(&mut self, end: Offset) -> Vec<Entry> {
        self.before_cuts.push(self.appended.clone());
        self.flushed.cut(end);
        self.pending.retain(|(batch, _)| batch.end <= end);
        self.appended.cut(end)
    }

    /// The disk reports that the last cut is done.
    pub fn on_cut_done(&mut self) {
        self.before_cuts.clear();
    }

    /// A file was flushed into which `data` had been written before. What of it is new is durable.
    ///
    /// # Errors
    /// If batches were written out of order.
    pub fn on_flush(&mut self, data: &[u8]) -> Result<(), Violation> {
        let Some((_, first)) = self.pending.front() else {
            return Ok(());
        };
        let Some(mut at) = position_of(first, data) else {
            return Ok(());
        };
        while let Some((batch, bytes)) = self.pending.front()
            && data[at..].starts_with(bytes)
        {
            at += bytes.len();
            self.flushed.push(self.node, *batch)?;
            self.pending.pop_front();
        }
        Ok(())
    }

    /// The node says to another that it has flushed everything below `end`, the last of it of
    /// `epoch`.
    ///
    /// # Errors
    /// If its disk has less, or something else.
    pub fn on_acknowledge(&self, end: Offset, epoch: Epoch) -> Result<(), Violation> {
        let last = self.flushed.at(Offset(end.0 - 1));
        let is_flushed = match last {
            Some(batch) => batch.end == end && batch.epoch == epoch,
            None => end == Offset(0),
        };
        if is_flushed {
            return Ok(());
        }
        let (node, durable) = (self.node, self.flushed.end());
        Err(Violation::AcknowledgedUnflushed {
            node,
            acknowledged: end,
            epoch,
            durable,
        })
    }

    /// The node restarted and found `recovered`, all of it durable.
    ///
    /// # Errors
    /// If something that was flushed is not there, or something is there that was not in this log,
    /// or not in this order, when the node stopped.
    pub fn on_recovered(&mut self, recovered: LogCopy) -> Result<(), Violation> {
        let was_there = recovered.is_prefix_of(&self.appended)
            || self
                .before_cuts
                .iter()
                .any(|log| recovered.is_prefix_of(log));
        if !was_there || !self.flushed.is_prefix_of(&recovered) {
            return Err(Violation::RecoveredWrongly {
                node: self.node,
                recovered: recovered.end(),
                durable: self.flushed.end(),
                at: recovered.parts_from(&self.appended),
            });
        }
        self.before_cuts.clear();
        self.pending.clear();
        self.appended = recovered.clone();
        self.flushed = recovered;
        Ok(())
    }
}

fn position_of(needle: &[u8], hay: &[u8]) -> Option<usize> {
    let last = hay.len().checked_sub(needle.len())?;
    // Most of a group is at its beginning, or behind the durable part of its first block.
    (0..=last).find(|&at| hay[at + 7] == needle[7] && hay[at..].starts_with(needle))
}

#[cfg(test)]
mod tests {
    use super::super::log_copy::tests::{entry, log};
    use super::*;

    fn bytes(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 61])
    }

    /// A log of three batches, the first two of them flushed.
    fn three() -> DurableLog {
        let mut log = DurableLog::new(1);
        for (base, byte) in [(0, 1), (1, 2), (2, 3)] {
            log.on_append(entry(base, base + 1, 1, u64::from(byte)), bytes(byte))
                .unwrap();
        }
        let data = [&[0; 10][..], &bytes(1), &bytes(2), &[0; 100]].concat();
        log.on_flush(&data).unwrap();
        log
    }

    #[test]
    fn only_what_was_written_before_the_flush_is_durable() {
        let log = three();
        assert_eq!(log.flushed().end(), Offset(2));
        assert_eq!(log.on_acknowledge(Offset(2), Epoch(1)), Ok(()));
        assert!(log.on_acknowledge(Offset(3), Epoch(1)).is_err());
        assert!(log.on_acknowledge(Offset(2), Epoch(2)).is_err());
        assert_eq!(
            DurableLog::new(1).on_acknowledge(Offset(0), Epoch(0)),
            Ok(())
        );
    }

    #[test]
    fn crash_may_take_the_unflushed_and_nothing_else() {
        let all: Vec<Entry> = three().appended().entries().to_vec();
        assert_eq!(three().on_recovered(log(&all)), Ok(()));
        assert_eq!(three().on_recovered(log(&all[..2])), Ok(()));
        assert!(three().on_recovered(log(&all[..1])).is_err());
    }

    #[test]
    fn batch_of_a_history_that_was_cut_is_found() {
        let all: Vec<Entry> = three().appended().entries().to_vec();
        let mut cut = three();
        cut.on_cut(Offset(1));
        cut.on_append(entry(1, 2, 2, 9), bytes(9)).unwrap();
        assert_eq!(cut.flushed().end(), Offset(1));
        let revived = log(&[all[0], entry(1, 2, 2, 9), entry(2, 3, 2, 3)]);
        assert!(cut.on_recovered(revived).is_err());

        // Until the disk reports the cut, the log before it may come back.
        assert_eq!(cut.on_recovered(log(&all)), Ok(()));
        let mut cut = three();
        cut.on_cut(Offset(1));
        cut.on_cut_done();
        assert!(cut.on_recovered(log(&all)).is_err());
    }
}
