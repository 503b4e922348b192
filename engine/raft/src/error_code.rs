//! Kafka's error codes, those that Quorate sends or understands.

use core::fmt;

/// A Kafka error code as it stands on the wire (`org.apache.kafka.common.protocol.Errors`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i16);

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// Kafka's name of the code, or `UNKNOWN`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 { $($code => stringify!($name),)* _ => "UNKNOWN" }
            }
        }
    };
}

error_codes! {
    /// An unexpected failure at the server.
    UNKNOWN_SERVER_ERROR = -1,
    /// No error.
    NONE = 0,
    /// The offset is outside the log.
    OFFSET_OUT_OF_RANGE = 1,
    /// A batch fails its CRC or is malformed.
    CORRUPT_MESSAGE = 2,
    /// No such topic or partition.
    UNKNOWN_TOPIC_OR_PARTITION = 3,
    /// Not the leader; ask the one named, or look for it.
    NOT_LEADER_OR_FOLLOWER = 6,
    /// Not done in time.
    REQUEST_TIMED_OUT = 7,
    /// The leader is shutting down.
    BROKER_NOT_AVAILABLE = 8,
    /// The batch is larger than allowed.
    MESSAGE_TOO_LARGE = 10,
    /// The connection broke (local stand-in).
    NETWORK_EXCEPTION = 13,
    /// Not now, but soon: a producer sends it again.
    NOT_ENOUGH_REPLICAS = 19,
    /// `acks` is not -1, 0 or 1.
    INVALID_REQUIRED_ACKS = 21,
    /// The peer has not the right.
    CLUSTER_AUTHORIZATION_FAILED = 31,
    /// This version of the API is not offered.
    UNSUPPORTED_VERSION = 35,
    /// Only the controller can do this.
    NOT_CONTROLLER = 41,
    /// The request is malformed.
    INVALID_REQUEST = 42,
    /// The batch's magic is not 2.
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43,
    /// The operator's bound does not allow it.
    POLICY_VIOLATION = 44,
    /// A producer's batch does not follow its last one.
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
    /// A producer's batch is in the log already, further back than its place is known.
    DUPLICATE_SEQUENCE_NUMBER = 46,
    /// A newer instance of the producer is at work.
    INVALID_PRODUCER_EPOCH = 47,
    /// A transactional id that this client may not use.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
    /// The disk failed.
    KAFKA_STORAGE_ERROR = 56,
    /// The request's epoch is older than the leader's.
    FENCED_LEADER_EPOCH = 74,
    /// The request's epoch is newer than the receiver's.
    UNKNOWN_LEADER_EPOCH = 75,
    /// The batch is compressed in a way that is not taken.
    UNSUPPORTED_COMPRESSION_TYPE = 76,
    /// The leader does not know its high watermark yet.
    OFFSET_NOT_AVAILABLE = 78,
    /// A record of the batch is refused.
    INVALID_RECORD = 87,
    /// No such snapshot.
    SNAPSHOT_NOT_FOUND = 98,
    /// No topic with this id.
    UNKNOWN_TOPIC_ID = 100,
    /// The cluster id is another one.
    INCONSISTENT_CLUSTER_ID = 104,
    /// DescribeCluster was sent to the wrong kind of listener.
    MISMATCHED_ENDPOINT_TYPE = 114,
    /// No such endpoint type.
    UNSUPPORTED_ENDPOINT_TYPE = 115,
    /// The request was meant for another voter.
    INVALID_VOTER_KEY = 125,
}

impl ErrorCode {
    /// Whether this is `NONE`.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}
