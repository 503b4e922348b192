//! What can go wrong for a client, told so that a person knows where to look: which address, which
//! API, which error of which name.

use crate::outbound::{OutboundError, UnsupportedVersion};
use crate::wire::ApiKey;
use quorate_raft::ErrorCode;
use std::fmt;
use std::io;
use std::time::Duration;

/// Host and port, as configured or as a server told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a client could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no address to begin with.
    #[error("no bootstrap address is given")]
    NoBootstrap,
    /// The kernel refuses what the client's loop needs.
    #[error("a loop for the client cannot be set up: {0}")]
    Runtime(io::Error),
    /// Nobody answers there.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to {address} broke: {error}")]
    Disconnected {
        /// To whom.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// No answer in time.
    #[error("{address} did not answer within {limit:?}")]
    Timeout {
        /// Who.
        address: Address,
        /// How long it was waited.
        limit: Duration,
    },
    /// The server's bytes are not Kafka's protocol.
    #[error("{address} does not speak the protocol: {error}")]
    Protocol {
        /// Who.
        address: Address,
        /// What is wrong.
        error: OutboundError,
    },
    /// The server cannot be asked this.
    #[error("{address}: {error}")]
    Unsupported {
        /// Who.
        address: Address,
        /// Why.
        error: UnsupportedVersion,
    },
    /// The server answered with an error.
    #[error("{address} answered {api} with {error}{}", detail(.message))]
    Server {
        /// Who.
        address: Address,
        /// What was asked.
        api: ApiKey,
        /// The error.
        error: ErrorCode,
        /// The server's own words, if it gave any.
        message: Option<String>,
    },
    /// The answer lacks what was asked for.
    #[error("{address} answered {api} without what was asked for")]
    Incomplete {
        /// Who.
        address: Address,
        /// What was asked.
        api: ApiKey,
    },
    /// The server knows no leader.
    #[error("{address} knows no leader")]
    NoLeader {
        /// Who.
        address: Address,
    },
    /// Controller listeners do not serve this.
    #[error("{api} is not served by controllers: connect to a client listener")]
    NotOnController {
        /// What was to be asked.
        api: ApiKey,
    },
    /// Tried again and again, until there was no time left.
    #[error("gave up after {after:?}: {last}")]
    GaveUp {
        /// How long it was tried.
        after: Duration,
        /// The last failure.
        last: Box<ClientError>,
    },
}

/// `LEADER_NOT_AVAILABLE`, which brokers of Kafka say in Metadata during an election.
const LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(5);

/// Errors that pass: another node leads, or soon one will.
const PASSING: [ErrorCode; 9] = [
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    LEADER_NOT_AVAILABLE,
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::BROKER_NOT_AVAILABLE,
    ErrorCode::NETWORK_EXCEPTION,
    ErrorCode::NOT_CONTROLLER,
    // A leader whose disk failed steps down.
    ErrorCode::KAFKA_STORAGE_ERROR,
    ErrorCode::OFFSET_NOT_AVAILABLE,
];

impl ClientError {
    /// Whether it may go well on another try, maybe with another node.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::Timeout { .. }
            | Self::NoLeader { .. } => true,
            Self::Server { error, .. } => PASSING.contains(error),
            _ => false,
        }
    }

    /// The server's error code, also of the last try before giving up.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { error, .. } => Some(*error),
            Self::GaveUp { last, .. } => last.error_code(),
            _ => None,
        }
    }
}

fn detail(message: &Option<String>) -> String {
    message
        .as_ref()
        .map(|message| format!(": {message}"))
        .unwrap_or_default()
}
