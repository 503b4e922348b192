//! Step 4 of 5 of the append path (before: `engine/raft/src/leader.rs`, after: `segment.rs`): many
//! appends become one group, one write, one flush, one `Flushed`.
//!
//! Sans-IO: [`LogWriter::poll`] hands out what is to be done next, and the completion comes back in
//! [`LogWriter::on_group_done`] or [`LogWriter::on_job_done`]. While a group is in flight the next
//! one fills: group commit without a timer. Never reads a clock, never blocks, never tries a flush
//! again.

mod grouping;
mod schedule;

use crate::disk::Disk;
use crate::error::{Operation, StorageError};
use crate::format::{BATCH_BYTES_LIMIT, BATCH_HEADER_BYTES, BatchHeader, LogIdentity};
use crate::group::{GroupIo, GroupLocation};
use crate::job::{Done, Job, JobDone};
use crate::log::LogConfig;
use crate::producers::ProducerSnapshot;
use crate::seal::{Spare, SpareInProgress, Unfinished};
use crate::segment::{Layout, SegmentFile, segment_path};
use bytes::Bytes;
use grouping::{Active, Filling, GroupBuffers};
use quorate_raft::{Epoch, EpochStart, Generation, Offset};
use quorate_ring::AlignedBuf;
use std::collections::VecDeque;
use std::io;
use std::mem;

/// A batch whose bytes have their base offset and epoch.
#[derive(Clone, Debug)]
pub struct StampedBatch {
    /// The whole batch.
    pub bytes: Bytes,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset after its last record (exclusive).
    pub end_offset: Offset,
    /// Its leader epoch.
    pub epoch: Epoch,
}

/// The next I/O to start.
#[derive(Debug)]
pub enum Io<D: Disk> {
    /// To be written and flushed through the ring.
    Group(GroupIo<D>),
    /// To be run on a background thread.
    Job(Job<D>),
}

/// What the disk has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The log is durable up to an offset.
    Flushed(Flushed),
    /// The log was cut, durably, and everything before the cut is durable.
    Truncated {
        /// The generation that began.
        generation: Generation,
        /// The log end (exclusive).
        end_offset: Offset,
    },
    /// The log is closed; the clean-shutdown marker is written.
    Closed,
}

/// A group is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Truncations that had been carried out when the group was formed.
    pub generation: Generation,
    /// Everything below is durable (exclusive).
    pub end_offset: Offset,
    /// Of all batches of the group.
    pub epoch: Epoch,
    /// Where the group stands.
    pub located: GroupLocation,
}

/// Counts since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Groups that were flushed.
    pub groups: u64,
    /// Batches in them.
    pub batches: u64,
    /// Bytes of these batches.
    pub bytes: u64,
    /// Flushes of the active segment: one per group.
    pub flushes: u64,
    /// Segments that were sealed because they were full.
    pub rolls: u64,
    /// Truncations.
    pub truncations: u64,
}

/// A batch in the queue.
#[derive(Debug)]
struct Waiting {
    bytes: Bytes,
    header: BatchHeader,
    end_offset: Offset,
    epoch: Epoch,
}

#[derive(Debug)]
enum Entry {
    Batch(Waiting),
    Truncate {
        end_offset: Offset,
        generation: Generation,
    },
}

/// An offset and the epoch of the batch before it.
#[derive(Clone, Copy, Debug)]
struct End {
    offset: Offset,
    epoch: Epoch,
}

#[derive(Debug)]
enum SpareState<D: Disk> {
    Preparing(SpareInProgress<D::File>),
    /// A step is being carried out.
    InFlight,
    Ready(Spare<D::File>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Nothing,
    Group {
        sequence: u64,
        bytes: usize,
    },
    /// The epoch checkpoint: nothing that preparation could meet.
    Checkpoint,
    /// A job that takes the spare or changes the directory.
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Closes when everything is flushed.
    Closing,
    Closed,
    /// The disk failed; nothing more is done.
    Failed,
}

/// What recovery hands to the writer.
pub(crate) struct WriterStart<D: Disk> {
    pub disk: D,
    pub config: LogConfig,
    pub identity: LogIdentity,
    /// Base offsets of all segments, ascending; the last is the active one and empty.
    pub segments: Vec<Offset>,
    pub active: Spare<D::File>,
    pub epochs: Vec<EpochStart>,
    pub end_epoch: Epoch,
}

/// The writing end of the log. See the module.
#[derive(Debug)]
pub struct LogWriter<D: Disk> {
    disk: D,
    config: LogConfig,
    identity: LogIdentity,
    segments: Vec<Offset>,
    active: Active<D>,
    spare: SpareState<D>,
    /// The segment before the active one, until it is finished.
    unfinished: Option<Unfinished<D::File>>,
    is_finishing: bool,
    /// As the checkpoint on disk has them.
    epochs: Vec<EpochStart>,
    queue: VecDeque<Entry>,
    queued_bytes: usize,
    in_flight: InFlight,
    flushed: End,
    appended: End,
    generation: Generation,
    state: State,
    filling: Filling,
    buffers: GroupBuffers,
    /// To be stored when the log is closed.
    producers: Option<ProducerSnapshot>,
    stats: WriterStats,
}

impl<D: Disk> LogWriter<D> {
    pub(crate) fn new(start: WriterStart<D>) -> Self {
        let base = *start.segments.last().expect("a log has an active segment");
        let end = End {
            offset: base,
            epoch: start.end_epoch,
        };
        let layout = Layout::for_data(start.config.segment_bytes);
        let buffers = GroupBuffers::new(start.config.group_bytes_max);
        Self {
            active: Active::begin(base, start.active, start.config.index_interval_bytes),
            disk: start.disk,
            config: start.config,
            identity: start.identity,
            segments: start.segments,
            spare: SpareState::Preparing(SpareInProgress::new(layout, start.identity)),
            unfinished: None,
            is_finishing: false,
            epochs: start.epochs,
            queue: VecDeque::new(),
            queued_bytes: 0,
            in_flight: InFlight::Nothing,
            flushed: end,
            appended: end,
            generation: Generation(0),
            state: State::Open,
            filling: Filling::default(),
            buffers,
            producers: None,
            stats: WriterStats::default(),
        }
    }

    /// Adds a batch behind all that was appended. Durable only after a `Flushed` passes it.
    ///
    /// # Panics
    /// If the batch does not begin at the appended end, its epoch is below the last one, it is
    /// larger than `BATCH_BYTES_LIMIT`, its bytes say otherwise, or the log is closed.
    pub fn append(&mut self, batch: StampedBatch) {
        assert!(
            matches!(self.state, State::Open | State::Failed),
            "append to a closed log"
        );
        assert_eq!(
            batch.base_offset, self.appended.offset,
            "base offset of an append"
        );
        assert!(
            batch.end_offset > batch.base_offset,
            "a batch without records"
        );
        assert!(batch.epoch >= self.appended.epoch, "epoch {}", batch.epoch);
        let size = batch.bytes.len();
        assert!(
            (BATCH_HEADER_BYTES..=BATCH_BYTES_LIMIT).contains(&size),
            "a batch of {size} bytes"
        );
        let header = BatchHeader::parse(&batch.bytes).expect("an appended batch was checked");
        assert_eq!(header.size, size, "size of an appended batch");
        assert_eq!(
            header.meta().base_offset,
            batch.base_offset,
            "stamped offset"
        );
        assert_eq!(header.end_offset(), batch.end_offset, "stamped end");
        assert_eq!(header.epoch, batch.epoch, "stamped epoch");
        self.appended = End {
            offset: batch.end_offset,
            epoch: batch.epoch,
        };
        self.queued_bytes += size;
        self.queue.push_back(Entry::Batch(Waiting {
            bytes: batch.bytes,
            header,
            end_offset: batch.end_offset,
            epoch: batch.epoch,
        }));
    }

    /// Cuts the log to `end_offset`, behind the group in flight; waiting batches from there on are
    /// dropped. Later appends begin there.
    ///
    /// # Panics
    /// If the end lies behind the appended end, or the log is closed.
    pub fn truncate(&mut self, end_offset: Offset, generation: Generation) {
        assert!(
            matches!(self.state, State::Open | State::Failed),
            "truncation of a closed log"
        );
        assert!(
            end_offset <= self.appended.offset,
            "truncation to {end_offset}, the log ends at {}",
            self.appended.offset
        );
        while let Some(entry) = self.queue.pop_back() {
            match entry {
                Entry::Batch(batch) if batch.end_offset > end_offset => {
                    self.queued_bytes -= batch.bytes.len();
                }
                // Never to be told apart from the one that replaces it.
                Entry::Truncate {
                    end_offset: old, ..
                } if old >= end_offset => {}
                kept => {
                    self.queue.push_back(kept);
                    break;
                }
            }
        }
        self.refill_if_cut();
        self.queue.push_back(Entry::Truncate {
            end_offset,
            generation,
        });
        self.appended = End {
            offset: end_offset,
            epoch: self.epoch_before(end_offset),
        };
    }

    /// Epoch of the last batch below `end`, waiting ones included.
    fn epoch_before(&self, end: Offset) -> Epoch {
        let waiting = self.queue.iter().rev().find_map(|entry| match entry {
            Entry::Batch(batch) => Some(batch.epoch),
            Entry::Truncate { .. } => None,
        });
        let below = self
            .epochs
            .iter()
            .rev()
            .find(|entry| entry.start_offset < end);
        waiting.unwrap_or_else(|| below.map_or(Epoch(0), |entry| entry.epoch))
    }

    /// Flushes all that is appended, seals, and writes the clean-shutdown marker; then `Closed`.
    ///
    /// `producers`: what is known of producers at the appended end. Without it the next start reads
    /// the whole log.
    ///
    /// # Panics
    /// If the states were taken elsewhere.
    pub fn close(&mut self, producers: Option<ProducerSnapshot>) {
        if self.state == State::Open {
            let taken_at = producers.as_ref().map(|snapshot| snapshot.end);
            assert!(
                taken_at.is_none_or(|end| end == self.appended.offset),
                "producers at {taken_at:?}, the log ends at {}",
                self.appended.offset
            );
            self.producers = producers;
            self.state = State::Closing;
        }
    }

    /// Bytes that are appended and not durable yet.
    #[must_use]
    pub fn unflushed_bytes(&self) -> usize {
        match self.in_flight {
            InFlight::Group { bytes, .. } => self.queued_bytes + bytes,
            InFlight::Nothing | InFlight::Checkpoint | InFlight::Job => self.queued_bytes,
        }
    }

    /// End of what was appended (exclusive), durable or not.
    #[must_use]
    pub fn appended_end(&self) -> Offset {
        self.appended.offset
    }

    /// End of what is durable (exclusive).
    #[must_use]
    pub fn flushed_end(&self) -> Offset {
        self.flushed.offset
    }

    /// Whether the segment after the active one is prepared.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        matches!(self.spare, SpareState::Ready(_))
    }

    /// Counts since the log was opened.
    #[must_use]
    pub fn stats(&self) -> &WriterStats {
        &self.stats
    }

    /// The memory of all groups but those of a single larger batch, to be made known to a ring
    /// before the first of them.
    pub fn group_buffers(&mut self) -> impl Iterator<Item = &mut AlignedBuf> {
        self.buffers.all_data()
    }

    /// Copies what waits into the next group. To be called while one is in flight, best after it
    /// was submitted: what is not copied by then is when the group is formed.
    pub fn fill_next_group(&mut self) {
        self.fill();
    }

    /// Bytes that [`Self::fill_next_group`] would look at, at most a group of them.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.queued_bytes - self.filling.bytes()
    }

    /// The next I/O to start, if any. To be called until `None` after every input.
    ///
    /// At most one group or one job is in flight, and at most one job of preparation beside it.
    #[must_use]
    pub fn poll(&mut self) -> Option<Io<D>> {
        if matches!(self.state, State::Closed | State::Failed) {
            return None;
        }
        if self.in_flight == InFlight::Nothing
            && let Some(io) = self.next_main()
        {
            return Some(io);
        }
        self.next_prepare()
    }

    /// Takes back a group that was written and flushed, or failed.
    ///
    /// # Errors
    /// If it failed. Final: nothing more is written.
    /// # Panics
    /// If it is not the group in flight.
    pub fn on_group_done(
        &mut self,
        io: GroupIo<D>,
        result: io::Result<()>,
    ) -> Result<Option<LogEvent>, StorageError> {
        let InFlight::Group { sequence, bytes } = self.in_flight else {
            panic!("a group came back that was not in flight");
        };
        assert_eq!(
            sequence, io.end.sequence,
            "sequence of the group that came back"
        );
        self.in_flight = InFlight::Nothing;
        let end = &io.end;
        if let Err(source) = result {
            self.state = State::Failed;
            let path = segment_path(&self.config.dir, self.active.base, SegmentFile::Log);
            let at = io.data_position;
            return Err(StorageError::new(Operation::WriteGroup, &path, at, source));
        }
        assert_eq!(
            end.location.base_offset, self.flushed.offset,
            "start of a flushed group"
        );
        self.flushed = End {
            offset: end.end_offset,
            epoch: end.end_epoch,
        };
        self.stats.groups += 1;
        self.stats.flushes += 1;
        self.stats.batches += end.batches;
        self.stats.bytes += bytes as u64;
        let event = LogEvent::Flushed(Flushed {
            generation: end.generation,
            end_offset: end.end_offset,
            epoch: end.end_epoch,
            located: end.location,
        });
        self.buffers.give_back(io.data, io.mark);
        Ok(Some(event))
    }

    /// Takes back a job that was run.
    ///
    /// # Errors
    /// If it failed. Final: nothing more is written.
    pub fn on_job_done(&mut self, done: JobDone<D>) -> Result<Option<LogEvent>, StorageError> {
        let done = match done.result {
            Ok(done) => done,
            Err(error) => {
                self.state = State::Failed;
                return Err(error);
            }
        };
        match done {
            Done::SpareStep(spare) => self.spare = SpareState::Preparing(spare),
            Done::SpareReady(spare) => self.spare = SpareState::Ready(spare),
            Done::SegmentFinished => self.is_finishing = false,
            main => return Ok(self.on_main_done(main)),
        }
        Ok(None)
    }

    fn on_main_done(&mut self, done: Done<D>) -> Option<LogEvent> {
        assert!(
            matches!(self.in_flight, InFlight::Job | InFlight::Checkpoint),
            "a job came back that was not in flight"
        );
        self.in_flight = InFlight::Nothing;
        match done {
            Done::EpochCheckpointWritten(epochs) => {
                self.epochs = epochs;
                None
            }
            Done::Rolled(spare) => {
                self.on_rolled(spare);
                None
            }
            Done::Truncated {
                end_offset,
                generation,
                epochs,
                active,
            } => Some(self.on_truncated(end_offset, generation, epochs, active)),
            Done::Closed => {
                self.state = State::Closed;
                Some(LogEvent::Closed)
            }
            Done::SpareStep(_) | Done::SpareReady(_) | Done::SegmentFinished => {
                unreachable!("handled by the caller")
            }
        }
    }

    fn on_rolled(&mut self, spare: Spare<D::File>) {
        let is_empty = self.active.position == 0;
        let next = self.begin_active(self.flushed.offset, spare);
        let sealed = mem::replace(&mut self.active, next);
        if !is_empty {
            self.segments.push(self.active.base);
            let before = self.unfinished.replace(Unfinished {
                file: sealed.file,
                indexes: sealed.indexes.finish(),
            });
            assert!(before.is_none(), "two segments are not finished");
            self.stats.rolls += 1;
        }
    }

    fn begin_active(&self, base: Offset, spare: Spare<D::File>) -> Active<D> {
        assert_eq!(self.filling.batches(), 0, "batches for the old segment");
        Active::begin(base, spare, self.config.index_interval_bytes)
    }

    fn on_truncated(
        &mut self,
        end_offset: Offset,
        generation: Generation,
        epochs: Vec<EpochStart>,
        active: Option<Spare<D::File>>,
    ) -> LogEvent {
        self.epochs = epochs;
        self.generation = generation;
        self.stats.truncations += 1;
        if let Some(spare) = active {
            self.segments.retain(|base| *base < end_offset);
            self.segments.push(end_offset);
            self.active = self.begin_active(end_offset, spare);
        }
        self.flushed = End {
            offset: end_offset,
            epoch: self.epochs.last().map_or(Epoch(0), |entry| entry.epoch),
        };
        LogEvent::Truncated {
            generation,
            end_offset,
        }
    }
}
