//! Kafka's text form of 16-byte ids: base64url without padding, 22 characters.
//!
//! Directory ids, topic ids and random cluster ids are written so (`org.apache.kafka.common.Uuid`).

use quorate_net::Uuid;
use std::fs::File;
use std::io::{self, Read};

/// The text of `id`.
#[must_use]
pub fn encode(id: [u8; 16]) -> String {
    Uuid(id).to_string()
}

/// The id that `text` stands for; `None` if it is not 22 characters of base64url without stray
/// bits.
#[must_use]
pub fn decode(text: &str) -> Option<[u8; 16]> {
    text.parse().ok().map(|Uuid(id)| id)
}

/// A new random id (version 4, as Java makes them). Its text never begins with '-', so that it can
/// be an argument of a command.
///
/// # Errors
/// The kernel's random source cannot be read.
pub fn random() -> io::Result<[u8; 16]> {
    let mut source = File::open("/dev/urandom")?;
    loop {
        let mut id = [0; 16];
        source.read_exact(&mut id)?;
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        if !encode(id).starts_with('-') {
            return Ok(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_kafkas_text() {
        // From files that Kafka 4.4.0 wrote: the id of the metadata topic, a directory id.
        let mut metadata_topic = [0; 16];
        metadata_topic[15] = 1;
        assert_eq!(encode(metadata_topic), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(encode([0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(encode([0xff; 16]), "_____________________w");
        let directory = decode("HSf8pubbSH2hrykbyaOraA").unwrap();
        assert_eq!(directory[..3], [0x1d, 0x27, 0xfc]);
        assert_eq!(encode(directory), "HSf8pubbSH2hrykbyaOraA");
    }

    #[test]
    fn texts_that_are_no_id_are_refused() {
        for text in [
            "",
            "AAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAB",
            "AAAAAAAAAAAAAAAAAAAA+A",
            "AAAAAAAAAAAAAAAAAAAA==",
            "äAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn random_ids_can_be_arguments_and_differ() {
        let ids: Vec<_> = (0..300).map(|_| random().unwrap()).collect();
        for id in &ids {
            let text = encode(*id);
            assert_eq!(text.len(), 22);
            assert!(!text.starts_with('-'));
            assert_eq!(decode(&text), Some(*id));
            assert_eq!(id[6] >> 4, 4, "version");
        }
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
