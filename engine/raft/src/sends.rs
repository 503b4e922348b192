//! What each state asks of others, made at the moment when it may leave.
//!
//! Run after every input. Nothing is sent while the election is not durable, nor a second request
//! to a peer that has not answered the first. A Fetch says what is flushed, never more.

use crate::message::{
    BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, Request, VoteRequest,
};
use crate::output::{Output, Outputs};
use crate::raft::{Raft, State};
use crate::requests::RequestKind;
use crate::types::{Instant, NodeId, Offset, OffsetAndEpoch, Peer, ReplicaKey};
use alloc::vec::Vec;

impl Raft {
    pub(crate) fn send_requests(&mut self, now: Instant, out: &mut Outputs) {
        if !self.election.is_durable() {
            return;
        }
        match &self.state {
            State::Unattached(_) => self.look_for_leader(now, out),
            State::Prospective(_) | State::Candidate(_) => self.ask_for_votes(now, out),
            State::Leader(_) => self.announce_leadership(now, out),
            State::Follower(_) => self.fetch_from_leader(now, out),
            State::Resigned(_) => {
                self.announce_resignation(now, out);
                self.look_for_leader(now, out);
            }
        }
    }

    fn send(
        &mut self,
        now: Instant,
        to: Peer,
        kind: RequestKind,
        request: Request,
        out: &mut Outputs,
    ) {
        assert_ne!(to.id, self.local_id(), "a request to itself");
        let id = self.requests.start(now, to.id, kind);
        out.push(Output::Send { to, id, request });
    }

    /// Asks the voters whose answer is out. A pre-vote that was refused is asked for again.
    fn ask_for_votes(&mut self, now: Instant, out: &mut Outputs) {
        let (tally, pre_vote) = match &self.state {
            _ if !self.may_stand() => return,
            State::Prospective(state) => (&state.tally, true),
            State::Candidate(state) => (&state.tally, false),
            _ => return,
        };
        let is_out = |id: NodeId| match tally.answer(id) {
            None => true,
            Some(granted) => pre_vote && !granted,
        };
        let asked: Vec<NodeId> = self.other_voters().filter(|id| is_out(*id)).collect();
        for voter in self.ready_voters(&asked) {
            let request = Request::Vote(VoteRequest {
                voter: Some(ReplicaKey::of(voter.id)),
                epoch: self.epoch(),
                replica: self.config.local,
                last: self.log.end_position(),
                pre_vote,
            });
            self.send(now, voter, RequestKind::Vote, request, out);
        }
    }

    /// Tells the voters that do not fetch (KIP-595, BeginQuorumEpoch).
    fn announce_leadership(&mut self, now: Instant, out: &mut Outputs) {
        let State::Leader(leader) = &self.state else {
            return;
        };
        let silent = leader.voters.iter().filter(|(_, voter)| voter.is_silent);
        let silent: Vec<NodeId> = silent.map(|(id, _)| *id).collect();
        for voter in self.ready_voters(&silent) {
            let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                voter: Some(ReplicaKey::of(voter.id)),
                leader_id: self.local_id(),
                epoch: self.epoch(),
                endpoint: Some(self.config.local_endpoint.clone()),
            });
            self.send(now, voter, RequestKind::BeginQuorumEpoch, request, out);
        }
    }

    fn announce_resignation(&mut self, now: Instant, out: &mut Outputs) {
        let State::Resigned(resigned) = &self.state else {
            return;
        };
        let preferred = resigned.preferred.clone();
        let unacknowledged = resigned.unacknowledged.clone();
        for voter in self.ready_voters(&unacknowledged) {
            let request = Request::EndQuorumEpoch(EndQuorumEpochRequest {
                leader_id: self.local_id(),
                epoch: self.epoch(),
                preferred_candidates: preferred.clone(),
                endpoint: Some(self.config.local_endpoint.clone()),
            });
            self.send(now, voter, RequestKind::EndQuorumEpoch, request, out);
        }
    }

    fn ready_voters(&self, ids: &[NodeId]) -> Vec<Peer> {
        let ready = ids.iter().filter(|id| self.requests.is_ready(**id));
        ready
            .filter_map(|id| {
                self.voter_endpoint(*id)
                    .map(|endpoint| Peer { id: *id, endpoint })
            })
            .collect()
    }

    /// Fetches once the log is flushed, and with one Fetch at a time, so that no answer brings
    /// records again. A leader that fails is left alone for a while, and others are asked whether
    /// there is a new one.
    fn fetch_from_leader(&mut self, now: Instant, out: &mut Outputs) {
        let (Some(id), Some(endpoint)) = (self.leader_id(), &self.leader_endpoint) else {
            unreachable!("a follower without a leader");
        };
        if !self.log.is_flushed() || self.has_storage_failed {
            return;
        }
        if self.requests.is_backing_off(id) {
            self.look_for_leader(now, out);
        } else if self.requests.is_ready(id) {
            let endpoint = endpoint.clone();
            self.requests.forget_fetches();
            let leader = Peer { id, endpoint };
            self.send_fetch(now, leader, self.log.end_position(), out);
        }
    }

    /// Asks one bootstrap server or voter at random, one at a time; its error names the leader
    /// (KIP-595, "observers"; Kafka discovers by Fetch).
    fn look_for_leader(&mut self, now: Instant, out: &mut Outputs) {
        if self.requests.is_fetching() || self.has_storage_failed {
            return;
        }
        let Some(position) = self.log.flushed_position() else {
            return;
        };
        let peers = self.discovery.iter();
        let ready = peers.filter(|peer| self.requests.is_ready(peer.id));
        let ready: Vec<Peer> = ready.cloned().collect();
        if !ready.is_empty() {
            let chosen = self.rng.index(ready.len());
            self.send_fetch(now, ready[chosen].clone(), position, out);
        }
    }

    fn send_fetch(&mut self, now: Instant, to: Peer, position: OffsetAndEpoch, out: &mut Outputs) {
        assert!(
            position.offset <= self.log.flushed(),
            "a Fetch at {} acknowledges more than is flushed, {}",
            position.offset,
            self.log.flushed()
        );
        let request = Request::Fetch(FetchRequest {
            replica: self.config.local,
            current_leader_epoch: self.epoch(),
            fetch_offset: position.offset,
            last_fetched_epoch: position.epoch,
            max_wait_ms: self.config.fetch_max_wait_ms,
            max_bytes: self.config.fetch_max_bytes,
            high_watermark: Some(self.committed.unwrap_or(Offset(-1))),
        });
        self.send(now, to, RequestKind::Fetch, request, out);
    }
}
