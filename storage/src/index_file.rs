//! The files `.index` and `.timeindex` of a sealed segment, as Kafka would have written them.
//! Quorate looks offsets up in `.index` where it has no entries in memory, and believes an entry
//! only if the batch that it names is there. It never reads `.timeindex`; Kafka and its tools do.
//!
//! `.index`, 8 bytes an entry: int32 last offset of a batch less the base offset, int32 position
//! where that batch begins. `.timeindex`, 12 bytes an entry: int64 largest timestamp so far, int32
//! offset of that batch less the base offset (Kafka's `LogSegment.append`).

use crate::disk::{DiskFile, read_full};
use crate::format::BatchHeader;
use quorate_raft::Offset;
use std::io;

/// Bytes of an entry of `.index`.
const ENTRY_BYTES: u64 = 8;

/// Collects the entries of one segment, batch by batch.
#[derive(Clone, Debug)]
pub(crate) struct IndexBuilder {
    base: Offset,
    interval: u64,
    bytes_since_entry: u64,
    offsets: Vec<u8>,
    times: Vec<u8>,
    /// Largest timestamp so far and the last offset of its batch.
    max: (i64, Offset),
    last_time: i64,
}

impl IndexBuilder {
    /// For the segment at `base`, with an entry after every `interval` bytes or more.
    pub(crate) fn new(base: Offset, interval: u64) -> Self {
        Self {
            base,
            interval,
            bytes_since_entry: 0,
            offsets: Vec::new(),
            times: Vec::new(),
            max: (-1, base),
            last_time: -1,
        }
    }

    /// The same with memory for the entries of `bytes` of batches, so that adding needs none.
    pub(crate) fn with_room(base: Offset, interval: u64, bytes: u64) -> Self {
        // A segment is at most 1 GiB and its batches larger than 60 bytes.
        let entries = (bytes / interval.max(64)) as usize + 1;
        Self {
            offsets: Vec::with_capacity(entries * 8),
            times: Vec::with_capacity(entries * 12),
            ..Self::new(base, interval)
        }
    }

    /// Adds the batch that begins at `position`.
    pub(crate) fn add(&mut self, header: &BatchHeader, position: u64) {
        let last = header.last_offset();
        if header.max_timestamp > self.max.0 {
            self.max = (header.max_timestamp, last);
        }
        if self.bytes_since_entry > self.interval {
            self.offsets.extend_from_slice(&self.relative(last));
            // Segments stay below 2 GiB: `LogConfig` is checked.
            self.offsets
                .extend_from_slice(&(position as u32).to_be_bytes());
            self.add_time();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size as u64;
    }

    fn add_time(&mut self) {
        let (timestamp, offset) = self.max;
        if timestamp > self.last_time {
            self.times.extend_from_slice(&timestamp.to_be_bytes());
            let relative = self.relative(offset);
            self.times.extend_from_slice(&relative);
            self.last_time = timestamp;
        }
    }

    /// A segment rolls before a relative offset exceeds 31 bits.
    fn relative(&self, offset: Offset) -> [u8; 4] {
        ((offset.0 - self.base.0) as u32).to_be_bytes()
    }

    /// The two files' contents, the time index with its closing entry.
    pub(crate) fn finish(mut self) -> IndexFiles {
        self.add_time();
        IndexFiles {
            base: self.base,
            offsets: self.offsets,
            times: self.times,
        }
    }
}

/// Contents of the two index files of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexFiles {
    pub base: Offset,
    pub offsets: Vec<u8>,
    pub times: Vec<u8>,
}

/// An entry of `.index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Of the batch.
    pub last_offset: Offset,
    /// Where the batch begins.
    pub position: u64,
}

/// The last entry of the `.index` of the segment at `base`.
///
/// # Errors
/// What the file system says; `InvalidData` if the file is no index.
pub(crate) fn last_entry(file: &impl DiskFile, base: Offset) -> io::Result<Option<IndexEntry>> {
    match entry_count(file)? {
        0 => Ok(None),
        count => entry(file, base, count - 1).map(Some),
    }
}

/// The last entry of a batch that ends at or before `offset`.
///
/// # Errors
/// As [`last_entry`].
pub(crate) fn find_entry(
    file: &impl DiskFile,
    base: Offset,
    offset: Offset,
) -> io::Result<Option<IndexEntry>> {
    let (mut found, mut low, mut high) = (None, 0, entry_count(file)?);
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = entry(file, base, middle)?;
        if entry.last_offset <= offset {
            found = Some(entry);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(found)
}

fn entry_count(file: &impl DiskFile) -> io::Result<u64> {
    let bytes = file.len()?;
    if bytes.is_multiple_of(ENTRY_BYTES) {
        return Ok(bytes / ENTRY_BYTES);
    }
    Err(io::Error::from(io::ErrorKind::InvalidData))
}

fn entry(file: &impl DiskFile, base: Offset, number: u64) -> io::Result<IndexEntry> {
    let mut bytes = [0; ENTRY_BYTES as usize];
    if read_full(file, &mut bytes, number * ENTRY_BYTES)? < bytes.len() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let [a, b, c, d, position @ ..] = bytes;
    Ok(IndexEntry {
        last_offset: Offset(
            base.0
                .saturating_add(u32::from_be_bytes([a, b, c, d]).into()),
        ),
        position: u32::from_be_bytes(position).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BatchBuilder, NewRecord};
    use quorate_raft::Epoch;

    #[test]
    fn entries_stand_where_kafka_puts_them() {
        let mut builder = IndexBuilder::new(Offset(100), 150);
        let mut position = 0;
        for (index, timestamp) in [10, 30, 20, 20, 40, 5].into_iter().enumerate() {
            let mut batch = BatchBuilder::new(Offset(100 + index as i64), Epoch(1));
            batch.push(NewRecord::value(timestamp, &[1; 32]));
            let bytes = batch.build();
            assert_eq!(bytes.len(), 100);
            builder.add(&BatchHeader::parse(&bytes).unwrap(), position);
            position += 100;
        }
        let files = builder.finish();
        // More than 150 bytes lie before the third batch and again before the fifth.
        let entries: Vec<u32> = (files.offsets.chunks(4))
            .map(|number| u32::from_be_bytes(number.try_into().unwrap()))
            .collect();
        assert_eq!(entries, [2, 200, 4, 400]);
        let expected = [
            &30_i64.to_be_bytes()[..],
            &1_u32.to_be_bytes(),
            &40_i64.to_be_bytes(),
            &4_u32.to_be_bytes(),
        ];
        assert_eq!(files.times, expected.concat());
    }
}
