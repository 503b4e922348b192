//! What can go wrong with the log on disk, one enum per caller's task. Peers' mistakes are not here
//! (they are `format::BatchError`), nor are our own (they are asserts).

use quorate_raft::{Epoch, NodeId, Offset};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What storage was doing with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creating a directory.
    CreateDir,
    /// Listing a directory.
    List,
    /// Opening or creating a file.
    Open,
    /// Reading.
    Read,
    /// Writing a group or a block.
    Write,
    /// Flushing a file.
    Flush,
    /// Cutting a file.
    SetLen,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Flushing a directory.
    FlushDir,
    /// Writing a group and flushing it.
    WriteGroup,
    /// Replacing a small file as a whole.
    WriteStateFile,
    /// Finding the batch boundary to cut at.
    Truncate,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateDir => "create directory",
            Self::List => "list",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::SetLen => "cut",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::FlushDir => "flush directory",
            Self::WriteGroup => "write and flush a group",
            Self::WriteStateFile => "replace",
            Self::Truncate => "truncate",
        })
    }
}

/// The disk failed, or what is on it is not what was written. Final: the log takes nothing more and
/// the node stops. Nothing is tried again, as after a failed flush nobody knows what is durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {} at {position}: {source}", path.display())]
pub struct StorageError {
    /// What was done.
    pub operation: Operation,
    /// To which file or directory.
    pub path: PathBuf,
    /// At which byte; 0 where there is none.
    pub position: u64,
    /// What the file system said.
    pub source: io::Error,
}

impl StorageError {
    pub(crate) fn new(operation: Operation, path: &Path, position: u64, source: io::Error) -> Self {
        let path = path.to_path_buf();
        Self {
            operation,
            path,
            position,
            source,
        }
    }
}

/// Names the operation and the file of a failed call.
pub(crate) trait Context<T> {
    /// The same, as a [`StorageError`].
    fn during(self, operation: Operation, path: &Path) -> Result<T, StorageError>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, operation: Operation, path: &Path) -> Result<T, StorageError> {
        self.map_err(|source| StorageError::new(operation, path, 0, source))
    }
}

/// Why the log was not opened. Unless it is `Storage`, nothing on the disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// Bytes that were durable are not what was written: neither a crash nor a torn write does
    /// that. Restore the directory from another voter, or format it anew where that is safe.
    #[error(
        "{} is corrupt at byte {position}: expected {expected}, found {found}",
        segment.display()
    )]
    Corrupt {
        /// The segment file.
        segment: PathBuf,
        /// Byte of the segment where the fault begins.
        position: u64,
        /// What should stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The segments do not follow each other.
    #[error("no segment holds offsets {from} to {to} (next is {})", next.display())]
    MissingSegment {
        /// End of the log before the gap (exclusive).
        from: Offset,
        /// Base offset of the segment behind the gap.
        to: Offset,
        /// That segment.
        next: PathBuf,
    },
    /// The log does not begin at 0 and no snapshot covers what is before it.
    #[error("{} begins at offset {log_start}, but no snapshot ends there or later", dir.display())]
    MissingSnapshot {
        /// Directory of the log.
        dir: PathBuf,
        /// Its first offset.
        log_start: Offset,
    },
    /// There were records, and there is no segment.
    #[error(
        "{} has no segment, but its epoch checkpoint or its clean-shutdown marker tells of records",
        dir.display()
    )]
    NoSegments {
        /// Directory of the log.
        dir: PathBuf,
    },
    /// The clean-shutdown marker names another end than the log has.
    #[error(
        "{} was closed cleanly at offset {closed_end}, but its segments end at {found_end}",
        dir.display()
    )]
    EndMismatch {
        /// Directory of the log.
        dir: PathBuf,
        /// What the marker says (exclusive).
        closed_end: Offset,
        /// What the segments hold (exclusive).
        found_end: Offset,
    },
    /// The log has an epoch that quorum-state does not know: the vote of that epoch may be lost.
    #[error(
        "{} has records of epoch {log_epoch}, quorum-state knows only epoch {quorum_epoch}",
        dir.display()
    )]
    EpochAhead {
        /// Directory of the log.
        dir: PathBuf,
        /// Epoch of a batch in the log.
        log_epoch: Epoch,
        /// What quorum-state says.
        quorum_epoch: Epoch,
    },
    /// The directory belongs to another topic.
    #[error("{} belongs to another topic id than the configured one", path.display())]
    TopicIdMismatch {
        /// The partition.metadata file.
        path: PathBuf,
    },
    /// A small file of the log is unreadable.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A small file (quorum-state, leader-epoch-checkpoint, ...) cannot be used. It is never guessed
/// at: a lost vote may be cast twice.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file is there, but is not what it should be.
    #[error("{} is malformed: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has a format of a later release.
    #[error("{} has version {found}, this release reads {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: i64,
        /// Versions that are read.
        supported: &'static str,
    },
    /// It must be there and is not.
    #[error(
        "{} is missing from a log that was in use: this node would forget how it voted. Restore \
         the file, or format the node anew where that is safe",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The voters are not those that the file was written with.
    #[error(
        "{} was written with voters {stored:?}, but controller.quorum.voters has {configured:?}",
        path.display()
    )]
    OtherVoters {
        /// The file.
        path: PathBuf,
        /// In the file, ascending.
        stored: Vec<NodeId>,
        /// In the configuration, ascending.
        configured: Vec<NodeId>,
    },
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a read of the log gave nothing. The log itself goes on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A batch is not what was written.
    #[error("{} is corrupt at byte {position}, offset {offset}: {fault}", segment.display())]
    Corrupt {
        /// The segment file.
        segment: PathBuf,
        /// Where the batch begins.
        position: u64,
        /// The offset that should stand there.
        offset: Offset,
        /// What is wrong with it.
        fault: ReadFault,
    },
    /// The log was cut or its files replaced since the read was planned. Plan again.
    #[error("{} no longer holds offset {offset}", segment.display())]
    Gone {
        /// The segment file.
        segment: PathBuf,
        /// The offset that was looked for.
        offset: Offset,
    },
}

/// What is wrong with a batch that was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// It is no whole batch with a matching checksum.
    #[error(transparent)]
    Batch(#[from] crate::format::BatchError),
    /// It is whole, and stands in another's place.
    #[error("the batch is of offset {found}")]
    Offset {
        /// Where it says that it belongs.
        found: Offset,
    },
    /// It is whole, and not of the epoch that the log has there.
    #[error("the batch is of epoch {found}, and the log has epoch {expected} there")]
    Epoch {
        /// What the log has.
        expected: Epoch,
        /// What the batch says.
        found: Epoch,
    },
}
