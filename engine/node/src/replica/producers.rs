//! Appends of producers: each batch once, however often it is sent.
//!
//! The states of idempotent producers follow the log, batch by batch, on leaders, followers and
//! observers alike. They cannot undo: after a truncation they are made anew from the first batch
//! on, out of memory where the log is still there, else by reads of the disk like a consumer's.
//! Until they have caught up, a leader asks idempotent producers to send again.

use super::{PendingRead, ReadId, Replica};
use crate::clock::Now;
use bytes::Bytes;
use quorate_raft::{ErrorCode, Instant, LeaderInfo, Offset, Role};
use quorate_storage::format::{BatchHeader, BatchInfo, batches};
use quorate_storage::{
    ProducerBatch, ProducerSnapshot, ProducerStates, SequenceCheck, SequenceError, StampedBatch,
    sequence_after,
};

/// Log that is walked over in one turn while the states are made anew: some milliseconds with the
/// smallest batches.
const STEP_BYTES: usize = 1024 * 1024;

/// Pause before a failed read of the disk is tried again.
const READ_RETRY_MS: u64 = 100;

/// What became of a producer's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    /// It was appended. Committed once the high watermark is at its end.
    Appended {
        /// Offset of its first record.
        base_offset: Offset,
        /// Behind its last record.
        end_offset: Offset,
    },
    /// It was there already. Committed once the high watermark is at its end.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Behind its last record.
        end_offset: Offset,
    },
    /// It was there already, somewhere below `below`; committed once the high watermark is there.
    Older {
        /// Exclusive.
        below: Offset,
    },
}

/// Why a producer's batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProduceError {
    /// This replica does not lead.
    #[error("this node does not lead")]
    NotLeader(LeaderInfo),
    /// The states of idempotent producers are being made anew.
    #[error("this node is still reading what producers wrote; send it again")]
    NotReady,
    /// The log has the size that it may have.
    #[error("the log may not be larger than {max} bytes (log.max.bytes)")]
    QuotaUsedUp {
        /// Bytes.
        max: u64,
    },
    /// The batch does not follow its producer's last one.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
}

impl ProduceError {
    /// What the producer is told.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::NotLeader(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            // Any error that clients answer by sending again, in order and without looking for
            // another leader.
            Self::NotReady => ErrorCode::NOT_ENOUGH_REPLICAS,
            // Clients tell their users, and do not send again.
            Self::QuotaUsedUp { .. } => ErrorCode::POLICY_VIOLATION,
            Self::Sequence(error) => error.error_code(),
        }
    }
}

/// The states, and how far they follow the log.
pub(super) struct Producers {
    states: ProducerStates,
    /// `None`: to its end.
    behind: Option<Behind>,
}

/// States that do not follow the log to its end.
struct Behind {
    /// The next batch to observe.
    next: Offset,
    /// The read of the disk that is under way.
    reading: Option<ReadId>,
    /// What it gave.
    records: Option<Bytes>,
    /// Nothing happens before.
    retry_at: Option<Instant>,
}

impl Producers {
    pub(super) fn new(mut states: ProducerStates, now: Now) -> Self {
        states.seen_all(now.instant);
        Self {
            states,
            behind: None,
        }
    }

    /// When to go on, if that waits for nothing but time.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.behind.as_ref().and_then(|behind| behind.retry_at)
    }

    /// A batch was appended. Those behind are met on the way.
    pub(super) fn on_append(&mut self, now: Now, batch: &[u8]) {
        if self.behind.is_none() {
            let header = BatchHeader::parse(batch).expect("the log takes whole batches only");
            self.states.observe(now.instant, &header);
        }
    }

    /// The log was cut: nothing is known until it has been walked over again.
    pub(super) fn on_truncate(&mut self, log_start: Offset) {
        self.states.clear(log_start);
        self.behind = Some(Behind {
            next: log_start,
            reading: None,
            records: None,
            retry_at: None,
        });
    }

    /// A read of the disk ended; without records if it failed or the log was cut.
    pub(super) fn on_read(&mut self, id: ReadId, records: Option<Bytes>) {
        if let Some(behind) = &mut self.behind
            && behind.reading == Some(id)
        {
            behind.reading = None;
            // Nothing read is a batch that is not there: it is asked for again, later.
            behind.records = Some(records.unwrap_or_default());
        }
    }

    /// Observes the batches in `bytes` from `next` on; where they end.
    fn walk(&mut self, now: Now, next: Offset, bytes: &[u8]) -> Offset {
        let mut end = next;
        for (header, _) in batches(bytes).map_while(Result::ok) {
            if header.base_offset == end {
                self.states.observe(now.instant, &header);
                end = header.end_offset();
            }
        }
        end
    }
}

impl Replica {
    /// Appends a producer's batch, already checked whole to be `info`, unless it is there already.
    ///
    /// # Errors
    /// If this replica does not lead, the log is as large as it may be, the batch does not follow
    /// its producer's last one, or what is known of producers is being read.
    pub fn produce(
        &mut self,
        now: Now,
        batch: &[u8],
        info: &BatchInfo,
    ) -> Result<Produced, ProduceError> {
        if self.raft.role() != Role::Leader {
            return Err(ProduceError::NotLeader(self.raft.leader_info()));
        }
        if let Some(found) = self.find_produced(now, info)? {
            return Ok(found);
        }
        if let Some(max) = self.used_up_quota() {
            return Err(ProduceError::QuotaUsedUp { max });
        }
        let appended = self
            .raft
            .append(now.instant, info.count.unsigned_abs())
            .map_err(|refused| ProduceError::NotLeader(refused.leader))?;
        let (base_offset, epoch) = (appended.base_offset, appended.epoch);
        let end_offset = Offset(base_offset.0 + i64::from(info.count));
        let bytes = self.tail.stamp(batch, base_offset, epoch);
        let batch = StampedBatch {
            bytes,
            base_offset,
            end_offset,
            epoch,
        };
        self.append(now, batch);
        Ok(Produced::Appended {
            base_offset,
            end_offset,
        })
    }

    /// Where a batch that is there already is; `None` if it is to be appended.
    fn find_produced(
        &mut self,
        now: Now,
        info: &BatchInfo,
    ) -> Result<Option<Produced>, ProduceError> {
        if info.producer_id < 0 {
            return Ok(None);
        }
        if self.producers.behind.is_some() {
            return Err(ProduceError::NotReady);
        }
        let batch = ProducerBatch {
            producer_id: info.producer_id,
            producer_epoch: info.producer_epoch,
            first_sequence: info.base_sequence,
            last_sequence: sequence_after(info.base_sequence, info.count - 1),
        };
        let found = match self.producers.states.check(now.instant, &batch)? {
            SequenceCheck::Next => None,
            SequenceCheck::Duplicate {
                base_offset,
                end_offset,
            } => Some(Produced::Duplicate {
                base_offset,
                end_offset,
            }),
            SequenceCheck::Older { below } => Some(Produced::Older { below }),
        };
        Ok(found)
    }

    /// Whether a producer with this id has written to the log, as far as is remembered.
    #[must_use]
    pub fn knows_producer(&self, producer_id: i64) -> bool {
        self.producers.states.knows(producer_id)
    }

    /// What is known of producers; `None` while it is being made anew.
    #[must_use]
    pub fn producers(&self) -> Option<&ProducerStates> {
        let is_current = self.producers.behind.is_none();
        is_current.then_some(&self.producers.states)
    }

    /// What is known of producers at the log's end, for a clean stop; `None` while it is being made
    /// anew.
    #[must_use]
    pub fn producer_snapshot(&self) -> Option<ProducerSnapshot> {
        let end = self.raft.log_end_offset();
        self.producers().map(|states| states.snapshot(end))
    }

    /// Lets the producer states follow the log, a step at a time.
    pub(super) fn follow_log(&mut self, now: Now) {
        let Some(behind) = &mut self.producers.behind else {
            return;
        };
        if behind.reading.is_some() || behind.retry_at.is_some_and(|at| at > now.instant) {
            return;
        }
        behind.retry_at = None;
        let (next, end) = (behind.next, self.raft.log_end_offset());
        if next == end {
            self.producers.behind = None;
        } else if let Some(records) = behind.records.take() {
            let reached = self.producers.walk(now, next, &records);
            let pause_ms = if reached == next { READ_RETRY_MS } else { 0 };
            self.follow_from(now, reached, pause_ms);
        } else if let Some(parts) = self.tail.read(next, STEP_BYTES, end) {
            let walk = |from, part: &Bytes| self.producers.walk(now, from, part);
            let reached = parts.iter().fold(next, walk);
            assert!(reached > next, "batches in memory are whole");
            self.follow_from(now, reached, 0);
        } else if self.may_read_disk()
            && let Some(plan) = self.index.plan(next, STEP_BYTES, end)
        {
            let id = self.start_read(plan, PendingRead::Producers);
            if let Some(behind) = &mut self.producers.behind {
                behind.reading = Some(id);
            }
        }
    }

    /// Goes on from `next`, in this turn or after a pause.
    fn follow_from(&mut self, now: Now, next: Offset, pause_ms: u64) {
        if next == self.raft.log_end_offset() {
            self.producers.behind = None;
        } else if let Some(behind) = &mut self.producers.behind {
            behind.next = next;
            behind.retry_at = Some(now.instant.plus_ms(pause_ms));
        }
    }
}
