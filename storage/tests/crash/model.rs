//! What may be found after a crash, by bookkeeping that knows nothing of files.

use crate::common::Rng;
use quorate_raft::ElectionState;
use quorate_storage::LogEvent;

/// What is wrong with what was found.
pub type Violation = String;

/// One batch: the offset after it, its epoch, its bytes.
pub type Batch = (i64, i32, Vec<u8>);

/// One version of the log.
pub type History = Vec<Batch>;

/// See the module.
#[derive(Clone, Default)]
pub struct Model {
    /// Since the last truncation that was reported: before and after each later one.
    pub candidates: Vec<History>,
    /// At least up to here (exclusive).
    pub floor: i64,
    /// What `floor` was before the newest group.
    pub before_newest: i64,
    /// Truncations that were asked for and not reported: the end and the generation of each.
    pub waiting: Vec<(i64, u64)>,
    pub generation: u64,
    /// What quorum-state may say; the last is the newest.
    pub elections: Vec<ElectionState>,
    /// Whoever listens to the log counts what was flushed before a truncation.
    pub counts_old_generations: bool,
}

/// The end of a history and the epoch of its last batch.
pub fn end_of(history: &[Batch]) -> (i64, i32) {
    let last = history.last();
    last.map_or((0, 0), |(end, epoch, _)| (*end, *epoch))
}

impl Model {
    pub fn new(counts_old_generations: bool) -> Self {
        Self {
            candidates: vec![History::new()],
            elections: vec![ElectionState::default()],
            counts_old_generations,
            ..Self::default()
        }
    }

    pub fn current(&mut self) -> &mut History {
        self.candidates.last_mut().unwrap()
    }

    /// A truncation that keeps `keep` batches was asked for. `is_started`: whether the first that
    /// waits is being carried out, as it is not forgotten then.
    pub fn on_truncate(&mut self, keep: usize, is_started: bool) -> i64 {
        let kept = self.current()[..keep].to_vec();
        let end = end_of(&kept).0;
        self.generation += 1;
        // The writer forgets truncations that a later, deeper one makes pointless.
        while let Some((old, _)) = self.waiting.last()
            && *old >= end
            && !(is_started && self.waiting.len() == 1)
        {
            self.waiting.pop();
            self.candidates.pop();
        }
        self.waiting.push((end, self.generation));
        self.floor = self.floor.min(end);
        self.candidates.push(kept);
        end
    }

    pub fn on_event(&mut self, event: &LogEvent) {
        match event {
            LogEvent::Flushed(flushed) => {
                self.before_newest = flushed.located.base_offset.0;
                self.raise(flushed.end_offset.0);
            }
            LogEvent::Truncated {
                generation,
                end_offset,
            } => {
                let mut waiting = self.waiting.iter();
                let done = waiting.position(|(_, waiting)| *waiting == generation.0);
                let done = done.expect("a truncation that was asked for");
                assert_eq!(self.waiting[done].0, end_offset.0);
                self.waiting.drain(..=done);
                self.candidates.drain(..=done);
                self.floor = 0;
                self.raise(end_offset.0);
            }
            LogEvent::Closed => {}
        }
    }

    /// All below `end` is durable, but for what a truncation that waits takes away.
    fn raise(&mut self, end: i64) {
        let cut = self.waiting.iter().map(|(end, _)| *end).min();
        self.floor = match cut {
            Some(cut) if !self.counts_old_generations => end.min(cut),
            _ => end,
        };
    }

    /// Whether `found` may be all there is.
    pub fn check(&self, found: &[Vec<u8>]) -> Result<(), Violation> {
        let is_prefix = |history: &&History| {
            found.len() <= history.len()
                && found
                    .iter()
                    .zip(history.iter())
                    .all(|(found, (_, _, bytes))| found == bytes)
        };
        let Some(history) = self.candidates.iter().rev().find(is_prefix) else {
            let count = found.len();
            return Err(format!("{count} batches are no prefix of what was written"));
        };
        let end = end_of(&history[..found.len()]).0;
        if end < self.floor {
            return Err(format!("flushed to {}, found {end}", self.floor));
        }
        if self.counts_old_generations {
            self.check_acknowledged(found)?;
        }
        Ok(())
    }

    /// What a listener that mixes generations up has acknowledged of the newest history.
    fn check_acknowledged(&self, found: &[Vec<u8>]) -> Result<(), Violation> {
        let newest = self.candidates.last().unwrap();
        let acknowledged = newest.iter().filter(|(end, _, _)| *end <= self.floor);
        for (index, (end, _, bytes)) in acknowledged.enumerate() {
            if found.get(index) != Some(bytes) {
                return Err(format!("the batch before {end} was acknowledged"));
            }
        }
        Ok(())
    }

    pub fn check_election(&self, found: &ElectionState) -> Result<(), Violation> {
        if self.elections.contains(found) {
            return Ok(());
        }
        let may = &self.elections;
        Err(format!("quorum-state says {found:?}, may say {may:?}"))
    }

    /// The process starts again and finds this: from now on it is durable.
    pub fn on_start(&mut self, found: &[Vec<u8>], election: ElectionState) {
        let history = self.candidates.iter().rev().find(|history| {
            found.len() <= history.len() && found.iter().zip(*history).all(|(a, (_, _, b))| a == b)
        });
        let history = history.expect("checked before")[..found.len()].to_vec();
        self.floor = end_of(&history).0;
        self.candidates = vec![history];
        self.waiting.clear();
        self.generation = 0;
        self.elections = vec![election];
    }
}

/// Everything by chance from one number, which stands in every message.
pub fn rng(seed: u64, purpose: u64) -> Rng {
    let mut rng = Rng(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    rng.next();
    rng
}
