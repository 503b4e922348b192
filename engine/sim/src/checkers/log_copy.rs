//! A plain copy of a log: its batches by offset, epoch and content. Nothing is ever left out.

use super::Violation;
use quorate_raft::{Epoch, NodeId, Offset};
use quorate_storage::format::{BatchError, batches};

/// A batch, as far as logs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Offset of its first record.
    pub base: Offset,
    /// Offset after its last record (exclusive).
    pub end: Offset,
    /// Its leader epoch.
    pub epoch: Epoch,
    /// Hash of everything in it but base offset and epoch.
    pub content: u64,
    /// Whether it holds control records: made by a leader, not by a client.
    pub is_control: bool,
}

/// Bytes of a batch before the part that a leader never changes (its attributes).
const STAMPED_BYTES: usize = 21;

/// Hash of a batch, whatever its place in a log (FNV-1a).
///
/// # Panics
/// If `batch` is shorter than any batch.
#[must_use]
pub fn content_of(batch: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    batch[STAMPED_BYTES..]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The batches in a run of bytes.
///
/// # Errors
/// If there is one that is malformed.
pub fn entries_of(bytes: &[u8]) -> Result<Vec<Entry>, BatchError> {
    batches(bytes)
        .map(|found| {
            let (header, range) = found?;
            let meta = header.meta();
            Ok(Entry {
                base: meta.base_offset,
                end: meta.end_offset,
                epoch: meta.epoch,
                content: content_of(&bytes[range]),
                is_control: header.is_control(),
            })
        })
        .collect()
}

/// A log from offset 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCopy {
    entries: Vec<Entry>,
}

impl LogCopy {
    /// The batches, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Log end offset (exclusive).
    #[must_use]
    pub fn end(&self) -> Offset {
        self.entries.last().map_or(Offset(0), |entry| entry.end)
    }

    /// Adds a batch of `node`'s log.
    ///
    /// # Errors
    /// If it does not begin at the end, or its epoch goes back.
    pub fn push(&mut self, node: NodeId, batch: Entry) -> Result<(), Violation> {
        let epoch = self.entries.last().map_or(Epoch(0), |last| last.epoch);
        if batch.base != self.end() || batch.end <= batch.base || batch.epoch < epoch {
            return Err(Violation::NotContiguous {
                node,
                end: self.end(),
                batch,
            });
        }
        self.entries.push(batch);
        Ok(())
    }

    /// Cuts the log to `end`; the batches cut off, those that `end` lies in among them.
    pub fn cut(&mut self, end: Offset) -> Vec<Entry> {
        let kept = self.entries.partition_point(|entry| entry.end <= end);
        self.entries.split_off(kept)
    }

    /// The batch that holds `offset`.
    #[must_use]
    pub fn at(&self, offset: Offset) -> Option<Entry> {
        let index = self.entries.partition_point(|entry| entry.end <= offset);
        self.entries
            .get(index)
            .copied()
            .filter(|entry| entry.base <= offset)
    }

    /// Where the batch with this content begins.
    #[must_use]
    pub fn offset_of(&self, content: u64) -> Option<Offset> {
        let found = self.entries.iter().rev();
        let mut found = found.filter(|entry| entry.content == content);
        found.next().map(|entry| entry.base)
    }

    /// The batches from the one that holds `from`.
    #[must_use]
    pub fn from(&self, from: Offset) -> &[Entry] {
        let index = self.entries.partition_point(|entry| entry.end <= from);
        &self.entries[index..]
    }

    /// Whether this log is the beginning of `other`.
    #[must_use]
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other.entries.starts_with(&self.entries)
    }

    /// Where two logs part: the end of what they share.
    #[must_use]
    pub fn parts_from(&self, other: &Self) -> Offset {
        let pairs = self.entries.iter().zip(&other.entries);
        pairs
            .take_while(|(a, b)| a == b)
            .last()
            .map_or(Offset(0), |(shared, _)| shared.end)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(base: i64, end: i64, epoch: i32, content: u64) -> Entry {
        let (base, end) = (Offset(base), Offset(end));
        Entry {
            base,
            end,
            epoch: Epoch(epoch),
            content,
            is_control: false,
        }
    }

    pub(crate) fn log(entries: &[Entry]) -> LogCopy {
        let mut log = LogCopy::default();
        entries
            .iter()
            .for_each(|entry| log.push(1, *entry).unwrap());
        log
    }

    #[test]
    fn gap_and_falling_epoch_are_found() {
        let mut log = log(&[entry(0, 2, 3, 7)]);
        assert!(log.push(1, entry(3, 4, 3, 8)).is_err());
        assert!(log.push(1, entry(1, 4, 3, 8)).is_err());
        assert!(log.push(1, entry(2, 4, 2, 8)).is_err());
        assert!(log.push(1, entry(2, 4, 3, 8)).is_ok());
    }

    #[test]
    fn batches_are_found_by_any_of_their_offsets() {
        let log = log(&[entry(0, 2, 1, 7), entry(2, 5, 1, 8)]);
        assert_eq!(log.at(Offset(1)), Some(entry(0, 2, 1, 7)));
        assert_eq!(log.at(Offset(4)), Some(entry(2, 5, 1, 8)));
        assert_eq!(log.at(Offset(5)), None);
        assert_eq!(log.from(Offset(3)).len(), 1);
    }

    #[test]
    fn cut_inside_a_batch_takes_the_batch() {
        let mut log = log(&[entry(0, 2, 1, 7), entry(2, 5, 1, 8)]);
        assert_eq!(log.cut(Offset(4)), [entry(2, 5, 1, 8)]);
        assert_eq!(log.end(), Offset(2));
    }

    #[test]
    fn logs_part_after_their_last_shared_batch() {
        let a = log(&[entry(0, 2, 1, 7), entry(2, 5, 1, 8)]);
        let b = log(&[entry(0, 2, 1, 7), entry(2, 5, 1, 9)]);
        assert_eq!(a.parts_from(&b), Offset(2));
        assert!(!a.is_prefix_of(&b));
    }
}
