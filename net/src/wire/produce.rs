//! Produce (api key 0): a client appends records.
//!
//! From version 13 on a topic goes by its id, before by its name.

use super::message::{message, whole_messages};
use super::{BrokerEndpoint, LeaderIdAndEpoch, Uuid};
use bytes::Bytes;
use quorate_raft::{ErrorCode, Offset};

whole_messages! {
    ProduceRequest: Produce 3 - 13;
    ProduceResponse: Produce 3 - 13;
}

message! {
    /// Records to append.
    pub struct ProduceRequest {
        /// Of a transactional producer; Quorate has no transactions.
        transactional_id: Option<String> [3 +] [nullable 3];
        /// -1: answer when committed; 0: do not answer; 1: from Quorate the same as -1.
        acks: i16 [0 +];
        /// How long the client waits, in ms.
        timeout_ms: i32 [0 +];
        /// What to append, and where.
        topic_data: Vec<ProduceTopic> [0 +];
    }

    /// A topic to append to.
    pub struct ProduceTopic {
        /// Its name, before v13.
        name: String [0 - 12] [ignorable];
        /// Its id, from v13 on.
        topic_id: Uuid [13 +] [ignorable];
        /// Its partitions.
        partition_data: Vec<ProducePartition> [0 +];
    }

    /// A partition to append to.
    pub struct ProducePartition {
        /// The partition.
        index: i32 [0 +];
        /// One record batch, as received; not looked into here.
        records: Option<Bytes> [0 +] [nullable 0];
    }

    /// Answer to a Produce.
    pub struct ProduceResponse {
        /// As in the request.
        responses: Vec<ProduceTopicResponse> [0 +];
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [1 +] [ignorable];
        /// Endpoints of the leaders named in the answer.
        node_endpoints: Vec<BrokerEndpoint> [10 +] [tag 0] [ignorable];
    }

    /// A topic of the answer.
    pub struct ProduceTopicResponse {
        /// Its name, before v13.
        name: String [0 - 12] [ignorable];
        /// Its id, from v13 on.
        topic_id: Uuid [13 +] [ignorable];
        /// As in the request.
        partition_responses: Vec<ProducePartitionResponse> [0 +];
    }

    /// What became of one batch.
    pub struct ProducePartitionResponse {
        /// The partition.
        index: i32 [0 +];
        /// NONE: committed.
        error_code: ErrorCode [0 +];
        /// Offset of the batch's first record; -1 with an error.
        base_offset: Offset [0 +];
        /// -1: the batch keeps its producer's timestamps.
        log_append_time_ms: i64 [2 +] [default -1] [ignorable];
        /// First offset of the log; -1 with an error.
        log_start_offset: Offset [5 +] [default Offset(-1)] [ignorable];
        /// Which records are refused.
        record_errors: Vec<RecordError> [8 +] [ignorable];
        /// Why, for people.
        error_message: Option<String> [8 +] [nullable 8] [ignorable];
        /// The leader, for whoever asked the wrong node. Dropped for versions that lack it.
        current_leader: LeaderIdAndEpoch [10 +] [tag 0] [ignorable];
    }

    /// A record that is refused.
    pub struct RecordError {
        /// Its place in the batch, from 0.
        batch_index: i32 [8 +];
        /// Why, for people.
        batch_index_error_message: Option<String> [8 +] [nullable 8];
    }
}
