//! The engine on io_uring: a turn submits what was pushed, waits and collects, in one system call
//! where possible.
//!
//! It never retries a disk operation and never drops one; whatever was pushed comes back as exactly
//! one completion (accepts: any number). How the queues fit together:
//!
//! - `backlog` holds what was pushed, in order; `urgent` the ring's own operations, which go first.
//!   Both are as long as what their callers push, so a caller bounds them by its own operations.
//! - From there whole chains go into the submission queue, none cut in two: the kernel severs a
//!   link at the end of what it takes in at once.
//! - Operations that end by themselves (disk) never exceed the completion queue. Those that wait
//!   for a peer may: they are as many as the caller has connections, and if more of them end at
//!   once than there is room, the kernel keeps the rest until we enter it with GETEVENTS, which
//!   every enter does.
//! - If an enter fails, entries stay in the submission queue and operations in their slots; the
//!   next turn submits them.

use crate::buffer::AlignedBuf;
use crate::completion::Completion;
use crate::op::Op;
use crate::ring::Counters;
use crate::setup::{self, RingConfig, RingError};
use crate::slots::{Key, Slots};
use crate::threads::disk::{Disk, Step};
use crate::waker::{WakeState, Waker};
use io_uring::IoUring;
use registered::Registered;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

mod registered;
mod turn;

/// An operation that was pushed and is not in the submission queue yet.
struct Pending {
    key: Key,
    /// Whether the next one may start only when this one succeeded.
    link: bool,
}

/// Threads for disk operations, and what is to go to them in the next turn.
struct Offload {
    disk: Disk,
    steps: Vec<Step>,
}

impl Offload {
    fn new(waker: Waker) -> Offload {
        Offload {
            disk: Disk::new(waker),
            steps: Vec::new(),
        }
    }

    fn turn(&mut self, out: &mut Vec<Completion>) {
        self.disk.submit(&mut self.steps, out);
        self.disk.collect(out);
    }
}

/// An io_uring and everything its operations own. Belongs to the thread that opened it
/// (IORING_SETUP_SINGLE_ISSUER).
///
/// Dropping it cancels what is in flight and waits for the kernel to let go of the buffers; those
/// it still holds after two seconds are leaked.
pub(crate) struct Uring {
    // Dropped first: closes the kernel's ring before anything an operation could own is freed.
    uring: IoUring,
    registered: Registered,
    /// Carries out disk operations if the kernel's ring is not to.
    offload: Option<Offload>,
    slots: Slots,
    backlog: VecDeque<Pending>,
    /// Length of the chain at the end of `backlog` that waits for its last operation.
    open_chain: usize,
    urgent: VecDeque<Key>,
    /// Ended without the kernel; handed out by the next turn.
    ready: Vec<Completion>,
    wake: Arc<WakeState>,
    wake_armed: bool,
    /// The timer in flight that ends first, and when.
    timer: Option<(Key, Instant)>,
    /// Entries in the submission queue or beyond that have not ended.
    in_flight: usize,
    /// Those of them that end by themselves. At most `bounded_max`.
    bounded_in_flight: usize,
    bounded_max: usize,
    counters: Counters,
    #[cfg(test)]
    enter_faults: VecDeque<i32>,
}

impl Uring {
    /// Opens a ring for the calling thread.
    ///
    /// # Errors
    /// See [`RingError`]; its text names cause and remedy.
    pub(crate) fn new(config: &RingConfig) -> Result<Uring, RingError> {
        let uring = setup::open(config)?;
        // One place each for the wake-up read and a cancellation stays free.
        let wake = WakeState::new()?;
        let bounded_max = uring.params().cq_entries() as usize - 2;
        Ok(Uring {
            uring,
            offload: config.disk_threads.then(|| Offload::new(wake.waker())),
            registered: Registered::default(),
            slots: Slots::default(),
            backlog: VecDeque::new(),
            open_chain: 0,
            urgent: VecDeque::new(),
            ready: Vec::new(),
            wake,
            wake_armed: false,
            timer: None,
            in_flight: 0,
            bounded_in_flight: 0,
            bounded_max,
            counters: Counters::default(),
            #[cfg(test)]
            enter_faults: VecDeque::new(),
        })
    }

    /// Cancels the socket operations of `user`. Each still completes exactly once: with ECANCELED,
    /// or with its result if it was faster. Disk operations run to their end: half a group of them
    /// is of no use.
    pub(crate) fn cancel_all_of(&mut self, user: u64) {
        let found = self
            .slots
            .find(|slot| slot.user == user && slot.op.is_cancellable());
        for key in found {
            if self.slots.get_mut(key).submitted {
                let op = Op::Cancel {
                    key: key.to_user_data(),
                };
                let cancel = self.slots.insert(op, 0);
                self.urgent.push_back(cancel);
            } else {
                self.backlog.retain(|pending| pending.key != key);
                let slot = self.slots.remove(key);
                let kind = slot
                    .op
                    .finish(-libc::ECANCELED)
                    .expect("not an internal operation");
                self.ready.push(Completion { user, kind });
            }
        }
    }

    /// See [`Ring::register_buffers`](crate::Ring::register_buffers).
    pub(crate) fn register_buffers(&mut self, bufs: &mut [&mut AlignedBuf]) -> io::Result<()> {
        self.registered.add_buffers(&self.uring.submitter(), bufs)
    }

    /// See [`Ring::register_file`](crate::Ring::register_file).
    pub(crate) fn register_file(&mut self, file: &Arc<OwnedFd>) -> io::Result<()> {
        let idle = self.bounded_in_flight == 0;
        self.registered
            .set_file(&self.uring.submitter(), file, idle)
    }

    /// A handle by which any thread ends this ring's waits.
    pub(crate) fn waker(&self) -> Waker {
        self.wake.waker()
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Queues an operation; the next turn hands it to the kernel. With `link`, the next one pushed
    /// starts only when this one succeeded in full.
    ///
    /// # Panics
    /// If a chain of links grows longer than the submission queue.
    pub(crate) fn push(&mut self, op: Op, user: u64, link: bool) {
        if let Some(offload) = &mut self.offload
            && op.ends_by_itself()
        {
            offload.steps.push(Step { op, user, link });
            return;
        }
        let key = self.slots.insert(op, user);
        self.backlog.push_back(Pending { key, link });
        self.open_chain += 1;
        let chain_max = self.uring.params().sq_entries() as usize;
        assert!(
            self.open_chain <= chain_max,
            "a chain longer than {chain_max} operations"
        );
        if !link {
            self.open_chain = 0;
        }
    }
}

#[cfg(test)]
mod tests;
