//! The client library against scripted nodes on loopback: it must find the leader, follow it, send
//! again what got lost, and tell clearly why it gave up.

use bytes::Bytes;
use quorate_net::apis::api_versions_response;
use quorate_net::client::{Client, ClientError, ClientOptions, OffsetSpec, ProduceAck, run};
use quorate_net::wire::Uuid;
use quorate_net::wire::describe_cluster::{DescribeClusterBroker, DescribeClusterResponse};
use quorate_net::wire::describe_quorum::{
    DescribeQuorumPartitionResponse, DescribeQuorumResponse, DescribeQuorumTopicResponse,
};
use quorate_net::wire::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
use quorate_net::wire::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use quorate_net::wire::metadata::{
    MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic,
};
use quorate_net::wire::produce::{ProducePartitionResponse, ProduceResponse, ProduceTopicResponse};
use quorate_net::{ApiRequest, ApiResponse, Connection, Limits, ListenerKind};
use quorate_raft::{ErrorCode, Offset};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const TOPIC_ID: Uuid = Uuid([7; 16]);

enum Reply {
    Answer(ApiResponse),
    Hangup,
}

/// A listening socket whose node is started later: nodes must know each other's ports.
struct Port(TcpListener);

impl Port {
    fn open() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has ports"))
    }

    fn number(&self) -> u16 {
        self.0.local_addr().expect("it is bound").port()
    }

    fn address(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.number())
    }

    /// Serves one connection after the other; negotiation is done here, the rest by `script`. Each
    /// request is told to the receiver first.
    fn serve(
        self,
        kind: ListenerKind,
        mut script: impl FnMut(&ApiRequest) -> Reply + Send + 'static,
    ) -> Receiver<ApiRequest> {
        let (told, requests) = channel();
        thread::spawn(move || {
            for stream in self.0.incoming() {
                let mut on_request = |request: ApiRequest| {
                    let reply = script(&request);
                    let _ = told.send(request);
                    reply
                };
                serve_one(stream.expect("a connection"), kind, &mut on_request);
            }
        });
        requests
    }
}

fn serve_one(
    mut stream: TcpStream,
    kind: ListenerKind,
    script: &mut impl FnMut(ApiRequest) -> Reply,
) {
    let mut connection = Connection::new(kind, Limits::default());
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        connection.received(&buffer[..count]);
        while let Some(inbound) = connection
            .next_request()
            .expect("the client is no stranger")
        {
            let version = inbound.header.api_version;
            let reply = match inbound.request {
                ApiRequest::ApiVersions(request) => {
                    Reply::Answer(api_versions_response(kind, version, &request).into())
                }
                other => script(other),
            };
            let Reply::Answer(response) = reply else {
                return;
            };
            connection
                .respond_with(inbound.slot, &response)
                .expect("it can be said");
        }
        while let Some(output) = connection.take_output() {
            if stream.write_all(&output).is_err() {
                return;
            }
        }
    }
}

/// Metadata with node i + 1 on the i-th port.
fn metadata(ports: &[u16], leader_id: i32) -> Reply {
    let broker = |(id, port): (i32, &u16)| MetadataBroker {
        node_id: id,
        host: "127.0.0.1".to_owned(),
        port: i32::from(*port),
        ..Default::default()
    };
    let partition = MetadataPartition {
        leader_id,
        ..Default::default()
    };
    let topic = MetadataTopic {
        name: Some("a.topic".to_owned()),
        topic_id: TOPIC_ID,
        partitions: vec![partition],
        ..Default::default()
    };
    let response = MetadataResponse {
        brokers: (1..).zip(ports).map(broker).collect(),
        topics: vec![topic],
        ..Default::default()
    };
    Reply::Answer(response.into())
}

fn produced(error_code: ErrorCode, base_offset: i64) -> Reply {
    let partition = ProducePartitionResponse {
        error_code,
        base_offset: Offset(base_offset),
        error_message: (!error_code.is_none()).then(|| "as the script says".to_owned()),
        ..Default::default()
    };
    let topic = ProduceTopicResponse {
        partition_responses: vec![partition],
        ..Default::default()
    };
    let response = ProduceResponse {
        responses: vec![topic],
        ..Default::default()
    };
    Reply::Answer(response.into())
}

fn options() -> ClientOptions {
    ClientOptions {
        topic: "a.topic".to_owned(),
        ..Default::default()
    }
}

/// Options with which the first failure is the last.
fn impatient() -> ClientOptions {
    ClientOptions {
        deadline: Duration::ZERO,
        ..options()
    }
}

/// Runs `work` with a connected client.
fn with_client<T>(
    bootstrap: &[(String, u16)],
    options: ClientOptions,
    work: impl AsyncFnOnce(&mut Client) -> T,
) -> T {
    run(async {
        let client = Client::connect_with(bootstrap, ListenerKind::Client, options).await;
        work(&mut client.expect("there is a leader")).await
    })
    .expect("io_uring works")
}

fn batch(request: &ApiRequest) -> &[u8] {
    let ApiRequest::Produce(request) = request else {
        panic!("not a Produce: {request:?}");
    };
    assert_eq!(request.acks, -1);
    let topic = &request.topic_data[0];
    assert_eq!(topic.topic_id, TOPIC_ID);
    topic.partition_data[0].records.as_deref().expect("records")
}

#[test]
fn client_goes_from_any_node_to_the_leader() {
    let (first, second) = (Port::open(), Port::open());
    let ports = [first.number(), second.number()];
    let bootstrap = [first.address()];
    first.serve(ListenerKind::Client, move |_| metadata(&ports, 2));
    let at_leader = second.serve(ListenerKind::Client, |_| produced(ErrorCode::NONE, 42));
    let ack = with_client(&bootstrap, options(), async |client| {
        assert_eq!(client.leader_address().expect("connected").port, ports[1]);
        client.produce(Bytes::from_static(b"batch")).await
    });
    let expected = ProduceAck {
        base_offset: Offset(42),
    };
    assert_eq!(ack.expect("committed"), expected);
    assert_eq!(batch(&at_leader.recv().expect("a request")), b"batch");
}

#[test]
fn node_that_is_gone_is_passed_over() {
    let gone = Port::open();
    let there = Port::open();
    let ports = [there.number()];
    let bootstrap = [gone.address(), there.address()];
    drop(gone);
    there.serve(ListenerKind::Client, move |_| metadata(&ports, 1));
    with_client(&bootstrap, options(), async |client| {
        assert_eq!(client.leader_address().expect("connected").port, ports[0]);
    });
}

#[test]
fn batch_is_sent_again_after_errors_that_pass_and_a_broken_connection() {
    let node = Port::open();
    let ports = [node.number()];
    let bootstrap = [node.address()];
    let mut tries = 0;
    let requests = node.serve(ListenerKind::Client, move |request| {
        if !matches!(request, ApiRequest::Produce(_)) {
            return metadata(&ports, 1);
        }
        tries += 1;
        match tries {
            1 => produced(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1),
            2 => Reply::Hangup,
            3 => produced(ErrorCode::REQUEST_TIMED_OUT, -1),
            _ => produced(ErrorCode::NONE, 9),
        }
    });
    let ack = with_client(&bootstrap, options(), async |client| {
        client.produce(Bytes::from_static(b"batch")).await
    });
    assert_eq!(ack.expect("committed in the end").base_offset, Offset(9));
    let produces = requests
        .try_iter()
        .filter(|r| matches!(r, ApiRequest::Produce(_)));
    assert_eq!(produces.count(), 4);
}

#[test]
fn error_that_does_not_pass_is_told_at_once_and_readably() {
    let node = Port::open();
    let port = node.number();
    let bootstrap = [node.address()];
    node.serve(ListenerKind::Client, move |request| match request {
        ApiRequest::Produce(_) => produced(ErrorCode::INVALID_RECORD, -1),
        _ => metadata(&[port], 1),
    });
    let error = with_client(&bootstrap, options(), async |client| {
        client
            .produce(Bytes::from_static(b"poison"))
            .await
            .expect_err("it is refused")
    });
    assert_eq!(error.error_code(), Some(ErrorCode::INVALID_RECORD));
    let told = "answered Produce with INVALID_RECORD (87): as the script says";
    assert_eq!(error.to_string(), format!("127.0.0.1:{port} {told}"));
}

#[test]
fn pipelined_batches_are_acknowledged_in_order_and_only_the_open_ones_sent_again() {
    let node = Port::open();
    let ports = [node.number()];
    let bootstrap = [node.address()];
    let mut answered = 0;
    let requests = node.serve(ListenerKind::Client, move |request| {
        if !matches!(request, ApiRequest::Produce(_)) {
            return metadata(&ports, 1);
        }
        answered += 1;
        match answered {
            5 => produced(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1),
            _ => produced(ErrorCode::NONE, 100 + i64::from(answered)),
        }
    });
    let batches: Vec<Bytes> = (0..12_u8).map(|index| Bytes::from(vec![index])).collect();
    let mut acks = Vec::new();
    with_client(&bootstrap, options(), async |client| {
        client
            .produce_many(&batches, |index, ack| acks.push((index, ack.base_offset.0)))
            .await
    })
    .expect("committed");
    let indexes: Vec<usize> = acks.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (0..12).collect::<Vec<_>>());
    let mut sent = [0; 12];
    for request in requests
        .try_iter()
        .filter(|r| matches!(r, ApiRequest::Produce(_)))
    {
        sent[usize::from(batch(&request)[0])] += 1;
    }
    assert_eq!(sent[..4], [1; 4], "acknowledged before the failure");
    assert_eq!(sent[4], 2, "refused, then committed");
}

#[test]
fn fetch_and_list_offsets_bring_what_the_leader_says() {
    let node = Port::open();
    let ports = [node.number()];
    let bootstrap = [node.address()];
    let requests = node.serve(ListenerKind::Client, move |request| match request {
        ApiRequest::Fetch(_) => {
            let partition = FetchPartitionResponse {
                high_watermark: Offset(8),
                log_start_offset: Offset(2),
                records: vec![Bytes::from_static(b"two "), Bytes::from_static(b"parts")],
                ..Default::default()
            };
            let topic = FetchTopicResponse {
                partitions: vec![partition],
                ..Default::default()
            };
            let response = FetchResponse {
                responses: vec![topic],
                ..Default::default()
            };
            Reply::Answer(response.into())
        }
        ApiRequest::ListOffsets(request) => {
            let timestamp = request.topics[0].partitions[0].timestamp;
            let partition = ListOffsetsPartitionResponse {
                offset: Offset(1000 + timestamp),
                ..Default::default()
            };
            let topic = ListOffsetsTopicResponse {
                partitions: vec![partition],
                ..Default::default()
            };
            let response = ListOffsetsResponse {
                topics: vec![topic],
                ..Default::default()
            };
            Reply::Answer(response.into())
        }
        _ => metadata(&ports, 1),
    });
    with_client(&bootstrap, options(), async |client| {
        let fetched = client.fetch(Offset(5), 100, 4096).await.expect("records");
        assert_eq!(fetched.records, Bytes::from_static(b"two parts"));
        assert_eq!(
            (fetched.high_watermark, fetched.log_start),
            (Offset(8), Offset(2))
        );
        assert_eq!(
            client.list_offsets(OffsetSpec::Latest).await.expect("-1"),
            Offset(999)
        );
        assert_eq!(
            client.list_offsets(OffsetSpec::Earliest).await.expect("-2"),
            Offset(998)
        );
    });
    let fetch = requests.iter().find_map(|request| match request {
        ApiRequest::Fetch(fetch) => Some(fetch),
        _ => None,
    });
    let fetch = fetch.expect("it was asked");
    assert_eq!(
        (fetch.max_wait_ms, fetch.max_bytes, fetch.fetching_replica()),
        (100, 4096, -1)
    );
    assert_eq!(fetch.topics[0].partitions[0].fetch_offset, Offset(5));
}

#[test]
fn controllers_are_found_by_describe_cluster_and_take_no_records() {
    let (first, second) = (Port::open(), Port::open());
    let ports = [first.number(), second.number()];
    let bootstrap = [first.address()];
    first.serve(ListenerKind::Controller, move |request| {
        let ApiRequest::DescribeCluster(request) = request else {
            panic!("{request:?}");
        };
        assert_eq!(request.endpoint_type, 2);
        let broker = |(id, port): (i32, &u16)| DescribeClusterBroker {
            broker_id: id,
            host: "127.0.0.1".to_owned(),
            port: i32::from(*port),
            ..Default::default()
        };
        let response = DescribeClusterResponse {
            controller_id: 2,
            brokers: (1..).zip(&ports).map(broker).collect(),
            ..Default::default()
        };
        Reply::Answer(response.into())
    });
    second.serve(ListenerKind::Controller, |_| {
        let partition = DescribeQuorumPartitionResponse {
            leader_id: 2,
            ..Default::default()
        };
        let topic = DescribeQuorumTopicResponse {
            partitions: vec![partition],
            ..Default::default()
        };
        let response = DescribeQuorumResponse {
            topics: vec![topic],
            ..Default::default()
        };
        Reply::Answer(response.into())
    });
    run(async {
        let kind = ListenerKind::Controller;
        let mut client = Client::connect_with(&bootstrap, kind, options())
            .await
            .expect("found");
        let quorum = client.describe_quorum().await.expect("the leader knows");
        assert_eq!(quorum.topics[0].partitions[0].leader_id, 2);
        let refused = client.produce(Bytes::new()).await.expect_err("not there");
        assert!(
            matches!(refused, ClientError::NotOnController { .. }),
            "{refused}"
        );
    })
    .expect("io_uring works");
}

#[test]
fn giving_up_names_the_address_and_the_last_failure() {
    let gone = Port::open();
    let bootstrap = [gone.address()];
    let port = gone.number();
    drop(gone);
    let connecting = Client::connect_with(&bootstrap, ListenerKind::Client, impatient());
    let error = run(connecting)
        .expect("io_uring works")
        .err()
        .expect("nobody is there");
    let text = error.to_string();
    let expected = format!("cannot connect to 127.0.0.1:{port}: Connection refused");
    assert!(
        text.starts_with("gave up after") && text.contains(&expected),
        "{text}"
    );
}

#[test]
fn election_without_end_is_told_as_such() {
    let node = Port::open();
    let port = node.number();
    let bootstrap = [node.address()];
    node.serve(ListenerKind::Client, move |_| metadata(&[port], -1));
    let connecting = Client::connect_with(&bootstrap, ListenerKind::Client, impatient());
    let error = run(connecting)
        .expect("io_uring works")
        .err()
        .expect("no leader");
    assert!(error.to_string().contains("knows no leader"), "{error}");
}

#[test]
fn silent_server_costs_no_more_than_the_time_allowed() {
    let node = Port::open();
    let bootstrap = [node.address()];
    // Nobody accepts; the kernel takes the connection, and no answer comes.
    let options = ClientOptions {
        answer_timeout: Duration::from_millis(30),
        deadline: Duration::from_millis(20),
        ..options()
    };
    let connecting = Client::connect_with(&bootstrap, ListenerKind::Client, options);
    let error = run(connecting)
        .expect("io_uring works")
        .err()
        .expect("silence");
    assert!(
        error.to_string().contains("did not answer within"),
        "{error}"
    );
}

#[test]
fn no_bootstrap_address_is_an_error_of_its_own() {
    let connecting = Client::connect(&[], ListenerKind::Client);
    let error = run(connecting)
        .expect("io_uring works")
        .err()
        .expect("nowhere to go");
    assert!(matches!(error, ClientError::NoBootstrap), "{error}");
}
