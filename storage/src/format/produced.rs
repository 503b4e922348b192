//! The gate for a producer's batch: checked whole, since a poison batch with a valid CRC would be
//! committed and stop every reader. Nothing behind this gate looks at a producer's bytes again.

use super::batch::{BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchError, BatchHeader, Codec};
use super::record_check::{RecordsFault, check_records};

/// A batch that may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// Records in it, at least 1.
    pub count: i32,
    /// Its size in bytes.
    pub size: usize,
    /// How its records are compressed. If they are, nothing is known of them yet: see
    /// [`super::Decompressor`].
    pub codec: Codec,
    /// Timestamp of the batch in ms.
    pub base_timestamp: i64,
    /// Largest timestamp in ms, as the producer says.
    pub max_timestamp: i64,
    /// Of an idempotent producer, else -1.
    pub producer_id: i64,
    /// Of an idempotent producer, else -1.
    pub producer_epoch: i16,
    /// Of an idempotent producer, else -1.
    pub base_sequence: i32,
}

/// Checks a producer's batch: exactly one batch of magic 2 that fills `bytes`, at most
/// [`BATCH_BYTES_MAX`] long, with base offset 0, a valid CRC, no control, transaction or unknown
/// bit, records as many as it says, and, if not compressed, each of them well formed.
///
/// # Errors
/// The first fault found; its `error_code` is the answer.
pub fn check_produced(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    if bytes.len() > BATCH_BYTES_MAX {
        return Err(BatchError::TooLarge {
            bytes: bytes.len(),
            limit: BATCH_BYTES_MAX,
        });
    }
    let header = BatchHeader::parse_whole(bytes)?;
    if header.size < bytes.len() {
        return Err(BatchError::TrailingBytes(bytes.len() - header.size));
    }
    check_fields(&header)?;
    if header.codec() == Codec::None {
        check_plain(&header, &bytes[BATCH_HEADER_BYTES..])?;
    }
    Ok(BatchInfo {
        count: header.count,
        size: header.size,
        codec: header.codec(),
        base_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
    })
}

fn check_plain(header: &BatchHeader, records: &[u8]) -> Result<(), BatchError> {
    match check_records(&mut &*records, header, records.len() as u64) {
        Ok(_) => Ok(()),
        Err(RecordsFault::Record { index, fault }) => Err(BatchError::Record { index, fault }),
        Err(fault) => unreachable!("reading memory: {fault:?}"),
    }
}

fn check_fields(header: &BatchHeader) -> Result<(), BatchError> {
    let refuse = |field, value| Err(BatchError::Field { field, value });
    // Codec bits only: control, transactional, log-append time and delete horizon are the log's.
    if header.attributes & !0x07 != 0 {
        return refuse("attributes", header.attributes.into());
    }
    if let Codec::Unknown(number) = header.codec() {
        return Err(BatchError::UnknownCodec(number));
    }
    // Kafka's LogValidator.validateBatch asks for 0.
    if header.base_offset.0 != 0 {
        return refuse("base offset", header.base_offset.0);
    }
    if header.count < 1 {
        return refuse("record count", header.count.into());
    }
    if header.last_offset_delta != header.count - 1 {
        return refuse("last offset delta", header.last_offset_delta.into());
    }
    if header.producer_id >= 0 && (header.producer_epoch < 0 || header.base_sequence < 0) {
        return refuse("base sequence", header.base_sequence.into());
    }
    // Compressed to nothing, yet with records: no codec has an empty frame.
    if header.size == BATCH_HEADER_BYTES {
        return refuse("record count", header.count.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BatchBuilder, NewRecord, crc32c};
    use quorate_raft::ErrorCode;

    fn two_records() -> Vec<u8> {
        let mut builder = BatchBuilder::produced();
        builder.push(NewRecord::value(1000, b"one"));
        builder.push(NewRecord {
            key: Some(b"key"),
            ..NewRecord::value(1001, b"two")
        });
        builder.build()
    }

    fn sign(batch: &mut [u8]) {
        let crc = crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }

    fn code_after(at: usize, bytes: &[u8]) -> ErrorCode {
        let mut batch = two_records();
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        if at > 20 {
            sign(&mut batch);
        }
        check_produced(&batch).unwrap_err().error_code()
    }

    #[test]
    fn a_good_batch_is_taken() {
        let info = check_produced(&two_records()).unwrap();
        assert_eq!((info.count, info.codec), (2, Codec::None));
        assert_eq!((info.base_timestamp, info.max_timestamp), (1000, 1001));
    }

    #[test]
    fn faults_get_kafkas_error_codes() {
        assert_eq!(code_after(17, &[0; 4]), ErrorCode::CORRUPT_MESSAGE);
        assert_eq!(
            code_after(16, &[1]),
            ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
        );
        let invalid = ErrorCode::INVALID_RECORD;
        assert_eq!(code_after(21, &[0, 0x20]), invalid, "control");
        assert_eq!(code_after(21, &[0, 0x10]), invalid, "transactional");
        let codec = ErrorCode::UNSUPPORTED_COMPRESSION_TYPE;
        assert_eq!(code_after(21, &[0, 0x05]), codec, "codec 5");
        assert_eq!(code_after(0, &1_i64.to_be_bytes()), invalid, "base offset");
        assert_eq!(code_after(23, &5_i32.to_be_bytes()), invalid, "delta");
        assert_eq!(code_after(57, &0_i32.to_be_bytes()), invalid, "count 0");
        assert_eq!(code_after(57, &3_i32.to_be_bytes()), invalid, "count 3");
        assert_eq!(code_after(43, &7_i64.to_be_bytes()), invalid, "no sequence");
    }

    #[test]
    fn one_batch_and_only_one() {
        let batch = two_records();
        let twice = [batch.clone(), batch.clone()].concat();
        let error = check_produced(&twice).unwrap_err();
        assert_eq!(error, BatchError::TrailingBytes(batch.len()));
        for end in 0..batch.len() {
            let error = check_produced(&batch[..end]).unwrap_err();
            assert_eq!(error.error_code(), ErrorCode::CORRUPT_MESSAGE, "{end}");
        }
        let large = vec![0; BATCH_BYTES_MAX + 1];
        let error = check_produced(&large).unwrap_err();
        assert_eq!(error.error_code(), ErrorCode::MESSAGE_TOO_LARGE);
    }

    #[test]
    fn a_record_that_lies_about_its_lengths_is_refused_despite_a_valid_crc() {
        let good = two_records();
        let mut refused = 0;
        for at in 61..good.len() {
            let mut batch = good.clone();
            batch[at] = batch[at].wrapping_add(2);
            sign(&mut batch);
            refused += i32::from(check_produced(&batch).is_err());
        }
        // Lengths, offset deltas and header counts; not the text, attributes or timestamps.
        assert_eq!(refused, 10);
    }
}
