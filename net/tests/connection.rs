//! The server's side of a connection, as a client sees it: what comes back, in which order, and
//! what costs a client its connection.

use bytes::Bytes;
use quorate_net::apis::{QUORATE_PEER_FEATURE, api_versions_response};
use quorate_net::frame::{FrameError, write_frame};
use quorate_net::wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use quorate_net::wire::fetch::{FetchRequest, FetchResponse};
use quorate_net::wire::metadata::{MetadataRequest, MetadataResponse, MetadataTopic};
use quorate_net::wire::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use quorate_net::wire::vote::VoteRequest;
use quorate_net::wire::{EncodeError, ResponseHeader};
use quorate_net::{
    ApiKey, ApiRequest, ApiResponse, Connection, ConnectionError, Inbound, Limits, ListenerKind,
    Reader, RequestHeader, Slot, Writer,
};
use quorate_raft::ErrorCode;

const METADATA_VERSION: i16 = 12;

fn connection(kind: ListenerKind) -> Connection {
    Connection::new(kind, Limits::default())
}

fn request_frame(request: &ApiRequest, version: i16, correlation_id: i32) -> Vec<u8> {
    let api = request.api();
    let header = RequestHeader {
        api_key: api.code(),
        api_version: version,
        correlation_id,
        client_id: Some("a test".to_owned()),
    };
    let mut out = Writer::new();
    write_frame(&mut out, |out| {
        header.encode(api, out)?;
        request.encode(version, out)
    })
    .expect("the version can say it");
    out.into_bytes()
}

fn metadata_frame(correlation_id: i32) -> Vec<u8> {
    request_frame(
        &MetadataRequest::default().into(),
        METADATA_VERSION,
        correlation_id,
    )
}

fn produce(records: Bytes) -> ApiRequest {
    let partition_data = vec![ProducePartition {
        index: 0,
        records: Some(records),
    }];
    let topic = ProduceTopic {
        name: "t".to_owned(),
        partition_data,
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        topic_data: vec![topic],
        ..Default::default()
    };
    request.into()
}

fn take(connection: &mut Connection) -> Inbound {
    connection
        .next_request()
        .expect("a good frame")
        .expect("a whole frame")
}

fn answer(connection: &mut Connection, slot: Slot, cluster_id: &str) {
    let response = MetadataResponse {
        cluster_id: Some(cluster_id.to_owned()),
        ..Default::default()
    };
    connection
        .respond_with(slot, &response.into())
        .expect("every version can say it");
}

/// Correlation id and body of each response that is ready to leave.
fn output_of(connection: &mut Connection, api: ApiKey, version: i16) -> Vec<(i32, ApiResponse)> {
    let mut input = quorate_net::frame::FrameReader::new(1 << 20);
    while let Some(output) = connection.take_output() {
        input.received(&output);
        connection.recycle(output);
    }
    let mut responses = Vec::new();
    while let Some(frame) = input.next_frame().expect("good lengths") {
        let mut reader = Reader::new(&frame);
        let header = ResponseHeader::decode(api, version, &mut reader).expect("a header");
        let response = ApiResponse::decode(api, version, &mut reader).expect("a body");
        responses.push((header.correlation_id, response));
    }
    assert!(input.is_empty(), "half a frame left");
    responses
}

fn answered_ids(connection: &mut Connection) -> Vec<i32> {
    let responses = output_of(connection, ApiKey::Metadata, METADATA_VERSION);
    responses.into_iter().map(|(id, _)| id).collect()
}

/// A frame around bytes that need not be a request.
fn raw_frame(content: &[u8]) -> Vec<u8> {
    let length = i32::try_from(content.len()).expect("short");
    [&length.to_be_bytes(), content].concat()
}

fn refusal(kind: ListenerKind, stream: &[u8]) -> ConnectionError {
    let mut connection = connection(kind);
    connection.received(stream);
    connection.next_request().expect_err("it must be refused")
}

#[test]
fn request_delivered_byte_by_byte_arrives_whole() {
    let records = Bytes::from(vec![0x5a; 3000]);
    let frame = request_frame(&produce(records.clone()), 9, 17);
    let mut connection = connection(ListenerKind::Client);
    for byte in &frame[..frame.len() - 1] {
        connection.received(&[*byte]);
        assert!(
            connection
                .next_request()
                .expect("nothing is wrong yet")
                .is_none()
        );
    }
    connection.received(&frame[frame.len() - 1..]);
    let inbound = take(&mut connection);
    assert_eq!(inbound.request, produce(records));
    assert_eq!(inbound.header.correlation_id, 17);
    assert_eq!(inbound.header.client_id.as_deref(), Some("a test"));
    assert_eq!(inbound.frame_bytes, frame.len());
    assert!(connection.is_between_requests());
}

#[test]
fn requests_in_one_piece_come_out_one_by_one() {
    let stream: Vec<u8> = (0..5).flat_map(metadata_frame).collect();
    let mut connection = connection(ListenerKind::Client);
    connection.received(&stream);
    let ids: Vec<i32> = (0..5)
        .map(|_| take(&mut connection).header.correlation_id)
        .collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert!(
        connection
            .next_request()
            .expect("nothing is wrong")
            .is_none()
    );
}

#[test]
fn answers_given_out_of_order_leave_in_the_order_of_the_requests() {
    let mut connection = connection(ListenerKind::Client);
    let stream: Vec<u8> = (0..4).flat_map(metadata_frame).collect();
    connection.received(&stream);
    let slots: Vec<Slot> = (0..4).map(|_| take(&mut connection).slot).collect();
    answer(&mut connection, slots[2], "c");
    answer(&mut connection, slots[1], "b");
    assert!(
        connection.take_output().is_none(),
        "the first is not answered yet"
    );
    answer(&mut connection, slots[0], "a");
    let responses = output_of(&mut connection, ApiKey::Metadata, METADATA_VERSION);
    let clusters: Vec<_> = responses
        .into_iter()
        .map(|(id, response)| match response {
            ApiResponse::Metadata(response) => (id, response.cluster_id),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [(0, "a"), (1, "b"), (2, "c")].map(|(id, name)| (id, Some(name.to_owned())));
    assert_eq!(clusters, expected);
    answer(&mut connection, slots[3], "d");
    assert_eq!(answered_ids(&mut connection), [3]);
    assert_eq!(connection.requests_in_flight(), 0);
}

#[test]
fn skipped_request_holds_nobody_up() {
    let mut connection = connection(ListenerKind::Client);
    let stream: Vec<u8> = (0..4).flat_map(metadata_frame).collect();
    connection.received(&stream);
    let slots: Vec<Slot> = (0..4).map(|_| take(&mut connection).slot).collect();
    connection.skip(slots[1]);
    answer(&mut connection, slots[2], "c");
    connection.skip(slots[0]);
    assert_eq!(answered_ids(&mut connection), [2]);
    answer(&mut connection, slots[3], "d");
    assert_eq!(answered_ids(&mut connection), [3]);
}

#[test]
#[should_panic(expected = "one of this connection and open")]
fn answering_twice_is_our_bug() {
    let mut connection = connection(ListenerKind::Client);
    connection.received(&metadata_frame(1));
    let slot = take(&mut connection).slot;
    answer(&mut connection, slot, "a");
    answer(&mut connection, slot, "a");
}

#[test]
fn too_many_requests_in_flight_stop_the_reading() {
    let limits = Limits {
        requests_in_flight_max: 2,
        ..Limits::default()
    };
    let mut connection = Connection::new(ListenerKind::Client, limits);
    let stream: Vec<u8> = (0..3).flat_map(metadata_frame).collect();
    connection.received(&stream);
    assert!(connection.wants_input());
    let first = take(&mut connection).slot;
    let _second = take(&mut connection).slot;
    assert!(!connection.wants_input());
    assert!(
        connection
            .next_request()
            .expect("not wrong, only too much")
            .is_none()
    );
    answer(&mut connection, first, "a");
    assert!(connection.wants_input());
    assert_eq!(take(&mut connection).header.correlation_id, 2);
}

#[test]
fn unread_answers_stop_the_reading_until_they_leave() {
    let limits = Limits {
        output_bytes_max: 100,
        ..Limits::default()
    };
    let mut connection = Connection::new(ListenerKind::Client, limits);
    let stream: Vec<u8> = (0..3).flat_map(metadata_frame).collect();
    connection.received(&stream);
    let first = take(&mut connection).slot;
    let second = take(&mut connection).slot;
    // Held back behind the first, it counts all the same.
    answer(&mut connection, second, &"x".repeat(100));
    assert!(!connection.wants_input());
    answer(&mut connection, first, "a");
    assert!(
        connection
            .next_request()
            .expect("not wrong, only too much")
            .is_none()
    );
    assert_eq!(answered_ids(&mut connection), [0, 1]);
    assert_eq!(take(&mut connection).header.correlation_id, 2);
}

#[test]
fn answer_that_cannot_be_said_ends_the_connection_and_leaves_no_bytes() {
    let mut connection = connection(ListenerKind::Client);
    let stream = [
        request_frame(&MetadataRequest::default().into(), 0, 1),
        request_frame(&MetadataRequest::default().into(), 0, 2),
    ];
    connection.received(&stream.concat());
    let slot = take(&mut connection).slot;
    let nameless = MetadataTopic {
        name: None,
        ..Default::default()
    };
    let response = MetadataResponse {
        topics: vec![nameless],
        ..Default::default()
    };
    let error = EncodeError::Null {
        field: "MetadataTopic.name",
        version: 0,
    };
    let answered = connection.respond_with(slot, &response.into());
    assert_eq!(answered, Err(error.clone()));
    assert!(!connection.wants_input());
    assert_eq!(connection.take_output(), None);
    assert_eq!(
        connection.next_request().expect_err("it is lost"),
        ConnectionError::AnswerLost(error)
    );
}

#[test]
fn frame_above_the_limit_is_refused_by_its_length_alone() {
    let limits = Limits {
        frame_bytes_max: 1000,
        ..Limits::default()
    };
    let mut connection = Connection::new(ListenerKind::Client, limits);
    connection.received(&1001_i32.to_be_bytes());
    let error = connection.next_request().expect_err("too large");
    let expected = FrameError::TooLarge {
        length: 1001,
        bytes_max: 1000,
    };
    assert_eq!(error, ConnectionError::Frame(expected));
}

#[test]
fn negative_frame_length_is_refused() {
    let error = refusal(ListenerKind::Client, &(-1_i32).to_be_bytes());
    assert_eq!(
        error,
        ConnectionError::Frame(FrameError::Negative { length: -1 })
    );
}

#[test]
fn frame_too_short_for_a_header_is_refused() {
    for length in 0..10 {
        let start = [0, 3, 0, 12, 0, 0, 0, 1, 0, 0];
        let error = refusal(ListenerKind::Client, &raw_frame(&start[..length]));
        assert!(
            error.to_string().contains("malformed request header"),
            "{length}: {error}"
        );
    }
}

#[test]
fn unknown_api_is_refused() {
    for api_key in [-1, 4, 10, 23, 59, i16::MAX] {
        let mut content = api_key.to_be_bytes().to_vec();
        content.extend([0, 0, 0, 0, 0, 1, 0xff, 0xff]);
        let error = refusal(ListenerKind::Client, &raw_frame(&content));
        assert!(
            error.to_string().contains("is not served"),
            "{api_key}: {error}"
        );
    }
}

#[test]
fn raft_apis_do_not_exist_on_a_client_listener() {
    let vote = request_frame(&VoteRequest::default().into(), 2, 1);
    let error = refusal(ListenerKind::Client, &vote);
    assert_eq!(
        error.to_string(),
        "api key 52 is not served on a Client listener"
    );
    let mut controller = connection(ListenerKind::Controller);
    controller.received(&vote);
    assert_eq!(take(&mut controller).request.api(), ApiKey::Vote);
    let produce = request_frame(&produce(Bytes::new()), 9, 1);
    refusal(ListenerKind::Controller, &produce);
}

#[test]
fn unsupported_version_of_an_api_is_refused() {
    let mut frame = metadata_frame(1);
    frame[7] = 99;
    let error = refusal(ListenerKind::Client, &frame);
    assert_eq!(error.to_string(), "Metadata version 99 is not served");
}

#[test]
fn client_id_is_checked_like_every_length() {
    let with_client_id = |client_id: &[u8]| {
        let mut content = vec![0, 18, 0, 0, 0, 0, 0, 1];
        content.extend(client_id);
        raw_frame(&content)
    };
    let mut connection = connection(ListenerKind::Client);
    connection.received(&with_client_id(&[0xff, 0xff]));
    assert_eq!(take(&mut connection).header.client_id, None);
    let wrong: [&[u8]; 5] = [
        &[0xff, 0xfe],
        &[0x80, 0],
        &[0x7f, 0xff, b'x'],
        &[0, 1, 0xff],
        &[0, 2, b'x'],
    ];
    for client_id in wrong {
        refusal(ListenerKind::Client, &with_client_id(client_id));
    }
}

#[test]
fn unknown_tags_are_passed_over_and_malformed_ones_refused() {
    let with_header_tags = |tags: &[u8]| {
        let mut content = vec![0, 60, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        content.extend(tags);
        content.extend([0, 0]);
        raw_frame(&content)
    };
    let mut thousand = vec![0xe8, 0x07];
    for tag in 0..1000_u16 {
        thousand.extend([tag as u8 & 0x7f | 0x80, (tag >> 7) as u8, 0]);
    }
    let good: [&[u8]; 4] = [&[0], &[1, 9, 0], &[2, 3, 2, 7, 7, 5, 0], &thousand];
    for tags in good {
        let mut connection = connection(ListenerKind::Client);
        connection.received(&with_header_tags(tags));
        assert_eq!(take(&mut connection).request.api(), ApiKey::DescribeCluster);
    }
    let duplicate: &[u8] = &[2, 3, 0, 3, 0];
    let descending: &[u8] = &[2, 3, 0, 2, 0];
    let beyond_frame: &[u8] = &[1, 3, 100];
    let more_than_there_are: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f];
    for tags in [duplicate, descending, beyond_frame, more_than_there_are] {
        refusal(ListenerKind::Client, &with_header_tags(tags));
    }
}

#[test]
fn unknown_version_of_api_versions_is_answered_in_version_0() {
    for version in [6, 99, -1, i16::MAX] {
        let mut content = vec![0, 18];
        content.extend(version.to_be_bytes());
        // What follows the correlation id belongs to a version that nobody here knows.
        content.extend([0, 0, 0, 7, 1, 2, 3, 4, 5]);
        let mut connection = connection(ListenerKind::Client);
        connection.received(&[raw_frame(&content), metadata_frame(8)].concat());
        let next = take(&mut connection);
        assert_eq!(next.header.correlation_id, 8, "the connection goes on");
        let output = connection
            .take_output()
            .expect("answered without the caller");
        // Length, correlation id, error 35, one API: 18 from 0 to 5.
        let expected = [
            0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5,
        ];
        assert_eq!(output, expected, "version {version}");
    }
}

#[test]
fn each_listener_tells_what_it_serves() {
    for (kind, apis) in [
        (ListenerKind::Client, vec![0, 1, 2, 3, 18, 22, 23, 55, 60]),
        (ListenerKind::Controller, vec![1, 18, 52, 53, 54, 55, 60]),
    ] {
        let answer = api_versions_response(kind, 5, &ApiVersionsRequest::default());
        assert!(answer.error_code.is_none());
        let told: Vec<i16> = answer.api_keys.iter().map(|api| api.api_key).collect();
        assert_eq!(told, apis);
    }
}

#[test]
fn feature_from_level_0_is_told_only_to_clients_that_can_read_it() {
    let features = |version| {
        let request = ApiVersionsRequest::default();
        let answer = api_versions_response(ListenerKind::Controller, version, &request);
        let features = answer.supported_features.into_iter();
        features
            .map(|f| (f.name, f.min_version, f.max_version))
            .collect::<Vec<_>>()
    };
    let kraft = ("kraft.version".to_owned(), 0, 1);
    let peer = (QUORATE_PEER_FEATURE.to_owned(), 1, 1);
    let all = [kraft, peer];
    assert_eq!(features(3), all[1..]);
    assert_eq!(features(4), all);
}

#[test]
fn cluster_id_without_node_id_is_invalid() {
    let request = ApiVersionsRequest {
        cluster_id: Some("c".to_owned()),
        ..Default::default()
    };
    let answer = api_versions_response(ListenerKind::Client, 5, &request);
    let expected = ApiVersionsResponse {
        error_code: ErrorCode::INVALID_REQUEST,
        ..Default::default()
    };
    assert_eq!(answer, expected);
}

/// A thousand Fetches of eighty bytes could ask for a gigabyte at one moment.
#[test]
fn a_fetch_waits_for_the_one_before_it_and_other_requests_do_not() {
    let fetch = |id| request_frame(&FetchRequest::default().into(), 12, id);
    let mut connection = connection(ListenerKind::Client);
    connection.received(&[fetch(0), metadata_frame(1), fetch(2), metadata_frame(3)].concat());
    let first = take(&mut connection).slot;
    let metadata = take(&mut connection).slot;
    assert_eq!(metadata.api(), ApiKey::Metadata);
    let blocked = |connection: &mut Connection| {
        let taken = connection.next_request().expect("not wrong, only early");
        assert!(taken.is_none(), "a second Fetch under way");
    };
    blocked(&mut connection);
    answer(&mut connection, metadata, "a");
    blocked(&mut connection);
    // It is read from all the same, a little: only so it shows whether the client is still there.
    assert!(connection.wants_input());
    connection.received(&vec![0; 64 << 10]);
    assert!(!connection.wants_input());
    let answered = connection.respond_with(first, &FetchResponse::default().into());
    assert_eq!(answered, Ok(()));
    assert!(connection.wants_input());
    assert_eq!(take(&mut connection).header.correlation_id, 2);
}

#[test]
fn a_large_frame_is_refused_by_its_first_bytes_unless_it_brings_records() {
    let limits = Limits::default();
    let start = |length: usize, api: ApiKey| {
        let length = u32::try_from(length).expect("small").to_be_bytes();
        [&length[..], &api.code().to_be_bytes()].concat()
    };
    for (api, length, is_taken) in [
        (ApiKey::Produce, limits.frame_bytes_max, true),
        (ApiKey::Produce, limits.frame_bytes_max + 1, false),
        (ApiKey::Metadata, limits.question_bytes_max, true),
        (ApiKey::Metadata, limits.question_bytes_max + 1, false),
    ] {
        let mut connection = connection(ListenerKind::Client);
        connection.received(&start(length, api));
        let taken = connection.next_request();
        assert_eq!(
            taken.is_ok(),
            is_taken,
            "{api} of {length} bytes: {taken:?}"
        );
    }
}
