//! KIP-595, the Raft protocol of Kafka's metadata quorum, as a pure state machine.
//!
//! A function of (state, input, now): no clock, no I/O, no randomness but a seeded generator. Feed
//! [`Raft`] with requests, responses, disk reports and time; carry out the [`Output`]s in order.
//!
//! - The states are `unattached`, `prospective`, `candidate`, `leader`, `follower`, `resigned`;
//!   `transitions` says which may follow which.
//! - `turn` is what follows every input; `vote`, `announcement` and `leader` handle requests,
//!   `answers` responses, `sends` makes the replica's own requests.
//! - `held` keeps back what the disk must know first; `log_view` is the log without its records.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

extern crate alloc;

mod announcement;
mod answers;
mod candidate;
mod config;
mod describe;
mod error_code;
mod follower;
mod held;
mod leader;
mod log_view;
mod message;
mod output;
mod progress;
mod prospective;
mod quorum;
mod raft;
mod requests;
mod resigned;
mod restore;
mod rng;
mod sends;
mod transitions;
mod turn;
mod types;
mod unattached;
mod vote;

pub use config::*;
pub use error_code::*;
pub use message::*;
pub use output::*;
pub use raft::Raft;
pub use types::*;
