//! Kafka's wire protocol: bounded codecs, framing, both sides of a connection, the client library.
//!
//! Everything but [`client`] is sans-IO: bytes go in, typed messages come out, and the other way
//! round. There nothing opens a socket, reads a clock or decides what a request means.
#![forbid(unsafe_code)]

pub mod apis;
pub mod client;
pub mod connection;
pub mod frame;
pub mod outbound;

pub mod wire;

pub use apis::{ApiRequest, ApiResponse, ListenerKind};
pub use connection::{Connection, ConnectionError, Inbound, Limits, Slot};

pub use outbound::{Outbound, OutboundError, UnsupportedVersion};
pub use wire::{ApiKey, DecodeError, EncodeError, Reader, RequestHeader, Uuid, Writer};
