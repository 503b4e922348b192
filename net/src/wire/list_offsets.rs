//! ListOffsets (api key 2): the first or the next offset, or the one at a timestamp.

use super::message::{message, whole_messages};
use quorate_raft::{Epoch, ErrorCode, NodeId, Offset};

/// `timestamp` that asks for the end: the high watermark.
pub const LATEST_TIMESTAMP: i64 = -1;
/// `timestamp` that asks for the log start offset.
pub const EARLIEST_TIMESTAMP: i64 = -2;

whole_messages! {
    ListOffsetsRequest: ListOffsets 1 - 11;
    ListOffsetsResponse: ListOffsets 1 - 11;
}

message! {
    /// Asks for offsets.
    pub struct ListOffsetsRequest {
        /// -1 for a consumer.
        replica_id: NodeId [0 +];
        /// 0: read uncommitted, 1: read committed transactions.
        isolation_level: i8 [2 +];
        /// Where.
        topics: Vec<ListOffsetsTopic> [0 +];
        /// How long the answer may take, in ms.
        timeout_ms: i32 [10 +] [ignorable];
    }

    /// A topic of the question.
    pub struct ListOffsetsTopic {
        /// Its name.
        name: String [0 +];
        /// Its partitions.
        partitions: Vec<ListOffsetsPartition> [0 +];
    }

    /// A partition of the question.
    pub struct ListOffsetsPartition {
        /// The partition.
        partition_index: i32 [0 +];
        /// The sender's epoch; -1 if it does not say.
        current_leader_epoch: Epoch [4 +] [default Epoch(-1)] [ignorable];
        /// In ms since 1970, or one of the negative numbers with a meaning.
        timestamp: i64 [0 +];
    }

    /// Answer to a ListOffsets.
    pub struct ListOffsetsResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [2 +] [ignorable];
        /// As in the request.
        topics: Vec<ListOffsetsTopicResponse> [0 +];
    }

    /// A topic of the answer.
    pub struct ListOffsetsTopicResponse {
        /// Its name.
        name: String [0 +];
        /// As in the request.
        partitions: Vec<ListOffsetsPartitionResponse> [0 +];
    }

    /// A partition of the answer.
    pub struct ListOffsetsPartitionResponse {
        /// The partition.
        partition_index: i32 [0 +];
        /// NONE, 3, 6, 74, 75 or 78.
        error_code: ErrorCode [0 +];
        /// Timestamp of the record found; -1 for the first and the next offset.
        timestamp: i64 [1 +] [default -1];
        /// The offset; -1 if there is none.
        offset: Offset [1 +] [default Offset(-1)];
        /// Epoch at that offset; -1 if unknown. Dropped for versions that lack it.
        leader_epoch: Epoch [4 +] [default Epoch(-1)] [ignorable];
    }
}
