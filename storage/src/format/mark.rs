//! The marks: what recovery needs to tell a torn group from a damaged one.
//!
//! Every active segment has two mark slots in its last two blocks, cut off when it is sealed. Group
//! n writes its mark into slot n mod 2 together with its data, so the mark of group n - 1 survives
//! whatever happens to group n. A spare is prepared with mark 0, of no group and no segment, before
//! it gets a name: a segment with a valid mark is active, one without is sealed and must be whole.
//!
//! One block of 4096 bytes, big-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `QRTMARK` and a zero |
//! | 8 | 4 | version, 0 |
//! | 12 | 4 | zero |
//! | 16 | 16 | identity of the log (`log_identity.rs`) |
//! | 32 | 8 | base offset of the segment; -1 in mark 0 |
//! | 40 | 8 | sequence: 0, then 1 for the segment's first group, ... |
//! | 48 | 8 | durable position: bytes of the segment flushed when the group was submitted |
//! | 56 | 8 | durable end offset, there |
//! | 64 | 4 | epoch of the last batch before it |
//! | 68 | 4 | epoch of the group's last batch |
//! | 72 | 8 | end position of the group |
//! | 80 | 8 | end offset of the group |
//! | 88 | 4 | blocks that the group writes |
//! | 92 | 4 | blocks per chunk, a power of two |
//! | 96 | 8 each | per chunk: CRC-32C, and where its last byte other than zero ends |
//! | | 1 each | per block: a bit for each 512 bytes in which the group has a byte other than zero |
//! | 4092 | 4 | CRC-32C of bytes 0 to 4091 |

use super::batch::{BATCH_BYTES_LIMIT, array, crc32c};
use super::log_identity::LogIdentity;
use crate::segment::{BLOCK, BLOCK_BYTES};
use quorate_raft::{Epoch, Offset};

/// Base offset in the mark of a segment that has none yet.
const SPARE_BASE: Offset = Offset(-1);

/// Size of a mark: one block, so that it never shares a block with anything else.
pub const MARK_BYTES: usize = BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"QRTMARK\0";
const SUMS_AT: usize = 96;
const CRC_AT: usize = MARK_BYTES - 4;
const SUM_BYTES: usize = 8;
/// Smallest unit that a disk writes as a whole. Larger ones are multiples of it.
const SECTOR_BYTES: usize = 512;

/// Most blocks that one group writes: the largest batch, and two more that it touches in part.
const GROUP_BLOCKS_MAX: usize = BATCH_BYTES_LIMIT / BLOCK_BYTES + 2;
const _: () = assert!(
    SUMS_AT + GROUP_BLOCKS_MAX.div_ceil(16) * SUM_BYTES + GROUP_BLOCKS_MAX <= CRC_AT,
    "sums of the largest group fit into a mark"
);
const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES == 8, "a byte of bits per block");

/// What one group wrote, and what was durable before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Base offset of the segment that the mark belongs to.
    pub segment_base: Offset,
    /// Number of the group in its segment, from 1. 0: no group yet.
    pub sequence: u64,
    /// Bytes of the segment that were durable when the group was submitted; the group begins here.
    pub durable_position: u64,
    /// End of the log there (exclusive).
    pub durable_offset: Offset,
    /// Epoch of the last batch before `durable_offset`.
    pub durable_epoch: Epoch,
    /// Where the group's bytes end.
    pub end_position: u64,
    /// End of the log there (exclusive).
    pub end_offset: Offset,
    /// Epoch of the group's last batch.
    pub end_epoch: Epoch,
    /// Checksums of the group's blocks as they were submitted.
    pub sums: GroupSums,
}

/// Checksums of the blocks that one group writes, in chunks of one or more blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSums {
    blocks_per_chunk: usize,
    chunks: Vec<ChunkSum>,
    /// Per block, a bit for each sector in which the group's own bytes are not all zero.
    sectors: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkSum {
    crc: u32,
    /// Bytes of the chunk up to its last one that is not zero.
    content_end: u32,
}

/// What became of a chunk of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// It is as it was submitted.
    Landed,
    /// A part of it still is as it was before the group: the write did not finish.
    Torn,
    /// It is neither: something else changed it.
    Damaged {
        /// Checksum as submitted.
        expected: u32,
        /// Checksum as found.
        found: u32,
    },
}

impl Mark {
    /// The mark that a segment is prepared with, before it is known where it will begin: no group
    /// was written.
    #[must_use]
    pub fn of_spare() -> Self {
        Self {
            segment_base: SPARE_BASE,
            sequence: 0,
            durable_position: 0,
            durable_offset: SPARE_BASE,
            durable_epoch: Epoch(-1),
            end_position: 0,
            end_offset: SPARE_BASE,
            end_epoch: Epoch(-1),
            sums: GroupSums::default(),
        }
    }

    /// Writes the mark into `block`.
    ///
    /// # Panics
    /// If `block` is not [`MARK_BYTES`] long.
    pub fn encode(&self, identity: LogIdentity, block: &mut [u8]) {
        self.encode_fields(identity, block);
        self.sums.encode(block);
        seal(block);
    }

    /// Writes the mark into `block` with the sums of `data` in place of its own: what
    /// [`GroupSums::of`] gives, without memory for them.
    ///
    /// # Panics
    /// As [`Self::encode`] and [`GroupSums::of`].
    pub fn encode_group(
        &self,
        identity: LogIdentity,
        data: &[u8],
        prefix: usize,
        block: &mut [u8],
    ) {
        self.encode_fields(identity, block);
        encode_sums(data, prefix, block);
        seal(block);
    }

    fn encode_fields(&self, identity: LogIdentity, block: &mut [u8]) {
        assert_eq!(block.len(), MARK_BYTES, "a mark is one block");
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC);
        block[16..32].copy_from_slice(&identity.0);
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &self.segment_base.0.to_be_bytes());
        put(40, &self.sequence.to_be_bytes());
        put(48, &self.durable_position.to_be_bytes());
        put(56, &self.durable_offset.0.to_be_bytes());
        put(64, &self.durable_epoch.0.to_be_bytes());
        put(68, &self.end_epoch.0.to_be_bytes());
        put(72, &self.end_position.to_be_bytes());
        put(80, &self.end_offset.0.to_be_bytes());
    }

    /// Reads the mark in `block`. `None` unless it is whole, of this log and of this segment (or
    /// that of a spare, which any segment begins with): a slot that was never written, was torn, or
    /// holds something else.
    #[must_use]
    pub fn decode(block: &[u8], identity: LogIdentity, segment_base: Offset) -> Option<Self> {
        if !is_mark(block) || block[16..32] != identity.0 {
            return None;
        }
        let mark = Self {
            segment_base: Offset(i64::from_be_bytes(array(block, 32))),
            sequence: u64::from_be_bytes(array(block, 40)),
            durable_position: u64::from_be_bytes(array(block, 48)),
            durable_offset: Offset(i64::from_be_bytes(array(block, 56))),
            durable_epoch: Epoch(i32::from_be_bytes(array(block, 64))),
            end_epoch: Epoch(i32::from_be_bytes(array(block, 68))),
            end_position: u64::from_be_bytes(array(block, 72)),
            end_offset: Offset(i64::from_be_bytes(array(block, 80))),
            sums: GroupSums::decode(block)?,
        };
        let ordered = mark.durable_position <= mark.end_position
            && mark.durable_offset <= mark.end_offset
            && mark.end_position < u64::MAX / 2;
        let is_spares = mark.sequence == 0 && mark.segment_base == SPARE_BASE;
        let belongs = mark.segment_base == segment_base || is_spares;
        (belongs && ordered && mark.covers_its_group()).then_some(mark)
    }

    /// First byte of the first block that the group writes.
    #[must_use]
    pub fn first_block_position(&self) -> u64 {
        self.durable_position / BLOCK * BLOCK
    }

    fn covers_its_group(&self) -> bool {
        let blocks = if self.end_position == self.durable_position {
            0
        } else {
            self.end_position.div_ceil(BLOCK) - self.durable_position / BLOCK
        };
        blocks == self.sums.sectors.len() as u64
    }
}

/// Whether `block` is a whole mark of any log: its magic, version and checksum hold.
pub(crate) fn is_mark(block: &[u8]) -> bool {
    block.len() == MARK_BYTES
        && block[..8] == MAGIC
        && block[8..12] == [0; 4]
        && crc32c(&block[..CRC_AT]).to_be_bytes() == block[CRC_AT..]
}

impl GroupSums {
    /// Sums of `data`, the blocks of a group, of which the first `prefix` bytes were durable
    /// before.
    ///
    /// # Panics
    /// If `data` is not whole blocks, or more than a group has.
    #[must_use]
    pub fn of(data: &[u8], prefix: usize) -> Self {
        let mut block = [0; MARK_BYTES];
        encode_sums(data, prefix, &mut block);
        Self::decode(&block).expect("just encoded")
    }

    /// How many chunks.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes of the group that chunk `index` covers, from the group's first block on.
    pub(crate) fn chunk_range(&self, index: usize) -> std::ops::Range<usize> {
        let first = index * self.blocks_per_chunk;
        let end = (first + self.blocks_per_chunk).min(self.sectors.len());
        first * BLOCK_BYTES..end * BLOCK_BYTES
    }

    /// What became of chunk `index`, whose bytes are now `bytes` and of which the first `prefix`
    /// bytes were durable before the group.
    ///
    /// Segments are zeroed before use, so a sector that the write did not reach is zero from
    /// `prefix` on where the group has other bytes. A write that stopped inside a sector (which D2
    /// rules out, but a copy of a file may have) shows in the zeros at the chunk's end.
    pub(crate) fn judge(&self, index: usize, bytes: &[u8], prefix: usize) -> ChunkState {
        let expected = self.chunks[index];
        let found = ChunkSum::of(bytes);
        if found.crc == expected.crc {
            return ChunkState::Landed;
        }
        let first = index * self.blocks_per_chunk;
        let now = sector_bits(bytes, prefix);
        let submitted = &self.sectors[first..first + now.len()];
        let has_old_sector = submitted
            .iter()
            .zip(&now)
            .any(|(then, now)| then & !now != 0);
        if has_old_sector || found.content_end < expected.content_end {
            return ChunkState::Torn;
        }
        ChunkState::Damaged {
            expected: expected.crc,
            found: found.crc,
        }
    }

    fn encode(&self, block: &mut [u8]) {
        let mut at = SUMS_AT;
        for chunk in &self.chunks {
            chunk.encode(&mut block[at..at + SUM_BYTES]);
            at += SUM_BYTES;
        }
        block[at..at + self.sectors.len()].copy_from_slice(&self.sectors);
        put_counts(block, self.sectors.len(), self.blocks_per_chunk);
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let blocks = u32::from_be_bytes(array(block, 88)) as usize;
        let per_chunk = u32::from_be_bytes(array(block, 92)) as usize;
        if blocks == 0 {
            return Some(Self::default());
        }
        if blocks > GROUP_BLOCKS_MAX || per_chunk != blocks_per_chunk(blocks) {
            return None;
        }
        let sums_end = SUMS_AT + blocks.div_ceil(per_chunk) * SUM_BYTES;
        let chunks = block[SUMS_AT..sums_end].chunks_exact(SUM_BYTES);
        Some(Self {
            blocks_per_chunk: per_chunk,
            chunks: chunks
                .map(|sum| ChunkSum {
                    crc: u32::from_be_bytes(array(sum, 0)),
                    content_end: u32::from_be_bytes(array(sum, 4)),
                })
                .collect(),
            sectors: block[sums_end..sums_end + blocks].to_vec(),
        })
    }
}

impl ChunkSum {
    fn of(bytes: &[u8]) -> Self {
        let content_end = bytes.iter().rposition(|&byte| byte != 0);
        Self {
            crc: crc32c(bytes),
            // A chunk is far below 4 GiB.
            content_end: content_end.map_or(0, |last| last as u32 + 1),
        }
    }

    fn encode(self, place: &mut [u8]) {
        place[..4].copy_from_slice(&self.crc.to_be_bytes());
        place[4..].copy_from_slice(&self.content_end.to_be_bytes());
    }
}

/// Writes the sums of `data` where a mark has them.
fn encode_sums(data: &[u8], prefix: usize, block: &mut [u8]) {
    assert_eq!(data.len() % BLOCK_BYTES, 0, "a group is whole blocks");
    let blocks = data.len() / BLOCK_BYTES;
    assert!(blocks <= GROUP_BLOCKS_MAX, "a group of {blocks} blocks");
    let per_chunk = blocks_per_chunk(blocks);
    let mut at = SUMS_AT;
    for chunk in data.chunks(per_chunk * BLOCK_BYTES) {
        ChunkSum::of(chunk).encode(&mut block[at..at + SUM_BYTES]);
        at += SUM_BYTES;
    }
    put_sector_bits(data, prefix, &mut block[at..at + blocks]);
    put_counts(block, blocks, per_chunk);
}

/// Both are bounded by `GROUP_BLOCKS_MAX`.
fn put_counts(block: &mut [u8], blocks: usize, per_chunk: usize) {
    block[88..92].copy_from_slice(&(blocks as u32).to_be_bytes());
    block[92..96].copy_from_slice(&(per_chunk as u32).to_be_bytes());
}

fn seal(block: &mut [u8]) {
    let crc = crc32c(&block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
}

/// The smallest power of two with which the sums of `blocks` blocks fit into a mark.
fn blocks_per_chunk(blocks: usize) -> usize {
    let mut per_chunk = 1;
    while SUMS_AT + blocks.div_ceil(per_chunk) * SUM_BYTES + blocks > CRC_AT {
        per_chunk *= 2;
    }
    per_chunk
}

/// Per block, a bit for each sector that has a byte other than zero behind the first `prefix`
/// bytes.
fn put_sector_bits(data: &[u8], prefix: usize, bits: &mut [u8]) {
    for (index, sector) in data.chunks_exact(SECTOR_BYTES).enumerate() {
        let skip = prefix
            .saturating_sub(index * SECTOR_BYTES)
            .min(sector.len());
        if sector[skip..].iter().any(|&byte| byte != 0) {
            bits[index / 8] |= 1 << (index % 8);
        }
    }
}

fn sector_bits(data: &[u8], prefix: usize) -> Vec<u8> {
    let mut bits = vec![0; data.len() / BLOCK_BYTES];
    put_sector_bits(data, prefix, &mut bits);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogIdentity = LogIdentity([9; 16]);

    fn data(blocks: usize) -> Vec<u8> {
        (0..blocks * BLOCK_BYTES)
            .map(|at| (at % 251) as u8)
            .collect()
    }

    fn mark(blocks: usize) -> Mark {
        Mark {
            segment_base: Offset(100),
            sequence: 5,
            durable_position: 8192,
            durable_offset: Offset(130),
            durable_epoch: Epoch(2),
            end_position: 8192 + (blocks * BLOCK_BYTES) as u64,
            end_offset: Offset(140),
            end_epoch: Epoch(3),
            sums: GroupSums::of(&data(blocks), 0),
        }
    }

    #[test]
    fn marks_of_the_smallest_and_the_largest_group_come_back() {
        for blocks in [1, 2, 257, 1000, GROUP_BLOCKS_MAX] {
            let mut block = vec![0; MARK_BYTES];
            mark(blocks).encode(ID, &mut block);
            assert_eq!(Mark::decode(&block, ID, Offset(100)), Some(mark(blocks)));
        }
        let mut with_sums = vec![0; MARK_BYTES];
        let mut without = mark(257);
        without.encode(ID, &mut with_sums);
        without.sums = GroupSums::default();
        let mut block = vec![0xff; MARK_BYTES];
        without.encode_group(ID, &data(257), 0, &mut block);
        assert!(block == with_sums);
        let mut block = vec![0; MARK_BYTES];
        Mark::of_spare().encode(ID, &mut block);
        assert_eq!(Mark::decode(&block, ID, Offset(7)), Some(Mark::of_spare()));
    }

    #[test]
    fn a_torn_or_foreign_mark_is_none() {
        let mut block = vec![0; MARK_BYTES];
        mark(3).encode(ID, &mut block);
        assert_eq!(
            Mark::decode(&block, LogIdentity([8; 16]), Offset(100)),
            None
        );
        assert_eq!(Mark::decode(&block, ID, Offset(101)), None);
        for at in (0..MARK_BYTES).step_by(SECTOR_BYTES) {
            let mut torn = block.clone();
            torn[at..at + SECTOR_BYTES].fill(0);
            let same = torn == block;
            assert_eq!(Mark::decode(&torn, ID, Offset(100)).is_some(), same);
        }
    }

    #[test]
    fn a_missing_sector_is_torn_and_a_changed_bit_is_damage() {
        let submitted = data(2);
        let sums = GroupSums::of(&submitted, 0);
        for sector in 0..8 {
            let mut torn = submitted[..BLOCK_BYTES].to_vec();
            torn[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
            assert_eq!(sums.judge(0, &torn, 0), ChunkState::Torn);
        }
        for at in 1..BLOCK_BYTES {
            let mut changed = submitted[..BLOCK_BYTES].to_vec();
            changed[at] ^= 0x80;
            assert!(matches!(
                sums.judge(0, &changed, 0),
                ChunkState::Damaged { .. }
            ));
        }
        assert_eq!(
            sums.judge(1, &submitted[BLOCK_BYTES..], 0),
            ChunkState::Landed
        );
    }

    #[test]
    fn zeros_that_the_group_itself_wrote_are_no_sign_of_a_torn_write() {
        let mut submitted = data(1);
        submitted[1024..2048].fill(0);
        let sums = GroupSums::of(&submitted, 0);
        submitted[0] ^= 1;
        assert!(matches!(
            sums.judge(0, &submitted, 0),
            ChunkState::Damaged { .. }
        ));
    }

    #[test]
    fn the_durable_prefix_does_not_hide_an_unreached_sector() {
        let submitted = data(1);
        let prefix = 700;
        let sums = GroupSums::of(&submitted, prefix);
        let mut torn = submitted.clone();
        torn[prefix..1024].fill(0);
        assert_eq!(sums.judge(0, &torn, prefix), ChunkState::Torn);
    }
}
