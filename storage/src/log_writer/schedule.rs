//! What the writer starts next: a group, or the job that must come before it. Never waits for
//! anything itself.

use super::{Entry, InFlight, Io, LogWriter, SpareState, State};
use crate::disk::Disk;
use crate::job::{Close, Job, Kind, Roll, Truncate};
use crate::seal::{Spare, SpareInProgress};
use crate::segment::Layout;
use quorate_raft::{Epoch, EpochStart, Offset};
use std::mem;
use std::sync::Arc;

impl<D: Disk> LogWriter<D> {
    pub(super) fn next_main(&mut self) -> Option<Io<D>> {
        match self.queue.front() {
            Some(Entry::Truncate { .. }) => self.start_truncate(),
            Some(Entry::Batch(batch)) => {
                if self
                    .epochs
                    .last()
                    .is_none_or(|last| last.epoch < batch.epoch)
                {
                    Some(self.start_epoch(batch.epoch, batch.header.base_offset))
                } else if self.active.fits(batch, 0) {
                    Some(Io::Group(self.form_group()))
                } else {
                    self.start_roll()
                }
            }
            None if self.state == State::Closing => self.start_close(),
            None => None,
        }
    }

    pub(super) fn job(&mut self, kind: Kind<D>) -> Io<D> {
        self.in_flight = InFlight::Job;
        self.side_job(kind)
    }

    pub(super) fn side_job(&self, kind: Kind<D>) -> Io<D> {
        Io::Job(Job {
            disk: self.disk.clone(),
            dir: self.config.dir.clone(),
            kind,
        })
    }

    /// Preparation goes on beside groups and checkpoints, not beside jobs that take the spare or
    /// change the directory: these wait for it, and it waits for them.
    pub(super) fn next_prepare(&mut self) -> Option<Io<D>> {
        if self.is_preparing() || self.in_flight == InFlight::Job {
            return None;
        }
        if let Some(segment) = self.unfinished.take() {
            self.is_finishing = true;
            return Some(self.side_job(Kind::FinishSegment(segment)));
        }
        if self.state == State::Closing && self.queue.is_empty() {
            return None;
        }
        match mem::replace(&mut self.spare, SpareState::InFlight) {
            SpareState::Preparing(spare) => Some(self.side_job(Kind::PrepareSpare(spare))),
            other => {
                self.spare = other;
                None
            }
        }
    }

    pub(super) fn is_preparing(&self) -> bool {
        self.is_finishing || matches!(self.spare, SpareState::InFlight)
    }

    pub(super) fn start_epoch(&mut self, epoch: Epoch, start_offset: Offset) -> Io<D> {
        let mut epochs = self.epochs.clone();
        epochs.push(EpochStart {
            epoch,
            start_offset,
        });
        self.in_flight = InFlight::Checkpoint;
        self.side_job(Kind::WriteEpochCheckpoint(epochs))
    }

    /// Takes the spare if it is ready and has room for `bytes`; else sees to it that it will.
    pub(super) fn take_spare(&mut self, bytes: usize) -> Option<Spare<D::File>> {
        if self.is_preparing() {
            return None;
        }
        let layout = Layout::for_data(self.config.segment_bytes.max(bytes as u64 + 4095));
        let has_room = |found: Layout| found.data_bytes() >= bytes as u64;
        let next = SpareState::Preparing(SpareInProgress::new(layout, self.identity));
        match mem::replace(&mut self.spare, next) {
            SpareState::Ready(spare) if has_room(spare.layout) => {
                let usual = Layout::for_data(self.config.segment_bytes);
                self.spare = SpareState::Preparing(SpareInProgress::new(usual, self.identity));
                Some(spare)
            }
            SpareState::Preparing(spare) if has_room(spare.layout()) => {
                self.spare = SpareState::Preparing(spare);
                None
            }
            // Too small: a larger one takes its place and its name.
            _ => None,
        }
    }

    pub(super) fn start_roll(&mut self) -> Option<Io<D>> {
        let bytes = match self.queue.front() {
            Some(Entry::Batch(batch)) => batch.bytes.len(),
            _ => 0,
        };
        // A crash may undo the cut of one segment, not of two.
        if self.unfinished.is_some() {
            return None;
        }
        let spare = self.take_spare(bytes)?;
        let roll = Roll {
            segment: self.active.base,
            file: Arc::clone(&self.active.file),
            position: self.active.position,
            end_offset: self.flushed.offset,
            spare,
        };
        Some(self.job(Kind::Roll(roll)))
    }

    pub(super) fn start_truncate(&mut self) -> Option<Io<D>> {
        let Some(&Entry::Truncate {
            end_offset,
            generation,
        }) = self.queue.front()
        else {
            return None;
        };
        let cuts = end_offset != self.flushed.offset;
        // A segment must not be finished once it is cut again or gone.
        if self.is_preparing() || self.unfinished.is_some() {
            return None;
        }
        let spare = if cuts {
            Some(self.take_spare(0)?)
        } else {
            None
        };
        self.queue.pop_front();
        let truncate = Truncate {
            segments: self.segments.clone(),
            active: Arc::clone(&self.active.file),
            active_position: self.active.position,
            flushed_end: self.flushed.offset,
            end_offset,
            generation,
            index_interval_bytes: self.config.index_interval_bytes,
            epochs: self.epochs.clone(),
            spare,
        };
        Some(self.job(Kind::Truncate(truncate)))
    }

    pub(super) fn start_close(&mut self) -> Option<Io<D>> {
        if self.is_preparing() {
            return None;
        }
        let close = Close {
            segments: self.segments.clone(),
            at: self.active.seal_at(),
            unfinished: self.unfinished.take().into_iter().collect(),
            indexes: self.active.indexes.clone().finish(),
            end_offset: self.flushed.offset,
            epoch: self.flushed.epoch,
            epochs: self.epochs.clone(),
            producers: self.producers.take(),
            spare: self.spare_in_progress(),
        };
        Some(self.job(Kind::Close(close)))
    }

    fn spare_in_progress(&mut self) -> Option<SpareInProgress<D::File>> {
        match mem::replace(&mut self.spare, SpareState::InFlight) {
            SpareState::Preparing(spare) => Some(spare),
            SpareState::InFlight | SpareState::Ready(_) => None,
        }
    }
}
