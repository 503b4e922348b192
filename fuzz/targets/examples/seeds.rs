//! Writes first inputs for every target, from which libFuzzer goes on:
//! `cargo run -p quorate-fuzz --example seeds -- fuzz/corpus`.

use bytes::Bytes;
use quorate_net::apis::{api_versions_response, api_versions_unsupported};
use quorate_net::wire::{
    LeaderIdAndEpoch, Uuid, api_versions, begin_quorum_epoch as begin, describe_cluster,
    describe_quorum, end_quorum_epoch as end, fetch, list_offsets, metadata, produce, vote,
};
use quorate_net::{ApiKey, ApiRequest, ApiResponse, ListenerKind, Writer};
use quorate_raft::{ElectionState, Epoch, EpochStart, Offset};
use quorate_storage::format::{
    BatchBuilder, LeaderChange, LogIdentity, MARK_BYTES, Mark, NewRecord, encode_epoch_checkpoint,
    encode_log_identity, encode_partition_metadata, encode_quorum_state_v0, encode_quorum_state_v1,
    leader_change_batch,
};
use std::path::PathBuf;

const TOPIC: &str = "__cluster_metadata";
const TOPIC_ID: Uuid = Uuid([7; 16]);
const KINDS: [ListenerKind; 2] = [ListenerKind::Client, ListenerKind::Controller];

struct Out {
    dir: PathBuf,
    count: usize,
}

impl Out {
    fn put(&mut self, target: &str, input: &[u8]) {
        let dir = self.dir.join(target);
        std::fs::create_dir_all(&dir).expect("a directory");
        self.count += 1;
        std::fs::write(dir.join(format!("seed-{:04}", self.count)), input).expect("a file");
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("where to");
    let mut out = Out {
        dir: dir.into(),
        count: 0,
    };
    messages(&mut out);
    batches(&mut out);
    files(&mut out);
    recovery(&mut out);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /readyz?verbose&x=1 HTTP/1.0\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET /livez HTTP/9.9\r\n\r\n",
        "\r\n\r\nHEAD * HTTP/1.1\r\n: \r\n\r\n",
    ] {
        out.put("admin", request.as_bytes());
    }
    println!("{} inputs", out.count);
}

fn name() -> String {
    TOPIC.to_owned()
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    builder.push(NewRecord {
        key: Some(b"key"),
        headers: &[("h", Some(b"v")), ("null", None)],
        ..NewRecord::value(1000, b"one")
    });
    builder.push(NewRecord::value(1001, b"two"));
    builder.build()
}

fn idempotent_batch() -> Vec<u8> {
    let mut builder = BatchBuilder::produced().idempotent(5, 0, 0);
    builder.push(NewRecord::value(1000, b"one"));
    builder.build()
}

fn request(api: ApiKey) -> Option<ApiRequest> {
    Some(match api {
        ApiKey::Produce => {
            let partition = |records: Vec<u8>| produce::ProducePartition {
                index: 0,
                records: Some(records.into()),
            };
            ApiRequest::Produce(produce::ProduceRequest {
                acks: -1,
                timeout_ms: 1000,
                topic_data: vec![produce::ProduceTopic {
                    name: name(),
                    topic_id: TOPIC_ID,
                    partition_data: vec![partition(batch()), partition(idempotent_batch())],
                }],
                ..Default::default()
            })
        }
        ApiKey::Fetch => ApiRequest::Fetch(fetch::FetchRequest {
            max_wait_ms: 100,
            min_bytes: 1,
            topics: vec![fetch::FetchTopic {
                topic: name(),
                topic_id: TOPIC_ID,
                partitions: vec![fetch::FetchPartition {
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::ListOffsets => ApiRequest::ListOffsets(list_offsets::ListOffsetsRequest {
            topics: vec![list_offsets::ListOffsetsTopic {
                name: name(),
                partitions: vec![list_offsets::ListOffsetsPartition {
                    timestamp: -1,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::Metadata => ApiRequest::Metadata(metadata::MetadataRequest {
            topics: Some(vec![metadata::MetadataTopicRequest {
                name: Some(name()),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        ApiKey::ApiVersions => ApiRequest::ApiVersions(api_versions::ApiVersionsRequest {
            client_software_name: "fuzz".to_owned(),
            client_software_version: "1".to_owned(),
            ..Default::default()
        }),
        ApiKey::Vote => ApiRequest::Vote(vote::VoteRequest {
            cluster_id: Some("fuzz".to_owned()),
            voter_id: 1,
            topics: vec![vote::VoteTopic {
                topic_name: name(),
                partitions: vec![vote::VotePartition {
                    replica_epoch: Epoch(2),
                    replica_id: 2,
                    ..Default::default()
                }],
            }],
        }),
        ApiKey::BeginQuorumEpoch => ApiRequest::BeginQuorumEpoch(begin::BeginQuorumEpochRequest {
            cluster_id: Some("fuzz".to_owned()),
            voter_id: 1,
            topics: vec![begin::BeginQuorumEpochTopic {
                topic_name: name(),
                partitions: vec![begin::BeginQuorumEpochPartition {
                    leader_id: 2,
                    leader_epoch: Epoch(3),
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::EndQuorumEpoch => ApiRequest::EndQuorumEpoch(end::EndQuorumEpochRequest {
            cluster_id: Some("fuzz".to_owned()),
            topics: vec![end::EndQuorumEpochTopic {
                topic_name: name(),
                partitions: vec![end::EndQuorumEpochPartition {
                    leader_id: 2,
                    leader_epoch: Epoch(3),
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::DescribeQuorum => {
            ApiRequest::DescribeQuorum(describe_quorum::DescribeQuorumRequest {
                topics: vec![describe_quorum::DescribeQuorumTopic {
                    topic_name: name(),
                    partitions: vec![Default::default()],
                }],
            })
        }
        ApiKey::DescribeCluster => {
            ApiRequest::DescribeCluster(describe_cluster::DescribeClusterRequest::default())
        }
        #[allow(unreachable_patterns)] // APIs to come
        _ => return None,
    })
}

fn response(api: ApiKey) -> Option<ApiResponse> {
    Some(match api {
        ApiKey::ApiVersions => ApiResponse::ApiVersions(api_versions_response(
            ListenerKind::Controller,
            5,
            &Default::default(),
        )),
        ApiKey::Fetch => ApiResponse::Fetch(fetch::FetchResponse {
            responses: vec![fetch::FetchTopicResponse {
                topic: name(),
                topic_id: TOPIC_ID,
                partitions: vec![fetch::FetchPartitionResponse {
                    high_watermark: Offset(1),
                    current_leader: LeaderIdAndEpoch {
                        leader_id: 2,
                        leader_epoch: Epoch(3),
                    },
                    records: vec![Bytes::from(leader_change())],
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::Vote => ApiResponse::Vote(vote::VoteResponse {
            topics: vec![vote::VoteTopicResponse {
                topic_name: name(),
                partitions: vec![vote::VotePartitionResponse {
                    leader_id: -1,
                    leader_epoch: Epoch(1),
                    vote_granted: true,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }),
        ApiKey::BeginQuorumEpoch => {
            ApiResponse::BeginQuorumEpoch(begin::BeginQuorumEpochResponse {
                topics: vec![begin::BeginQuorumEpochTopicResponse {
                    topic_name: name(),
                    partitions: vec![Default::default()],
                }],
                ..Default::default()
            })
        }
        ApiKey::EndQuorumEpoch => ApiResponse::EndQuorumEpoch(Default::default()),
        ApiKey::Produce => ApiResponse::Produce(produce::ProduceResponse {
            responses: vec![produce::ProduceTopicResponse {
                name: name(),
                partition_responses: vec![Default::default()],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ApiKey::Metadata => ApiResponse::Metadata(metadata::MetadataResponse {
            brokers: vec![Default::default()],
            topics: vec![metadata::MetadataTopic {
                name: Some(name()),
                partitions: vec![Default::default()],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ApiKey::ListOffsets => ApiResponse::ListOffsets(Default::default()),
        ApiKey::DescribeQuorum => {
            ApiResponse::DescribeQuorum(describe_quorum::DescribeQuorumResponse {
                topics: vec![describe_quorum::DescribeQuorumTopicResponse {
                    topic_name: name(),
                    partitions: vec![Default::default()],
                }],
                nodes: vec![Default::default()],
                ..Default::default()
            })
        }
        ApiKey::DescribeCluster => ApiResponse::DescribeCluster(Default::default()),
        #[allow(unreachable_patterns)] // APIs to come
        _ => return None,
    })
}

fn leader_change() -> Vec<u8> {
    let change = LeaderChange {
        leader_id: 2,
        voters: vec![1, 2, 3],
        granting_voters: vec![2, 3],
    };
    leader_change_batch(Offset(0), Epoch(3), 1000, &change)
}

fn encoded(encode: impl FnOnce(&mut Writer) -> bool) -> Option<Vec<u8>> {
    let mut out = Writer::new();
    encode(&mut out).then(|| out.into_bytes())
}

fn messages(out: &mut Out) {
    let mut streams = vec![Vec::new(); 2];
    for (k, kind) in (0_u8..).zip(KINDS) {
        for (a, (api, versions)) in (0_u8..).zip(kind.apis()) {
            let (Some(mut request), Some(response)) = (request(*api), response(*api)) else {
                continue;
            };
            for (v, version) in (0_u8..).zip(versions.clone()) {
                if let ApiRequest::Fetch(fetch) = &mut request {
                    fetch.place_replica(version);
                }
                if let Some(body) = encoded(|out| request.encode(version, out).is_ok()) {
                    out.put("requests", &[&[k, a, v], &body[..]].concat());
                    steps(out, k, a, v, &body);
                    let frame = framed(*api, version, &body);
                    streams[usize::from(k)].extend_from_slice(&frame);
                    out.put("frames", &[&[0, k, 2, 3, 0], &frame[..]].concat());
                }
                if let Some(body) = encoded(|out| response.encode(version, out).is_ok()) {
                    out.put("responses", &[&[k, a, v], &body[..]].concat());
                }
            }
        }
        let stream = &streams[usize::from(k)];
        out.put("frames", &[&[0, k, 1, 100], &stream[..]].concat());
    }
    let unsupported = api_versions_unsupported(ListenerKind::Client);
    let body = encoded(|out| unsupported.encode(0, out).is_ok()).expect("version 0");
    let answer = [&[0, 0, 0, body.len() as u8 + 4, 0, 0, 0, 0], &body[..]].concat();
    out.put("frames", &[&[2, 0, 1, 3], &answer[..]].concat());
    let versions = api_versions_response(ListenerKind::Controller, 5, &Default::default());
    for version in 0..=4_i16 {
        let body = encoded(|out| versions.encode(version, out).is_ok()).expect("said by all");
        let answer = [&[0, 0, 0, body.len() as u8 + 4, 0, 0, 0, 0], &body[..]].concat();
        out.put("frames", &[&[2, 0, 1, 3], &answer[..]].concat());
    }
}

fn framed(api: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let header = quorate_net::RequestHeader {
        api_key: api.code(),
        api_version: version,
        correlation_id: 1,
        client_id: None,
    };
    let mut out = Writer::new();
    header.encode(api, &mut out).expect("short");
    let head = out.into_bytes();
    let length = (head.len() + body.len()) as u32;
    [&length.to_be_bytes()[..], &head, body].concat()
}

/// Inputs of `node`: a leader of one or three voters, and one request.
fn steps(out: &mut Out, kind: u8, api: u8, version: u8, body: &[u8]) {
    let lane = if kind == 0 { 0 } else { 2 };
    let length = (body.len() as u16).to_be_bytes();
    let ask = [&[lane, api, version], &length[..], body].concat();
    for (voters, elect) in [
        (0_u8, &[6, 200, 7, 7][..]),
        (1, &[6, 200, 4, 7, 4, 7, 4, 4, 7][..]),
        (1, &[][..]),
    ] {
        out.put(
            "node",
            &[&[voters], elect, &ask, &[7, 6, 10], &ask, &[7]].concat(),
        );
    }
}

fn batches(out: &mut Out) {
    let all = [batch(), idempotent_batch(), leader_change()];
    for one in &all {
        for flag in [0, 1] {
            out.put("batches", &[&[flag], &one[..]].concat());
        }
    }
    out.put("batches", &[&[1], &all.concat()[..]].concat());
    for codec in 1..=4 {
        let mut one = batch();
        one[22] = codec;
        out.put("batches", &[&[1], &one[..]].concat());
    }
    let mark = Mark::of_spare();
    let mut block = vec![0; MARK_BYTES];
    mark.encode(LogIdentity([7; 16]), &mut block);
    out.put("marks", &[&[0], &block[..]].concat());
    out.put("marks", &[&[1], &block[..128]].concat());
}

fn files(out: &mut Out) {
    let election = ElectionState {
        epoch: Epoch(7),
        leader_id: Some(2),
        voted: None,
    };
    let epochs = [(1, 0), (3, 10)].map(|(epoch, start)| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(start),
    });
    let meta = b"version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=b8tRS7h4TJ2Vt43Dp85v2A\n";
    for (which, content) in [
        (0, encode_quorum_state_v0(&election, &[1, 2, 3])),
        (0, encode_quorum_state_v1(&election)),
        (1, encode_epoch_checkpoint(&epochs)),
        (2, encode_log_identity(LogIdentity([7; 16]))),
        (3, encode_partition_metadata([7; 16])),
        (4, meta.to_vec()),
    ] {
        out.put("state_files", &[&[which], &content[..]].concat());
    }
    let config = b"# c\nnode.id=1\nprocess.roles=controller\n\
        listeners=CLIENT://127.0.0.1:9092,CONTROLLER://[::1]:9093\n\
        controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093,2@b:1\n\
        log.dirs=/tmp/x\\\n  y\nlog.group.max.bytes : 4096\n!x\nquorum.topic.name \\u0041\n";
    out.put("settings", config);
    for key in quorate::config::keys::ALL {
        let value = match key.default {
            quorate::config::keys::Absent::Value(value) => value,
            _ => "1",
        };
        let line = format!("{}={value}\n", key.name);
        out.put("settings", line.as_bytes());
    }
}

fn recovery(out: &mut Out) {
    let marker = b"{\"version\":0,\"log_end_offset\":1,\"epoch\":4}\n";
    for log in [0, 1] {
        out.put("recovery", &[log]);
        for file in 0..12 {
            for what in 0..6 {
                let edit = [
                    &[log, file, what, 0x10, 0x10, marker.len() as u8],
                    &marker[..],
                ];
                out.put("recovery", &edit.concat());
            }
        }
    }
}
