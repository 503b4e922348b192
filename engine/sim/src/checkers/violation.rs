//! What a checker found.

use super::{Entry, OpId};
use quorate_raft::{Epoch, NodeId, Offset};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two replicas led one epoch.
    #[error("epoch {epoch} was led by {first} and by {second}")]
    TwoLeaders {
        /// The epoch.
        epoch: Epoch,
        /// Who led it first.
        first: NodeId,
        /// Who else did.
        second: NodeId,
    },
    /// A voter gave its vote of one epoch twice.
    #[error("voter {voter} voted in epoch {epoch} for {first} and for {second}")]
    VotedTwice {
        /// The voter.
        voter: NodeId,
        /// The epoch.
        epoch: Epoch,
        /// Who had its vote first.
        first: NodeId,
        /// Who had it as well.
        second: NodeId,
    },
    /// A vote left before it was on the voter's disk.
    #[error(
        "voter {voter} spoke of its vote for {candidate} in epoch {epoch} before it was durable"
    )]
    VoteNotDurable {
        /// The voter.
        voter: NodeId,
        /// The epoch.
        epoch: Epoch,
        /// Whom it voted for.
        candidate: NodeId,
    },
    /// The epoch that a disk holds went back.
    #[error("the election of node {node} went back from epoch {from} to {to}")]
    ElectionWentBack {
        /// Whose disk.
        node: NodeId,
        /// What it held.
        from: Epoch,
        /// What it holds now.
        to: Epoch,
    },
    /// An offset and an epoch name two contents.
    #[error("offset {offset} of epoch {epoch} is {first:?} and, at node {node}, {second:?}")]
    TwoContents {
        /// The offset.
        offset: Offset,
        /// The epoch.
        epoch: Epoch,
        /// The batch that was there first.
        first: Entry,
        /// The other one.
        second: Entry,
        /// Who has the other one.
        node: NodeId,
    },
    /// A log does not go on where it ends.
    #[error("node {node} appended {batch:?} to a log that ends at {end}")]
    NotContiguous {
        /// Whose log.
        node: NodeId,
        /// Its end (exclusive).
        end: Offset,
        /// What was appended.
        batch: Entry,
    },
    /// A replica said that it has flushed what its disk does not have.
    #[error(
        "node {node} acknowledged offset {acknowledged} of epoch {epoch}, its disk holds {durable}"
    )]
    AcknowledgedUnflushed {
        /// Who.
        node: NodeId,
        /// The fetch offset (exclusive).
        acknowledged: Offset,
        /// The epoch that it claims before it.
        epoch: Epoch,
        /// What is durable (exclusive).
        durable: Offset,
    },
    /// A restarted node lacks what its disk had flushed, or has what it never had.
    #[error(
        "node {node} recovered a log to {recovered}; it had flushed to {durable}; they part at {at}"
    )]
    RecoveredWrongly {
        /// Who.
        node: NodeId,
        /// End of the recovered log (exclusive).
        recovered: Offset,
        /// What was durable (exclusive).
        durable: Offset,
        /// Where they part.
        at: Offset,
    },
    /// A restarted node does not know what its quorum-state file had.
    #[error("node {node} recovered another election than it had persisted")]
    RecoveredWrongElection {
        /// Who.
        node: NodeId,
    },
    /// A node does not open a log that no worse than a crash happened to.
    #[error("node {node} refuses its log after a crash: {reason}")]
    RecoveryRefused {
        /// Who.
        node: NodeId,
        /// What it said.
        reason: String,
    },
    /// Records became committed that a majority has not flushed.
    #[error("node {node} committed {batch:?}, which {holders} of {voters} voters have flushed")]
    CommittedWithoutMajority {
        /// Who said so.
        node: NodeId,
        /// The batch.
        batch: Entry,
        /// Voters whose disks have it.
        holders: usize,
        /// All voters.
        voters: usize,
    },
    /// Two nodes have different committed records at one offset.
    #[error("node {node} committed {found:?} where {expected:?} was committed")]
    CommittedDiffers {
        /// Who.
        node: NodeId,
        /// What was committed first.
        expected: Entry,
        /// What this node has.
        found: Option<Entry>,
    },
    /// A high watermark lies beyond the log or inside a batch.
    #[error("node {node} has the high watermark {high_watermark}, which is no batch's end")]
    CommittedNothing {
        /// Who.
        node: NodeId,
        /// The high watermark (exclusive).
        high_watermark: Offset,
    },
    /// A high watermark went back.
    #[error("the high watermark of node {node} went back from {from} to {to} in epoch {epoch}")]
    HighWatermarkWentBack {
        /// Who.
        node: NodeId,
        /// The epoch.
        epoch: Epoch,
        /// What it was.
        from: Offset,
        /// What it is.
        to: Offset,
    },
    /// A node cut off what is committed.
    #[error("node {node} cut {batch:?}, which is committed")]
    CutCommitted {
        /// Who.
        node: NodeId,
        /// The batch.
        batch: Entry,
    },
    /// A client was told that its batch is committed, and it is not.
    #[error(
        "client batch {op:?} was acknowledged at offset {offset}, where {found:?} is committed"
    )]
    AcknowledgedUncommitted {
        /// Which.
        op: OpId,
        /// Where it was said to be.
        offset: Offset,
        /// What is there.
        found: Option<Entry>,
    },
    /// A client was told that its batch is committed somewhere, and it is not.
    #[error("client batch {op:?} was acknowledged and is committed nowhere")]
    AcknowledgedNowhere {
        /// Which.
        op: OpId,
    },
    /// A batch of an idempotent producer is behind one that was made later.
    #[error("client batch {op:?} at offset {offset} stands behind a later one of its producer")]
    OutOfOrder {
        /// Which.
        op: OpId,
        /// Where it is.
        offset: Offset,
    },
    /// A client was told that its batch is committed, and in the end it is gone.
    #[error(
        "batch {op:?}, acknowledged at offset {offset}, is not in the final log of node {node}"
    )]
    AcknowledgedLost {
        /// Which.
        op: OpId,
        /// Where it was.
        offset: Offset,
        /// Whose log lacks it.
        node: NodeId,
    },
    /// A client was told that its batch was refused, and it is in the log.
    #[error("client batch {op:?} was refused and is in the log at offset {offset}")]
    RefusedAppeared {
        /// Which.
        op: OpId,
        /// Where it is.
        offset: Offset,
    },
    /// A batch that was sent once is in the log twice, or one that nobody sent is in it.
    #[error("{batch:?} of the final log was sent by nobody, or stands there twice")]
    NotFromClients {
        /// The batch.
        batch: Entry,
    },
    /// What a replica knows of producers is not what its log says.
    #[error("node {node} knows other producers than its log")]
    ProducersDiffer {
        /// Who.
        node: NodeId,
    },
    /// A reader was given what is not committed.
    #[error("node {node} showed {shown:?} to a reader; committed is {committed:?}")]
    ShownUncommitted {
        /// Who.
        node: NodeId,
        /// What it showed.
        shown: Entry,
        /// What is committed there.
        committed: Option<Entry>,
    },
    /// A reader was told that its offset is outside the log by a leader that is not behind it.
    #[error("node {node} told a reader that offset {offset} is not in the log")]
    ReaderThrownOut {
        /// Who.
        node: NodeId,
        /// The offset.
        offset: Offset,
    },
    /// The code under test failed an assertion.
    #[error("panicked: {0}")]
    Panicked(String),
    /// In good conditions the quorum does not get on.
    #[error("{waited_ms} ms after the last fault: {what}")]
    Stuck {
        /// How long was waited.
        waited_ms: u64,
        /// What did not happen.
        what: String,
    },
}

impl Violation {
    /// Whether nothing wrong was done, but what should be done was not.
    #[must_use]
    pub fn is_liveness(&self) -> bool {
        matches!(self, Self::Stuck { .. })
    }
}
