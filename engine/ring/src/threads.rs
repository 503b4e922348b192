//! The engine without io_uring: epoll for sockets, timers and wake-ups, threads for files.
//!
//! For hosts that forbid io_uring. It promises what the other engine promises, with more system
//! calls: a socket operation is tried at once and again when epoll says so, a disk operation runs
//! on a thread of the pool and ends only when its system call has. It retries no disk operation.
//! There is no `unsafe` in it.

pub(crate) mod disk;
mod sockets;

use crate::completion::Completion;
use crate::op::Op;
use crate::ring::{Counters, Wait};
use crate::slots::{Key, Slots};
use crate::waker::{WakeState, Waker};
use disk::{Disk, Step};
use sockets::Sockets;
use std::collections::VecDeque;
use std::hint;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation that was pushed and not begun.
struct Pending {
    key: Key,
    /// Whether the next one may start only when this one succeeded.
    link: bool,
}

/// A ring's operations, carried out by epoll and threads.
///
/// Dropping it gives up what has not begun and waits for the disk operations that run; threads
/// that still run after two seconds are left to themselves, with the buffers they own.
pub(crate) struct Threads {
    /// What was pushed and has not begun, and socket operations that wait.
    slots: Slots,
    backlog: VecDeque<Pending>,
    /// Whether the last operation pushed waits for the next one of its chain.
    open_chain: bool,
    /// Cancelled; handed out by the next turn.
    ready: Vec<Completion>,
    /// Disk operations on their way to the pool, so that a turn locks its queue once.
    steps: Vec<Step>,
    sockets: Sockets,
    disk: Disk,
    wake: Arc<WakeState>,
    counters: Counters,
}

impl Threads {
    /// Opens the epoll instance; threads are started by the first disk operations.
    ///
    /// # Errors
    /// No more descriptors or memory.
    pub(crate) fn new() -> io::Result<Threads> {
        let wake = WakeState::new()?;
        Ok(Threads {
            slots: Slots::default(),
            backlog: VecDeque::new(),
            open_chain: false,
            ready: Vec::new(),
            steps: Vec::new(),
            sockets: Sockets::new(&wake)?,
            disk: Disk::new(wake.waker()),
            wake,
            counters: Counters::default(),
        })
    }

    /// Queues an operation; the next turn begins it. With `link`, the next one pushed starts only
    /// when this one succeeded in full.
    pub(crate) fn push(&mut self, op: Op, user: u64, link: bool) {
        let key = self.slots.insert(op, user);
        self.backlog.push_back(Pending { key, link });
        self.open_chain = link;
    }

    pub(crate) fn cancel_all_of(&mut self, user: u64) {
        let cancels = |slot: &crate::slots::Slot| slot.user == user && slot.op.is_cancellable();
        for key in self.slots.find(cancels) {
            let slot = self.slots.remove(key);
            if slot.submitted {
                self.sockets.forget(key, &slot.op);
            } else {
                self.backlog.retain(|pending| pending.key != key);
            }
            let kind = sockets::cancelled(slot.op);
            self.ready.push(Completion { user, kind });
        }
    }

    pub(crate) fn waker(&self) -> Waker {
        self.wake.waker()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// See [`Ring::turn`](crate::Ring::turn).
    pub(crate) fn turn(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        assert!(!self.open_chain, "a chain waits for its last operation");
        let before = out.len();
        out.append(&mut self.ready);
        self.sockets.go_on(&mut self.slots, out);
        self.begin_pushed(out);
        self.disk.collect(out);
        let idle = out.len() == before && !self.sockets.has_more();
        match wait {
            Wait::Until { timeout } if idle => self.sleep(timeout)?,
            Wait::Spin { for_, timeout } if idle => self.spin_then_sleep(for_, timeout)?,
            _ => self.poll(Some(Duration::ZERO))?,
        }
        self.sockets.on_events(&mut self.slots, out);
        self.disk.collect(out);
        self.counters.completions += (out.len() - before) as u64;
        Ok(())
    }

    /// Tries socket operations, and hands disk operations to the pool, whole chains together.
    fn begin_pushed(&mut self, out: &mut Vec<Completion>) {
        self.counters.submissions += self.backlog.len() as u64;
        while let Some(Pending { key, link }) = self.backlog.pop_front() {
            if self.slots.get_mut(key).op.socket().is_some() {
                self.sockets.begin(key, &mut self.slots, out);
            } else {
                let slot = self.slots.remove(key);
                let (op, user) = (slot.op, slot.user);
                self.steps.push(Step { op, user, link });
            }
        }
        self.disk.submit(&mut self.steps, out);
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = if self.wake.prepare_to_sleep() {
            self.poll(timeout)
        } else {
            self.poll(Some(Duration::ZERO))
        };
        self.counters.wakes += u64::from(self.wake.awake());
        result
    }

    /// Watches sockets and wake-ups; the pool wakes us too.
    #[allow(clippy::disallowed_methods)] // the spin measures itself
    fn spin_then_sleep(&mut self, for_: Duration, timeout: Option<Duration>) -> io::Result<()> {
        let start = Instant::now();
        while !self.wake.is_notified() && start.elapsed() < for_ {
            self.poll(Some(Duration::ZERO))?;
            if self.sockets.has_events() {
                return Ok(());
            }
            hint::spin_loop();
        }
        self.sleep(timeout)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.enters += 1;
        self.sockets.poll(timeout)
    }
}

#[cfg(test)]
mod tests;
