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
use crate::completion::{Completion, CompletionKind};
use crate::op::{self, Op, SockAddr};
use crate::setup::{self, RingConfig, RingError};
use crate::slots::{Key, Slots};
use crate::waker::{WakeState, Waker};
use io_uring::{EnterFlags, IoUring, cqueue, squeue, types};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{hint, io, mem};

/// Looks at the queues between two looks at the clock while spinning; a look at the clock costs
/// about 20 ns.
const SPINS_PER_CLOCK: u32 = 16;

/// How long dropping a ring waits for the kernel to give buffers back before it leaks them.
const DROP_WAIT: Duration = Duration::from_secs(2);

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
    /// kernel stops (an error such as EMFILE, or its queue was full). The caller then accepts again.
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

    /// Submits all that was pushed, waits as `wait` says unless something ended already, and
    /// appends what ended to `out`. May return early with nothing, and does so after a signal or a
    /// wake-up: whatever was handed over before [`Waker::wake`] is visible after a waiting turn.
    ///
    /// # Errors
    /// The kernel refuses the ring itself (EBADF, EPERM, ...): no operation is lost by that, but
    /// nothing more can be expected of this ring. Passing failures are retried by the next turn.
    /// # Panics
    /// If the last operation pushed was linked to a next one that never came.
    pub fn turn(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        assert_eq!(self.open_chain, 0, "a chain waits for its last operation");
        let idle = self.ready.is_empty();
        out.append(&mut self.ready);
        self.arm_wake();
        self.submit_all_but_last_batch()?;
        match wait {
            Wait::Until { timeout } if idle && self.nothing_ended() => self.sleep(timeout)?,
            Wait::Spin { for_, timeout } if idle && self.nothing_ended() => {
                self.spin_then_sleep(for_, timeout)?;
            }
            _ => self.enter_if_useful()?,
        }
        self.collect(out);
        Ok(())
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

    fn arm_wake(&mut self) {
        if !mem::replace(&mut self.wake_armed, true) {
            let op = Op::Wake {
                state: self.wake.clone(),
                count: Box::new([0; 8]),
            };
            let key = self.slots.insert(op, 0);
            self.urgent.push_back(key);
        }
    }

    /// Fills the submission queue, as often as it takes; the last filling is left to the enter that
    /// also waits.
    fn submit_all_but_last_batch(&mut self) -> io::Result<()> {
        while self.fill_submission_queue() {
            let before = self.counters.submissions;
            self.enter(0, None)?;
            if self.counters.submissions == before {
                break;
            }
        }
        Ok(())
    }

    /// Moves as many whole chains as fit. True: more would go in, were the queue empty.
    fn fill_submission_queue(&mut self) -> bool {
        while let Some(&key) = self.urgent.front() {
            if self.submission_room() == 0 {
                return true;
            }
            self.urgent.pop_front();
            self.put_in_submission_queue(key, false);
        }
        while !self.backlog.is_empty() {
            let (len, bounded) = self.measure_next_chain();
            if self.bounded_in_flight + bounded > self.bounded_max {
                return false;
            }
            if self.submission_room() < len {
                return true;
            }
            for _ in 0..len {
                let pending = self.backlog.pop_front().expect("measured above");
                self.put_in_submission_queue(pending.key, pending.link);
            }
        }
        false
    }

    /// Length of the chain at the front of the backlog, and how many of it end by themselves.
    fn measure_next_chain(&mut self) -> (usize, usize) {
        let mut bounded = 0;
        for (index, pending) in self.backlog.iter().enumerate() {
            bounded += usize::from(self.slots.get_mut(pending.key).op.ends_by_itself());
            if !pending.link {
                return (index + 1, bounded);
            }
        }
        unreachable!("turn() asserts that no chain is open");
    }

    fn submission_room(&mut self) -> usize {
        let queue = self.uring.submission();
        queue.capacity() - queue.len()
    }

    fn put_in_submission_queue(&mut self, key: Key, link: bool) {
        let slot = self.slots.get_mut(key);
        slot.submitted = true;
        self.in_flight += 1;
        self.bounded_in_flight += usize::from(slot.op.ends_by_itself());
        let mut entry = slot.op.entry().user_data(key.to_user_data());
        if link {
            entry = entry.flags(squeue::Flags::IO_LINK);
        }
        // SAFETY: the entry's file, buffer and address belong to the operation in its slot, which
        // stays there until the completion with this key is collected (`Drop` waits or leaks).
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("the room was checked");
    }

    /// Whether a wait would be for something that is not there yet.
    fn nothing_ended(&mut self) -> bool {
        self.uring.completion().is_empty()
    }

    /// Whether entering the kernel would bring completions without waiting.
    fn kernel_has_more(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn enter_if_useful(&mut self) -> io::Result<()> {
        let something_to_submit = !self.uring.submission().is_empty();
        if something_to_submit || self.kernel_has_more() {
            self.enter(0, None)
        } else {
            Ok(())
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = if self.wake.prepare_to_sleep() {
            self.enter(1, timeout)
        } else {
            self.enter_if_useful()
        };
        self.counters.wakes += u64::from(self.wake.awake());
        result
    }

    fn spin_then_sleep(&mut self, for_: Duration, timeout: Option<Duration>) -> io::Result<()> {
        self.enter_if_useful()?;
        if self.spin(for_) {
            self.sleep(timeout)
        } else {
            self.enter_if_useful()
        }
    }

    /// Watches the queues. True: the time is over, or somebody woke us; `sleep` sorts that out.
    #[allow(clippy::disallowed_methods)] // the spin measures itself
    fn spin(&mut self, for_: Duration) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if !self.nothing_ended() || self.kernel_has_more() {
                    return false;
                }
                if self.wake.is_notified() {
                    return true;
                }
                hint::spin_loop();
            }
            if start.elapsed() >= for_ {
                return true;
            }
        }
    }

    /// One io_uring_enter: submits what is in the queue and waits for `want` completions.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.enters += 1;
        self.counters.overflows += u64::from(self.uring.submission().cq_overflow());
        match self.enter_kernel(want, timeout) {
            Ok(submitted) => {
                self.counters.submissions += submitted as u64;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                Some(libc::EAGAIN | libc::EBUSY) => {
                    self.counters.retries += 1;
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    fn enter_kernel(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.enter_faults.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let to_submit = self.uring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let timespec = timeout.map(types::Timespec::from);
        let mut args = types::SubmitArgs::new();
        if let Some(timespec) = &timespec {
            args = args.timespec(timespec);
        }
        // SAFETY: EXT_ARG asks for exactly this argument type; it and the time it points to live
        // through the call. What the entries point to is kept by their slots.
        unsafe {
            self.uring
                .submitter()
                .enter(to_submit, want, flags.bits(), Some(&args))
        }
    }

    fn collect(&mut self, out: &mut Vec<Completion>) {
        while let Some(entry) = self.next_completion() {
            self.counters.completions += 1;
            self.complete(&entry, out);
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.uring.completion().next()
    }

    fn complete(&mut self, entry: &cqueue::Entry, out: &mut Vec<Completion>) {
        let key = Key::from_user_data(entry.user_data());
        let slot = self.slots.get_mut(key);
        let user = slot.user;
        assert!(
            slot.submitted,
            "an operation ended that was never submitted"
        );
        if matches!(slot.op, Op::Accept { .. }) && entry.result() >= 0 {
            let kind = CompletionKind::Accepted {
                socket: op::accepted(entry.result()),
            };
            out.push(Completion { user, kind });
        }
        if cqueue::more(entry.flags()) {
            return;
        }
        let op = self.slots.remove(key).op;
        self.in_flight -= 1;
        self.bounded_in_flight -= usize::from(op.ends_by_itself());
        if matches!(op, Op::Wake { .. }) {
            self.wake_armed = false;
        }
        if let Some(kind) = op.finish(entry.result()) {
            out.push(Completion { user, kind });
        }
    }

    /// Entries that an enter has failed to submit: the kernel does not know them.
    fn unsubmitted(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// Cancels everything and collects completions until the kernel holds nothing, or time is up.
    #[allow(clippy::disallowed_methods)] // bounds the wait
    fn wait_for_kernel(&mut self) -> io::Result<()> {
        let end = Instant::now() + DROP_WAIT;
        let timeout = types::Timespec::from(DROP_WAIT);
        let everything = types::CancelBuilder::any();
        // Fails with ENOENT or ETIME if there is nothing to cancel or it takes too long.
        let _ = self
            .uring
            .submitter()
            .register_sync_cancel(Some(timeout), everything);
        let mut dropped = Vec::new();
        self.collect(&mut dropped);
        while self.in_flight > self.unsubmitted() && Instant::now() < end {
            let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
            let timeout = types::Timespec::from(end.saturating_duration_since(Instant::now()));
            let args = types::SubmitArgs::new().timespec(&timeout);
            // SAFETY: as in `enter_kernel`; submits nothing.
            let result = unsafe {
                self.uring
                    .submitter()
                    .enter(0, 1, flags.bits(), Some(&args))
            };
            match result {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => self.collect(&mut dropped),
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.wait_for_kernel();
        if self.in_flight > self.unsubmitted() {
            // The kernel may still write into these buffers: better lost than reused.
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
