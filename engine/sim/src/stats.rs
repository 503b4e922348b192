//! Counts of what happened, to see that the seeds try what they should.

use crate::queue::{Nanos, S};
use std::fmt;
use std::ops::AddAssign;

/// Totals of one run or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Runs.
    pub seeds: u64,
    /// Simulated time, in ns.
    pub simulated: Nanos,
    /// Events.
    pub events: u64,
    /// Epochs that got a leader.
    pub leader_changes: u64,
    /// Nodes that crashed, at any time or in the middle of a disk operation.
    pub crashes: u64,
    /// Nodes that started.
    pub starts: u64,
    /// Graceful shutdowns that came to their end.
    pub shutdowns: u64,
    /// Links and groups of links that were cut.
    pub partitions: u64,
    /// Processes that were paused and disks that were slowed down.
    pub pauses: u64,
    /// Disks that failed an operation.
    pub disk_failures: u64,
    /// Client batches that were acknowledged.
    pub acknowledged: u64,
    /// Batches of idempotent producers that were sent again and were there.
    pub duplicates: u64,
    /// Those whose predecessors were missing.
    pub out_of_order: u64,
    /// Batches that came while the node did not know its producers yet.
    pub not_ready: u64,
    /// Client batches of unknown fate.
    pub unknown: u64,
    /// Batches that readers were shown.
    pub shown: u64,
    /// Logs that were cut.
    pub truncations: u64,
    /// Segments that were filled.
    pub rolls: u64,
    /// Reads of the disk.
    pub disk_reads: u64,
    /// Durable images that were opened to see whether an acknowledgement was true.
    pub images_opened: u64,
    /// Messages that a replica found to conflict with what it knew.
    pub conflicts: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.events += other.events;
        self.leader_changes += other.leader_changes;
        self.crashes += other.crashes;
        self.starts += other.starts;
        self.shutdowns += other.shutdowns;
        self.partitions += other.partitions;
        self.pauses += other.pauses;
        self.disk_failures += other.disk_failures;
        self.acknowledged += other.acknowledged;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.not_ready += other.not_ready;
        self.unknown += other.unknown;
        self.shown += other.shown;
        self.truncations += other.truncations;
        self.rolls += other.rolls;
        self.disk_reads += other.disk_reads;
        self.images_opened += other.images_opened;
        self.conflicts += other.conflicts;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} simulated s, {} events: {} leader changes, {} crashes, {} starts, \
             {} shutdowns, {} partitions, {} pauses, {} disk failures; {} batches acknowledged, \
             {} duplicates, {} out of order, {} too early, {} of unknown fate, \
             {} shown to readers; \
             {} truncations, {} rolls, {} disk reads, \
             {} images opened, {} conflicts",
            self.seeds,
            self.simulated / S,
            self.events,
            self.leader_changes,
            self.crashes,
            self.starts,
            self.shutdowns,
            self.partitions,
            self.pauses,
            self.disk_failures,
            self.acknowledged,
            self.duplicates,
            self.out_of_order,
            self.not_ready,
            self.unknown,
            self.shown,
            self.truncations,
            self.rolls,
            self.disk_reads,
            self.images_opened,
            self.conflicts,
        )
    }
}
