//! Waking a loop that sleeps in its ring, from any thread, without a system call when it is awake.
//!
//! The loop and its wakers share one word and one eventfd, which the ring always has a read on:
//!
//! 1. A waker swaps NOTIFIED in. If it finds ASLEEP it owes the loop a write to the eventfd; in
//!    every other case the loop is yet to look at the word before it sleeps, and that is enough.
//! 2. Before it sleeps the loop exchanges AWAKE for ASLEEP. If it finds NOTIFIED it does not sleep.
//! 3. After it slept (or did not) it swaps AWAKE in. Whatever a waker did before its swap is
//!    visible to the loop from here on.
//!
//! No wake-up is lost: a waker's swap comes either before step 2 (seen there), or between 2 and 3
//! (the eventfd ends the sleep: the write comes after the swap, and a read stands on it), or after
//! 3 (seen at the next step 2). A write that comes late, when the loop woke for another reason,
//! ends a later sleep early, which is allowed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;

/// Makes the current or the next wait of one ring return. Any thread may hold a clone.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<WakeState>,
}

impl Waker {
    /// Ends the ring's current wait, or keeps its next one from sleeping. Many calls may end one
    /// wait together. After the ring is gone this does nothing.
    pub fn wake(&self) {
        if self.shared.word.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            self.shared.signal();
        }
    }
}

impl AsFd for WakeState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// What a ring and its wakers share.
#[derive(Debug)]
pub(crate) struct WakeState {
    word: AtomicU32,
    /// Blocking, so that the ring's read waits for a write instead of failing with EAGAIN.
    eventfd: File,
    /// Where the ring's read puts what it read. Nobody looks at it.
    count: AtomicU64,
}

impl WakeState {
    pub(crate) fn new() -> io::Result<Arc<WakeState>> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let eventfd = unsafe { File::from_raw_fd(fd) };
        Ok(Arc::new(WakeState {
            word: AtomicU32::new(AWAKE),
            eventfd,
            count: AtomicU64::new(0),
        }))
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker {
            shared: Arc::clone(self),
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// Eight bytes for the kernel to write to, as long as the state lives.
    pub(crate) fn count_ptr(&self) -> *mut u8 {
        self.count.as_ptr().cast()
    }

    /// Step 2. False: a wake-up is waiting, do not sleep.
    pub(crate) fn prepare_to_sleep(&self) -> bool {
        let old = self
            .word
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        old.is_ok()
    }

    /// Step 3. Returns whether somebody woke us.
    pub(crate) fn awake(&self) -> bool {
        self.word.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ASLEEP
    }

    /// A look without consequences, for a loop that spins.
    pub(crate) fn is_notified(&self) -> bool {
        self.word.load(Ordering::Relaxed) == NOTIFIED
    }

    pub(crate) fn signal(&self) {
        // A write of 1 fails only if 2^64 - 2 of them were never read; the loop is awake then.
        let _ = (&self.eventfd).write_all(&1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn wake_before_the_sleep_keeps_the_loop_awake() {
        let state = WakeState::new().unwrap();
        state.waker().wake();
        assert!(state.is_notified());
        assert!(!state.prepare_to_sleep());
        assert!(state.awake());
        assert!(
            state.prepare_to_sleep(),
            "one wake-up ends one wait, not two"
        );
        assert!(!state.awake());
    }

    #[test]
    fn only_a_sleeping_loop_costs_a_write() {
        let state = WakeState::new().unwrap();
        let waker = state.waker();
        waker.wake();
        state.awake();
        assert!(state.prepare_to_sleep());
        waker.wake();
        waker.wake();
        let mut count = [0; 8];
        (&state.eventfd).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
