//! Tests that need to look inside a ring: system calls that fail, and queues that are full.

use super::*;
use crate::buffer::AlignedBuf;
use crate::completion::CompletionKind;
use crate::op;
use crate::ring::Wait;
use crate::setup::Engine;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

impl Uring {
    fn write(
        &mut self,
        file: &Arc<OwnedFd>,
        position: u64,
        buf: AlignedBuf,
        user: u64,
        link: bool,
    ) {
        let op = Op::Write {
            file: file.clone(),
            position,
            buf,
            dsync: false,
        };
        self.push(op, user, link);
    }

    fn fdatasync(&mut self, file: &Arc<OwnedFd>, user: u64) {
        self.push(Op::Flush { file: file.clone() }, user, false);
    }

    fn recv(&mut self, socket: &Arc<OwnedFd>, buf: Vec<u8>, user: u64) {
        let socket = socket.clone();
        self.push(Op::Recv { socket, buf }, user, false);
    }
}

/// A file that is gone when closed.
fn scratch_file() -> Arc<OwnedFd> {
    // SAFETY: the name is a NUL-terminated constant.
    let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    Arc::new(op::accepted(fd))
}

fn tiny() -> Uring {
    Uring::new(&RingConfig {
        engine: Engine::Uring,
        entries: 8,
        ..RingConfig::default()
    })
    .unwrap()
}

fn block(fill: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(fill);
    buf
}

fn run(ring: &mut Uring, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    while out.len() < count {
        ring.turn(
            Wait::Until {
                timeout: Some(Duration::from_secs(10)),
            },
            &mut out,
        )
        .unwrap();
    }
    out
}

fn contents(file: &Arc<OwnedFd>) -> Vec<u8> {
    std::fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

#[test]
fn failed_enter_keeps_the_operation_and_its_buffer() {
    // An entry that is queued when io_uring_enter fails is executed by a later one. Whoever frees
    // its buffer on the error lets the kernel write foreign memory to disk.
    for errno in [
        libc::EAGAIN,
        libc::EBUSY,
        libc::EINTR,
        libc::ENOMEM,
        libc::EBADF,
    ] {
        let (mut ring, file) = (tiny(), scratch_file());
        ring.write(&file, 0, block(7), 1, true);
        ring.fdatasync(&file, 2);
        ring.enter_faults.push_back(errno);
        let mut out = Vec::new();
        let passing = errno != libc::EBADF;
        let result = ring.turn(Wait::Until { timeout: None }, &mut out);
        assert_eq!(result.is_ok(), passing, "errno {errno}");
        assert!(out.is_empty());
        assert_eq!(Arc::strong_count(&file), 3, "the operations own the file");

        let done = run(&mut ring, 2);
        assert!(matches!(
            done[0].kind,
            CompletionKind::Wrote {
                result: Ok(4096),
                ..
            }
        ));
        assert!(matches!(done[1].kind, CompletionKind::Flushed(Ok(()))));
        assert_eq!(contents(&file), vec![7; 4096]);
    }
}

#[test]
fn every_operation_ends_once_though_every_third_enter_fails() {
    let (mut ring, file) = (tiny(), scratch_file());
    let mut seen = [0; 500];
    for user in 0..500 {
        ring.write(&file, user * 4096, block(user as u8), user, false);
    }
    let mut faults = [libc::EAGAIN, libc::EINTR, libc::EBUSY, libc::ENOMEM]
        .into_iter()
        .cycle();
    let mut out = Vec::new();
    for turn in 0.. {
        if turn % 3 == 0 {
            ring.enter_faults.push_back(faults.next().unwrap());
        }
        ring.turn(Wait::Until { timeout: None }, &mut out).unwrap();
        for done in out.drain(..) {
            assert!(matches!(
                done.kind,
                CompletionKind::Wrote {
                    result: Ok(4096),
                    ..
                }
            ));
            seen[done.user as usize] += 1;
        }
        if seen.iter().all(|&count| count == 1) {
            break;
        }
    }
    let bytes = contents(&file);
    assert!(
        bytes
            .chunks(4096)
            .enumerate()
            .all(|(at, block)| block == [at as u8; 4096])
    );
}

#[test]
fn every_flush_ends_though_its_submission_fails_and_the_queue_is_full() {
    // A flush that is tried only once, at the moment its write ends, is lost when the queue is full
    // just then, and the commit behind it waits for ever.
    let (mut ring, file) = (tiny(), scratch_file());
    let (mut flushed, mut out) = (0, Vec::new());
    for user in 0..300 {
        ring.write(&file, user * 4096, block(1), user, false);
    }
    for turn in 0.. {
        if flushed == 300 {
            break;
        }
        if turn % 4 == 0 && ring.enter_faults.is_empty() {
            ring.enter_faults.extend([libc::EBUSY, libc::EAGAIN]);
        }
        ring.turn(Wait::Until { timeout: None }, &mut out).unwrap();
        for done in out.drain(..) {
            match done.kind {
                CompletionKind::Wrote { result, .. } => {
                    assert_eq!(result.unwrap(), 4096);
                    ring.fdatasync(&file, done.user);
                }
                CompletionKind::Flushed(result) => {
                    result.unwrap();
                    flushed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(ring.backlog.is_empty() && ring.bounded_in_flight == 0);
}

#[test]
fn an_interrupted_receive_is_made_again_with_its_buffer() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (mut ring, socket) = (tiny(), Arc::new(OwnedFd::from(theirs)));
    ring.recv(&socket, Vec::with_capacity(100), 7);
    // As if the kernel had taken it in and a signal had ended it.
    let key = ring.backlog.pop_front().unwrap().key;
    ring.slots.get_mut(key).submitted = true;
    ring.in_flight += 1;
    let mut out = Vec::new();
    ring.complete(key, -libc::EINTR, 0, &mut out);
    assert!(out.is_empty(), "the caller hears nothing of it");

    io::Write::write_all(&mut &ours, b"hello").unwrap();
    let done = run(&mut ring, 1).remove(0);
    assert_eq!(done.user, 7);
    let CompletionKind::Received { buf, result } = done.kind else {
        panic!("{:?}", done.kind)
    };
    assert_eq!((result.unwrap(), &buf[..]), (5, &b"hello"[..]));
}

#[test]
fn chain_is_never_cut_by_a_full_submission_queue() {
    // Seven writes leave room for one entry; the chain of three must go in later, but whole.
    let (mut ring, file) = (tiny(), scratch_file());
    for user in 0..7 {
        ring.write(&file, user * 4096, block(1), user, false);
    }
    ring.write(&file, 0, block(2), 10, true);
    ring.write(&file, 4096, block(2), 11, true);
    ring.fdatasync(&file, 12);
    assert!(ring.fill_submission_queue(), "more waits than fits");
    assert_eq!(ring.uring.submission().len(), 7);
    assert_eq!(ring.backlog.len(), 3);
    assert_eq!(run(&mut ring, 10).len(), 10);
}

#[test]
fn broken_chain_flushes_nothing() {
    let mut ring = tiny();
    let file = scratch_file();
    let read_only = Arc::new(OwnedFd::from(File::open("/proc/self/exe").unwrap()));
    ring.write(&read_only, 0, block(1), 1, true);
    ring.write(&file, 0, block(2), 2, true);
    ring.fdatasync(&file, 3);
    let mut done = run(&mut ring, 3);
    done.sort_by_key(|done| done.user);
    let errno = |kind: &CompletionKind| match kind {
        CompletionKind::Wrote {
            result: Err(error), ..
        } => error.raw_os_error(),
        CompletionKind::Flushed(Err(error)) => error.raw_os_error(),
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(&done[0].kind), Some(libc::EBADF));
    assert_eq!(errno(&done[1].kind), Some(libc::ECANCELED));
    assert_eq!(errno(&done[2].kind), Some(libc::ECANCELED));
    assert!(contents(&file).is_empty());
}

#[test]
fn disk_operations_never_exceed_the_completion_queue() {
    let (mut ring, file) = (tiny(), scratch_file());
    for user in 0..200 {
        ring.write(&file, user * 4096, block(1), user, true);
        ring.fdatasync(&file, user);
    }
    let mut out = Vec::new();
    while out.len() < 400 {
        ring.turn(Wait::Until { timeout: None }, &mut out).unwrap();
        assert!(ring.bounded_in_flight <= ring.bounded_max);
        let waiting = ring.backlog.len() + ring.bounded_in_flight;
        assert_eq!(waiting + out.len(), 400, "each operation is in one place");
    }
    assert_eq!(ring.counters().overflows, 0);
    assert_eq!(ring.bounded_in_flight, 0);
}

#[test]
fn late_write_of_an_old_wake_up_does_not_swallow_the_next() {
    // A waker found the loop asleep and was held up before its write; the loop woke for another
    // reason. The write then completes the standing read while the loop is awake, and a loop that
    // sleeps without a new read can't be woken.
    let mut ring = tiny();
    let mut out = Vec::new();
    ring.turn(Wait::No, &mut out).unwrap();
    ring.wake.signal();
    ring.enter(0).unwrap();
    assert!(
        !ring.uring.completion().is_empty(),
        "the late write ended the read"
    );

    let (state, waker) = (ring.wake.clone(), ring.waker());
    let other = std::thread::spawn(move || {
        while !state.is_asleep() {
            std::hint::spin_loop();
        }
        waker.wake();
    });
    ring.turn(
        Wait::Until {
            timeout: Some(Duration::from_secs(5)),
        },
        &mut out,
    )
    .unwrap();
    assert_eq!(ring.counters().wakes, 1);
    assert!(ring.counters().completions >= 2, "the wait timed out");
    other.join().unwrap();
}

#[test]
fn completions_beyond_the_queue_are_fetched_from_the_kernel() {
    // Receiving from a file fails at once: 200 completions for 32 places before we look.
    let (mut ring, file) = (tiny(), scratch_file());
    for user in 0..200 {
        ring.recv(&file, Vec::with_capacity(1), user);
    }
    while ring.fill_submission_queue() {
        ring.enter(0).unwrap();
    }
    let mut users: Vec<_> = run(&mut ring, 200).iter().map(|done| done.user).collect();
    users.sort_unstable();
    assert!(users.into_iter().eq(0..200));
    assert!(
        ring.counters().overflows > 0,
        "the test did not reach the overflow list"
    );
}

#[test]
#[should_panic(expected = "waits for its last operation")]
fn turn_refuses_half_a_chain() {
    let mut ring = tiny();
    ring.write(&scratch_file(), 0, block(1), 1, true);
    let _ = ring.turn(Wait::No, &mut Vec::new());
}

#[test]
fn cancelling_what_was_not_submitted_gives_the_buffer_back() {
    let (mut ring, file) = (tiny(), scratch_file());
    ring.recv(&file, Vec::with_capacity(10), 5);
    ring.write(&file, 0, block(1), 5, false);
    ring.cancel_all_of(5);
    let done = run(&mut ring, 2);
    match &done[0].kind {
        CompletionKind::Received {
            buf,
            result: Err(error),
        } => {
            assert_eq!((buf.capacity(), buf.len()), (10, 0));
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        done[1].kind,
        CompletionKind::Wrote {
            result: Ok(4096),
            ..
        }
    ));
}

#[test]
#[allow(clippy::disallowed_methods)] // measures the sleep
fn a_sleep_ends_at_the_earliest_deadline_and_timers_serve_many_sleeps() {
    let mut ring = Uring::new(&RingConfig {
        engine: Engine::Uring,
        entries: 8,
        ..RingConfig::default()
    })
    .unwrap();
    let mut out = Vec::new();
    let start = Instant::now();
    for ms in [30_000, 20] {
        ring.arm_timer(Some(Duration::from_millis(ms)));
    }
    while start.elapsed() < Duration::from_millis(20) {
        let timeout = Some(Duration::from_secs(20));
        ring.turn(Wait::Until { timeout }, &mut out).unwrap();
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "the nearer timer ended the sleep"
    );
    let before = ring.counters().submissions;
    let waker = ring.waker();
    for _ in 0..100 {
        waker.wake();
        let timeout = Some(Duration::from_secs(10));
        ring.turn(Wait::Until { timeout }, &mut out).unwrap();
    }
    let timers = ring.counters().submissions - before;
    assert!(
        timers <= 2,
        "{timers} operations for 100 sleeps of the same length"
    );
    assert!(out.is_empty());
}
