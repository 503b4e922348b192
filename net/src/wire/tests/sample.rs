//! Random valid messages: most fields that a version has get a value out of given entropy, the
//! others keep their defaults.

use crate::wire::Uuid;
use crate::wire::field::Layout;
use bytes::Bytes;
use quorate_raft::{DirectoryId, Epoch, ErrorCode, Offset};

/// A type that can be made up.
pub(crate) trait Sample: Sized {
    fn sample(source: &mut Source<'_>, layout: Layout) -> Self;
}

/// Entropy. When it is used up it yields zeros, so everything ends and shrinks.
pub(crate) struct Source<'a> {
    entropy: &'a [u8],
    nullable: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(entropy: &'a [u8]) -> Self {
        Self {
            entropy,
            nullable: false,
        }
    }

    /// A value for a field that may be null from this version on.
    pub(crate) fn field<T: Sample>(&mut self, nullable_since: i16, layout: Layout) -> T {
        self.nullable = layout.version >= nullable_since;
        T::sample(self, layout)
    }

    /// Whether the next field gets a value.
    pub(crate) fn fills_field(&mut self) -> bool {
        !self.byte().is_multiple_of(4)
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.entropy.split_first() else {
            return 0;
        };
        self.entropy = rest;
        *first
    }

    fn is_null(&mut self) -> bool {
        self.nullable && self.byte().is_multiple_of(4)
    }

    /// Mostly short; sometimes so long that a compact length takes two bytes.
    fn length(&mut self) -> usize {
        match self.byte() {
            250.. => 300,
            short => usize::from(short % 12),
        }
    }
}

macro_rules! sample_integers {
    ($($integer:ty),*) => {$(
        impl Sample for $integer {
            fn sample(source: &mut Source<'_>, _: Layout) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                bytes.iter_mut().for_each(|byte| *byte = source.byte());
                Self::from_be_bytes(bytes)
            }
        }
    )*};
}

sample_integers!(i8, i16, u16, i32, i64);

macro_rules! sample_wrapped {
    ($($wrapper:ident),*) => {$(
        impl Sample for $wrapper {
            fn sample(source: &mut Source<'_>, layout: Layout) -> Self {
                Self(Sample::sample(source, layout))
            }
        }
    )*};
}

sample_wrapped!(ErrorCode, Epoch, Offset, DirectoryId, Uuid);

impl Sample for [u8; 16] {
    fn sample(source: &mut Source<'_>, _: Layout) -> Self {
        std::array::from_fn(|_| source.byte())
    }
}

impl Sample for bool {
    fn sample(source: &mut Source<'_>, _: Layout) -> Self {
        source.byte() & 1 == 1
    }
}

impl Sample for String {
    fn sample(source: &mut Source<'_>, _: Layout) -> Self {
        let letters = ['a', 'Z', '_', '.', 'ß', '語', '🦀', ' '];
        (0..source.length())
            .map(|_| letters[usize::from(source.byte() % 8)])
            .collect()
    }
}

impl Sample for Option<String> {
    fn sample(source: &mut Source<'_>, layout: Layout) -> Self {
        (!source.is_null()).then(|| String::sample(source, layout))
    }
}

impl Sample for Option<Bytes> {
    fn sample(source: &mut Source<'_>, _: Layout) -> Self {
        (!source.is_null()).then(|| (0..source.length()).map(|_| source.byte()).collect())
    }
}

/// At most one part, and that not empty: what the decoder makes of it again.
impl Sample for Vec<Bytes> {
    fn sample(source: &mut Source<'_>, _: Layout) -> Self {
        let part: Bytes = (0..source.length()).map(|_| source.byte()).collect();
        if part.is_empty() {
            Vec::new()
        } else {
            vec![part]
        }
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source<'_>, layout: Layout) -> Self {
        let count = source.byte() % 4;
        (0..count).map(|_| T::sample(source, layout)).collect()
    }
}

impl<T: Sample> Sample for Option<Vec<T>> {
    fn sample(source: &mut Source<'_>, layout: Layout) -> Self {
        (!source.is_null()).then(|| Vec::sample(source, layout))
    }
}
