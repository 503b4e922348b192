//! The state machine of one replica: its state and its inputs. What follows them is in `turn`.
//!
//! Nothing is decided here: each state, and each kind of message, has its own file.

use crate::candidate::Candidate;
use crate::config::{
    Appended, Config, EpochStart, Following, LogState, NotLeader, QuorumDescription, RequestFailure,
};
use crate::follower::Follower;
use crate::held::Election;
use crate::leader::Leader;
use crate::log_view::LogView;
use crate::message::{BatchMeta, LeaderInfo, Request, Response};
use crate::output::{
    ElectionSeq, ElectionState, Generation, Outputs, RequestId, RequestToken, Role,
};
use crate::prospective::Prospective;
use crate::requests::RequestManager;
use crate::resigned::Resigned;
use crate::rng::Rng;
use crate::types::{Endpoint, Epoch, Instant, NodeId, Offset, OffsetAndEpoch, Peer, VoterSet};
use crate::unattached::Unattached;
use alloc::vec::Vec;

/// Epochs from here on are refused: an election must be able to raise the epoch, and on the wire it
/// is an int32. A peer that sends one is wrong or hostile, for nobody gets there by elections.
pub(crate) const EPOCH_LIMIT: Epoch = Epoch(i32::MAX - 1);

/// What a replica is, and what it has only while it is that.
#[derive(Debug)]
pub(crate) enum State {
    Unattached(Unattached),
    Prospective(Prospective),
    Candidate(Candidate),
    Leader(Leader),
    Follower(Follower),
    Resigned(Resigned),
}

impl State {
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Unattached(_) => Role::Unattached,
            Self::Prospective(_) => Role::Prospective,
            Self::Candidate(_) => Role::Candidate,
            Self::Leader(_) => Role::Leader,
            Self::Follower(_) => Role::Follower,
            Self::Resigned(_) => Role::Resigned,
        }
    }
}

/// How far a graceful shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    NotAsked,
    /// A resigned leader waits for its successor.
    Waiting,
    Complete,
}

/// One replica of the quorum: the protocol and nothing else.
///
/// Each call takes what happened and the time, changes the state, and pushes what is to be done, in
/// the order in which it is to be done. Nothing is durable until the disk has reported it.
#[derive(Debug)]
pub struct Raft {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) log: LogView,
    pub(crate) state: State,
    /// Epoch, leader and vote, in memory and on disk, and the answers that wait for the disk.
    pub(crate) election: Election,
    /// Where to reach the leader: of followers, and of those that may go back to following.
    pub(crate) leader_endpoint: Option<Endpoint>,
    /// The highest high watermark ever known here (exclusive). What is committed stays so, whoever
    /// leads; nothing below is ever cut.
    pub(crate) committed: Option<Offset>,
    pub(crate) requests: RequestManager,
    /// Whom to ask for the leader.
    pub(crate) discovery: Vec<Peer>,
    /// Elections lost since a leader was last known.
    pub(crate) lost_elections: u32,
    pub(crate) shutdown: Shutdown,
    /// A flush failed: this replica acknowledges and appends nothing more, and never stands again.
    pub(crate) has_storage_failed: bool,
}

impl Raft {
    /// The replica as its disk describes it. A leader of the stored epoch starts resigned; one that
    /// had voted for itself goes on as candidate in that epoch; an only voter leads a new epoch as
    /// soon as that is durable. The election is written again in any case.
    ///
    /// # Panics
    /// If the log or the election contradict themselves; recovery has checked both.
    pub fn new(
        config: Config,
        election: ElectionState,
        log: LogState,
        now: Instant,
        out: &mut Outputs,
    ) -> Self {
        let mut raft = Self::restored(config, election, log, now);
        raft.election.touch();
        raft.push_become("started", out);
        raft.maybe_win(now, out);
        let is_only_voter = raft.is_voter() && raft.voters().len() == 1;
        if is_only_voter && raft.role() != Role::Leader {
            raft.become_prospective(now, "this is the only voter", out);
        }
        raft.settle(now, out);
        raft
    }

    /// A request came in; it is answered under `token`, at once or later.
    ///
    /// Its cluster id, topic and partition have been checked; everything else is checked here.
    pub fn on_request(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &Request,
        out: &mut Outputs,
    ) {
        match request {
            Request::Vote(request) => self.on_vote(now, token, request, out),
            Request::BeginQuorumEpoch(request) => self.on_begin(now, token, request, out),
            Request::EndQuorumEpoch(request) => self.on_end(now, token, request, out),
            Request::Fetch(request) => self.on_fetch(now, token, request, out),
        }
        self.settle(now, out);
    }

    /// The connection of this request is gone: it needs no answer any more.
    pub fn forget_request(&mut self, token: RequestToken) {
        self.election.forget(token);
        if let State::Leader(leader) = &mut self.state {
            leader.forget(token);
        }
    }

    /// An answer came. Dropped unless `id` is outstanding to `from`.
    ///
    /// `batches` are the whole, CRC-checked batches that came with a Fetch answer, in order.
    pub fn on_response(
        &mut self,
        now: Instant,
        from: NodeId,
        id: RequestId,
        response: &Response,
        batches: &[BatchMeta],
        out: &mut Outputs,
    ) {
        self.dispatch_response(now, from, id, response, batches, out);
        self.settle(now, out);
    }

    /// No answer will come to this request. Dropped unless `id` is outstanding to `from`.
    pub fn on_request_failed(
        &mut self,
        now: Instant,
        from: NodeId,
        id: RequestId,
        failure: RequestFailure,
        out: &mut Outputs,
    ) {
        self.dispatch_failure(now, from, id, failure, out);
        self.settle(now, out);
    }

    /// The log is on stable storage up to `end_offset` (exclusive). Ignored if the log was
    /// truncated since: `generation` is then an older one.
    ///
    /// # Panics
    /// If more is reported than was appended.
    pub fn on_flushed(
        &mut self,
        now: Instant,
        generation: Generation,
        end_offset: Offset,
        out: &mut Outputs,
    ) {
        if self.has_storage_failed {
            return;
        }
        if self.log.on_flushed(generation, end_offset) {
            self.maybe_advance_high_watermark(out);
        }
        self.settle(now, out);
    }

    /// The election state of `seq`, and of all before it, is on stable storage.
    ///
    /// # Panics
    /// If it was never asked for.
    pub fn on_election_persisted(&mut self, now: Instant, seq: ElectionSeq, out: &mut Outputs) {
        self.election.on_persisted(seq);
        self.settle(now, out);
    }

    /// Fires what is due.
    pub fn on_tick(&mut self, now: Instant, out: &mut Outputs) {
        self.settle(now, out);
    }

    /// When to call [`Raft::on_tick`] at the latest; may change with every call.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.state_deadline(), self.requests.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Leader: assigns offsets to a batch of `record_count` records at the log end. Not durable,
    /// not sent yet.
    ///
    /// # Errors
    /// If this replica does not lead, its leadership is not durable yet, or its disk failed.
    /// # Panics
    /// If `record_count` is 0.
    pub fn append(&mut self, _now: Instant, record_count: u32) -> Result<Appended, NotLeader> {
        self.append_records(record_count)
    }

    /// Once per turn, after all its inputs: answers parked Fetches for which there is news.
    pub fn finish_turn(&mut self, now: Instant, out: &mut Outputs) {
        self.answer_parked_with_news(now, out);
    }

    /// A flush failed. From now on nothing is acknowledged or appended; a leader resigns and tells
    /// the voters.
    pub fn on_storage_failed(&mut self, now: Instant, out: &mut Outputs) {
        self.has_storage_failed = true;
        if let State::Leader(_) = self.state {
            self.resign(now, "the disk failed", out);
        }
        self.settle(now, out);
    }

    /// Shuts down gracefully; ends with [`ShutdownComplete`](crate::Output::ShutdownComplete). A
    /// leader hands over first, which may take for ever: the caller bounds it. Nobody stands for
    /// election after this.
    pub fn shutdown(&mut self, now: Instant, out: &mut Outputs) {
        if self.shutdown == Shutdown::NotAsked {
            self.shutdown = Shutdown::Waiting;
        }
        if let State::Leader(_) = self.state {
            self.resign(now, "shutting down", out);
        }
        self.settle(now, out);
    }

    /// The state that the replica is in.
    #[must_use]
    pub fn role(&self) -> Role {
        self.state.role()
    }

    /// The latest epoch that this replica knows.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.election().epoch
    }

    /// The leader of that epoch, if known. A resigned leader still names itself.
    #[must_use]
    pub fn leader_id(&self) -> Option<NodeId> {
        self.election().leader_id
    }

    /// Epoch and leader, with the leader's endpoint if known.
    #[must_use]
    pub fn leader_info(&self) -> LeaderInfo {
        let endpoint = match self.state {
            State::Leader(_) | State::Resigned(_) => Some(self.config.local_endpoint.clone()),
            _ => self.leader_endpoint.clone(),
        };
        let leader_id = self.leader_id();
        LeaderInfo {
            epoch: self.epoch(),
            leader_id,
            endpoint: endpoint.filter(|_| leader_id.is_some()),
        }
    }

    /// First offset that is not known to be committed (exclusive end). Unknown until some leader
    /// has told; a leader's own is unknown until a record of its epoch is committed.
    #[must_use]
    pub fn high_watermark(&self) -> Option<Offset> {
        match &self.state {
            State::Leader(leader) => leader.high_watermark,
            _ => self.committed,
        }
    }

    /// First offset that is still in the log.
    #[must_use]
    pub fn log_start_offset(&self) -> Offset {
        self.log.start()
    }

    /// End of what is appended (exclusive).
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log.end()
    }

    /// End of what is on stable storage (exclusive).
    #[must_use]
    pub fn flushed_offset(&self) -> Offset {
        self.log.flushed()
    }

    /// Epoch of the last record; 0 for an empty log.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.log.last_epoch()
    }

    /// How often the log was truncated since the start.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.log.generation()
    }

    /// Epochs of the log, ascending.
    #[must_use]
    pub fn epochs(&self) -> &[EpochStart] {
        self.log.epochs()
    }

    /// Whether this replica is a voter.
    #[must_use]
    pub fn is_voter(&self) -> bool {
        self.config.voters.contains(self.config.local)
    }

    /// The voters.
    #[must_use]
    pub fn voters(&self) -> &VoterSet {
        &self.config.voters
    }

    /// The largest epoch of the log that is not above `epoch`, and where it ends.
    #[must_use]
    pub fn end_offset_for_epoch(&self, epoch: Epoch) -> OffsetAndEpoch {
        self.log.end_offset_for_epoch(epoch)
    }

    /// The quorum as this leader sees it; `None` unless leader.
    #[must_use]
    pub fn describe(&self, now: Instant) -> Option<QuorumDescription> {
        self.describe_quorum(now)
    }

    /// How this follower stands to its leader; `None` unless follower.
    #[must_use]
    pub fn following(&self) -> Option<Following> {
        let State::Follower(follower) = &self.state else {
            return None;
        };
        Some(Following {
            leader_high_watermark: follower.leader_high_watermark,
            has_fetched: follower.has_fetched,
            fetch_deadline: follower.fetch_deadline,
        })
    }

    /// Whom this replica voted for in its epoch, if anyone.
    #[must_use]
    pub fn voted(&self) -> Option<NodeId> {
        self.election().voted.map(|key| key.id)
    }

    /// Asserts what must hold between any two calls. Costs time linear in the log's epochs.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.assert_invariants();
    }
}
