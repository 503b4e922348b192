//! What the tests of the ring share.

#![allow(dead_code)] // each test file uses some of it

use quorate_ring::{Completion, Engine, Ring, RingConfig, Wait};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any wait of a test that passes.
pub const PATIENCE: Wait = Wait::Until {
    timeout: Some(Duration::from_secs(20)),
};

pub fn ring(engine: Engine, entries: u32) -> Ring {
    Ring::new(&RingConfig {
        engine,
        entries,
        ..RingConfig::default()
    })
    .unwrap()
}

/// Makes each of the functions named, which take an [`Engine`], a test on io_uring and one on
/// threads.
#[macro_export]
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $name() { super::$name(quorate_ring::Engine::Uring) })*
        }
        mod threads {
            $(#[test] fn $name() { super::$name(quorate_ring::Engine::Threads) })*
        }
    };
}

pub fn shared(fd: impl Into<OwnedFd>) -> Arc<OwnedFd> {
    Arc::new(fd.into())
}

/// Turns until `count` completions are there.
pub fn run(ring: &mut Ring, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    for _ in 0..100_000 {
        if out.len() >= count {
            return out;
        }
        ring.turn(PATIENCE, &mut out).unwrap();
    }
    panic!("{} of {count} completions came", out.len());
}

/// Small, fast and seeded: the same numbers at each run (xorshift).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
