//! Deterministic simulator of a quorum.
//!
//! Runs the replica and the storage code that a node runs, unchanged, under a network, a clock and
//! disks that one seed decides, with crashes, partitions, pauses and slow disks. Independent
//! [`checkers`] look at it from outside. It opens no file and no socket, and reads no clock.
#![forbid(unsafe_code)]

pub mod checkers;
mod clients;
mod disk;
mod disk_io;
mod faults;
mod idempotent;
mod messages;
mod network;
mod node;
mod queue;
mod rng;
mod run;
mod scenario;
mod stats;
mod trace;
mod turn;
mod workload;
mod world;

pub use queue::{MS, Nanos, S, US};
pub use rng::Rng;
pub use run::{Outcome, run};
pub use scenario::{Delays, Mutant, Scenario};
pub use stats::Stats;
