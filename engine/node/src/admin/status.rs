//! /api/status: what the page shows, as JSON. Scripts may use it as well.
//!
//! Pure: a state in, a value out. Times are ms since 1970 where they end in `_ms`, and spans where
//! they end in `_ms_ago`.

use super::Facts;
use super::health::Check;
use super::inquiry::NodeStatus;
use quorate_raft::{Instant, NodeId, ReplicaDescription, Role};
use serde::Serialize;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(super) struct Status<'a> {
    pub version: &'static str,
    pub node: Node<'a>,
    pub live: bool,
    pub ready: bool,
    pub checks: Vec<Check>,
    /// Absent until the raft loop has answered for the first time.
    pub quorum: Option<Quorum>,
}

#[derive(Debug, Serialize)]
pub(super) struct Node<'a> {
    pub id: NodeId,
    pub cluster_id: &'a str,
    pub directory_id: &'a str,
    pub started_ms: i64,
    pub now_ms: i64,
}

/// The quorum as this node sees it.
#[derive(Debug, Serialize)]
pub(super) struct Quorum {
    /// This node's state.
    pub role: &'static str,
    pub is_voter: bool,
    pub epoch: i32,
    /// -1: unknown.
    pub leader_id: NodeId,
    /// Exclusive; -1: unknown.
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub flushed_offset: i64,
    /// When this node's state last changed, and why.
    pub changed_ms: i64,
    pub changed_reason: &'static str,
    /// Whether `replicas` is what a leader knows; otherwise it is little more than who votes.
    pub is_leaders_view: bool,
    pub replicas: Vec<Replica>,
}

/// A voter or an observer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Replica {
    pub id: NodeId,
    pub is_voter: bool,
    pub is_leader: bool,
    /// Its controller endpoint; empty if unknown.
    pub endpoint: String,
    pub log_end_offset: Option<i64>,
    /// Records behind the leader's log end.
    pub lag: Option<i64>,
    pub last_fetch_ms_ago: Option<u64>,
    pub last_caught_up_ms_ago: Option<u64>,
}

pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Unattached => "unattached",
        Role::Prospective => "prospective",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Resigned => "resigned",
    }
}

impl Quorum {
    /// From the state that the raft loop told, and what the leader says if this node is not it.
    pub(super) fn of(facts: &Facts, status: &NodeStatus, of_leader: Option<Vec<Replica>>) -> Self {
        let led = status.leader.leader_id;
        let is_leaders_view = status.quorum.is_some() || of_leader.is_some();
        let replicas = match (&status.quorum, of_leader) {
            (Some(quorum), _) => {
                let voters = quorum.voters.iter().map(|replica| (replica, true));
                let observers = quorum.observers.iter().map(|replica| (replica, false));
                let all = voters.chain(observers);
                all.map(|(replica, is_voter)| described(status, replica, is_voter))
                    .collect()
            }
            (None, Some(replicas)) => replicas,
            (None, None) => configured(facts, status),
        };
        Self {
            role: role_name(status.role),
            is_voter: status.is_voter,
            epoch: status.epoch.0,
            leader_id: led.unwrap_or(-1),
            high_watermark: status.high_watermark.map_or(-1, |offset| offset.0),
            log_start_offset: status.log_start.0,
            log_end_offset: status.log_end.0,
            flushed_offset: status.flushed.0,
            changed_ms: status.changed.wall_ms,
            changed_reason: status.changed.reason,
            is_leaders_view,
            replicas,
        }
    }
}

/// The controller endpoint of a voter.
pub(super) fn endpoint_of(status: &NodeStatus, id: NodeId) -> String {
    let voter = status.voters.get(id);
    voter.map_or_else(String::new, |voter| voter.endpoint.to_string())
}

fn described(status: &NodeStatus, replica: &ReplicaDescription, is_voter: bool) -> Replica {
    let end = replica.log_end_offset.map(|offset| offset.0);
    let ago = |at: Option<Instant>| Some(status.at.ms_since(at?));
    let id = replica.replica.id;
    Replica {
        id,
        is_voter,
        is_leader: status.leader.leader_id == Some(id),
        endpoint: endpoint_of(status, id),
        log_end_offset: end,
        lag: end.map(|end| status.log_end.0.saturating_sub(end).max(0)),
        last_fetch_ms_ago: ago(replica.last_fetch),
        last_caught_up_ms_ago: ago(replica.last_caught_up),
    }
}

/// What a node that does not lead knows: who votes, and how far it is itself.
fn configured(facts: &Facts, status: &NodeStatus) -> Vec<Replica> {
    let replica = |id: NodeId, is_voter: bool| {
        let is_own = id == facts.node_id;
        let behind = status
            .leader_high_watermark
            .map(|leader| leader.0.saturating_sub(status.log_end.0).max(0));
        Replica {
            id,
            is_voter,
            is_leader: status.role == Role::Follower && status.leader.leader_id == Some(id),
            endpoint: endpoint_of(status, id),
            log_end_offset: is_own.then_some(status.log_end.0),
            lag: behind.filter(|_| is_own),
            last_fetch_ms_ago: None,
            last_caught_up_ms_ago: status
                .caught_up_at
                .filter(|_| is_own)
                .map(|at| status.at.ms_since(at)),
        }
    };
    let voters = status.voters.voters().iter().map(|voter| voter.key.id);
    let mut all: Vec<_> = voters.map(|id| replica(id, true)).collect();
    if !status.is_voter {
        all.push(replica(facts.node_id, false));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::health::tests::{ms, status};
    use super::*;
    use quorate_raft::{Endpoint, Epoch, Offset, QuorumDescription, ReplicaKey, Voter, VoterSet};

    fn facts() -> Facts {
        Facts {
            node_id: 1,
            cluster_id: "C".into(),
            directory_id: "D".into(),
            started_ms: 5,
            topic: "t".into(),
            log_dir: "/none".into(),
            client_loops: 0,
        }
    }

    fn voters() -> VoterSet {
        let voter = |id| Voter {
            key: ReplicaKey::of(id),
            endpoint: Endpoint {
                host: "h".into(),
                port: 9000 + id as u16,
            },
        };
        VoterSet::new((1..=2).map(voter).collect())
    }

    #[test]
    fn a_leader_tells_how_far_everybody_is() {
        let mut leader = status(Role::Leader, Some(1));
        leader.voters = voters();
        leader.high_watermark = Some(Offset(45));
        let replica = |id, end: Option<i64>, fetched| ReplicaDescription {
            replica: ReplicaKey::of(id),
            log_end_offset: end.map(Offset),
            last_fetch: fetched,
            last_caught_up: None,
        };
        leader.quorum = Some(QuorumDescription {
            leader_id: 1,
            leader_epoch: Epoch(7),
            high_watermark: Some(Offset(45)),
            voters: vec![
                replica(1, Some(50), Some(leader.at)),
                replica(2, Some(45), Some(ms(99_000))),
            ],
            observers: vec![replica(9, None, None)],
        });
        let quorum = Quorum::of(&facts(), &leader, None);
        assert!(quorum.is_leaders_view);
        let lags: Vec<_> = quorum.replicas.iter().map(|one| one.lag).collect();
        assert_eq!(lags, [Some(0), Some(5), None]);
        assert_eq!(quorum.replicas[1].last_fetch_ms_ago, Some(1000));
        assert_eq!(quorum.replicas[1].endpoint, "h:9002");
        assert!(quorum.replicas[0].is_leader && !quorum.replicas[2].is_voter);
    }

    #[test]
    fn a_follower_tells_of_itself_and_who_votes() {
        let mut follower = status(Role::Follower, Some(2));
        follower.voters = voters();
        follower.leader_high_watermark = Some(Offset(60));
        let quorum = Quorum::of(&facts(), &follower, None);
        assert!(!quorum.is_leaders_view);
        assert_eq!((quorum.leader_id, quorum.high_watermark), (2, -1));
        let lags: Vec<_> = quorum.replicas.iter().map(|one| one.lag).collect();
        assert_eq!(lags, [Some(10), None]);
        follower.is_voter = false;
        follower.voters = VoterSet::default();
        let quorum = Quorum::of(&facts(), &follower, None);
        assert_eq!(quorum.replicas.len(), 1);
        assert!(!quorum.replicas[0].is_voter);
    }
}
