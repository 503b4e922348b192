//! Disk operations: a small pool of threads, each in one blocking system call at a time.
//!
//! A chain of linked operations runs on one thread, in order, and stops at the first that fails or
//! falls short, as io_uring's links do. Results are posted when the call has returned, never
//! before: a flush that is reported has happened. Nothing is tried again here.

use crate::completion::{Completion, CompletionKind};
use crate::op::Op;
use crate::waker::Waker;
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Threads of a pool: one for each of the two writes of a group. More would only wait.
const WORKERS_MAX: usize = 2;

/// How long dropping a pool waits for the calls that run.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// A disk operation on its way.
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) user: u64,
    /// Whether the next one may start only when this one succeeded in full.
    pub(crate) link: bool,
}

/// A loop's end of its pool.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Handed over and not collected.
    in_flight: usize,
    /// Taken from the pool, to be handed out. Keeps its memory.
    collected: Vec<Completion>,
}

/// What a loop and its threads share.
struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued, or all are to stop.
    wanted: Condvar,
    /// A thread has ended.
    ended: Condvar,
    results: Mutex<Vec<Completion>>,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    /// Whole chains, one behind the other.
    steps: VecDeque<Step>,
    idle: usize,
    running: usize,
    stop: bool,
}

impl Disk {
    /// A pool without threads yet; `waker` wakes the loop that collects.
    pub(crate) fn new(waker: Waker) -> Disk {
        Disk {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                wanted: Condvar::new(),
                ended: Condvar::new(),
                results: Mutex::default(),
                waker,
            }),
            workers: Vec::new(),
            in_flight: 0,
            collected: Vec::new(),
        }
    }

    /// Hands whole chains over. If there is no thread and none can be started, they end with that
    /// error.
    pub(crate) fn submit(&mut self, steps: &mut Vec<Step>, out: &mut Vec<Completion>) {
        if steps.is_empty() {
            return;
        }
        let chains = steps.iter().filter(|step| !step.link).count();
        if let Err(error) = self.ensure_workers(chains) {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            out.extend(steps.drain(..).map(|step| step.end(-errno)));
            return;
        }
        self.in_flight += steps.len();
        let mut queue = self.shared.queue();
        queue.steps.extend(steps.drain(..));
        drop(queue);
        for _ in 0..chains.min(self.workers.len()) {
            self.shared.wanted.notify_one();
        }
    }

    /// Starts threads while there are more chains than idle ones. One is enough to go on.
    fn ensure_workers(&mut self, chains: usize) -> io::Result<()> {
        let idle = self.shared.queue().idle;
        let missing = chains.saturating_sub(idle);
        for _ in 0..missing.min(WORKERS_MAX - self.workers.len()) {
            let shared = Arc::clone(&self.shared);
            self.shared.queue().running += 1;
            let spawned = thread::Builder::new()
                .name("disk".into())
                .spawn(move || shared.work());
            match spawned {
                Ok(worker) => self.workers.push(worker),
                Err(error) => {
                    self.shared.queue().running -= 1;
                    if self.workers.is_empty() {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn workers_count(&self) -> usize {
        self.workers.len()
    }

    /// Appends what has ended.
    pub(crate) fn collect(&mut self, out: &mut Vec<Completion>) {
        if self.in_flight == 0 {
            return;
        }
        std::mem::swap(&mut self.collected, &mut *lock(&self.shared.results));
        self.in_flight -= self.collected.len();
        out.append(&mut self.collected);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.stop = true;
        let given_up = std::mem::take(&mut queue.steps);
        self.shared.wanted.notify_all();
        let runs = |queue: &mut Queue| queue.running > 0;
        let waited = self.shared.ended.wait_timeout_while(queue, DROP_WAIT, runs);
        let (queue, timeout) = waited.unwrap_or_else(|error| error.into_inner());
        drop((queue, given_up));
        if !timeout.timed_out() {
            for worker in self.workers.drain(..) {
                let _ = worker.join();
            }
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// A thread's life.
    fn work(&self) {
        let mut chain = Vec::new();
        let mut ended = Vec::new();
        while self.next_chain(&mut chain) {
            run_chain(&mut chain, &mut ended);
            lock(&self.results).append(&mut ended);
            self.waker.wake();
        }
        self.queue().running -= 1;
        self.ended.notify_all();
    }

    /// Waits for a chain. False: the pool stops.
    fn next_chain(&self, chain: &mut Vec<Step>) -> bool {
        let mut queue = self.queue();
        queue.idle += 1;
        let nothing = |queue: &mut Queue| queue.steps.is_empty() && !queue.stop;
        let waited = self.wanted.wait_while(queue, nothing);
        queue = waited.unwrap_or_else(|error| error.into_inner());
        queue.idle -= 1;
        while let Some(step) = queue.steps.pop_front() {
            let link = step.link;
            chain.push(step);
            if !link {
                break;
            }
        }
        !queue.stop
    }
}

/// A poisoned lock is as good as any: no code that may panic runs under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

fn run_chain(chain: &mut Vec<Step>, ended: &mut Vec<Completion>) {
    let mut broken = false;
    for mut step in chain.drain(..) {
        let result = match broken {
            true => -libc::ECANCELED,
            false => carry_out(&mut step.op),
        };
        broken |= !step.op.is_complete(result);
        ended.push(step.end(result));
    }
}

/// One system call; a count or a negated errno.
fn carry_out(op: &mut Op) -> i32 {
    let result = match op {
        Op::Write {
            file,
            position,
            buf,
            dsync: false,
        } => pwrite(file, buf, *position),
        Op::Write {
            file,
            position,
            buf,
            dsync: true,
        } => pwritev2(file, &[IoSlice::new(buf)], *position, ReadWriteFlags::DSYNC),
        Op::Flush { file } => rustix::fs::fdatasync(file).map(|()| 0),
        Op::Read {
            file,
            position,
            buf,
        } => pread(file, &mut buf[..], *position),
        _ => unreachable!("not a disk operation"),
    };
    match result {
        // Linux moves less than 2 GiB in one call.
        Ok(count) => i32::try_from(count).expect("a count below 2^31"),
        Err(error) => -Errno::raw_os_error(error),
    }
}

impl Step {
    fn end(self, result: i32) -> Completion {
        let kind: Option<CompletionKind> = self.op.finish(result);
        Completion {
            user: self.user,
            kind: kind.expect("not an internal operation"),
        }
    }
}
