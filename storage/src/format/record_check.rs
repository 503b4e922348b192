//! Checks that bytes are the records a batch says it has, wherever they come from: a slice, or a
//! decompressor that yields them piece by piece. Keeps none of them and allocates nothing.
//!
//! The layout is that of `record.rs`, whose walk gives the records themselves.

use super::batch::BatchHeader;
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
    let mut walk = Walk {
        source,
        position: 0,
        bytes_max,
    };
    for index in 0..header.count {
        walk.record(header, index)
            .map_err(|fault| fault.in_record(index))?;
    }
    let rest = walk.peek();
    if !rest
        .map_err(|fault| fault.in_record(header.count))?
        .is_empty()
    {
        let fault = Fault::Malformed("bytes follow the last record");
        return Err(fault.in_record(header.count));
    }
    Ok(walk.position)
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

struct Walk<'a, B> {
    source: &'a mut B,
    /// Bytes taken so far.
    position: u64,
    bytes_max: u64,
}

impl<B: BufRead> Walk<'_, B> {
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

    fn record(&mut self, header: &BatchHeader, index: i32) -> Result<(), Fault> {
        let length = self.length("no length", "negative length")?;
        let end = self.position + length;
        self.skip_within(1, end, "no attributes")?;
        let timestamp_delta = self.signed("no timestamp")?;
        if header.base_timestamp.checked_add(timestamp_delta).is_none() {
            return Err(Fault::Malformed("timestamp out of range"));
        }
        if self.signed("no offset")? != i64::from(index) {
            return Err(Fault::Malformed("offset out of sequence"));
        }
        self.nullable(end, "key is cut")?;
        self.nullable(end, "value is cut")?;
        let headers = self.length("no header count", "negative header count")?;
        for _ in 0..headers {
            let length = self.length("header key is cut", "header without key")?;
            self.skip_within(length, end, "header key is cut")?;
            self.nullable(end, "header value is cut")?;
        }
        if self.position == end {
            Ok(())
        } else {
            Err(Fault::Malformed("not as long as it says"))
        }
    }

    /// Passes over bytes that may be null.
    fn nullable(&mut self, end: u64, fault: &'static str) -> Result<(), Fault> {
        match self.signed(fault)? {
            -1 => Ok(()),
            length => {
                let length = length_of(length).ok_or(Fault::Malformed(fault))?;
                self.skip_within(length, end, fault)
            }
        }
    }

    /// A length or count: not negative, 31 bits.
    fn length(&mut self, missing: &'static str, negative: &'static str) -> Result<u64, Fault> {
        let length = self.signed(missing)?;
        length_of(length).ok_or(Fault::Malformed(negative))
    }

    /// Passes over `count` bytes, which must end at or before `end`.
    fn skip_within(&mut self, count: u64, end: u64, fault: &'static str) -> Result<(), Fault> {
        if self.position + count > end {
            return Err(Fault::Malformed(fault));
        }
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

    /// A zigzag number of up to 64 bits, in ten bytes or fewer.
    fn signed(&mut self, fault: &'static str) -> Result<i64, Fault> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = *self.peek()?.first().ok_or(Fault::Malformed(fault))?;
            self.advance(1);
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(Fault::Malformed(fault))
    }
}

fn length_of(length: i64) -> Option<u64> {
    i32::try_from(length).ok()?;
    u64::try_from(length).ok()
}
