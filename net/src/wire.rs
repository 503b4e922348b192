//! Codecs of Kafka's protocol, one file per API, both directions, all versions that are served.
//!
//! Each API's file is a table of its fields: name, type, versions, default, the same that Kafka's
//! schemas say. `message!` turns a table into a struct with `decode` and `encode`. Nothing here
//! judges values; nothing here allocates what the received bytes do not pay for.

pub mod api_versions;
pub mod begin_quorum_epoch;
pub mod describe_cluster;
pub mod describe_quorum;
pub mod end_quorum_epoch;
pub mod fetch;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod vote;

mod api_key;
mod common;
mod error;
mod field;
mod header;
mod message;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use api_key::ApiKey;
pub use common::{BrokerEndpoint, LeaderEndpoint, LeaderIdAndEpoch, NodeEndpoint, Uuid};
pub use error::{DecodeError, EncodeError};
pub use header::{RequestHeader, ResponseHeader};
pub use reader::{ELEMENTS_MAX, Reader};
pub use writer::Writer;
