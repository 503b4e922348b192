//! The ring: operations go in by value, completions hand everything back.
//!
//! Pushing an operation only queues it. [`Ring::turn`] starts all that was pushed, waits as told,
//! and collects what ended. Which [`Engine`] does it shows in nothing but speed: operations,
//! completions, ownership of buffers and what a flush promises are the same.

use crate::buffer::AlignedBuf;
use crate::completion::Completion;
use crate::op::Op;
use crate::setup::{Engine, RingConfig, RingError};
use crate::threads::Threads;
use crate::uring::Uring;
use crate::waker::Waker;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

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
    /// System calls that submit or wait.
    pub enters: u64,
    /// Operations that were begun, the ring's own included.
    pub submissions: u64,
    /// Completions collected, the ring's own included.
    pub completions: u64,
    /// Waits that a [`Waker`] ended or kept from sleeping.
    pub wakes: u64,
    /// Turns that found completions on the kernel's overflow list: the ring is too small. Always 0
    /// with threads.
    pub overflows: u64,
    /// System calls that failed for a moment (EAGAIN, EBUSY, ENOMEM) and are made again by the next
    /// turn.
    pub retries: u64,
}

/// A loop's I/O and everything its operations own. Belongs to the thread that opened it (an
/// io_uring has a single issuer), hence not `Send`.
///
/// Dropping it cancels what is in flight and waits for the kernel to let go of the buffers; those
/// it still holds after two seconds are leaked.
pub struct Ring {
    backend: Backend,
    _single_issuer: PhantomData<*const ()>,
}

/// The engines, told apart by a branch per call: cheaper than a virtual call, and none per record.
enum Backend {
    Uring(Uring),
    Threads(Threads),
}

impl Ring {
    /// Opens a ring for the calling thread.
    ///
    /// # Errors
    /// See [`RingError`]; its text names cause and remedy.
    pub fn new(config: &RingConfig) -> Result<Ring, RingError> {
        let backend = match config.engine {
            Engine::Uring => Backend::Uring(Uring::new(config)?),
            Engine::Threads => Backend::Threads(Threads::new()?),
        };
        Ok(Ring {
            backend,
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
        self.push(
            Op::Connect {
                socket: socket.clone(),
                address,
                raw: None,
                begun: false,
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
                sent: 0,
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

    /// Tells the kernel of buffers that will be written from again and again, so that it need not
    /// look up their pages each time. They are locked in memory (RLIMIT_MEMLOCK counts them) until
    /// the ring is gone. To be called once at most. Nothing else changes, and without io_uring
    /// nothing at all.
    ///
    /// # Errors
    /// Mostly ENOMEM, when the limit is too low. The buffers work all the same.
    /// # Panics
    /// If it is called a second time.
    pub fn register_buffers(&mut self, bufs: &mut [&mut AlignedBuf]) -> io::Result<()> {
        match &mut self.backend {
            Backend::Uring(uring) => uring.register_buffers(bufs),
            Backend::Threads(_) => Ok(()),
        }
    }

    /// Tells the kernel of the file that most disk operations will work on, in place of the last
    /// one told of. That one stays open until then. Nothing else changes, and while disk operations
    /// are under way nothing at all.
    ///
    /// # Errors
    /// What the kernel says. The file works all the same.
    pub fn register_file(&mut self, file: &Arc<OwnedFd>) -> io::Result<()> {
        match &mut self.backend {
            Backend::Uring(uring) => uring.register_file(file),
            Backend::Threads(_) => Ok(()),
        }
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
        match &mut self.backend {
            Backend::Uring(uring) => uring.cancel_all_of(user),
            Backend::Threads(threads) => threads.cancel_all_of(user),
        }
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
        match &mut self.backend {
            Backend::Uring(uring) => uring.turn(wait, out),
            Backend::Threads(threads) => threads.turn(wait, out),
        }
    }

    /// Submits what was pushed, ahead of the next turn, for a loop that has something long to do
    /// before it. As much as the submission queue takes; if the kernel takes none the next turn
    /// tries again. Nothing is waited for, and with threads nothing is done.
    pub fn submit(&mut self) {
        if let Backend::Uring(uring) = &mut self.backend {
            uring.submit();
        }
    }

    /// A handle by which any thread ends this ring's waits.
    pub fn waker(&self) -> Waker {
        match &self.backend {
            Backend::Uring(uring) => uring.waker(),
            Backend::Threads(threads) => threads.waker(),
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        match &self.backend {
            Backend::Uring(uring) => uring.counters(),
            Backend::Threads(threads) => threads.counters(),
        }
    }

    /// Which engine it stands on.
    pub fn engine(&self) -> Engine {
        match &self.backend {
            Backend::Uring(_) => Engine::Uring,
            Backend::Threads(_) => Engine::Threads,
        }
    }

    fn push(&mut self, op: Op, user: u64, link: bool) {
        match &mut self.backend {
            Backend::Uring(uring) => uring.push(op, user, link),
            Backend::Threads(threads) => threads.push(op, user, link),
        }
    }
}
