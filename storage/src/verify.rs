//! Checks a log from its first to its last byte, offline, and changes nothing. The same reading
//! half as recovery, so what it accepts, the next start accepts; and beyond that the files that a
//! start does not need or makes anew: indexes, snapshots, and all that a clean stop left.
//!
//! What a crash may leave is no fault: an unfinished write, indexes of the last two segments that
//! were not written, epochs without records. In a log that Kafka wrote, indexes and marks are not
//! looked at: Kafka makes its indexes anew at each start.

use crate::clean_shutdown::{CLEAN_SHUTDOWN_NAME, manifest};
use crate::disk::{Disk, OpenMode, found as found_in};
use crate::error::{Context, Operation, RecoveryError, StateFileError, StorageError};
use crate::file_disk::FileDisk;
use crate::inspect::{Found, Inspection, Tail, Torn, inspect, read_directory};
use crate::job::{EPOCH_CHECKPOINT_NAME, segment_lengths};
use crate::producers::{ProducerLimits, ProducerStates};
use crate::scan::{ScanError, Scanner};
use crate::segment::{SegmentFile, parse_snapshot_name, segment_path};
use crate::state_file::{PRODUCERS_NAME, read_quorum_state};
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

/// Checks the log in `dir`. `progress` is called every few mebibytes with the segment's path and
/// the bytes checked so far.
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
    let names = directory.names.clone();
    let found = inspect(&FileDisk, &inspection, directory, progress)?;
    check_indexes(dir, &found)?;
    check_clean_stop(dir, &found)?;
    for name in names
        .iter()
        .filter(|name| parse_snapshot_name(name).is_some())
    {
        check_snapshot(&dir.join(name))?;
    }
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

fn corrupt(
    path: &Path,
    position: usize,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> RecoveryError {
    RecoveryError::Corrupt {
        segment: path.to_path_buf(),
        position: position as u64,
        expected: expected.into(),
        found: found.into(),
    }
}

/// The index files must be what the batches make of them, where they were finished.
fn check_indexes(dir: &Path, found: &Found) -> Result<(), RecoveryError> {
    if found.identity.is_none() {
        return Ok(());
    }
    let open = match found.clean {
        Some(_) => 0,
        None => 2,
    };
    let finished = &found.segments[..found.segments.len().saturating_sub(open)];
    for indexes in &found.stale_indexes {
        if finished.contains(&indexes.base) {
            check_index(
                dir,
                indexes.base,
                SegmentFile::OffsetIndex,
                &indexes.offsets,
            )?;
            check_index(dir, indexes.base, SegmentFile::TimeIndex, &indexes.times)?;
        }
    }
    Ok(())
}

fn check_index(
    dir: &Path,
    base: Offset,
    kind: SegmentFile,
    expected: &[u8],
) -> Result<(), RecoveryError> {
    let path = segment_path(dir, base, kind);
    let Some(content) = found_in(std::fs::read(&path)).during(Operation::Read, &path)? else {
        let wanted = format!("an index of {} bytes", expected.len());
        return Err(corrupt(&path, 0, wanted, "no file"));
    };
    let differs = |(one, other): (&u8, &u8)| one != other;
    let differing = content.iter().zip(expected).position(differs);
    if let Some(at) = differing {
        return Err(corrupt(&path, at, "what the batches say", "another entry"));
    }
    // Kafka, if it has opened the log since, leaves zeros behind an index.
    let is_longer = |rest: &[u8]| rest.iter().any(|byte| *byte != 0);
    if content.len() < expected.len() || is_longer(&content[expected.len()..]) {
        let shorter = content.len().min(expected.len());
        let wanted = format!("{} bytes", expected.len());
        return Err(corrupt(
            &path,
            shorter,
            wanted,
            format!("{} bytes", content.len()),
        ));
    }
    Ok(())
}

/// All that a clean stop left must be as it was left.
fn check_clean_stop(dir: &Path, found: &Found) -> Result<(), RecoveryError> {
    let Some(clean) = found.clean else {
        return Ok(());
    };
    if clean.epoch != found.end_epoch {
        let wanted = format!("the last batch's epoch {}", found.end_epoch);
        let path = dir.join(CLEAN_SHUTDOWN_NAME);
        return Err(corrupt(&path, 0, wanted, format!("epoch {}", clean.epoch)));
    }
    let stored = found.checkpoint.as_deref().unwrap_or_default();
    if found.identity.is_some() && stored != found.epochs {
        let path = dir.join(EPOCH_CHECKPOINT_NAME);
        let wanted = format!("{} epochs, as the batches have", found.epochs.len());
        return Err(corrupt(
            &path,
            0,
            wanted,
            format!("{} epochs", stored.len()),
        ));
    }
    let Some(sum) = clean.manifest else {
        return Ok(());
    };
    let path = dir.join(PRODUCERS_NAME);
    let producers = std::fs::read(&path).during(Operation::Read, &path)?;
    let limits = ProducerLimits::default();
    if ProducerStates::restore(limits, found.log_end, &producers).is_none() {
        let wanted = format!("producer states at offset {}", found.log_end);
        return Err(corrupt(&path, 0, wanted, "something else, or a part of it"));
    }
    let lengths = segment_lengths(&FileDisk, dir, &found.segments)?;
    if manifest(&lengths, &found.epochs, &producers) != sum {
        let path = dir.join(CLEAN_SHUTDOWN_NAME);
        let found = "segments, epochs or producers that were changed since";
        return Err(corrupt(&path, 0, "what was there at the clean stop", found));
    }
    Ok(())
}

/// A snapshot's batches must be whole.
fn check_snapshot(path: &Path) -> Result<(), RecoveryError> {
    let file = FileDisk.open(path, OpenMode::Read);
    let file = file.during(Operation::Open, path)?;
    let mut scanner = Scanner::new(&file, 0, u64::MAX).during(Operation::Read, path)?;
    loop {
        let position = scanner.position();
        match scanner.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(ScanError::Io(source)) => {
                return Err(StorageError::new(Operation::Read, path, position, source).into());
            }
            Err(ScanError::Fault(fault)) => {
                let at = usize::try_from(position).unwrap_or(usize::MAX);
                return Err(corrupt(
                    path,
                    at,
                    "a batch of the snapshot",
                    fault.to_string(),
                ));
            }
        }
    }
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
