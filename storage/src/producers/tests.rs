//! Producer states against a twin that remembers every batch and looks through all of them.

use super::*;
use crate::format::{BatchBuilder, NewRecord};
use proptest::prelude::*;

const LIMITS: ProducerLimits = ProducerLimits {
    ids_max: 3,
    expiration_ms: 100,
};

fn at_ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn batch(producer_id: i64, producer_epoch: i16, first_sequence: i32, count: i32) -> ProducerBatch {
    ProducerBatch {
        producer_id,
        producer_epoch,
        first_sequence,
        last_sequence: sequence_after(first_sequence, count - 1),
    }
}

fn header(batch: &ProducerBatch, base: i64) -> BatchHeader {
    let ProducerBatch {
        producer_id,
        producer_epoch,
        first_sequence,
        ..
    } = *batch;
    let builder = BatchBuilder::produced();
    let mut builder = builder.idempotent(producer_id, producer_epoch, first_sequence);
    builder.push(NewRecord::value(0, b""));
    let header = BatchHeader::parse(&builder.build()).unwrap();
    BatchHeader {
        base_offset: Offset(base),
        last_offset_delta: i32::try_from(batch.count() - 1).unwrap(),
        ..header
    }
}

/// A log with what it says of its producers.
struct Log {
    states: ProducerStates,
    end: i64,
}

impl Log {
    fn new(limits: ProducerLimits) -> Self {
        Self {
            states: ProducerStates::new(limits, Offset(0)),
            end: 0,
        }
    }

    fn append(&mut self, batch: ProducerBatch) -> i64 {
        self.append_at(0, batch)
    }

    fn append_at(&mut self, ms: u64, batch: ProducerBatch) -> i64 {
        let base = self.end;
        self.states.observe(at_ms(ms), &header(&batch, base));
        self.end += batch.count();
        base
    }

    fn check(&mut self, batch: ProducerBatch) -> Result<SequenceCheck, SequenceError> {
        self.states.check(at_ms(0), &batch)
    }

    fn code(&mut self, batch: ProducerBatch) -> ErrorCode {
        self.check(batch).unwrap_err().error_code()
    }
}

#[test]
fn a_producer_begins_at_0_and_goes_on_without_a_gap() {
    let mut log = Log::new(LIMITS);
    let gap = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    assert_eq!(
        log.code(batch(7, 0, 5, 5)),
        gap,
        "its first batch is missing"
    );
    assert_eq!(log.check(batch(7, 0, 0, 5)), Ok(SequenceCheck::Next));
    log.append(batch(7, 0, 0, 5));
    assert_eq!(log.check(batch(7, 0, 5, 2)), Ok(SequenceCheck::Next));
    assert_eq!(log.code(batch(7, 0, 6, 2)), gap);
    assert_eq!(log.code(batch(7, 0, 0, 4)), gap, "not the batch it was");
    assert_eq!(log.code(batch(7, 0, 3, 4)), gap, "half of it is there");
}

#[test]
fn the_last_five_batches_are_found_again_and_older_ones_known_to_be_there() {
    let mut log = Log::new(LIMITS);
    for first in (0..14).step_by(2) {
        log.append(batch(7, 0, first, 2));
    }
    for first in (4..14).step_by(2) {
        let duplicate = SequenceCheck::Duplicate {
            base_offset: Offset(first.into()),
            end_offset: Offset(i64::from(first) + 2),
        };
        assert_eq!(log.check(batch(7, 0, first, 2)), Ok(duplicate));
    }
    let older = Ok(SequenceCheck::Older { below: Offset(4) });
    assert_eq!(log.check(batch(7, 0, 2, 2)), older);
    assert_eq!(log.check(batch(7, 0, 0, 2)), older);
    assert_eq!(log.check(batch(7, 0, 0, 4)), older);
    assert!(log.check(batch(7, 0, 2, 3)).is_err(), "half of it is kept");
}

#[test]
fn nothing_is_claimed_of_batches_before_the_first_that_was_seen() {
    let mut log = Log::new(LIMITS);
    log.append(batch(7, 0, 100, 10));
    assert!(log.check(batch(7, 0, 90, 10)).is_err());
    for first in (110..170).step_by(10) {
        log.append(batch(7, 0, first, 10));
    }
    assert!(log.check(batch(7, 0, 90, 10)).is_err());
    let older = Ok(SequenceCheck::Older { below: Offset(20) });
    assert_eq!(log.check(batch(7, 0, 100, 10)), older);
}

#[test]
fn a_newer_epoch_begins_at_0_and_shuts_the_older_out() {
    let mut log = Log::new(LIMITS);
    log.append(batch(7, 3, 0, 5));
    assert!(log.check(batch(7, 4, 5, 1)).is_err());
    assert_eq!(log.check(batch(7, 4, 0, 1)), Ok(SequenceCheck::Next));
    log.append(batch(7, 4, 0, 1));
    assert_eq!(
        log.code(batch(7, 3, 5, 1)),
        ErrorCode::INVALID_PRODUCER_EPOCH
    );
    assert_eq!(
        log.code(batch(7, 3, 0, 5)),
        ErrorCode::INVALID_PRODUCER_EPOCH
    );
}

#[test]
fn sequence_numbers_go_around_at_their_end() {
    let mut log = Log::new(LIMITS);
    log.append(batch(7, 0, i32::MAX - 3, 2));
    assert_eq!(
        log.check(batch(7, 0, i32::MAX - 1, 4)),
        Ok(SequenceCheck::Next)
    );
    let base = log.append(batch(7, 0, i32::MAX - 1, 4));
    assert_eq!(log.check(batch(7, 0, 2, 1)), Ok(SequenceCheck::Next));
    let duplicate = SequenceCheck::Duplicate {
        base_offset: Offset(base),
        end_offset: Offset(base + 4),
    };
    assert_eq!(log.check(batch(7, 0, i32::MAX - 1, 4)), Ok(duplicate));
}

#[test]
fn what_lies_ahead_is_never_taken_for_known_however_much_is_known() {
    let mut log = Log::new(LIMITS);
    let count = 1 << 30;
    for round in 0..8_i32 {
        log.append(batch(
            7,
            0,
            sequence_after(0, round.wrapping_mul(count)),
            count,
        ));
    }
    assert_eq!(log.check(batch(7, 0, 0, 1)), Ok(SequenceCheck::Next));
    assert!(log.check(batch(7, 0, 1, 1)).is_err());
    assert!(log.check(batch(7, 0, 1000, 1)).is_err());
}

#[test]
fn the_producer_whose_last_batch_is_oldest_is_forgotten_and_may_go_on() {
    let mut log = Log::new(LIMITS);
    for id in [1, 2, 3, 1] {
        let first = if log.states.knows(id) { 1 } else { 0 };
        log.append(batch(id, 0, first, 1));
    }
    log.append(batch(4, 0, 0, 1));
    assert_eq!(log.states.len(), 3);
    assert!(!log.states.knows(2) && log.states.knows(1));
    assert_eq!(log.check(batch(2, 0, 1, 1)), Ok(SequenceCheck::Next));
    assert_eq!(log.check(batch(9, 0, 44, 1)), Ok(SequenceCheck::Next));
}

#[test]
fn a_silent_producer_is_forgotten_after_its_time_and_may_go_on() {
    let mut log = Log::new(LIMITS);
    log.append_at(10, batch(1, 0, 0, 1));
    log.append_at(60, batch(2, 0, 0, 1));
    let gap = batch(1, 0, 5, 1);
    assert!(log.states.check(at_ms(110), &gap).is_err(), "not yet");
    assert_eq!(log.states.check(at_ms(111), &gap), Ok(SequenceCheck::Next));
    assert!(log.states.knows(2));
    log.states.seen_all(at_ms(500));
    assert!(log.states.check(at_ms(600), &batch(2, 0, 5, 1)).is_err());
}

#[test]
fn control_batches_and_plain_producers_leave_no_trace() {
    let mut log = Log::new(LIMITS);
    let plain = BatchHeader {
        producer_id: -1,
        ..header(&batch(1, 0, 0, 1), 0)
    };
    let marker = BatchHeader {
        attributes: 0x30,
        ..header(&batch(1, 0, 0, 1), 0)
    };
    log.states.observe(at_ms(0), &plain);
    log.states.observe(at_ms(0), &marker);
    assert!(log.states.is_empty());
    let cut_off = ProducerStates::new(LIMITS, Offset(9));
    assert!(
        !cut_off.is_same(&log.states),
        "what was before is not known"
    );
}

/// Every batch of the log, and nothing else.
#[derive(Default)]
struct Twin(Vec<(ProducerBatch, i64)>);

impl Twin {
    /// The ids that are remembered: those with the newest last batches.
    fn remembered(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = Vec::new();
        for (batch, _) in self.0.iter().rev() {
            if !ids.contains(&batch.producer_id) && ids.len() < LIMITS.ids_max {
                ids.push(batch.producer_id);
            }
        }
        ids
    }

    /// Where, among all batches, each memory of `id` began: it was forgotten in between when
    /// `ids_max` others came.
    fn memory(&self, id: i64) -> Vec<(ProducerBatch, i64)> {
        let mut memory: Vec<(ProducerBatch, i64)> = Vec::new();
        let mut others: Vec<i64> = Vec::new();
        for &(batch, base) in &self.0 {
            if batch.producer_id != id {
                if !others.contains(&batch.producer_id) {
                    others.push(batch.producer_id);
                }
                if others.len() >= LIMITS.ids_max {
                    memory.clear();
                }
                continue;
            }
            others.clear();
            let follows = memory.last().is_some_and(|(last, _)| {
                last.producer_epoch == batch.producer_epoch
                    && sequence_after(last.last_sequence, 1) == batch.first_sequence
            });
            if !follows {
                memory.clear();
            }
            memory.push((batch, base));
        }
        memory
    }

    fn has_forgotten(&self) -> bool {
        let mut ids: Vec<i64> = self.0.iter().map(|(batch, _)| batch.producer_id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len() > LIMITS.ids_max
    }

    /// What the answer must be, for numbers far from their end.
    fn check(&self, batch: &ProducerBatch) -> Option<SequenceCheck> {
        let memory = self.memory(batch.producer_id);
        let Some((last, _)) = memory.last() else {
            let may_begin = batch.first_sequence == 0 || self.has_forgotten();
            return may_begin.then_some(SequenceCheck::Next);
        };
        if batch.producer_epoch != last.producer_epoch {
            let begins = batch.producer_epoch > last.producer_epoch && batch.first_sequence == 0;
            return begins.then_some(SequenceCheck::Next);
        }
        if batch.first_sequence == last.last_sequence + 1 {
            return Some(SequenceCheck::Next);
        }
        let kept = &memory[memory.len().saturating_sub(BATCHES_KEPT)..];
        if let Some((_, base)) = kept.iter().find(|(one, _)| one == batch) {
            return Some(SequenceCheck::Duplicate {
                base_offset: Offset(*base),
                end_offset: Offset(base + batch.count()),
            });
        }
        let is_known = memory[0].0.first_sequence <= batch.first_sequence;
        let is_older = batch.last_sequence < kept[0].0.first_sequence;
        (is_known && is_older).then_some(SequenceCheck::Older {
            below: Offset(kept[0].1),
        })
    }
}

fn any_batch() -> impl Strategy<Value = ProducerBatch> {
    (0..5_i64, 0..2_i16, 0..40_i32, 1..4_i32)
        .prop_map(|(id, epoch, first, count)| batch(id, epoch, first, count))
}

/// What a producer sends next, most of the time.
fn next_of(states: &ProducerStates, id: i64, count: i32) -> ProducerBatch {
    let known = states.by_id.get(&id);
    let (epoch, first) = known.map_or((0, 0), |&index| {
        let producer = &states.slots[index as usize].producer;
        (producer.epoch, producer.next_sequence())
    });
    batch(id, epoch, first, count)
}

proptest! {
    #[test]
    fn states_say_what_a_twin_says_that_remembers_every_batch(
        steps in prop::collection::vec((0..5_i64, 1..4_i32, any_batch(), 0..10_u8), 1..120)
    ) {
        let (mut log, mut twin) = (Log::new(LIMITS), Twin::default());
        for (id, count, odd, choice) in steps {
            for one in [odd, next_of(&log.states, id, count)] {
                let found = log.check(one);
                prop_assert_eq!(found.ok(), twin.check(&one), "{:?}", one);
            }
            // Logs of others may hold anything.
            let sent = if choice == 0 { odd } else { next_of(&log.states, id, count) };
            let base = log.append(sent);
            twin.0.push((sent, base));
            let mut remembered = twin.remembered();
            remembered.reverse();
            let ids: Vec<i64> = log.states.producers().map(|producer| producer.id).collect();
            prop_assert_eq!(ids, remembered);
        }
        // Made anew from the same batches, it is the same.
        let mut again = Log::new(LIMITS);
        for (one, _) in &twin.0 {
            again.append(*one);
        }
        prop_assert!(again.states.is_same(&log.states));
        // Stored and restored, it is the same; with any byte changed or missing, it is nothing.
        let end = Offset(77);
        let content = log.states.snapshot(end).content;
        let restored = ProducerStates::restore(LIMITS, end, &content).expect("a whole file");
        prop_assert!(restored.is_same(&log.states));
        prop_assert!(ProducerStates::restore(LIMITS, Offset(78), &content).is_none());
        for index in 0..content.len() {
            let mut flipped = content.clone();
            flipped[index] ^= 0x10;
            prop_assert!(ProducerStates::restore(LIMITS, end, &flipped).is_none());
            prop_assert!(ProducerStates::restore(LIMITS, end, &content[..index]).is_none());
        }
    }
}
