//! What the log knows of idempotent producers: who wrote which sequence numbers last, and where.
//!
//! A pure function of the log's batches, observed in order; leader and followers keep the same. It
//! tells a new batch from one that is there already and from one whose predecessor is missing
//! (Kafka: `ProducerStateManager`, `ProducerAppendInfo`). It appends nothing, reads no clock and
//! cannot undo: after a truncation it is made anew from the log.
//!
//! Bounded: of more than [`ProducerLimits::ids_max`] producers the one whose last batch is oldest
//! is forgotten, and so is one that was silent for [`ProducerLimits::expiration_ms`]. Once anybody
//! was forgotten, a producer that is not known may go on at any sequence number, as in Kafka;
//! before that it must begin at 0, since what is missing is then known to be missing.

use crate::format::BatchHeader;
use quorate_raft::{ErrorCode, Instant, Offset};
use std::collections::HashMap;

mod stored;

pub(crate) use stored::PRODUCERS_FILE_BYTES_MAX;
pub use stored::ProducerSnapshot;

/// Batches of one producer that can be told to be duplicates, as many as it may have in flight
/// (Kafka: `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const BATCHES_KEPT: usize = 5;

/// Numbers that are remembered to be known, at most: half of all, so that a number ahead of the
/// last one is never taken for one behind it.
const KNOWN_MAX: i64 = 1 << 30;

/// No slot: the end of the list.
const NIL: u32 = u32::MAX;

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerLimits {
    /// Producers, at least 1; some 200 bytes each.
    pub ids_max: usize,
    /// Silence after which a producer is forgotten, in ms.
    pub expiration_ms: u64,
}

impl Default for ProducerLimits {
    /// 65,536 producers, and a day as in Kafka (`producer.id.expiration.ms`).
    fn default() -> Self {
        Self {
            ids_max: 65_536,
            expiration_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// A batch as its producer numbers it. Sequence numbers go from 0 to 2^31 - 1 and around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// Not negative.
    pub producer_id: i64,
    /// Not negative; a producer raises it to begin again at sequence 0.
    pub producer_epoch: i16,
    /// Sequence number of the first record.
    pub first_sequence: i32,
    /// Sequence number of the last record.
    pub last_sequence: i32,
}

impl ProducerBatch {
    /// The numbers of a batch; `None` if its producer is not idempotent, or the batch is the log's
    /// own.
    #[must_use]
    pub fn of(header: &BatchHeader) -> Option<Self> {
        let is_numbered = header.producer_id >= 0
            && header.producer_epoch >= 0
            && header.base_sequence >= 0
            && !header.is_control();
        is_numbered.then(|| Self {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            first_sequence: header.base_sequence,
            last_sequence: sequence_after(header.base_sequence, header.last_offset_delta),
        })
    }

    /// Records in it.
    fn count(&self) -> i64 {
        i64::from(steps(self.first_sequence, self.last_sequence)) + 1
    }
}

/// The sequence number `count` behind `sequence` (Kafka: `DefaultRecordBatch.incrementSequence`).
#[must_use]
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

/// How many numbers `to` is behind `from`, going up and around: 0 to 2^31 - 1.
fn steps(from: i32, to: i32) -> i32 {
    to.wrapping_sub(from) & i32::MAX
}

/// What a batch that is no fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// The next one: append it.
    Next,
    /// It is there already, here.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Behind its last record.
        end_offset: Offset,
    },
    /// It was appended somewhere below this offset; where exactly is no longer known.
    Older {
        /// Exclusive.
        below: Offset,
    },
}

/// Why a batch must not be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// Batches before it are missing, or it overlaps with what is there.
    #[error("producer {producer_id} sent sequence number {found} where {expected} comes next")]
    OutOfOrder {
        /// Whose.
        producer_id: i64,
        /// What would be next.
        expected: i32,
        /// What came.
        found: i32,
    },
    /// A newer instance of the producer is at work.
    #[error("producer {producer_id} sent epoch {found} after epoch {current}")]
    OldEpoch {
        /// Whose.
        producer_id: i64,
        /// Its newest epoch.
        current: i16,
        /// What came.
        found: i16,
    },
}

impl SequenceError {
    /// What the producer is told.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::OutOfOrder { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            Self::OldEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        }
    }
}

/// One of a producer's last batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    first: i32,
    last: i32,
    base: Offset,
}

impl Kept {
    fn end(&self) -> Offset {
        Offset(self.base.0 + i64::from(steps(self.first, self.last)) + 1)
    }
}

/// What is known of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
    /// Oldest first; `kept_count` of them.
    kept: [Kept; BATCHES_KEPT],
    /// 1 to [`BATCHES_KEPT`].
    kept_count: usize,
    /// Sequence numbers of this epoch that are known to be in the log, back from the last one
    /// without a gap; at most [`KNOWN_MAX`].
    known: i64,
}

impl Producer {
    fn new(batch: &ProducerBatch, base: Offset) -> Self {
        let mut producer = Self {
            id: batch.producer_id,
            epoch: batch.producer_epoch,
            kept: [Kept::default(); BATCHES_KEPT],
            kept_count: 0,
            known: 0,
        };
        producer.add(batch, base);
        producer
    }

    fn add(&mut self, batch: &ProducerBatch, base: Offset) {
        if self.kept_count == BATCHES_KEPT {
            self.kept.rotate_left(1);
            self.kept_count -= 1;
        }
        self.kept[self.kept_count] = Kept {
            first: batch.first_sequence,
            last: batch.last_sequence,
            base,
        };
        self.kept_count += 1;
        self.known = (self.known + batch.count()).min(KNOWN_MAX);
    }

    fn kept(&self) -> &[Kept] {
        &self.kept[..self.kept_count]
    }

    fn next_sequence(&self) -> i32 {
        sequence_after(self.kept[self.kept_count - 1].last, 1)
    }

    /// Whether `batch` follows without a gap.
    fn continues(&self, batch: &ProducerBatch) -> bool {
        self.epoch == batch.producer_epoch && self.next_sequence() == batch.first_sequence
    }

    fn check(&self, batch: &ProducerBatch) -> Result<SequenceCheck, SequenceError> {
        let (producer_id, found) = (self.id, batch.producer_epoch);
        if found < self.epoch {
            let current = self.epoch;
            return Err(SequenceError::OldEpoch {
                producer_id,
                current,
                found,
            });
        }
        if found > self.epoch {
            return must_begin(batch);
        }
        if self.continues(batch) {
            return Ok(SequenceCheck::Next);
        }
        self.find(batch).ok_or(SequenceError::OutOfOrder {
            producer_id,
            expected: self.next_sequence(),
            found: batch.first_sequence,
        })
    }

    /// Where a batch that is not the next one is, if it is there for certain.
    fn find(&self, batch: &ProducerBatch) -> Option<SequenceCheck> {
        let same =
            |kept: &&Kept| (kept.first, kept.last) == (batch.first_sequence, batch.last_sequence);
        if let Some(kept) = self.kept().iter().find(same) {
            return Some(SequenceCheck::Duplicate {
                base_offset: kept.base,
                end_offset: kept.end(),
            });
        }
        let last = self.kept[self.kept_count - 1].last;
        // Numbers from the batch's first to the last known one: all of them known, and the batch
        // itself before the oldest that is kept.
        let back = i64::from(steps(batch.first_sequence, last)) + 1;
        let kept_back = i64::from(steps(self.kept[0].first, last)) + 1;
        let is_older = back <= self.known && back - batch.count() >= kept_back;
        is_older.then_some(SequenceCheck::Older {
            below: self.kept[0].base,
        })
    }
}

/// A producer that begins does so at sequence number 0.
fn must_begin(batch: &ProducerBatch) -> Result<SequenceCheck, SequenceError> {
    if batch.first_sequence == 0 {
        return Ok(SequenceCheck::Next);
    }
    Err(SequenceError::OutOfOrder {
        producer_id: batch.producer_id,
        expected: 0,
        found: batch.first_sequence,
    })
}

/// A producer in its place in the order of last batches.
#[derive(Clone, Debug)]
struct Slot {
    producer: Producer,
    /// When its last batch was observed here.
    seen: Instant,
    older: u32,
    newer: u32,
}

/// All producers that are remembered.
#[derive(Clone, Debug)]
pub struct ProducerStates {
    limits: ProducerLimits,
    slots: Vec<Slot>,
    by_id: HashMap<i64, u32>,
    oldest: u32,
    newest: u32,
    has_forgotten: bool,
}

impl ProducerStates {
    /// Those of a log that begins at `log_start` and has no batch yet. What was written before a
    /// later start is not known.
    ///
    /// # Panics
    /// If `limits` allow no producer at all.
    #[must_use]
    pub fn new(limits: ProducerLimits, log_start: Offset) -> Self {
        assert!(
            limits.ids_max > 0 && limits.ids_max < NIL as usize,
            "a bound of {} producers",
            limits.ids_max
        );
        Self {
            limits,
            slots: Vec::new(),
            by_id: HashMap::new(),
            oldest: NIL,
            newest: NIL,
            has_forgotten: log_start > Offset(0),
        }
    }

    /// The same limits for the same log, before its first batch.
    pub fn clear(&mut self, log_start: Offset) {
        *self = Self::new(self.limits, log_start);
    }

    /// Producers that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether this id is in use.
    #[must_use]
    pub fn knows(&self, producer_id: i64) -> bool {
        self.by_id.contains_key(&producer_id)
    }

    /// Judges a batch that a producer sends.
    ///
    /// # Errors
    /// If it must not be appended, and is not known to be there.
    pub fn check(
        &mut self,
        now: Instant,
        batch: &ProducerBatch,
    ) -> Result<SequenceCheck, SequenceError> {
        self.expire(now);
        match self.by_id.get(&batch.producer_id) {
            Some(&index) => self.slots[index as usize].producer.check(batch),
            None if self.has_forgotten => Ok(SequenceCheck::Next),
            None => must_begin(batch),
        }
    }

    /// A batch was appended at `base_offset`. All batches, in order.
    ///
    /// One that does not follow (in a log that Kafka wrote, or of a producer that was forgotten)
    /// begins the producer's state anew: nothing is claimed of what lies before it.
    pub fn observe(&mut self, now: Instant, header: &BatchHeader) {
        let Some(batch) = ProducerBatch::of(header) else {
            return;
        };
        self.expire(now);
        let base = header.base_offset;
        let index = match self.by_id.get(&batch.producer_id) {
            Some(&index) => {
                self.unlink(index);
                let producer = &mut self.slots[index as usize].producer;
                if producer.continues(&batch) {
                    producer.add(&batch, base);
                } else {
                    *producer = Producer::new(&batch, base);
                }
                index
            }
            None => self.insert(Producer::new(&batch, base)),
        };
        self.slots[index as usize].seen = now;
        self.link_newest(index);
    }

    /// The states were made before the clock was known: their ages count from `now` on.
    pub fn seen_all(&mut self, now: Instant) {
        self.slots.iter_mut().for_each(|slot| slot.seen = now);
    }

    /// Whether both know the same, in the same order. Ages do not count.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.has_forgotten == other.has_forgotten
            && self.producers().eq(other.producers())
    }

    /// The producers, from the one whose last batch is oldest.
    fn producers(&self) -> impl Iterator<Item = &Producer> {
        let slot = |index: u32| self.slots.get(index as usize);
        let first = slot(self.oldest);
        std::iter::successors(first, move |at| slot(at.newer)).map(|slot| &slot.producer)
    }

    /// Forgets whoever was silent for too long: they stand together at the old end.
    fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.slots.get(self.oldest as usize)
            && now.ms_since(slot.seen) > self.limits.expiration_ms
        {
            self.forget_oldest();
        }
    }

    /// A place for a new producer, not linked yet.
    fn insert(&mut self, producer: Producer) -> u32 {
        if self.slots.len() == self.limits.ids_max {
            self.forget_oldest();
        }
        let index = self.slots.len() as u32;
        self.by_id.insert(producer.id, index);
        self.slots.push(Slot {
            producer,
            seen: Instant(0),
            older: NIL,
            newer: NIL,
        });
        index
    }

    fn forget_oldest(&mut self) {
        let index = self.oldest;
        self.unlink(index);
        let gone = self.slots.swap_remove(index as usize);
        self.by_id.remove(&gone.producer.id);
        self.has_forgotten = true;
        // The last slot has moved into the gap.
        let Some(moved) = self.slots.get(index as usize) else {
            return;
        };
        let (id, older, newer) = (moved.producer.id, moved.older, moved.newer);
        self.by_id.insert(id, index);
        self.set_newer(older, index);
        self.set_older(newer, index);
    }

    fn unlink(&mut self, index: u32) {
        let Slot { older, newer, .. } = self.slots[index as usize];
        self.set_newer(older, newer);
        self.set_older(newer, older);
    }

    fn link_newest(&mut self, index: u32) {
        let older = self.newest;
        self.slots[index as usize].older = older;
        self.slots[index as usize].newer = NIL;
        self.set_newer(older, index);
        self.newest = index;
    }

    /// Whoever follows `index` in time; of none: the oldest of all.
    fn set_newer(&mut self, index: u32, newer: u32) {
        match self.slots.get_mut(index as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Whoever is before `index` in time; of none: the newest of all.
    fn set_older(&mut self, index: u32, older: u32) {
        match self.slots.get_mut(index as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests;
