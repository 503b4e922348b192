//! Metadata (api key 3): brokers, topics and their leaders; how clients find the leader.

use super::Uuid;
use super::message::{message, whole_messages};
use quorate_raft::{Epoch, ErrorCode, NodeId};

/// "Authorized operations" when they were not asked for.
pub const OPERATIONS_UNKNOWN: i32 = i32::MIN;

whole_messages! {
    MetadataRequest: Metadata 0 - 13;
    MetadataResponse: Metadata 0 - 13;
}

message! {
    /// Asks for brokers and topics.
    pub struct MetadataRequest {
        /// Which topics. Null (v0: empty) asks for all, empty (from v1 on) for none.
        topics: Option<Vec<MetadataTopicRequest>> [0 +] [nullable 1] [default Some(Vec::new())];
        /// Whether an unknown topic may be created; Quorate creates none.
        allow_auto_topic_creation: bool [4 +] [default true];
        /// Whether to say what the client may do to the cluster.
        include_cluster_authorized_operations: bool [8 - 10];
        /// Whether to say what the client may do to the topics.
        include_topic_authorized_operations: bool [8 +];
    }

    /// A topic that is asked for, by name or by id.
    pub struct MetadataTopicRequest {
        /// Its id; zero if it goes by name.
        topic_id: Uuid [10 +] [ignorable];
        /// Its name; null if it goes by id.
        name: Option<String> [0 +] [nullable 10] [default Some(String::new())];
    }

    /// Brokers and topics.
    pub struct MetadataResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [3 +] [ignorable];
        /// All nodes that serve clients.
        brokers: Vec<MetadataBroker> [0 +];
        /// Null if unknown.
        cluster_id: Option<String> [2 +] [nullable 2] [ignorable];
        /// -1 if unknown.
        controller_id: NodeId [1 +] [default -1] [ignorable];
        /// As asked.
        topics: Vec<MetadataTopic> [0 +];
        /// Bit set, or [`OPERATIONS_UNKNOWN`].
        cluster_authorized_operations: i32 [8 - 10] [default OPERATIONS_UNKNOWN] [ignorable];
        /// NONE, or 129: look for the cluster anew.
        error_code: ErrorCode [13 +] [ignorable];
    }

    /// A node that serves clients.
    pub struct MetadataBroker {
        /// The node.
        node_id: NodeId [0 +];
        /// Host name or address.
        host: String [0 +];
        /// TCP port.
        port: i32 [0 +];
        /// Never set by Quorate.
        rack: Option<String> [1 +] [nullable 1] [ignorable];
    }

    /// A topic.
    pub struct MetadataTopic {
        /// NONE, 3 or 100.
        error_code: ErrorCode [0 +];
        /// Its name; null if an unknown id was asked for.
        name: Option<String> [0 +] [nullable 12] [default Some(String::new())];
        /// Its id.
        topic_id: Uuid [10 +] [ignorable];
        /// Whether it belongs to Kafka itself.
        is_internal: bool [1 +] [ignorable];
        /// Its partitions.
        partitions: Vec<MetadataPartition> [0 +];
        /// Bit set, or [`OPERATIONS_UNKNOWN`].
        topic_authorized_operations: i32 [8 +] [default OPERATIONS_UNKNOWN] [ignorable];
    }

    /// A partition.
    pub struct MetadataPartition {
        /// NONE, or 5: no leader at the moment.
        error_code: ErrorCode [0 +];
        /// The partition.
        partition_index: i32 [0 +];
        /// Its leader; -1 if unknown.
        leader_id: NodeId [0 +];
        /// The leader's epoch; -1 if unknown.
        leader_epoch: Epoch [7 +] [default Epoch(-1)] [ignorable];
        /// Nodes that have a replica.
        replica_nodes: Vec<NodeId> [0 +];
        /// Those that keep up.
        isr_nodes: Vec<NodeId> [0 +];
        /// Those whose disk failed.
        offline_replicas: Vec<NodeId> [5 +] [ignorable];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DecodeError, EncodeError, Reader, Writer};
    use bytes::Bytes;

    #[test]
    fn null_topics_are_read_and_written_only_where_the_version_has_null() {
        let null = Bytes::from_static(&[0xff; 4]);
        let all = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        let field = "MetadataRequest.topics";
        let read = MetadataRequest::decode(0, &mut Reader::new(&null));
        assert_eq!(read, Err(DecodeError::Null { field }));
        assert_eq!(
            MetadataRequest::decode(1, &mut Reader::new(&null)),
            Ok(all.clone())
        );
        let written = all.encode(0, &mut Writer::new());
        assert_eq!(written, Err(EncodeError::Null { field, version: 0 }));
    }

    #[test]
    fn strings_above_kafkas_bound_are_neither_written_nor_read() {
        let long = MetadataTopicRequest {
            name: Some("x".repeat(32_768)),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![long]),
            ..Default::default()
        };
        let field = "MetadataTopicRequest.name";
        let length = 32_768;
        let written = request.encode(12, &mut Writer::new());
        assert_eq!(written, Err(EncodeError::TooLong { field, length }));
        // One topic without an id, whose name has a compact length of 32,768.
        let mut bytes = vec![2];
        bytes.extend([0; 16]);
        bytes.extend([0x81, 0x80, 0x02]);
        bytes.resize(40_000, b'x');
        let read = MetadataRequest::decode(12, &mut Reader::new(&bytes.into()));
        assert_eq!(read, Err(DecodeError::StringTooLong { field, length }));
    }
}
