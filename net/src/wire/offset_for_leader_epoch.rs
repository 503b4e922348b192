//! OffsetForLeaderEpoch (api key 23): where an epoch ended, so that a consumer can tell whether the
//! log was cut below its position (KIP-320).

use super::message::{message, whole_messages};
use quorate_raft::{Epoch, ErrorCode, NodeId, Offset};

whole_messages! {
    OffsetForLeaderEpochRequest: OffsetForLeaderEpoch 2 - 4;
    OffsetForLeaderEpochResponse: OffsetForLeaderEpoch 2 - 4;
}

message! {
    /// Asks where epochs ended.
    pub struct OffsetForLeaderEpochRequest {
        /// -1 for a consumer.
        replica_id: NodeId [3 +] [default -2] [ignorable];
        /// Of which logs.
        topics: Vec<OffsetForLeaderTopic> [0 +];
    }

    /// A topic of the question.
    pub struct OffsetForLeaderTopic {
        /// Its name.
        topic: String [0 +];
        /// Its partitions.
        partitions: Vec<OffsetForLeaderPartition> [0 +];
    }

    /// A partition of the question.
    pub struct OffsetForLeaderPartition {
        /// The partition.
        partition: i32 [0 +];
        /// The sender's epoch; -1 if it does not say.
        current_leader_epoch: Epoch [2 +] [default Epoch(-1)] [ignorable];
        /// The epoch whose end is asked for.
        leader_epoch: Epoch [0 +];
    }

    /// Answer to an OffsetForLeaderEpoch.
    pub struct OffsetForLeaderEpochResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [2 +] [ignorable];
        /// As in the request.
        topics: Vec<OffsetForLeaderTopicResult> [0 +];
    }

    /// A topic of the answer.
    pub struct OffsetForLeaderTopicResult {
        /// Its name.
        topic: String [0 +];
        /// As in the request.
        partitions: Vec<EpochEndOffset> [0 +];
    }

    /// A partition of the answer.
    pub struct EpochEndOffset {
        /// NONE, 3, 6, 74, 75 or 78.
        error_code: ErrorCode [0 +];
        /// The partition.
        partition: i32 [0 +];
        /// The largest epoch not above the one asked for; -1 if there is none.
        leader_epoch: Epoch [1 +] [default Epoch(-1)] [ignorable];
        /// Where it ended, exclusive; -1 if there is none.
        end_offset: Offset [0 +] [default Offset(-1)];
    }
}
