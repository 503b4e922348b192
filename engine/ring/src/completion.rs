//! What comes back from a ring.

use crate::buffer::AlignedBuf;
use std::io;
use std::os::fd::OwnedFd;

/// One operation that ended (or, for `Accepted`, one connection).
#[derive(Debug)]
pub struct Completion {
    /// What the caller gave with the operation.
    pub user: u64,
    /// How it ended, with the buffer it owned.
    pub kind: CompletionKind,
}

/// The end of an operation, by the function that started it. Errors are the operation's own
/// (`ECANCELED` after [`cancel_all_of`](crate::Ring::cancel_all_of) or a broken link).
#[derive(Debug)]
pub enum CompletionKind {
    /// `accept`: a new connection. The accept goes on.
    Accepted {
        /// Close-on-exec, blocking.
        socket: OwnedFd,
    },
    /// `accept`: no more connections come until the caller accepts again.
    AcceptEnded {
        /// None if the kernel stopped for no fault (its completion queue was full).
        error: Option<io::Error>,
    },
    /// `connect`.
    Connected(io::Result<()>),
    /// `recv`: the bytes were appended to `buf`.
    Received {
        /// The buffer given, its length advanced by the count.
        buf: Vec<u8>,
        /// Count of bytes; 0 is the end of the stream.
        result: io::Result<usize>,
    },
    /// `send`.
    Sent {
        /// The buffer given, unchanged.
        buf: Vec<u8>,
        /// Count of bytes taken, from `from` on; fewer than asked only if the connection broke.
        result: io::Result<usize>,
    },
    /// `write` and `write_dsync`.
    Wrote {
        /// The buffer given, unchanged.
        buf: AlignedBuf,
        /// Count of bytes written; a short count breaks a link.
        result: io::Result<usize>,
    },
    /// `fdatasync`.
    Flushed(io::Result<()>),
    /// `read`.
    Read {
        /// The buffer given, filled from its start.
        buf: AlignedBuf,
        /// Count of bytes read; 0 is the end of the file.
        result: io::Result<usize>,
    },
}
