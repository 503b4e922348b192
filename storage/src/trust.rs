//! Opening a log that was closed cleanly without reading it. Part of `inspect.rs`: finds out what
//! is there from the directory, the clean-shutdown marker and the last few kilobytes.
//!
//! All that the marker vouches for was durable before it, and the marker goes before the first
//! append, so after a crash there is none. What a disk may have done to the bytes meanwhile is
//! found where it counts: every batch is checked again when it is read (`read.rs`).
//!
//! It never refuses a log and never guesses: whatever is not exactly as it was left makes it
//! decline, and then everything is read and the usual rules decide and name the fault.

use crate::disk::{Disk, DiskFile, OpenMode, read_file};
use crate::index_file::last_entry;
use crate::inspect::{Directory, Found, Inspection, Tail, strays};
use crate::job::segment_lengths;
use crate::producers::{PRODUCERS_FILE_BYTES_MAX, ProducerStates};
use crate::scan::Scanner;
use crate::segment::{SegmentFile, segment_path};
use crate::segment_index::IndexedSegment;
use crate::state_file::PRODUCERS_NAME;
use quorate_raft::{Epoch, Offset};

/// What is in the directory, if the log was closed cleanly and is as it was left.
pub(crate) fn trust<D: Disk>(
    disk: &D,
    what: &Inspection<'_>,
    directory: &Directory,
) -> Option<Found> {
    directory.identity?;
    let marker = directory.clean?;
    let (end, epoch) = (marker.log_end_offset, marker.epoch);
    let epochs = directory.checkpoint.clone()?;
    if epochs.last().map_or(Epoch(0), |last| last.epoch) != epoch || epoch > what.quorum_epoch {
        return None;
    }
    let path = what.dir.join(PRODUCERS_NAME);
    let stored = read_file(disk, &path, PRODUCERS_FILE_BYTES_MAX).ok()?;
    let producers = ProducerStates::restore(what.producers, end, &stored)?;
    let lengths = segment_lengths(disk, what.dir, &directory.segments).ok()?;
    if Some(crate::clean_shutdown::manifest(&lengths, &epochs, &stored)) != marker.manifest {
        return None;
    }
    // The last one is empty if nothing was written since the roll.
    let (&(last, position), before) = lengths.split_last()?;
    if position > 0 {
        check_end(disk, what, last, (end, epoch))?;
    } else if let Some(&(base, _)) = before.last() {
        check_end(disk, what, base, (end, epoch))?;
    }
    let indexed = lengths
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(base, bytes)| IndexedSegment::sealed(*base, *bytes));
    Some(Found {
        has_partition_metadata: directory.has_partition_metadata,
        identity: directory.identity,
        clean: directory.clean,
        strays: strays(what.dir, &directory.names, &directory.segments),
        segments: directory.segments.clone(),
        indexed: indexed.collect(),
        tail: Tail::Sealed { position },
        unsealed: None,
        log_start: directory.log_start,
        log_end: end,
        end_epoch: epoch,
        checkpoint: Some(epochs.clone()),
        epochs,
        stale_indexes: Vec::new(),
        producers,
        batches: None,
        bytes: lengths.iter().map(|(_, bytes)| bytes).sum(),
    })
}

/// Whether the segment at `base` ends with a whole batch that is the log's last.
fn check_end<D: Disk>(
    disk: &D,
    what: &Inspection<'_>,
    base: Offset,
    end: (Offset, Epoch),
) -> Option<()> {
    let path = segment_path(what.dir, base, SegmentFile::Log);
    let file = disk.open(&path, OpenMode::Direct).ok()?;
    let index = segment_path(what.dir, base, SegmentFile::OffsetIndex);
    let index = disk.open(&index, OpenMode::Read).ok()?;
    let start = last_entry(&index, base).ok()?;
    let mut scanner =
        Scanner::new(&file, start.map_or(0, |entry| entry.position), u64::MAX).ok()?;
    let mut found = None;
    while let Some(batch) = scanner.next().ok()? {
        let header = batch.header;
        let is_in_place = match (found, start) {
            (Some((next, epoch)), _) => header.base_offset == next && header.epoch >= epoch,
            (None, Some(entry)) => header.last_offset() == entry.last_offset,
            (None, None) => header.base_offset == base,
        };
        if !is_in_place {
            return None;
        }
        found = Some((header.end_offset(), header.epoch));
    }
    (found == Some(end) && !file.is_empty().ok()?).then_some(())
}
