//! What the protocol must know of the local log: where it starts and ends, how much of it is
//! flushed, and where its epochs start.
//!
//! It never touches records: whoever drives the core appends and cuts what is decided here.

use crate::config::{EpochStart, LogState};
use crate::output::Generation;
use crate::types::{Epoch, Offset, OffsetAndEpoch};
use alloc::vec::Vec;

/// How a fetch position relates to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchPosition {
    /// The fetcher's log is a prefix of this one.
    Valid,
    /// It is not: the largest epoch here that is not above the fetcher's, and its end.
    Diverging(OffsetAndEpoch),
    /// The position lies before the log start.
    BelowStart,
}

/// The log, without its records.
#[derive(Clone, Debug)]
pub(crate) struct LogView {
    start: Offset,
    /// Log end offset (exclusive). Invariant: start <= flushed <= end.
    end: Offset,
    /// Exclusive. Raised only by flush reports of the current generation.
    flushed: Offset,
    generation: Generation,
    /// A truncation has been asked for and not been reported yet.
    truncating: bool,
    /// Ascending in epoch and in offset, the last start below `end`.
    epochs: Vec<EpochStart>,
}

impl LogView {
    /// # Panics
    /// If the recovered state contradicts itself.
    pub(crate) fn new(log: LogState) -> Self {
        let view = Self {
            start: log.start_offset,
            end: log.end_offset,
            flushed: log.end_offset,
            generation: Generation(0),
            truncating: false,
            epochs: log.epochs,
        };
        view.check_invariants();
        view
    }

    pub(crate) fn start(&self) -> Offset {
        self.start
    }

    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    pub(crate) fn flushed(&self) -> Offset {
        self.flushed
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn epochs(&self) -> &[EpochStart] {
        &self.epochs
    }

    /// Epoch of the last record; 0 for an empty log.
    pub(crate) fn last_epoch(&self) -> Epoch {
        self.epochs.last().map_or(Epoch(0), |entry| entry.epoch)
    }

    /// The log end with its epoch, as a Vote compares it.
    pub(crate) fn end_position(&self) -> OffsetAndEpoch {
        OffsetAndEpoch {
            offset: self.end,
            epoch: self.last_epoch(),
        }
    }

    /// The flushed end with its epoch: what this replica may acknowledge. `None` while a truncation
    /// is on its way.
    pub(crate) fn flushed_position(&self) -> Option<OffsetAndEpoch> {
        if self.truncating {
            return None;
        }
        let below = self
            .epochs
            .partition_point(|e| e.start_offset < self.flushed);
        let epoch = below.checked_sub(1).map(|index| self.epochs[index].epoch);
        Some(OffsetAndEpoch {
            offset: self.flushed,
            epoch: epoch.unwrap_or_default(),
        })
    }

    /// Whether everything in the log is on stable storage, truncations included.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.truncating && self.flushed == self.end
    }

    /// Whether a log that ends at `other` has everything that this one has, so far as a vote can
    /// tell: epoch first, then offset (KIP-595, Vote).
    pub(crate) fn is_no_longer_than(&self, other: OffsetAndEpoch) -> bool {
        (other.epoch, other.offset) >= (self.last_epoch(), self.end)
    }

    /// Adds records up to `end` (exclusive) of `epoch` and returns their base offset.
    ///
    /// # Panics
    /// If nothing is added or the epoch goes back: the states check before they append.
    pub(crate) fn append_to(&mut self, end: Offset, epoch: Epoch) -> Offset {
        let base = self.end;
        assert!(end > base, "append of nothing: end {end} at {base}");
        assert!(
            epoch >= self.last_epoch(),
            "append of epoch {epoch} after {}",
            self.last_epoch()
        );
        if self.epochs.is_empty() || epoch > self.last_epoch() {
            self.epochs.push(EpochStart {
                epoch,
                start_offset: base,
            });
        }
        self.end = end;
        base
    }

    /// The largest epoch not above `epoch` and where it ends. An epoch above all gives the log end;
    /// one below all gives the place where the first epoch starts, under the epoch asked for
    /// (Kafka `LeaderEpochFileCache.endOffsetFor`).
    pub(crate) fn end_offset_for_epoch(&self, epoch: Epoch) -> OffsetAndEpoch {
        let above = self.epochs.partition_point(|entry| entry.epoch <= epoch);
        let Some(next) = self.epochs.get(above) else {
            return self.end_position();
        };
        let floor = above.checked_sub(1).map(|index| self.epochs[index].epoch);
        OffsetAndEpoch {
            offset: next.start_offset.max(self.start),
            epoch: floor.unwrap_or(epoch),
        }
    }

    /// Whether a log that ends at `position` is a prefix of this one (KIP-595, Fetch, step 2). An
    /// offset beyond the end diverges as well: the answer then leads back to the end.
    pub(crate) fn validate(&self, position: OffsetAndEpoch) -> FetchPosition {
        if position.offset == Offset(0) && self.start == Offset(0) {
            return FetchPosition::Valid;
        }
        if position.offset < self.start {
            return FetchPosition::BelowStart;
        }
        let end = self.end_offset_for_epoch(position.epoch);
        if end.epoch == position.epoch && end.offset >= position.offset {
            FetchPosition::Valid
        } else {
            FetchPosition::Diverging(end)
        }
    }

    /// Where to cut when the leader's largest common epoch ends at `diverging`
    /// (Kafka `ReplicatedLog.truncateToEndOffset`).
    pub(crate) fn truncation_offset(&self, diverging: OffsetAndEpoch) -> Offset {
        if diverging.epoch == Epoch(0) {
            return diverging.offset.min(self.end);
        }
        let local = self.end_offset_for_epoch(diverging.epoch);
        if local.epoch == diverging.epoch {
            local.offset.min(diverging.offset)
        } else {
            local.offset
        }
    }

    /// Cuts the log to `end` and begins a generation: flush reports count again from the first one
    /// that carries it.
    ///
    /// # Panics
    /// If there is nothing to cut or the log start would be passed.
    pub(crate) fn truncate_to(&mut self, end: Offset) -> Generation {
        assert!(
            end < self.end,
            "truncation to {end} of a log to {}",
            self.end
        );
        assert!(
            end >= self.start,
            "truncation to {end} below {}",
            self.start
        );
        self.end = end;
        self.flushed = self.flushed.min(end);
        let kept = self.epochs.partition_point(|e| e.start_offset < end);
        self.epochs.truncate(kept);
        self.generation.0 += 1;
        self.truncating = true;
        self.generation
    }

    /// Takes a flush report; one of an older generation says nothing about this log. Returns
    /// whether it said anything.
    ///
    /// # Panics
    /// If it reports more than was ever appended.
    pub(crate) fn on_flushed(&mut self, generation: Generation, end: Offset) -> bool {
        if generation != self.generation {
            return false;
        }
        assert!(end <= self.end, "flushed to {end} of a log to {}", self.end);
        self.truncating = false;
        self.flushed = self.flushed.max(end);
        true
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.start >= Offset(0), "log start {}", self.start);
        assert!(
            self.start <= self.flushed && self.flushed <= self.end,
            "start {}, flushed {}, end {}",
            self.start,
            self.flushed,
            self.end
        );
        for pair in self.epochs.windows(2) {
            assert!(
                pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset,
                "epochs out of order: {pair:?}"
            );
        }
        if let Some(last) = self.epochs.last() {
            assert!(last.start_offset < self.end, "{last:?} at {}", self.end);
        }
        assert!(
            self.start == self.end || !self.epochs.is_empty(),
            "records without an epoch"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn log(epochs: &[(i32, i64)], end: i64) -> LogView {
        LogView::new(LogState {
            start_offset: Offset(0),
            end_offset: Offset(end),
            epochs: epochs
                .iter()
                .map(|&(epoch, start)| EpochStart {
                    epoch: Epoch(epoch),
                    start_offset: Offset(start),
                })
                .collect(),
        })
    }

    fn at(offset: i64, epoch: i32) -> OffsetAndEpoch {
        OffsetAndEpoch {
            offset: Offset(offset),
            epoch: Epoch(epoch),
        }
    }

    #[test]
    fn end_offset_for_epoch_names_the_largest_epoch_not_above() {
        let log = log(&[(1, 0), (3, 10), (6, 15)], 20);
        assert_eq!(log.end_offset_for_epoch(Epoch(0)), at(0, 0));
        assert_eq!(log.end_offset_for_epoch(Epoch(1)), at(10, 1));
        assert_eq!(log.end_offset_for_epoch(Epoch(2)), at(10, 1));
        assert_eq!(log.end_offset_for_epoch(Epoch(5)), at(15, 3));
        assert_eq!(log.end_offset_for_epoch(Epoch(6)), at(20, 6));
        assert_eq!(log.end_offset_for_epoch(Epoch(9)), at(20, 6));
    }

    #[test]
    fn empty_log_is_a_prefix_of_every_log() {
        let ours = log(&[(1, 0)], 5);
        assert_eq!(ours.validate(at(0, 0)), FetchPosition::Valid);
        let empty = log(&[], 0);
        assert_eq!(empty.validate(at(0, 0)), FetchPosition::Valid);
        assert_eq!(empty.validate(at(3, 2)), FetchPosition::Diverging(at(0, 0)));
    }

    #[test]
    fn fetch_position_diverges_by_epoch_or_beyond_the_epoch_end() {
        let log = log(&[(1, 0), (3, 10), (6, 15)], 20);
        assert_eq!(log.validate(at(10, 1)), FetchPosition::Valid);
        assert_eq!(log.validate(at(11, 1)), FetchPosition::Diverging(at(10, 1)));
        assert_eq!(log.validate(at(13, 2)), FetchPosition::Diverging(at(10, 1)));
        assert_eq!(log.validate(at(21, 6)), FetchPosition::Diverging(at(20, 6)));
        let far = log.validate(at(i64::MAX, 6));
        assert_eq!(far, FetchPosition::Diverging(at(20, 6)));
    }

    #[test]
    fn epoch_that_the_follower_never_had_cuts_to_its_own_previous_epoch() {
        let follower = log(&[(1, 0), (2, 10), (4, 13)], 21);
        assert_eq!(follower.truncation_offset(at(15, 3)), Offset(13));
        assert_eq!(follower.truncation_offset(at(10, 1)), Offset(10));
        assert_eq!(follower.truncation_offset(at(5, 1)), Offset(5));
        assert_eq!(follower.truncation_offset(at(7, 0)), Offset(7));
    }

    /// Two logs that share a beginning and went on under different leaders reconcile, in at most as
    /// many rounds as the follower has epochs, and lose nothing of what they share.
    #[test]
    fn random_logs_reconcile_to_their_common_prefix() {
        let mut rng = Rng::new(11);
        for _ in 0..3_000 {
            let shared = extended(&mut rng, &[], 1, 1);
            let base = shared.last().copied().unwrap_or(0);
            let leader = log_of(&extended(&mut rng, &shared, base + 1, 2));
            // The follower may also have more of the last shared epoch than the leader.
            let first = base + if base > 0 && rng.below(2) == 0 { 0 } else { 2 };
            let mut follower = log_of(&extended(&mut rng, &shared, first, 2));
            let mut rounds = 0;
            while let FetchPosition::Diverging(end) = leader.validate(follower.end_position()) {
                rounds += 1;
                assert!(rounds <= 14, "no progress");
                follower.truncate_to(follower.truncation_offset(end));
            }
            let position = follower.end_position();
            assert_eq!(leader.validate(position), FetchPosition::Valid);
            assert!(position.offset >= Offset(i64::try_from(shared.len()).unwrap()));
        }
    }

    /// The epochs of the records of a log, one each: `prefix` and up to 12 records more, whose
    /// epochs start at `first` and rise in steps of `step`.
    fn extended(rng: &mut Rng, prefix: &[i32], first: i32, step: i32) -> Vec<i32> {
        let mut epochs = prefix.to_vec();
        let mut epoch = first;
        for _ in 0..rng.below(12) {
            epochs.push(epoch);
            epoch += step * i32::try_from(rng.below(3)).unwrap();
        }
        epochs
    }

    fn log_of(record_epochs: &[i32]) -> LogView {
        let mut view = log(&[], 0);
        for &epoch in record_epochs {
            view.append_to(Offset(view.end.0 + 1), Epoch(epoch));
        }
        view
    }

    #[test]
    fn late_flush_of_an_older_generation_acknowledges_nothing() {
        let mut log = log(&[(1, 0)], 4);
        log.append_to(Offset(6), Epoch(1));
        let generation = log.truncate_to(Offset(5));
        log.append_to(Offset(9), Epoch(2));
        assert!(!log.on_flushed(Generation(0), Offset(6)));
        assert_eq!(log.flushed(), Offset(4));
        assert_eq!(log.flushed_position(), None);
        assert!(log.on_flushed(generation, Offset(5)));
        assert_eq!(log.flushed_position(), Some(at(5, 1)));
        assert!(!log.is_flushed());
        assert!(log.on_flushed(generation, Offset(9)));
        assert!(log.is_flushed());
        assert_eq!(log.flushed_position(), Some(at(9, 2)));
    }

    #[test]
    fn truncation_takes_the_epochs_that_start_in_the_cut_part() {
        let mut log = log(&[(1, 0), (3, 10), (6, 15)], 20);
        log.truncate_to(Offset(10));
        assert_eq!(log.end_position(), at(10, 1));
        assert_eq!(log.epochs().len(), 1);
        log.truncate_to(Offset(0));
        assert_eq!(log.end_position(), at(0, 0));
        log.check_invariants();
    }

    #[test]
    fn vote_compares_epoch_first_and_then_offset() {
        let log = log(&[(1, 0), (3, 10)], 12);
        assert!(log.is_no_longer_than(at(12, 3)));
        assert!(log.is_no_longer_than(at(1, 4)));
        assert!(!log.is_no_longer_than(at(11, 3)));
        assert!(!log.is_no_longer_than(at(99, 2)));
    }

    #[test]
    fn position_below_the_log_start_is_named() {
        let log = LogView::new(LogState {
            start_offset: Offset(10),
            end_offset: Offset(12),
            epochs: [EpochStart {
                epoch: Epoch(3),
                start_offset: Offset(10),
            }]
            .to_vec(),
        });
        assert_eq!(log.validate(at(9, 3)), FetchPosition::BelowStart);
        assert_eq!(log.validate(at(10, 3)), FetchPosition::Valid);
        assert_eq!(log.validate(at(11, 2)), FetchPosition::Diverging(at(10, 2)));
    }
}
