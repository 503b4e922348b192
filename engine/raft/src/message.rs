//! What replicas say to each other: the raft requests and responses, free of wire details.
//!
//! Cluster id, topic and partition are checked where frames become these messages; here every
//! message is about the one log of this quorum. Records do not travel in here: a Fetch answer names
//! the range, and whoever drives the core attaches the bytes.

use crate::error_code::ErrorCode;
use crate::types::{Endpoint, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey};
use alloc::vec::Vec;

/// A request that one replica sends another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A candidate or prospective candidate asks for a vote.
    Vote(VoteRequest),
    /// A new leader announces itself.
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    /// A leader resigns.
    EndQuorumEpoch(EndQuorumEpochRequest),
    /// A replica fetches records; its offset acknowledges what it has flushed.
    Fetch(FetchRequest),
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To a Vote.
    Vote(VoteResponse),
    /// To a BeginQuorumEpoch.
    BeginQuorumEpoch(EpochResponse),
    /// To an EndQuorumEpoch.
    EndQuorumEpoch(EpochResponse),
    /// To a Fetch.
    Fetch(FetchResponse),
}

impl Response {
    /// The error of the answer, whatever it answers.
    #[must_use]
    pub fn error(&self) -> ErrorCode {
        match self {
            Self::Vote(response) => response.error,
            Self::BeginQuorumEpoch(response) | Self::EndQuorumEpoch(response) => response.error,
            Self::Fetch(response) => response.error,
        }
    }
}

/// Vote (api key 52); `pre_vote` is KIP-996's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRequest {
    /// The voter that is asked, if the sender named it.
    pub voter: Option<ReplicaKey>,
    /// The sender's epoch: its current one for a pre-vote, the already raised one for a vote.
    pub epoch: Epoch,
    /// Who asks.
    pub replica: ReplicaKey,
    /// The sender's log end offset and last epoch. Not range-checked yet: the core does it.
    pub last: OffsetAndEpoch,
    /// Only ask whether a vote would be granted; no state changes.
    pub pre_vote: bool,
}

/// The leader as the sender of a response knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderInfo {
    /// The sender's epoch.
    pub epoch: Epoch,
    /// Leader of that epoch, if known.
    pub leader_id: Option<NodeId>,
    /// The leader's endpoint, if known.
    pub endpoint: Option<Endpoint>,
}

/// Answer to Vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteResponse {
    /// NONE, 42, 74, 104 or 125; 35 from a peer that does not know pre-votes.
    pub error: ErrorCode,
    /// Epoch and leader of the voter.
    pub leader: LeaderInfo,
    /// Whether the vote is granted.
    pub granted: bool,
}

/// BeginQuorumEpoch (api key 53).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginQuorumEpochRequest {
    /// The voter it is meant for, if the sender named it.
    pub voter: Option<ReplicaKey>,
    /// The new leader.
    pub leader_id: NodeId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The leader's endpoint on the default controller listener, if sent (v1).
    pub endpoint: Option<Endpoint>,
}

/// EndQuorumEpoch (api key 54).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndQuorumEpochRequest {
    /// The leader that resigns; -1 from a candidate that gives up.
    pub leader_id: NodeId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who should stand first, best first. Directory ids are undefined in v0.
    pub preferred_candidates: Vec<ReplicaKey>,
    /// The leader's endpoint, if sent.
    pub endpoint: Option<Endpoint>,
}

/// Answer to BeginQuorumEpoch and EndQuorumEpoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochResponse {
    /// NONE, 42, 74, 104 or 125.
    pub error: ErrorCode,
    /// Epoch and leader of the answering node.
    pub leader: LeaderInfo,
}

/// Fetch (api key 1) as a replica sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// Who fetches; id -1 for an observer without an id.
    pub replica: ReplicaKey,
    /// The sender's epoch.
    pub current_leader_epoch: Epoch,
    /// The sender's log end offset, all of it flushed: the acknowledgement.
    pub fetch_offset: Offset,
    /// Epoch of the sender's last record; 0 for an empty log.
    pub last_fetched_epoch: Epoch,
    /// How long the answer may be held, in ms. 0: answer at once. Negative: malformed.
    pub max_wait_ms: i32,
    /// Upper bound for the records of the answer; one whole batch is always sent.
    pub max_bytes: i32,
    /// The sender's high watermark: `None` if the request says nothing about it (before v18, or
    /// i64::MAX), `Some(-1)` if the sender knows none.
    pub high_watermark: Option<Offset>,
}

/// Answer to Fetch. The records, if any, travel beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// NONE, 6, 8, 42, 74, 75 or 104.
    pub error: ErrorCode,
    /// The leader's epoch and identity.
    pub leader: LeaderInfo,
    /// The leader's high watermark, if it knows it.
    pub high_watermark: Option<Offset>,
    /// The leader's log start offset.
    pub log_start_offset: Offset,
    /// The fetcher's log diverges: the leader's largest epoch not above the fetcher's, and where
    /// that epoch ends.
    pub diverging: Option<OffsetAndEpoch>,
    /// Records from here follow, up to what the log has and the request's bound. Set by the leader
    /// for whoever attaches the bytes; `None` when no records go with the answer.
    pub records_from: Option<Offset>,
}

/// One record batch, as far as the core needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset after the last record (exclusive).
    pub end_offset: Offset,
    /// partitionLeaderEpoch of the batch.
    pub epoch: Epoch,
}
