//! Asks the voters how the quorum is: DescribeQuorum on their client listeners, over plain sockets.
//!
//! A thread of its own, since a voter that is stopped or gone answers late or not at all. It sends
//! what it learns to the supervisor and decides nothing.

use super::supervisor::Event;
use quorate_net::wire::describe_quorum::{
    DescribeQuorumPartition, DescribeQuorumPartitionResponse, DescribeQuorumRequest,
    DescribeQuorumTopic,
};
use quorate_net::{ApiResponse, Outbound};
use quorate_raft::{Endpoint, Epoch, NodeId, Offset};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
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
    connection: Option<Connection>,
}

impl Watcher {
    /// The leader's answer; `None` if nobody says that it leads.
    fn ask_all(&mut self) -> Option<QuorumStatus> {
        if let Some(mut leader) = self.connection.take()
            && let Ok(Some(status)) = leader.ask(&self.topic)
        {
            self.connection = Some(leader);
            return Some(status);
        }
        for (_, address) in &self.voters {
            let asked = Connection::open(address).and_then(|mut connection| {
                let status = connection.ask(&self.topic)?;
                Ok((connection, status))
            });
            if let Ok((connection, Some(status))) = asked {
                self.connection = Some(connection);
                return Some(status);
            }
        }
        None
    }
}

struct Connection {
    stream: TcpStream,
    outbound: Outbound,
    asked: i32,
}

impl Connection {
    /// Connects and learns what the voter speaks.
    fn open(address: &Endpoint) -> io::Result<Self> {
        let resolved = (&*address.host, address.port).to_socket_addrs()?.next();
        let resolved = resolved.ok_or(io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self {
            stream,
            outbound: Outbound::new("quorate-dev"),
            asked: 0,
        };
        while !connection.outbound.is_ready() {
            // Nothing was asked yet, so nothing but the negotiation is answered.
            connection.exchange()?;
        }
        Ok(connection)
    }

    /// What the voter at the other end says of the quorum; `None` if it does not lead it.
    fn ask(&mut self, topic: &str) -> io::Result<Option<QuorumStatus>> {
        self.asked = self.asked.wrapping_add(1);
        let request = DescribeQuorumRequest {
            topics: vec![DescribeQuorumTopic {
                topic_name: topic.to_owned(),
                partitions: vec![DescribeQuorumPartition::default()],
            }],
        };
        let enqueued = self.outbound.enqueue(&request.into(), self.asked);
        enqueued.map_err(io::Error::other)?;
        loop {
            if let Some(response) = self.exchange()? {
                return Ok(leader_status(&response));
            }
        }
    }

    /// Sends what is to be sent and reads once, unless an answer is there already.
    fn exchange(&mut self) -> io::Result<Option<ApiResponse>> {
        if let Some(output) = self.outbound.take_output() {
            self.stream.write_all(&output)?;
        }
        self.read()?;
        let response = self.outbound.next_response().map_err(io::Error::other)?;
        Ok(response.map(|(_, response)| response))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.outbound.received(&bytes[..count]);
                Ok(())
            }
        }
    }
}

fn leader_status(response: &ApiResponse) -> Option<QuorumStatus> {
    let ApiResponse::DescribeQuorum(response) = response else {
        return None;
    };
    let partition = response.topics.first()?.partitions.first()?;
    let leads = response.error_code.is_none() && partition.error_code.is_none();
    (leads && partition.leader_id >= 0).then(|| QuorumStatus::of(partition))
}
