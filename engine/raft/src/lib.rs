//! KIP-595, the Raft protocol of Kafka's metadata quorum, as a pure state machine.
//!
//! A function of (state, input, now): no clock, no I/O, no randomness but a seeded generator.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

extern crate alloc;

mod config;
mod error_code;
mod message;
mod output;
mod raft;
mod types;

pub use config::*;
pub use error_code::*;
pub use message::*;
pub use output::*;
pub use raft::Raft;
pub use types::*;
