//! The file `quorate-log`: says that the directory's segments are ours, and under which identity.
//!
//! Written once, durably, before the first mark. Every mark carries the identity, so that no
//! client's record can pass for a mark: the identity is random and never leaves the disk. Without
//! the file the directory was written by Kafka, and Kafka's recovery rule holds for it.
//!
//! JSON, one line: `{"version":0,"log_id":"<base64url of 16 bytes>"}`.

use super::partition_metadata::{decode_uuid, encode_uuid};
use super::{FileFormatError, malformed};
use serde::{Deserialize, Serialize};

/// Identity of one log on one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity(pub [u8; 16]);

#[derive(Serialize, Deserialize)]
struct Json {
    version: i64,
    log_id: String,
}

/// The file's content.
#[must_use]
pub fn encode_log_identity(identity: LogIdentity) -> Vec<u8> {
    let log_id = encode_uuid(identity.0);
    let mut text = format!("{{\"version\":0,\"log_id\":\"{log_id}\"}}");
    text.push('\n');
    text.into_bytes()
}

/// Reads the identity.
///
/// # Errors
/// If it is not the one line of JSON, or the version is not 0.
pub fn decode_log_identity(bytes: &[u8]) -> Result<LogIdentity, FileFormatError> {
    let json: Json = serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))?;
    if json.version != 0 {
        return Err(FileFormatError::Version(json.version));
    }
    let id = decode_uuid(&json.log_id);
    id.map(LogIdentity)
        .ok_or_else(|| malformed(format!("log_id is '{}'", json.log_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_and_a_cut_file_does_not() {
        let identity = LogIdentity([7; 16]);
        let bytes = encode_log_identity(identity);
        assert_eq!(decode_log_identity(&bytes), Ok(identity));
        for end in 0..bytes.len() - 1 {
            assert!(decode_log_identity(&bytes[..end]).is_err());
        }
        let later = decode_log_identity(b"{\"version\":3,\"log_id\":\"\"}");
        assert_eq!(later, Err(FileFormatError::Version(3)));
    }
}
