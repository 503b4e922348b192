//! EndQuorumEpoch (api key 54): a leader resigns and names its successors (KIP-595, KIP-853).

use super::message::{message, whole_messages};
use super::{LeaderEndpoint, NodeEndpoint};
use quorate_raft::{DirectoryId, Epoch, ErrorCode, NodeId};

whole_messages! {
    EndQuorumEpochRequest: EndQuorumEpoch 0 - 1;
    EndQuorumEpochResponse: EndQuorumEpoch 0 - 1;
}

message! {
    /// A leader resigns.
    pub struct EndQuorumEpochRequest {
        /// The sender's cluster; null is accepted by Kafka.
        cluster_id: Option<String> [0 +] [nullable 0];
        /// Exactly one, or the request is invalid.
        topics: Vec<EndQuorumEpochTopic> [0 +];
        /// The leader's endpoints; Kafka leaves this empty.
        leader_endpoints: Vec<LeaderEndpoint> [1 +] [ignorable];
    }

    /// The topic of the quorum's log.
    pub struct EndQuorumEpochTopic {
        /// Its name.
        topic_name: String [0 +];
        /// Exactly one, or the request is invalid.
        partitions: Vec<EndQuorumEpochPartition> [0 +];
    }

    /// Who resigns, and who should stand. A sender fills both lists; the version keeps one.
    pub struct EndQuorumEpochPartition {
        /// 0.
        partition_index: i32 [0 +];
        /// The leader that resigns.
        leader_id: NodeId [0 +];
        /// Its epoch.
        leader_epoch: Epoch [0 +];
        /// Ids of those who should stand, best first.
        preferred_successors: Vec<NodeId> [0] [ignorable];
        /// Those who should stand, best first.
        preferred_candidates: Vec<PreferredCandidate> [1 +] [ignorable];
    }

    /// A voter that should stand.
    pub struct PreferredCandidate {
        /// The voter.
        candidate_id: NodeId [1 +];
        /// Its data directory.
        candidate_directory_id: DirectoryId [1 +];
    }

    /// Answer to an EndQuorumEpoch.
    pub struct EndQuorumEpochResponse {
        /// NONE, 42 or 104; then nothing else counts.
        error_code: ErrorCode [0 +];
        /// As in the request.
        topics: Vec<EndQuorumEpochTopicResponse> [0 +];
        /// The leader's endpoint, if there is one and it is known.
        node_endpoints: Vec<NodeEndpoint> [1 +] [tag 0] [ignorable];
    }

    /// The topic of the quorum's log.
    pub struct EndQuorumEpochTopicResponse {
        /// Its name.
        topic_name: String [0 +];
        /// As in the request.
        partitions: Vec<EndQuorumEpochPartitionResponse> [0 +];
    }

    /// The voter's answer.
    pub struct EndQuorumEpochPartitionResponse {
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
