//! The load generator against a small server made of the same codecs.

use super::leader::Leader;
use super::session::Topic;
use super::{Plan, load};
use quorate_net::apis::api_versions_response;
use quorate_net::connection::{Connection, Limits};
use quorate_net::wire::Uuid;
use quorate_net::wire::produce::{
    ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse,
};
use quorate_net::{ApiRequest, ListenerKind};
use quorate_raft::{ErrorCode, Offset};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

/// Answers the n-th produce (from 0) of all connections together.
type Answer = fn(i64) -> (ErrorCode, Offset);

/// Serves until its clients are gone; the threads end with them.
fn start_server(answer: Answer) -> Leader {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicI64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, count) = (stream.unwrap(), count.clone());
            thread::spawn(move || serve(stream, &count, answer));
        }
    });
    let topic = Topic {
        name: "t".to_owned(),
        id: Uuid([7; 16]),
    };
    Leader { address, topic }
}

fn serve(mut stream: TcpStream, count: &AtomicI64, answer: Answer) {
    let mut connection = Connection::new(ListenerKind::Client, Limits::default());
    let mut input = [0; 4096];
    while let Ok(1..) = stream
        .read(&mut input)
        .inspect(|&got| connection.received(&input[..got]))
    {
        while let Some(inbound) = connection.next_request().unwrap() {
            let response = match inbound.request {
                ApiRequest::Produce(request) => {
                    produced(&request, answer(count.fetch_add(1, Ordering::SeqCst))).into()
                }
                ApiRequest::ApiVersions(request) => {
                    let version = inbound.header.api_version;
                    api_versions_response(ListenerKind::Client, version, &request).into()
                }
                other => panic!("{other:?}"),
            };
            connection.respond_with(inbound.slot, &response).unwrap();
        }
        while let Some(output) = connection.take_output() {
            let _ = stream.write_all(&output);
        }
    }
}

fn produced(request: &ProduceRequest, answer: (ErrorCode, Offset)) -> ProduceResponse {
    assert_eq!(request.acks, -1);
    let topic = &request.topic_data[0];
    let (error_code, base_offset) = answer;
    let partition = ProducePartitionResponse {
        error_code,
        base_offset,
        ..ProducePartitionResponse::default()
    };
    let topic = ProduceTopicResponse {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partition_responses: vec![partition],
    };
    ProduceResponse {
        responses: vec![topic],
        ..ProduceResponse::default()
    }
}

fn plan(clients: usize) -> Plan {
    Plan {
        clients,
        record_size: 100,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(200),
        spin: Duration::ZERO,
    }
}

fn error_of(answer: Answer) -> String {
    let result = load::run(&start_server(answer), &plan(4));
    result.err().expect("the answers were wrong").to_string()
}

#[test]
fn every_client_commits_again_and_again() {
    let leader = start_server(|n| (ErrorCode::NONE, Offset(n)));
    for clients in [1, 40] {
        let latencies = load::run(&leader, &plan(clients)).unwrap();
        assert!(
            latencies.count() > 5 * clients as u64,
            "{} commits",
            latencies.count()
        );
    }
}

#[test]
fn refused_produce_ends_the_run() {
    let error = error_of(|n| match n {
        10 => (ErrorCode::NOT_LEADER_OR_FOLLOWER, Offset(-1)),
        n => (ErrorCode::NONE, Offset(n)),
    });
    assert!(error.contains("answered with error"), "{error}");
}

#[test]
fn offset_that_falls_ends_the_run() {
    let error = error_of(|n| (ErrorCode::NONE, Offset(if n == 30 { 3 } else { n })));
    assert!(error.contains("base offset 3 after"), "{error}");
}

#[test]
fn offset_given_twice_is_found() {
    // Rising on each connection, yet pairs of commits share an offset.
    let error = error_of(|n| (ErrorCode::NONE, Offset(n / 2)));
    assert!(
        error.contains("was given to two commits") || error.contains("after"),
        "{error}"
    );
}
