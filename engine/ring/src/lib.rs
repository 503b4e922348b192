//! io_uring for Quorate: rings, the buffers they own, timers and wake-ups from other threads.
//!
//! This package is the only home of `unsafe`. What it offers is safe by ownership: a buffer belongs
//! to the kernel from the moment its operation is pushed until its completion hands it back.
//! It decides nothing: no retries of disk operations, no protocol, no policy.

// The one package that may: each block states the guarantee it stands on.
#![allow(unsafe_code)]

mod buffer;

pub use buffer::{AlignedBuf, BUFFER_ALIGNMENT};
