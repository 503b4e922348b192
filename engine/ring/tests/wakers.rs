//! Wake-ups from other threads: none is lost, and an awake loop costs its wakers nothing.

mod common;

use common::{PATIENCE, ring};
use quorate_ring::{Engine, Wait, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

on_both_engines! {
    no_wake_up_is_lost_by_a_sleeping_loop,
    no_wake_up_is_lost_at_the_moment_of_falling_asleep,
    no_wake_up_is_lost_by_a_spinning_loop,
    many_wakers_at_once_end_one_wait,
    turn_without_a_wait_leaves_the_wake_up_for_the_next_wait,
    waker_outlives_its_ring,
}

const ROUNDS: u64 = 20_000;

/// The loop answers each number put before it; the other side waits for the answer, then goes on.
/// One lost wake-up and the loop sleeps out its patience.
fn ping_pong(engine: Engine, wait: Wait, pause: impl Fn(u64)) {
    let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (send_waker, receive_waker) = mpsc::channel::<Waker>();
    let (question, answer) = (asked.clone(), answered.clone());
    let server = thread::spawn(move || {
        let mut ring = ring(engine, 8);
        send_waker.send(ring.waker()).unwrap();
        let mut out = Vec::new();
        let mut longest_turn = Duration::ZERO;
        while answer.load(Ordering::Relaxed) < ROUNDS {
            let start = now();
            ring.turn(wait, &mut out).unwrap();
            longest_turn = longest_turn.max(now() - start);
            answer.store(question.load(Ordering::Relaxed), Ordering::Release);
        }
        (longest_turn, ring.counters())
    });
    let waker = receive_waker.recv().unwrap();
    for round in 1..=ROUNDS {
        pause(round);
        asked.store(round, Ordering::Relaxed);
        waker.wake();
        while answered.load(Ordering::Acquire) < round {
            thread::yield_now();
        }
    }
    let (longest_turn, counters) = server.join().unwrap();
    assert!(
        longest_turn < Duration::from_secs(15),
        "a wake-up was lost: {longest_turn:?}"
    );
    assert!(
        counters.wakes > 0 && counters.wakes <= ROUNDS,
        "{counters:?}"
    );
}

#[allow(clippy::disallowed_methods)] // the test measures how long a wait took
fn now() -> Instant {
    Instant::now()
}

fn no_wake_up_is_lost_by_a_sleeping_loop(engine: Engine) {
    ping_pong(engine, PATIENCE, |_| ());
}

fn no_wake_up_is_lost_at_the_moment_of_falling_asleep(engine: Engine) {
    // Pauses of all lengths around the loop's way to sleep: the race's window is passed often.
    ping_pong(engine, PATIENCE, |round| {
        (0..round % 400).for_each(|_| std::hint::spin_loop())
    });
}

fn no_wake_up_is_lost_by_a_spinning_loop(engine: Engine) {
    let for_ = Duration::from_micros(3);
    ping_pong(
        engine,
        Wait::Spin {
            for_,
            timeout: Some(Duration::from_secs(20)),
        },
        |round| {
            (0..round % 400).for_each(|_| std::hint::spin_loop());
        },
    );
}

fn many_wakers_at_once_end_one_wait(engine: Engine) {
    let mut ring = ring(engine, 8);
    let waker = ring.waker();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let waker = waker.clone();
            thread::spawn(move || (0..1000).for_each(|_| waker.wake()))
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    ring.turn(PATIENCE, &mut Vec::new()).unwrap();
    assert_eq!(ring.counters().wakes, 1);
    // Nobody calls any more: the next wait lasts as long as it was told to.
    let start = now();
    let timeout = Duration::from_millis(30);
    ring.turn(
        Wait::Until {
            timeout: Some(timeout),
        },
        &mut Vec::new(),
    )
    .unwrap();
    assert!(now() - start >= timeout);
}

fn turn_without_a_wait_leaves_the_wake_up_for_the_next_wait(engine: Engine) {
    let mut ring = ring(engine, 8);
    ring.waker().wake();
    ring.turn(Wait::No, &mut Vec::new()).unwrap();
    let start = now();
    ring.turn(PATIENCE, &mut Vec::new()).unwrap();
    assert!(now() - start < Duration::from_secs(15));
}

fn waker_outlives_its_ring(engine: Engine) {
    let waker = ring(engine, 8).waker();
    waker.wake();
    waker.wake();
}
