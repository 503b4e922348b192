//! What the tests with real processes share: a quorum to start and kill, Kafka clients, a raw
//! client that sees what librdkafka hides, and the segment files read without the program's own
//! code.
//!
//! Nothing here sleeps in the hope that something has happened by then: each wait has a condition,
//! a deadline and a name. A cluster kills what it started and nothing else, and when a test fails
//! it shows what its nodes had to say.
#![allow(dead_code, unused_imports)] // each test file uses its own part of this

mod background;
mod browser;
mod clients;
mod cluster;
mod command;
mod http;
mod load;
mod log_files;
pub mod lone;
mod machine;
pub mod probe;
mod raw;
mod seccomp;
mod servers;
pub mod stranger;
mod watch;

pub use background::Background;
pub use browser::Browser;
pub use clients::{Record, client_config, consumer_from, read_all};
pub use cluster::{Cluster, Described, Node};
pub use command::{Finished, QUORATE, Running, quorate, run};
pub use http::{Answered, Samples, exchange, get, parse_metrics, scrape};
pub use load::{Acked, Load, LoadReport, RecordId};
pub use log_files::{assert_same_logs, committed_bytes};
pub use lone::{
    Lone, REFUSAL_LIMIT, Serving, assert_refused, contents, format, server, server_command,
};
pub use machine::{MachineLock, PortBlock, scratch_dir};
pub use probe::Probe;
pub use raw::{EpochEnd, PROBE_VALUE, ProducerId, RawClient, batch, numbered_batch, sign};
pub use seccomp::{Filter, IO_URING, limit_locked_memory};
pub use servers::Servers;
pub use watch::{Follower, Watermarks};

use std::thread;
use std::time::{Duration, Instant};

/// Name of the log's topic; it has the one partition 0.
pub const TOPIC: &str = "__cluster_metadata";

/// A point in time that a wait must not pass.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration) -> Self {
        let end = Instant::now() + limit;
        Self { end, limit }
    }

    /// Whether there is time left.
    pub fn is_ahead(self) -> bool {
        Instant::now() < self.end
    }

    /// # Panics
    /// When the time is up, with `what` as the reason.
    pub fn check(self, what: &str) {
        assert!(self.is_ahead(), "after {:?} still not: {what}", self.limit);
    }
}

/// Asks `poll` every few milliseconds until it has something.
///
/// # Panics
/// After `limit`, naming `what` did not come about.
pub fn wait_for<T>(what: &str, limit: Duration, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        deadline.check(what);
        pause(Duration::from_millis(5));
    }
}

/// Lets the others run for a moment; at most the grain of a poll or the pace of a load.
pub fn pause(length: Duration) {
    assert!(
        length <= Duration::from_millis(50),
        "wait for a condition instead"
    );
    thread::sleep(length);
}

/// Seconds, as most limits are given.
pub const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
