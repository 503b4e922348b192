//! Builds batches, uncompressed, in Kafka's layout. Decides neither offset nor epoch: `stamp` does.

use super::batch::{BATCH_HEADER_BYTES, crc32c, stamp};
use super::varint::{put_signed, put_unsigned};
use quorate_raft::{Epoch, Offset};

/// A record header: a key and perhaps a value.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// A record to be put into a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// In ms.
    pub timestamp: i64,
    /// Its key, if any.
    pub key: Option<&'a [u8]>,
    /// Its value, if any.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order.
    pub headers: &'a [Header<'a>],
}

impl<'a> NewRecord<'a> {
    /// A record with a value and nothing else.
    #[must_use]
    pub fn value(timestamp: i64, value: &'a [u8]) -> Self {
        Self {
            timestamp,
            value: Some(value),
            ..Self::default()
        }
    }
}

/// A batch that is being filled.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    epoch: Epoch,
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    producer: (i64, i16, i32),
    count: i32,
    /// The header's place, then the records.
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl BatchBuilder {
    /// A batch of records at `base_offset` in `epoch`.
    #[must_use]
    pub fn new(base_offset: Offset, epoch: Epoch) -> Self {
        Self {
            base_offset,
            epoch,
            attributes: 0,
            base_timestamp: -1,
            max_timestamp: -1,
            producer: (-1, -1, -1),
            count: 0,
            bytes: vec![0; BATCH_HEADER_BYTES],
            scratch: Vec::new(),
        }
    }

    /// A batch as a producer sends it: base offset 0, no epoch.
    #[must_use]
    pub fn produced() -> Self {
        Self::new(Offset(0), Epoch(-1))
    }

    /// A batch of control records at `base_offset` in `epoch`.
    #[must_use]
    pub fn control(base_offset: Offset, epoch: Epoch) -> Self {
        Self {
            attributes: 0x20,
            ..Self::new(base_offset, epoch)
        }
    }

    /// Makes it an idempotent producer's batch.
    #[must_use]
    pub fn idempotent(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Adds a record. The first one's timestamp is the batch's base timestamp.
    ///
    /// # Panics
    /// If the batch has 2^31 - 1 records, or a length exceeds 2^31 - 1.
    pub fn push(&mut self, record: NewRecord<'_>) {
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
            self.max_timestamp = record.timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        body.push(0);
        put_signed(
            &mut body,
            record.timestamp.wrapping_sub(self.base_timestamp),
        );
        put_signed(&mut body, self.count.into());
        put_nullable(&mut body, record.key);
        put_nullable(&mut body, record.value);
        put_length(&mut body, record.headers.len());
        for (key, value) in record.headers {
            put_nullable(&mut body, Some(key.as_bytes()));
            put_nullable(&mut body, *value);
        }
        put_length(&mut self.bytes, body.len());
        self.bytes.extend_from_slice(&body);
        self.scratch = body;
        self.count = self.count.checked_add(1).expect("records of one batch");
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Bytes so far, the header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The finished batch.
    ///
    /// # Panics
    /// If it has no record, or is longer than 2 GiB.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        assert!(self.count > 0, "a batch without records");
        let mut bytes = self.bytes;
        let length = i32::try_from(bytes.len() - 12).expect("length of a batch");
        let (id, producer_epoch, sequence) = self.producer;
        stamp(&mut bytes, self.base_offset, self.epoch);
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[23..27].copy_from_slice(&(self.count - 1).to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&id.to_be_bytes());
        bytes[51..53].copy_from_slice(&producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.count.to_be_bytes());
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => put_signed(out, -1),
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = i32::try_from(length).expect("a length inside a batch");
    put_unsigned(out, u64::from(length.unsigned_abs()) << 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::tests::GOLDEN_LOG;
    use crate::format::{BatchHeader, records};

    #[test]
    fn a_built_data_batch_is_kafkas_byte_for_byte() {
        let golden = BatchHeader::parse_whole(&GOLDEN_LOG[91..]).unwrap();
        let mut builder = BatchBuilder::new(Offset(1), Epoch(1));
        builder.push(NewRecord::value(golden.base_timestamp, &[0; 32]));
        assert_eq!(builder.build(), &GOLDEN_LOG[91..91 + golden.size]);
    }

    #[test]
    fn keys_values_headers_and_timestamps_come_back() {
        let mut builder = BatchBuilder::new(Offset(40), Epoch(3)).idempotent(9, 1, 100);
        builder.push(NewRecord {
            timestamp: 500,
            key: Some(b"k"),
            value: None,
            headers: &[("a", Some(b"1")), ("b", None)],
        });
        builder.push(NewRecord::value(450, b""));
        let batch = builder.build();
        let header = BatchHeader::parse_whole(&batch).unwrap();
        assert_eq!((header.producer_id, header.base_sequence), (9, 100));
        assert_eq!((header.base_timestamp, header.max_timestamp), (500, 500));
        assert_eq!(header.last_offset(), Offset(41));
        let read: Vec<_> = records(&batch).unwrap().map(Result::unwrap).collect();
        assert_eq!(
            read[0].headers,
            [(&b"a"[..], Some(&b"1"[..])), (b"b", None)]
        );
        assert_eq!((read[0].key, read[0].value), (Some(&b"k"[..]), None));
        assert_eq!((read[1].offset, read[1].timestamp), (Offset(41), 450));
        assert_eq!(read[1].value, Some(&b""[..]));
    }
}
