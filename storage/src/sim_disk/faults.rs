//! What a [`super::SimDisk`] can be told to do wrong. Never by itself: every fault is asked for.

use std::io;
use std::path::PathBuf;

/// What becomes of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It fails and has no effect.
    Fails(io::ErrorKind),
    /// It takes this many bytes at most, and says so.
    Short(usize),
    /// It is said to be done and has no effect.
    Lost,
    /// It is said to be done and lands at byte `at` of the file `path`, durably, as far as that
    /// file goes.
    Misdirected {
        /// A file that exists.
        path: PathBuf,
        /// Byte of that file.
        at: u64,
    },
}

/// What becomes of one flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFault {
    /// It fails. What it should have covered stays in doubt: no later flush makes it durable, and
    /// a crash may keep it.
    InDoubt,
    /// It fails, and what it should have covered is gone, for readers as well.
    Gone,
    /// It is said to be done and has no effect: the disk does not do what D1 asks for.
    Lost,
}

/// The faults that wait for their turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) flush: Option<(u64, FlushFault)>,
    pub(super) write: Option<(u64, WriteFault)>,
    pub(super) read: Option<(u64, io::ErrorKind)>,
    /// Bytes that the disk has room for; no bound if `None`.
    pub(super) room: Option<u64>,
}

impl Faults {
    /// Those that wait for an operation are forgotten; a full disk stays full.
    pub(super) fn forget(&mut self) {
        *self = Self {
            room: self.room,
            ..Self::default()
        };
    }
}

/// The fault that waits for operation `number`, which is no longer armed then.
pub(super) fn take<T>(armed: &mut Option<(u64, T)>, number: u64) -> Option<T> {
    armed
        .take_if(|(nth, _)| *nth == number)
        .map(|(_, fault)| fault)
}
