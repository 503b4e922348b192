//! One group on its way to the disk: what is written, where, and what may be said once it is
//! flushed.

use crate::disk::{Disk, DiskFile, is_retriable};
use quorate_raft::{Epoch, Generation, Offset};
use quorate_ring::AlignedBuf;
use std::io;
use std::sync::Arc;

/// A group of batches to be written and flushed.
///
/// Contract for whoever carries it out: write all of `data` at `data_position` and all of `mark` at
/// `mark_position`, in any order or together; only when both are complete, flush the file
/// (fdatasync); then hand the value to `LogWriter::on_group_done`. An interrupted or short write
/// before the flush: write everything again. A failed flush is final. The buffers are not touched
/// by anybody until then.
#[derive(Debug)]
pub struct GroupIo<D: Disk> {
    /// The active segment, opened for direct I/O.
    pub file: Arc<D::File>,
    /// Byte of the file where `data` goes; a block boundary.
    pub data_position: u64,
    /// Whole blocks: the durable part of the tail block again, the batches, zeros.
    pub data: AlignedBuf,
    /// Byte of the file where `mark` goes; a block boundary.
    pub mark_position: u64,
    /// One block.
    pub mark: AlignedBuf,
    pub(crate) end: GroupEnd,
}

/// What holds once the group is flushed.
#[derive(Clone, Debug)]
pub(crate) struct GroupEnd {
    pub sequence: u64,
    pub generation: Generation,
    pub end_offset: Offset,
    pub end_epoch: Epoch,
    pub batches: u64,
    pub location: GroupLocation,
}

/// Where a group stands, for the index in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLocation {
    /// Base offset of the segment.
    pub segment_base: Offset,
    /// Offset of the group's first record.
    pub base_offset: Offset,
    /// Byte of the segment where the group's first batch begins.
    pub position: u64,
    /// Byte of the segment where its last batch ends.
    pub end_position: u64,
}

/// How often an interrupted or short write is done again before the group counts as failed.
const ATTEMPTS_MAX: usize = 16;

impl<D: Disk> GroupIo<D> {
    /// Carries the group out on this thread: for tests, the simulator and nodes without a ring.
    ///
    /// # Errors
    /// The write or flush that failed; final.
    pub fn run_blocking(&self) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if self.write_once()? {
                return self.file.sync_data();
            }
        }
        Err(io::Error::from(io::ErrorKind::WriteZero))
    }

    /// Whether both writes were complete.
    fn write_once(&self) -> io::Result<bool> {
        let writes = [
            (&self.data, self.data_position),
            (&self.mark, self.mark_position),
        ];
        for (buf, position) in writes {
            match self.file.write_at(buf, position) {
                Ok(written) if written == buf.len() => {}
                Ok(_) => return Ok(false),
                Err(error) if is_retriable(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
