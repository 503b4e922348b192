//! What the core asks of the world.
//!
//! The core pushes outputs in the order in which they must be carried out. A message that may leave
//! only once something is durable (a granted vote, the next Fetch) is held inside the core until
//! the disk has reported, so no driver can send it too early.

use crate::message::{FetchResponse, Request, Response};
use crate::types::{Epoch, NodeId, Offset, Peer, ReplicaKey};
use alloc::vec::Vec;

/// Names a request that came in, for its answer. Chosen by the driver, opaque here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestToken(pub u64);

/// Names a request that went out. A response counts only while its id is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Counts truncations of the local log. A flush report of an older generation says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Counts writes of the election state (quorum-state file), in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionSeq(pub u64);

/// The election as the quorum-state file keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionState {
    /// Latest known epoch.
    pub epoch: Epoch,
    /// Leader of that epoch, if known.
    pub leader_id: Option<NodeId>,
    /// Whom this replica voted for in that epoch, if anyone.
    pub voted: Option<ReplicaKey>,
}

/// The states of a replica (Kafka's names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Knows the epoch, follows nobody.
    Unattached,
    /// Asks whether it would win (pre-vote).
    Prospective,
    /// Stands for election.
    Candidate,
    /// Leads its epoch.
    Leader,
    /// Follows the leader of its epoch.
    Follower,
    /// Led this epoch and has given it up.
    Resigned,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request. A request that is still in flight to the same peer is obsolete: its
    /// connection may be dropped.
    Send {
        /// To whom.
        to: Peer,
        /// For its response.
        id: RequestId,
        /// What.
        request: Request,
    },
    /// Answer a request that came in (not a Fetch with records).
    Respond {
        /// Which.
        token: RequestToken,
        /// The answer.
        response: Response,
    },
    /// Answer a Fetch; attach records from `response.records_from` if set, at most `max_bytes` of
    /// them but at least one whole batch.
    RespondFetch {
        /// Which.
        token: RequestToken,
        /// The answer.
        response: FetchResponse,
        /// The request's bound.
        max_bytes: i32,
    },
    /// Append the LeaderChange control batch of a new epoch at `base_offset` (one record).
    AppendLeaderChange {
        /// Where; the log end.
        base_offset: Offset,
        /// The epoch that begins.
        epoch: Epoch,
        /// All voters.
        voters: Vec<NodeId>,
        /// Those that granted their vote, this node among them.
        granting: Vec<NodeId>,
    },
    /// Append the first `count` batches of the Fetch answer that is being handled. Carried out
    /// before the call's other outputs.
    AppendFetched {
        /// How many whole batches.
        count: usize,
    },
    /// Cut the log to `end_offset`. Flush reports count again from the first one that carries
    /// `generation`; the report of the truncation itself has `end_offset` as its end.
    Truncate {
        /// New log end (exclusive).
        end_offset: Offset,
        /// The generation that begins.
        generation: Generation,
    },
    /// Write the quorum-state file, durably; then report `seq`. At most one for each input, and
    /// always one at the start.
    PersistElection {
        /// For the report. Ascending.
        seq: ElectionSeq,
        /// What to write.
        election: ElectionState,
    },
    /// The high watermark is now this (exclusive). Never goes back within a leader's epoch.
    Commit {
        /// Exclusive.
        high_watermark: Offset,
    },
    /// The replica changed its state: a line for the log, and the moment to fail appends that wait
    /// for a commit when it is no longer leader.
    Become {
        /// The new state.
        role: Role,
        /// Its epoch.
        epoch: Epoch,
        /// The leader, if known.
        leader_id: Option<NodeId>,
        /// Why, for the log.
        reason: &'static str,
    },
    /// A message from outside conflicts with what this replica knows to be true. Nothing changed.
    /// A line for the log and a counter.
    Conflict {
        /// What it was.
        what: &'static str,
        /// Who sent it, if known.
        from: Option<NodeId>,
    },
    /// The graceful shutdown is over: a successor is known or there is none to wait for.
    ShutdownComplete,
}

/// Outputs in order.
pub type Outputs = Vec<Output>;
