//! Kafka's record batch, magic 2: the unit in which records are written, replicated and read.
//! Here is its header; the records inside are `record.rs`. Never copies a batch.
//!
//! | at | bytes | field | remarks |
//! |---|---|---|---|
//! | 0 | 8 | base offset | outside the CRC |
//! | 8 | 4 | length of what follows this field | outside the CRC |
//! | 12 | 4 | partition leader epoch | outside the CRC |
//! | 16 | 1 | magic, 2 | outside the CRC |
//! | 17 | 4 | CRC-32C of byte 21 to the end | |
//! | 21 | 2 | attributes | bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control |
//! | 23 | 4 | last offset delta | |
//! | 27 | 8 | base timestamp, ms | |
//! | 35 | 8 | max timestamp, ms | |
//! | 43 | 8 | producer id, or -1 | |
//! | 51 | 2 | producer epoch, or -1 | |
//! | 53 | 4 | base sequence, or -1 | |
//! | 57 | 4 | count of records | |
//! | 61 | | records | |

use quorate_raft::{BatchMeta, Epoch, ErrorCode, Offset};
use std::fmt;
use std::ops::Range;

/// Bytes of a batch before its records; no batch is shorter.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Largest batch that a producer may send, in bytes (Kafka's raft limit,
/// `KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
pub const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Largest batch that the log holds. Above [`BATCH_BYTES_MAX`], since a Kafka leader counts only
/// the records against its limit, not the header.
pub const BATCH_BYTES_LIMIT: usize = BATCH_BYTES_MAX + 64 * 1024;

/// Base offset and length: what stands before the bytes that the length counts.
const LOG_OVERHEAD_BYTES: usize = 12;
const EPOCH_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const CRC_COVERS_FROM: usize = 21;
const MAGIC: i8 = 2;

/// What is wrong with a batch. For a producer's batch, [`BatchError::error_code`] is the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than a batch needs, or than it says it has.
    #[error("the batch needs {needed} bytes, {found} are there")]
    Cut {
        /// Bytes the batch needs, as far as known.
        needed: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// The length field is not that of a batch.
    #[error("the batch says that it is {0} bytes long")]
    Length(i64),
    /// Larger than allowed.
    #[error("a batch of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Whole size of the batch.
        bytes: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// Not a batch of magic 2.
    #[error("the batch has magic {0} instead of 2")]
    Magic(i8),
    /// The checksum differs.
    #[error("the batch says CRC {expected:#010x}, its bytes have {found:#010x}")]
    Crc {
        /// What the header says.
        expected: u32,
        /// What the bytes have.
        found: u32,
    },
    /// A field of the header has a value that it must not have.
    #[error("the batch has {field} {value}")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// More than one batch where there must be exactly one.
    #[error("{0} bytes follow the batch")]
    TrailingBytes(usize),
    /// A record inside is malformed.
    #[error("record {index} of the batch: {fault}")]
    Record {
        /// Which, from 0.
        index: i32,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The records are compressed in a way that Kafka has no number for.
    #[error("the batch has codec {0}")]
    UnknownCodec(u8),
    /// The compressed bytes are not one whole stream of their codec, or one that not every client
    /// can read.
    #[error("the records are not as {0} compresses them")]
    Compression(Codec),
    /// Decompressed, the records are larger than allowed.
    #[error("the records are larger than {0} bytes when decompressed")]
    Decompressed(u64),
    /// The records are compressed and this function reads only uncompressed ones.
    #[error("the records are compressed with {0}")]
    Compressed(Codec),
}

impl BatchError {
    /// What a producer is told: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT,
    /// UNSUPPORTED_COMPRESSION_TYPE or INVALID_RECORD. After MESSAGE_TOO_LARGE some clients send
    /// the records again in smaller batches.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Cut { .. } | Self::Length(_) | Self::Crc { .. } => ErrorCode::CORRUPT_MESSAGE,
            Self::TooLarge { .. } | Self::Decompressed(_) => ErrorCode::MESSAGE_TOO_LARGE,
            Self::UnknownCodec(_) => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            Self::Magic(_) => ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT,
            Self::Field { .. }
            | Self::TrailingBytes(_)
            | Self::Record { .. }
            | Self::Compression(_)
            | Self::Compressed(_) => ErrorCode::INVALID_RECORD,
        }
    }
}

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    None,
    /// 1
    Gzip,
    /// 2
    Snappy,
    /// 3
    Lz4,
    /// 4
    Zstd,
    /// A number that Kafka has not given out: 5 to 7.
    Unknown(u8),
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Gzip => f.write_str("gzip"),
            Self::Snappy => f.write_str("snappy"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd => f.write_str("zstd"),
            Self::Unknown(id) => write!(f, "codec {id}"),
        }
    }
}

/// The header of a batch whose fields are in range. The CRC is not checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record. Not negative; base + last offset delta + 1 does not overflow.
    pub base_offset: Offset,
    /// Whole size of the batch in bytes, at least [`BATCH_HEADER_BYTES`].
    pub size: usize,
    /// Partition leader epoch; in a producer's batch anything.
    pub epoch: Epoch,
    /// CRC-32C as the header has it.
    pub crc: u32,
    /// The attribute bits.
    pub attributes: i16,
    /// Offset of the last record less the base offset; not negative.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas are relative to, in ms.
    pub base_timestamp: i64,
    /// Largest timestamp of the batch, in ms.
    pub max_timestamp: i64,
    /// Of an idempotent producer, else -1.
    pub producer_id: i64,
    /// Of an idempotent producer, else -1.
    pub producer_epoch: i16,
    /// Sequence number of the first record of an idempotent producer, else -1.
    pub base_sequence: i32,
    /// How many records, as the header has it: not checked against the records.
    pub count: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, of which the rest of the batch need not be there.
    ///
    /// # Errors
    /// `Cut` if fewer than 61 bytes are there, `Length`, `TooLarge` (above [`BATCH_BYTES_LIMIT`]),
    /// `Magic`, or `Field` for a value out of range.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let size = batch_size(bytes)?;
        if let Some(&magic) = bytes.get(MAGIC_AT)
            && magic.cast_signed() != MAGIC
        {
            return Err(BatchError::Magic(magic.cast_signed()));
        }
        if size < BATCH_HEADER_BYTES {
            return Err(BatchError::Length(size as i64));
        }
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Cut {
                needed: size,
                found: bytes.len(),
            });
        };
        let parsed = Self::read(header, size);
        parsed.check_ranges()?;
        Ok(parsed)
    }

    fn read(bytes: &[u8; BATCH_HEADER_BYTES], size: usize) -> Self {
        Self {
            base_offset: Offset(i64::from_be_bytes(array(bytes, 0))),
            size,
            epoch: Epoch(i32::from_be_bytes(array(bytes, EPOCH_AT))),
            crc: u32::from_be_bytes(array(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(array(bytes, 21)),
            last_offset_delta: i32::from_be_bytes(array(bytes, 23)),
            base_timestamp: i64::from_be_bytes(array(bytes, 27)),
            max_timestamp: i64::from_be_bytes(array(bytes, 35)),
            producer_id: i64::from_be_bytes(array(bytes, 43)),
            producer_epoch: i16::from_be_bytes(array(bytes, 51)),
            base_sequence: i32::from_be_bytes(array(bytes, 53)),
            count: i32::from_be_bytes(array(bytes, 57)),
        }
    }

    fn check_ranges(&self) -> Result<(), BatchError> {
        let offset = self.base_offset.0;
        let delta = self.last_offset_delta;
        // The end must be an offset too: below the largest number.
        if offset < 0 || offset >= i64::MAX - i64::from(i32::MAX) {
            return Err(BatchError::Field {
                field: "base offset",
                value: offset,
            });
        }
        if delta < 0 {
            return Err(BatchError::Field {
                field: "last offset delta",
                value: delta.into(),
            });
        }
        Ok(())
    }

    /// Reads the header and checks that the whole batch is there and its CRC holds.
    ///
    /// # Errors
    /// As [`BatchHeader::parse`], `Cut` if the batch is not all there, `Crc` if it was changed.
    pub fn parse_whole(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(bytes)?;
        let Some(batch) = bytes.get(..header.size) else {
            return Err(BatchError::Cut {
                needed: header.size,
                found: bytes.len(),
            });
        };
        let found = crc32c(&batch[CRC_COVERS_FROM..]);
        if found != header.crc {
            return Err(BatchError::Crc {
                expected: header.crc,
                found,
            });
        }
        Ok(header)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0 + i64::from(self.last_offset_delta))
    }

    /// Offset after the last record (exclusive end).
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        Offset(self.last_offset().0 + 1)
    }

    /// Whether the records are the log's own, not a producer's.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// How the records are compressed.
    #[must_use]
    pub fn codec(&self) -> Codec {
        match self.attributes & 0x07 {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            other => Codec::Unknown(other as u8),
        }
    }

    /// What the protocol needs to know of the batch.
    #[must_use]
    pub fn meta(&self) -> BatchMeta {
        BatchMeta {
            base_offset: self.base_offset,
            end_offset: self.end_offset(),
            epoch: self.epoch,
        }
    }
}

/// Whole size of the batch at the front of `bytes`, from its length field.
fn batch_size(bytes: &[u8]) -> Result<usize, BatchError> {
    if bytes.len() < LOG_OVERHEAD_BYTES {
        return Err(BatchError::Cut {
            needed: BATCH_HEADER_BYTES,
            found: bytes.len(),
        });
    }
    let length = i32::from_be_bytes(array(bytes, 8));
    let Ok(length) = usize::try_from(length) else {
        return Err(BatchError::Length(length.into()));
    };
    let size = length + LOG_OVERHEAD_BYTES;
    if size > BATCH_BYTES_LIMIT {
        return Err(BatchError::TooLarge {
            bytes: size,
            limit: BATCH_BYTES_LIMIT,
        });
    }
    Ok(size)
}

/// `N` bytes of `bytes` from `at` on.
///
/// # Panics
/// If they are not there: the caller has checked the length.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// CRC-32C (Castagnoli), as in every batch.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The library counts every checksum in 64 bits; this one has 32.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Gives a batch its place in the log. Both fields lie outside the CRC, so nothing else changes.
///
/// # Panics
/// If `batch` is shorter than a header: it was checked before it gets a place.
pub fn stamp(batch: &mut [u8], base_offset: Offset, epoch: Epoch) {
    assert!(
        batch.len() >= BATCH_HEADER_BYTES,
        "a batch of {} bytes",
        batch.len()
    );
    batch[..8].copy_from_slice(&base_offset.0.to_be_bytes());
    batch[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch.0.to_be_bytes());
}

/// Walks over the whole batches of a run of bytes, each checked by its CRC.
///
/// A last batch that is cut off is not there at all, as in Kafka's Fetch answers. After an error
/// nothing more comes.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, at: 0 }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Batches<'_> {
    type Item = Result<(BatchHeader, Range<usize>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        match BatchHeader::parse_whole(&self.bytes[start..]) {
            Ok(header) => {
                self.at += header.size;
                Some(Ok((header, start..self.at)))
            }
            Err(error) => {
                self.at = self.bytes.len();
                match error {
                    BatchError::Cut { .. } => None,
                    other => Some(Err(other)),
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Segment 0 of a single-voter Kafka 4.4.0 raft node.
    pub(crate) const GOLDEN_LOG: &[u8] =
        include_bytes!("../../testdata/testraftserver-single-node.log");

    #[test]
    fn a_log_written_by_kafka_is_whole_batches_to_its_end() {
        let mut end = 0;
        let mut next = Offset(0);
        for batch in batches(GOLDEN_LOG) {
            let (header, range) = batch.unwrap();
            assert_eq!(header.base_offset, next);
            assert_eq!(range.start, end);
            assert_eq!(header.epoch, Epoch(1));
            (next, end) = (header.end_offset(), range.end);
        }
        assert_eq!(end, GOLDEN_LOG.len());
        let first = BatchHeader::parse_whole(GOLDEN_LOG).unwrap();
        assert!(first.is_control());
        assert_eq!((first.size, first.crc, first.count), (91, 0xa174_0fe5, 1));
        assert_eq!(first.codec(), Codec::None);
    }

    #[test]
    fn every_changed_bit_under_the_crc_is_noticed() {
        let first = &GOLDEN_LOG[..91];
        for at in CRC_AT..first.len() {
            for bit in 0..8 {
                let mut changed = first.to_vec();
                changed[at] ^= 1 << bit;
                let error = BatchHeader::parse_whole(&changed).unwrap_err();
                let named = matches!(error, BatchError::Crc { .. } | BatchError::Field { .. });
                assert!(named, "{at} {bit}: {error}");
            }
        }
    }

    #[test]
    fn a_cut_last_batch_is_ignored_and_a_bad_one_ends_the_walk() {
        for end in 91..191 {
            assert_eq!(batches(&GOLDEN_LOG[..end]).count(), 1);
        }
        assert_eq!(batches(&GOLDEN_LOG[..191]).count(), 2);
        let mut bad = GOLDEN_LOG[..300].to_vec();
        bad[120] ^= 1;
        let walked: Vec<_> = batches(&bad).collect();
        assert_eq!(walked.len(), 2);
        assert!(matches!(walked[1], Err(BatchError::Crc { .. })));
    }

    #[test]
    fn a_stamp_changes_offset_and_epoch_and_keeps_the_crc() {
        let mut batch = GOLDEN_LOG[..91].to_vec();
        stamp(&mut batch, Offset(77), Epoch(5));
        let header = BatchHeader::parse_whole(&batch).unwrap();
        assert_eq!((header.base_offset, header.epoch), (Offset(77), Epoch(5)));
        assert_eq!(header.end_offset(), Offset(78));
    }

    #[test]
    fn hostile_headers_are_errors() {
        let batch = &GOLDEN_LOG[..91];
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = batch.to_vec();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            BatchHeader::parse(&changed).unwrap_err()
        };
        assert_eq!(with(8, &(-1_i32).to_be_bytes()), BatchError::Length(-1));
        assert_eq!(with(8, &48_i32.to_be_bytes()), BatchError::Length(60));
        assert!(matches!(
            with(8, &i32::MAX.to_be_bytes()),
            BatchError::TooLarge { .. }
        ));
        assert_eq!(with(16, &[1]), BatchError::Magic(1));
        for (at, bytes) in [
            (0, &i64::MAX.to_be_bytes()[..]),
            (0, &(-1_i64).to_be_bytes()[..]),
            (23, &(-1_i32).to_be_bytes()[..]),
        ] {
            assert!(matches!(with(at, bytes), BatchError::Field { .. }));
        }
        for end in 0..61 {
            assert!(BatchHeader::parse(&batch[..end]).is_err());
        }
    }
}
