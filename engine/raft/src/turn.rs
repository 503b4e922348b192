//! What follows every input, and the changes of state.
//!
//! One turn: timers that are due, the write of a changed election, answers that have become
//! durable, the requests that may leave. Whoever changes the state goes through `enter`.

use crate::error_code::ErrorCode;
use crate::output::{ElectionState, Output, Outputs};
use crate::raft::{EPOCH_LIMIT, Raft, Shutdown, State};
use crate::transitions::is_legal;
use crate::types::{Endpoint, Epoch, Instant, NodeId, Offset};
use alloc::vec::Vec;

impl Raft {
    /// What follows every input: what has become durable, timers, and the requests that may leave.
    /// Answers that waited for the disk leave before a timer can give others.
    pub(crate) fn settle(&mut self, now: Instant, out: &mut Outputs) {
        self.election.release(out);
        self.requests.expire(now, &mut self.rng);
        if self.state_deadline().is_some_and(|due| due <= now) {
            self.on_timer(now, out);
        }
        self.election.write(out);
        self.maybe_begin_epoch(out);
        self.election.release(out);
        self.send_requests(now, out);
        self.maybe_complete_shutdown(out);
    }

    /// When the timer of the current state is due.
    pub(crate) fn state_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Leader(leader) => leader.next_deadline(),
            State::Resigned(state) => {
                let may_leave = self.shutdown == Shutdown::NotAsked && !self.has_storage_failed;
                may_leave.then_some(state.election_deadline)
            }
            _ if !self.may_stand() => None,
            State::Unattached(state) => state.election_deadline,
            State::Prospective(state) => Some(state.election_deadline),
            State::Candidate(state) => Some(state.election_deadline),
            State::Follower(state) => Some(state.fetch_deadline),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outputs) {
        match &self.state {
            State::Unattached(_) => self.become_prospective(now, "no leader was found", out),
            State::Prospective(_) => {
                self.leave_prospective(now, "no majority answered in time", out);
            }
            State::Candidate(_) => self.become_prospective(now, "the election was not won", out),
            State::Leader(_) => self.on_leader_timers(now, out),
            State::Follower(follower) => {
                let reason = if follower.leader_resigned {
                    "the leader resigned"
                } else {
                    "the leader is silent"
                };
                self.become_prospective(now, reason, out);
            }
            State::Resigned(_) => self.leave_own_epoch(now, out),
        }
    }

    /// A resigned leader waits as long as nobody has begun a newer epoch and somebody is there who
    /// could. What it has promised in that epoch leaves first.
    fn maybe_complete_shutdown(&mut self, out: &mut Outputs) {
        let is_over = !self.may_be_succeeded() && !self.election.is_holding();
        if self.shutdown == Shutdown::Waiting && is_over {
            self.shutdown = Shutdown::Complete;
            out.push(Output::ShutdownComplete);
        }
    }

    /// Changes the state: forgets what the old one had asked, writes the election if it changed,
    /// says so, and sends away those whose Fetches waited.
    pub(crate) fn enter(
        &mut self,
        state: State,
        next: ElectionState,
        leader_endpoint: Option<Endpoint>,
        reason: &'static str,
        out: &mut Outputs,
    ) {
        let from = (self.role(), self.epoch());
        let to = (state.role(), next.epoch);
        assert!(is_legal(from, to), "{from:?} to {to:?}");
        let parked = match &mut self.state {
            State::Leader(leader) => leader.take_parked(),
            _ => Vec::new(),
        };
        self.state = state;
        self.leader_endpoint = leader_endpoint;
        self.requests.reset();
        self.election.set(next);
        self.push_become(reason, out);
        for (token, max_bytes) in parked {
            let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            self.refuse_fetch(token, max_bytes, error, out);
        }
    }

    pub(crate) fn push_become(&self, reason: &'static str, out: &mut Outputs) {
        out.push(Output::Become {
            role: self.role(),
            epoch: self.epoch(),
            leader_id: self.leader_id(),
            reason,
        });
    }

    pub(crate) fn conflict(&self, what: &'static str, from: Option<NodeId>, out: &mut Outputs) {
        out.push(Output::Conflict { what, from });
    }

    /// Raises what is known to be committed.
    ///
    /// # Panics
    /// If that is more than the log has: nobody can commit what is not there.
    pub(crate) fn commit_to(&mut self, high_watermark: Offset, out: &mut Outputs) {
        let end = self.log.end();
        assert!(
            high_watermark <= end,
            "{high_watermark} committed of a log to {end}"
        );
        if Some(high_watermark) > self.committed {
            self.committed = Some(high_watermark);
            out.push(Output::Commit { high_watermark });
        }
    }

    pub(crate) fn election(&self) -> &ElectionState {
        self.election.current()
    }

    pub(crate) fn local_id(&self) -> NodeId {
        self.config.local.id
    }

    pub(crate) fn other_voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        let ids = self.voters().voters().iter().map(|voter| voter.key.id);
        ids.filter(|id| *id != self.local_id())
    }

    pub(crate) fn voter_endpoint(&self, id: NodeId) -> Option<Endpoint> {
        self.voters().get(id).map(|voter| voter.endpoint.clone())
    }

    /// Whether this replica may stand for election at all.
    pub(crate) fn may_stand(&self) -> bool {
        self.is_voter() && self.shutdown == Shutdown::NotAsked && !self.has_storage_failed
    }

    /// The epoch after this one, if there may be one.
    pub(crate) fn next_epoch(&self) -> Option<Epoch> {
        let next = Epoch(self.epoch().0.checked_add(1)?);
        (next < EPOCH_LIMIT).then_some(next)
    }

    /// E to 2 E from now, at random.
    pub(crate) fn random_election_deadline(&mut self, now: Instant) -> Instant {
        let timeout_ms = self.config.election_timeout_ms.max(1);
        now.plus_ms(timeout_ms + self.rng.below(timeout_ms))
    }

    /// How long a leader stays without a majority: 1.5 fetch timeouts.
    pub(crate) fn check_quorum_ms(&self) -> u64 {
        self.config.fetch_timeout_ms.saturating_mul(3) / 2
    }
}
