//! The active segment and the groups that go into it: which batches, which bytes, which mark.
//!
//! While a group is on its way the next one fills: batches are copied as they come, so that its
//! write can start as soon as the disk is done with the one before. This is the only copy that the
//! writer makes of them, and nothing is allocated for it.

use super::{Entry, InFlight, LogWriter, Waiting};
use crate::disk::Disk;
use crate::format::{GroupSums, MARK_BYTES, Mark};
use crate::group::{GroupEnd, GroupIo, GroupLocation};
use crate::index_file::IndexBuilder;
use crate::seal::{SealAt, Spare};
use crate::segment::{BLOCK_BYTES, Layout, block_floor};
use quorate_raft::{Epoch, Offset};
use quorate_ring::AlignedBuf;
use std::mem;
use std::sync::Arc;

/// The segment that is written to.
#[derive(Debug)]
pub(super) struct Active<D: Disk> {
    pub(super) base: Offset,
    pub(super) file: Arc<D::File>,
    pub(super) layout: Layout,
    /// Byte where the last group ends. With none in flight, all before it is durable.
    pub(super) position: u64,
    /// The bytes of the last, partly filled block: written again with the next group.
    tail: Vec<u8>,
    /// Number of the next group.
    sequence: u64,
    pub(super) indexes: IndexBuilder,
}

/// The next group: the first batches of the queue, copied behind the tail block.
#[derive(Debug, Default)]
pub(super) struct Filling {
    buf: Option<AlignedBuf>,
    batches: usize,
    /// Of these batches.
    bytes: usize,
}

impl Filling {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn batches(&self) -> usize {
        self.batches
    }
}

/// Memory for groups: one on its way, one that fills, and the mark.
#[derive(Debug)]
pub(super) struct GroupBuffers {
    data: Vec<AlignedBuf>,
    mark: Option<AlignedBuf>,
    /// Length of each of `data`. A batch that does not fit is alone in a buffer of its own.
    buffer_bytes: usize,
}

impl GroupBuffers {
    pub(super) fn new(group_bytes_max: usize) -> Self {
        // A full group behind a tail block that is full but for a byte.
        let buffer_bytes = group_bytes_max + BLOCK_BYTES;
        let data = [(); 2].map(|()| AlignedBuf::zeroed(buffer_bytes));
        Self {
            buffer_bytes: data[0].capacity(),
            data: data.into(),
            mark: Some(AlignedBuf::zeroed(MARK_BYTES)),
        }
    }

    pub(super) fn all_data(&mut self) -> impl Iterator<Item = &mut AlignedBuf> {
        self.data.iter_mut()
    }

    fn take_data(&mut self, bytes: usize) -> AlignedBuf {
        if bytes > self.buffer_bytes {
            return AlignedBuf::zeroed(bytes);
        }
        self.data.pop().expect("two groups have a buffer each")
    }

    fn keep_data(&mut self, data: AlignedBuf) {
        if data.capacity() == self.buffer_bytes {
            self.data.push(data);
        }
    }

    pub(super) fn give_back(&mut self, data: AlignedBuf, mark: AlignedBuf) {
        self.keep_data(data);
        self.mark = Some(mark);
    }
}

impl<D: Disk> LogWriter<D> {
    /// Takes the group that filled, and every batch that still fits.
    pub(super) fn form_group(&mut self) -> GroupIo<D> {
        self.fill();
        let Filling {
            buf,
            batches,
            bytes,
        } = mem::take(&mut self.filling);
        let mut data = buf.expect("the first batch fits");
        let start = self.active.position;
        let prefix = self.active.tail.len();
        data.set_len(prefix + bytes);
        data[prefix + bytes..].fill(0);
        let end = self.take_from_queue(batches);
        let mark = self.mark(&data, bytes, end);
        let sequence = self.active.sequence;
        let end_position = start + bytes as u64;
        self.active.advance(end_position, &data);
        self.queued_bytes -= bytes;
        self.in_flight = InFlight::Group { sequence, bytes };
        GroupIo {
            file: Arc::clone(&self.active.file),
            data_position: block_floor(start),
            data,
            mark_position: self.active.layout.mark_position(sequence),
            mark,
            end: GroupEnd {
                sequence,
                generation: self.generation,
                end_offset: end.0,
                end_epoch: end.1,
                batches: batches as u64,
                location: GroupLocation {
                    segment_base: self.active.base,
                    base_offset: self.flushed.offset,
                    position: start,
                    end_position,
                },
            },
        }
    }

    /// Copies waiting batches as far as the group, the segment and the epoch go.
    pub(super) fn fill(&mut self) {
        // In any other state the segment is about to change.
        if !matches!(self.in_flight, InFlight::Nothing | InFlight::Group { .. }) {
            return;
        }
        let Some(epoch) = self.epochs.last().map(|last| last.epoch) else {
            return;
        };
        while let Some(Entry::Batch(batch)) = self.queue.get(self.filling.batches) {
            let at = self.active.tail.len() + self.filling.bytes;
            let end = at + batch.bytes.len();
            let bytes = self.filling.bytes + batch.bytes.len();
            let is_full = self.filling.batches > 0 && bytes > self.config.group_bytes_max;
            if is_full || batch.epoch > epoch || !self.active.fits(batch, self.filling.bytes) {
                break;
            }
            let buf = self.filling.buf.get_or_insert_with(|| {
                let mut buf = self.buffers.take_data(end);
                buf.set_len(buf.capacity());
                buf[..at].copy_from_slice(&self.active.tail);
                buf
            });
            buf[at..end].copy_from_slice(&batch.bytes);
            self.filling.batches += 1;
            self.filling.bytes += batch.bytes.len();
        }
    }

    /// Forgets what was copied if the queue no longer begins with it.
    pub(super) fn refill_if_cut(&mut self) {
        if self.filling.batches > self.queue.len() {
            let Filling { buf, .. } = mem::take(&mut self.filling);
            buf.into_iter().for_each(|buf| self.buffers.keep_data(buf));
        }
    }

    /// Removes the first `count` batches from the queue and indexes them. Returns where they end.
    fn take_from_queue(&mut self, count: usize) -> (Offset, Epoch) {
        let mut position = self.active.position;
        let mut end = (self.flushed.offset, self.flushed.epoch);
        for entry in self.queue.drain(..count) {
            let Entry::Batch(batch) = entry else {
                unreachable!("only batches were copied")
            };
            self.active.indexes.add(&batch.header, position);
            position += batch.bytes.len() as u64;
            end = (batch.end_offset, batch.epoch);
        }
        end
    }

    fn mark(&mut self, data: &[u8], bytes: usize, end: (Offset, Epoch)) -> AlignedBuf {
        let mut block = self.buffers.mark.take().expect("one group at a time");
        let active = &self.active;
        let mark = Mark {
            segment_base: active.base,
            sequence: active.sequence,
            durable_position: active.position,
            durable_offset: self.flushed.offset,
            durable_epoch: self.flushed.epoch,
            end_position: active.position + bytes as u64,
            end_offset: end.0,
            end_epoch: end.1,
            sums: GroupSums::default(),
        };
        mark.encode_group(self.identity, data, active.tail.len(), &mut block);
        block
    }
}

impl<D: Disk> Active<D> {
    pub(super) fn begin(base: Offset, spare: Spare<D::File>, index_interval_bytes: u64) -> Self {
        let data_bytes = spare.layout.data_bytes();
        Self {
            base,
            file: spare.file,
            layout: spare.layout,
            position: 0,
            tail: Vec::with_capacity(BLOCK_BYTES),
            sequence: 1,
            indexes: IndexBuilder::with_room(base, index_interval_bytes, data_bytes),
        }
    }

    /// Whether `batch` fits behind the `group_bytes` that go before it. Kafka's indexes count
    /// offsets relative to the segment in 31 bits.
    pub(super) fn fits(&self, batch: &Waiting, group_bytes: usize) -> bool {
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

    /// A group of these blocks, that ends there, is on its way.
    fn advance(&mut self, end_position: u64, data: &[u8]) {
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
