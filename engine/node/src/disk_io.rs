//! Carries the log writer's groups out on a ring: both writes, then one flush that covers them.
//!
//! Which operations do that is the [`FlushMethod`]. Whatever it is, a short or interrupted write
//! before the flush is written again from memory, all of it, and a failed flush is final.

use crate::metrics::GroupTimes;
use quorate_raft::Instant;
use quorate_ring::{AlignedBuf, CompletionKind, Ring};
use quorate_storage::{FileDisk, GroupIo};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How often a group may be written again before the disk counts as failed.
const REWRITES_MAX: u32 = 16;

/// By which operations a group becomes durable. None is best everywhere: what a drive makes of a
/// flush and of a forced write differs by a factor of thirty either way, and so does what a busy
/// processor does to each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushMethod {
    /// Both writes side by side; when they are complete, fdatasync. Two submissions.
    #[default]
    Parallel,
    /// A chain of write, write and fdatasync: one submission, and the writes wait for each other.
    Linked,
    /// Both writes side by side, each durable by itself (RWF_DSYNC): one submission, two flushes.
    Dsync,
    /// A thread that waits in pwrite, pwrite and fdatasync; the ring is only woken.
    Thread,
}

impl FlushMethod {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Parallel, Self::Linked, Self::Dsync, Self::Thread];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Linked => "linked",
            Self::Dsync => "dsync",
            Self::Thread => "thread",
        }
    }

    /// The method of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether disk operations are to run on threads, whatever the ring stands on.
    #[must_use]
    pub fn needs_disk_threads(self) -> bool {
        self == Self::Thread
    }

    fn is_chain(self) -> bool {
        matches!(self, Self::Linked | Self::Thread)
    }
}

impl fmt::Display for FlushMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// User data of the three operations of a group; the loop routes completions by it.
#[derive(Clone, Copy, Debug)]
pub struct DiskOps {
    /// Write of the records.
    pub data: u64,
    /// Write of the mark.
    pub mark: u64,
    /// The flush.
    pub flush: u64,
}

/// At most one group on its way to the disk.
pub struct GroupExecutor {
    ops: DiskOps,
    method: FlushMethod,
    group: Option<InFlight>,
    /// Stand in a group for its buffers while the kernel has those.
    stand_ins: Vec<AlignedBuf>,
    registers_files: bool,
}

struct InFlight {
    io: GroupIo<FileDisk>,
    file: Arc<OwnedFd>,
    /// Operations that have not ended.
    pending: u8,
    /// Both writes were complete and the flush is on its way, or over.
    flushing: bool,
    rewrite: bool,
    rewrites: u32,
    /// An operation did not start, since one before it in the chain had not done all.
    cancelled: bool,
    failed: Option<io::Error>,
    times: GroupTimes,
}

impl GroupExecutor {
    /// An idle executor.
    #[must_use]
    pub fn new(ops: DiskOps, method: FlushMethod) -> Self {
        Self {
            ops,
            method,
            group: None,
            stand_ins: vec![AlignedBuf::zeroed(0), AlignedBuf::zeroed(0)],
            registers_files: true,
        }
    }

    /// Starts a group, at `now`.
    ///
    /// # Panics
    /// If one is on its way: two that share the tail block must never be in flight together.
    pub fn start(&mut self, ring: &mut Ring, now: Instant, io: GroupIo<FileDisk>) {
        assert!(self.group.is_none(), "one group at a time");
        let file = Arc::clone(io.file.fd());
        self.register(ring, &file);
        let mut group = InFlight {
            io,
            file,
            pending: 0,
            flushing: false,
            rewrite: false,
            rewrites: 0,
            cancelled: false,
            failed: None,
            times: GroupTimes {
                started: now,
                written: now,
                flushed: now,
            },
        };
        group.submit(ring, self.ops, self.method, &mut self.stand_ins);
        self.group = Some(group);
    }

    /// Costs nothing unless the segment is a new one.
    fn register(&mut self, ring: &mut Ring, file: &Arc<OwnedFd>) {
        if self.registers_files
            && let Err(error) = ring.register_file(file)
        {
            tracing::debug!(%error, "the ring does not take the segment's file in advance");
            self.registers_files = false;
        }
    }

    /// Takes a completion of one of its operations; the group, its result and when it was where,
    /// once it is over.
    pub fn on_completion(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        user: u64,
        kind: CompletionKind,
    ) -> Option<(GroupIo<FileDisk>, io::Result<()>, GroupTimes)> {
        let group = self
            .group
            .as_mut()
            .expect("a completion belongs to the group in flight");
        match kind {
            CompletionKind::Wrote { buf, result } => {
                group.on_write(user == self.ops.data, buf, result, &mut self.stand_ins);
                group.times.written = now;
            }
            CompletionKind::Flushed(result) => group.on_flush(result),
            other => panic!("not a disk completion: {other:?}"),
        }
        group.pending -= 1;
        if group.pending > 0 || group.go_on(ring, self.ops, self.method, &mut self.stand_ins) {
            return None;
        }
        let mut group = self.group.take().expect("checked above");
        group.times.flushed = now;
        let result = group.failed.map_or(Ok(()), Err);
        Some((group.io, result, group.times))
    }
}

impl InFlight {
    fn submit(
        &mut self,
        ring: &mut Ring,
        ops: DiskOps,
        method: FlushMethod,
        stand_ins: &mut Vec<AlignedBuf>,
    ) {
        self.pending = 2;
        self.rewrite = false;
        self.cancelled = false;
        let mut lend = |buf: &mut AlignedBuf| {
            let stand_in = stand_ins.pop().expect("one for each buffer");
            std::mem::replace(buf, stand_in)
        };
        let writes = [
            (self.io.data_position, lend(&mut self.io.data), ops.data),
            (self.io.mark_position, lend(&mut self.io.mark), ops.mark),
        ];
        for (position, buf, user) in writes {
            if method == FlushMethod::Dsync {
                ring.write_dsync(&self.file, position, buf, user, false);
            } else {
                ring.write(&self.file, position, buf, user, method.is_chain());
            }
        }
        if method.is_chain() {
            self.flush(ring, ops);
        }
    }

    fn flush(&mut self, ring: &mut Ring, ops: DiskOps) {
        self.pending += 1;
        self.flushing = true;
        ring.fdatasync(&self.file, ops.flush);
    }

    /// All that was submitted has ended. Whether there is more to do.
    fn go_on(
        &mut self,
        ring: &mut Ring,
        ops: DiskOps,
        method: FlushMethod,
        stand_ins: &mut Vec<AlignedBuf>,
    ) -> bool {
        if self.failed.is_some() {
            return false;
        }
        if self.rewrite {
            self.flushing = false;
            self.submit(ring, ops, method, stand_ins);
            return true;
        }
        if self.cancelled {
            // Without a write that fell short nothing may have been cancelled.
            self.failed = Some(io::Error::from_raw_os_error(libc::ECANCELED));
            return false;
        }
        if self.flushing || method == FlushMethod::Dsync {
            return false;
        }
        self.flush(ring, ops);
        true
    }

    fn on_write(
        &mut self,
        is_data: bool,
        buf: AlignedBuf,
        result: io::Result<usize>,
        stand_ins: &mut Vec<AlignedBuf>,
    ) {
        let expected = buf.len();
        let place = if is_data {
            &mut self.io.data
        } else {
            &mut self.io.mark
        };
        stand_ins.push(std::mem::replace(place, buf));
        match result {
            Ok(written) if written == expected => {}
            Ok(_) => self.try_again(io::Error::from(io::ErrorKind::WriteZero)),
            Err(error) if is_cancelled(&error) => self.cancelled = true,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => self.try_again(error),
                _ => self.failed = Some(error),
            },
        }
    }

    fn on_flush(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => {}
            Err(error) if is_cancelled(&error) => self.cancelled = true,
            Err(error) => self.failed = Some(error),
        }
    }

    fn try_again(&mut self, error: io::Error) {
        self.rewrite = true;
        self.rewrites += 1;
        if self.rewrites > REWRITES_MAX {
            self.failed = Some(error);
        }
    }
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}
