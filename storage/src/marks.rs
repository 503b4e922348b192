//! Reads the marks of an active segment and judges the group that the newest one tells of.

use crate::disk::DiskFile;
use crate::format::{ChunkState, LogIdentity, Mark, is_mark};
use crate::inspect::Fault;
use crate::scan::read_blocks;
use crate::segment::{BLOCK, BLOCK_BYTES, Layout, block_floor};
use quorate_raft::Offset;
use quorate_ring::AlignedBuf;
use std::io;

/// What the mark slots of a segment hold.
#[derive(Debug)]
pub(crate) enum Marks {
    /// No mark: the segment is sealed, or Kafka's.
    None,
    /// The newest mark.
    Of(Box<Mark>),
    /// Marks, but not under this log's identity.
    OfAnotherLog,
}

/// Reads both slots.
pub(crate) fn read_marks<F: DiskFile>(
    file: &F,
    layout: Layout,
    identity: Option<LogIdentity>,
    base: Offset,
) -> io::Result<Marks> {
    let mut slots = AlignedBuf::zeroed(2 * BLOCK_BYTES);
    read_blocks(file, &mut slots, layout.data_bytes(), 2 * BLOCK_BYTES)?;
    let mut newest: Option<Mark> = None;
    for slot in 0..2_usize {
        let block = &slots[slot * BLOCK_BYTES..(slot + 1) * BLOCK_BYTES];
        let mark = identity.and_then(|identity| Mark::decode(block, identity, base));
        let fits = |mark: &Mark| {
            mark.sequence % 2 == slot as u64 && mark.end_position <= layout.data_bytes()
        };
        let mark = mark.filter(fits);
        // With an identity this can be a client's record at the end of a sealed segment.
        if identity.is_none() && is_mark(block) {
            return Ok(Marks::OfAnotherLog);
        }
        newest = match (newest, mark) {
            (Some(old), Some(new)) if old.sequence > new.sequence => Some(old),
            (old, new) => new.or(old),
        };
    }
    Ok(newest.map_or(Marks::None, |mark| Marks::Of(Box::new(mark))))
}

/// Why a group that is not whole was not merely torn; `None` if it was torn.
///
/// `fault` is what stopped the walk inside the group.
pub(crate) fn judge_group<F: DiskFile>(
    file: &F,
    mark: &Mark,
    fault: &Fault,
) -> io::Result<Option<Fault>> {
    let first = mark.first_block_position();
    let mut is_torn = false;
    for index in 0..mark.sums.chunk_count() {
        let range = mark.sums.chunk_range(index);
        let start = first + range.start as u64;
        let mut buf = AlignedBuf::zeroed(range.len());
        let wanted = buf.len();
        read_blocks(file, &mut buf, start, wanted)?;
        let prefix = if index == 0 {
            (mark.durable_position - first) as usize
        } else {
            0
        };
        match mark.sums.judge(index, &buf, prefix) {
            ChunkState::Landed => {}
            ChunkState::Torn => is_torn = true,
            ChunkState::Damaged { expected, found } => {
                return Ok(Some(Fault {
                    position: start,
                    expected: format!("a block with checksum {expected:#010x}"),
                    found: format!("one with {found:#010x} that no torn write leaves"),
                }));
            }
        }
    }
    // Every block is as submitted and yet no whole batches: they were damaged before they came
    // here.
    Ok((!is_torn).then(|| fault.clone()))
}

/// Whether a byte other than zero stands in the blocks at and behind `position`, up to 64 KiB on.
pub(crate) fn any_byte<F: DiskFile>(file: &F, position: u64, limit: u64) -> io::Result<bool> {
    let start = block_floor(position);
    let bytes = (limit - start).min(16 * BLOCK) as usize;
    if bytes == 0 {
        return Ok(false);
    }
    let mut buf = AlignedBuf::zeroed(bytes);
    read_blocks(file, &mut buf, start, bytes)?;
    let skip = (position - start) as usize;
    Ok(buf[skip.min(bytes)..bytes].iter().any(|&byte| byte != 0))
}
