//! Checks a log from its first to its last byte, offline, and changes nothing. The same reading
//! half as recovery: what it accepts, the next start accepts.

use crate::error::{Context, Operation, RecoveryError, StateFileError};
use crate::file_disk::FileDisk;
use crate::inspect::{Inspection, Tail, Torn, inspect, read_directory};
use crate::producers::ProducerLimits;
use crate::state_file::read_quorum_state;
use quorate_raft::{Epoch, EpochStart, Offset};
use std::path::{Path, PathBuf};

/// A log without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments that hold batches.
    pub segments: usize,
    /// Batches in them.
    pub batches: u64,
    /// Bytes of these batches.
    pub bytes: u64,
    /// First offset.
    pub log_start: Offset,
    /// End (exclusive).
    pub log_end: Offset,
    /// Where each epoch begins.
    pub epochs: Vec<EpochStart>,
    /// Whether the log was closed cleanly.
    pub is_clean: bool,
    /// An unfinished write behind the end: no fault, the next start cuts it off.
    pub torn: Option<Torn>,
}

/// Where a log is at fault.
#[derive(Debug, thiserror::Error)]
#[error("{}: at byte {position}: {fault}", segment.display())]
pub struct VerifyFault {
    /// The segment file, or the file or directory that is at fault.
    pub segment: PathBuf,
    /// Byte where the fault begins; 0 if it is of the file as a whole.
    pub position: u64,
    /// What is wrong.
    pub fault: RecoveryError,
}

/// Checks the log in `dir`. `progress` is called after each segment with its path and the bytes
/// checked so far.
///
/// # Errors
/// The first fault, as the next start would name it.
pub fn verify_dir(
    dir: &Path,
    progress: &mut dyn FnMut(&Path, u64),
) -> Result<VerifyReport, VerifyFault> {
    verify(dir, progress).map_err(|fault| locate(dir, fault))
}

fn verify(dir: &Path, progress: &mut dyn FnMut(&Path, u64)) -> Result<VerifyReport, RecoveryError> {
    std::fs::read_dir(dir).during(Operation::List, dir)?;
    let election = read_quorum_state(&FileDisk, dir)?;
    let inspection = Inspection {
        dir,
        topic_id: None,
        index_interval_bytes: 4096,
        // A copy of a log without quorum-state is checked for all but that.
        quorum_epoch: election.map_or(Epoch(i32::MAX), |election| election.epoch),
        producers: ProducerLimits::default(),
    };
    let directory = read_directory(&FileDisk, &inspection)?;
    let found = inspect(&FileDisk, &inspection, directory, progress)?;
    let torn = match found.tail {
        Tail::Active { torn, .. } | Tail::Foreign { torn, .. } => torn,
        Tail::Missing | Tail::Sealed { .. } => None,
    };
    Ok(VerifyReport {
        segments: found.indexed.len(),
        batches: found.batches.unwrap_or_default(),
        bytes: found.bytes,
        log_start: found.log_start,
        log_end: found.log_end,
        epochs: found.epochs,
        is_clean: found.clean.is_some(),
        torn,
    })
}

fn locate(dir: &Path, fault: RecoveryError) -> VerifyFault {
    let (segment, position) = match &fault {
        RecoveryError::Corrupt {
            segment, position, ..
        } => (segment.clone(), *position),
        RecoveryError::MissingSegment { next, .. } => (next.clone(), 0),
        RecoveryError::TopicIdMismatch { path }
        | RecoveryError::StateFile(
            StateFileError::Malformed { path, .. }
            | StateFileError::Version { path, .. }
            | StateFileError::Missing { path }
            | StateFileError::OtherVoters { path, .. },
        ) => (path.clone(), 0),
        RecoveryError::Storage(error)
        | RecoveryError::StateFile(StateFileError::Storage(error)) => {
            (error.path.clone(), error.position)
        }
        RecoveryError::MissingSnapshot { .. }
        | RecoveryError::NoSegments { .. }
        | RecoveryError::EndMismatch { .. }
        | RecoveryError::EpochAhead { .. } => (dir.to_path_buf(), 0),
    };
    VerifyFault {
        segment,
        position,
        fault,
    }
}
