//! Asks a node how the quorum is (DescribeQuorum), over a plain blocking socket.
//!
//! For threads that may wait: the supervisor of `quorate dev`, and the admin listener of a node
//! that does not lead. It decides nothing and tries nothing again.

use quorate_net::wire::describe_quorum::{
    DescribeQuorumPartition, DescribeQuorumPartitionResponse, DescribeQuorumRequest,
    DescribeQuorumTopic,
};
use quorate_net::{ApiResponse, Outbound};
use quorate_raft::Endpoint;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A connection to one node.
pub struct DescribeClient {
    stream: TcpStream,
    outbound: Outbound,
    asked: i32,
}

impl DescribeClient {
    /// Connects and learns what the node speaks. Each step may take as long as `patience`.
    ///
    /// # Errors
    /// It cannot be found or reached, or does not answer.
    pub fn open(address: &Endpoint, patience: Duration) -> io::Result<Self> {
        let resolved = (&*address.host, address.port).to_socket_addrs()?.next();
        let resolved = resolved.ok_or(io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect_timeout(&resolved, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut connection = Self {
            stream,
            outbound: Outbound::new("quorate-describe"),
            asked: 0,
        };
        while !connection.outbound.is_ready() {
            // Nothing was asked yet, so nothing but the negotiation is answered.
            connection.exchange()?;
        }
        Ok(connection)
    }

    /// What the node at the other end says of the quorum; `None` if it does not lead it.
    ///
    /// # Errors
    /// It does not answer, or not with what was asked for.
    pub fn ask(&mut self, topic: &str) -> io::Result<Option<DescribeQuorumPartitionResponse>> {
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
                return Ok(leaders_answer(response));
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

fn leaders_answer(response: ApiResponse) -> Option<DescribeQuorumPartitionResponse> {
    let ApiResponse::DescribeQuorum(mut response) = response else {
        return None;
    };
    let topic = response.topics.first_mut()?;
    let partition = topic.partitions.drain(..).next()?;
    let leads = response.error_code.is_none() && partition.error_code.is_none();
    (leads && partition.leader_id >= 0).then_some(partition)
}
