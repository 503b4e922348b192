//! The marker of a clean stop, `.quorate_cleanshutdown`: where the log ended. The next start checks
//! that it still ends there, removes the marker durably, and only then takes appends.
//!
//! JSON, one line: `{"version":0,"log_end_offset":N,"epoch":N}`.

use crate::disk::{Disk, found, read_file, write_file_atomically};
use crate::error::{Context, Operation, StateFileError, StorageError};
use quorate_raft::{Epoch, Offset};
use serde::{Deserialize, Serialize};
use std::path::Path;

const NAME: &str = ".quorate_cleanshutdown";
const BYTES_MAX: usize = 4096;

/// Where a cleanly stopped log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanShutdown {
    /// Exclusive.
    pub log_end_offset: Offset,
    /// Of the last batch; 0 for an empty log.
    pub epoch: Epoch,
}

#[derive(Serialize, Deserialize)]
struct Json {
    version: i64,
    log_end_offset: i64,
    epoch: i32,
}

/// Writes the marker, durably.
pub(crate) fn write_clean_shutdown<D: Disk>(
    disk: &D,
    dir: &Path,
    marker: CleanShutdown,
) -> Result<(), StorageError> {
    let text = format!(
        "{{\"version\":0,\"log_end_offset\":{},\"epoch\":{}}}\n",
        marker.log_end_offset, marker.epoch
    );
    write_file_atomically(disk, dir, NAME, text.as_bytes())
        .during(Operation::WriteStateFile, &dir.join(NAME))
}

/// Reads the marker; `None` after a crash.
pub(crate) fn read_clean_shutdown<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<CleanShutdown>, StateFileError> {
    let path = dir.join(NAME);
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
    if json.version != 0 {
        let (found, supported) = (json.version, "0");
        return Err(StateFileError::Version {
            path,
            found,
            supported,
        });
    }
    Ok(Some(CleanShutdown {
        log_end_offset: Offset(json.log_end_offset),
        epoch: Epoch(json.epoch),
    }))
}

/// Removes the marker, durably.
pub(crate) fn remove_clean_shutdown<D: Disk>(disk: &D, dir: &Path) -> Result<(), StorageError> {
    let path = dir.join(NAME);
    found(disk.remove(&path)).during(Operation::Remove, &path)?;
    disk.sync_dir(dir).during(Operation::FlushDir, dir)
}
