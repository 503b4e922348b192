//! What is appended: how many records of which size make a group, and whether the next group waits
//! for the last. Each record is a batch of its own, as from as many clients.

use bytes::Bytes;
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::{BatchBuilder, NewRecord, stamp};
use std::fmt;

/// One row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Records of a group.
    pub(crate) records: usize,
    /// Bytes of a record's value.
    pub(crate) record_bytes: usize,
    /// The next group is there before the last is durable.
    pub(crate) is_busy: bool,
}

/// One append at a time.
pub(crate) const ONE_RECORD: Shape = Shape {
    records: 1,
    record_bytes: 256,
    is_busy: false,
};

/// Group after group of 1 MiB.
pub(crate) const FULL_GROUPS: Shape = Shape {
    records: 16,
    // With the headers of batch and record, sixteen of them are a little less than 1 MiB.
    record_bytes: 64 * 1024 - 128,
    is_busy: true,
};

/// All rows.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for record_bytes in [256, 1024] {
        for records in [1, 16, 128, 1024] {
            shapes.push(Shape {
                records,
                record_bytes,
                is_busy: false,
            });
        }
    }
    let is_busy = false;
    shapes.push(Shape {
        is_busy,
        ..FULL_GROUPS
    });
    shapes.push(FULL_GROUPS);
    shapes
}

impl Shape {
    /// A batch of one record.
    pub(crate) fn batch(&self) -> Vec<u8> {
        let value: Vec<u8> = (0..self.record_bytes).map(|at| (at % 251) as u8).collect();
        let mut builder = BatchBuilder::produced();
        builder.push(NewRecord::value(1_000, &value));
        builder.build()
    }

    /// The batches of a group that begins at `offset`.
    pub(crate) fn group(&self, batch: &[u8], offset: Offset) -> Vec<Bytes> {
        let stamped = |index| {
            let mut bytes = batch.to_vec();
            stamp(&mut bytes, Offset(offset.0 + index), Epoch(1));
            Bytes::from(bytes)
        };
        (0..self.records as i64).map(stamped).collect()
    }

    /// Groups in a block: fewer of the large ones.
    pub(crate) fn block(&self, wanted: usize) -> usize {
        let group = self.records * self.record_bytes;
        wanted.min((32 << 20) / group.max(1)).max(8)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_busy {
            "without a pause"
        } else {
            "one at a time"
        };
        write!(f, "{} x {} bytes, {how}", self.records, self.record_bytes)
    }
}
