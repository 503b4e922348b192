//! What the core is told at its start, and the small values that its calls give back.
//!
//! Nothing here does any work; ranges are checked where the configuration file is read.

use crate::message::LeaderInfo;
use crate::types::{Endpoint, Epoch, Instant, NodeId, Offset, Peer, ReplicaKey, VoterSet};
use alloc::vec::Vec;

/// Who this replica is, whom it forms a quorum with, and how patient it is.
#[derive(Clone, Debug)]
pub struct Config {
    /// This replica; its id is not negative.
    pub local: ReplicaKey,
    /// The static voters (kraft.version 0): their directory ids are undefined. May lack this
    /// replica, which is then an observer.
    pub voters: VoterSet,
    /// Whom to ask for the leader (negative ids). Empty: the voters other than this replica.
    pub bootstrap: Vec<Peer>,
    /// Where peers reach this replica; told in BeginQuorumEpoch and in answers that name the
    /// leader.
    pub local_endpoint: Endpoint,
    /// `controller.quorum.election.timeout.ms`: an election may take this long and up to as much
    /// again at random.
    pub election_timeout_ms: u64,
    /// `controller.quorum.fetch.timeout.ms`: a follower that hears nothing of its leader for this
    /// long stands for election; a leader without a majority for 1.5 times as long resigns.
    pub fetch_timeout_ms: u64,
    /// `controller.quorum.election.backoff.max.ms`: the longest pause before standing for election
    /// after an EndQuorumEpoch or a lost election.
    pub election_backoff_max_ms: u64,
    /// `controller.quorum.request.timeout.ms`: a request without an answer for this long has
    /// failed.
    pub request_timeout_ms: u64,
    /// `controller.quorum.retry.backoff.ms`: the pause after a first failure.
    pub retry_backoff_ms: u64,
    /// `quorum.retry.backoff.max.ms`: the pause doubles with each failure in a row up to this.
    pub retry_backoff_max_ms: u64,
    /// How long the leader may hold a Fetch of this replica, in ms.
    pub fetch_max_wait_ms: i32,
    /// Bound of the records in one answer to a Fetch of this replica, in bytes.
    pub fetch_max_bytes: i32,
    /// `fetch.hw.linger.ms`: how long this leader may hold an answer that would carry nothing but a
    /// newer high watermark, in ms. Records that come meanwhile take it with them. 0: not at all.
    pub fetch_hw_linger_ms: u64,
    /// Seed of every random choice. The node id is mixed in, so that replicas which share a seed do
    /// not stand for election at the same moment.
    pub seed: u64,
}

/// The first offset of an epoch in the log, as `leader-epoch-checkpoint` keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// Offset of its first record.
    pub start_offset: Offset,
}

/// The log as recovery found it; all of it is flushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// First offset that is still there.
    pub start_offset: Offset,
    /// Log end offset (exclusive).
    pub end_offset: Offset,
    /// Epochs of the log, ascending in epoch and offset.
    pub epochs: Vec<EpochStart>,
}

/// Where an append of the leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Epoch of the batch.
    pub epoch: Epoch,
}

/// This replica does not take appends: it does not lead, or its leadership is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLeader {
    /// The leader as far as it is known here.
    pub leader: LeaderInfo,
}

/// Why no answer came to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The connection broke.
    Disconnected,
    /// The peer could not be reached or refused the connection.
    Refused,
    /// The peer does not know the API in a version that can carry the request.
    UnsupportedVersion,
}

/// How a follower stands to its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// What the leader last said its high watermark was; `None` until it did.
    pub leader_high_watermark: Option<Offset>,
    /// A Fetch has succeeded since this leader is followed.
    pub has_fetched: bool,
    /// Until when a voter waits for the next sign of life of the leader.
    pub fetch_deadline: Instant,
}

/// The quorum as its leader sees it (DescribeQuorum).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumDescription {
    /// This node.
    pub leader_id: NodeId,
    /// Its epoch.
    pub leader_epoch: Epoch,
    /// Unknown until a record of this epoch is committed.
    pub high_watermark: Option<Offset>,
    /// Every voter, ascending by id.
    pub voters: Vec<ReplicaDescription>,
    /// Replicas with an id that fetched in the last five minutes without being voters.
    pub observers: Vec<ReplicaDescription>,
}

/// One replica as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaDescription {
    /// Who. The directory id is the one it fetches with, undefined if it never did.
    pub replica: ReplicaKey,
    /// Its flushed end as its last Fetch said; unknown until it fetched. The leader's own: its log
    /// end offset.
    pub log_end_offset: Option<Offset>,
    /// When it fetched last.
    pub last_fetch: Option<Instant>,
    /// When it last had everything that the leader had at the time.
    pub last_caught_up: Option<Instant>,
}
