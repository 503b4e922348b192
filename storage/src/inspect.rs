//! The reading half of recovery: finds out what is in the directory and decides what it means,
//! without changing a byte. `recovery.rs` acts on it; `verify` only reports it.
//!
//! What decides, in order:
//! - Sealed segments (all but the last, and the last if it has no valid mark) must be whole batches
//!   to their last byte. They were flushed before anything was written behind them.
//! - In the active segment nothing before the newest mark's durable point may be at fault: it was
//!   flushed before that mark was submitted.
//! - The newest mark's own group may be torn, if each block at fault still has a part as it was before
//!   the group. A block that is neither the old nor the new was damaged later: the group may have
//!   been acknowledged, so it is not cut off.
//! - Behind the newest mark's group nothing was acknowledged: whole batches stay, the rest goes.
//! - Each batch must begin where the one before ended, with the epoch that the epoch checkpoint
//!   gives for its offset (the epoch lies outside the CRC), which quorum-state must know.
//!
//! A directory without the file `quorate-log` was written by Kafka: no marks, and its epochs are read
//! from the batches. Kafka does not flush before it acknowledges and cuts at the first bad batch; so
//! do we there, but only in the last segment.

use crate::clean_shutdown::{CleanShutdown, read_clean_shutdown};
use crate::disk::{Disk, DiskFile, OpenMode, found, read_file};
use crate::error::{Context, Operation, RecoveryError, StateFileError, StorageError};
use crate::format::{BatchHeader, LogIdentity};
use crate::index_file::{IndexBuilder, IndexFiles};
use crate::marks::{Marks, judge_group, read_marks};
use crate::scan::{ScanError, Scanner};
use crate::segment::{
    Layout, SPARE_UNFINISHED_NAME, SegmentFile, parse_segment_name, parse_snapshot_name,
    segment_path,
};
use crate::segment_index::IndexedSegment;
use crate::state_file::{
    LOG_IDENTITY_NAME, PARTITION_METADATA_NAME, read_epoch_checkpoint, read_log_identity,
    read_partition_metadata,
};
use quorate_raft::{Epoch, EpochStart, Offset};
use std::path::{Path, PathBuf};

/// What to inspect.
#[derive(Clone, Debug)]
pub(crate) struct Inspection<'a> {
    pub dir: &'a Path,
    /// The topic that the directory must belong to, if it says.
    pub topic_id: Option<[u8; 16]>,
    pub index_interval_bytes: u64,
    /// No batch may have a later epoch.
    pub quorum_epoch: Epoch,
}

/// What is in the directory.
#[derive(Debug)]
pub(crate) struct Found {
    pub has_partition_metadata: bool,
    pub identity: Option<LogIdentity>,
    pub clean: Option<CleanShutdown>,
    /// Base offsets of all segment files, ascending.
    pub segments: Vec<Offset>,
    /// Of the segments that hold batches.
    pub indexed: Vec<IndexedSegment>,
    pub tail: Tail,
    pub log_start: Offset,
    pub log_end: Offset,
    pub end_epoch: Epoch,
    /// Where each epoch begins, as the batches have it.
    pub epochs: Vec<EpochStart>,
    /// As the checkpoint has it, if it is there.
    pub checkpoint: Option<Vec<EpochStart>>,
    /// Index files that are missing or not what they should be.
    pub stale_indexes: Vec<IndexFiles>,
    /// Files that belong to nothing.
    pub strays: Vec<PathBuf>,
    pub batches: u64,
    pub bytes: u64,
}

/// The last segment.
#[derive(Clone, Debug)]
pub(crate) enum Tail {
    /// There is none.
    Missing,
    /// Whole, without marks.
    Sealed { position: u64 },
    /// With marks: it was written to when the process ended.
    Active {
        /// All before it is certainly durable.
        durable_position: u64,
        /// Where the last whole batch ends.
        position: u64,
        torn: Option<Torn>,
    },
    /// Written by Kafka.
    Foreign { position: u64, torn: Option<Torn> },
}

/// Bytes behind the end of the log that are no batch: of a write that did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment file.
    pub segment: PathBuf,
    /// Where the log ends in it.
    pub position: u64,
    /// What is wrong with what stands there.
    pub reason: String,
}

/// What is wrong at a position of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub position: u64,
    pub expected: String,
    pub found: String,
}

impl Fault {
    pub(crate) fn corrupt(self, segment: &Path) -> RecoveryError {
        RecoveryError::Corrupt {
            segment: segment.to_path_buf(),
            position: self.position,
            expected: self.expected,
            found: self.found,
        }
    }
}

/// Called with each segment and the bytes of it that were read.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Path, u64);

/// Reads everything. Changes nothing.
pub(crate) fn inspect<D: Disk>(
    disk: &D,
    what: &Inspection<'_>,
    progress: Progress<'_>,
) -> Result<Found, RecoveryError> {
    let names = found(disk.list(what.dir)).during(Operation::List, what.dir)?;
    let names = names.unwrap_or_default();
    let has_partition_metadata = check_topic(disk, what)?;
    let identity = read_log_identity(disk, what.dir)?;
    let checkpoint = read_epoch_checkpoint(disk, what.dir)?;
    let clean = read_clean_shutdown(disk, what.dir)?;
    let segments = segments_of(&names);
    let log_start = segments.first().copied().unwrap_or_default();
    check_snapshots(what.dir, &names, log_start)?;
    let mut walk = Walk::new(what, log_start, identity.and(checkpoint.as_deref()));
    walk.check_presence(&segments, identity, clean)?;
    let mut tail = Tail::Missing;
    for (index, base) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        tail = walk.segment(disk, *base, is_last, identity)?;
        progress(&segment_path(what.dir, *base, SegmentFile::Log), walk.bytes);
    }
    let ended = Walked::of(walk);
    check_clean_end(what.dir, clean, ended.log_end)?;
    Ok(Found {
        has_partition_metadata,
        identity,
        clean,
        strays: strays(what.dir, &names, &segments),
        segments,
        indexed: ended.indexed,
        tail,
        log_start,
        log_end: ended.log_end,
        end_epoch: ended.end_epoch,
        epochs: ended.epochs,
        checkpoint,
        stale_indexes: ended.stale_indexes,
        batches: ended.batches,
        bytes: ended.bytes,
    })
}

/// Whether partition.metadata is there; it must name the topic.
fn check_topic<D: Disk>(disk: &D, what: &Inspection<'_>) -> Result<bool, RecoveryError> {
    let topic = read_partition_metadata(disk, what.dir)?;
    let is_other = |topic| what.topic_id.is_some_and(|configured| configured != topic);
    if topic.is_some_and(is_other) {
        let path = what.dir.join(PARTITION_METADATA_NAME);
        return Err(RecoveryError::TopicIdMismatch { path });
    }
    Ok(topic.is_some())
}

fn segments_of(names: &[String]) -> Vec<Offset> {
    // The names are sorted and their digits are padded, so the offsets ascend.
    let parsed = names.iter().filter_map(|name| parse_segment_name(name));
    let logs = parsed.filter(|(_, file)| *file == SegmentFile::Log);
    logs.map(|(base, _)| base).collect()
}

/// Kafka's rule (`KafkaRaftLog.recoverAndLoadSnapshots`): what is before the log must be in a snapshot.
fn check_snapshots(dir: &Path, names: &[String], log_start: Offset) -> Result<(), RecoveryError> {
    let mut snapshots = names.iter().filter_map(|name| parse_snapshot_name(name));
    if log_start == Offset(0) || snapshots.any(|end| end >= log_start) {
        return Ok(());
    }
    Err(RecoveryError::MissingSnapshot {
        dir: dir.to_path_buf(),
        log_start,
    })
}

fn strays(dir: &Path, names: &[String], segments: &[Offset]) -> Vec<PathBuf> {
    let is_stray = |name: &&String| match parse_segment_name(name) {
        Some((base, _)) => !segments.contains(&base),
        None => *name == SPARE_UNFINISHED_NAME,
    };
    names
        .iter()
        .filter(is_stray)
        .map(|name| dir.join(name))
        .collect()
}

fn check_clean_end(
    dir: &Path,
    clean: Option<CleanShutdown>,
    found_end: Offset,
) -> Result<(), RecoveryError> {
    match clean {
        Some(marker) if marker.log_end_offset != found_end => Err(RecoveryError::EndMismatch {
            dir: dir.to_path_buf(),
            closed_end: marker.log_end_offset,
            found_end,
        }),
        _ => Ok(()),
    }
}

/// One walk over all segments, in order.
struct Walk<'a> {
    what: &'a Inspection<'a>,
    /// What the checkpoint says; `None` if the epochs are what the batches have.
    checkpoint: Option<&'a [EpochStart]>,
    next: Offset,
    epoch: Epoch,
    epochs: Vec<EpochStart>,
    indexed: Vec<IndexedSegment>,
    stale_indexes: Vec<IndexFiles>,
    batches: u64,
    bytes: u64,
}

/// What a walk leaves.
struct Walked {
    log_end: Offset,
    end_epoch: Epoch,
    epochs: Vec<EpochStart>,
    indexed: Vec<IndexedSegment>,
    stale_indexes: Vec<IndexFiles>,
    batches: u64,
    bytes: u64,
}

impl Walked {
    fn of(walk: Walk<'_>) -> Self {
        Self {
            log_end: walk.next,
            end_epoch: walk.epoch,
            epochs: walk.epochs,
            indexed: walk.indexed,
            stale_indexes: walk.stale_indexes,
            batches: walk.batches,
            bytes: walk.bytes,
        }
    }
}

/// How far a segment is whole.
#[derive(Debug)]
struct Extent {
    position: u64,
    fault: Option<Fault>,
    /// Which of the awaited batch boundaries were met.
    met: Vec<bool>,
    indexes: IndexFiles,
}

/// A batch boundary that a mark tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    position: u64,
    offset: Offset,
    epoch: Epoch,
}

impl<'a> Walk<'a> {
    fn new(
        what: &'a Inspection<'a>,
        log_start: Offset,
        checkpoint: Option<&'a [EpochStart]>,
    ) -> Self {
        Self {
            what,
            checkpoint,
            next: log_start,
            epoch: Epoch(0),
            epochs: Vec::new(),
            indexed: Vec::new(),
            stale_indexes: Vec::new(),
            batches: 0,
            bytes: 0,
        }
    }

    /// Records that are told of must be there.
    fn check_presence(
        &self,
        segments: &[Offset],
        identity: Option<LogIdentity>,
        clean: Option<CleanShutdown>,
    ) -> Result<(), RecoveryError> {
        let is_told_of = self.checkpoint.is_some_and(|epochs| !epochs.is_empty())
            || clean.is_some_and(|marker| marker.log_end_offset > Offset(0));
        if segments.is_empty() && is_told_of {
            let dir = self.what.dir.to_path_buf();
            return Err(RecoveryError::NoSegments { dir });
        }
        // The checkpoint is written before the first batch of an epoch.
        if identity.is_some() && self.checkpoint.is_none() && !segments.is_empty() {
            return Err(RecoveryError::StateFile(StateFileError::Malformed {
                path: self.what.dir.join(crate::job::EPOCH_CHECKPOINT_NAME),
                reason: "it is missing".into(),
            }));
        }
        Ok(())
    }

    fn segment<D: Disk>(
        &mut self,
        disk: &D,
        base: Offset,
        is_last: bool,
        identity: Option<LogIdentity>,
    ) -> Result<Tail, RecoveryError> {
        let path = segment_path(self.what.dir, base, SegmentFile::Log);
        if base != self.next {
            let from = self.next;
            return Err(missing_or_overlapping(from, base, path));
        }
        let file = disk
            .open(&path, OpenMode::Direct)
            .during(Operation::Open, &path)?;
        let file_bytes = file.len().during(Operation::Read, &path)?;
        let layout = Layout::of_file(file_bytes).filter(|_| is_last);
        let marks = match layout {
            Some(layout) => {
                read_marks(&file, layout, identity, base).during(Operation::Read, &path)?
            }
            None => Marks::None,
        };
        match (marks, layout) {
            (Marks::Of(mark), Some(layout)) => self.active(&file, &path, base, layout, &mark),
            (Marks::OfAnotherLog, _) => Err(RecoveryError::StateFile(StateFileError::Malformed {
                path: self.what.dir.join(LOG_IDENTITY_NAME),
                reason: format!("{} was written under another identity", path.display()),
            })),
            _ if is_last && identity.is_none() => self.foreign(&file, &path, base, disk),
            _ => self.sealed(&file, &path, base, disk),
        }
    }

    fn sealed<D: Disk>(
        &mut self,
        file: &D::File,
        path: &Path,
        base: Offset,
        disk: &D,
    ) -> Result<Tail, RecoveryError> {
        let extent = self.walk(file, path, base, u64::MAX, &[])?;
        if let Some(fault) = extent.fault {
            return Err(fault.corrupt(path));
        }
        self.compare_indexes(disk, extent.indexes);
        let position = extent.position;
        Ok(Tail::Sealed { position })
    }

    fn foreign<D: Disk>(
        &mut self,
        file: &D::File,
        path: &Path,
        base: Offset,
        disk: &D,
    ) -> Result<Tail, RecoveryError> {
        let extent = self.walk(file, path, base, u64::MAX, &[])?;
        self.compare_indexes(disk, extent.indexes);
        let torn = extent.fault.map(|fault| torn(path, fault));
        let position = extent.position;
        Ok(Tail::Foreign { position, torn })
    }

    fn active<F: DiskFile>(
        &mut self,
        file: &F,
        path: &Path,
        base: Offset,
        layout: Layout,
        mark: &crate::format::Mark,
    ) -> Result<Tail, RecoveryError> {
        let durable = Boundary {
            position: mark.durable_position,
            offset: mark.durable_offset,
            epoch: mark.durable_epoch,
        };
        let end = Boundary {
            position: mark.end_position,
            offset: mark.end_offset,
            epoch: mark.end_epoch,
        };
        let extent = self.walk(file, path, base, layout.data_bytes(), &[durable, end])?;
        // The zeros at the end of a segment that is not full are no fault of it.
        let fault = extent
            .fault
            .clone()
            .unwrap_or_else(|| full(extent.position));
        if !extent.met[0] {
            return Err(before_mark(extent.position, fault, durable).corrupt(path));
        }
        if extent.position >= mark.end_position {
            if !extent.met[1] {
                return Err(before_mark(extent.position, fault, end).corrupt(path));
            }
        } else if let Some(damage) =
            judge_group(file, mark, &fault).during(Operation::Read, path)?
        {
            return Err(damage.corrupt(path));
        }
        let is_torn = extent.position < mark.end_position
            || has_bytes(file, extent.position, layout).during(Operation::Read, path)?;
        if self.next > base {
            self.stale_indexes.push(extent.indexes);
        }
        Ok(Tail::Active {
            durable_position: mark.durable_position,
            position: extent.position,
            torn: is_torn.then(|| torn(path, fault)),
        })
    }

    /// Walks over the batches of one segment as far as they are whole and in their place.
    fn walk<F: DiskFile>(
        &mut self,
        file: &F,
        path: &Path,
        base: Offset,
        limit: u64,
        awaited: &[Boundary],
    ) -> Result<Extent, RecoveryError> {
        let mut scanner = Scanner::new(file, 0, limit).during(Operation::Read, path)?;
        let mut indexes = IndexBuilder::new(base, self.what.index_interval_bytes);
        let mut indexed = IndexedSegment::new(base);
        let mut met = Vec::new();
        self.meet(0, awaited, &mut met);
        let fault = loop {
            let position = scanner.position();
            match scanner.next() {
                Ok(Some(batch)) => {
                    let header = batch.header;
                    if let Err(fault) = self.check_place(&header, position, base) {
                        break Some(fault);
                    }
                    self.check_epoch_is_known(&header)?;
                    let end_position = position + header.size as u64;
                    indexes.add(&header, position);
                    indexed.add(header.base_offset, position, end_position);
                    self.advance(&header);
                    self.meet(end_position, awaited, &mut met);
                }
                Ok(None) => break None,
                Err(ScanError::Io(source)) => {
                    return Err(StorageError::new(Operation::Read, path, position, source).into());
                }
                Err(ScanError::Fault(error)) => {
                    break Some(Fault {
                        position,
                        expected: format!("a batch at offset {}", self.next),
                        found: error.to_string(),
                    });
                }
            }
        };
        let position = indexed.end_position;
        if position > 0 {
            self.indexed.push(indexed);
        }
        Ok(Extent {
            position,
            fault,
            met: awaited
                .iter()
                .map(|boundary| met.contains(boundary))
                .collect(),
            indexes: indexes.finish(),
        })
    }

    fn meet(&self, position: u64, awaited: &[Boundary], met: &mut Vec<Boundary>) {
        let here = Boundary {
            position,
            offset: self.next,
            epoch: self.epoch,
        };
        if awaited.contains(&here) {
            met.push(here);
        }
    }

    /// Offset and epoch lie outside the CRC: they must be what comes next.
    fn check_place(&self, header: &BatchHeader, position: u64, base: Offset) -> Result<(), Fault> {
        let fault = |expected: String, found: String| {
            Err(Fault {
                position,
                expected,
                found,
            })
        };
        let offset = header.base_offset;
        if offset != self.next {
            let expected = format!("a batch at offset {}", self.next);
            return fault(expected, format!("a batch at offset {offset}"));
        }
        if header.end_offset().0 - base.0 > i64::from(i32::MAX) + 1 {
            let found = format!("a batch to offset {}", header.end_offset());
            return fault("offsets within 31 bits of the segment's base".into(), found);
        }
        let expected = match self.checkpoint {
            Some(epochs) => epoch_at(epochs, offset),
            None => header.epoch.max(self.epoch),
        };
        if header.epoch != expected {
            let expected = format!("epoch {expected} at offset {offset}");
            return fault(expected, format!("epoch {}", header.epoch));
        }
        Ok(())
    }

    fn check_epoch_is_known(&self, header: &BatchHeader) -> Result<(), RecoveryError> {
        if header.epoch <= self.what.quorum_epoch {
            return Ok(());
        }
        Err(RecoveryError::EpochAhead {
            dir: self.what.dir.to_path_buf(),
            log_epoch: header.epoch,
            quorum_epoch: self.what.quorum_epoch,
        })
    }

    fn advance(&mut self, header: &BatchHeader) {
        if self
            .epochs
            .last()
            .is_none_or(|last| last.epoch < header.epoch)
        {
            self.epochs.push(EpochStart {
                epoch: header.epoch,
                start_offset: header.base_offset,
            });
        }
        self.epoch = header.epoch;
        self.next = header.end_offset();
        self.batches += 1;
        self.bytes += header.size as u64;
    }

    /// Only to write them anew where they differ: nothing here reads them.
    fn compare_indexes<D: Disk>(&mut self, disk: &D, indexes: IndexFiles) {
        let same = |file, content: &Vec<u8>| {
            let path = segment_path(self.what.dir, indexes.base, file);
            read_file(disk, &path, content.len()).is_ok_and(|found| found == *content)
        };
        let are_same = same(SegmentFile::OffsetIndex, &indexes.offsets)
            && same(SegmentFile::TimeIndex, &indexes.times);
        if !are_same {
            self.stale_indexes.push(indexes);
        }
    }
}

/// The epoch that the checkpoint gives for `offset`; -1 before its first entry.
fn epoch_at(epochs: &[EpochStart], offset: Offset) -> Epoch {
    let after = epochs.partition_point(|entry| entry.start_offset <= offset);
    after
        .checked_sub(1)
        .map_or(Epoch(-1), |index| epochs[index].epoch)
}

fn missing_or_overlapping(from: Offset, base: Offset, path: PathBuf) -> RecoveryError {
    if base > from {
        return RecoveryError::MissingSegment {
            from,
            to: base,
            next: path,
        };
    }
    RecoveryError::Corrupt {
        segment: path,
        position: 0,
        expected: format!("a segment at offset {from}"),
        found: format!("a segment at offset {base}"),
    }
}

fn torn(path: &Path, fault: Fault) -> Torn {
    Torn {
        segment: path.to_path_buf(),
        position: fault.position,
        reason: fault.found,
    }
}

fn full(position: u64) -> Fault {
    Fault {
        position,
        expected: "batches".into(),
        found: "the end of the segment".into(),
    }
}

/// The fault of a segment that ends before, or runs past, a boundary that a mark tells of.
fn before_mark(position: u64, fault: Fault, boundary: Boundary) -> Fault {
    if position < boundary.position {
        return fault;
    }
    Fault {
        position: boundary.position,
        expected: format!(
            "epoch {} to end at offset {}",
            boundary.epoch, boundary.offset
        ),
        found: "no such batch boundary".into(),
    }
}

/// Whether anything but zeros stands close behind `position`: for the report only.
fn has_bytes<F: DiskFile>(file: &F, position: u64, layout: Layout) -> std::io::Result<bool> {
    crate::marks::any_byte(file, position, layout.data_bytes())
}
