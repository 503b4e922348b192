//! Reads of what is below the flushed end, for lagging replicas and consumers. Blocking, for a
//! background thread; never in the writer's way. Every batch is checked again on its way out.

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{Context, Operation, ReadError, ReadFault, StorageError};
use crate::format::BatchHeader;
use crate::index_file::find_entry;
use crate::scan::{ScanError, Scanned, Scanner};
use crate::segment::{SegmentFile, segment_path};
use bytes::Bytes;
use quorate_raft::{EpochStart, Generation, Offset};
use std::io;
use std::path::PathBuf;

/// One planned read. Within one segment: a read that reaches its end is continued by the next plan.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    pub(crate) dir: PathBuf,
    /// Base offset of the segment.
    pub(crate) base: Offset,
    /// Whether the segment was the last one: it may be active, so the page cache is not used.
    pub(crate) is_last: bool,
    pub(crate) generation: Generation,
    pub(crate) start: Start,
    pub(crate) end_position: u64,
    /// Of the segment's offsets; the first may begin before them.
    pub(crate) epochs: Vec<EpochStart>,
    pub(crate) from: Offset,
    pub(crate) below: Offset,
    pub(crate) max_bytes: usize,
}

/// Where a read begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// Offset and position of a batch at or before `from`.
    At((Offset, u64)),
    /// To be found in the segment's `.index`.
    Indexed,
}

impl ReadPlan {
    /// Truncations that had been carried out when the read was planned. If the index knows of more
    /// when the result comes, the result is to be dropped, and an error is no fault of the log.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Carries the read out. Blocks.
    ///
    /// Gives whole batches from the one that holds `from`, at least one if it ends at or below
    /// `below`, else nothing. Nothing that could not be checked is among them.
    ///
    /// # Errors
    /// `Gone` if the segment no longer reaches so far. `Corrupt` if the CRC, offset or epoch of the
    /// first batch, or of one on the way to it, is wrong. `Storage` if the disk failed. Of a log
    /// that was cut since, any of them.
    pub fn run<D: Disk>(&self, disk: &D) -> Result<Bytes, ReadError> {
        let mode = if self.is_last {
            OpenMode::Direct
        } else {
            OpenMode::Read
        };
        let path = self.path();
        let file = match disk.open(&path, mode) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.gone()),
            Err(error) => return Err(StorageError::new(Operation::Open, &path, 0, error).into()),
        };
        let (mut next, position) = self.find_start(disk, &file);
        let mut scanner =
            Scanner::new(&file, position, self.end_position).during(Operation::Read, &path)?;
        let mut out = Vec::new();
        loop {
            let batch = match self.next_batch(&mut scanner, next) {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                // What is before the fault is sound; the next read begins at the fault.
                Err(_) if !out.is_empty() => break,
                Err(error) => return Err(error),
            };
            next = batch.header.end_offset();
            if !self.take(&batch, &mut out) {
                break;
            }
        }
        if next <= self.from {
            return Err(self.gone());
        }
        Ok(Bytes::from(out))
    }

    /// The batch at `next`, checked; `None` at the end of the segment.
    fn next_batch<'a, F: DiskFile>(
        &self,
        scanner: &'a mut Scanner<&F>,
        next: Offset,
    ) -> Result<Option<Scanned<'a>>, ReadError> {
        let position = scanner.position();
        let batch = match scanner.next() {
            Ok(batch) => batch,
            Err(error) => return Err(self.fault(error, position, next)),
        };
        if let Some(batch) = &batch {
            self.check_place(&batch.header, next)
                .map_err(|fault| self.corrupt(position, next, fault))?;
        }
        Ok(batch)
    }

    fn path(&self) -> PathBuf {
        segment_path(&self.dir, self.base, SegmentFile::Log)
    }

    /// Offset and position of a batch at or before `from`. Without a sound index that is the
    /// segment's first: a damaged index costs time, never records.
    fn find_start<D: Disk>(&self, disk: &D, file: &D::File) -> (Offset, u64) {
        match self.start {
            Start::At(start) => start,
            Start::Indexed => self.look_up(disk, file).unwrap_or((self.base, 0)),
        }
    }

    fn look_up<D: Disk>(&self, disk: &D, file: &D::File) -> Option<(Offset, u64)> {
        let path = segment_path(&self.dir, self.base, SegmentFile::OffsetIndex);
        let index = disk.open(&path, OpenMode::Read).ok()?;
        let entry = find_entry(&index, self.base, self.from).ok()??;
        let mut scanner = Scanner::new(file, entry.position, self.end_position).ok()?;
        let header = scanner.next().ok()??.header;
        (header.last_offset() == entry.last_offset).then_some((header.base_offset, entry.position))
    }

    /// Offset and epoch lie outside the CRC: they must be what the log has there.
    fn check_place(&self, header: &BatchHeader, next: Offset) -> Result<(), ReadFault> {
        if header.base_offset != next {
            let found = header.base_offset;
            return Err(ReadFault::Offset { found });
        }
        let begun = |entry: &EpochStart| entry.start_offset <= next;
        let current = self.epochs[..self.epochs.partition_point(begun)].last();
        match current {
            Some(entry) if entry.epoch != header.epoch => Err(ReadFault::Epoch {
                expected: entry.epoch,
                found: header.epoch,
            }),
            _ => Ok(()),
        }
    }

    /// Adds the batch if it is wanted; whether the read goes on.
    fn take(&self, batch: &Scanned<'_>, out: &mut Vec<u8>) -> bool {
        let end = batch.header.end_offset();
        if end <= self.from {
            return true;
        }
        let is_full = !out.is_empty() && out.len() + batch.bytes.len() > self.max_bytes;
        if is_full || end > self.below {
            return false;
        }
        out.extend_from_slice(batch.bytes);
        out.len() < self.max_bytes && end < self.below
    }

    fn gone(&self) -> ReadError {
        ReadError::Gone {
            segment: self.path(),
            offset: self.from,
        }
    }

    fn corrupt(&self, position: u64, offset: Offset, fault: ReadFault) -> ReadError {
        ReadError::Corrupt {
            segment: self.path(),
            position,
            offset,
            fault,
        }
    }

    fn fault(&self, error: ScanError, position: u64, offset: Offset) -> ReadError {
        match error {
            // The file became shorter under the read: it was cut.
            ScanError::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => self.gone(),
            ScanError::Io(source) => {
                StorageError::new(Operation::Read, &self.path(), position, source).into()
            }
            ScanError::Fault(fault) => self.corrupt(position, offset, fault.into()),
        }
    }
}
