//! Batches of a whole segment at the disk's speed: a second thread reads the next blocks while the
//! batches of the last ones are checked. For recovery, which reads whole segments; everything else
//! reads little and uses `Scanner` alone. Decides nothing about what it finds.

use crate::disk::DiskFile;
use crate::format::{BATCH_HEADER_BYTES, BatchError, BatchHeader};
use crate::scan::{ScanError, read_blocks};
use crate::segment::BLOCK_BYTES;
use quorate_ring::AlignedBuf;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

/// Bytes read at once: direct reads of less do not reach the disk's bandwidth.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// Chunks that are read before they are asked for.
const CHUNKS_AHEAD: usize = 2;

/// Files shorter than this are not worth a thread.
pub(crate) const READ_AHEAD_BYTES_MIN: u64 = 4 * CHUNK_BYTES as u64;

/// A chunk of the file, or why there is none.
type Chunk = io::Result<AlignedBuf>;

/// Reads a file chunk by chunk, ahead of whoever takes the batches.
pub(crate) struct ReadAhead {
    chunks: Receiver<Chunk>,
    /// Buffers that go back to the reading thread.
    used: SyncSender<AlignedBuf>,
    chunk: Option<AlignedBuf>,
    /// Of the bytes in `chunk` that no batch was made of yet.
    rest: Range<usize>,
    /// A batch that lies in more than one chunk, in one piece.
    pieced: Vec<u8>,
    position: u64,
    limit: u64,
    /// Bytes of the file that the chunks gave so far.
    taken: u64,
}

impl ReadAhead {
    /// Starts to read `file` from its first byte to `limit`, which the file has.
    pub(crate) fn start<'scope, F: DiskFile>(
        scope: &'scope Scope<'scope, '_>,
        file: &'scope F,
        limit: u64,
        chunk_bytes: usize,
    ) -> io::Result<Self> {
        assert!(chunk_bytes.is_multiple_of(BLOCK_BYTES), "{chunk_bytes}");
        let (chunks, receiver) = sync_channel(CHUNKS_AHEAD);
        let (used, recycled) = sync_channel(CHUNKS_AHEAD + 2);
        let read = move || read_chunks(file, limit, chunk_bytes, &chunks, &recycled);
        std::thread::Builder::new()
            .name("read ahead".into())
            .spawn_scoped(scope, read)?;
        Ok(Self {
            chunks: receiver,
            used,
            chunk: None,
            rest: 0..0,
            pieced: Vec::new(),
            position: 0,
            limit,
            taken: 0,
        })
    }

    /// The header of the next batch, which is checked whole; `None` exactly at the limit.
    ///
    /// # Errors
    /// `Fault` if there is no whole batch; the position stays, and nothing more is read.
    pub(crate) fn next(&mut self) -> Result<Option<BatchHeader>, ScanError> {
        let left = self.limit - self.position;
        if left == 0 {
            return Ok(None);
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let start = self.bytes(left.min(BATCH_HEADER_BYTES))?;
        let size = BatchHeader::parse(start).map_err(ScanError::Fault)?.size;
        if size > left {
            let (needed, found) = (size, left);
            return Err(ScanError::Fault(BatchError::Cut { needed, found }));
        }
        let header = BatchHeader::parse_whole(self.bytes(size)?).map_err(ScanError::Fault)?;
        self.advance(size);
        Ok(Some(header))
    }

    /// The next `count` bytes, which the file has, in one piece.
    fn bytes(&mut self, count: usize) -> Result<&[u8], ScanError> {
        if self.pieced.is_empty() {
            if self.chunk.is_none() {
                self.next_chunk()?;
            }
            if self.rest.len() < count {
                self.piece_rest();
            }
        }
        if self.pieced.is_empty() {
            let chunk = self.chunk.as_deref().unwrap_or_default();
            return Ok(&chunk[self.rest.start..self.rest.start + count]);
        }
        while self.pieced.len() < count {
            if self.rest.is_empty() {
                self.next_chunk()?;
            }
            let wanted = (count - self.pieced.len()).min(self.rest.len());
            self.piece(wanted);
        }
        Ok(&self.pieced[..count])
    }

    /// Takes what is left of the chunk as the first piece.
    fn piece_rest(&mut self) {
        self.piece(self.rest.len());
    }

    fn piece(&mut self, count: usize) {
        let chunk = self.chunk.as_deref().unwrap_or_default();
        let piece = &chunk[self.rest.start..self.rest.start + count];
        self.pieced.extend_from_slice(piece);
        self.rest.start += count;
    }

    fn advance(&mut self, size: usize) {
        self.position += size as u64;
        if self.pieced.is_empty() {
            self.rest.start += size;
        } else {
            // A batch is pieced together byte for byte: nothing of the next is among it.
            assert_eq!(self.pieced.len(), size, "a batch in pieces");
            self.pieced.clear();
        }
        if self.rest.is_empty()
            && let Some(chunk) = self.chunk.take()
        {
            let _ = self.used.try_send(chunk);
        }
    }

    fn next_chunk(&mut self) -> Result<(), ScanError> {
        if let Some(chunk) = self.chunk.take() {
            let _ = self.used.try_send(chunk);
        }
        let next = self
            .chunks
            .recv()
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::UnexpectedEof)));
        let chunk = next.map_err(ScanError::Io)?;
        let there = usize::try_from(self.limit - self.taken).unwrap_or(usize::MAX);
        self.rest = 0..there.min(chunk.len());
        self.taken += self.rest.len() as u64;
        self.chunk = Some(chunk);
        Ok(())
    }
}

/// The reading thread. Ends with the file, with an error, or when nobody wants more.
fn read_chunks<F: DiskFile>(
    file: &F,
    limit: u64,
    chunk_bytes: usize,
    chunks: &SyncSender<Chunk>,
    recycled: &Receiver<AlignedBuf>,
) {
    let mut at = 0;
    while at < limit {
        let buf = recycled.try_recv();
        let mut buf = buf.unwrap_or_else(|_| AlignedBuf::zeroed(chunk_bytes));
        let there = usize::try_from(limit - at).unwrap_or(usize::MAX);
        let result = read_blocks(file, &mut buf, at, there.min(chunk_bytes));
        let is_over = result.is_err();
        if chunks.send(result.map(|()| buf)).is_err() || is_over {
            return;
        }
        at += chunk_bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, OpenMode};
    use crate::format::{BatchBuilder, NewRecord};
    use crate::scan::Scanner;
    use crate::sim_disk::SimDisk;
    use quorate_raft::{Epoch, Offset};
    use std::path::Path;

    /// Batches of many sizes, some larger than a chunk.
    fn segment() -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..120_usize {
            let value = vec![number as u8; number * number * 37 % 19_000];
            let mut batch = BatchBuilder::new(Offset(number as i64), Epoch(1));
            batch.push(NewRecord::value(0, &value));
            bytes.extend_from_slice(&batch.build());
        }
        bytes
    }

    /// Each batch's place, and what ended the walk.
    fn walk(mut next: impl FnMut() -> Result<Option<(u64, Offset)>, ScanError>) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match next() {
                Ok(Some(place)) => seen.push(format!("{place:?}")),
                Ok(None) => break,
                Err(error) => {
                    seen.push(format!("{error:?}"));
                    break;
                }
            }
        }
        seen
    }

    fn assert_same(bytes: &[u8], limit: u64) {
        let disk = SimDisk::new();
        let path = Path::new("/d/f");
        disk.put(path, bytes);
        let file = disk.open(path, OpenMode::Direct).unwrap();
        let mut scanner = Scanner::new(&file, 0, limit).unwrap();
        let alone = walk(|| {
            let found = scanner.next()?;
            Ok(found.map(|batch| (batch.position, batch.header.base_offset)))
        });
        let ahead = std::thread::scope(|scope| {
            let mut ahead = ReadAhead::start(scope, &file, limit, 8192).unwrap();
            let mut position = 0;
            walk(|| {
                let Some(header) = ahead.next()? else {
                    return Ok(None);
                };
                position += header.size as u64;
                Ok(Some((position - header.size as u64, header.base_offset)))
            })
        });
        assert_eq!(ahead, alone, "{} bytes, to {limit}", bytes.len());
    }

    #[test]
    fn it_finds_what_a_scanner_finds() {
        let whole = segment();
        assert_same(&whole, whole.len() as u64);
        assert!(whole.len() > 500_000);
        for at in (0..whole.len()).step_by(12_011) {
            assert_same(&whole[..at], at as u64);
            assert_same(&whole, at as u64);
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_same(&damaged, whole.len() as u64);
        }
    }
}
