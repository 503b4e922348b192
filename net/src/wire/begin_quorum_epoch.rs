//! BeginQuorumEpoch (api key 53): a new leader announces itself to the voters (KIP-595).

use super::message::{message, whole_messages};
use super::{LeaderEndpoint, NodeEndpoint};
use quorate_raft::{DirectoryId, Epoch, ErrorCode, NodeId};

whole_messages! {
    BeginQuorumEpochRequest: BeginQuorumEpoch 0 - 1;
    BeginQuorumEpochResponse: BeginQuorumEpoch 0 - 1;
}

message! {
    /// A leader announces itself.
    pub struct BeginQuorumEpochRequest {
        /// The sender's cluster; null is accepted by Kafka.
        cluster_id: Option<String> [0 +] [nullable 0];
        /// The voter it is meant for; -1 if the sender does not say.
        voter_id: NodeId [1 +] [default -1] [ignorable];
        /// Exactly one, or the request is invalid.
        topics: Vec<BeginQuorumEpochTopic> [0 +];
        /// The leader's endpoints.
        leader_endpoints: Vec<LeaderEndpoint> [1 +] [ignorable];
    }

    /// The topic of the quorum's log.
    pub struct BeginQuorumEpochTopic {
        /// Its name.
        topic_name: String [0 +];
        /// Exactly one, or the request is invalid.
        partitions: Vec<BeginQuorumEpochPartition> [0 +];
    }

    /// Who leads.
    pub struct BeginQuorumEpochPartition {
        /// 0.
        partition_index: i32 [0 +];
        /// Data directory of the voter it is meant for.
        voter_directory_id: DirectoryId [1 +] [ignorable];
        /// The leader.
        leader_id: NodeId [0 +];
        /// Its epoch.
        leader_epoch: Epoch [0 +];
    }

    /// Answer to a BeginQuorumEpoch.
    pub struct BeginQuorumEpochResponse {
        /// NONE, 42 or 104; then nothing else counts.
        error_code: ErrorCode [0 +];
        /// As in the request.
        topics: Vec<BeginQuorumEpochTopicResponse> [0 +];
        /// The leader's endpoint, if there is one and it is known.
        node_endpoints: Vec<NodeEndpoint> [1 +] [tag 0] [ignorable];
    }

    /// The topic of the quorum's log.
    pub struct BeginQuorumEpochTopicResponse {
        /// Its name.
        topic_name: String [0 +];
        /// As in the request.
        partitions: Vec<BeginQuorumEpochPartitionResponse> [0 +];
    }

    /// The voter's answer.
    pub struct BeginQuorumEpochPartitionResponse {
        /// 0.
        partition_index: i32 [0 +];
        /// NONE, 42, 74 or 125.
        error_code: ErrorCode [0 +];
        /// Leader of `leader_epoch`; -1 if unknown.
        leader_id: NodeId [0 +];
        /// The voter's epoch.
        leader_epoch: Epoch [0 +];
    }
}
