//! The log as a whole: opening it. What happens to it afterwards is the writer's.

use crate::disk::Disk;
use crate::error::RecoveryError;
use crate::inspect::{Inspection, inspect, read_directory};
use crate::log_writer::LogWriter;
use crate::producers::{ProducerLimits, ProducerStates};
use crate::recovery::{RecoveryReport, repair};
use crate::segment_index::SegmentIndex;
use crate::trust::trust;
use quorate_raft::{Epoch, EpochStart, Offset};
use std::path::PathBuf;

/// How the log is kept.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directory of the log: `<log.dir>/<topic>-0`.
    pub dir: PathBuf,
    /// Topic id, kept in `partition.metadata`.
    pub topic_id: [u8; 16],
    /// Bytes of batches in a segment, at most; rounded down to blocks, at most 1 GiB. A single
    /// batch that is larger gets a segment of its own.
    pub segment_bytes: u64,
    /// Bytes of batches in a group, at most. A single batch that is larger is a group of its own.
    pub group_bytes_max: usize,
    /// Bytes of log between two entries of `.index` (Kafka's `index.interval.bytes`).
    pub index_interval_bytes: u64,
    /// How much is remembered of idempotent producers.
    pub producers: ProducerLimits,
}

/// Kafka's indexes hold positions of 31 bits; half of it leaves room for the largest batch.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

impl LogConfig {
    /// The usual configuration: 64 MiB segments, 1 MiB groups, an index entry per 4 KiB.
    #[must_use]
    pub fn new(dir: PathBuf, topic_id: [u8; 16]) -> Self {
        Self {
            dir,
            topic_id,
            segment_bytes: 64 * 1024 * 1024,
            group_bytes_max: 1024 * 1024,
            index_interval_bytes: 4096,
            producers: ProducerLimits::default(),
        }
    }
}

/// An open log.
#[derive(Debug)]
pub struct OpenedLog<D: Disk> {
    /// Appends, truncates, closes.
    pub writer: LogWriter<D>,
    /// Plans reads.
    pub index: SegmentIndex,
    /// First offset of the log.
    pub log_start: Offset,
    /// End of the log (exclusive); all of it is durable.
    pub log_end: Offset,
    /// Where each epoch begins, ascending.
    pub epochs: Vec<EpochStart>,
    /// What the log knows of idempotent producers. Their ages are not known yet.
    pub producers: ProducerStates,
    /// What was found and done.
    pub report: RecoveryReport,
}

/// Opens the log, creating it if there is none: recovers it, seals what is there and makes a new
/// active segment ready. Blocks: for as long as it takes to read the whole log, unless it was
/// closed cleanly and is as it was left.
///
/// `quorum_epoch` is the epoch of quorum-state: no record may have a later one.
///
/// # Errors
/// See [`RecoveryError`]. Unless it is `Storage`, nothing on the disk was changed.
pub fn open_log<D: Disk>(
    disk: D,
    config: LogConfig,
    quorum_epoch: Epoch,
) -> Result<OpenedLog<D>, RecoveryError> {
    let mut config = config;
    config.segment_bytes = config.segment_bytes.min(SEGMENT_BYTES_MAX);
    let inspection = Inspection {
        dir: &config.dir,
        topic_id: Some(config.topic_id),
        index_interval_bytes: config.index_interval_bytes,
        quorum_epoch,
        producers: config.producers,
    };
    let directory = read_directory(&disk, &inspection)?;
    let found = match trust(&disk, &inspection, &directory) {
        Some(found) => found,
        None => inspect(&disk, &inspection, directory, &mut |_, _| {})?,
    };
    repair(disk, config, found)
}
