//! The file `partition.metadata`: which topic the directory belongs to.
//!
//! Two lines: `version: 0` and `topic_id: <base64url of 16 bytes>`, no newline at the end
//! (Kafka's `PartitionMetadataFile`).

use super::{FileFormatError, malformed};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The file's content.
#[must_use]
pub fn encode_partition_metadata(topic_id: [u8; 16]) -> Vec<u8> {
    let id = URL_SAFE_NO_PAD.encode(topic_id);
    format!("version: 0\ntopic_id: {id}").into_bytes()
}

/// Reads the topic id.
///
/// # Errors
/// If a line is missing or malformed, or the version is not 0.
pub fn decode_partition_metadata(bytes: &[u8]) -> Result<[u8; 16], FileFormatError> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("not text"))?;
    let mut lines = text.lines();
    let version = field(lines.next(), "version")?;
    match version.parse() {
        Ok(0) => {}
        Ok(other) => return Err(FileFormatError::Version(other)),
        Err(_) => return Err(malformed(format!("version is '{version}'"))),
    }
    let id = field(lines.next(), "topic_id")?;
    decode_uuid(id).ok_or_else(|| malformed(format!("topic_id is '{id}'")))
}

fn field<'a>(line: Option<&'a str>, key: &str) -> Result<&'a str, FileFormatError> {
    line.and_then(|line| line.split_once(": "))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value.trim())
        .ok_or_else(|| malformed(format!("no {key}")))
}

/// Sixteen bytes as Kafka writes a uuid in text, or `None`.
pub(super) fn decode_uuid(text: &str) -> Option<[u8; 16]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// A uuid as Kafka writes it in text.
pub(super) fn encode_uuid(id: [u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../../testdata/partition.metadata");

    #[test]
    fn kafkas_file_is_read_and_written_byte_for_byte() {
        let id = decode_partition_metadata(GOLDEN).unwrap();
        assert_eq!(id, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(encode_partition_metadata(id), GOLDEN);
    }

    #[test]
    fn cut_files_are_refused() {
        for end in 0..GOLDEN.len() {
            assert!(decode_partition_metadata(&GOLDEN[..end]).is_err(), "{end}");
        }
        let later = decode_partition_metadata(b"version: 1\ntopic_id: x");
        assert_eq!(later, Err(FileFormatError::Version(1)));
    }
}
