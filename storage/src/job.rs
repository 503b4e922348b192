//! The log writer's slow work: everything on disk that is not a group. A job owns all it needs and
//! runs on a background thread; its result goes back to `LogWriter::on_job_done`. It blocks, and it
//! is never carried out on a loop that answers peers.

use crate::clean_shutdown::{CleanShutdown, manifest, write_clean_shutdown};
use crate::disk::{Disk, OpenMode, write_file_atomically};
use crate::error::{Context, Operation, StorageError};
use crate::format::encode_epoch_checkpoint;
use crate::index_file::{IndexBuilder, IndexFiles};
use crate::producers::ProducerSnapshot;
use crate::scan::{ScanError, Scanner};
use crate::seal::{
    SealAt, Spare, SpareInProgress, Unfinished, activate, cut, seal, unlink_behind, write_indexes,
};
use crate::segment::{SegmentFile, segment_path};
use crate::state_file::PRODUCERS_NAME;
use quorate_raft::{Epoch, EpochStart, Generation, Offset};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file that says where each epoch begins.
pub(crate) const EPOCH_CHECKPOINT_NAME: &str = "leader-epoch-checkpoint";

/// A piece of blocking work. See the module.
#[derive(Debug)]
pub struct Job<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    pub(crate) kind: Kind<D>,
}

#[derive(Debug)]
pub(crate) enum Kind<D: Disk> {
    /// Seal the active segment at its end and begin the next.
    Roll(Roll<D>),
    /// Cut the log.
    Truncate(Truncate<D>),
    /// Say where a new epoch begins, before its first batch is written.
    WriteEpochCheckpoint(Vec<EpochStart>),
    /// Zero a step of the next segment.
    PrepareSpare(SpareInProgress<D::File>),
    /// Flush a segment that a roll has cut, and write its indexes.
    FinishSegment(Unfinished<D::File>),
    /// Seal and write the clean-shutdown marker.
    Close(Close<D>),
}

#[derive(Debug)]
pub(crate) struct Roll<D: Disk> {
    /// Base offset of the active segment, its file, and the byte where its last batch ends.
    pub segment: Offset,
    pub file: Arc<D::File>,
    pub position: u64,
    pub end_offset: Offset,
    pub spare: Spare<D::File>,
}

#[derive(Debug)]
pub(crate) struct Truncate<D: Disk> {
    /// All segments, ascending; the last is the active one.
    pub segments: Vec<Offset>,
    pub active: Arc<D::File>,
    /// Byte of the active segment where its last batch ends.
    pub active_position: u64,
    pub flushed_end: Offset,
    pub end_offset: Offset,
    pub generation: Generation,
    pub index_interval_bytes: u64,
    pub epochs: Vec<EpochStart>,
    /// `None` if nothing on disk lies behind the end.
    pub spare: Option<Spare<D::File>>,
}

#[derive(Debug)]
pub(crate) struct Close<D: Disk> {
    pub segments: Vec<Offset>,
    pub at: SealAt<D::File>,
    /// Segments before the active one.
    pub unfinished: Vec<Unfinished<D::File>>,
    /// Of the active one.
    pub indexes: IndexFiles,
    pub end_offset: Offset,
    pub epoch: Epoch,
    pub epochs: Vec<EpochStart>,
    /// Taken at `end_offset`; `None` if the next start has to find the states itself.
    pub producers: Option<ProducerSnapshot>,
    /// To be made ready, so that the next start need not make one.
    pub spare: Option<SpareInProgress<D::File>>,
}

/// A finished job, for `LogWriter::on_job_done`.
#[derive(Debug)]
pub struct JobDone<D: Disk> {
    pub(crate) result: Result<Done<D>, StorageError>,
}

#[derive(Debug)]
pub(crate) enum Done<D: Disk> {
    Rolled(Spare<D::File>),
    Truncated {
        end_offset: Offset,
        generation: Generation,
        epochs: Vec<EpochStart>,
        /// The new active segment, if the old one was sealed.
        active: Option<Spare<D::File>>,
    },
    EpochCheckpointWritten(Vec<EpochStart>),
    SpareStep(SpareInProgress<D::File>),
    SpareReady(Spare<D::File>),
    SegmentFinished,
    Closed,
}

impl<D: Disk> Job<D> {
    /// Whether the job only prepares for later: it may wait while others are to be done.
    #[must_use]
    pub fn is_prepare(&self) -> bool {
        matches!(self.kind, Kind::PrepareSpare(_) | Kind::FinishSegment(_))
    }

    /// What the job is, for the log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Roll(_) => "roll",
            Kind::Truncate(_) => "truncate",
            Kind::WriteEpochCheckpoint(_) => "write epoch checkpoint",
            Kind::PrepareSpare(_) => "prepare segment",
            Kind::FinishSegment(_) => "finish segment",
            Kind::Close(_) => "close",
        }
    }

    /// Carries the job out. Blocks.
    #[must_use]
    pub fn run(self) -> JobDone<D> {
        let (disk, dir) = (&self.disk, &self.dir);
        let result = match self.kind {
            Kind::Roll(roll) => roll.run(disk, dir),
            Kind::Truncate(truncate) => truncate.run(disk, dir),
            Kind::WriteEpochCheckpoint(epochs) => write_epoch_checkpoint(disk, dir, &epochs)
                .map(|()| Done::EpochCheckpointWritten(epochs)),
            Kind::PrepareSpare(mut spare) => match spare.step(disk, dir) {
                Ok(Some(ready)) => Ok(Done::SpareReady(ready)),
                Ok(None) => Ok(Done::SpareStep(spare)),
                Err(error) => Err(error),
            },
            Kind::FinishSegment(segment) => {
                segment.finish(disk, dir).map(|()| Done::SegmentFinished)
            }
            Kind::Close(close) => close.run(disk, dir),
        };
        JobDone { result }
    }
}

/// Replaces the epoch checkpoint, durably.
pub(crate) fn write_epoch_checkpoint<D: Disk>(
    disk: &D,
    dir: &Path,
    epochs: &[EpochStart],
) -> Result<(), StorageError> {
    let content = encode_epoch_checkpoint(epochs);
    write_file_atomically(disk, dir, EPOCH_CHECKPOINT_NAME, &content)
        .during(Operation::WriteStateFile, &dir.join(EPOCH_CHECKPOINT_NAME))
}

impl<D: Disk> Roll<D> {
    fn run(self, disk: &D, dir: &Path) -> Result<Done<D>, StorageError> {
        // An empty segment is not cut: the new one has its name and replaces it.
        if self.segment < self.end_offset {
            let path = segment_path(dir, self.segment, SegmentFile::Log);
            cut(&*self.file, &path, self.position)?;
        }
        activate(disk, dir, self.end_offset)?;
        Ok(Done::Rolled(self.spare))
    }
}

impl<D: Disk> Truncate<D> {
    fn run(self, disk: &D, dir: &Path) -> Result<Done<D>, StorageError> {
        let end = self.end_offset;
        let kept = self.epochs.iter().filter(|entry| entry.start_offset < end);
        let epochs: Vec<EpochStart> = kept.copied().collect();
        if self.spare.is_some() {
            self.cut(disk, dir)?;
        }
        // After the cut: a crash before it needs the old entries, one after it drops them.
        if epochs.len() != self.epochs.len() {
            write_epoch_checkpoint(disk, dir, &epochs)?;
        }
        Ok(Done::Truncated {
            end_offset: end,
            generation: self.generation,
            epochs,
            active: self.spare,
        })
    }

    fn cut(&self, disk: &D, dir: &Path) -> Result<(), StorageError> {
        let end = self.end_offset;
        let holder = self.segments.iter().rev().find(|base| **base <= end);
        let Some(&segment) = holder.filter(|_| end <= self.flushed_end) else {
            return Err(self.not_here(dir, end, "the end lies outside the log"));
        };
        if segment < end {
            let (at, indexes) = self.find_end(disk, dir, segment)?;
            seal(disk, dir, &self.segments, &at)?;
            write_indexes(disk, dir, &indexes)?;
        } else {
            unlink_behind(disk, dir, &self.segments, segment)?;
        }
        activate(disk, dir, end)
    }

    /// Where in `segment` the new end is, and the indexes of what stays.
    fn find_end(
        &self,
        disk: &D,
        dir: &Path,
        segment: Offset,
    ) -> Result<(SealAt<D::File>, IndexFiles), StorageError> {
        let path = segment_path(dir, segment, SegmentFile::Log);
        let is_active = self.segments.last() == Some(&segment);
        let file = if is_active {
            Arc::clone(&self.active)
        } else {
            let opened = disk.open(&path, OpenMode::Direct);
            Arc::new(opened.during(Operation::Open, &path)?)
        };
        let limit = if is_active {
            self.active_position
        } else {
            u64::MAX
        };
        let mut indexes = IndexBuilder::new(segment, self.index_interval_bytes);
        let mut scanner = Scanner::new(&*file, 0, limit).during(Operation::Read, &path)?;
        let mut next = segment;
        while next < self.end_offset {
            match scanner.next() {
                Ok(Some(batch)) => {
                    indexes.add(&batch.header, batch.position);
                    next = batch.header.end_offset();
                }
                Ok(None) => return Err(self.not_here(dir, segment, "the segment ends before it")),
                Err(ScanError::Io(source)) => {
                    let at = scanner.position();
                    return Err(StorageError::new(Operation::Read, &path, at, source));
                }
                Err(ScanError::Fault(fault)) => {
                    return Err(self.not_here(dir, segment, &fault.to_string()));
                }
            }
        }
        if next != self.end_offset {
            return Err(self.not_here(dir, segment, "it lies inside a batch"));
        }
        let position = scanner.position();
        let at = SealAt {
            segment,
            file: Some(file),
            position,
        };
        Ok((at, indexes.finish()))
    }

    fn not_here(&self, dir: &Path, segment: Offset, why: &str) -> StorageError {
        let path = segment_path(dir, segment, SegmentFile::Log);
        let message = format!("no batch ends at offset {}: {why}", self.end_offset);
        let source = io::Error::new(io::ErrorKind::InvalidData, message);
        StorageError::new(Operation::Truncate, &path, 0, source)
    }
}

impl<D: Disk> Close<D> {
    /// All that the marker vouches for is durable before it.
    fn run(mut self, disk: &D, dir: &Path) -> Result<Done<D>, StorageError> {
        for segment in &self.unfinished {
            segment.finish(disk, dir)?;
        }
        seal(disk, dir, &self.segments, &self.at)?;
        write_indexes(disk, dir, &self.indexes)?;
        disk.sync_dir(dir).during(Operation::FlushDir, dir)?;
        let marker = CleanShutdown {
            log_end_offset: self.end_offset,
            epoch: self.epoch,
            manifest: self.write_manifest(disk, dir)?,
        };
        write_clean_shutdown(disk, dir, marker)?;
        // Last, since it may take long: without one the next start takes longer, that is all.
        if let Some(spare) = self.spare.take() {
            let _ = spare.finish(disk, dir);
        }
        Ok(Done::Closed)
    }

    fn write_manifest(&self, disk: &D, dir: &Path) -> Result<Option<u32>, StorageError> {
        let Some(producers) = &self.producers else {
            return Ok(None);
        };
        assert_eq!(producers.end, self.end_offset, "where the producers stand");
        write_file_atomically(disk, dir, PRODUCERS_NAME, &producers.content)
            .during(Operation::WriteStateFile, &dir.join(PRODUCERS_NAME))?;
        let segments = segment_lengths(disk, dir, &self.segments)?;
        Ok(Some(manifest(&segments, &self.epochs, &producers.content)))
    }
}

/// Each segment's base offset and the length of its file.
pub(crate) fn segment_lengths<D: Disk>(
    disk: &D,
    dir: &Path,
    segments: &[Offset],
) -> Result<Vec<(Offset, u64)>, StorageError> {
    let length = |base: &Offset| {
        let path = segment_path(dir, *base, SegmentFile::Log);
        let bytes = disk.file_bytes(&path).during(Operation::Read, &path)?;
        Ok((*base, bytes))
    };
    segments.iter().map(length).collect()
}
