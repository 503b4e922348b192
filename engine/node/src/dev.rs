//! `quorate dev`: a quorum on this machine, each voter a process of its own.
//!
//! The supervisor sets the directories up on first use, starts the voters, watches them and tells
//! how they are. It restarts none that ended: somebody who kills a voter wants to see what a quorum
//! does without it. Parts: [`layout`] (what is on disk), [`voter`] (one process), [`status`]
//! (asking the quorum), [`screen`] (showing it), [`supervisor`] (the loop).

mod layout;
mod screen;
mod status;
mod supervisor;
mod table;
mod voter;

use crate::config::{ConfigError, ServerConfig};
use crate::format::FormatError;
use layout::Layout;
use quorate_raft::NodeId;
use quorate_storage::DataDirError;
use std::io;
use std::path::PathBuf;
use supervisor::Supervisor;
use thiserror::Error;

/// What `quorate dev` is told.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// How many voters; `None`: as many as there are, 3 on first use.
    pub voters: Option<u8>,
    /// Where everything is kept.
    pub dir: PathBuf,
    /// Client port of voter 1; `None`: as it is, 9092 on first use.
    pub base_port: Option<u16>,
    /// One line of JSON instead of the table.
    pub json: bool,
    /// `--log-level` and `--log-format` for the voters.
    pub logging: VoterLogging,
    /// The time, in seconds since 1970.
    pub now_s: u64,
}

/// How voters log.
#[derive(Clone, Copy, Debug, Default)]
pub struct VoterLogging {
    /// `--log-level`; `None`: as RUST_LOG says.
    pub level: Option<&'static str>,
    /// `--log-format`; `None`: as it is by default.
    pub format: Option<&'static str>,
}

/// Why the quorum does not run, or not any more.
#[derive(Debug, Error)]
pub enum DevError {
    /// Other voters than asked for are there.
    #[error(
        "{} was set up with {found} voters, and --voters asks for {asked}; take another --dir, or \
         delete this one to begin anew",
        dir.display()
    )]
    OtherVoters {
        /// `--dir`.
        dir: PathBuf,
        /// What is there.
        found: usize,
        /// What is asked for.
        asked: usize,
    },
    /// A part of what was set up is gone.
    #[error(
        "{} is incomplete: {} is missing; a voter that lost its data must not come back empty, so \
         delete the whole directory to begin anew",
        dir.display(), missing.display()
    )]
    Incomplete {
        /// `--dir`.
        dir: PathBuf,
        /// What is not there.
        missing: PathBuf,
    },
    /// Somebody changed a file that would have to change.
    #[error(
        "{} was edited, and must change for {reason}; do it by hand, in the files of all voters",
        path.display()
    )]
    Edited {
        /// The file.
        path: PathBuf,
        /// Why it must change.
        reason: &'static str,
    },
    /// `--only` without a quorum.
    #[error("{0} holds no quorum yet; quorate dev --dir {0} sets one up", dir.display())]
    NothingThere {
        /// `--dir`.
        dir: PathBuf,
    },
    /// `--only` with an id that no voter has.
    #[error("{} has no voter {id}; its voters are 1 to {voters}", dir.display())]
    NoSuchVoter {
        /// `--dir`.
        dir: PathBuf,
        /// The id.
        id: NodeId,
        /// How many there are.
        voters: usize,
    },
    /// The ports do not fit below 65536, or those of clients reach those of peers.
    #[error("with base port {base_port}, ports up to {last} would be needed; 65535 is the highest")]
    PortsTooHigh {
        /// `--base-port`.
        base_port: u16,
        /// The highest one needed.
        last: u32,
    },
    /// The path cannot stand in a configuration file.
    #[error(
        "the path {} cannot stand in a configuration file: it must be UTF-8 without commas",
        dir.display()
    )]
    UnusablePath {
        /// The path.
        dir: PathBuf,
    },
    /// The file system cannot hold a log.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A voter's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A voter's directory.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A voter ended before there was a leader.
    #[error("voter {id} did not start: {reason} (its log: {})", log.display())]
    DidNotStart {
        /// Which.
        id: NodeId,
        /// The voter's own words, or how it ended.
        reason: String,
        /// Its log.
        log: PathBuf,
    },
    /// No leader in time.
    #[error("no leader was elected within {seconds} s; see {}/voter-*/log.txt", dir.display())]
    NoLeader {
        /// How long was waited.
        seconds: u64,
        /// `--dir`.
        dir: PathBuf,
    },
    /// All voters ended by themselves.
    #[error("all voters are gone; see {}/voter-*/log.txt", dir.display())]
    AllGone {
        /// `--dir`.
        dir: PathBuf,
    },
    /// The system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl DevError {
    fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}

/// Sets the voters up if need be and runs them until SIGINT or SIGTERM.
///
/// # Errors
/// They cannot be set up or started, no leader appears (with `json`), or all of them ended.
pub fn run(options: &DevOptions) -> Result<(), DevError> {
    let layout = Layout::prepare(options)?;
    Supervisor::start(&layout, options)?.run()
}

/// The configuration of voter `id`, to run it alone.
///
/// # Errors
/// There is no such voter.
pub fn only(options: &DevOptions, id: NodeId) -> Result<ServerConfig, DevError> {
    let layout = Layout::existing(options)?;
    let voters = layout.voters.len();
    let dir = layout.dir;
    voter::keep_to_one_cpu(None, id);
    let found = layout.voters.into_iter().find(|voter| voter.id == id);
    found
        .map(|voter| voter.config)
        .ok_or(DevError::NoSuchVoter { dir, id, voters })
}
