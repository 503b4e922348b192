//! The records inside an uncompressed batch. Reads in place, trusts nothing.
//!
//! | field | encoding |
//! |---|---|
//! | length of what follows | zigzag varint |
//! | attributes | int8 |
//! | timestamp delta | zigzag varint, 64 bits |
//! | offset delta | zigzag varint |
//! | key length, key | zigzag varint, -1 for none |
//! | value length, value | zigzag varint, -1 for none |
//! | header count | zigzag varint |
//! | per header: key length, key, value length, value | zigzag varints; the key is always there |

use super::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader, Codec};
use super::varint::{take_i32, take_i64};
use quorate_raft::Offset;

/// One record, pointing into its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp in ms.
    pub timestamp: i64,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its value, if it has one.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// Walks over the records of one whole batch, whose CRC is taken as checked.
///
/// # Errors
/// What [`BatchHeader::parse`] finds, `Cut` if the batch is not all there, `Compressed` naming the
/// codec.
pub fn records(batch: &[u8]) -> Result<Records<'_>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.codec() != Codec::None {
        return Err(BatchError::Compressed(header.codec()));
    }
    let Some(bytes) = batch.get(BATCH_HEADER_BYTES..header.size) else {
        return Err(BatchError::Cut {
            needed: header.size,
            found: batch.len(),
        });
    };
    Ok(Records {
        header,
        bytes,
        index: 0,
    })
}

/// See [`records`]. Gives as many records as the header counts, or an error and then nothing; bytes
/// left over behind the last record are an error too.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
    index: i32,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.header.count {
            let left_over = !self.bytes.is_empty();
            self.bytes = &[];
            return left_over.then(|| self.fault("bytes follow the last record"));
        }
        match self.take_record() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(fault) => {
                let error = self.fault(fault);
                self.bytes = &[];
                self.index = i32::MAX;
                Some(error)
            }
        }
    }
}

impl<'a> Records<'a> {
    fn fault<T>(&self, fault: &'static str) -> Result<T, BatchError> {
        Err(BatchError::Record {
            index: self.index,
            fault,
        })
    }

    fn take_record(&mut self) -> Result<Record<'a>, &'static str> {
        let length = take_i32(&mut self.bytes).ok_or("no length")?;
        let length = usize::try_from(length).map_err(|_| "negative length")?;
        let (mut bytes, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or("longer than the batch")?;
        self.bytes = rest;
        let record = self.read_record(&mut bytes)?;
        if !bytes.is_empty() {
            return Err("shorter than its length");
        }
        Ok(record)
    }

    fn read_record(&self, bytes: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        let (_attributes, rest) = bytes.split_first().ok_or("no attributes")?;
        *bytes = rest;
        let timestamp_delta = take_i64(bytes).ok_or("no timestamp")?;
        let offset_delta = take_i32(bytes).ok_or("no offset")?;
        if offset_delta != self.index {
            return Err("offset out of sequence");
        }
        Ok(Record {
            offset: Offset(self.header.base_offset.0 + i64::from(offset_delta)),
            timestamp: self
                .header
                .base_timestamp
                .checked_add(timestamp_delta)
                .ok_or("timestamp out of range")?,
            key: take_nullable(bytes, "key is cut")?,
            value: take_nullable(bytes, "value is cut")?,
            headers: take_headers(bytes)?,
        })
    }
}

fn take_nullable<'a>(
    bytes: &mut &'a [u8],
    fault: &'static str,
) -> Result<Option<&'a [u8]>, &'static str> {
    let length = take_i32(bytes).ok_or(fault)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| fault)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(fault)?;
    *bytes = rest;
    Ok(Some(taken))
}

#[allow(clippy::type_complexity)] // the shape of Record::headers
fn take_headers<'a>(
    bytes: &mut &'a [u8],
) -> Result<Vec<(&'a [u8], Option<&'a [u8]>)>, &'static str> {
    let count = take_i32(bytes).ok_or("no header count")?;
    let count = usize::try_from(count).map_err(|_| "negative header count")?;
    // A header takes two bytes or more: no count makes us reserve more than the record is long.
    if count > bytes.len() / 2 {
        return Err("more headers than fit");
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let key = take_nullable(bytes, "header key is cut")?.ok_or("header without key")?;
        headers.push((key, take_nullable(bytes, "header value is cut")?));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::tests::GOLDEN_LOG;

    #[test]
    fn records_of_kafkas_batches_are_read() {
        let change: Vec<_> = records(GOLDEN_LOG).unwrap().collect();
        assert_eq!(change.len(), 1);
        let record = change[0].as_ref().unwrap();
        assert_eq!(record.key, Some(&[0, 0, 0, 2][..]));
        assert_eq!(record.value.unwrap().len(), 19);
        let data: Vec<_> = records(&GOLDEN_LOG[91..]).unwrap().collect();
        let record = data[0].as_ref().unwrap();
        assert_eq!((record.offset, record.key), (Offset(1), None));
        assert_eq!(record.value, Some(&[0; 32][..]));
    }

    #[test]
    fn no_change_of_a_record_byte_panics_or_runs_past_the_batch() {
        for at in 57..91 {
            for value in 0..=255 {
                let mut batch = GOLDEN_LOG[..91].to_vec();
                batch[at] = value;
                if let Ok(walk) = records(&batch) {
                    assert!(walk.take(1000).count() < 1000);
                }
            }
        }
    }
}
