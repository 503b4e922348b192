//! The active segment and the groups that go into it: which batches, which bytes, which mark.

use super::{Entry, InFlight, LogWriter, StampedBatch};
use crate::disk::Disk;
use crate::format::{BatchHeader, GroupSums, MARK_BYTES, Mark};
use crate::group::{GroupEnd, GroupIo, GroupLocation};
use crate::index_file::IndexBuilder;
use crate::seal::{SealAt, Spare};
use crate::segment::{BLOCK_BYTES, Layout, block_floor};
use quorate_raft::Offset;
use quorate_ring::AlignedBuf;
use std::sync::Arc;

/// Buffers kept for reuse. Groups of a steady load have one or two sizes.
const POOLED_BUFFERS_MAX: usize = 3;

/// The segment that is written to.
#[derive(Debug)]
pub(super) struct Active<D: Disk> {
    pub(super) base: Offset,
    pub(super) file: Arc<D::File>,
    pub(super) layout: Layout,
    /// Byte where the last group ends. All before it is durable.
    pub(super) position: u64,
    /// The bytes of the last, partly filled block: written again with the next group.
    pub(super) tail: Vec<u8>,
    /// Number of the next group.
    pub(super) sequence: u64,
    pub(super) indexes: IndexBuilder,
}

impl<D: Disk> LogWriter<D> {
    /// Takes waiting batches as far as the group, the segment and the epoch go.
    pub(super) fn form_group(&mut self) -> GroupIo<D> {
        let mut batches: Vec<StampedBatch> = Vec::new();
        let mut bytes = 0;
        let epoch = self.epochs.last().expect("an epoch was begun").epoch;
        while let Some(Entry::Batch(batch)) = self.queue.front() {
            let size = batch.bytes.len();
            let is_full = !batches.is_empty() && bytes + size > self.config.group_bytes_max;
            if is_full || batch.epoch > epoch || !self.active.fits(batch, bytes) {
                break;
            }
            bytes += size;
            if let Some(Entry::Batch(batch)) = self.queue.pop_front() {
                batches.push(batch);
            }
        }
        self.queued_bytes -= bytes;
        let group = self.encode_group(&batches, bytes);
        let sequence = group.end.sequence;
        self.in_flight = InFlight::Group { sequence, bytes };
        group
    }

    pub(super) fn encode_group(&mut self, batches: &[StampedBatch], bytes: usize) -> GroupIo<D> {
        let last = batches.last().expect("a group has a batch");
        let prefix = self.active.tail.len();
        let mut data = self.buffer(prefix + bytes);
        data[..prefix].copy_from_slice(&self.active.tail);
        let start = self.active.position;
        let mut filled = prefix;
        for batch in batches {
            let position = start + (filled - prefix) as u64;
            let header = BatchHeader::parse(&batch.bytes).expect("checked when appended");
            self.active.indexes.add(&header, position);
            data[filled..filled + batch.bytes.len()].copy_from_slice(&batch.bytes);
            filled += batch.bytes.len();
        }
        data[filled..].fill(0);
        let end_position = start + bytes as u64;
        let sequence = self.active.sequence;
        let mut mark = self.buffer(MARK_BYTES);
        let content = Mark {
            segment_base: self.active.base,
            sequence,
            durable_position: start,
            durable_offset: self.flushed.offset,
            durable_epoch: self.flushed.epoch,
            end_position,
            end_offset: last.end_offset,
            end_epoch: last.epoch,
            sums: GroupSums::of(&data, prefix),
        };
        content.encode(self.identity, &mut mark);
        GroupIo {
            file: Arc::clone(&self.active.file),
            data_position: block_floor(start),
            data,
            mark_position: self.active.layout.mark_position(sequence),
            mark,
            end: GroupEnd {
                sequence,
                generation: self.generation,
                end_offset: last.end_offset,
                end_epoch: last.epoch,
                batches: batches.len() as u64,
                location: GroupLocation {
                    segment_base: self.active.base,
                    base_offset: self.flushed.offset,
                    position: start,
                    end_position,
                },
            },
        }
    }

    /// A buffer of `bytes` rounded up to blocks. Its content is whatever it was.
    pub(super) fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        let len = bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        match self.pool.iter().position(|buf| buf.len() == len) {
            Some(index) => self.pool.swap_remove(index),
            None => AlignedBuf::zeroed(len),
        }
    }

    pub(super) fn recycle(&mut self, buf: AlignedBuf) {
        if self.pool.len() == POOLED_BUFFERS_MAX {
            self.pool.remove(0);
        }
        self.pool.push(buf);
    }
}

impl<D: Disk> Active<D> {
    pub(super) fn begin(base: Offset, spare: Spare<D::File>, index_interval_bytes: u64) -> Self {
        Self {
            base,
            file: spare.file,
            layout: spare.layout,
            position: 0,
            tail: Vec::new(),
            sequence: 1,
            indexes: IndexBuilder::new(base, index_interval_bytes),
        }
    }

    /// Whether `batch` fits behind the `group_bytes` that go before it. Kafka's indexes count
    /// offsets relative to the segment in 31 bits.
    pub(super) fn fits(&self, batch: &StampedBatch, group_bytes: usize) -> bool {
        let end = self.position + (group_bytes + batch.bytes.len()) as u64;
        let relative = batch.end_offset.0 - self.base.0;
        end <= self.layout.data_bytes() && relative <= i64::from(i32::MAX)
    }

    pub(super) fn seal_at(&self) -> SealAt<D::File> {
        SealAt {
            segment: self.base,
            file: Some(Arc::clone(&self.file)),
            position: self.position,
        }
    }

    pub(super) fn on_flushed(&mut self, end_position: u64, data: &[u8]) {
        self.position = end_position;
        self.sequence += 1;
        self.tail.clear();
        let rest = (end_position - block_floor(end_position)) as usize;
        if rest > 0 {
            let block = data.len() - BLOCK_BYTES;
            self.tail.extend_from_slice(&data[block..block + rest]);
        }
    }
}
