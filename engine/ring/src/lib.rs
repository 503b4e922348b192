//! I/O for Quorate's loops: rings, the buffers they own, timers, wake-ups from other threads. They
//! stand on io_uring, or on epoll and threads where that is forbidden.
//!
//! This package is the only home of `unsafe`. What it offers is safe by ownership: a buffer belongs
//! to the kernel from the moment its operation is pushed until its completion hands it back.
//! It decides nothing: no retries of disk operations, no protocol, no policy.
//!
//! A loop opens a [`Ring`], pushes operations, and calls [`Ring::turn`] again and again:
//!
//! ```
//! use quorate_ring::{AlignedBuf, CompletionKind, Ring, RingConfig, Wait};
//! use std::{fs::File, os::fd::OwnedFd, sync::Arc};
//!
//! let mut ring = Ring::new(&RingConfig::default())?;
//! let file = Arc::new(OwnedFd::from(File::open("/proc/self/exe")?));
//! ring.read(&file, 0, AlignedBuf::zeroed(4096), 1);
//! let mut done = Vec::new();
//! while done.is_empty() {
//!     ring.turn(Wait::Until { timeout: None }, &mut done)?;
//! }
//! let CompletionKind::Read { buf, result } = &done[0].kind else { panic!() };
//! assert_eq!(*result.as_ref().unwrap(), 4096);
//! assert_eq!(&buf[1..4], b"ELF");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The one package that may: each block states the guarantee it stands on.
#![allow(unsafe_code)]

mod buffer;
mod completion;
mod cpu;
mod op;
mod ring;
mod setup;
mod slots;
mod threads;
mod uring;
mod waker;

pub use buffer::{AlignedBuf, BUFFER_ALIGNMENT};
pub use completion::{Completion, CompletionKind};
pub use cpu::pin_to_cpu;
pub use ring::{Counters, Ring, Wait};
pub use setup::{Engine, RingConfig, RingError, probe};
pub use waker::Waker;
