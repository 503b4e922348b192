//! Reads Kafka's primitives from received bytes and trusts none of them.
//!
//! Every length is compared with what is left before anything is sliced or reserved. Never panics,
//! never recurses, never reserves more than a constant times what was received.

use super::DecodeError;
use bytes::Bytes;

/// Most elements, over all arrays, that one message may have.
///
/// Real messages of the APIs served here have a handful. Empty strings take one byte on the wire
/// and 24 in memory, so a large frame of them would be paid for twenty-fold without this bound.
pub const ELEMENTS_MAX: usize = 10_000;

/// A position in received bytes. Records that it hands out are slices of the same memory.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a Bytes,
    position: usize,
    /// Exclusive; inside a tagged field the end of that field.
    end: usize,
    elements_left: usize,
    /// Bytes that arrays were reserved for: what a hostile count could achieve.
    #[cfg(test)]
    pub(crate) reserved_bytes: usize,
}

/// A tagged field that is being read.
pub(crate) struct Tag {
    pub(crate) number: u32,
    outer_end: usize,
}

/// The tagged section that is being read.
pub(crate) struct Tags {
    left: u32,
    previous: Option<u32>,
    owner: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a Bytes) -> Self {
        Self {
            bytes,
            position: 0,
            end: bytes.len(),
            elements_left: ELEMENTS_MAX,
            #[cfg(test)]
            reserved_bytes: 0,
        }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// How far it has read, in bytes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// `TrailingBytes` if not.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            unread => Err(DecodeError::TrailingBytes { unread }),
        }
    }

    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        self.ensure(length, field)?;
        let start = self.position;
        self.position += length;
        Ok(&self.bytes[start..self.position])
    }

    fn ensure(&self, needed: usize, field: &'static str) -> Result<(), DecodeError> {
        let remaining = self.remaining();
        if needed > remaining {
            return Err(DecodeError::Truncated {
                field,
                needed,
                remaining,
            });
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N, field)?;
        Ok(bytes.try_into().expect("take gave N bytes"))
    }

    /// The next `length` bytes, not copied.
    pub(crate) fn slice(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<Bytes, DecodeError> {
        self.ensure(length, field)?;
        let start = self.position;
        self.position += length;
        Ok(self.bytes.slice(start..self.position))
    }

    pub(crate) fn int16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn int32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    /// An unsigned varint: at most 5 bytes, at most 2^32 - 1.
    pub(crate) fn uvarint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            let low = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintRange { field })
    }

    /// A compact length: 0 is null, else the length plus one.
    pub(crate) fn compact_length(
        &mut self,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let plus_one = self.uvarint(field)?;
        Ok(plus_one.checked_sub(1).map(|length| length as usize))
    }

    /// A length of the older form: -1 is null, below that is a fault.
    pub(crate) fn signed_length(
        length: i32,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(DecodeError::NegativeLength {
                field,
                length: i64::from(length),
            }),
        }
    }

    /// UTF-8 text of `length` bytes.
    pub(crate) fn text(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<String, DecodeError> {
        let bytes = self.take(length, field)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { field })?;
        Ok(text.to_owned())
    }

    /// Room for `count` elements of at least `size_min` bytes each, if the bytes can hold them.
    pub(crate) fn reserve<T>(
        &mut self,
        count: usize,
        size_min: usize,
        field: &'static str,
    ) -> Result<Vec<T>, DecodeError> {
        let remaining = self.remaining();
        if count > remaining / size_min.max(1) {
            return Err(DecodeError::CountTooLarge {
                field,
                count,
                remaining,
            });
        }
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(DecodeError::TooManyElements { field, count })?;
        #[cfg(test)]
        {
            self.reserved_bytes += count * size_of::<T>();
        }
        Ok(Vec::with_capacity(count))
    }

    /// Begins the tagged section of `owner`.
    pub(crate) fn tags(&mut self, owner: &'static str) -> Result<Tags, DecodeError> {
        let left = self.uvarint(owner)?;
        // A tagged field takes two bytes at least: its tag and its size.
        if left as usize > self.remaining() / 2 {
            return Err(DecodeError::CountTooLarge {
                field: owner,
                count: left as usize,
                remaining: self.remaining(),
            });
        }
        Ok(Tags {
            left,
            previous: None,
            owner,
        })
    }

    /// The next tagged field; until [`Reader::end_tag`] only its own bytes can be read.
    pub(crate) fn next_tag(&mut self, tags: &mut Tags) -> Result<Option<Tag>, DecodeError> {
        if tags.left == 0 {
            return Ok(None);
        }
        tags.left -= 1;
        let number = self.uvarint(tags.owner)?;
        if let Some(previous) = tags.previous
            && previous >= number
        {
            return Err(DecodeError::TagOrder {
                field: tags.owner,
                tag: number,
                previous,
            });
        }
        tags.previous = Some(number);
        let size = self.uvarint(tags.owner)? as usize;
        self.ensure(size, tags.owner)?;
        let outer_end = std::mem::replace(&mut self.end, self.position + size);
        Ok(Some(Tag { number, outer_end }))
    }

    /// Passes over a tagged field that this version does not know.
    pub(crate) fn skip_tag(&mut self) {
        self.position = self.end;
    }

    /// Ends a tagged field; all its bytes must have been read.
    pub(crate) fn end_tag(&mut self, tag: &Tag, owner: &'static str) -> Result<(), DecodeError> {
        let unread = self.remaining();
        if unread > 0 {
            return Err(DecodeError::TagSize {
                field: owner,
                tag: tag.number,
                unread,
            });
        }
        self.end = tag.outer_end;
        Ok(())
    }

    /// Reads a tagged section in which nothing is known.
    pub(crate) fn skip_tags(&mut self, owner: &'static str) -> Result<(), DecodeError> {
        let mut tags = self.tags(owner)?;
        while let Some(tag) = self.next_tag(&mut tags)? {
            self.skip_tag();
            self.end_tag(&tag, owner)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uvarint(bytes: &'static [u8]) -> Result<u32, DecodeError> {
        let bytes = Bytes::from_static(bytes);
        let mut reader = Reader::new(&bytes);
        let value = reader.uvarint("a")?;
        reader.finish()?;
        Ok(value)
    }

    #[test]
    fn varint_holds_32_bits_in_5_bytes_and_no_more() {
        assert_eq!(uvarint(&[0]), Ok(0));
        assert_eq!(uvarint(&[0x80, 1]), Ok(128));
        assert_eq!(uvarint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        let out_of_range = Err(DecodeError::VarintRange { field: "a" });
        assert_eq!(uvarint(&[0x80, 0x80, 0x80, 0x80, 0x10]), out_of_range);
        assert_eq!(uvarint(&[0x80, 0x80, 0x80, 0x80, 0x80]), out_of_range);
    }

    #[test]
    fn tagged_field_must_fill_its_size() {
        // One tagged field, tag 0 of 5 bytes, of which its reader takes 4.
        let bytes = Bytes::from_static(&[1, 0, 5, 0, 0, 0, 1, 9]);
        let mut reader = Reader::new(&bytes);
        let mut tags = reader.tags("a").unwrap();
        let tag = reader.next_tag(&mut tags).unwrap().unwrap();
        assert_eq!(reader.int32("a.b"), Ok(1));
        let expected = DecodeError::TagSize {
            field: "a",
            tag: 0,
            unread: 1,
        };
        assert_eq!(reader.end_tag(&tag, "a"), Err(expected));
    }

    #[test]
    fn tagged_field_cannot_read_beyond_its_size() {
        let bytes = Bytes::from_static(&[1, 0, 3, 0, 0, 0, 1, 9]);
        let mut reader = Reader::new(&bytes);
        let mut tags = reader.tags("a").unwrap();
        let _tag = reader.next_tag(&mut tags).unwrap().unwrap();
        let expected = DecodeError::Truncated {
            field: "a.b",
            needed: 4,
            remaining: 3,
        };
        assert_eq!(reader.int32("a.b"), Err(expected));
    }

    #[test]
    fn elements_are_bounded_over_the_whole_message() {
        let bytes = Bytes::from(vec![0; 2 * ELEMENTS_MAX]);
        let mut reader = Reader::new(&bytes);
        reader.reserve::<u8>(ELEMENTS_MAX - 1, 1, "a").unwrap();
        reader.reserve::<u8>(1, 1, "a").unwrap();
        let expected = DecodeError::TooManyElements {
            field: "a",
            count: 1,
        };
        assert_eq!(reader.reserve::<u8>(1, 1, "a"), Err(expected));
    }
}
