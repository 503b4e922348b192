//! What a node counts about itself, in memory that its loops write and the admin listener reads.
//!
//! Each part has one writer, a loop, and stands in cache lines of its own. Nothing here is locked,
//! allocated while running, or sent anywhere: see `admin` for who reads it.

mod cell;
mod histogram;
mod labelled;
mod refusals;
mod stages;
mod window;

pub use cell::{Counter, Gauge};
pub use histogram::{Counts, Histogram};
pub use labelled::NamedCounters;
pub use refusals::{Refusals, refusal_of};
pub use stages::{CommitStages, CommitTrace, GroupTimes, SlowCommit};
pub use window::{Window, WindowRead};

use crate::connections::SetStats;
use quorate_raft::Instant;
use quorate_ring::Counters;
use quorate_storage::WriterStats;
use std::sync::Arc;

/// All metrics of a node.
#[derive(Debug)]
pub struct Metrics {
    /// The raft loop's.
    pub raft: Arc<RaftMetrics>,
    /// Where commits spend their time; the raft loop's as well.
    pub commits: Arc<CommitStages>,
    /// The log writer's, on whatever loop it runs.
    pub log: Arc<LogMetrics>,
    /// Connections of the controller listeners.
    pub controllers: Arc<SetMetrics>,
    /// Client connections: one set if the raft loop serves them, else one for each client loop.
    pub clients: Vec<Arc<SetMetrics>>,
}

impl Metrics {
    /// Everything at 0, for a node with so many client loops.
    #[must_use]
    pub fn new(client_loops: usize) -> Self {
        Self {
            raft: Arc::default(),
            commits: Arc::default(),
            log: Arc::default(),
            controllers: Arc::default(),
            clients: (0..client_loops.max(1)).map(|_| Arc::default()).collect(),
        }
    }
}

/// What the raft loop counts. It alone writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RaftMetrics {
    /// Turns of the loop.
    pub turns: Counter,
    /// Time spent in the kernel, waiting or submitting, in ns.
    pub idle: Window,
    /// When it went there, in ns of the node's clock; 0 while it works.
    pub idle_since: Counter,
    /// The ring's system calls.
    pub ring: RingMetrics,
    /// Records appended as leader.
    pub appended: Window,
    /// Batches appended as leader.
    pub append_batches: Counter,
    /// Bytes of them.
    pub append_bytes: Counter,
    /// Records appended as leader, since the start.
    pub append_records: Counter,
    /// Records fetched from a leader.
    pub fetched: Window,
    /// The same since the start.
    pub fetch_records: Counter,
    /// From standing for election to a known leader, in ns.
    pub elections: Window,
    /// State changes by the new state, in the order of [`ROLES`], and reason.
    pub transitions: [NamedCounters; ROLES.len()],
    /// Messages that conflict with what this node knows to be true.
    pub conflicts: Counter,
    /// Reads of the log that found damage.
    pub read_faults: Counter,
    /// Times the log was cut.
    pub truncations: Counter,
    /// Refused requests of peers and clients.
    pub refusals: Refusals,
    /// First offset not known to be committed; -1 if unknown. Exclusive.
    pub high_watermark: Gauge,
    /// End of the log. Exclusive.
    pub log_end: Gauge,
    /// Bytes appended and not flushed.
    pub unflushed_bytes: Gauge,
    /// Appends that wait for their commit.
    pub waiting_appends: Gauge,
    /// Consumers' Fetches that wait for records.
    pub waiting_fetches: Gauge,
    /// Commands that wait for the log writer, where it has a loop of its own.
    pub log_commands: Gauge,
    /// Batches of requests that client loops have waiting here.
    pub client_requests: Gauge,
}

/// A ring's counters.
#[derive(Debug, Default)]
pub struct RingMetrics {
    /// System calls.
    pub enters: Counter,
    /// Operations given to the kernel.
    pub submissions: Counter,
    /// Operations that ended.
    pub completions: Counter,
    /// Waits ended by another thread.
    pub wakes: Counter,
    /// Turns that found the completion queue too small.
    pub overflows: Counter,
}

impl RingMetrics {
    /// Takes the ring's own counts over.
    pub fn publish(&self, counters: Counters) {
        self.enters.set(counters.enters);
        self.submissions.set(counters.submissions);
        self.completions.set(counters.completions);
        self.wakes.set(counters.wakes);
        self.overflows.set(counters.overflows);
    }
}

/// What the log writer counts. Its loop alone writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LogMetrics {
    /// From handing a group's writes over to their end, in ns.
    pub write: Histogram,
    /// From handing its flush over to its end, in ns.
    pub flush: Histogram,
    /// Bytes of batches in a group.
    pub group_bytes: Histogram,
    /// Batches in a group.
    pub group_batches: Histogram,
    /// Groups flushed.
    pub groups: Counter,
    /// Segments sealed because they were full.
    pub rolls: Counter,
}

impl LogMetrics {
    /// A group was flushed; `before` and `after` are the writer's counts around it.
    pub fn on_group(&self, times: GroupTimes, before: &WriterStats, after: &WriterStats) {
        self.write
            .record(times.written.0.saturating_sub(times.started.0));
        self.flush
            .record(times.flushed.0.saturating_sub(times.written.0));
        self.group_bytes.record(after.bytes - before.bytes);
        self.group_batches.record(after.batches - before.batches);
        self.groups.set(after.groups);
        self.rolls.set(after.rolls);
    }
}

/// What a set of connections counts. Its loop alone writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SetMetrics {
    /// Connections open now.
    pub open: Gauge,
    /// Bytes of requests that arrive or are not answered yet.
    pub in_flight_bytes: Gauge,
    /// Bytes of answers that their clients have not taken. All sets of a kind say the same number:
    /// they share a budget.
    pub answer_bytes: Gauge,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused because of the limit.
    pub refused: Counter,
    /// Connections closed for what they sent.
    pub broken: Counter,
    /// Connections closed for being idle.
    pub idle_closed: Counter,
    /// Connections closed because memory was short and they kept some without using it.
    pub shed: Counter,
}

impl SetMetrics {
    /// Takes the set's own counts over.
    pub fn publish(&self, open: usize, in_flight_bytes: usize, stats: SetStats) {
        self.open.set_size(open);
        self.in_flight_bytes.set_size(in_flight_bytes);
        self.accepted.set(stats.accepted);
        self.refused.set(stats.refused);
        self.broken.set(stats.broken);
        self.idle_closed.set(stats.idle_closed);
        self.shed.set(stats.shed);
    }
}

/// The states of a replica as Kafka's metric current-state names them.
pub const ROLES: [&str; 6] = [
    "unattached",
    "prospective",
    "candidate",
    "leader",
    "follower",
    "resigned",
];

impl RaftMetrics {
    /// The share of time that the loop did not work, of the last half minute; 1 before it turned.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for people
    pub fn idle_ratio(&self, now: Instant) -> f64 {
        let idle = self.idle.read(now);
        // The window begins when its first sample does, which may be less than its length ago.
        let running = now.0.min(idle.span_ns).max(1);
        let since = self.idle_since.get();
        let asleep = if since == 0 {
            0
        } else {
            now.0.saturating_sub(since)
        };
        ((idle.sum + asleep) as f64 / running as f64).min(1.0)
    }
}
