//! Reads of what is below the flushed end, for lagging replicas and consumers. Blocking, for a
//! background thread; never in the writer's way. Every batch is checked again on its way out.

use crate::disk::{Disk, OpenMode};
use crate::error::{Context, Operation, ReadError, StorageError};
use crate::scan::{ScanError, Scanned, Scanner};
use bytes::Bytes;
use quorate_raft::{Generation, Offset};
use std::io;
use std::path::PathBuf;

/// One planned read. Within one segment: a read that reaches its end is continued by the next plan.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    pub(crate) path: PathBuf,
    /// Whether the segment was the last one: it may be active, so the page cache is not used.
    pub(crate) is_last: bool,
    pub(crate) generation: Generation,
    /// Offset and position of a batch at or before `from`.
    pub(crate) start: (Offset, u64),
    pub(crate) end_position: u64,
    pub(crate) from: Offset,
    pub(crate) below: Offset,
    pub(crate) max_bytes: usize,
}

impl ReadPlan {
    /// Truncations that had been carried out when the read was planned. If the index knows of more
    /// when the result comes, the result is to be dropped.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Carries the read out. Blocks.
    ///
    /// Gives whole batches from the one that holds `from`, at least one if it ends at or below
    /// `below`, else nothing.
    ///
    /// # Errors
    /// `Gone` if the log was cut meanwhile: plan again. `Corrupt` if a batch's CRC or place in the
    /// log is wrong. `Storage` if the disk failed.
    pub fn run<D: Disk>(&self, disk: &D) -> Result<Bytes, ReadError> {
        let mode = if self.is_last {
            OpenMode::Direct
        } else {
            OpenMode::Read
        };
        let file = match disk.open(&self.path, mode) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.gone()),
            Err(error) => {
                return Err(StorageError::new(Operation::Open, &self.path, 0, error).into());
            }
        };
        let mut scanner = Scanner::new(&file, self.start.1, self.end_position)
            .during(Operation::Read, &self.path)?;
        let mut out = Vec::new();
        let mut next = self.start.0;
        loop {
            let position = scanner.position();
            let batch = match scanner.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Err(self.fault(error, position)),
            };
            if batch.header.base_offset != next {
                return Err(self.gone());
            }
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
            segment: self.path.clone(),
            offset: self.from,
        }
    }

    fn fault(&self, error: ScanError, position: u64) -> ReadError {
        match error {
            // The file became shorter under the read: it was cut.
            ScanError::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => self.gone(),
            ScanError::Io(source) => {
                StorageError::new(Operation::Read, &self.path, position, source).into()
            }
            ScanError::Fault(fault) => ReadError::Corrupt {
                segment: self.path.clone(),
                position,
                fault,
            },
        }
    }
}
