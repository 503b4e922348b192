//! Who may say what where: raft's own requests and a replica's Fetch on controller listeners only,
//! and a quorum for trying out on this machine alone.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::stranger::{Stranger, frame};
use common::{Cluster, PROBE_VALUE, RawClient, TOPIC, batch, s, wait_for};
use quorate_net::wire::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState,
};
use quorate_net::wire::{Uuid, begin_quorum_epoch, end_quorum_epoch, vote};
use quorate_net::{ApiKey, ApiRequest, ApiResponse, Writer};
use quorate_raft::{Epoch, Offset};
use std::fs;

/// The usual id of the log's topic.
const TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// A Fetch as voter `id` sends it, which acknowledges everything below `end`.
fn replica_fetch(version: i16, id: i32, epoch: i64, end: i64) -> ApiRequest {
    let mut request = FetchRequest {
        replica_state: ReplicaState {
            replica_id: id,
            ..Default::default()
        },
        max_wait_ms: 0,
        min_bytes: 0,
        topics: vec![FetchTopic {
            topic: TOPIC.to_owned(),
            topic_id: TOPIC_ID,
            partitions: vec![FetchPartition {
                current_leader_epoch: Epoch(epoch as i32),
                fetch_offset: Offset(end),
                last_fetched_epoch: Epoch(if version >= 12 { epoch as i32 } else { -1 }),
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    request.place_replica(version);
    ApiRequest::Fetch(request)
}

fn partition(response: ApiResponse) -> (i16, i64) {
    let ApiResponse::Fetch(FetchResponse { responses, .. }) = response else {
        panic!("{response:?}")
    };
    let partition = &responses[0].partitions[0];
    (partition.error_code.0, partition.high_watermark.0)
}

#[test]
fn raft_requests_on_a_client_listener_cost_their_sender_the_connection() {
    let cluster = Cluster::start(1);
    let before = cluster.describe();
    let address = &cluster.node(before.leader_id).address;
    let requests = [
        ApiRequest::Vote(vote::VoteRequest::default()),
        ApiRequest::BeginQuorumEpoch(begin_quorum_epoch::BeginQuorumEpochRequest::default()),
        ApiRequest::EndQuorumEpoch(end_quorum_epoch::EndQuorumEpochRequest::default()),
    ];
    for request in requests {
        let mut body = Writer::new();
        request.encode(1, &mut body).expect("a request");
        let frame = frame(request.api().code(), 1, &body.into_bytes());
        let mut stranger = Stranger::connect(address);
        stranger.send(&frame);
        assert!(stranger.is_ended(), "{:?} was taken", request.api());
        // The same bytes are heard where they belong.
        let mut peer = Stranger::connect(&cluster.node(before.leader_id).peer_address());
        peer.send(&frame);
        assert!(peer.receive().is_ok(), "{:?} was refused", request.api());
    }
    let mut peer = Stranger::connect(&cluster.node(before.leader_id).peer_address());
    peer.send(&frame(ApiKey::Produce.code(), 3, &[]));
    assert!(peer.is_ended(), "a controller listener takes no Produce");
    assert_eq!(cluster.leader(), before.leader_id);
}

#[test]
fn a_fetch_in_a_voters_name_on_a_client_listener_moves_no_high_watermark() {
    let mut cluster = Cluster::start(3);
    let before = cluster.describe();
    let leader = before.leader_id;
    let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id);
    }
    // It leads until it has missed its followers for long enough; what comes now can't commit.
    let address = cluster.node(leader).address.clone();
    let mut producer = RawClient::connect(&address).expect("a connection");
    producer.send_produce(&batch(PROBE_VALUE)).expect("sent");
    let committed = before.high_watermark;
    for version in [4, 11, 12, 13, 15, 17, 18] {
        let mut stranger = Stranger::connect(&address);
        for id in &others {
            let forged = replica_fetch(version, *id, before.leader_epoch, committed + 1);
            let (error, high_watermark) = partition(stranger.ask(version, &forged).expect("told"));
            let is_old = high_watermark == committed || high_watermark == -1;
            assert!(
                is_old,
                "version {version}: {error}, high watermark {high_watermark}"
            );
        }
    }
    let answer = producer.receive_produce();
    assert!(
        answer.as_ref().is_ok_and(|produced| produced.error != 0),
        "acknowledged on a stranger's word: {answer:?}"
    );
}

#[test]
fn the_same_fetch_on_the_controller_listener_is_a_voters_word() {
    let mut cluster = Cluster::start(3);
    let before = cluster.describe();
    let leader = before.leader_id;
    let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id);
    }
    let address = cluster.node(leader).address.clone();
    let mut producer = RawClient::connect(&address).expect("a connection");
    producer.send_produce(&batch(PROBE_VALUE)).expect("sent");
    let mut peer = Stranger::connect(&cluster.node(leader).peer_address());
    let end = before.high_watermark + 1;
    let forged = replica_fetch(17, others[0], before.leader_epoch, end);
    // The Produce may still be on its way, and with it the record that the Fetch acknowledges.
    wait_for("a commit on a voter's word", s(2), || {
        let (error, high_watermark) = partition(peer.ask(17, &forged).expect("an answer"));
        (error == 0 && high_watermark == end).then_some(())
    });
    let produced = producer.receive_produce().expect("an answer");
    assert_eq!(
        (produced.error, produced.offset),
        (0, before.high_watermark)
    );
}

#[test]
fn a_quorum_for_trying_out_listens_on_this_machine_alone() {
    let cluster = Cluster::start(3);
    let mut seen = 0;
    for node in cluster.nodes() {
        for address in [node.address.clone(), node.peer_address()] {
            let (_, port) = address.rsplit_once(':').expect("a port");
            let port: u16 = port.parse().expect("a port");
            for bound in listening_on(port) {
                assert_eq!(bound, "0100007F", "port {port} is bound to {bound}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 6, "three client and three controller listeners");
}

/// Addresses, in the kernel's hexadecimal, that somebody listens on with this port.
fn listening_on(port: u16) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, of) = fields[1].rsplit_once(':').expect("address:port");
            if fields[3] == "0A" && u16::from_str_radix(of, 16) == Ok(port) {
                found.push(address.to_owned());
            }
        }
    }
    found
}
