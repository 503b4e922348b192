//! Crashes: a workload of appends, rolls, truncations and epoch changes is cut after every
//! operation of the disk, what was not flushed is torn by chance, and the log is recovered, with
//! crashes during recovery as well. Every flushed batch must be there, and what is there must be a
//! prefix of what was written: no hole, and no batch of a history that was cut off.

mod common;

use common::{Driver, QUORUM_EPOCH, Rng, batch, config, open};
use quorate_raft::{Epoch, Generation, Offset};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{Io, LogConfig, LogEvent, StorageError, open_log};

/// One version of the log: batch contents in order, with the offset after each.
type History = Vec<(i64, i32, Vec<u8>)>;

/// What may be found after a crash, kept by independent bookkeeping.
#[derive(Clone)]
struct Model {
    /// Since the last truncation that was reported: before and after each later one.
    candidates: Vec<History>,
    /// At least up to here (exclusive).
    floor: i64,
    /// Truncations that were asked for and not reported: the end and the generation of each.
    waiting: Vec<(i64, u64)>,
    generation: u64,
    tag: u64,
}

impl Model {
    fn current(&mut self) -> &mut History {
        self.candidates.last_mut().unwrap()
    }

    fn end_of(history: &History) -> (i64, i32) {
        history
            .last()
            .map_or((0, 0), |(end, epoch, _)| (*end, *epoch))
    }

    fn on_event(&mut self, event: &LogEvent) {
        match event {
            LogEvent::Flushed(flushed) => {
                let cut = self.waiting.iter().map(|(end, _)| *end).min();
                let end = flushed.end_offset.0;
                self.floor = cut.map_or(end, |cut| end.min(cut));
            }
            LogEvent::Truncated {
                generation,
                end_offset,
            } => {
                let done = self
                    .waiting
                    .iter()
                    .position(|(_, waiting)| *waiting == generation.0);
                let done = done.expect("a truncation that was asked for");
                assert_eq!(self.waiting[done].0, end_offset.0);
                self.waiting.drain(..=done);
                self.candidates.drain(..=done);
                let cut = self.waiting.iter().map(|(end, _)| *end).min();
                self.floor = cut.map_or(end_offset.0, |cut| end_offset.0.min(cut));
            }
            LogEvent::Closed => {}
        }
    }

    fn check(&self, found: &[Vec<u8>], end: i64, context: &str) {
        let is_prefix = |history: &&History| {
            found.len() <= history.len()
                && found
                    .iter()
                    .zip(history.iter())
                    .all(|(found, (_, _, bytes))| found == bytes)
        };
        assert!(
            self.candidates.iter().any(|history| is_prefix(&history)),
            "{context}: {} batches to offset {end} are no prefix of what was written",
            found.len()
        );
        assert!(
            end >= self.floor,
            "{context}: flushed to {}, found {end}",
            self.floor
        );
    }
}

struct Run {
    driver: Driver<SimDisk>,
    model: Model,
    rng: Rng,
}

impl Run {
    fn append(&mut self) {
        let (end, last_epoch) = Model::end_of(self.model.current());
        let epoch = last_epoch.max(1) + i32::from(self.rng.chance(8));
        // Mostly equal sizes, so that old and new batches can be mistaken for each other.
        let size = match self.rng.below(10) {
            0 => 3000 + self.rng.below(3000),
            1 => 9000,
            _ => 700,
        };
        self.model.tag += 1;
        let batch = batch(Offset(end), Epoch(epoch), size, self.model.tag);
        let entry = (end + 1, epoch, batch.bytes.to_vec());
        self.driver.writer.append(batch);
        self.model.current().push(entry);
    }

    fn truncate(&mut self) {
        let history = self.model.current().clone();
        let keep = history.len().saturating_sub(1 + self.rng.below(12));
        let kept = history[..keep].to_vec();
        let end = Model::end_of(&kept).0;
        self.model.generation += 1;
        let generation = self.model.generation;
        self.driver
            .writer
            .truncate(Offset(end), Generation(generation));
        // The writer forgets truncations that a later, deeper one makes pointless.
        while self
            .model
            .waiting
            .last()
            .is_some_and(|(old, _)| *old >= end && !self.is_started())
        {
            self.model.waiting.pop();
            self.model.candidates.pop();
        }
        self.model.waiting.push((end, generation));
        self.model.floor = self.model.floor.min(end);
        self.model.candidates.push(kept);
    }

    /// Whether the first waiting truncation is being carried out: it can't be forgotten then.
    fn is_started(&self) -> bool {
        let truncates = |io: &Io<SimDisk>| matches!(io, Io::Job(job) if job.name() == "truncate");
        self.model.waiting.len() == 1 && self.driver.in_flight.iter().any(truncates)
    }

    fn complete_one(&mut self) -> Result<(), StorageError> {
        self.driver.start();
        if self.driver.in_flight.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.driver.in_flight.len());
        if let Some(event) = self.driver.complete(index)? {
            self.model.on_event(&event);
        }
        Ok(())
    }

    fn steps(&mut self, count: usize) -> Result<(), StorageError> {
        for _ in 0..count {
            match self.rng.below(20) {
                0..8 => self.append(),
                8 if self.rng.chance(40) => self.truncate(),
                _ => self.complete_one()?,
            }
        }
        Ok(())
    }
}

fn small() -> LogConfig {
    config(24 * 1024)
}

/// Runs the workload of `seed` on a new disk until it is over or the disk crashes.
fn run(seed: u64, crash_after: Option<u64>) -> (SimDisk, Model) {
    let disk = SimDisk::new();
    if let Some(operation) = crash_after {
        disk.crash_after(operation);
    }
    let mut model = Model {
        candidates: vec![Vec::new()],
        floor: 0,
        waiting: Vec::new(),
        generation: 0,
        tag: seed << 32,
    };
    if let Ok(driver) = open(&disk, small()) {
        let mut run = Run {
            driver,
            model,
            rng: Rng(seed),
        };
        let ended = run.steps(300);
        assert_eq!(ended.is_err(), disk.is_crashed());
        model = run.model;
    }
    (disk, model)
}

/// Recovers, checks, appends, closes or not, and recovers again.
fn check_recovery(disk: &SimDisk, model: &Model, rng: &mut Rng, context: &str) {
    let mut driver = match open(disk, small()) {
        Ok(driver) => driver,
        Err(error) => panic!("{context}: {error}"),
    };
    let found = driver.read_all();
    let end = driver.opened.log_end.0;
    model.check(&found, end, context);
    let epoch = driver.opened.epochs.last().map_or(1, |(epoch, _)| *epoch);
    let driver_report = driver.opened.report.to_string();
    let next = driver.append(epoch + 1, 700, rng.next());
    driver.settle().unwrap();
    if rng.chance(50) {
        driver.close();
    }
    disk.crash(&mut || rng.next());
    let again = match open(disk, small()) {
        Ok(again) => again,
        Err(error) => {
            for (name, content) in common::all_files(disk, &common::dir()) {
                eprintln!("{name} {}", content.len());
            }
            panic!(
                "{context}: after a second crash: {error}; was {}",
                driver_report
            );
        }
    };
    let mut expected = found;
    expected.push(next.bytes.to_vec());
    assert_eq!(
        again.read_all(),
        expected,
        "{context}: after a second crash"
    );
}

/// Cuts recovery itself at several operations.
fn check_crashes_of_recovery(disk: &SimDisk, model: &Model, rng: &mut Rng, context: &str) {
    let before = disk.operations();
    let whole = disk.duplicate();
    open_log(whole.clone(), small(), QUORUM_EPOCH).unwrap();
    let operations = whole.operations() - before;
    for _ in 0..2 {
        let cut = disk.duplicate();
        let at = rng.below(operations as usize) as u64;
        cut.crash_after(before + at);
        assert!(open_log(cut.clone(), small(), QUORUM_EPOCH).is_err());
        cut.crash(&mut || rng.next());
        check_recovery(
            &cut,
            model,
            rng,
            &format!("{context}, recovery cut at {at}"),
        );
    }
}

#[test]
fn a_crash_after_any_operation_loses_nothing_flushed_and_brings_nothing_back() {
    let mut images = 0;
    for seed in 0..4 {
        let (whole, model) = run(seed, None);
        assert!(model.generation > 1, "seed {seed} truncates too little");
        let mut rng = Rng(seed ^ 0xdead_beef);
        for operation in 0..whole.operations() {
            let (disk, model) = run(seed, Some(operation));
            for survival in 0..4 {
                let image = disk.duplicate();
                if survival == 0 {
                    // Only the process dies: readable is not flushed.
                    image.revive();
                } else {
                    image.crash(&mut || rng.next());
                }
                let context = format!("seed {seed} operation {operation} survival {survival}");
                if survival < 2 {
                    check_crashes_of_recovery(&image, &model, &mut rng, &context);
                }
                check_recovery(&image, &model, &mut rng, &context);
                images += 1;
            }
        }
    }
    assert!(images > 2000, "only {images} images");
}

/// A follower cuts 100..101 of epoch 7 and gets a new 100 of epoch 6 of the same size. After a
/// crash the old 101 must not stand behind it: it would be continuous, with a valid checksum and a
/// rising epoch, and false.
#[test]
fn a_truncated_batch_of_the_same_size_never_comes_back() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let disk = SimDisk::new();
        let mut driver = open(&disk, small()).unwrap();
        let kept = driver.fill(6, 3, 700);
        driver.fill(7, 2, 700);
        driver.truncate(3, 1);
        let new = driver.append(6, 700, 99);
        let stop_at = 1 + rng.below(30);
        let mut flushed = false;
        for _ in 0..stop_at {
            driver.start();
            if driver.in_flight.is_empty() {
                break;
            }
            let event = driver.complete(0).unwrap();
            flushed |= matches!(event, Some(LogEvent::Flushed(_)));
        }
        disk.crash(&mut || rng.next());
        let found = open(&disk, small()).unwrap().read_all();
        if found.len() > 3 && found[3] == new.bytes {
            assert_eq!(
                found.len(),
                4,
                "seed {seed}: an old batch stands behind the new one"
            );
        }
        assert!(found[..3] == common::bytes_of(&kept));
        assert!(
            !flushed || found.get(3) == Some(&new.bytes.to_vec()),
            "seed {seed}"
        );
    }
}
