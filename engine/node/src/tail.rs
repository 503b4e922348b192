//! The newest batches in memory: what parked Fetches are answered from.
//!
//! Holds every batch that is not flushed yet, and flushed ones up to a bound in bytes. It never
//! reads the disk; what it no longer has is read through the segment index.

use bytes::{Bytes, BytesMut};
use quorate_raft::{Epoch, Offset};
use quorate_storage::StampedBatch;
use std::collections::VecDeque;

/// Batches are copied into chunks of this size, so that neighbours in the log are neighbours in
/// memory and a batch does not keep the whole frame alive in which it came.
const CHUNK_BYTES: usize = 256 * 1024;

/// The newest part of the log, in memory.
pub struct Tail {
    batches: VecDeque<StampedBatch>,
    bytes: usize,
    bytes_max: usize,
    unflushed_bytes: usize,
    flushed: Offset,
    end: Offset,
    chunk: BytesMut,
}

impl Tail {
    /// An empty tail behind `end`, all of it flushed, which keeps at most `bytes_max` bytes of
    /// flushed batches.
    #[must_use]
    pub fn new(end: Offset, bytes_max: usize) -> Self {
        Self {
            batches: VecDeque::new(),
            bytes: 0,
            bytes_max,
            unflushed_bytes: 0,
            flushed: end,
            end,
            chunk: BytesMut::new(),
        }
    }

    /// Copies a batch into the tail's memory and stamps it with its place in the log.
    pub fn stamp(&mut self, batch: &[u8], base_offset: Offset, epoch: Epoch) -> Bytes {
        if self.chunk.capacity() < batch.len() {
            self.chunk = BytesMut::with_capacity(CHUNK_BYTES.max(batch.len()));
        }
        self.chunk.extend_from_slice(batch);
        let mut stamped = self.chunk.split();
        quorate_storage::format::stamp(&mut stamped, base_offset, epoch);
        stamped.freeze()
    }

    /// Adds the next batch.
    ///
    /// # Panics
    /// If it does not start at the end: the core assigned the offsets.
    pub fn push(&mut self, batch: StampedBatch) {
        assert_eq!(
            batch.base_offset, self.end,
            "a batch must start at the log end"
        );
        self.end = batch.end_offset;
        self.bytes += batch.bytes.len();
        self.unflushed_bytes += batch.bytes.len();
        self.batches.push_back(batch);
    }

    /// Everything below `flushed` is on disk: it may be dropped when memory is needed.
    pub fn on_flushed(&mut self, flushed: Offset) {
        assert!(
            flushed <= self.end,
            "flushed {flushed} beyond the end {}",
            self.end
        );
        if flushed <= self.flushed {
            return;
        }
        let first = self
            .batches
            .partition_point(|batch| batch.end_offset <= self.flushed);
        for batch in self.batches.range(first..) {
            if batch.end_offset > flushed {
                break;
            }
            self.unflushed_bytes -= batch.bytes.len();
        }
        self.flushed = flushed;
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.bytes_max {
            match self.batches.front() {
                Some(batch) if batch.end_offset <= self.flushed => {
                    self.bytes -= batch.bytes.len();
                    self.batches.pop_front();
                }
                _ => break,
            }
        }
    }

    /// Drops every batch at or beyond `end`.
    ///
    /// # Panics
    /// If `end` lies inside a batch: logs are cut between batches only.
    pub fn truncate(&mut self, end: Offset) {
        while let Some(batch) = self.batches.back() {
            if batch.end_offset <= end {
                break;
            }
            assert!(batch.base_offset >= end, "a log is cut between batches");
            self.bytes -= batch.bytes.len();
            if batch.end_offset > self.flushed {
                self.unflushed_bytes -= batch.bytes.len();
            }
            self.batches.pop_back();
        }
        self.end = self.end.min(end);
        self.flushed = self.flushed.min(end);
    }

    /// Bytes that are appended and not flushed yet.
    #[must_use]
    pub fn unflushed_bytes(&self) -> usize {
        self.unflushed_bytes
    }

    /// The batches from the one that holds `from`, all below `below`, at most `bytes_max` but at
    /// least one; `None` if `from` is no longer (or not yet) in memory.
    #[must_use]
    pub fn read(&self, from: Offset, bytes_max: usize, below: Offset) -> Option<Vec<Bytes>> {
        let first = self
            .batches
            .partition_point(|batch| batch.end_offset <= from);
        if self.batches.get(first)?.base_offset > from {
            return None;
        }
        let mut parts = Vec::new();
        let mut bytes = 0;
        for batch in self.batches.range(first..) {
            let fits = bytes + batch.bytes.len() <= bytes_max || parts.is_empty();
            if batch.end_offset > below || !fits {
                break;
            }
            bytes += batch.bytes.len();
            parts.push(batch.bytes.clone());
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64, end: i64, size: usize) -> StampedBatch {
        StampedBatch {
            bytes: Bytes::from(vec![0; size]),
            base_offset: Offset(base),
            end_offset: Offset(end),
            epoch: Epoch(1),
        }
    }

    fn tail() -> Tail {
        let mut tail = Tail::new(Offset(0), 250);
        tail.push(batch(0, 2, 100));
        tail.push(batch(2, 3, 100));
        tail.push(batch(3, 6, 100));
        tail
    }

    #[test]
    fn unflushed_batches_are_never_evicted() {
        let mut tail = tail();
        assert_eq!(tail.unflushed_bytes(), 300);
        assert!(tail.read(Offset(0), 1000, Offset(6)).is_some());
        tail.on_flushed(Offset(3));
        assert_eq!(tail.unflushed_bytes(), 100);
        assert_eq!(
            tail.read(Offset(0), 1000, Offset(6)),
            None,
            "the oldest flushed one went"
        );
        assert_eq!(tail.read(Offset(2), 1000, Offset(6)).unwrap().len(), 2);
    }

    #[test]
    fn a_read_gives_whole_batches_within_its_bounds_and_at_least_one() {
        let tail = tail();
        assert_eq!(tail.read(Offset(1), 10, Offset(6)).unwrap().len(), 1);
        assert_eq!(tail.read(Offset(0), 200, Offset(6)).unwrap().len(), 2);
        assert_eq!(tail.read(Offset(0), 1000, Offset(4)).unwrap().len(), 2);
        assert_eq!(tail.read(Offset(0), 1000, Offset(1)).unwrap().len(), 0);
        assert_eq!(tail.read(Offset(6), 1000, Offset(6)), None);
    }

    #[test]
    fn truncation_forgets_bytes_on_both_sides_of_the_flushed_end() {
        let mut tail = tail();
        tail.on_flushed(Offset(3));
        tail.truncate(Offset(2));
        assert_eq!(tail.unflushed_bytes(), 0);
        tail.push(batch(2, 4, 70));
        assert_eq!(tail.unflushed_bytes(), 70);
        assert_eq!(tail.read(Offset(2), 1000, Offset(4)).unwrap()[0].len(), 70);
    }

    #[test]
    fn stamped_batches_lie_side_by_side() {
        let mut tail = Tail::new(Offset(0), 1000);
        let a = tail.stamp(&[0; 80], Offset(0), Epoch(1));
        let b = tail.stamp(&[0; 80], Offset(1), Epoch(1));
        assert_eq!(a.as_ptr().wrapping_add(80), b.as_ptr());
    }
}
