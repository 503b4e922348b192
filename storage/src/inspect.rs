//! The reading half of recovery: finds out what is in the directory and decides what it means,
//! without changing a byte. `recovery.rs` acts on it; `verify` only reports it.
//!
//! What decides, in order:
//! - Sealed segments (all but the last, and the last if it has no valid mark) must be whole batches
//!   to their last byte. They were flushed before anything was written behind them.
//! - The last but one may still have its marks, if a roll was cut short: then it must be whole up
//!   to the end of its newest group, with nothing behind, since the roll came after that flush.
//! - In the active segment nothing before the newest mark's durable point may be at fault: it was
//!   flushed before that mark was submitted.
//! - The newest mark's own group may be torn, if each block at fault still has a part as it was
//!   before the group. A block that is neither the old nor the new was damaged later: the group may
//!   have been acknowledged, so it is not cut off.
//! - Behind the newest mark's group nothing was acknowledged: whole batches stay, the rest goes.
//! - Each batch must begin where the one before ended, with the epoch that the epoch checkpoint
//!   gives for its offset (the epoch lies outside the CRC), which quorum-state must know.
//!
//! A directory without the file `quorate-log` was written by Kafka: no marks, and its epochs are
//! read from the batches. Kafka does not flush before it acknowledges and cuts at the first bad
//! batch; so do we there, but only in the last segment.

use crate::clean_shutdown::{CleanShutdown, read_clean_shutdown};
use crate::disk::{Disk, found};
use crate::error::{Context, Operation, RecoveryError};
use crate::format::LogIdentity;
use crate::index_file::IndexFiles;
use crate::producers::{ProducerLimits, ProducerStates};
use crate::segment::{SegmentFile, TEMPORARY_SUFFIX, parse_segment_name, parse_snapshot_name};
use crate::segment_index::IndexedSegment;
use crate::state_file::{
    PARTITION_METADATA_NAME, read_epoch_checkpoint, read_log_identity, read_partition_metadata,
};
use crate::walk::{Place, Walk};
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
    /// How much is remembered of idempotent producers.
    pub producers: ProducerLimits,
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
    /// The last segment but one, if it still has its marks, and where its last batch ends.
    pub unsealed: Option<(Offset, u64)>,
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
    pub producers: ProducerStates,
    /// `None` if they were not counted.
    pub batches: Option<u64>,
    pub bytes: u64,
}

/// The last segment.
#[derive(Clone, Debug)]
pub(crate) enum Tail {
    /// There is none.
    Missing,
    /// Whole, without marks.
    Sealed { position: u64 },
    /// With marks: it was written to when the process walk.
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

/// Called with the segment that is read and the bytes of the log that were read so far, every few
/// mebibytes.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Path, u64);

/// What the directory says without its segments being read.
#[derive(Debug)]
pub(crate) struct Directory {
    pub names: Vec<String>,
    pub has_partition_metadata: bool,
    pub identity: Option<LogIdentity>,
    pub checkpoint: Option<Vec<EpochStart>>,
    pub clean: Option<CleanShutdown>,
    /// Base offsets of all segment files, ascending.
    pub segments: Vec<Offset>,
    pub log_start: Offset,
}

/// Reads the small files. Changes nothing.
pub(crate) fn read_directory<D: Disk>(
    disk: &D,
    what: &Inspection<'_>,
) -> Result<Directory, RecoveryError> {
    let names = found(disk.list(what.dir)).during(Operation::List, what.dir)?;
    let names = names.unwrap_or_default();
    let has_partition_metadata = check_topic(disk, what)?;
    let identity = read_log_identity(disk, what.dir)?;
    let checkpoint = read_epoch_checkpoint(disk, what.dir)?;
    let clean = read_clean_shutdown(disk, what.dir)?;
    let segments = segments_of(&names);
    let log_start = segments.first().copied().unwrap_or_default();
    check_snapshots(what.dir, &names, log_start)?;
    Ok(Directory {
        names,
        has_partition_metadata,
        identity,
        checkpoint,
        clean,
        segments,
        log_start,
    })
}

/// Reads everything. Changes nothing.
pub(crate) fn inspect<D: Disk>(
    disk: &D,
    what: &Inspection<'_>,
    directory: Directory,
    progress: Progress<'_>,
) -> Result<Found, RecoveryError> {
    let Directory {
        names,
        has_partition_metadata,
        identity,
        checkpoint,
        clean,
        segments,
        log_start,
    } = directory;
    let mut walk = Walk::new(
        what,
        log_start,
        identity.and(checkpoint.as_deref()),
        progress,
    );
    walk.check_presence(&segments, identity, clean)?;
    let mut tail = Tail::Missing;
    for (index, base) in segments.iter().enumerate() {
        let place = match segments.len() - index {
            1 => Place::Last,
            2 => Place::LastButOne,
            _ => Place::Before,
        };
        tail = walk.segment(disk, *base, place, identity)?;
    }
    check_clean_end(what.dir, clean, walk.next)?;
    Ok(Found {
        has_partition_metadata,
        identity,
        clean,
        strays: strays(what.dir, &names, &segments),
        segments,
        indexed: walk.indexed,
        unsealed: walk.unsealed,
        tail,
        log_start,
        log_end: walk.next,
        end_epoch: walk.epoch,
        epochs: walk.epochs,
        stale_indexes: walk.stale_indexes,
        producers: walk.producers,
        batches: Some(walk.batches),
        bytes: walk.bytes,
        checkpoint,
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

/// Kafka's rule (`KafkaRaftLog.recoverAndLoadSnapshots`): what is before the log must be in a
/// snapshot.
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

/// Files that belong to nothing. `segments` ascend.
pub(crate) fn strays(dir: &Path, names: &[String], segments: &[Offset]) -> Vec<PathBuf> {
    let is_stray = |name: &&String| match parse_segment_name(name) {
        Some((base, _)) => segments.binary_search(&base).is_err(),
        // An unfinished spare, or a state file whose replacement was cut short.
        None => name.ends_with(TEMPORARY_SUFFIX),
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
