//! Vote (api key 52): a replica asks whether it may lead (KIP-595), or whether it might (KIP-996).

use super::NodeEndpoint;
use super::message::{message, whole_messages};
use quorate_raft::{DirectoryId, Epoch, ErrorCode, NodeId, Offset};

whole_messages! {
    VoteRequest: Vote 0 - 2;
    VoteResponse: Vote 0 - 2;
}

message! {
    /// Asks for a vote.
    pub struct VoteRequest {
        /// The sender's cluster; null is accepted by Kafka.
        cluster_id: Option<String> [0 +] [nullable 0];
        /// The voter that is asked; -1 if the sender does not say.
        voter_id: NodeId [1 +] [default -1] [ignorable];
        /// Exactly one, or the request is invalid.
        topics: Vec<VoteTopic> [0 +];
    }

    /// The topic of the quorum's log.
    pub struct VoteTopic {
        /// Its name.
        topic_name: String [0 +];
        /// Exactly one, or the request is invalid.
        partitions: Vec<VotePartition> [0 +];
    }

    /// The sender's case.
    pub struct VotePartition {
        /// 0.
        partition_index: i32 [0 +];
        /// The sender's epoch: for a pre-vote its current one, for a vote the one it stands for.
        replica_epoch: Epoch [0 +];
        /// The sender.
        replica_id: NodeId [0 +];
        /// The sender's data directory.
        replica_directory_id: DirectoryId [1 +] [ignorable];
        /// Data directory of the voter that is asked.
        voter_directory_id: DirectoryId [1 +] [ignorable];
        /// Epoch of the sender's last record.
        last_offset_epoch: Epoch [0 +];
        /// The sender's log end offset.
        last_offset: Offset [0 +];
        /// Only asks; no vote is given away. A version that cannot say it must not be used.
        pre_vote: bool [2 +];
    }

    /// Answer to a Vote.
    pub struct VoteResponse {
        /// NONE, 35, 42 or 104; then nothing else counts.
        error_code: ErrorCode [0 +];
        /// As in the request.
        topics: Vec<VoteTopicResponse> [0 +];
        /// The leader's endpoint, if there is one and it is known.
        node_endpoints: Vec<NodeEndpoint> [1 +] [tag 0] [ignorable];
    }

    /// The topic of the quorum's log.
    pub struct VoteTopicResponse {
        /// Its name.
        topic_name: String [0 +];
        /// As in the request.
        partitions: Vec<VotePartitionResponse> [0 +];
    }

    /// The voter's answer.
    pub struct VotePartitionResponse {
        /// 0.
        partition_index: i32 [0 +];
        /// NONE, 42, 74 or 125.
        error_code: ErrorCode [0 +];
        /// Leader of `leader_epoch`; -1 if unknown.
        leader_id: NodeId [0 +];
        /// The voter's epoch.
        leader_epoch: Epoch [0 +];
        /// Whether the vote is granted.
        vote_granted: bool [0 +];
    }
}
