//! The small files beside the segments: quorum-state, the epoch checkpoint, partition.metadata, the
//! log's identity. Read whole, replaced whole (temporary name, fsync, rename, fsync of the
//! directory), never on the raft loop.

use crate::disk::{Disk, found, read_file, write_file_atomically};
use crate::error::{Context, Operation, StateFileError};
use crate::format::{
    FileFormatError, LogIdentity, decode_epoch_checkpoint, decode_log_identity,
    decode_partition_metadata, decode_quorum_state, decode_quorum_state_voters,
    encode_quorum_state_v0,
};
use crate::job::EPOCH_CHECKPOINT_NAME;
use quorate_raft::{ElectionState, EpochStart, NodeId};
use std::io;
use std::path::Path;

pub(crate) const QUORUM_STATE_NAME: &str = "quorum-state";
pub(crate) const PARTITION_METADATA_NAME: &str = "partition.metadata";
pub(crate) const LOG_IDENTITY_NAME: &str = "quorate-log";
pub(crate) const PRODUCERS_NAME: &str = "quorate-producers";

/// No state file is longer: a million epochs take less.
const BYTES_MAX: usize = 32 * 1024 * 1024;

fn read<D: Disk, T>(
    disk: &D,
    dir: &Path,
    name: &str,
    supported: &'static str,
    decode: impl FnOnce(&[u8]) -> Result<T, FileFormatError>,
) -> Result<Option<T>, StateFileError> {
    let path = dir.join(name);
    let content = found(read_file(disk, &path, BYTES_MAX)).during(Operation::Read, &path)?;
    let Some(content) = content else {
        return Ok(None);
    };
    match decode(&content) {
        Ok(value) => Ok(Some(value)),
        Err(FileFormatError::Version(found)) => Err(StateFileError::Version {
            path,
            found,
            supported,
        }),
        Err(FileFormatError::Malformed(reason)) => Err(StateFileError::Malformed { path, reason }),
    }
}

/// Reads `quorum-state`, version 0 or 1; `None` if there is no such file.
///
/// # Errors
/// If it is there and not whole. It is never guessed at: a forgotten vote may be cast twice.
pub fn read_quorum_state<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<ElectionState>, StateFileError> {
    read(disk, dir, QUORUM_STATE_NAME, "0 and 1", decode_quorum_state)
}

/// What the node that starts on a log has promised: its `quorum-state`, or a new one where the log
/// has never been used. The new one is durable before the log is, so that a log in use without it
/// has lost it.
///
/// `voters`: the configured ones; none if the configuration names none.
///
/// # Errors
/// If the file is not whole, is missing from a log in use, or was written with other voters: two
/// sets of voters elect two leaders.
pub fn open_quorum_state<D: Disk>(
    disk: &D,
    dir: &Path,
    voters: &[NodeId],
) -> Result<ElectionState, StateFileError> {
    let path = dir.join(QUORUM_STATE_NAME);
    let stored = read(disk, dir, QUORUM_STATE_NAME, "0 and 1", |bytes| {
        Ok((
            decode_quorum_state(bytes)?,
            decode_quorum_state_voters(bytes)?,
        ))
    })?;
    if let Some((election, stored)) = stored {
        let configured = sorted(voters.to_vec());
        return match stored.map(sorted) {
            Some(stored) if !configured.is_empty() && stored != configured => {
                Err(StateFileError::OtherVoters {
                    path,
                    stored,
                    configured,
                })
            }
            _ => Ok(election),
        };
    }
    if read_log_identity(disk, dir)?.is_some() {
        return Err(StateFileError::Missing { path });
    }
    let election = ElectionState::default();
    let written = write_quorum_state(disk, dir, &election, voters);
    written.during(Operation::WriteStateFile, &path)?;
    Ok(election)
}

fn sorted(mut ids: Vec<NodeId>) -> Vec<NodeId> {
    ids.sort_unstable();
    ids
}

/// Replaces `quorum-state` (version 0), durably.
///
/// # Errors
/// What the file system says. What is in the file then, the old or the new state, is not known.
pub fn write_quorum_state<D: Disk>(
    disk: &D,
    dir: &Path,
    election: &ElectionState,
    voters: &[NodeId],
) -> io::Result<()> {
    let content = encode_quorum_state_v0(election, voters);
    write_file_atomically(disk, dir, QUORUM_STATE_NAME, &content)
}

pub(crate) fn read_epoch_checkpoint<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<Vec<EpochStart>>, StateFileError> {
    read(
        disk,
        dir,
        EPOCH_CHECKPOINT_NAME,
        "0",
        decode_epoch_checkpoint,
    )
}

pub(crate) fn read_partition_metadata<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<[u8; 16]>, StateFileError> {
    read(
        disk,
        dir,
        PARTITION_METADATA_NAME,
        "0",
        decode_partition_metadata,
    )
}

pub(crate) fn read_log_identity<D: Disk>(
    disk: &D,
    dir: &Path,
) -> Result<Option<LogIdentity>, StateFileError> {
    read(disk, dir, LOG_IDENTITY_NAME, "0", decode_log_identity)
}
