//! Where in which segment an offset is: the sparse index in memory. Owned by whoever plans reads;
//! kept up to date by the writer's events. Bounded: one entry per 64 KiB of log.

use crate::group::GroupLocation;
use crate::log_writer::LogEvent;
use crate::read::ReadPlan;
use crate::segment::{SegmentFile, segment_path};
use quorate_raft::{Generation, Offset};
use std::path::PathBuf;

/// Bytes of log between two entries, at least. A read scans at most so many in vain.
pub(crate) const ENTRY_INTERVAL_BYTES: u64 = 64 * 1024;

/// The sparse index of the whole log below its flushed end.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    dir: PathBuf,
    generation: Generation,
    log_start: Offset,
    flushed_end: Offset,
    /// Ascending. The last may be the active one.
    segments: Vec<IndexedSegment>,
}

#[derive(Clone, Debug)]
pub(crate) struct IndexedSegment {
    pub base: Offset,
    /// Byte where the last known batch ends; the file may have been cut before it.
    pub end_position: u64,
    /// Offset and position of some batches, ascending; the first is the segment's first.
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

impl SegmentIndex {
    pub(crate) fn new(
        dir: PathBuf,
        log_start: Offset,
        flushed_end: Offset,
        segments: Vec<IndexedSegment>,
    ) -> Self {
        Self {
            dir,
            generation: Generation(0),
            log_start,
            flushed_end,
            segments,
        }
    }

    /// Takes note of what the writer did. Every event, in order.
    pub fn on_event(&mut self, event: &LogEvent) {
        match event {
            LogEvent::Flushed(flushed) => self.on_flushed(flushed.located, flushed.end_offset),
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

    fn on_flushed(&mut self, located: GroupLocation, end: Offset) {
        assert_eq!(
            located.base_offset, self.flushed_end,
            "start of a flushed group"
        );
        if self.segments.last().map(|segment| segment.base) != Some(located.segment_base) {
            self.segments
                .push(IndexedSegment::new(located.segment_base));
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.add(located.base_offset, located.position, located.end_position);
        }
        self.flushed_end = end;
    }

    fn on_truncated(&mut self, end: Offset) {
        self.segments.retain(|segment| segment.base < end);
        if let Some(segment) = self.segments.last_mut() {
            segment.entries.retain(|(offset, _)| *offset < end);
        }
        self.flushed_end = end;
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
        let (offset, position) = *segment.entries.get(after.checked_sub(1)?)?;
        Some(ReadPlan {
            path: segment_path(&self.dir, segment.base, SegmentFile::Log),
            is_last: index + 1 == self.segments.len(),
            generation: self.generation,
            start: (offset, position),
            end_position: segment.end_position,
            from,
            below,
            max_bytes,
        })
    }
}
