//! Turns a table of fields into a struct that decodes and encodes itself.
//!
//! A line of the table reads like one of Kafka's schemas: `name: Type [versions] [properties];`
//!
//! | property | meaning |
//! |---|---|
//! | `[0 +]`, `[0 - 12]`, `[3]` | versions that have the field; always first |
//! | `[nullable 1]` | may be null from this version on |
//! | `[default -1]` | its value where it is absent; the type's default otherwise |
//! | `[tag 0]` | stands in the tagged section, and only if it differs from the default |
//! | `[ignorable]` | dropped silently where a version lacks it; else that is an `EncodeError` |

use super::field::{Field, Layout};
use super::{ApiKey, DecodeError, EncodeError, Reader, Writer};
use std::ops::RangeInclusive;

/// A whole request or response.
pub(crate) trait Message: Field {
    const API: ApiKey;
    const VERSIONS: RangeInclusive<i16>;
}

/// Reads a whole message; every byte must belong to it.
pub(crate) fn decode_message<M: Message>(
    version: i16,
    reader: &mut Reader<'_>,
) -> Result<M, DecodeError> {
    if !M::VERSIONS.contains(&version) {
        return Err(DecodeError::Version {
            api: M::API,
            version,
        });
    }
    let message = M::read(reader, layout_of::<M>(version), "message")?;
    reader.finish()?;
    Ok(message)
}

/// Appends a whole message.
pub(crate) fn encode_message<M: Message>(
    message: &M,
    version: i16,
    out: &mut Writer,
) -> Result<(), EncodeError> {
    if !M::VERSIONS.contains(&version) {
        return Err(EncodeError::Version {
            api: M::API,
            version,
        });
    }
    message.write(out, layout_of::<M>(version), "message")
}

pub(crate) fn layout_of<M: Message>(version: i16) -> Layout {
    Layout {
        version,
        flexible: version >= M::API.flexible_since(),
    }
}

/// What the table says about one field, apart from its type and default.
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    pub(crate) name: &'static str,
    pub(crate) first: i16,
    pub(crate) last: i16,
    pub(crate) nullable_since: i16,
    pub(crate) tag: Option<u32>,
    pub(crate) ignorable: bool,
}

impl Properties {
    /// Whether this version has the field.
    pub(crate) const fn is_in(&self, layout: Layout) -> bool {
        self.first <= layout.version && layout.version <= self.last
    }

    /// Whether it stands among the ordinary fields of this version.
    pub(crate) const fn is_plain(&self, layout: Layout) -> bool {
        self.tag.is_none() && self.is_in(layout)
    }

    /// Whether it stands under `tag` in the tagged section of this version.
    pub(crate) const fn is_tag(&self, tag: u32, layout: Layout) -> bool {
        matches!(self.tag, Some(own) if own == tag) && self.is_in(layout)
    }

    /// Reads the field; null only where that is allowed.
    pub(crate) fn read<T: Field>(
        &self,
        reader: &mut Reader<'_>,
        layout: Layout,
    ) -> Result<T, DecodeError> {
        let value = T::read(reader, layout, self.name)?;
        if value.is_null() && layout.version < self.nullable_since {
            return Err(DecodeError::Null { field: self.name });
        }
        Ok(value)
    }

    /// Writes an ordinary field, or checks that leaving it out says the same.
    pub(crate) fn write_plain<T: Field + PartialEq>(
        &self,
        value: &T,
        default: impl FnOnce() -> T,
        writer: &mut Writer,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        let version = layout.version;
        let field = self.name;
        if !self.is_in(layout) {
            return match self.ignorable || *value == default() {
                true => Ok(()),
                false => Err(EncodeError::FieldNotInVersion { field, version }),
            };
        }
        if self.tag.is_some() {
            return Ok(());
        }
        if value.is_null() && version < self.nullable_since {
            return Err(EncodeError::Null { field, version });
        }
        value.write(writer, layout, field)
    }

    /// Whether the tagged section must carry the field.
    pub(crate) fn is_tagged_now<T: PartialEq>(
        &self,
        value: &T,
        default: impl FnOnce() -> T,
        layout: Layout,
    ) -> bool {
        self.tag.is_some() && self.is_in(layout) && *value != default()
    }
}

/// Defines structs from tables; see the head of this file.
macro_rules! message {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                $field:ident: $type:ty [$($versions:tt)*] $([$($property:tt)*])*;
            )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            /// Each field as where it is absent.
            fn default() -> Self {
                Self {
                    $($field: $crate::wire::message::default_of!($([$($property)*])*),)*
                }
            }
        }

        impl $crate::wire::field::Field for $name {
            fn size_min(layout: $crate::wire::field::Layout) -> usize {
                let tags = usize::from(layout.flexible);
                tags $(+ if Self::properties().$field.is_plain(layout) {
                    <$type as $crate::wire::field::Field>::size_min(layout)
                } else {
                    0
                })*
            }

            fn read(
                reader: &mut $crate::wire::Reader<'_>,
                layout: $crate::wire::field::Layout,
                _: &'static str,
            ) -> Result<Self, $crate::wire::DecodeError> {
                let mut value = Self::default();
                $(if Self::properties().$field.is_plain(layout) {
                    value.$field = Self::properties().$field.read(reader, layout)?;
                })*
                if layout.flexible {
                    let mut tags = reader.tags(stringify!($name))?;
                    while let Some(tag) = reader.next_tag(&mut tags)? {
                        $(if Self::properties().$field.is_tag(tag.number, layout) {
                            value.$field = Self::properties().$field.read(reader, layout)?;
                        } else)* {
                            reader.skip_tag();
                        }
                        reader.end_tag(&tag, stringify!($name))?;
                    }
                }
                Ok(value)
            }

            fn write(
                &self,
                writer: &mut $crate::wire::Writer,
                layout: $crate::wire::field::Layout,
                _: &'static str,
            ) -> Result<(), $crate::wire::EncodeError> {
                $(Self::properties().$field.write_plain(
                    &self.$field,
                    || $crate::wire::message::default_of!($([$($property)*])*),
                    writer,
                    layout,
                )?;)*
                if layout.flexible {
                    self.write_tags(writer, layout)?;
                }
                Ok(())
            }
        }

        $crate::wire::message::struct_parts!(
            $name { $($field: $type [$($versions)*] [$([$($property)*])*];)* }
        );
    )*};
}
pub(crate) use message;

/// The parts of a struct of a table that need every property at once.
macro_rules! struct_parts {
    ($name:ident { $($field:ident: $type:ty [$($versions:tt)*] [$($properties:tt)*];)* }) => {
        const _: () = {
            /// The table's columns, by field.
            pub struct Table {
                $(pub $field: $crate::wire::message::Properties,)*
            }

            impl $name {
                const fn properties() -> &'static Table {
                    const { &Table {
                        $($field: $crate::wire::message::Properties {
                            name: concat!(stringify!($name), ".", stringify!($field)),
                            first: $crate::wire::message::first_of!($($versions)*),
                            last: $crate::wire::message::last_of!($($versions)*),
                            nullable_since: $crate::wire::message::nullable_of!($($properties)*),
                            tag: $crate::wire::message::tag_of!($($properties)*),
                            ignorable: $crate::wire::message::ignorable_of!($($properties)*),
                        },)*
                    } }
                }

                /// The tagged section. Fields with tags stand in the table in ascending order.
                fn write_tags(
                    &self,
                    writer: &mut $crate::wire::Writer,
                    layout: $crate::wire::field::Layout,
                ) -> Result<(), $crate::wire::EncodeError> {
                    let mut count = 0;
                    $(let $field = Self::properties().$field.is_tagged_now(
                        &self.$field,
                        || $crate::wire::message::default_of!($($properties)*),
                        layout,
                    );
                    count += u32::from($field);)*
                    writer.tag_count(count);
                    $(if $field && let Some(tag) = Self::properties().$field.tag {
                        writer.tagged(tag, Self::properties().$field.name, |writer| {
                            $crate::wire::field::Field::write(
                                &self.$field,
                                writer,
                                layout,
                                Self::properties().$field.name,
                            )
                        })?;
                    })*
                    Ok(())
                }
            }

            #[cfg(test)]
            impl $crate::wire::tests::sample::Sample for $name {
                fn sample(
                    source: &mut $crate::wire::tests::sample::Source<'_>,
                    layout: $crate::wire::field::Layout,
                ) -> Self {
                    let mut value = Self::default();
                    $(if Self::properties().$field.is_in(layout) && source.fills_field() {
                        let nullable_since = Self::properties().$field.nullable_since;
                        value.$field = source.field(nullable_since, layout);
                    })*
                    value
                }
            }
        };
    };
}
pub(crate) use struct_parts;

macro_rules! first_of {
    ($first:literal $($rest:tt)*) => {
        $first
    };
}
pub(crate) use first_of;

macro_rules! last_of {
    ($first:literal +) => {
        i16::MAX
    };
    ($first:literal - $last:literal) => {
        $last
    };
    ($only:literal) => {
        $only
    };
}
pub(crate) use last_of;

macro_rules! nullable_of {
    () => { i16::MAX };
    ([nullable $since:literal] $($rest:tt)*) => { $since };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::wire::message::nullable_of!($($rest)*) };
}
pub(crate) use nullable_of;

macro_rules! default_of {
    () => { Default::default() };
    ([default $default:expr] $($rest:tt)*) => { $default };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::wire::message::default_of!($($rest)*) };
}
pub(crate) use default_of;

macro_rules! tag_of {
    () => { None };
    ([tag $tag:literal] $($rest:tt)*) => { Some($tag) };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::wire::message::tag_of!($($rest)*) };
}
pub(crate) use tag_of;

macro_rules! ignorable_of {
    () => { false };
    ([ignorable] $($rest:tt)*) => { true };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::wire::message::ignorable_of!($($rest)*) };
}
pub(crate) use ignorable_of;

/// Makes structs of tables whole messages of an API.
macro_rules! whole_messages {
    ($($name:ident: $api:ident $first:literal - $last:literal;)*) => {$(
        impl $crate::wire::message::Message for $name {
            const API: $crate::wire::ApiKey = $crate::wire::ApiKey::$api;
            const VERSIONS: std::ops::RangeInclusive<i16> = $first..=$last;
        }

        impl $name {
            /// Reads the message of `version`, to the last byte of `reader`.
            ///
            /// # Errors
            /// Whatever is wrong with the bytes, or a version that the codec does not have.
            pub fn decode(
                version: i16,
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::DecodeError> {
                $crate::wire::message::decode_message(version, reader)
            }

            /// Appends the message in the form of `version`.
            ///
            /// # Errors
            /// A value that this version cannot say. What was appended by then stays in `out`.
            pub fn encode(
                &self,
                version: i16,
                out: &mut $crate::wire::Writer,
            ) -> Result<(), $crate::wire::EncodeError> {
                $crate::wire::message::encode_message(self, version, out)
            }
        }
    )*};
}
pub(crate) use whole_messages;
