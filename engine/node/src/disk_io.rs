//! Carries the log writer's groups out on a ring: both writes, then one flush.
//!
//! The flush is submitted only when both writes are complete, so it covers them; a short or
//! interrupted write before it is written again from memory; a failed flush is final.

use crate::metrics::GroupTimes;
use quorate_raft::Instant;
use quorate_ring::{AlignedBuf, CompletionKind, Ring};
use quorate_storage::{FileDisk, GroupIo};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How often a group may be written again before the disk counts as failed.
const REWRITES_MAX: u32 = 16;

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
    group: Option<InFlight>,
    /// Stand in a group for its buffers while the kernel has those.
    stand_ins: Vec<AlignedBuf>,
}

struct InFlight {
    io: GroupIo<FileDisk>,
    file: Arc<OwnedFd>,
    writes_left: u8,
    rewrite: bool,
    rewrites: u32,
    failed: Option<io::Error>,
    times: GroupTimes,
}

impl GroupExecutor {
    /// An idle executor.
    #[must_use]
    pub fn new(ops: DiskOps) -> Self {
        Self {
            ops,
            group: None,
            stand_ins: vec![AlignedBuf::zeroed(0), AlignedBuf::zeroed(0)],
        }
    }

    /// Starts a group, at `now`.
    ///
    /// # Panics
    /// If one is on its way: two that share the tail block must never be in flight together.
    pub fn start(&mut self, ring: &mut Ring, now: Instant, io: GroupIo<FileDisk>) {
        assert!(self.group.is_none(), "one group at a time");
        let file = Arc::clone(io.file.fd());
        let mut group = InFlight {
            io,
            file,
            writes_left: 0,
            rewrite: false,
            rewrites: 0,
            failed: None,
            times: GroupTimes {
                started: now,
                written: now,
                flushed: now,
            },
        };
        group.write(ring, self.ops, &mut self.stand_ins);
        self.group = Some(group);
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
                if group.writes_left > 0 {
                    return None;
                }
                if group.failed.is_none() && group.rewrite {
                    group.write(ring, self.ops, &mut self.stand_ins);
                    return None;
                }
                if group.failed.is_none() {
                    group.times.written = now;
                    ring.fdatasync(&group.file, self.ops.flush);
                    return None;
                }
            }
            CompletionKind::Flushed(result) => group.failed = result.err(),
            other => panic!("not a disk completion: {other:?}"),
        }
        let mut group = self.group.take().expect("checked above");
        group.times.flushed = now;
        let result = group.failed.map_or(Ok(()), Err);
        Some((group.io, result, group.times))
    }
}

impl InFlight {
    fn write(&mut self, ring: &mut Ring, ops: DiskOps, stand_ins: &mut Vec<AlignedBuf>) {
        self.writes_left = 2;
        self.rewrite = false;
        let mut lend = |buf: &mut AlignedBuf| {
            let stand_in = stand_ins.pop().expect("one for each buffer");
            std::mem::replace(buf, stand_in)
        };
        let data = lend(&mut self.io.data);
        let mark = lend(&mut self.io.mark);
        ring.write(&self.file, self.io.data_position, data, ops.data, false);
        ring.write(&self.file, self.io.mark_position, mark, ops.mark, false);
    }

    fn on_write(
        &mut self,
        is_data: bool,
        buf: AlignedBuf,
        result: io::Result<usize>,
        stand_ins: &mut Vec<AlignedBuf>,
    ) {
        self.writes_left -= 1;
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
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => self.try_again(error),
                _ => self.failed = Some(error),
            },
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
