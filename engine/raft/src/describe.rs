//! What an operator sees of the quorum (DescribeQuorum), and what must hold at any time.

use crate::config::{QuorumDescription, ReplicaDescription};
use crate::output::Role;
use crate::progress::Progress;
use crate::raft::{EPOCH_LIMIT, Raft, State};
use crate::types::{Instant, NodeId};

impl Raft {
    pub(crate) fn describe_quorum(&self, now: Instant) -> Option<QuorumDescription> {
        let State::Leader(leader) = &self.state else {
            return None;
        };
        let own = ReplicaDescription {
            replica: self.config.local,
            log_end_offset: Some(self.log.end()),
            last_fetch: Some(now),
            last_caught_up: Some(now),
        };
        let describe_voter = |id: NodeId| leader.voters.get(&id).map_or(own, describe_replica);
        let voters = self.voters().voters().iter();
        Some(QuorumDescription {
            leader_id: self.local_id(),
            leader_epoch: self.epoch(),
            high_watermark: leader.high_watermark,
            voters: voters.map(|voter| describe_voter(voter.key.id)).collect(),
            observers: leader.observers.active(now).map(describe_replica).collect(),
        })
    }

    pub(crate) fn assert_invariants(&self) {
        self.log.check_invariants();
        let election = self.election();
        assert!(
            self.log.last_epoch() <= election.epoch,
            "log beyond {election:?}"
        );
        assert!(election.epoch < EPOCH_LIMIT, "{election:?}");
        if let Some(committed) = self.committed {
            assert!(committed <= self.log.end(), "{committed} committed");
        }
        assert!(
            self.requests.peers().all(|peer| peer != self.local_id()),
            "a request to itself"
        );
        self.assert_state_invariants();
    }

    fn assert_state_invariants(&self) {
        let election = self.election();
        let is_self = election.leader_id == Some(self.local_id());
        let role = self.role();
        match &self.state {
            State::Unattached(_) | State::Prospective(_) => assert!(!is_self, "{role:?}"),
            State::Candidate(_) => {
                let is_own_vote = election.voted.is_some_and(|v| v.id == self.local_id());
                assert!(is_own_vote && election.leader_id.is_none(), "{election:?}");
            }
            State::Follower(_) => {
                assert!(election.leader_id.is_some() && !is_self, "{election:?}");
                assert!(
                    self.leader_endpoint.is_some(),
                    "a leader without an endpoint"
                );
            }
            State::Resigned(_) => assert!(is_self, "resigned from {election:?}"),
            State::Leader(leader) => {
                assert!(is_self && self.is_voter(), "leader of {election:?}");
                assert!(
                    leader
                        .high_watermark
                        .is_none_or(|hw| hw > leader.epoch_start)
                );
                assert!(
                    leader.high_watermark <= self.committed,
                    "not told of a commit"
                );
                assert!(!leader.has_begun || self.log.last_epoch() == election.epoch);
                assert!(leader.has_begun || self.log.end() == leader.epoch_start);
            }
        }
        let may_be_observer = matches!(role, Role::Unattached | Role::Follower);
        assert!(self.is_voter() || may_be_observer, "observer is {role:?}");
    }
}

fn describe_replica(progress: &Progress) -> ReplicaDescription {
    ReplicaDescription {
        replica: progress.key,
        log_end_offset: progress.end,
        last_fetch: progress.last_fetch,
        last_caught_up: progress.last_caught_up,
    }
}
