//! Structs that several APIs share.

use super::message::message;
use quorate_raft::{Epoch, NodeId};
use std::fmt;
use std::str::FromStr;

/// A topic id. Its text form is Kafka's: base64url without padding, 22 characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Text that is not a uuid in Kafka's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a uuid: it must be 22 characters of base64url")]
pub struct UuidError;

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// "No topic id."
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let bits = u128::from_be_bytes(self.0);
        // 128 bits are 21 digits of 6 bits, and one of 2 that is filled up with zeros.
        for shift in (2..128).step_by(6).rev() {
            f.write_char(char::from(BASE64URL[(bits >> shift) as usize & 0x3f]))?;
        }
        f.write_char(char::from(BASE64URL[(bits as usize & 0b11) << 4]))
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let digits = text.as_bytes();
        if digits.len() != 22 {
            return Err(UuidError);
        }
        let mut bits = 0_u128;
        for (index, digit) in digits.iter().enumerate() {
            let value = BASE64URL.iter().position(|known| known == digit);
            let value = value.ok_or(UuidError)? as u128;
            if index < 21 {
                bits = bits << 6 | value;
            } else if value & 0xf == 0 {
                bits = bits << 2 | value >> 4;
            } else {
                return Err(UuidError);
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

message! {
    /// Where a node's controller listener is, in answers of the raft APIs.
    pub struct NodeEndpoint {
        /// The node.
        node_id: NodeId [0 +];
        /// Host name or address.
        host: String [0 +];
        /// TCP port.
        port: u16 [0 +];
    }

    /// Where a node serves clients, in answers to Fetch and Produce.
    pub struct BrokerEndpoint {
        /// The node.
        node_id: NodeId [0 +];
        /// Host name or address.
        host: String [0 +];
        /// TCP port.
        port: i32 [0 +];
        /// Never set by Quorate.
        rack: Option<String> [0 +] [nullable 0];
    }

    /// A leader's endpoint on one of its listeners.
    pub struct LeaderEndpoint {
        /// Name of the listener.
        name: String [0 +];
        /// Host name or address.
        host: String [0 +];
        /// TCP port.
        port: u16 [0 +];
    }

    /// The leader as whoever answers knows it.
    pub struct LeaderIdAndEpoch {
        /// The leader; -1 if unknown.
        leader_id: NodeId [0 +] [default -1];
        /// Its epoch; -1 if unknown.
        leader_epoch: Epoch [0 +] [default Epoch(-1)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_uuid_is_kafkas() {
        let mut metadata_topic = [0; 16];
        metadata_topic[15] = 1;
        let id = Uuid(metadata_topic);
        assert_eq!(id.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(id));
        let directory = "b8tRS7h4TJ2Vt43Dp85v2A";
        let parsed: Uuid = directory.parse().unwrap();
        assert_eq!(parsed.0[..4], [0x6f, 0xcb, 0x51, 0x4b]);
        assert_eq!(parsed.to_string(), directory);
    }

    #[test]
    fn other_text_is_no_uuid() {
        let too_long = "AAAAAAAAAAAAAAAAAAAAAQ==";
        let bits_beyond_the_end = "AAAAAAAAAAAAAAAAAAAAAB";
        let wrong_alphabet = "AAAAAAAAAAAAAAAAAAAA+A";
        for text in ["", "AAAA", too_long, bits_beyond_the_end, wrong_alphabet] {
            assert_eq!(text.parse::<Uuid>(), Err(UuidError), "{text}");
        }
    }
}
