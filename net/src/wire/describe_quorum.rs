//! DescribeQuorum (api key 55): voters and observers, and how far each of them is (KIP-595).

use super::message::{message, whole_messages};
use quorate_raft::{DirectoryId, Epoch, ErrorCode, NodeId, Offset};

whole_messages! {
    DescribeQuorumRequest: DescribeQuorum 0 - 2;
    DescribeQuorumResponse: DescribeQuorum 0 - 2;
}

message! {
    /// Asks the leader for the state of the quorum.
    pub struct DescribeQuorumRequest {
        /// The quorum's topic.
        topics: Vec<DescribeQuorumTopic> [0 +];
    }

    /// A topic of the question.
    pub struct DescribeQuorumTopic {
        /// Its name.
        topic_name: String [0 +];
        /// Its partitions.
        partitions: Vec<DescribeQuorumPartition> [0 +];
    }

    /// A partition of the question.
    pub struct DescribeQuorumPartition {
        /// The partition.
        partition_index: i32 [0 +];
    }

    /// State of the quorum.
    pub struct DescribeQuorumResponse {
        /// NONE, or what is wrong with the request as a whole.
        error_code: ErrorCode [0 +];
        /// Why, for people.
        error_message: Option<String> [2 +] [nullable 2] [ignorable];
        /// As in the request.
        topics: Vec<DescribeQuorumTopicResponse> [0 +];
        /// The voters and their listeners. Dropped for versions that lack it.
        nodes: Vec<DescribeQuorumNode> [2 +] [ignorable];
    }

    /// A topic of the answer.
    pub struct DescribeQuorumTopicResponse {
        /// Its name.
        topic_name: String [0 +];
        /// As in the request.
        partitions: Vec<DescribeQuorumPartitionResponse> [0 +];
    }

    /// The quorum of a partition.
    pub struct DescribeQuorumPartitionResponse {
        /// The partition.
        partition_index: i32 [0 +];
        /// NONE, 3 or 6.
        error_code: ErrorCode [0 +];
        /// Why, for people.
        error_message: Option<String> [2 +] [nullable 2] [ignorable];
        /// The leader; -1 if unknown.
        leader_id: NodeId [0 +];
        /// Its epoch.
        leader_epoch: Epoch [0 +];
        /// First offset that is not committed; -1 if unknown.
        high_watermark: Offset [0 +];
        /// The voters.
        current_voters: Vec<DescribedReplica> [0 +];
        /// Who fetches without being a voter.
        observers: Vec<DescribedReplica> [0 +];
    }

    /// How far one replica is, as the leader knows it.
    pub struct DescribedReplica {
        /// The replica.
        replica_id: NodeId [0 +];
        /// Its data directory. Dropped for versions that lack it.
        replica_directory_id: DirectoryId [2 +] [ignorable];
        /// Its log end offset; -1 if unknown.
        log_end_offset: Offset [0 +];
        /// When it last fetched, in ms since 1970; -1 if unknown.
        last_fetch_timestamp: i64 [1 +] [default -1] [ignorable];
        /// When it last had everything, in ms since 1970; -1 if unknown.
        last_caught_up_timestamp: i64 [1 +] [default -1] [ignorable];
    }

    /// A voter and where it listens.
    pub struct DescribeQuorumNode {
        /// The voter.
        node_id: NodeId [2 +];
        /// Its listeners.
        listeners: Vec<DescribeQuorumListener> [2 +];
    }

    /// A listener of a voter.
    pub struct DescribeQuorumListener {
        /// Name of the listener.
        name: String [2 +];
        /// Host name or address.
        host: String [2 +];
        /// TCP port.
        port: u16 [2 +];
    }
}
