//! Fetch (api key 1): how consumers read and how replicas replicate (KIP-595).
//!
//! From version 13 on a topic goes by its id, before by its name; whoever fills in a request for an
//! unknown version sets both.

use super::message::{message, whole_messages};
use super::{BrokerEndpoint, LeaderIdAndEpoch, Uuid};
use bytes::Bytes;
use quorate_raft::{DirectoryId, Epoch, ErrorCode, NodeId, Offset};

whole_messages! {
    FetchRequest: Fetch 4 - 18;
    FetchResponse: Fetch 4 - 18;
}

impl FetchRequest {
    /// The replica that fetches, wherever the version has it; -1 for a consumer.
    #[must_use]
    pub fn fetching_replica(&self) -> NodeId {
        if self.replica_state.replica_id >= 0 {
            self.replica_state.replica_id
        } else {
            self.replica_id
        }
    }

    /// Whether the replica that fetches stands where `version` has it.
    #[must_use]
    pub fn is_placed_for(&self, version: i16) -> bool {
        if version >= 15 {
            self.replica_id == -1
        } else {
            self.replica_state == ReplicaState::default()
        }
    }

    /// Puts the replica that fetches into the field that `version` has for it.
    pub fn place_replica(&mut self, version: i16) {
        let id = self.fetching_replica();
        if version >= 15 {
            self.replica_id = -1;
            self.replica_state.replica_id = id;
        } else {
            self.replica_id = id;
            self.replica_state = ReplicaState::default();
        }
    }
}

message! {
    /// Asks for records.
    pub struct FetchRequest {
        /// The sender's cluster; replicas always say it.
        cluster_id: Option<String> [12 +] [nullable 12] [tag 0] [ignorable];
        /// The replica that fetches, before v15; -1 for a consumer.
        replica_id: NodeId [0 - 14] [default -1];
        /// The replica that fetches, from v15 on.
        replica_state: ReplicaState [15 +] [tag 1];
        /// How long the answer may be held when there is nothing, in ms.
        max_wait_ms: i32 [0 +];
        /// Fewest bytes worth an answer before `max_wait_ms`.
        min_bytes: i32 [0 +];
        /// Bound for the records of the answer, in bytes; one whole batch is always sent.
        max_bytes: i32 [3 +] [default i32::MAX] [ignorable];
        /// 0: read uncommitted, 1: read committed transactions.
        isolation_level: i8 [4 +] [ignorable];
        /// Session of incremental fetches; 0 for none.
        session_id: i32 [7 +] [ignorable];
        /// Count within the session; -1 outside of sessions.
        session_epoch: i32 [7 +] [default -1] [ignorable];
        /// What to fetch.
        topics: Vec<FetchTopic> [0 +];
        /// What to take out of the session.
        forgotten_topics_data: Vec<ForgottenTopic> [7 +];
        /// The consumer's rack.
        rack_id: String [11 +] [ignorable];
    }

    /// The replica that fetches.
    pub struct ReplicaState {
        /// Its id; -1 for a consumer, or an observer without an id.
        replica_id: NodeId [15 +] [default -1];
        /// A broker's epoch; replicas of a metadata quorum say -1.
        replica_epoch: i64 [15 +] [default -1];
    }

    /// A topic to fetch from.
    pub struct FetchTopic {
        /// Its name, before v13.
        topic: String [0 - 12] [ignorable];
        /// Its id, from v13 on.
        topic_id: Uuid [13 +] [ignorable];
        /// Its partitions.
        partitions: Vec<FetchPartition> [0 +];
    }

    /// A partition to fetch from.
    pub struct FetchPartition {
        /// The partition.
        partition: i32 [0 +];
        /// The sender's epoch; -1 if it does not say.
        current_leader_epoch: Epoch [9 +] [default Epoch(-1)] [ignorable];
        /// First offset wanted; from a replica its log end offset.
        fetch_offset: Offset [0 +];
        /// Epoch of the replica's last record; -1 from a consumer.
        last_fetched_epoch: Epoch [12 +] [default Epoch(-1)];
        /// The replica's log start offset; -1 if it does not say.
        log_start_offset: Offset [5 +] [default Offset(-1)] [ignorable];
        /// Bound for this partition, in bytes. Replicas say 0, and it does not count.
        partition_max_bytes: i32 [0 +];
        /// The replica's data directory.
        replica_directory_id: DirectoryId [17 +] [tag 0] [ignorable];
        /// The replica's high watermark, -1 if it knows none; `i64::MAX` says nothing (KIP-1166).
        high_watermark: Offset [18 +] [tag 1] [default Offset(i64::MAX)] [ignorable];
    }

    /// A topic to take out of the session.
    pub struct ForgottenTopic {
        /// Its name, before v13.
        topic: String [7 - 12] [ignorable];
        /// Its id, from v13 on.
        topic_id: Uuid [13 +] [ignorable];
        /// Its partitions.
        partitions: Vec<i32> [7 +];
    }

    /// Answer to a Fetch.
    pub struct FetchResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [1 +] [ignorable];
        /// NONE, 42 or 104.
        error_code: ErrorCode [7 +] [ignorable];
        /// Session of incremental fetches; 0 for none.
        session_id: i32 [7 +];
        /// As in the request.
        responses: Vec<FetchTopicResponse> [0 +];
        /// Endpoints of the leaders named in the answer.
        node_endpoints: Vec<BrokerEndpoint> [16 +] [tag 0] [ignorable];
    }

    /// A topic of the answer.
    pub struct FetchTopicResponse {
        /// Its name, before v13.
        topic: String [0 - 12] [ignorable];
        /// Its id, from v13 on.
        topic_id: Uuid [13 +] [ignorable];
        /// As in the request.
        partitions: Vec<FetchPartitionResponse> [0 +];
    }

    /// A partition of the answer.
    pub struct FetchPartitionResponse {
        /// The partition.
        partition_index: i32 [0 +];
        /// NONE, 1, 3, 6, 8, 74, 75, 78 or 100.
        error_code: ErrorCode [0 +];
        /// First offset that is not committed; -1 if unknown.
        high_watermark: Offset [0 +];
        /// As the high watermark, since there are no transactions; -1 to replicas.
        last_stable_offset: Offset [4 +] [default Offset(-1)] [ignorable];
        /// First offset of the log.
        log_start_offset: Offset [5 +] [default Offset(-1)] [ignorable];
        /// Where the replica's log diverges; the answer cannot be given without it.
        diverging_epoch: EpochEndOffset [12 +] [tag 0];
        /// The leader, for whoever asked the wrong node. Dropped for versions that lack it.
        current_leader: LeaderIdAndEpoch [12 +] [tag 1] [ignorable];
        /// The snapshot that a replica must have first; the answer cannot be given without it.
        snapshot_id: SnapshotId [12 +] [tag 2];
        /// Null or empty: there are no transactions.
        aborted_transactions: Option<Vec<AbortedTransaction>> [4 +] [nullable 4] [ignorable];
        /// -1: fetch from the leader.
        preferred_read_replica: NodeId [11 +] [default -1] [ignorable];
        /// Whole batches, in parts that follow each other.
        records: Vec<Bytes> [0 +] [nullable 0];
    }

    /// The leader's largest epoch that is not above the replica's, and where it ends.
    pub struct EpochEndOffset {
        /// That epoch; -1: no divergence.
        epoch: Epoch [12 +] [default Epoch(-1)];
        /// Its end at the leader, exclusive.
        end_offset: Offset [12 +] [default Offset(-1)];
    }

    /// Names a snapshot.
    pub struct SnapshotId {
        /// Its end, exclusive; -1: no snapshot is meant.
        end_offset: Offset [0 +] [default Offset(-1)];
        /// Epoch of its last record.
        epoch: Epoch [0 +] [default Epoch(-1)];
    }

    /// A transaction whose records a reader must pass over.
    pub struct AbortedTransaction {
        /// Its producer.
        producer_id: i64 [4 +];
        /// Its first offset.
        first_offset: Offset [4 +];
    }
}
