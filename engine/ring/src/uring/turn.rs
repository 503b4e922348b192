//! One turn of a ring: fill the submission queue, enter the kernel, collect what ended; and the
//! last turn of all, when a ring is dropped.

use super::{Pending, Uring};
use crate::completion::{Completion, CompletionKind};
use crate::op::{self, Op};
use crate::ring::Wait;
use crate::slots::Key;
use io_uring::{EnterFlags, cqueue, squeue, types};
use std::time::{Duration, Instant};
use std::{hint, io, mem};

/// Looks at the queues between two looks at the clock while spinning; a look at the clock costs
/// about 20 ns.
const SPINS_PER_CLOCK: u32 = 16;

/// How long dropping a ring waits for the kernel to give buffers back before it leaks them.
const DROP_WAIT: Duration = Duration::from_secs(2);

impl Uring {
    /// See [`Ring::turn`](crate::Ring::turn).
    pub(crate) fn turn(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        assert_eq!(self.open_chain, 0, "a chain waits for its last operation");
        let before = out.len();
        out.append(&mut self.ready);
        self.collect_all(out);
        if let Wait::Until { timeout } | Wait::Spin { timeout, .. } = wait
            && out.len() == before
        {
            self.arm_timer(timeout);
        }
        self.submit_all_but_last_batch(out)?;
        let idle = out.len() == before && self.nothing_ended();
        match wait {
            Wait::Until { .. } if idle => self.sleep()?,
            Wait::Spin { for_, .. } if idle => self.spin_then_sleep(for_)?,
            _ => self.enter_if_useful()?,
        }
        self.collect_all(out);
        Ok(())
    }

    /// See [`Ring::submit`](crate::Ring::submit).
    pub(crate) fn submit(&mut self) {
        assert_eq!(self.open_chain, 0, "a chain waits for its last operation");
        if let Some(offload) = &mut self.offload {
            offload.turn(&mut self.ready);
        }
        self.fill_submission_queue();
        if !self.uring.submission().is_empty() {
            // An error that lasts is the next turn's to tell.
            let _ = self.enter(0);
        }
    }

    /// What the kernel and the threads have done; the latter are also given what waits for them.
    fn collect_all(&mut self, out: &mut Vec<Completion>) {
        if let Some(offload) = &mut self.offload {
            offload.turn(out);
        }
        self.collect(out);
    }

    /// Sees to it that a read for wake-ups stands or goes in next. After each `collect` that may be
    /// followed by a sleep: it may have taken in the end of the last one.
    fn arm_wake(&mut self) {
        if !mem::replace(&mut self.wake_armed, true) {
            let op = Op::Wake {
                state: self.wake.clone(),
            };
            let key = self.slots.insert(op, 0);
            self.urgent.push_back(key);
        }
    }

    /// Sees to it that a timer ends no later than `timeout` from now.
    ///
    /// A timer stays in flight over many turns: deadlines move away while a loop is busy, and
    /// setting the clock's hardware for each sleep costs more than the sleep on a virtual machine.
    /// The price is a turn that returns early with nothing, now and then.
    #[allow(clippy::disallowed_methods)] // the kernel's timers are relative to now
    pub(super) fn arm_timer(&mut self, timeout: Option<Duration>) {
        let Some(timeout) = timeout else { return };
        let end = Instant::now() + timeout;
        if self.timer.is_some_and(|(_, armed)| armed <= end) {
            return;
        }
        let after = Box::new(types::Timespec::from(timeout));
        let key = self.slots.insert(Op::Timer { after }, 0);
        self.urgent.push_back(key);
        self.timer = Some((key, end));
    }

    /// Fills the submission queue, as often as it takes; the last filling is left to the enter that
    /// also waits.
    fn submit_all_but_last_batch(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            self.arm_wake();
            let before = self.counters.submissions;
            if !self.fill_submission_queue() {
                return Ok(());
            }
            self.enter(0)?;
            self.collect(out);
            if self.counters.submissions == before {
                return Ok(()); // the kernel is short of something; the next turn tries again
            }
        }
    }

    /// Moves as many whole chains as fit. True: more would go in, were the queue empty.
    pub(super) fn fill_submission_queue(&mut self) -> bool {
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
        let known = self.registered.known(&slot.op);
        let mut entry = slot.op.entry(known).user_data(key.to_user_data());
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
            self.enter(0)
        } else {
            Ok(())
        }
    }

    fn sleep(&mut self) -> io::Result<()> {
        let wakeable = self.wake_armed && self.urgent.is_empty();
        let result = if wakeable && self.wake.prepare_to_sleep() {
            self.enter(1)
        } else {
            self.enter_if_useful()
        };
        self.counters.wakes += u64::from(self.wake.awake());
        result
    }

    fn spin_then_sleep(&mut self, for_: Duration) -> io::Result<()> {
        self.enter_if_useful()?;
        if self.spin(for_) {
            self.sleep()
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
    pub(super) fn enter(&mut self, want: u32) -> io::Result<()> {
        self.counters.enters += 1;
        self.counters.overflows += u64::from(self.uring.submission().cq_overflow());
        match self.enter_kernel(want) {
            Ok(submitted) => {
                self.counters.submissions += submitted as u64;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    self.counters.retries += 1;
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    fn enter_kernel(&mut self, want: u32) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.enter_faults.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let to_submit = self.uring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed. What the entries point to is kept by their slots.
        unsafe {
            self.uring
                .submitter()
                .enter::<()>(to_submit, want, flags, None)
        }
    }

    fn collect(&mut self, out: &mut Vec<Completion>) {
        while let Some(entry) = self.next_completion() {
            self.counters.completions += 1;
            let key = Key::from_user_data(entry.user_data());
            self.complete(key, entry.result(), entry.flags(), out);
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.uring.completion().next()
    }

    pub(super) fn complete(
        &mut self,
        key: Key,
        result: i32,
        flags: u32,
        out: &mut Vec<Completion>,
    ) {
        let slot = self.slots.get_mut(key);
        let user = slot.user;
        assert!(
            slot.submitted,
            "an operation ended that was never submitted"
        );
        if matches!(slot.op, Op::Accept { .. }) && result >= 0 {
            let kind = CompletionKind::Accepted {
                socket: op::accepted(result),
            };
            out.push(Completion { user, kind });
        }
        if cqueue::more(flags) {
            return;
        }
        if slot.op.is_interrupted(result) {
            slot.submitted = false;
            self.in_flight -= 1;
            self.backlog.push_back(Pending { key, link: false });
            return;
        }
        let op = self.slots.remove(key).op;
        self.in_flight -= 1;
        self.bounded_in_flight -= usize::from(op.ends_by_itself());
        if matches!(op, Op::Wake { .. }) {
            self.wake_armed = false;
        }
        if self.timer.is_some_and(|(timer, _)| timer == key) {
            self.timer = None;
        }
        if let Some(kind) = op.finish(result) {
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

impl Drop for Uring {
    fn drop(&mut self) {
        let _ = self.wait_for_kernel();
        if self.in_flight > self.unsubmitted() {
            // The kernel may still write into these buffers: better lost than reused.
            mem::forget(mem::take(&mut self.slots));
        }
    }
}
