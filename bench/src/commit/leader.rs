//! Finding the leader: Metadata over a plain blocking connection, before anything is measured.

use super::session::Topic;
use quorate_net::outbound::Outbound;
use quorate_net::wire::metadata::{MetadataRequest, MetadataResponse, MetadataTopicRequest};
use quorate_net::{ApiRequest, ApiResponse};
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// How long a quorum may take to have a leader.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two rounds of asking.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Where to send.
pub(crate) struct Leader {
    /// HOST:PORT of its client listener.
    pub(crate) address: String,
    pub(crate) topic: Topic,
}

/// Asks the servers in turn until one of them knows the leader.
pub(crate) fn find(servers: &[String], topic: &str) -> Result<Leader, Box<dyn Error>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut last_error: Box<dyn Error> = "no server to ask".into();
        for server in servers {
            match ask(server, topic).and_then(|answer| leader_of(&answer, topic)) {
                Ok(leader) => return Ok(leader),
                Err(error) => last_error = format!("{server}: {error}").into(),
            }
        }
        if Instant::now() >= end {
            return Err(format!("no leader found; {last_error}").into());
        }
        thread::sleep(PAUSE);
    }
}

fn ask(server: &str, topic: &str) -> Result<MetadataResponse, Box<dyn Error>> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut outbound = Outbound::new("quorate-bench");
    let request = MetadataRequest {
        topics: Some(vec![MetadataTopicRequest {
            name: Some(topic.to_owned()),
            ..MetadataTopicRequest::default()
        }]),
        ..MetadataRequest::default()
    };
    let request = ApiRequest::from(request);
    let mut asked = false;
    loop {
        if let Some((_, response)) = outbound.next_response()? {
            return match response {
                ApiResponse::Metadata(response) => Ok(response),
                _ => Err("answered with another API's response".into()),
            };
        }
        if outbound.is_ready() && !asked {
            outbound.enqueue(&request, 1)?;
            asked = true;
        }
        exchange(&mut stream, &mut outbound)?;
    }
}

/// Sends what is to be sent and takes in what comes.
fn exchange(stream: &mut TcpStream, outbound: &mut Outbound) -> Result<(), Box<dyn Error>> {
    if let Some(output) = outbound.take_output() {
        stream.write_all(&output)?;
    }
    let mut input = [0; 4096];
    match stream.read(&mut input)? {
        0 => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
        count => {
            outbound.received(&input[..count]);
            Ok(())
        }
    }
}

fn leader_of(answer: &MetadataResponse, topic: &str) -> Result<Leader, Box<dyn Error>> {
    let found = answer
        .topics
        .iter()
        .find(|found| found.name.as_deref() == Some(topic));
    let found = found.ok_or("the topic is not in the answer")?;
    let partition = found.partitions.first();
    let partition =
        partition.ok_or_else(|| format!("topic {topic}: error {}", found.error_code))?;
    let leader = answer
        .brokers
        .iter()
        .find(|broker| broker.node_id == partition.leader_id);
    let leader = leader.ok_or("there is no leader at the moment")?;
    Ok(Leader {
        address: format!("{}:{}", leader.host, leader.port),
        topic: Topic {
            name: topic.to_owned(),
            id: found.topic_id,
        },
    })
}
