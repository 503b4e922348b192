//! Asks the voters how the quorum is: DescribeQuorum on their client listeners, over plain sockets.
//!
//! A thread of its own, since a voter that is stopped or gone answers late or not at all. It sends
//! what it learns to the supervisor and decides nothing.

use super::supervisor::Event;
use crate::describe_client::DescribeClient;
use quorate_net::wire::describe_quorum::DescribeQuorumPartitionResponse;
use quorate_raft::{Endpoint, Epoch, NodeId, Offset};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Between two rounds. Short enough that a table looks alive.
const INTERVAL: Duration = Duration::from_millis(400);
/// Between two rounds as long as no leader is known: an election takes about a second.
const INTERVAL_WITHOUT_LEADER: Duration = Duration::from_millis(50);
/// A voter on this machine that does not answer within this time is taken for silent.
const PATIENCE: Duration = Duration::from_millis(500);

/// The quorum, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuorumStatus {
    pub leader_id: NodeId,
    pub leader_epoch: Epoch,
    /// Exclusive.
    pub high_watermark: Offset,
    pub replicas: Vec<ReplicaStatus>,
}

/// A voter, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaStatus {
    pub id: NodeId,
    /// Exclusive; -1 if the leader does not know it.
    pub log_end_offset: Offset,
    /// In ms since 1970 by the leader's clock; -1 if never.
    pub last_fetch_timestamp: i64,
}

impl QuorumStatus {
    fn of(partition: &DescribeQuorumPartitionResponse) -> Self {
        let replicas = partition.current_voters.iter().map(|voter| ReplicaStatus {
            id: voter.replica_id,
            log_end_offset: voter.log_end_offset,
            last_fetch_timestamp: voter.last_fetch_timestamp,
        });
        Self {
            leader_id: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            high_watermark: partition.high_watermark,
            replicas: replicas.collect(),
        }
    }
}

/// Asks in turns until `stop` is dropped. `voters` are ids and client addresses.
pub(super) fn start(
    voters: Vec<(NodeId, Endpoint)>,
    topic: String,
    events: Sender<Event>,
    stop: Receiver<()>,
) -> io::Result<()> {
    let mut watcher = Watcher {
        voters,
        topic,
        connection: None,
    };
    let run = move || {
        loop {
            let status = watcher.ask_all();
            let interval = if status.is_some() {
                INTERVAL
            } else {
                INTERVAL_WITHOUT_LEADER
            };
            if events.send(Event::Status(status)).is_err() {
                return;
            }
            if stop.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("dev-status".into());
    thread.spawn(run).map(drop)
}

struct Watcher {
    voters: Vec<(NodeId, Endpoint)>,
    topic: String,
    /// To the last leader.
    connection: Option<DescribeClient>,
}

impl Watcher {
    /// The leader's answer; `None` if nobody says that it leads.
    fn ask_all(&mut self) -> Option<QuorumStatus> {
        if let Some(mut leader) = self.connection.take()
            && let Ok(Some(partition)) = leader.ask(&self.topic)
        {
            self.connection = Some(leader);
            return Some(QuorumStatus::of(&partition));
        }
        for (_, address) in &self.voters {
            let asked = DescribeClient::open(address, PATIENCE).and_then(|mut connection| {
                let partition = connection.ask(&self.topic)?;
                Ok((connection, partition))
            });
            if let Ok((connection, Some(partition))) = asked {
                self.connection = Some(connection);
                return Some(QuorumStatus::of(&partition));
            }
        }
        None
    }
}
