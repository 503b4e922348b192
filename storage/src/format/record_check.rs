//! Checks that bytes are the records a batch says it has, wherever they come from: a slice, or a
//! decompressor that yields them piece by piece. Keeps none of them and allocates nothing.
//!
//! The layout is that of `record.rs`, whose walk gives the records themselves.

use super::batch::BatchHeader;
use super::varint::take_i64;
use std::io::{BufRead, ErrorKind};

/// What is wrong with the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordsFault {
    /// A record is malformed, or there are more or fewer than the batch says.
    Record {
        /// Which, from 0.
        index: i32,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// There are more bytes than is allowed.
    TooLarge,
    /// The source failed: the compressed bytes are no such stream.
    Source,
}

/// Why a field can't be read.
enum Fault {
    Malformed(&'static str),
    TooLarge,
    Source,
}

/// Checks the records in `source` to its end, of which at most `bytes_max` are read. How many bytes
/// there were.
///
/// # Errors
/// The first fault found.
pub(crate) fn check_records(
    source: &mut impl BufRead,
    header: &BatchHeader,
    bytes_max: u64,
) -> Result<u64, RecordsFault> {
    let mut stream = Stream {
        source,
        position: 0,
        bytes_max,
    };
    for index in 0..header.count {
        next_record(&mut stream, header, index).map_err(|fault| fault.in_record(index))?;
    }
    let rest = stream.peek();
    if !rest
        .map_err(|fault| fault.in_record(header.count))?
        .is_empty()
    {
        let fault = Fault::Malformed("bytes follow the last record");
        return Err(fault.in_record(header.count));
    }
    Ok(stream.position)
}

impl Fault {
    fn in_record(self, index: i32) -> RecordsFault {
        match self {
            Self::Malformed(fault) => RecordsFault::Record { index, fault },
            Self::TooLarge => RecordsFault::TooLarge,
            Self::Source => RecordsFault::Source,
        }
    }
}

/// Checks one record: out of memory if it is all there, as nearly always, else piece by piece.
fn next_record<B: BufRead>(
    stream: &mut Stream<'_, B>,
    header: &BatchHeader,
    index: i32,
) -> Result<(), Fault> {
    let there = stream.peek()?;
    let mut rest = there;
    if let Some(length) = take_i64(&mut rest).and_then(length_of)
        && let Some(mut record) = usize::try_from(length).ok().and_then(|end| rest.get(..end))
    {
        let count = there.len() - rest.len() + record.len();
        check_record(&mut record, length, header, index)?;
        stream.advance(count);
        return Ok(());
    }
    let length = length(stream, "no length", "negative length")?;
    check_record(stream, length, header, index)
}

/// Checks what follows the length of a record.
fn check_record(
    source: &mut impl Source,
    length: u64,
    header: &BatchHeader,
    index: i32,
) -> Result<(), Fault> {
    let end = source.position() + length;
    skip_within(source, 1, end, "no attributes")?;
    let timestamp_delta = source.signed("no timestamp")?;
    if header.base_timestamp.checked_add(timestamp_delta).is_none() {
        return Err(Fault::Malformed("timestamp out of range"));
    }
    if source.signed("no offset")? != i64::from(index) {
        return Err(Fault::Malformed("offset out of sequence"));
    }
    nullable(source, end, "key is cut")?;
    nullable(source, end, "value is cut")?;
    let headers = self::length(source, "no header count", "negative header count")?;
    for _ in 0..headers {
        let length = self::length(source, "header key is cut", "header without key")?;
        skip_within(source, length, end, "header key is cut")?;
        nullable(source, end, "header value is cut")?;
    }
    if source.position() == end {
        Ok(())
    } else {
        Err(Fault::Malformed("not as long as it says"))
    }
}

/// Passes over bytes that may be null.
fn nullable(source: &mut impl Source, end: u64, fault: &'static str) -> Result<(), Fault> {
    match source.signed(fault)? {
        -1 => Ok(()),
        length => {
            let length = length_of(length).ok_or(Fault::Malformed(fault))?;
            skip_within(source, length, end, fault)
        }
    }
}

/// A length or count: not negative, 31 bits.
fn length(
    source: &mut impl Source,
    missing: &'static str,
    negative: &'static str,
) -> Result<u64, Fault> {
    let length = source.signed(missing)?;
    length_of(length).ok_or(Fault::Malformed(negative))
}

fn length_of(length: i64) -> Option<u64> {
    i32::try_from(length).ok()?;
    u64::try_from(length).ok()
}

/// Passes over `count` bytes, which must end at or before `end`.
fn skip_within(
    source: &mut impl Source,
    count: u64,
    end: u64,
    fault: &'static str,
) -> Result<(), Fault> {
    if source.position() + count > end {
        return Err(Fault::Malformed(fault));
    }
    source.skip(count, fault)
}

/// Where a record comes from.
trait Source {
    /// Goes up by what is taken.
    fn position(&self) -> u64;

    /// A zigzag number of up to 64 bits, in ten bytes or fewer.
    fn signed(&mut self, fault: &'static str) -> Result<i64, Fault>;

    /// Passes over bytes.
    fn skip(&mut self, count: u64, fault: &'static str) -> Result<(), Fault>;
}

/// A record that is all in memory. Its position counts up to the greatest number there is.
impl Source for &[u8] {
    fn position(&self) -> u64 {
        MEMORY_END - self.len() as u64
    }

    fn signed(&mut self, fault: &'static str) -> Result<i64, Fault> {
        take_i64(self).ok_or(Fault::Malformed(fault))
    }

    fn skip(&mut self, count: u64, fault: &'static str) -> Result<(), Fault> {
        let rest = usize::try_from(count).ok().and_then(|at| self.get(at..));
        *self = rest.ok_or(Fault::Malformed(fault))?;
        Ok(())
    }
}

/// The position behind every record in memory: nothing that is added to one overflows.
const MEMORY_END: u64 = 1 << 62;

struct Stream<'a, B> {
    source: &'a mut B,
    /// Bytes taken so far.
    position: u64,
    bytes_max: u64,
}

impl<B: BufRead> Stream<'_, B> {
    /// Some of the next bytes; none at the end.
    fn peek(&mut self) -> Result<&[u8], Fault> {
        let bytes = self.source.fill_buf().map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => Fault::TooLarge,
            _ => Fault::Source,
        })?;
        if self.position + bytes.len() as u64 > self.bytes_max {
            return Err(Fault::TooLarge);
        }
        Ok(bytes)
    }

    fn advance(&mut self, count: usize) {
        self.source.consume(count);
        self.position += count as u64;
    }
}

impl<B: BufRead> Source for Stream<'_, B> {
    fn position(&self) -> u64 {
        self.position
    }

    fn signed(&mut self, fault: &'static str) -> Result<i64, Fault> {
        let mut bytes = [0; 10];
        for index in 0..bytes.len() {
            let byte = *self.peek()?.first().ok_or(Fault::Malformed(fault))?;
            self.advance(1);
            bytes[index] = byte;
            if byte & 0x80 == 0 {
                return take_i64(&mut &bytes[..=index]).ok_or(Fault::Malformed(fault));
            }
        }
        Err(Fault::Malformed(fault))
    }

    fn skip(&mut self, count: u64, fault: &'static str) -> Result<(), Fault> {
        let mut left = count;
        while left > 0 {
            let there = self.peek()?.len();
            if there == 0 {
                return Err(Fault::Malformed(fault));
            }
            let step = usize::try_from(left).map_or(there, |left| left.min(there));
            self.advance(step);
            left -= step as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BATCH_HEADER_BYTES, BatchBuilder, NewRecord, records};
    use std::io::BufReader;

    fn three_records() -> Vec<u8> {
        let mut builder = BatchBuilder::produced();
        builder.push(NewRecord::value(i64::MAX - 3, b"a value of some length"));
        builder.push(NewRecord::default());
        builder.push(NewRecord {
            timestamp: i64::MAX - 1,
            key: Some(b"key"),
            value: None,
            headers: &[("one", Some(b"1")), ("none", None)],
        });
        builder.build()
    }

    /// All ways to look at the records say the same: in memory, piece by piece, and by `records`.
    fn verdict(batch: &[u8]) -> bool {
        let header = BatchHeader::parse(batch).unwrap();
        let bytes = &batch[BATCH_HEADER_BYTES..];
        let limit = bytes.len() as u64;
        let in_memory = check_records(&mut &*bytes, &header, limit);
        for piece in [1, 3, 11] {
            let mut pieces = BufReader::with_capacity(piece, bytes);
            let by_pieces = check_records(&mut pieces, &header, limit);
            assert_eq!(by_pieces.is_ok(), in_memory.is_ok(), "{in_memory:?}");
        }
        let read = records(batch).unwrap().all(|record| record.is_ok());
        assert_eq!(in_memory.is_ok(), read, "{in_memory:?}");
        read
    }

    #[test]
    fn every_changed_byte_is_judged_alike_in_memory_and_piece_by_piece() {
        let good = three_records();
        assert!(verdict(&good));
        let mut accepted = 0;
        for at in 57..good.len() {
            for value in 0..=255 {
                let mut batch = good.clone();
                batch[at] = value;
                accepted += i32::from(verdict(&batch));
            }
        }
        // Text, attributes and timestamps may be anything; lengths and offsets may not.
        assert!((8_000..12_000).contains(&accepted), "{accepted}");
    }

    #[test]
    fn nothing_beyond_the_limit_is_read() {
        let good = three_records();
        let header = BatchHeader::parse(&good).unwrap();
        let bytes = &good[BATCH_HEADER_BYTES..];
        let limit = bytes.len() as u64;
        assert_eq!(check_records(&mut &*bytes, &header, limit), Ok(limit));
        for limit in 0..limit {
            let mut pieces = BufReader::with_capacity(5, bytes);
            let found = check_records(&mut pieces, &header, limit);
            assert_eq!(found, Err(RecordsFault::TooLarge), "{limit}");
        }
    }
}
