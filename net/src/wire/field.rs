//! How each Rust type stands on the wire.

use super::{DecodeError, EncodeError, Reader, Uuid, Writer};
use bytes::Bytes;
use quorate_raft::{DirectoryId, Epoch, ErrorCode, Offset};

/// What decides a field's form: the version, and whether it is a flexible one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) version: i16,
    /// Compact lengths and tagged sections.
    pub(crate) flexible: bool,
}

/// Longest string. Kafka's readers refuse a longer one also where its length is a compact one.
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A type with a form on the wire. `at` names the field in errors.
pub(crate) trait Field: Sized {
    /// Fewest bytes that a value takes; what bounds the length of an array.
    fn size_min(layout: Layout) -> usize;
    /// Reads a value.
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError>;
    /// Writes a value.
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError>;
    /// Whether it is null.
    fn is_null(&self) -> bool {
        false
    }
}

macro_rules! integer_fields {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            fn size_min(_: Layout) -> usize {
                size_of::<Self>()
            }
            fn read(r: &mut Reader<'_>, _: Layout, at: &'static str) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(r.array(at)?))
            }
            fn write(&self, w: &mut Writer, _: Layout, _: &'static str) -> Result<(), EncodeError> {
                w.put(&self.to_be_bytes());
                Ok(())
            }
        }
    )*};
}

integer_fields!(i8, i16, u16, i32, i64);

/// Newtypes that stand on the wire as what they wrap.
macro_rules! wrapped_fields {
    ($($wrapper:ident($inner:ty)),*) => {$(
        impl Field for $wrapper {
            fn size_min(layout: Layout) -> usize {
                <$inner>::size_min(layout)
            }
            fn read(
                r: &mut Reader<'_>,
                layout: Layout,
                at: &'static str,
            ) -> Result<Self, DecodeError> {
                <$inner>::read(r, layout, at).map(Self)
            }
            fn write(
                &self,
                w: &mut Writer,
                layout: Layout,
                at: &'static str,
            ) -> Result<(), EncodeError> {
                self.0.write(w, layout, at)
            }
        }
    )*};
}

wrapped_fields!(
    ErrorCode(i16),
    Epoch(i32),
    Offset(i64),
    DirectoryId([u8; 16]),
    Uuid([u8; 16])
);

impl Field for [u8; 16] {
    fn size_min(_: Layout) -> usize {
        16
    }
    fn read(r: &mut Reader<'_>, _: Layout, at: &'static str) -> Result<Self, DecodeError> {
        r.array(at)
    }
    fn write(&self, w: &mut Writer, _: Layout, _: &'static str) -> Result<(), EncodeError> {
        w.put(self);
        Ok(())
    }
}

impl Field for bool {
    fn size_min(_: Layout) -> usize {
        1
    }
    /// As Kafka does: every byte but 0 is true.
    fn read(r: &mut Reader<'_>, _: Layout, at: &'static str) -> Result<Self, DecodeError> {
        let [byte] = r.array(at)?;
        Ok(byte != 0)
    }
    fn write(&self, w: &mut Writer, _: Layout, _: &'static str) -> Result<(), EncodeError> {
        w.put(&[u8::from(*self)]);
        Ok(())
    }
}

impl Field for Option<String> {
    fn size_min(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 2 }
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        let length = if layout.flexible {
            r.compact_length(at)?
        } else {
            Reader::signed_length(i32::from(r.int16(at)?), at)?
        };
        match length {
            Some(length) if length > STRING_BYTES_MAX => {
                Err(DecodeError::StringTooLong { field: at, length })
            }
            Some(length) => r.text(length, at).map(Some),
            None => Ok(None),
        }
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        write_text(self.as_deref(), w, layout, at)
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
}

impl Field for String {
    fn size_min(layout: Layout) -> usize {
        Option::<Self>::size_min(layout)
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        Option::<Self>::read(r, layout, at)?.ok_or(DecodeError::Null { field: at })
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        write_text(Some(self), w, layout, at)
    }
}

/// Record bytes of a request: the received memory itself.
impl Field for Option<Bytes> {
    fn size_min(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 4 }
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        let length = read_length32(r, layout, at)?;
        length.map(|length| r.slice(length, at)).transpose()
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        write_length32(self.as_ref().map(Bytes::len), w, layout, at)?;
        if let Some(bytes) = self {
            w.put(bytes);
        }
        Ok(())
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
}

/// Record bytes of an answer, gathered from parts. Null reads as no part; null is never written
/// (librdkafka takes it for a fault).
impl Field for Vec<Bytes> {
    fn size_min(layout: Layout) -> usize {
        Option::<Bytes>::size_min(layout)
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        let bytes = Option::<Bytes>::read(r, layout, at)?;
        Ok(bytes
            .into_iter()
            .filter(|bytes| !bytes.is_empty())
            .collect())
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        write_length32(Some(self.iter().map(Bytes::len).sum()), w, layout, at)?;
        for part in self {
            w.put(part);
        }
        Ok(())
    }
}

impl<T: Field> Field for Option<Vec<T>> {
    fn size_min(layout: Layout) -> usize {
        if layout.flexible { 1 } else { 4 }
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        let Some(count) = read_length32(r, layout, at)? else {
            return Ok(None);
        };
        let mut elements = r.reserve(count, T::size_min(layout), at)?;
        for _ in 0..count {
            elements.push(T::read(r, layout, at)?);
        }
        Ok(Some(elements))
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        match self {
            Some(elements) => elements.write(w, layout, at),
            None => write_length32(None, w, layout, at),
        }
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
}

impl<T: Field> Field for Vec<T> {
    fn size_min(layout: Layout) -> usize {
        Option::<Self>::size_min(layout)
    }
    fn read(r: &mut Reader<'_>, layout: Layout, at: &'static str) -> Result<Self, DecodeError> {
        Option::<Self>::read(r, layout, at)?.ok_or(DecodeError::Null { field: at })
    }
    fn write(&self, w: &mut Writer, layout: Layout, at: &'static str) -> Result<(), EncodeError> {
        write_length32(Some(self.len()), w, layout, at)?;
        self.iter()
            .try_for_each(|element| element.write(w, layout, at))
    }
}

fn write_text(
    text: Option<&str>,
    w: &mut Writer,
    layout: Layout,
    at: &'static str,
) -> Result<(), EncodeError> {
    let length = text.map(str::len);
    if let Some(length) = length.filter(|length| *length > STRING_BYTES_MAX) {
        return Err(EncodeError::TooLong { field: at, length });
    }
    if layout.flexible {
        w.compact_length(length, at)?;
    } else {
        w.length16(length, at)?;
    }
    w.put(text.unwrap_or_default().as_bytes());
    Ok(())
}

fn read_length32(
    r: &mut Reader<'_>,
    layout: Layout,
    at: &'static str,
) -> Result<Option<usize>, DecodeError> {
    if layout.flexible {
        r.compact_length(at)
    } else {
        Reader::signed_length(r.int32(at)?, at)
    }
}

fn write_length32(
    length: Option<usize>,
    w: &mut Writer,
    layout: Layout,
    at: &'static str,
) -> Result<(), EncodeError> {
    if layout.flexible {
        w.compact_length(length, at)
    } else {
        w.length32(length, at)
    }
}
