//! Workloads: what a node asks of its log, step by step, and a run of them on a disk that may stop
//! at any operation.

use crate::common::{Rng, batch, config, dir, log_path};
use crate::disk::{Mistake, TestDisk};
use crate::host::{Host, VOTERS, start};
use crate::model::{Model, Violation, end_of, rng};
use quorate_raft::{ElectionState, Epoch, Generation, Offset, ReplicaKey};
use quorate_storage::{LogConfig, LogEvent, StorageError, write_quorum_state};

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A batch of `size` bytes, of the last batch's epoch or the next. What quorum-state must say
    /// before is written first.
    Append { size: usize, is_next_epoch: bool },
    /// All but the last so many batches are kept.
    TruncateBack(usize),
    /// The log is cut to where its last segment begins that holds batches.
    TruncateToSegment,
    /// So many steps of what is under way, by chance.
    Advance(usize),
    /// Everything is carried out.
    Settle,
    /// A vote in the epoch that is known.
    Vote(i32),
    /// The process dies and starts again; the disk goes on.
    Kill,
    /// A clean stop.
    Close,
    /// A clean stop, and a start.
    Restart,
}

use Step::{Advance, Append, Close, Kill, Restart, Settle, TruncateBack, TruncateToSegment, Vote};

/// A workload and the chance in it.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: String,
    pub seed: u64,
    pub steps: Vec<Step>,
}

/// Small segments, so that they are rolled often.
pub fn small() -> LogConfig {
    config(16 * 1024)
}

fn same(size: usize) -> Step {
    Append {
        size,
        is_next_epoch: false,
    }
}

fn next(size: usize) -> Step {
    Append {
        size,
        is_next_epoch: true,
    }
}

impl Script {
    fn new(name: &str, seed: u64, steps: Vec<Step>) -> Self {
        Self {
            name: format!("{name}, seed {seed:#x}"),
            seed,
            steps,
        }
    }

    /// Batches of one size, a whole number of sectors, in three epochs, cut and written again: old
    /// and new ones can be mistaken for each other wherever they stand.
    pub fn equal_sizes(seed: u64, size: usize) -> Self {
        let mut steps = vec![next(size), same(size), same(size), Settle];
        for _ in 0..2 {
            steps.extend([next(size), same(size), Advance(6), same(size), Settle]);
            steps.extend([TruncateBack(2), same(size), Advance(9), next(size)]);
            steps.extend([Settle, TruncateToSegment, next(size), same(size), Settle]);
        }
        steps.extend([Kill, same(size), Advance(5), TruncateBack(1), same(size)]);
        steps.extend([Advance(12), Kill, next(size), Settle]);
        Self::new(&format!("equal batches of {size} bytes"), seed, steps)
    }

    /// Segments that fill up, one batch larger than any, a clean stop and a vote in between.
    pub fn rolls(seed: u64) -> Self {
        let mut steps = Vec::new();
        for size in [5000, 7000, 4000, 384, 9000, 8192, 8191, 700, 20_000, 61] {
            let size = size.max(100);
            steps.extend([same(size), Advance(5), Vote(1 + (size % 3) as i32)]);
        }
        steps.extend([Settle, next(8192), Advance(4), Restart, same(4096), Settle]);
        steps.extend([TruncateBack(5), Advance(3), next(700), Settle, Restart]);
        steps.extend([next(3000), Kill, same(16_384), same(4096), Advance(8)]);
        Self::new("rolls", seed, steps)
    }

    /// The same, and all of it flushed in the end.
    pub fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.steps.push(Settle);
        settled
    }

    /// The same in one life.
    pub fn without_starts(mut self) -> Self {
        self.steps.retain(|step| !matches!(step, Kill | Restart));
        self
    }

    /// The same, and a clean stop in the end.
    pub fn closed(&self) -> Self {
        let mut closed = self.clone();
        closed.steps.push(Close);
        closed
    }

    /// Truncations while a group that they cut off is on its way, in each of its steps.
    pub fn overtaken(seed: u64) -> Self {
        let mut steps = vec![next(1024), same(1024), Settle];
        for count in 1..9 {
            steps.extend([same(1024), same(700), Advance(count), TruncateBack(2)]);
            steps.extend([next(1024), same(700), Advance(count), Settle]);
        }
        Self::new("truncations of what is in flight", seed, steps)
    }

    /// Anything.
    pub fn chance(seed: u64) -> Self {
        let mut rng = rng(seed, 1);
        let usual = [512, 700, 1024, 4096][rng.below(4)];
        let steps = (0..90)
            .map(|_| match rng.below(100) {
                0..40 => {
                    let size = match rng.below(8) {
                        0 => 100 + rng.below(6000),
                        1 => 9000,
                        _ => usual,
                    };
                    Append {
                        size,
                        is_next_epoch: rng.chance(10),
                    }
                }
                40..80 => Advance(1 + rng.below(10)),
                80..86 => Settle,
                86..92 => TruncateBack(1 + rng.below(6)),
                92..94 => TruncateToSegment,
                94..96 => Vote(1 + rng.below(3) as i32),
                96..98 => Kill,
                _ => Restart,
            })
            .collect();
        Self::new("by chance", seed, steps)
    }
}

/// Where a workload ended.
pub struct Ran {
    pub disk: TestDisk,
    pub model: Model,
}

/// A run of a script.
struct Run {
    host: Host,
    model: Model,
    rng: Rng,
    tag: u64,
}

/// Why a run goes on no more.
enum Stop {
    /// The disk stopped, as it was told to.
    Disk,
    Violation(Violation),
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Self::Violation(error.to_string())
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Runs `script` on a new disk that stops after operation `crash_after`.
pub fn run(
    script: &Script,
    mistake: Option<Mistake>,
    crash_after: Option<u64>,
) -> Result<Ran, Violation> {
    let disk = TestDisk::new(mistake);
    if let Some(operation) = crash_after {
        disk.sim.crash_after(operation);
    }
    let (model, stopped) = run_on(script, &disk);
    match stopped {
        Some(text) if !disk.sim.is_crashed() => Err(format!("{}: {text}", script.name)),
        _ => Ok(Ran { disk, model }),
    }
}

/// Most of the time would go into handing memory back to the kernel and asking for it again. An
/// allocator like glibc's keeps as much at hand as was once freed at a time.
fn keep_freed_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| drop(std::hint::black_box(vec![1_u8; 16 << 20])));
}

/// Runs `script` on `disk` until it is over or something stops it, and says what.
pub fn run_on(script: &Script, disk: &TestDisk) -> (Model, Option<String>) {
    keep_freed_memory();
    let mut model = Model::new(disk.mistake == Some(Mistake::OldGenerationCounts));
    let host = match start(disk, &small()) {
        Ok(host) => host,
        Err(text) => return (model, Some(text)),
    };
    model.elections = vec![host.election];
    let mut run = Run {
        host,
        model,
        rng: rng(script.seed, 2),
        tag: script.seed << 32,
    };
    for step in &script.steps {
        match run.step(*step) {
            Ok(()) => {}
            Err(Stop::Disk) => return (run.model, Some("the disk stopped".into())),
            Err(Stop::Violation(text)) => return (run.model, Some(text)),
        }
    }
    (run.model, None)
}

impl Run {
    fn step(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Append {
                size,
                is_next_epoch,
            } => self.append(size, is_next_epoch),
            TruncateBack(count) => {
                let keep = self.model.current().len().saturating_sub(count);
                self.truncate(keep);
                Ok(())
            }
            TruncateToSegment => {
                let keep = self.batches_before_last_segment();
                self.truncate(keep);
                Ok(())
            }
            Advance(count) => (0..count).try_for_each(|_| self.advance().map(|_| ())),
            Settle => self.settle(),
            Vote(id) => {
                let voted = ReplicaKey {
                    id: VOTERS[id as usize - 1],
                    directory_id: Default::default(),
                };
                let last = *self.model.elections.last().unwrap();
                self.persist(ElectionState {
                    voted: Some(voted),
                    ..last
                })
            }
            Kill => self.start_again(),
            Close => self.close(),
            Restart => {
                self.close()?;
                self.start_again()
            }
        }
    }

    fn append(&mut self, size: usize, is_next_epoch: bool) -> Result<(), Stop> {
        let (end, last_epoch) = end_of(self.model.current());
        let epoch = last_epoch.max(1) + i32::from(is_next_epoch && last_epoch > 0);
        if self.model.elections.last().unwrap().epoch < Epoch(epoch) {
            self.persist(ElectionState {
                epoch: Epoch(epoch),
                ..ElectionState::default()
            })?;
        }
        self.tag += 1;
        let batch = batch(Offset(end), Epoch(epoch), size, self.tag);
        let entry = (end + 1, epoch, batch.bytes.to_vec());
        self.host.writer.append(batch);
        self.model.current().push(entry);
        Ok(())
    }

    fn truncate(&mut self, keep: usize) {
        let is_started = self.host.is_truncating();
        let end = self.model.on_truncate(keep, is_started);
        let generation = Generation(self.model.generation);
        self.host.writer.truncate(Offset(end), generation);
    }

    /// How many batches of the log lie before the last segment that is not at its end.
    fn batches_before_last_segment(&mut self) -> usize {
        let history = self.model.current().clone();
        let end = end_of(&history).0;
        let is_base = |base: &i64| self.host.disk.sim.content(&log_path(*base)).is_some();
        let base = (0..end).rev().find(is_base).unwrap_or(0);
        history.iter().filter(|(end, _, _)| *end <= base).count()
    }

    fn persist(&mut self, election: ElectionState) -> Result<(), Stop> {
        self.model.elections.push(election);
        let written = write_quorum_state(&self.host.disk, &dir(), &election, &VOTERS);
        written.map_err(|error| Stop::Violation(error.to_string()))?;
        self.model.elections = vec![election];
        Ok(())
    }

    /// One step of what is under way; whether there was any.
    fn advance(&mut self) -> Result<bool, Stop> {
        let Some(stepped) = self.host.step(&mut self.rng) else {
            return Ok(false);
        };
        if let Some(event) = stepped? {
            self.on_event(&event);
        }
        // A job notices at its end only.
        if self.host.disk.sim.is_crashed() {
            return Err(Stop::Disk);
        }
        Ok(true)
    }

    fn on_event(&mut self, event: &LogEvent) {
        self.model.on_event(event);
    }

    fn settle(&mut self) -> Result<(), Stop> {
        while self.advance()? {}
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        self.settle()?;
        self.host.close();
        self.settle()
    }

    /// What was under way is gone; what the disk has is found.
    fn start_again(&mut self) -> Result<(), Stop> {
        let disk = self.host.disk.clone();
        self.host = start(&disk, &small())?;
        let found = check_found(&self.host, &self.model)?;
        self.model.on_start(&found, self.host.election);
        Ok(())
    }
}

/// Whether what a start found may be there, in itself and by the model. Gives the batches.
pub fn check_found(host: &Host, model: &Model) -> Result<Vec<Vec<u8>>, Violation> {
    let found = host.read_all()?;
    model.check(&found)?;
    model.check_election(&host.election)?;
    let mut epochs: Vec<(i32, i64)> = Vec::new();
    let mut end = 0;
    for bytes in &found {
        let header = quorate_storage::format::BatchHeader::parse_whole(bytes)
            .map_err(|error| error.to_string())?;
        if epochs.last().is_none_or(|last| last.0 < header.epoch.0) {
            epochs.push((header.epoch.0, header.base_offset.0));
        }
        end = header.end_offset().0;
    }
    if host.epochs != epochs {
        let said = &host.epochs;
        return Err(format!("the batches have {epochs:?}, it says {said:?}"));
    }
    if host.log_end != end {
        let said = host.log_end;
        return Err(format!("the batches end at {end}, it says {said}"));
    }
    Ok(found)
}
