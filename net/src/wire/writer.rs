//! Writes Kafka's primitives into a growing buffer.

use super::EncodeError;

/// Bytes that are being written. Appends only; what stood there before is left alone.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Where lengths and counts stand, for tests that break each of them.
    #[cfg(test)]
    pub(crate) lengths: Vec<LengthAt>,
}

/// A length field in written bytes.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LengthAt {
    pub(crate) position: usize,
    pub(crate) size: usize,
    pub(crate) compact: bool,
}

impl Writer {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on behind what stands in `bytes`.
    #[must_use]
    pub fn appending_to(bytes: Vec<u8>) -> Self {
        let mut writer = Self::new();
        writer.bytes = bytes;
        writer
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffer.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Size of what was written, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets everything from `length` on.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Appends `bytes` as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a big-endian int32.
    pub(crate) fn int32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    /// Overwrites the int32 at `position`.
    pub(crate) fn int32_at(&mut self, position: usize, value: i32) {
        self.bytes[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Appends an unsigned varint.
    pub(crate) fn uvarint(&mut self, value: u32) {
        let (encoded, size) = uvarint_bytes(value);
        self.put(&encoded[..size]);
    }

    /// A compact length; `None` is null.
    pub(crate) fn compact_length(
        &mut self,
        length: Option<usize>,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        let position = self.len();
        let plus_one = match length {
            None => 0,
            Some(length) => checked_i32(length, field)?.cast_unsigned() + 1,
        };
        self.uvarint(plus_one);
        self.mark(position, true);
        Ok(())
    }

    /// An int32 length or count of the older form; `None` is null.
    pub(crate) fn length32(
        &mut self,
        length: Option<usize>,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        let position = self.len();
        self.int32(length.map_or(Ok(-1), |length| checked_i32(length, field))?);
        self.mark(position, false);
        Ok(())
    }

    /// An int16 length of the older form; `None` is null.
    pub(crate) fn length16(
        &mut self,
        length: Option<usize>,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        let position = self.len();
        let value = match length {
            None => -1,
            Some(length) => {
                i16::try_from(length).map_err(|_| EncodeError::TooLong { field, length })?
            }
        };
        self.put(&value.to_be_bytes());
        self.mark(position, false);
        Ok(())
    }

    /// How many tagged fields follow.
    pub(crate) fn tag_count(&mut self, count: u32) {
        let position = self.len();
        self.uvarint(count);
        self.mark(position, true);
    }

    /// A tagged field: its tag, the size of what `write` writes, and that.
    pub(crate) fn tagged(
        &mut self,
        tag: u32,
        field: &'static str,
        write: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.uvarint(tag);
        let size_at = self.len();
        // One byte is nearly always enough; else what follows moves.
        self.put(&[0]);
        write(self)?;
        let length = self.len() - size_at - 1;
        let size = checked_i32(length, field)?.cast_unsigned();
        let (encoded, width) = uvarint_bytes(size);
        self.bytes
            .splice(size_at..=size_at, encoded[..width].iter().copied());
        self.mark_moved(size_at, width);
        Ok(())
    }

    #[cfg(test)]
    fn mark(&mut self, position: usize, compact: bool) {
        let size = self.len() - position;
        self.lengths.push(LengthAt {
            position,
            size,
            compact,
        });
    }

    #[cfg(not(test))]
    fn mark(&self, _position: usize, _compact: bool) {}

    #[cfg(test)]
    fn mark_moved(&mut self, size_at: usize, width: usize) {
        for length in &mut self.lengths {
            if length.position > size_at {
                length.position += width - 1;
            }
        }
        self.lengths.push(LengthAt {
            position: size_at,
            size: width,
            compact: true,
        });
    }

    #[cfg(not(test))]
    fn mark_moved(&self, _size_at: usize, _width: usize) {}
}

fn checked_i32(length: usize, field: &'static str) -> Result<i32, EncodeError> {
    i32::try_from(length).map_err(|_| EncodeError::TooLong { field, length })
}

fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut encoded = [0; 5];
    let mut size = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        encoded[size] = if value == 0 { low } else { low | 0x80 };
        size += 1;
        if value == 0 {
            return (encoded, size);
        }
    }
}
