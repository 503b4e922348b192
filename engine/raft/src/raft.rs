//! The state machine of one replica.

use crate::config::{
    Appended, Config, EpochStart, LogState, NotLeader, QuorumDescription, RequestFailure,
};
use crate::message::{BatchMeta, LeaderInfo, Request, Response};
use crate::output::{
    ElectionSeq, ElectionState, Generation, Output, Outputs, RequestId, RequestToken, Role,
};
use crate::types::{Epoch, Instant, NodeId, Offset, OffsetAndEpoch, VoterSet};

/// One replica of the quorum: the protocol and nothing else.
///
/// Each call takes what happened and the time, changes the state, and pushes what is to be done, in
/// the order in which it is to be done.
pub struct Raft {
    config: Config,
    election: ElectionState,
    log: LogState,
}

impl Raft {
    /// The replica as its disk describes it.
    pub fn new(
        config: Config,
        election: ElectionState,
        log: LogState,
        now: Instant,
        out: &mut Outputs,
    ) -> Self {
        let _ = (now, out);
        Self {
            config,
            election,
            log,
        }
    }

    /// A request came in; it is answered under `token`, at once or later.
    pub fn on_request(
        &mut self,
        now: Instant,
        token: RequestToken,
        request: &Request,
        out: &mut Outputs,
    ) {
        let _ = (now, token, request, out);
    }

    /// The connection of this request is gone: it needs no answer any more.
    pub fn forget_request(&mut self, token: RequestToken) {
        let _ = token;
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
        let _ = (now, from, id, response, batches, out);
    }

    /// No answer will come to this request.
    pub fn on_request_failed(
        &mut self,
        now: Instant,
        from: NodeId,
        id: RequestId,
        failure: RequestFailure,
        out: &mut Outputs,
    ) {
        let _ = (now, from, id, failure, out);
    }

    /// The log is on stable storage up to `end_offset` (exclusive).
    pub fn on_flushed(
        &mut self,
        now: Instant,
        generation: Generation,
        end_offset: Offset,
        out: &mut Outputs,
    ) {
        let _ = (now, generation, end_offset, out);
    }

    /// The election state of `seq`, and of all before it, is on stable storage.
    pub fn on_election_persisted(&mut self, now: Instant, seq: ElectionSeq, out: &mut Outputs) {
        let _ = (now, seq, out);
    }

    /// Fires what is due.
    pub fn on_tick(&mut self, now: Instant, out: &mut Outputs) {
        let _ = (now, out);
    }

    /// When to call [`Raft::on_tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Leader: assigns offsets to a batch of `record_count` (>= 1) records at the log end.
    ///
    /// # Errors
    /// If this replica does not take appends (now).
    pub fn append(&mut self, now: Instant, record_count: u32) -> Result<Appended, NotLeader> {
        let _ = (now, record_count);
        Err(NotLeader {
            leader: self.leader_info(),
        })
    }

    /// Once per turn, after all its inputs: answers parked Fetches for which there is news.
    pub fn finish_turn(&mut self, now: Instant, out: &mut Outputs) {
        let _ = (now, out);
    }

    /// A flush failed: nothing is acknowledged or appended from now on.
    pub fn on_storage_failed(&mut self, now: Instant, out: &mut Outputs) {
        let _ = (now, out);
    }

    /// Shuts down gracefully; ends with [`Output::ShutdownComplete`].
    pub fn shutdown(&mut self, now: Instant, out: &mut Outputs) {
        let _ = now;
        out.push(Output::ShutdownComplete);
    }

    /// The state that the replica is in.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::Unattached
    }

    /// The latest epoch that this replica knows.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.election.epoch
    }

    /// The leader of that epoch, if known.
    #[must_use]
    pub fn leader_id(&self) -> Option<NodeId> {
        self.election.leader_id
    }

    /// Epoch and leader, with the leader's endpoint if known.
    #[must_use]
    pub fn leader_info(&self) -> LeaderInfo {
        LeaderInfo::default()
    }

    /// First offset that is not known to be committed (exclusive end), if known.
    #[must_use]
    pub fn high_watermark(&self) -> Option<Offset> {
        None
    }

    /// First offset that is still in the log.
    #[must_use]
    pub fn log_start_offset(&self) -> Offset {
        self.log.start_offset
    }

    /// End of what is appended (exclusive).
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log.end_offset
    }

    /// End of what is on stable storage (exclusive).
    #[must_use]
    pub fn flushed_offset(&self) -> Offset {
        self.log.end_offset
    }

    /// Epoch of the last record; 0 for an empty log.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        Epoch(0)
    }

    /// How often the log was truncated since the start.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(0)
    }

    /// Epochs of the log, ascending.
    #[must_use]
    pub fn epochs(&self) -> &[EpochStart] {
        &self.log.epochs
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
        OffsetAndEpoch {
            offset: self.log.end_offset,
            epoch,
        }
    }

    /// The quorum as this leader sees it; `None` unless leader.
    #[must_use]
    pub fn describe(&self, now: Instant) -> Option<QuorumDescription> {
        let _ = now;
        None
    }

    /// Asserts what must hold between any two calls. Costs time linear in the log's epochs.
    pub fn check_invariants(&self) {}
}
