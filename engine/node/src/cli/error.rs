//! What can go wrong in a command. Each message is one line that says what to do or where to look.

use crate::config::ConfigError;
use crate::dev::DevError;
use crate::flush_probe::ProbeError;
use crate::format::FormatError;
use crate::server::ServerError;
use quorate_net::client::ClientError;
use quorate_raft::Offset;
use quorate_storage::format::{BATCH_BYTES_MAX, BatchError};
use quorate_storage::{DataDirError, DumpError, VerifyFault};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum CliError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory's identity.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The flush methods can't be tried out, or the result not stored.
    #[error(transparent)]
    FlushProbe(#[from] ProbeError),
    /// The data directory's file system.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The node.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The quorum of `dev`.
    #[error(transparent)]
    Dev(#[from] DevError),
    /// The quorum, as a client meets it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The leader's answer has no quorum in it.
    #[error("the leader's answer does not describe this quorum; is --topic right?")]
    NoQuorum,
    /// A line of the input that no batch can hold.
    #[error("line {number} is longer than a batch may be, {BATCH_BYTES_MAX} bytes")]
    LineTooLong {
        /// Which, from 1.
        number: usize,
    },
    /// All lines together for one batch.
    #[error("the lines do not fit into one batch of {BATCH_BYTES_MAX} bytes; nothing was appended")]
    BatchTooLarge,
    /// A start behind the end.
    #[error("offset {from} is beyond the end of the committed log, {end}")]
    BeyondEnd {
        /// Asked for.
        from: Offset,
        /// Exclusive.
        end: Offset,
    },
    /// A batch that cannot be printed.
    #[error("the batch at offset {offset} cannot be read: {source}")]
    Batch {
        /// About where.
        offset: Offset,
        /// Why.
        source: BatchError,
    },
    /// A directory that is not a log's.
    #[error(
        "{} holds no segments (*.log); a node's log is in <topic>-0 of its data directory",
        dir.display()
    )]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// A log file that cannot be listed to its end.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A log with a fault.
    #[error(transparent)]
    Verify(#[from] Box<VerifyFault>),
    /// The supervisor ended before this voter began.
    #[error("process {parent}, which started this one, is gone")]
    ParentGone {
        /// Its id.
        parent: i32,
    },
    /// Input or output of the command itself.
    #[error("input or output failed: {0}")]
    Io(#[from] io::Error),
}

impl CliError {
    /// With what the process ends: 3 if a node ran and had to stop because its disk or its ring
    /// failed, so that a supervisor can tell it from what a new start would not change; else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Server(ServerError::Loop(error)) if error.is_hardware() => 3,
            _ => 1,
        }
    }

    /// Whether our reader went away before the end.
    pub(super) fn is_broken_pipe(&self) -> bool {
        let source = match self {
            Self::Io(source) | Self::Dev(DevError::Output(source)) => source,
            _ => return false,
        };
        source.kind() == io::ErrorKind::BrokenPipe
    }
}
