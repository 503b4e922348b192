//! All voters die at one moment. What was acknowledged is there afterwards, and an atomic batch is
//! whole or not there.
//!
//! A killed process takes nothing from the kernel, so this shows what a node does with whatever
//! state its files are in; the simulator takes unflushed sectors away as well.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Background, Cluster, Load, Record, pause, quorate, read_all, s};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn everything_acknowledged_survives_the_death_of_all_voters_at_once() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 4);
    for cut in 1..=3 {
        load.wait_for_acks(300 * cut);
        cluster.power_cut();
        cluster.power_on();
        assert_eq!(cluster.bootstrap(), bootstrap, "the addresses stay");
    }
    load.wait_for_acks(300);
    let report = load.finish();
    let log = read_all(&bootstrap);
    report.assert_all_kept(&log);
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}

/// Lines of an atomic batch, each of 1 KiB: more than a block, a network packet and a socket buffer.
const LINES: usize = 150;

/// Commits atomic batches one after the other until told to stop.
struct AtomicAppends {
    done: Arc<AtomicU64>,
    thread: Background<Vec<Outcome>>,
}

/// How one `quorate append --atomic` ended.
struct Outcome {
    /// The batch's number, in each of its records.
    batch: u64,
    /// Whether the command said that it is committed.
    committed: bool,
}

impl AtomicAppends {
    fn start(bootstrap: &str) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let (bootstrap, count) = (bootstrap.to_owned(), Arc::clone(&done));
        let thread = Background::start(move |stop| {
            let mut outcomes = Vec::new();
            for batch in 0.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let committed = append_atomically(&bootstrap, batch);
                outcomes.push(Outcome { batch, committed });
                count.fetch_add(u64::from(committed), Ordering::AcqRel);
            }
            outcomes
        });
        Self { done, thread }
    }

    fn wait_for_commits(&self, more: u64) {
        let target = self.done.load(Ordering::Acquire) + more;
        common::wait_for(&format!("{more} more atomic batches"), s(40), || {
            (self.done.load(Ordering::Acquire) >= target).then_some(())
        });
    }

    fn finish(self) -> Vec<Outcome> {
        self.thread.stop();
        self.thread.join()
    }
}

/// Whether the command said that the batch is committed.
fn append_atomically(bootstrap: &str, batch: u64) -> bool {
    let arguments = ["append", "--atomic", "--bootstrap-server", bootstrap];
    let finished = quorate(&arguments, &lines_of(batch), s(60));
    let committed = finished.status.success();
    let printed = finished.stdout.lines().count();
    assert!(!committed || printed == LINES, "{finished:?}");
    committed
}

fn lines_of(batch: u64) -> String {
    (0..LINES)
        .map(|line| format!("{:.<1024}\n", format!("atomic {batch} {line} ")))
        .collect()
}

/// Offsets of each atomic batch's lines in a log.
///
/// # Panics
/// If a batch is not whole: all its lines once, in order, at offsets without a gap.
fn whole_batches(log: &[Record]) -> BTreeMap<u64, i64> {
    let mut batches = BTreeMap::<u64, Vec<i64>>::new();
    for record in log {
        let text = String::from_utf8(record.value.clone().expect("a value")).expect("text");
        let words: Vec<&str> = text.split(' ').collect();
        let (batch, line) = (
            words[1].parse().expect("a batch"),
            words[2].parse::<usize>(),
        );
        let offsets = batches.entry(batch).or_default();
        assert_eq!(
            line,
            Ok(offsets.len()),
            "batch {batch} in order, once, at {}",
            record.offset
        );
        offsets.push(record.offset);
    }
    let first_of = |(batch, offsets): (u64, Vec<i64>)| {
        assert_eq!(offsets.len(), LINES, "batch {batch} is not whole");
        assert_eq!(
            offsets[LINES - 1] - offsets[0],
            LINES as i64 - 1,
            "batch {batch} has a gap"
        );
        (batch, offsets[0])
    };
    batches.into_iter().map(first_of).collect()
}

#[test]
fn an_atomic_batch_is_whole_or_not_there_through_kills() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let appends = AtomicAppends::start(&bootstrap);
    for round in 0..6 {
        appends.wait_for_commits(3);
        // Another moment of an append each time.
        pause(Duration::from_millis(7 * round));
        if round % 2 == 0 {
            cluster.power_cut();
            cluster.power_on();
        } else {
            let leader = cluster.describe();
            cluster.kill(leader.leader_id);
            cluster.leader_after(leader.leader_epoch);
            whole_batches(&read_all(&bootstrap));
            cluster.restart(leader.leader_id);
            cluster.wait_until_caught_up(leader.leader_id);
        }
        whole_batches(&read_all(&bootstrap));
    }
    appends.wait_for_commits(1);
    let outcomes = appends.finish();
    let found = whole_batches(&read_all(&bootstrap));
    for Outcome { batch, committed } in &outcomes {
        assert!(
            !committed || found.contains_key(batch),
            "batch {batch} was committed and is gone"
        );
    }
    let committed = outcomes.iter().filter(|outcome| outcome.committed).count();
    println!(
        "{} batches sent, {committed} acknowledged, {} there",
        outcomes.len(),
        found.len()
    );
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}
