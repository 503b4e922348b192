//! Producer states as they are stored at a clean stop, in the file `quorate-producers`, so that the
//! next start need not read the whole log for them. A pure codec.
//!
//! Kafka's own `.snapshot` holds a producer's last batch only; from it, an earlier one that comes
//! again would not be known. Big-endian:
//!
//! ```text
//! uint32 CRC-32C of the rest
//! int16  version, 0
//! int64  end offset of the log (exclusive)
//! int8   1 if any producer was forgotten
//! int32  producers, the one whose last batch is oldest first; of each:
//!        int64 id, int16 epoch, int64 numbers known, int8 batches, oldest first; of each:
//!              int32 first sequence number, int32 last, int64 base offset
//! ```

use super::{BATCHES_KEPT, KNOWN_MAX, Kept, Producer, ProducerLimits, ProducerStates};
use crate::format::crc32c;
use bytes::{Buf, BufMut};
use quorate_raft::{Instant, Offset};

const VERSION: i16 = 0;

/// Longest file that is read: the most producers that there can be are far fewer.
pub(crate) const PRODUCERS_FILE_BYTES_MAX: usize = 1 << 30;

/// What the log knows of idempotent producers at its end, to be stored by a clean stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSnapshot {
    /// End of the log that it was taken at (exclusive).
    pub(crate) end: Offset,
    /// The file's content.
    pub(crate) content: Vec<u8>,
}

impl ProducerStates {
    /// The states as a file, taken when the log ended at `end` (exclusive). Ages are not kept.
    #[must_use]
    pub fn snapshot(&self, end: Offset) -> ProducerSnapshot {
        let mut content = vec![0; 4];
        content.put_i16(VERSION);
        content.put_i64(end.0);
        content.put_u8(self.has_forgotten.into());
        // Below `NIL`, as `new` checks.
        content.put_u32(self.len() as u32);
        for producer in self.producers() {
            put_producer(&mut content, producer);
        }
        let sum = crc32c(&content[4..]);
        content[..4].copy_from_slice(&sum.to_be_bytes());
        ProducerSnapshot { end, content }
    }

    /// The states in a file's content; `None` unless it is whole and was taken at `end`.
    pub(crate) fn restore(limits: ProducerLimits, end: Offset, content: &[u8]) -> Option<Self> {
        let mut rest = content;
        if rest.try_get_u32().ok()? != crc32c(rest)
            || rest.try_get_i16().ok()? != VERSION
            || rest.try_get_i64().ok()? != end.0
        {
            return None;
        }
        let mut states = Self::new(limits, Offset(0));
        states.has_forgotten = rest.try_get_u8().ok()? != 0;
        for _ in 0..rest.try_get_u32().ok()? {
            let producer = get_producer(&mut rest)?;
            if states.knows(producer.id) {
                return None;
            }
            let index = states.insert(producer);
            states.slots[index as usize].seen = Instant(0);
            states.link_newest(index);
        }
        rest.is_empty().then_some(states)
    }
}

fn put_producer(content: &mut Vec<u8>, producer: &Producer) {
    content.put_i64(producer.id);
    content.put_i16(producer.epoch);
    content.put_i64(producer.known);
    // At most `BATCHES_KEPT`.
    content.put_u8(producer.kept_count as u8);
    for kept in producer.kept() {
        content.put_i32(kept.first);
        content.put_i32(kept.last);
        content.put_i64(kept.base.0);
    }
}

fn get_producer(rest: &mut &[u8]) -> Option<Producer> {
    let mut producer = Producer {
        id: rest.try_get_i64().ok()?,
        epoch: rest.try_get_i16().ok()?,
        kept: [Kept::default(); BATCHES_KEPT],
        known: rest.try_get_i64().ok()?,
        kept_count: usize::from(rest.try_get_u8().ok()?),
    };
    let is_sane = producer.id >= 0
        && producer.epoch >= 0
        && (1..=KNOWN_MAX).contains(&producer.known)
        && (1..=BATCHES_KEPT).contains(&producer.kept_count);
    if !is_sane {
        return None;
    }
    for kept in &mut producer.kept[..producer.kept_count] {
        kept.first = rest.try_get_i32().ok().filter(|first| *first >= 0)?;
        kept.last = rest.try_get_i32().ok().filter(|last| *last >= 0)?;
        kept.base = Offset(rest.try_get_i64().ok().filter(|base| *base >= 0)?);
    }
    Some(producer)
}
