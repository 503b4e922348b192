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

/// Lines of an atomic batch, each of 1 KiB: more than a block, a network packet and a socket
/// buffer.
const LINES: usize = 150;
/// Commands that append at once, so that a kill meets one on its way.
const APPENDERS: u64 = 3;
/// Numbers of one appender's batches.
const BATCHES_MAX: u64 = 1_000_000;

/// Commits atomic batches, each appender one after the other, until told to stop.
struct AtomicAppends {
    committed: Arc<AtomicU64>,
    appenders: Vec<Background<Vec<Outcome>>>,
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
        let committed = Arc::new(AtomicU64::new(0));
        let start = |appender: u64| {
            let (bootstrap, count) = (bootstrap.to_owned(), Arc::clone(&committed));
            Background::start(move |stop| {
                let batches =
                    (appender * BATCHES_MAX..).take_while(|_| !stop.load(Ordering::Acquire));
                let append = |batch| {
                    let committed = append_atomically(&bootstrap, batch);
                    count.fetch_add(u64::from(committed), Ordering::AcqRel);
                    Outcome { batch, committed }
                };
                batches.map(append).collect()
            })
        };
        let appenders = (0..APPENDERS).map(start).collect();
        Self {
            committed,
            appenders,
        }
    }

    fn wait_for_commits(&self, more: u64) {
        let target = self.committed.load(Ordering::Acquire) + more;
        common::wait_for(&format!("{more} more atomic batches"), s(40), || {
            (self.committed.load(Ordering::Acquire) >= target).then_some(())
        });
    }

    fn finish(self) -> Vec<Outcome> {
        self.appenders.iter().for_each(Background::stop);
        self.appenders
            .into_iter()
            .flat_map(Background::join)
            .collect()
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

/// The atomic batches in a log, by number, and how often each is there: a command whose connection
/// broke sends its batch again, not knowing that it was committed.
///
/// # Panics
/// If a batch is not whole: all its lines, in order, at offsets without a gap.
fn whole_batches(log: &[Record]) -> BTreeMap<u64, usize> {
    let mut batches = BTreeMap::new();
    for copy in log.chunks(LINES) {
        let (batch, _) = batch_and_line(&copy[0]);
        for (line, record) in copy.iter().enumerate() {
            let offset = copy[0].offset + line as i64;
            assert_eq!(record.offset, offset, "a gap in batch {batch}");
            assert_eq!(batch_and_line(record), (batch, line), "at offset {offset}");
        }
        assert_eq!(copy.len(), LINES, "batch {batch} is cut off");
        *batches.entry(batch).or_default() += 1;
    }
    batches
}

fn batch_and_line(record: &Record) -> (u64, usize) {
    let text = std::str::from_utf8(record.value.as_deref().expect("a value")).expect("text");
    let mut words = text.split(' ').skip(1);
    let mut next = || words.next().expect("a word");
    (
        next().parse().expect("a batch"),
        next().parse().expect("a line"),
    )
}

#[test]
fn an_atomic_batch_is_whole_or_not_there_through_kills() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let appends = AtomicAppends::start(&bootstrap);
    for round in 0..6 {
        appends.wait_for_commits(5);
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
    let twice = found.values().filter(|copies| **copies > 1).count();
    println!(
        "{} batches sent, {committed} acknowledged, {} there, {twice} of them more than once",
        outcomes.len(),
        found.len()
    );
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}
