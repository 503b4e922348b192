//! The ring: operations go in by value, completions hand everything back.
//!
//! Pushing an operation only queues it. [`Ring::turn`] submits all that was pushed, waits as told,
//! and collects what ended, in one system call where possible. It never retries an operation and
//! never drops one: whatever was pushed comes back as exactly one completion (accepts: any number).
//!
//! How the queues fit together:
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
use crate::op::{Op, SockAddr};
use crate::setup::{self, RingConfig, RingError};
use crate::slots::{Key, Slots};
use crate::waker::{WakeState, Waker};
use io_uring::IoUring;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod turn;

/// How a turn waits when nothing has ended yet.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// Asleep, until something ends, somebody wakes the ring, or `timeout` has passed.
    Until {
        /// None: without limit.
        timeout: Option<Duration>,
    },
    /// Looking at the queues for up to `for_`, then asleep for up to `timeout`. Saves the wake-up
    /// of an idle processor at the cost of a busy one.
    Spin {
        /// Longest time to spin.
        for_: Duration,
        /// Longest sleep after it; None: without limit.
        timeout: Option<Duration>,
    },
}

/// What a ring has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls.
    pub enters: u64,
    /// Operations that the kernel took in, the ring's own included.
    pub submissions: u64,
    /// Completions collected, the ring's own included.
    pub completions: u64,
    /// Waits that a [`Waker`] ended or kept from sleeping.
    pub wakes: u64,
    /// Turns that found completions on the kernel's overflow list: the ring is too small.
    pub overflows: u64,
    /// System calls that failed for a moment (EAGAIN, EBUSY) and are made again by the next turn.
    pub retries: u64,
}

/// An operation that was pushed and is not in the submission queue yet.
struct Pending {
    key: Key,
    /// Whether the next one may start only when this one succeeded.
    link: bool,
}

/// An io_uring and everything its operations own. Belongs to the thread that opened it
/// (IORING_SETUP_SINGLE_ISSUER), hence not `Send`.
///
/// Dropping it cancels what is in flight and waits for the kernel to let go of the buffers; those
/// it still holds after two seconds are leaked.
pub struct Ring {
    // Dropped first: closes the kernel's ring before anything an operation could own is freed.
    uring: IoUring,
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
    _single_issuer: PhantomData<*const ()>,
}

impl Ring {
    /// Opens a ring for the calling thread.
    ///
    /// # Errors
    /// See [`RingError`]; its text names cause and remedy.
    pub fn new(config: &RingConfig) -> Result<Ring, RingError> {
        let uring = setup::open(config)?;
        // One place each for the wake-up read and a cancellation stays free.
        let bounded_max = uring.params().cq_entries() as usize - 2;
        Ok(Ring {
            uring,
            slots: Slots::default(),
            backlog: VecDeque::new(),
            open_chain: 0,
            urgent: VecDeque::new(),
            ready: Vec::new(),
            wake: WakeState::new()?,
            wake_armed: false,
            timer: None,
            in_flight: 0,
            bounded_in_flight: 0,
            bounded_max,
            counters: Counters::default(),
            #[cfg(test)]
            enter_faults: VecDeque::new(),
            _single_issuer: PhantomData,
        })
    }

    /// Accepts connections until told otherwise: an `Accepted` for each, and `AcceptEnded` when the
    /// kernel stops (an error such as EMFILE, or a full queue). The caller then accepts again.
    pub fn accept(&mut self, listener: &Arc<OwnedFd>, user: u64) {
        self.push(
            Op::Accept {
                listener: listener.clone(),
            },
            user,
            false,
        );
    }

    /// Connects `socket`, which must be of the address's family.
    pub fn connect(&mut self, socket: &Arc<OwnedFd>, address: SocketAddr, user: u64) {
        let address = SockAddr::new(address);
        self.push(
            Op::Connect {
                socket: socket.clone(),
                address,
            },
            user,
            false,
        );
    }

    /// Receives into `buf` behind its length, at most up to its capacity.
    ///
    /// # Panics
    /// If `buf` has no spare capacity: the answer could not be told from the end of the stream.
    pub fn recv(&mut self, socket: &Arc<OwnedFd>, buf: Vec<u8>, user: u64) {
        assert!(buf.capacity() > buf.len(), "no room to receive into");
        self.push(
            Op::Recv {
                socket: socket.clone(),
                buf,
            },
            user,
            false,
        );
    }

    /// Sends `buf[from..]`, all of it unless the connection breaks. Never raises SIGPIPE.
    ///
    /// # Panics
    /// If `from` is beyond the end of `buf`.
    pub fn send(&mut self, socket: &Arc<OwnedFd>, buf: Vec<u8>, from: usize, user: u64) {
        assert!(from <= buf.len(), "send from {from} of {}", buf.len());
        self.push(
            Op::Send {
                socket: socket.clone(),
                buf,
                from,
            },
            user,
            false,
        );
    }

    /// Writes all of `buf` at byte `position`. With `link`, the next operation pushed starts only
    /// when this one has written everything, and ends with ECANCELED otherwise.
    ///
    /// # Panics
    /// If a chain of links grows longer than the submission queue.
    pub fn write(
        &mut self,
        file: &Arc<OwnedFd>,
        position: u64,
        buf: AlignedBuf,
        user: u64,
        link: bool,
    ) {
        self.push(
            Op::Write {
                file: file.clone(),
                position,
                buf,
                dsync: false,
            },
            user,
            link,
        );
    }

    /// Like [`Ring::write`], durable when it completes (RWF_DSYNC).
    pub fn write_dsync(
        &mut self,
        file: &Arc<OwnedFd>,
        position: u64,
        buf: AlignedBuf,
        user: u64,
        link: bool,
    ) {
        self.push(
            Op::Write {
                file: file.clone(),
                position,
                buf,
                dsync: true,
            },
            user,
            link,
        );
    }

    /// Makes durable what was written to `file` by operations that completed before this one was
    /// submitted, or that are linked before it. Ends a chain.
    pub fn fdatasync(&mut self, file: &Arc<OwnedFd>, user: u64) {
        self.push(Op::Flush { file: file.clone() }, user, false);
    }

    /// Reads into `buf` from byte `position`, up to all of it.
    pub fn read(&mut self, file: &Arc<OwnedFd>, position: u64, buf: AlignedBuf, user: u64) {
        self.push(
            Op::Read {
                file: file.clone(),
                position,
                buf,
            },
            user,
            false,
        );
    }

    /// Cancels the socket operations of `user`. Each still completes exactly once: with ECANCELED,
    /// or with its result if it was faster. Disk operations run to their end: half a group of them
    /// is of no use.
    pub fn cancel_all_of(&mut self, user: u64) {
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

    /// A handle by which any thread ends this ring's waits.
    pub fn waker(&self) -> Waker {
        self.wake.waker()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn push(&mut self, op: Op, user: u64, link: bool) {
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
