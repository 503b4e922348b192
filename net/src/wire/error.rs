//! What can be wrong with bytes, and what cannot be written. Fields are named `Struct.field`.

use super::ApiKey;

/// Received bytes are not the message that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("{field}: {needed} bytes needed, {remaining} left")]
    Truncated {
        /// Where.
        field: &'static str,
        /// What the field takes at least.
        needed: usize,
        /// What is there.
        remaining: usize,
    },
    /// A length or count below -1, or -1 where nothing may be null.
    #[error("{field}: length {length}")]
    NegativeLength {
        /// Where.
        field: &'static str,
        /// The length read.
        length: i64,
    },
    /// More elements than the remaining bytes can hold.
    #[error("{field}: {count} elements announced, {remaining} bytes left")]
    CountTooLarge {
        /// Where.
        field: &'static str,
        /// The count read.
        count: usize,
        /// What is there.
        remaining: usize,
    },
    /// More elements in one message than [`super::ELEMENTS_MAX`].
    #[error("{field}: {count} elements are more than a message may have")]
    TooManyElements {
        /// Where.
        field: &'static str,
        /// The count read.
        count: usize,
    },
    /// Null, and the field cannot be null in this version.
    #[error("{field}: null")]
    Null {
        /// Where.
        field: &'static str,
    },
    /// A string above 32,767 bytes: Kafka allows none, whatever the form of its length.
    #[error("{field}: a string of {length} bytes")]
    StringTooLong {
        /// Where.
        field: &'static str,
        /// The length read.
        length: usize,
    },
    /// A string is not UTF-8.
    #[error("{field}: not UTF-8")]
    NotUtf8 {
        /// Where.
        field: &'static str,
    },
    /// An unsigned varint longer than 5 bytes or above 2^32 - 1.
    #[error("{field}: varint out of range")]
    VarintRange {
        /// Where.
        field: &'static str,
    },
    /// Tags must ascend, none twice.
    #[error("{field}: tag {tag} after tag {previous}")]
    TagOrder {
        /// The struct with the tagged section.
        field: &'static str,
        /// The tag read.
        tag: u32,
        /// The one before.
        previous: u32,
    },
    /// A tagged field does not fill the size that it announces.
    #[error("{field}: tag {tag} leaves {unread} bytes of its size unread")]
    TagSize {
        /// The struct with the tagged section.
        field: &'static str,
        /// The tag.
        tag: u32,
        /// Bytes not read.
        unread: usize,
    },
    /// Bytes after the end of the message.
    #[error("{unread} bytes after the end of the message")]
    TrailingBytes {
        /// How many.
        unread: usize,
    },
    /// The codec does not have this version.
    #[error("{api} has no version {version} here")]
    Version {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
}

/// A message that cannot be said in the version asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The field has a value and the version has no place for it.
    #[error("{field} cannot be said in version {version}")]
    FieldNotInVersion {
        /// Which.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null, and the field cannot be null in this version.
    #[error("{field} cannot be null in version {version}")]
    Null {
        /// Which.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A string, array or record set longer than its length field can say.
    #[error("{field}: {length} is too long")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// The codec does not have this version.
    #[error("{api} has no version {version} here")]
    Version {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
}
