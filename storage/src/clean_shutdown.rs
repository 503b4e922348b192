//! The marker of a clean stop, `.quorate_cleanshutdown`: where the log ended and what it was made
//! of. The next start checks that it still ends there, removes the marker durably, and only then
//! takes appends.
//!
//! JSON, one line: `{"version":1,"log_end_offset":N,"epoch":N,"manifest":N}`. The manifest is a
//! CRC-32C over the names and lengths of all segments, the epochs and the stored producer states:
//! if it is the same at the next start, nothing was added, taken away or cut (`trust.rs`). A marker
//! of version 0 has none.

use crate::disk::{Disk, found, read_file, write_file_atomically};
use crate::error::{Context, Operation, StateFileError, StorageError};
use crate::format::{crc32c, encode_epoch_checkpoint};
use bytes::BufMut;
use quorate_raft::{Epoch, EpochStart, Offset};
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(crate) const CLEAN_SHUTDOWN_NAME: &str = ".quorate_cleanshutdown";
const BYTES_MAX: usize = 4096;

/// Where a cleanly stopped log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanShutdown {
    /// Exclusive.
    pub log_end_offset: Offset,
    /// Of the last batch; 0 for an empty log.
    pub epoch: Epoch,
    /// See [`manifest`]. `None` if the next start is to read everything.
    pub manifest: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Json {
    version: i64,
    log_end_offset: i64,
    epoch: i32,
    #[serde(default)]
    manifest: Option<u32>,
}

/// Sums up what a cleanly stopped log is made of: each segment's base offset and length, ascending,
/// the epochs, and the content of the file with the producer states.
pub(crate) fn manifest(segments: &[(Offset, u64)], epochs: &[EpochStart], producers: &[u8]) -> u32 {
    let mut content = Vec::with_capacity(segments.len() * 16 + 64);
    content.put_u64(segments.len() as u64);
    for (base, bytes) in segments {
        content.put_i64(base.0);
        content.put_u64(*bytes);
    }
    content.put_slice(&encode_epoch_checkpoint(epochs));
    content.put_u32(crc32c(producers));
    crc32c(&content)
}

/// Writes the marker, durably.
pub(crate) fn write_clean_shutdown<D: Disk>(
    disk: &D,
    dir: &Path,
    marker: CleanShutdown,
) -> Result<(), StorageError> {
    let json = Json {
        version: 1,
        log_end_offset: marker.log_end_offset.0,
        epoch: marker.epoch.0,
        manifest: marker.manifest,
    };
    let mut text = serde_json::to_vec(&json).expect("numbers can be written as JSON");
    text.push(b'\n');
    write_file_atomically(disk, dir, CLEAN_SHUTDOWN_NAME, &text)
        .during(Operation::WriteStateFile, &dir.join(CLEAN_SHUTDOWN_NAME))
}

/// Reads the marker; `None` after a crash.
pub(crate) fn read_clean_shutdown<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<CleanShutdown>, StateFileError> {
    let path = dir.join(CLEAN_SHUTDOWN_NAME);
    let content = found(read_file(disk, &path, BYTES_MAX)).during(Operation::Read, &path)?;
    let Some(content) = content else {
        return Ok(None);
    };
    let json: Json = match serde_json::from_slice(&content) {
        Ok(json) => json,
        Err(error) => {
            let reason = error.to_string();
            return Err(StateFileError::Malformed { path, reason });
        }
    };
    if !(0..=1).contains(&json.version) {
        let (found, supported) = (json.version, "0 and 1");
        return Err(StateFileError::Version {
            path,
            found,
            supported,
        });
    }
    Ok(Some(CleanShutdown {
        log_end_offset: Offset(json.log_end_offset),
        epoch: Epoch(json.epoch),
        manifest: json.manifest.filter(|_| json.version == 1),
    }))
}

/// Removes the marker, durably.
pub(crate) fn remove_clean_shutdown<D: Disk>(disk: &D, dir: &Path) -> Result<(), StorageError> {
    let path = dir.join(CLEAN_SHUTDOWN_NAME);
    found(disk.remove(&path)).during(Operation::Remove, &path)?;
    disk.sync_dir(dir).during(Operation::FlushDir, dir)
}
