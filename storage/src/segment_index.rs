//! Where in which segment an offset is: the sparse index in memory. Owned by whoever plans reads;
//! kept up to date by the writer's events. Bounded: one entry per 64 KiB of the newest part of the
//! log, and a few words per segment. Older offsets are looked up in the segment's `.index` by
//! whoever carries the read out.

use crate::log_writer::{Flushed, LogEvent};
use crate::read::{ReadPlan, Start};
use quorate_raft::{EpochStart, Generation, Offset};
use std::path::PathBuf;

/// Bytes of log between two entries, at least. A read scans at most so many in vain.
pub(crate) const ENTRY_INTERVAL_BYTES: u64 = 64 * 1024;

/// Entries that are kept in memory, about: of half a gibibyte of log. Those of the active segment,
/// and of one whose `.index` is not written yet, are always among them.
pub(crate) const ENTRIES_MAX: usize = 8192;

/// The sparse index of the whole log below its flushed end.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    dir: PathBuf,
    generation: Generation,
    log_start: Offset,
    flushed_end: Offset,
    /// Ascending. The last may be the active one.
    segments: Vec<IndexedSegment>,
    /// Where each epoch begins, ascending. What a read finds must have them.
    epochs: Vec<EpochStart>,
    /// End positions of all segments together.
    bytes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct IndexedSegment {
    pub base: Offset,
    /// Byte where the last known batch ends; the file may have been cut before it.
    pub end_position: u64,
    /// Offset and position of some batches, ascending; the first is the segment's first. Empty if
    /// they are to be looked up in `.index`.
    pub entries: Vec<(Offset, u64)>,
}

impl IndexedSegment {
    pub(crate) fn new(base: Offset) -> Self {
        Self {
            base,
            end_position: 0,
            entries: Vec::new(),
        }
    }

    /// Of a segment with an `.index` that holds `bytes` of batches.
    pub(crate) fn sealed(base: Offset, bytes: u64) -> Self {
        Self {
            base,
            end_position: bytes,
            entries: Vec::new(),
        }
    }

    /// Adds bytes from a batch boundary on.
    pub(crate) fn add(&mut self, offset: Offset, position: u64, end_position: u64) {
        let is_due = (self.entries.last())
            .is_none_or(|(_, last)| position.saturating_sub(*last) >= ENTRY_INTERVAL_BYTES);
        if is_due {
            self.entries.push((offset, position));
        }
        self.end_position = end_position;
    }
}

fn bytes_of(segments: &[IndexedSegment]) -> u64 {
    segments.iter().map(|segment| segment.end_position).sum()
}

impl SegmentIndex {
    pub(crate) fn new(
        dir: PathBuf,
        log_start: Offset,
        flushed_end: Offset,
        segments: Vec<IndexedSegment>,
        epochs: Vec<EpochStart>,
    ) -> Self {
        Self {
            dir,
            generation: Generation(0),
            log_start,
            flushed_end,
            bytes: bytes_of(&segments),
            segments,
            epochs,
        }
    }

    /// Takes note of what the writer did. Every event, in order.
    pub fn on_event(&mut self, event: &LogEvent) {
        match event {
            LogEvent::Flushed(flushed) => self.on_flushed(flushed),
            LogEvent::Truncated {
                generation,
                end_offset,
            } => {
                self.generation = *generation;
                self.on_truncated(*end_offset);
            }
            LogEvent::Closed => {}
        }
    }

    fn on_flushed(&mut self, flushed: &Flushed) {
        let located = &flushed.located;
        assert_eq!(
            located.base_offset, self.flushed_end,
            "start of a flushed group"
        );
        if self.segments.last().map(|segment| segment.base) != Some(located.segment_base) {
            self.segments
                .push(IndexedSegment::new(located.segment_base));
            keep_newest_entries(&mut self.segments, ENTRIES_MAX);
        }
        if let Some(segment) = self.segments.last_mut() {
            self.bytes += located.end_position - segment.end_position;
            segment.add(located.base_offset, located.position, located.end_position);
        }
        let last_epoch = self.epochs.last().map(|last| last.epoch);
        if last_epoch.is_none_or(|last| last < flushed.epoch) {
            self.epochs.push(EpochStart {
                epoch: flushed.epoch,
                start_offset: located.base_offset,
            });
        }
        self.flushed_end = flushed.end_offset;
    }

    fn on_truncated(&mut self, end: Offset) {
        self.segments.retain(|segment| segment.base < end);
        self.bytes = bytes_of(&self.segments);
        if let Some(segment) = self.segments.last_mut() {
            segment.entries.retain(|(offset, _)| *offset < end);
        }
        self.epochs.retain(|entry| entry.start_offset < end);
        self.flushed_end = end;
    }

    /// Bytes of all batches below the flushed end. After a truncation the segment that was cut may
    /// count with what it had before.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// First offset of the log.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// End of what can be read here (exclusive).
    #[must_use]
    pub fn flushed_end(&self) -> Offset {
        self.flushed_end
    }

    /// Truncations so far. A read that was planned in an older generation may hold records that are
    /// gone: its result is dropped.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Plans a read of whole batches from the one that holds `from`, about `max_bytes` of them but
    /// at least one, all of them ending at or below `below`.
    ///
    /// `None` if `from` is below the log start, or not below both `below` and the flushed end.
    #[must_use]
    pub fn plan(&self, from: Offset, max_bytes: usize, below: Offset) -> Option<ReadPlan> {
        let below = below.min(self.flushed_end);
        if from < self.log_start || from >= below {
            return None;
        }
        let behind = self
            .segments
            .partition_point(|segment| segment.base <= from);
        let index = behind.checked_sub(1)?;
        let segment = &self.segments[index];
        let after = segment
            .entries
            .partition_point(|(offset, _)| *offset <= from);
        let start = match after.checked_sub(1) {
            Some(entry) => Start::At(segment.entries[entry]),
            None => Start::Indexed,
        };
        let next = self.segments.get(index + 1);
        Some(ReadPlan {
            dir: self.dir.clone(),
            base: segment.base,
            is_last: next.is_none(),
            generation: self.generation,
            start,
            end_position: segment.end_position,
            epochs: self.epochs_between(segment.base, next.map_or(below, |next| next.base)),
            from,
            below,
            max_bytes,
        })
    }

    /// The epochs of the offsets from `from` to `end`.
    fn epochs_between(&self, from: Offset, end: Offset) -> Vec<EpochStart> {
        let starts = |offset: Offset| {
            self.epochs
                .partition_point(|entry| entry.start_offset <= offset)
        };
        let first = starts(from).saturating_sub(1);
        self.epochs[first..starts(end).max(first)].to_vec()
    }
}

/// Forgets the entries of all but the newest segments, which have about `max` together.
pub(crate) fn keep_newest_entries(segments: &mut [IndexedSegment], max: usize) {
    let mut kept = 0;
    // The newest two are kept whatever they have: the index of the last but one may not be written.
    for segment in segments.iter_mut().rev().skip(2) {
        kept += segment.entries.len();
        if segment.entries.is_empty() {
            return;
        }
        if kept > max {
            segment.entries = Vec::new();
        }
    }
}
