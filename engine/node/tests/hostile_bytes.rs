//! Bytes that mean harm, over real sockets, to a real quorum: they cost their sender the connection
//! and nobody else anything.
//!
//! What each request and version withstands in detail, ten thousand damaged frames each among
//! others, is tested without sockets (`fuzz/targets/tests`, `net/src/wire/tests/hostile.rs`).

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::stranger::{Chance, Stranger, decode_answer, frame, framed, resident_bytes};
use common::{Cluster, Described, PROBE_VALUE, RawClient, TOPIC, batch, s, wait_for};
use quorate_net::wire::api_versions::ApiVersionsRequest;
use quorate_net::wire::{begin_quorum_epoch as begin, describe_quorum, fetch, vote};
use quorate_net::{ApiKey, ApiRequest, ApiResponse, ListenerKind, Uuid};
use quorate_raft::Epoch;

const TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
const KINDS: [ListenerKind; 2] = [ListenerKind::Client, ListenerKind::Controller];

/// What a thousand small frames may add to a node's memory.
const GROWTH_MAX: u64 = 50 << 20;

/// A quorum, and what must still be true of it at the end.
struct Besieged {
    cluster: Cluster,
    before: Described,
    resident: Vec<u64>,
}

impl Besieged {
    fn start(voters: usize) -> Self {
        let cluster = Cluster::start(voters);
        let before = cluster.describe();
        let mut besieged = Self {
            cluster,
            before,
            resident: Vec::new(),
        };
        besieged.append_one();
        besieged.resident = besieged.resident();
        besieged
    }

    fn resident(&self) -> Vec<u64> {
        let nodes = self.cluster.nodes().iter();
        nodes
            .map(|node| resident_bytes(node.process.pid() as u32))
            .collect()
    }

    /// The leader's listener of this kind.
    fn address(&self, kind: ListenerKind) -> String {
        let leader = self.cluster.node(self.before.leader_id);
        match kind {
            ListenerKind::Client => leader.address.clone(),
            ListenerKind::Controller => leader.peer_address(),
        }
    }

    fn append_one(&self) {
        let address = self.address(ListenerKind::Client);
        let mut client = RawClient::connect(&address).expect("a node");
        // A disk that is busy with something else may let an append run out of time.
        wait_for("an append is acknowledged", s(30), || {
            let produced = client.produce(&batch(PROBE_VALUE)).ok()?;
            (produced.error == 0).then_some(())
        });
    }

    /// # Panics
    /// Unless all nodes run, in little more memory, under the same leader in the same epoch, and
    /// take appends.
    fn assert_unmoved(&self) {
        let now = self.cluster.describe();
        let of = |described: &Described| (described.leader_id, described.leader_epoch);
        assert_eq!(of(&now), of(&self.before), "another leader or epoch");
        for node in self.cluster.nodes() {
            assert!(node.process.is_running(), "voter {} is gone", node.id);
        }
        for (now, before) in self.resident().iter().zip(&self.resident) {
            assert!(
                now < &(before + GROWTH_MAX),
                "from {before} to {now} bytes of memory"
            );
        }
        self.append_one();
    }
}

/// Every API and version of a kind of listener.
fn all_versions(kind: ListenerKind) -> impl Iterator<Item = (i16, i16)> {
    kind.apis()
        .iter()
        .flat_map(|(api, versions)| versions.clone().map(|version| (api.code(), version)))
}

#[test]
fn damaged_frames_of_every_request_move_nothing() {
    const FRAMES_EACH: usize = 60;
    let besieged = Besieged::start(3);
    let mut chance = Chance(1);
    for kind in KINDS {
        let address = besieged.address(kind);
        for (api, version) in all_versions(kind) {
            let mut stranger = Stranger::connect(&address);
            for number in 0..FRAMES_EACH {
                let mut body: Vec<u8> = (0..chance.below(120))
                    .map(|_| chance.next() as u8)
                    .collect();
                body.truncate(chance.below(120));
                let mut bytes = frame(api, version, &body);
                chance.damage(&mut bytes);
                stranger.send(&bytes);
                // Most end the connection. What follows on it is then nobody's.
                if number % 10 == 9 {
                    stranger = Stranger::connect(&address);
                }
            }
        }
        for _ in 0..500 {
            let noise: Vec<u8> = (0..1000).map(|_| chance.next() as u8).collect();
            Stranger::connect(&address).send(&noise);
        }
    }
    besieged.assert_unmoved();
}

/// KAFKA-2878: a small frame that announces billions of elements took gigabytes.
#[test]
fn announced_counts_reserve_nothing() {
    const CONNECTIONS: usize = 900;
    let besieged = Besieged::start(1);
    let counts: [&[u8]; 7] = [
        &[0xff, 0xff, 0xff, 0xfe],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0xff; 5],
        &[0xff; 10],
    ];
    for kind in KINDS {
        let address = besieged.address(kind);
        let versions: Vec<(i16, i16)> = all_versions(kind).collect();
        let mut open: Vec<Stranger> = Vec::new();
        for number in 0..CONNECTIONS {
            let (api, version) = versions[number % versions.len()];
            // The count stands at every place of a frame of a hundred bytes, in turn.
            let count = counts[number % counts.len()];
            let mut body = vec![0; 80];
            let at = (number / 7) % 70;
            body[at..at + count.len()].copy_from_slice(count);
            let mut stranger = Stranger::connect(&address);
            stranger.send(&frame(api, version, &body));
            open.push(stranger);
        }
        besieged.assert_unmoved();
    }
}

#[test]
fn wrong_lengths_end_the_connection() {
    let besieged = Besieged::start(1);
    for kind in KINDS {
        let lengths = [
            -1,
            i32::MIN,
            i32::MAX,
            9 * 1024 * 1024 + 1,
            512 * 1024 * 1024,
        ];
        for length in lengths {
            let mut stranger = Stranger::connect(&besieged.address(kind));
            stranger.send(&length.to_be_bytes());
            assert!(stranger.is_ended(), "length {length}");
        }
        // A question is short; one that announces a megabyte is not listened to.
        let mut stranger = Stranger::connect(&besieged.address(kind));
        stranger.send(&[0, 0x10, 0, 0, 0, 18, 0, 3]);
        assert!(stranger.is_ended(), "a question of a megabyte");
    }
    besieged.assert_unmoved();
}

#[test]
fn unknown_requests_and_versions_end_the_connection() {
    let besieged = Besieged::start(1);
    for kind in KINDS {
        let served = kind.apis();
        let unknown = (-2..120).chain([i16::MIN, i16::MAX]);
        for api in unknown.filter(|code| served.iter().all(|(api, _)| api.code() != *code)) {
            let mut stranger = Stranger::connect(&besieged.address(kind));
            stranger.send(&frame(api, 0, &[0; 20]));
            assert!(stranger.is_ended(), "{kind:?} took API {api}");
        }
        for (api, versions) in served.iter().filter(|(api, _)| *api != ApiKey::ApiVersions) {
            for version in [versions.start() - 1, versions.end() + 1, i16::MIN, i16::MAX] {
                let mut stranger = Stranger::connect(&besieged.address(kind));
                stranger.send(&frame(api.code(), version, &[0; 20]));
                assert!(stranger.is_ended(), "{kind:?} took {api} {version}");
            }
        }
    }
    besieged.assert_unmoved();
}

/// A node of another kind crashed after 30 hours: the length of a client id was not checked.
#[test]
fn client_ids_are_checked() {
    let besieged = Besieged::start(1);
    let header = |client_id: &[u8]| {
        let head = [0, 18, 0, 0, 0, 0, 0, 7];
        framed(&[&head[..], client_id].concat())
    };
    for kind in KINDS {
        let address = besieged.address(kind);
        let mut well_meant = Stranger::connect(&address);
        for good in [&[0xff, 0xff][..], &[0, 0], &[0, 1, b'x']] {
            well_meant.send(&header(good));
            assert!(well_meant.receive().is_ok(), "{good:?}");
        }
        // Null in a flexible header: tags follow, then two empty compact strings and tags.
        let head = [0, 18, 0, 3, 0, 0, 0, 7, 0xff, 0xff, 0, 1, 1, 0];
        well_meant.send(&framed(&head));
        assert!(
            well_meant.receive().is_ok(),
            "a null client id in a flexible header"
        );
        let bad: [&[u8]; 5] = [
            &[0xff, 0xfe],
            &[0x80, 0],
            &[0x7f, 0xff, b'x'],
            &[0, 2, 0xc3, 0x28],
            &[0, 9, b'x'],
        ];
        for bad in bad {
            let mut stranger = Stranger::connect(&address);
            stranger.send(&header(bad));
            assert!(stranger.is_ended(), "{bad:?}");
        }
        let mut cut = Stranger::connect(&address);
        cut.send(&framed(&[0, 18, 0, 0, 0, 0]));
        assert!(cut.is_ended(), "a frame that ends in its correlation id");
    }
    besieged.assert_unmoved();
}

#[test]
fn every_client_learns_which_versions_there_are() {
    let besieged = Besieged::start(1);
    for kind in KINDS {
        let mut client = Stranger::connect(&besieged.address(kind));
        for version in 0..=5 {
            let request = ApiRequest::ApiVersions(ApiVersionsRequest {
                client_software_name: "test".to_owned(),
                client_software_version: "1".to_owned(),
                ..Default::default()
            });
            let answer = client.ask(version, &request).expect("an answer");
            let ApiResponse::ApiVersions(answer) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(answer.error_code.0, 0, "version {version}");
            assert_eq!(answer.api_keys.len(), kind.apis().len());
        }
        // The same connection goes on: the answer is in version 0, whatever was asked.
        for version in [6, 99, -1, i16::MAX, i16::MIN] {
            client.send(&frame(ApiKey::ApiVersions.code(), version, &[1, 1, 0]));
            let answer = client.receive().expect("an answer");
            let answer = decode_answer(ApiKey::ApiVersions, 0, answer).expect("version 0");
            let ApiResponse::ApiVersions(answer) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(answer.error_code.0, 35);
            let [own] = &answer.api_keys[..] else {
                panic!("{answer:?}")
            };
            assert_eq!((own.api_key, own.min_version, own.max_version), (18, 0, 5));
        }
    }
}

#[test]
fn a_client_with_old_addresses_is_told_so() {
    let besieged = Besieged::start(1);
    let node = besieged.before.leader_id;
    let dir = besieged.cluster.node(node).dir.join("meta.properties");
    let meta = std::fs::read_to_string(dir).expect("an identity");
    let cluster = meta
        .lines()
        .find_map(|line| line.strip_prefix("cluster.id="));
    let cluster = cluster.expect("a cluster id");
    let mut client = Stranger::connect(&besieged.address(ListenerKind::Client));
    for (cluster_id, node_id, error) in [
        (None, -1, 0),
        (Some(cluster), node, 0),
        (Some("another"), node, 129),
        (Some(cluster), node + 1, 129),
        (Some(cluster), -1, 42),
        (None, node, 42),
    ] {
        let request = ApiRequest::ApiVersions(ApiVersionsRequest {
            cluster_id: cluster_id.map(str::to_owned),
            node_id,
            ..Default::default()
        });
        let answer = client.ask(5, &request).expect("an answer");
        let ApiResponse::ApiVersions(answer) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(answer.error_code.0, error, "{cluster_id:?} {node_id}");
    }
}

/// A tagged section of these tags and contents.
fn tags(tags: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_uvarint(&mut bytes, tags.len() as u32);
    for (tag, content) in tags {
        put_uvarint(&mut bytes, *tag);
        put_uvarint(&mut bytes, content.len() as u32);
        bytes.extend_from_slice(content);
    }
    bytes
}

fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn unknown_tags_are_passed_over_and_malformed_ones_end_the_connection() {
    let besieged = Besieged::start(1);
    let large = vec![7; 60_000];
    let many: Vec<(u32, &[u8])> = (100..1100).map(|tag| (tag, &b"x"[..])).collect();
    let good = [
        tags(&[]),
        tags(&[(1000, b"")]),
        tags(&[(1000, b"12345")]),
        tags(&[(1000, &large)]),
        tags(&many),
    ];
    let bad = [
        tags(&[(1000, b"a"), (1000, b"b")]),
        tags(&[(1001, b"a"), (1000, b"b")]),
        vec![1, 50, 100, 0],
        vec![0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0xff; 10],
    ];
    // ApiVersions 3: client id, header's tags, name, version, own tags.
    let in_header = |tags: &[u8]| {
        let head = [0, 18, 0, 3, 0, 0, 0, 7, 0, 1, b's'];
        framed(&[&head[..], tags, &[1, 1, 0]].concat())
    };
    let in_body = |tags: &[u8]| frame(18, 3, &[&[1, 1][..], tags].concat());
    // DescribeQuorum 0: topics[name, partitions[index, tags], tags], tags.
    let nested = |tags: &[u8]| {
        frame(
            55,
            0,
            &[&[2, 2, b't', 2, 0, 0, 0, 0][..], tags, &[0, 0]].concat(),
        )
    };
    for kind in KINDS {
        let address = besieged.address(kind);
        for place in [&in_header as &dyn Fn(&[u8]) -> Vec<u8>, &in_body, &nested] {
            let mut client = Stranger::connect(&address);
            for tags in &good {
                client.send(&place(tags));
                assert!(client.receive().is_ok(), "{} bytes of tags", tags.len());
            }
            for tags in &bad {
                let mut stranger = Stranger::connect(&address);
                stranger.send(&place(tags));
                assert!(stranger.is_ended(), "{tags:?}");
            }
        }
    }
    // A known tag of the wrong size: Fetch's cluster id (tag 0) is a string, and this is longer.
    let body = [
        &[0, 0, 0, 0][..],
        &[0; 17],
        &[1, 1, 1],
        &tags(&[(0, &[2, b'x', 9])]),
    ]
    .concat();
    let mut stranger = Stranger::connect(&besieged.address(ListenerKind::Client));
    stranger.send(&frame(1, 15, &body));
    assert!(
        stranger.is_ended(),
        "a tag that is longer than what it holds"
    );
    besieged.assert_unmoved();
}

fn fetch_of(topics: Vec<fetch::FetchTopic>) -> ApiRequest {
    ApiRequest::Fetch(fetch::FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        topics,
        ..Default::default()
    })
}

fn fetch_topic(name: &str, topic_id: Uuid, partitions: &[i32]) -> fetch::FetchTopic {
    let partition = |partition: &i32| fetch::FetchPartition {
        partition: *partition,
        partition_max_bytes: 1000,
        ..Default::default()
    };
    fetch::FetchTopic {
        topic: name.to_owned(),
        topic_id,
        partitions: partitions.iter().map(partition).collect(),
    }
}

/// A server crashed on a Fetch of two topics: only that of one had been tested.
#[test]
fn odd_fetches_are_answered_partition_by_partition() {
    let besieged = Besieged::start(1);
    let other = Uuid([9; 16]);
    let long = "x".repeat(300);
    let mut client = Stranger::connect(&besieged.address(ListenerKind::Client));
    let ours = |partitions: &[i32]| fetch_topic(TOPIC, TOPIC_ID, partitions);
    for version in [4, 12, 13, 18] {
        let unknown = if version >= 13 { 100 } else { 3 };
        for (topics, codes) in [
            (vec![], vec![]),
            (vec![ours(&[])], vec![]),
            (
                vec![ours(&[0]), fetch_topic("b", other, &[0])],
                vec![0, unknown],
            ),
            (
                vec![fetch_topic("b", other, &[0, 1]), ours(&[0])],
                vec![unknown, unknown, 0],
            ),
            (vec![ours(&[0]), ours(&[0])], vec![0, 42]),
            (vec![ours(&[0, 0])], vec![0, 42]),
            (vec![ours(&[-1, 1, 0, i32::MAX])], vec![3, 3, 0, 3]),
            (vec![fetch_topic("", Uuid::ZERO, &[0])], vec![unknown]),
            (vec![fetch_topic(&long, other, &[0])], vec![unknown]),
        ] {
            let answer = client
                .ask(version, &fetch_of(topics.clone()))
                .expect("an answer");
            let ApiResponse::Fetch(answer) = answer else {
                panic!("{answer:?}")
            };
            let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
            let found: Vec<i16> = partitions.map(|partition| partition.error_code.0).collect();
            assert_eq!(found, codes, "version {version}: {topics:?}");
        }
    }
    besieged.assert_unmoved();
}

#[test]
fn odd_questions_about_the_quorum_are_answered_partition_by_partition() {
    let besieged = Besieged::start(1);
    for kind in KINDS {
        let mut client = Stranger::connect(&besieged.address(kind));
        for (asked, codes) in [
            (vec![], vec![]),
            (vec![(TOPIC, vec![])], vec![]),
            (vec![(TOPIC, vec![0]), ("b", vec![0])], vec![0, 3]),
            (vec![(TOPIC, vec![0, 0])], vec![0, 42]),
            (vec![(TOPIC, vec![0]), (TOPIC, vec![0])], vec![0, 42]),
            (vec![(TOPIC, vec![-1, 1]), ("", vec![0])], vec![3, 3, 3]),
        ] {
            let topics =
                asked
                    .iter()
                    .map(|(name, partitions)| describe_quorum::DescribeQuorumTopic {
                        topic_name: (*name).to_owned(),
                        partitions: partitions
                            .iter()
                            .map(|index| describe_quorum::DescribeQuorumPartition {
                                partition_index: *index,
                            })
                            .collect(),
                    });
            let request = ApiRequest::DescribeQuorum(describe_quorum::DescribeQuorumRequest {
                topics: topics.collect(),
            });
            let answer = client.ask(2, &request).expect("an answer");
            let ApiResponse::DescribeQuorum(answer) = answer else {
                panic!("{answer:?}")
            };
            let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            let found: Vec<i16> = partitions.map(|partition| partition.error_code.0).collect();
            assert_eq!(found, codes, "{asked:?}");
        }
    }
}

#[test]
fn odd_raft_requests_are_refused_and_change_nothing() {
    let besieged = Besieged::start(3);
    let mut peer = Stranger::connect(&besieged.address(ListenerKind::Controller));
    let shapes: [(&[&str], &[i32]); 6] = [
        (&[], &[]),
        (&[TOPIC], &[]),
        (&[TOPIC, TOPIC], &[0]),
        (&[TOPIC, "b"], &[0]),
        (&[TOPIC], &[0, 0]),
        (&["b"], &[0]),
    ];
    let more: [(&[&str], &[i32]); 3] = [(&[TOPIC], &[-1]), (&[TOPIC], &[1]), (&[""], &[0])];
    for (names, partitions) in shapes.into_iter().chain(more) {
        let epoch = Epoch(1000);
        let request = ApiRequest::Vote(vote::VoteRequest {
            topics: names
                .iter()
                .map(|name| vote::VoteTopic {
                    topic_name: (*name).to_owned(),
                    partitions: partitions
                        .iter()
                        .map(|index| vote::VotePartition {
                            partition_index: *index,
                            replica_epoch: epoch,
                            replica_id: 2,
                            ..Default::default()
                        })
                        .collect(),
                })
                .collect(),
            ..Default::default()
        });
        let answer = peer.ask(2, &request).expect("an answer");
        assert!(
            matches!(&answer, ApiResponse::Vote(vote) if vote.error_code.0 == 42),
            "{names:?} {partitions:?}: {answer:?}"
        );
        let request = ApiRequest::BeginQuorumEpoch(begin::BeginQuorumEpochRequest {
            topics: names
                .iter()
                .map(|name| begin::BeginQuorumEpochTopic {
                    topic_name: (*name).to_owned(),
                    partitions: partitions
                        .iter()
                        .map(|index| begin::BeginQuorumEpochPartition {
                            partition_index: *index,
                            leader_id: 2,
                            leader_epoch: epoch,
                            ..Default::default()
                        })
                        .collect(),
                })
                .collect(),
            ..Default::default()
        });
        let answer = peer.ask(1, &request).expect("an answer");
        assert!(
            matches!(&answer, ApiResponse::BeginQuorumEpoch(begin) if begin.error_code.0 == 42),
            "{names:?} {partitions:?}: {answer:?}"
        );
    }
    // A replica's Fetch: exactly the one partition of the one log.
    let ours = |partitions: &[i32]| fetch_topic(TOPIC, TOPIC_ID, partitions);
    for topics in [
        vec![],
        vec![ours(&[])],
        vec![ours(&[0]), ours(&[0])],
        vec![ours(&[0, 0])],
        vec![ours(&[1])],
        vec![ours(&[-1])],
        vec![fetch_topic("", Uuid::ZERO, &[0])],
    ] {
        let answer = peer.ask(17, &fetch_of(topics.clone())).expect("an answer");
        assert!(
            matches!(&answer, ApiResponse::Fetch(fetch) if fetch.error_code.0 == 42),
            "{topics:?}: {answer:?}"
        );
    }
    besieged.assert_unmoved();
}
