//! Reads a segment file batch by batch, each checked by its CRC. Serves recovery, reads,
//! truncation, verify and dump; decides nothing about what it finds.

use crate::disk::{DiskFile, is_retriable};
use crate::format::{BATCH_HEADER_BYTES, BatchError, BatchHeader};
use crate::segment::{BLOCK_BYTES, block_floor};
use quorate_ring::AlignedBuf;
use std::io;
use std::ops::Deref;

/// Bytes read at once: enough for most reads, and fast to begin with.
const WINDOW_BYTES: usize = 256 * 1024;

/// How often a read that was interrupted or cut short is done again.
const ATTEMPTS_MAX: usize = 64;

/// Why a scan stopped.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The disk failed.
    Io(io::Error),
    /// What stands at the scanner's position is not a whole batch.
    Fault(BatchError),
}

/// One batch and where it stands.
#[derive(Debug)]
pub(crate) struct Scanned<'a> {
    pub position: u64,
    pub header: BatchHeader,
    pub bytes: &'a [u8],
}

/// Walks over the batches of a file. Reads whole aligned blocks, so direct files serve as well.
#[derive(Debug)]
pub(crate) struct Scanner<R> {
    file: R,
    file_bytes: u64,
    /// Batches end here at the latest.
    limit: u64,
    position: u64,
    window: AlignedBuf,
    window_start: u64,
    window_filled: usize,
}

impl<R: Deref<Target: DiskFile + Sized>> Scanner<R> {
    /// A scanner of the bytes from `position` to `limit`, or to the end of the file if that is
    /// first.
    pub(crate) fn new(file: R, position: u64, limit: u64) -> io::Result<Self> {
        let file_bytes = file.len()?;
        let limit = limit.min(file_bytes);
        let wanted = usize::try_from(limit.saturating_sub(block_floor(position)));
        let window = AlignedBuf::zeroed(wanted.unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES));
        Ok(Self {
            file,
            file_bytes,
            limit,
            position,
            window,
            window_start: 0,
            window_filled: 0,
        })
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> &R::Target {
        &self.file
    }

    /// Where the next batch begins, or the one that is faulty.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` exactly at the limit.
    ///
    /// # Errors
    /// `Fault` if there is no whole batch; the position stays.
    pub(crate) fn next(&mut self) -> Result<Option<Scanned<'_>>, ScanError> {
        let left = self.limit.saturating_sub(self.position);
        if left == 0 {
            return Ok(None);
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let at = self.load(left.min(BATCH_HEADER_BYTES))?;
        let size = BatchHeader::parse(&self.window[at..at + left.min(BATCH_HEADER_BYTES)])
            .map_err(ScanError::Fault)?
            .size;
        if size > left {
            return Err(ScanError::Fault(BatchError::Cut {
                needed: size,
                found: left,
            }));
        }
        let at = self.load(size)?;
        let bytes = &self.window[at..at + size];
        let header = BatchHeader::parse_whole(bytes).map_err(ScanError::Fault)?;
        let position = self.position;
        self.position += size as u64;
        Ok(Some(Scanned {
            position,
            header,
            bytes,
        }))
    }

    /// Makes `count` bytes from the position on available and returns where in the window they are.
    fn load(&mut self, count: usize) -> Result<usize, ScanError> {
        let window_end = self.window_start + self.window_filled as u64;
        if self.position < self.window_start || self.position + count as u64 > window_end {
            self.refill(count).map_err(ScanError::Io)?;
        }
        // The window begins at most a block before the position.
        Ok((self.position - self.window_start) as usize)
    }

    fn refill(&mut self, count: usize) -> io::Result<()> {
        let start = block_floor(self.position);
        if count + BLOCK_BYTES > self.window.len() {
            self.window = AlignedBuf::zeroed(count + BLOCK_BYTES);
        }
        (self.window_start, self.window_filled) = (start, 0);
        let there = usize::try_from(self.file_bytes - start).unwrap_or(usize::MAX);
        let wanted = there.min(self.window.len());
        read_blocks(&*self.file, &mut self.window, start, wanted)?;
        self.window_filled = wanted;
        Ok(())
    }
}

/// Fills the first `wanted` bytes of `buf` from `start` on, which must be there. A short read is
/// done again from the start, as a direct file can't be read from the middle of a block.
///
/// # Errors
/// `UnexpectedEof` if the file is shorter; else what the file system says.
pub(crate) fn read_blocks(
    file: &impl DiskFile,
    buf: &mut AlignedBuf,
    start: u64,
    wanted: usize,
) -> io::Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        match file.read_at(buf, start) {
            Ok(count) if count >= wanted => return Ok(()),
            Ok(_) => {}
            Err(error) if is_retriable(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::UnexpectedEof))
}
