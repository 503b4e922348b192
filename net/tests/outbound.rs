//! The client's side of a connection against the server's, and against peers that are not ours.

use quorate_net::apis::{QUORATE_PEER_FEATURE, api_versions_response};
use quorate_net::frame::write_frame;
use quorate_net::wire::api_versions::{ApiVersion, ApiVersionsResponse};
use quorate_net::wire::fetch::{FetchPartition, FetchRequest, FetchTopic, ReplicaState};
use quorate_net::wire::vote::{VotePartition, VoteRequest, VoteResponse, VoteTopic};
use quorate_net::wire::{EncodeError, ResponseHeader};
use quorate_net::{
    ApiKey, ApiRequest, ApiResponse, Connection, Inbound, Limits, ListenerKind, Outbound,
    OutboundError, UnsupportedVersion, Writer,
};
use quorate_raft::ErrorCode;

fn controller() -> Connection {
    Connection::new(ListenerKind::Controller, Limits::default())
}

/// Carries what the client has to send to the server.
fn deliver(outbound: &mut Outbound, server: &mut Connection) {
    while let Some(bytes) = outbound.take_output() {
        server.received(&bytes);
        outbound.recycle(bytes);
    }
}

/// Carries what the server has to send to the client.
fn deliver_back(server: &mut Connection, outbound: &mut Outbound) {
    while let Some(bytes) = server.take_output() {
        outbound.received(&bytes);
        server.recycle(bytes);
    }
}

fn take(server: &mut Connection) -> Inbound {
    server
        .next_request()
        .expect("a good request")
        .expect("a whole request")
}

/// Negotiates with a server that answers as told.
fn connected_to(versions: ApiVersionsResponse) -> (Outbound, Connection) {
    let mut outbound = Outbound::new("a client");
    let mut server = controller();
    deliver(&mut outbound, &mut server);
    let asked = take(&mut server);
    server
        .respond_with(asked.slot, &versions.into())
        .expect("it can be said");
    deliver_back(&mut server, &mut outbound);
    assert_eq!(
        outbound.next_response(),
        Ok(None),
        "the negotiation is not the caller's"
    );
    (outbound, server)
}

fn connected() -> (Outbound, Connection) {
    connected_to(api_versions_response(
        ListenerKind::Controller,
        5,
        &Default::default(),
    ))
}

/// What a peer tells that serves one API.
fn serving(api: ApiKey, min_version: i16, max_version: i16) -> ApiVersionsResponse {
    ApiVersionsResponse {
        api_keys: vec![ApiVersion {
            api_key: api.code(),
            min_version,
            max_version,
        }],
        ..Default::default()
    }
}

fn vote(pre_vote: bool) -> ApiRequest {
    let partition = VotePartition {
        pre_vote,
        ..Default::default()
    };
    let topic = VoteTopic {
        topic_name: "t".to_owned(),
        partitions: vec![partition],
    };
    let request = VoteRequest {
        topics: vec![topic],
        ..Default::default()
    };
    request.into()
}

/// A server's bytes: one response without a tagged header.
fn response_frame(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Writer::new();
    write_frame(&mut out, |out| -> Result<(), EncodeError> {
        ResponseHeader { correlation_id }.encode(ApiKey::ApiVersions, 0, out);
        out.put(body);
        Ok(())
    })
    .expect("short");
    out.into_bytes()
}

#[test]
fn first_request_asks_for_versions_and_says_who_asks() {
    let mut outbound = Outbound::new("raft-client-1");
    let mut server = controller();
    assert!(!outbound.is_ready());
    assert_eq!(
        outbound.enqueue(&vote(false), 1),
        Err(UnsupportedVersion::NotKnownYet)
    );
    deliver(&mut outbound, &mut server);
    let asked = take(&mut server);
    assert_eq!(asked.header.client_id.as_deref(), Some("raft-client-1"));
    assert_eq!(asked.header.api_version, 5);
    let ApiRequest::ApiVersions(request) = asked.request else {
        panic!("{:?}", asked.request);
    };
    assert_eq!(request.client_software_name, "quorate");
    assert_eq!(request.client_software_version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn answers_are_paired_with_several_requests_in_flight() {
    let (mut outbound, mut server) = connected();
    assert!(outbound.is_ready());
    assert!(outbound.peer_has_feature(QUORATE_PEER_FEATURE));
    assert!(!outbound.peer_has_feature("no.such"));
    for id in [40, 41, 42] {
        outbound
            .enqueue(&vote(true), id)
            .expect("a Quorate peer knows it");
    }
    deliver(&mut outbound, &mut server);
    let slots: Vec<_> = (0..3).map(|_| take(&mut server)).collect();
    assert!(slots.iter().all(|inbound| inbound.request == vote(true)));
    for inbound in slots.iter().rev() {
        let error_code = ErrorCode(i16::try_from(inbound.header.correlation_id).expect("small"));
        let response = VoteResponse {
            error_code,
            ..Default::default()
        };
        server
            .respond_with(inbound.slot, &response.into())
            .expect("it can be said");
    }
    deliver_back(&mut server, &mut outbound);
    for expected in [40, 41, 42] {
        let (id, response) = outbound.next_response().expect("good").expect("there");
        assert_eq!(id, expected);
        let response_expected = VoteResponse {
            error_code: ErrorCode(i16::try_from(id).expect("small")),
            ..Default::default()
        };
        assert_eq!(response, ApiResponse::Vote(response_expected));
    }
    assert_eq!(outbound.requests_in_flight(), 0);
}

#[test]
fn highest_common_version_is_spoken() {
    let own_max = |max| {
        connected_to(serving(ApiKey::Vote, 0, max))
            .0
            .version_of(ApiKey::Vote)
    };
    assert_eq!(own_max(1), Some(1));
    assert_eq!(own_max(2), Some(2));
    assert_eq!(own_max(9), Some(2));
    let (outbound, _) = connected_to(serving(ApiKey::Vote, 3, 9));
    assert_eq!(outbound.version_of(ApiKey::Vote), None);
    assert_eq!(outbound.version_of(ApiKey::Fetch), None);
}

#[test]
fn pre_vote_is_not_said_to_a_peer_that_would_take_it_for_a_vote() {
    let (mut outbound, mut server) = connected_to(serving(ApiKey::Vote, 0, 1));
    let refused = outbound.enqueue(&vote(true), 1);
    let error = EncodeError::FieldNotInVersion {
        field: "VotePartition.pre_vote",
        version: 1,
    };
    let api = ApiKey::Vote;
    assert_eq!(refused, Err(UnsupportedVersion::Content { api, error }));
    assert_eq!(outbound.take_output(), None, "nothing of it was written");
    outbound
        .enqueue(&vote(false), 2)
        .expect("a vote can be said");
    deliver(&mut outbound, &mut server);
    assert_eq!(take(&mut server).header.correlation_id, 2);
}

#[test]
fn api_that_the_peer_does_not_serve_is_refused() {
    let (mut outbound, _) = connected_to(serving(ApiKey::Fetch, 4, 18));
    let refused = outbound.enqueue(&vote(false), 1);
    assert_eq!(refused, Err(UnsupportedVersion::Api { api: ApiKey::Vote }));
}

#[test]
fn fetching_replica_is_said_where_the_version_has_it() {
    for (max_version, replica_id, in_state) in [(14, 3, -1), (18, -1, 3)] {
        let (mut outbound, mut server) = connected_to(serving(ApiKey::Fetch, 4, max_version));
        let topic = FetchTopic {
            partitions: vec![FetchPartition::default()],
            ..Default::default()
        };
        let request = FetchRequest {
            replica_state: ReplicaState {
                replica_id: 3,
                replica_epoch: -1,
            },
            topics: vec![topic],
            ..Default::default()
        };
        outbound
            .enqueue(&request.into(), 1)
            .expect("it can be said");
        deliver(&mut outbound, &mut server);
        let ApiRequest::Fetch(fetch) = take(&mut server).request else {
            panic!("not a Fetch");
        };
        assert_eq!(
            (fetch.replica_id, fetch.replica_state.replica_id),
            (replica_id, in_state)
        );
        assert_eq!(fetch.fetching_replica(), 3);
    }
}

#[test]
fn older_peer_is_asked_again_in_the_version_that_it_names() {
    let mut outbound = Outbound::new("a client");
    let mut server = controller();
    deliver(&mut outbound, &mut server);
    let _first = take(&mut server);
    // Error 35 in version 0: one API, 18 from 0 to 3.
    outbound.received(&response_frame(0, &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 3]));
    assert_eq!(outbound.next_response(), Ok(None));
    deliver(&mut outbound, &mut server);
    assert_eq!(take(&mut server).header.api_version, 3);
    // Version 3: no error, one API (Vote 0 to 2), no throttling, no tags.
    outbound.received(&response_frame(
        0,
        &[0, 0, 2, 0, 52, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
    ));
    assert_eq!(outbound.next_response(), Ok(None));
    assert!(outbound.is_ready());
    assert_eq!(outbound.version_of(ApiKey::Vote), Some(2));
}

#[test]
fn peer_that_refuses_every_version_ends_the_connection() {
    let mut outbound = Outbound::new("a client");
    outbound.received(&response_frame(0, &[0, 35, 0, 0, 0, 0]));
    assert_eq!(
        outbound.next_response(),
        Ok(None),
        "one more try in version 0"
    );
    outbound.received(&response_frame(0, &[0, 35, 0, 0, 0, 0]));
    let error = ErrorCode::UNSUPPORTED_VERSION;
    assert_eq!(
        outbound.next_response(),
        Err(OutboundError::Negotiation { error })
    );
}

#[test]
fn peer_that_refuses_what_it_names_is_not_asked_for_ever() {
    let mut outbound = Outbound::new("a client");
    for _ in 0..5 {
        // Error 35, and yet: 18 from 0 to 5.
        outbound.received(&response_frame(0, &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5]));
        assert_eq!(outbound.next_response(), Ok(None));
    }
    outbound.received(&response_frame(0, &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5]));
    outbound
        .next_response()
        .expect_err("version 0 was the last to try");
}

#[test]
fn answer_to_nothing_ends_the_connection() {
    let (mut outbound, _) = connected();
    outbound.received(&response_frame(5, &[0]));
    assert_eq!(
        outbound.next_response(),
        Err(OutboundError::Unasked { correlation_id: 5 })
    );
}

#[test]
fn answer_out_of_turn_ends_the_connection() {
    let (mut outbound, _) = connected();
    outbound.enqueue(&vote(false), 1).expect("it can be said");
    outbound.received(&response_frame(2, &[0, 0, 0, 1, 0]));
    let expected = OutboundError::WrongCorrelation {
        api: ApiKey::Vote,
        expected: 1,
        got: 2,
    };
    assert_eq!(outbound.next_response(), Err(expected));
}

#[test]
fn malformed_answer_ends_the_connection() {
    let (mut outbound, _) = connected();
    outbound.enqueue(&vote(false), 1).expect("it can be said");
    outbound.received(&response_frame(1, &[0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]));
    let error = outbound
        .next_response()
        .expect_err("it announces 4 G topics");
    assert!(
        error
            .to_string()
            .starts_with("malformed Vote response of version 2"),
        "{error}"
    );
}
