//! Between wire structs and raft messages: every raft request is about the one log of this quorum.
//!
//! Cluster id, topic and partition are checked here, in Kafka's order, before a request reaches the
//! core; the core checks everything else.

use bytes::Bytes;
use quorate_net::wire::begin_quorum_epoch as begin;
use quorate_net::wire::describe_cluster::{self, DescribeClusterResponse};
use quorate_net::wire::end_quorum_epoch as end;
use quorate_net::wire::fetch;
use quorate_net::wire::vote;
use quorate_net::wire::{BrokerEndpoint, LeaderEndpoint, LeaderIdAndEpoch, NodeEndpoint, Uuid};
use quorate_net::{ApiRequest, ApiResponse};
use quorate_raft::{
    BeginQuorumEpochRequest, DirectoryId, EndQuorumEpochRequest, Endpoint, Epoch, EpochResponse,
    ErrorCode, FetchRequest, FetchResponse, LeaderInfo, NodeId, Offset, OffsetAndEpoch, Peer,
    ReplicaKey, Request, Response, VoteRequest, VoteResponse, VoterSet,
};

pub use describe_cluster::{ENDPOINT_TYPE_BROKER, ENDPOINT_TYPE_CONTROLLER};

/// The longest that a replica's Fetch is held, whatever it asks for; Kafka's ask for 500 ms.
const FETCH_WAIT_MAX_MS: i32 = 5_000;

/// Records in one answer to a replica, at most; one batch is always sent whole.
const FETCH_BYTES_MAX: i32 = 8 * 1024 * 1024;

/// Who this node is and which log its quorum keeps.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `node.id`
    pub node_id: NodeId,
    /// `directory.id` of meta.properties.
    pub directory_id: DirectoryId,
    /// `cluster.id` of meta.properties.
    pub cluster_id: String,
    /// Whether a request without a cluster id is refused (Kafka accepts it).
    pub cluster_id_strict: bool,
    /// `quorum.topic.name`
    pub topic_name: String,
    /// `quorum.topic.id`
    pub topic_id: [u8; 16],
    /// The default controller listener's name.
    pub listener_name: String,
    /// The configured voters.
    pub voters: VoterSet,
}

impl Identity {
    fn refuses_cluster(&self, cluster_id: Option<&str>) -> bool {
        match cluster_id {
            Some(id) => id != self.cluster_id,
            None => self.cluster_id_strict,
        }
    }

    /// The one partition that a request must be about: the log of this quorum.
    fn the_log<'a, P>(
        &self,
        cluster_id: Option<&str>,
        mut topics: impl ExactSizeIterator<Item = (&'a str, &'a [P])>,
        index: impl Fn(&P) -> i32,
    ) -> Result<&'a P, ErrorCode> {
        if self.refuses_cluster(cluster_id) {
            return Err(ErrorCode::INCONSISTENT_CLUSTER_ID);
        }
        match (topics.len(), topics.next()) {
            (1, Some((name, [partition]))) if name == self.topic_name && index(partition) == 0 => {
                Ok(partition)
            }
            _ => Err(ErrorCode::INVALID_REQUEST),
        }
    }
}

/// Client endpoints out of a peer's DescribeCluster answer.
#[must_use]
pub fn client_endpoints(response: &DescribeClusterResponse) -> Vec<(NodeId, Endpoint)> {
    if !response.error_code.is_none() {
        return Vec::new();
    }
    let brokers = response.brokers.iter();
    brokers
        .filter_map(|broker| {
            let port = u16::try_from(broker.port).ok()?;
            Some((
                broker.broker_id,
                Endpoint {
                    host: broker.host.as_str().into(),
                    port,
                },
            ))
        })
        .collect()
}

/// What a request on a controller listener is to the raft core.
#[derive(Debug, PartialEq)]
pub enum FromWire {
    /// A request for the core.
    Raft(Request),
    /// Refused, with this answer, before it reached the core.
    Refused(ApiResponse),
    /// Not a raft request.
    Other(ApiRequest),
}

/// The raft request in a request of the wire.
#[must_use]
pub fn request_from_wire(identity: &Identity, request: ApiRequest) -> FromWire {
    let checked: Result<Request, ApiResponse> = match request {
        ApiRequest::Vote(request) => vote_request(identity, &request).map_err(|error_code| {
            vote::VoteResponse {
                error_code,
                ..Default::default()
            }
            .into()
        }),
        ApiRequest::BeginQuorumEpoch(request) => {
            begin_request(identity, &request).map_err(|error_code| {
                begin::BeginQuorumEpochResponse {
                    error_code,
                    ..Default::default()
                }
                .into()
            })
        }
        ApiRequest::EndQuorumEpoch(request) => {
            end_request(identity, &request).map_err(|error_code| {
                end::EndQuorumEpochResponse {
                    error_code,
                    ..Default::default()
                }
                .into()
            })
        }
        ApiRequest::Fetch(request) => fetch_request(identity, &request).map_err(|error_code| {
            fetch::FetchResponse {
                error_code,
                ..Default::default()
            }
            .into()
        }),
        other => return FromWire::Other(other),
    };
    checked.map_or_else(FromWire::Refused, FromWire::Raft)
}

fn vote_request(identity: &Identity, request: &vote::VoteRequest) -> Result<Request, ErrorCode> {
    let topics = request.topics.iter();
    let partition = identity.the_log(
        request.cluster_id.as_deref(),
        topics.map(|topic| (topic.topic_name.as_str(), &topic.partitions[..])),
        |partition| partition.partition_index,
    )?;
    Ok(Request::Vote(VoteRequest {
        voter: voter_key(request.voter_id, partition.voter_directory_id),
        epoch: partition.replica_epoch,
        replica: ReplicaKey {
            id: partition.replica_id,
            directory_id: partition.replica_directory_id,
        },
        last: OffsetAndEpoch {
            offset: partition.last_offset,
            epoch: partition.last_offset_epoch,
        },
        pre_vote: partition.pre_vote,
    }))
}

fn begin_request(
    identity: &Identity,
    request: &begin::BeginQuorumEpochRequest,
) -> Result<Request, ErrorCode> {
    let topics = request.topics.iter();
    let partition = identity.the_log(
        request.cluster_id.as_deref(),
        topics.map(|topic| (topic.topic_name.as_str(), &topic.partitions[..])),
        |partition| partition.partition_index,
    )?;
    Ok(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        voter: voter_key(request.voter_id, partition.voter_directory_id),
        leader_id: partition.leader_id,
        epoch: partition.leader_epoch,
        endpoint: leader_endpoint(identity, &request.leader_endpoints),
    }))
}

fn end_request(
    identity: &Identity,
    request: &end::EndQuorumEpochRequest,
) -> Result<Request, ErrorCode> {
    let topics = request.topics.iter();
    let partition = identity.the_log(
        request.cluster_id.as_deref(),
        topics.map(|topic| (topic.topic_name.as_str(), &topic.partitions[..])),
        |partition| partition.partition_index,
    )?;
    let candidates = partition
        .preferred_candidates
        .iter()
        .map(|candidate| ReplicaKey {
            id: candidate.candidate_id,
            directory_id: candidate.candidate_directory_id,
        });
    let successors = partition
        .preferred_successors
        .iter()
        .map(|id| ReplicaKey::of(*id));
    Ok(Request::EndQuorumEpoch(EndQuorumEpochRequest {
        leader_id: partition.leader_id,
        epoch: partition.leader_epoch,
        preferred_candidates: candidates.chain(successors).collect(),
        endpoint: leader_endpoint(identity, &request.leader_endpoints),
    }))
}

fn fetch_request(identity: &Identity, request: &fetch::FetchRequest) -> Result<Request, ErrorCode> {
    if identity.refuses_cluster(request.cluster_id.as_deref()) {
        return Err(ErrorCode::INCONSISTENT_CLUSTER_ID);
    }
    let [topic] = &request.topics[..] else {
        return Err(ErrorCode::INVALID_REQUEST);
    };
    let [partition] = &topic.partitions[..] else {
        return Err(ErrorCode::INVALID_REQUEST);
    };
    // As in Kafka the id decides, so versions that carry only a name are refused.
    if topic.topic_id != Uuid(identity.topic_id) || partition.partition != 0 {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    // Before version 15 the id stands in a field of its own.
    let id = request.replica_state.replica_id.max(request.replica_id);
    let high_watermark =
        (partition.high_watermark != Offset(i64::MAX)).then_some(partition.high_watermark);
    Ok(Request::Fetch(FetchRequest {
        replica: ReplicaKey {
            id,
            directory_id: partition.replica_directory_id,
        },
        current_leader_epoch: partition.current_leader_epoch,
        fetch_offset: partition.fetch_offset,
        last_fetched_epoch: partition.last_fetched_epoch,
        max_wait_ms: request.max_wait_ms.min(FETCH_WAIT_MAX_MS),
        max_bytes: request.max_bytes.min(FETCH_BYTES_MAX),
        high_watermark,
    }))
}

fn voter_key(id: NodeId, directory_id: DirectoryId) -> Option<ReplicaKey> {
    (id >= 0).then_some(ReplicaKey { id, directory_id })
}

/// The leader's endpoint on the default listener, or on the first that it names.
fn leader_endpoint(identity: &Identity, endpoints: &[LeaderEndpoint]) -> Option<Endpoint> {
    let named = endpoints
        .iter()
        .find(|endpoint| endpoint.name.eq_ignore_ascii_case(&identity.listener_name));
    let endpoint = named.or(endpoints.first())?;
    Some(Endpoint {
        host: endpoint.host.as_str().into(),
        port: endpoint.port,
    })
}

/// The wire's form of a request to `peer`.
#[must_use]
pub fn request_to_wire(identity: &Identity, peer: &Peer, request: &Request) -> ApiRequest {
    let cluster_id = Some(identity.cluster_id.clone());
    let topic_name = identity.topic_name.clone();
    let voter_directory_id = identity
        .voters
        .get(peer.id)
        .map(|voter| voter.key.directory_id)
        .unwrap_or_default();
    match request {
        Request::Vote(request) => ApiRequest::Vote(vote::VoteRequest {
            cluster_id,
            voter_id: peer.id,
            topics: vec![vote::VoteTopic {
                topic_name,
                partitions: vec![vote::VotePartition {
                    partition_index: 0,
                    replica_epoch: request.epoch,
                    replica_id: request.replica.id,
                    replica_directory_id: request.replica.directory_id,
                    voter_directory_id,
                    last_offset_epoch: request.last.epoch,
                    last_offset: request.last.offset,
                    pre_vote: request.pre_vote,
                }],
            }],
        }),
        Request::BeginQuorumEpoch(request) => {
            ApiRequest::BeginQuorumEpoch(begin::BeginQuorumEpochRequest {
                cluster_id,
                voter_id: peer.id,
                topics: vec![begin::BeginQuorumEpochTopic {
                    topic_name,
                    partitions: vec![begin::BeginQuorumEpochPartition {
                        partition_index: 0,
                        voter_directory_id,
                        leader_id: request.leader_id,
                        leader_epoch: request.epoch,
                    }],
                }],
                leader_endpoints: named_endpoint(identity, request.endpoint.as_ref()),
            })
        }
        Request::EndQuorumEpoch(request) => {
            let candidates = &request.preferred_candidates;
            ApiRequest::EndQuorumEpoch(end::EndQuorumEpochRequest {
                cluster_id,
                topics: vec![end::EndQuorumEpochTopic {
                    topic_name,
                    partitions: vec![end::EndQuorumEpochPartition {
                        partition_index: 0,
                        leader_id: request.leader_id,
                        leader_epoch: request.epoch,
                        preferred_successors: candidates.iter().map(|key| key.id).collect(),
                        preferred_candidates: candidates
                            .iter()
                            .map(|key| end::PreferredCandidate {
                                candidate_id: key.id,
                                candidate_directory_id: key.directory_id,
                            })
                            .collect(),
                    }],
                }],
                leader_endpoints: named_endpoint(identity, request.endpoint.as_ref()),
            })
        }
        Request::Fetch(request) => ApiRequest::Fetch(fetch_to_wire(identity, request)),
    }
}

fn named_endpoint(identity: &Identity, endpoint: Option<&Endpoint>) -> Vec<LeaderEndpoint> {
    endpoint
        .map(|endpoint| LeaderEndpoint {
            name: identity.listener_name.clone(),
            host: endpoint.host.to_string(),
            port: endpoint.port,
        })
        .into_iter()
        .collect()
}

fn fetch_to_wire(identity: &Identity, request: &FetchRequest) -> fetch::FetchRequest {
    fetch::FetchRequest {
        cluster_id: Some(identity.cluster_id.clone()),
        replica_state: fetch::ReplicaState {
            replica_id: request.replica.id,
            replica_epoch: -1,
        },
        max_wait_ms: request.max_wait_ms,
        max_bytes: request.max_bytes,
        topics: vec![fetch::FetchTopic {
            topic: identity.topic_name.clone(),
            topic_id: Uuid(identity.topic_id),
            partitions: vec![fetch::FetchPartition {
                partition: 0,
                current_leader_epoch: request.current_leader_epoch,
                fetch_offset: request.fetch_offset,
                last_fetched_epoch: request.last_fetched_epoch,
                replica_directory_id: request.replica.directory_id,
                high_watermark: request.high_watermark.unwrap_or(Offset(i64::MAX)),
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}

/// The raft response in an answer of the wire, with the records behind a Fetch; `None` if it is no
/// answer to a raft request, or does not speak of exactly one partition.
#[must_use]
pub fn response_from_wire(response: ApiResponse) -> Option<(Response, Bytes)> {
    match response {
        ApiResponse::Vote(response) => vote_response(&response).map(without_records),
        ApiResponse::BeginQuorumEpoch(response) => {
            let one = one(response.topics.iter().flat_map(|topic| &topic.partitions));
            let one = one.map(|one| (one.error_code, one.leader_id, one.leader_epoch));
            epoch_response(response.error_code, one, &response.node_endpoints)
                .map(Response::BeginQuorumEpoch)
                .map(without_records)
        }
        ApiResponse::EndQuorumEpoch(response) => {
            let one = one(response.topics.iter().flat_map(|topic| &topic.partitions));
            let one = one.map(|one| (one.error_code, one.leader_id, one.leader_epoch));
            epoch_response(response.error_code, one, &response.node_endpoints)
                .map(Response::EndQuorumEpoch)
                .map(without_records)
        }
        ApiResponse::Fetch(response) => fetch_response(response),
        _ => None,
    }
}

fn without_records(response: Response) -> (Response, Bytes) {
    (response, Bytes::new())
}

fn one<T>(mut of: impl Iterator<Item = T>) -> Option<T> {
    let first = of.next();
    if of.next().is_some() { None } else { first }
}

fn vote_response(response: &vote::VoteResponse) -> Option<Response> {
    if !response.error_code.is_none() {
        return Some(Response::Vote(VoteResponse {
            error: response.error_code,
            leader: LeaderInfo::default(),
            granted: false,
        }));
    }
    let one = one(response.topics.iter().flat_map(|topic| &topic.partitions))?;
    Some(Response::Vote(VoteResponse {
        error: one.error_code,
        leader: leader_info(one.leader_id, one.leader_epoch, &response.node_endpoints),
        granted: one.vote_granted,
    }))
}

fn epoch_response(
    error: ErrorCode,
    partition: Option<(ErrorCode, NodeId, Epoch)>,
    endpoints: &[NodeEndpoint],
) -> Option<EpochResponse> {
    if !error.is_none() {
        return Some(EpochResponse {
            error,
            leader: LeaderInfo::default(),
        });
    }
    let (error, leader_id, epoch) = partition?;
    Some(EpochResponse {
        error,
        leader: leader_info(leader_id, epoch, endpoints),
    })
}

fn leader_info(leader_id: NodeId, epoch: Epoch, endpoints: &[NodeEndpoint]) -> LeaderInfo {
    let endpoint = endpoints
        .iter()
        .find(|endpoint| endpoint.node_id == leader_id);
    LeaderInfo {
        epoch,
        leader_id: (leader_id >= 0).then_some(leader_id),
        endpoint: endpoint.map(|endpoint| Endpoint {
            host: endpoint.host.as_str().into(),
            port: endpoint.port,
        }),
    }
}

fn fetch_response(mut response: fetch::FetchResponse) -> Option<(Response, Bytes)> {
    if !response.error_code.is_none() {
        return Some(without_records(Response::Fetch(FetchResponse {
            error: response.error_code,
            leader: LeaderInfo::default(),
            high_watermark: None,
            log_start_offset: Offset(0),
            diverging: None,
            records_from: None,
        })));
    }
    let partition = one(response
        .responses
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions))?;
    let leader = &partition.current_leader;
    let endpoint = response
        .node_endpoints
        .iter()
        .find(|endpoint| endpoint.node_id == leader.leader_id)
        .and_then(|endpoint| {
            let port = u16::try_from(endpoint.port).ok()?;
            Some(Endpoint {
                host: endpoint.host.as_str().into(),
                port,
            })
        });
    let diverging = &partition.diverging_epoch;
    let message = FetchResponse {
        error: partition.error_code,
        leader: LeaderInfo {
            epoch: leader.leader_epoch,
            leader_id: (leader.leader_id >= 0).then_some(leader.leader_id),
            endpoint,
        },
        high_watermark: (partition.high_watermark.0 >= 0).then_some(partition.high_watermark),
        log_start_offset: partition.log_start_offset,
        diverging: (diverging.epoch.0 >= 0).then_some(OffsetAndEpoch {
            offset: diverging.end_offset,
            epoch: diverging.epoch,
        }),
        records_from: None,
    };
    let records = std::mem::take(&mut partition.records);
    let records = match <[Bytes; 1]>::try_from(records) {
        Ok([records]) => records,
        Err(parts) => parts.concat().into(),
    };
    Some((Response::Fetch(message), records))
}

/// The wire's form of an answer, with `records` behind a Fetch.
///
/// `version` is the request's: the leader's endpoint goes into Fetch answers from 17 on, as Kafka's
/// raft nodes do it.
#[must_use]
pub fn response_to_wire(
    identity: &Identity,
    version: i16,
    response: Response,
    records: Vec<Bytes>,
) -> ApiResponse {
    let topic_name = identity.topic_name.clone();
    match response {
        Response::Vote(response) => ApiResponse::Vote(vote::VoteResponse {
            error_code: ErrorCode::NONE,
            topics: vec![vote::VoteTopicResponse {
                topic_name,
                partitions: vec![vote::VotePartitionResponse {
                    partition_index: 0,
                    error_code: response.error,
                    leader_id: response.leader.leader_id.unwrap_or(-1),
                    leader_epoch: response.leader.epoch,
                    vote_granted: response.granted,
                }],
            }],
            node_endpoints: node_endpoint(&response.leader),
        }),
        Response::BeginQuorumEpoch(response) => {
            ApiResponse::BeginQuorumEpoch(begin::BeginQuorumEpochResponse {
                error_code: ErrorCode::NONE,
                topics: vec![begin::BeginQuorumEpochTopicResponse {
                    topic_name,
                    partitions: vec![begin::BeginQuorumEpochPartitionResponse {
                        partition_index: 0,
                        error_code: response.error,
                        leader_id: response.leader.leader_id.unwrap_or(-1),
                        leader_epoch: response.leader.epoch,
                    }],
                }],
                node_endpoints: node_endpoint(&response.leader),
            })
        }
        Response::EndQuorumEpoch(response) => {
            ApiResponse::EndQuorumEpoch(end::EndQuorumEpochResponse {
                error_code: ErrorCode::NONE,
                topics: vec![end::EndQuorumEpochTopicResponse {
                    topic_name,
                    partitions: vec![end::EndQuorumEpochPartitionResponse {
                        partition_index: 0,
                        error_code: response.error,
                        leader_id: response.leader.leader_id.unwrap_or(-1),
                        leader_epoch: response.leader.epoch,
                    }],
                }],
                node_endpoints: node_endpoint(&response.leader),
            })
        }
        Response::Fetch(response) => {
            ApiResponse::Fetch(fetch_response_to_wire(identity, version, response, records))
        }
    }
}

fn node_endpoint(leader: &LeaderInfo) -> Vec<NodeEndpoint> {
    let endpoint = leader.leader_id.zip(leader.endpoint.as_ref());
    let endpoint = endpoint.map(|(node_id, endpoint)| NodeEndpoint {
        node_id,
        host: endpoint.host.to_string(),
        port: endpoint.port,
    });
    endpoint.into_iter().collect()
}

fn fetch_response_to_wire(
    identity: &Identity,
    version: i16,
    response: FetchResponse,
    records: Vec<Bytes>,
) -> fetch::FetchResponse {
    let diverging = response
        .diverging
        .map_or_else(Default::default, |diverging| fetch::EpochEndOffset {
            epoch: diverging.epoch,
            end_offset: diverging.offset,
        });
    let leader = &response.leader;
    let endpoint = leader
        .leader_id
        .zip(leader.endpoint.as_ref())
        .filter(|_| version >= 17);
    let endpoint = endpoint.map(|(node_id, endpoint)| BrokerEndpoint {
        node_id,
        host: endpoint.host.to_string(),
        port: i32::from(endpoint.port),
        rack: None,
    });
    fetch::FetchResponse {
        responses: vec![fetch::FetchTopicResponse {
            topic: identity.topic_name.clone(),
            topic_id: Uuid(identity.topic_id),
            partitions: vec![fetch::FetchPartitionResponse {
                partition_index: 0,
                error_code: response.error,
                high_watermark: response.high_watermark.unwrap_or(Offset(-1)),
                log_start_offset: response.log_start_offset,
                diverging_epoch: diverging,
                current_leader: LeaderIdAndEpoch {
                    leader_id: leader.leader_id.unwrap_or(-1),
                    leader_epoch: leader.epoch,
                },
                records,
                ..Default::default()
            }],
        }],
        node_endpoints: endpoint.into_iter().collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            node_id: 1,
            directory_id: DirectoryId([1; 16]),
            cluster_id: "cluster".into(),
            cluster_id_strict: false,
            topic_name: "topic".into(),
            topic_id: [7; 16],
            listener_name: "CONTROLLER".into(),
            voters: VoterSet::default(),
        }
    }

    fn peer() -> Peer {
        Peer {
            id: 2,
            endpoint: Endpoint {
                host: "h".into(),
                port: 1,
            },
        }
    }

    fn there_and_back(identity: &Identity, request: &Request) -> FromWire {
        request_from_wire(identity, request_to_wire(identity, &peer(), request))
    }

    fn vote() -> Request {
        Request::Vote(VoteRequest {
            voter: Some(ReplicaKey::of(2)),
            epoch: Epoch(5),
            replica: ReplicaKey {
                id: 1,
                directory_id: DirectoryId([1; 16]),
            },
            last: OffsetAndEpoch {
                offset: Offset(9),
                epoch: Epoch(4),
            },
            pre_vote: true,
        })
    }

    fn fetch() -> Request {
        Request::Fetch(FetchRequest {
            replica: ReplicaKey {
                id: 1,
                directory_id: DirectoryId([1; 16]),
            },
            current_leader_epoch: Epoch(5),
            fetch_offset: Offset(9),
            last_fetched_epoch: Epoch(4),
            max_wait_ms: 500,
            max_bytes: 1000,
            high_watermark: Some(Offset(3)),
        })
    }

    #[test]
    fn requests_survive_the_way_to_the_wire_and_back() {
        let begin = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            voter: Some(ReplicaKey::of(2)),
            leader_id: 1,
            epoch: Epoch(5),
            endpoint: Some(Endpoint {
                host: "x".into(),
                port: 3,
            }),
        });
        for request in [vote(), begin, fetch()] {
            assert_eq!(
                there_and_back(&identity(), &request),
                FromWire::Raft(request)
            );
        }
    }

    #[test]
    fn another_clusters_request_is_answered_104_and_a_strict_node_wants_an_id() {
        for request in [vote(), fetch()] {
            let mut wire = request_to_wire(&identity(), &peer(), &request);
            let other = Identity {
                cluster_id: "other".into(),
                ..identity()
            };
            assert!(is_104(&request_from_wire(&other, wire.clone())));
            match &mut wire {
                ApiRequest::Vote(request) => request.cluster_id = None,
                ApiRequest::Fetch(request) => request.cluster_id = None,
                _ => unreachable!(),
            }
            assert!(matches!(
                request_from_wire(&other, wire.clone()),
                FromWire::Raft(_)
            ));
            let strict = Identity {
                cluster_id_strict: true,
                ..identity()
            };
            assert!(is_104(&request_from_wire(&strict, wire)));
        }
    }

    fn is_104(from_wire: &FromWire) -> bool {
        let code = match from_wire {
            FromWire::Refused(ApiResponse::Vote(response)) => response.error_code,
            FromWire::Refused(ApiResponse::Fetch(response)) => response.error_code,
            _ => return false,
        };
        code == ErrorCode::INCONSISTENT_CLUSTER_ID
    }

    #[test]
    fn another_topic_or_a_second_partition_is_malformed() {
        let identity = identity();
        let ApiRequest::Vote(wire) = request_to_wire(&identity, &peer(), &vote()) else {
            unreachable!()
        };
        let mut other = wire.clone();
        other.topics[0].topic_name = "else".into();
        let mut twice = wire.clone();
        twice.topics.push(twice.topics[0].clone());
        let mut none = wire;
        none.topics.clear();
        for request in [other, twice, none] {
            let refused = request_from_wire(&identity, ApiRequest::Vote(request));
            let FromWire::Refused(ApiResponse::Vote(response)) = refused else {
                panic!("not refused: {refused:?}")
            };
            assert_eq!(response.error_code, ErrorCode::INVALID_REQUEST);
        }
    }

    #[test]
    fn a_fetch_answer_keeps_its_leader_divergence_and_records() {
        let message = FetchResponse {
            error: ErrorCode::NONE,
            leader: LeaderInfo {
                epoch: Epoch(5),
                leader_id: Some(2),
                endpoint: Some(Endpoint {
                    host: "h".into(),
                    port: 1,
                }),
            },
            high_watermark: Some(Offset(3)),
            log_start_offset: Offset(0),
            diverging: Some(OffsetAndEpoch {
                offset: Offset(2),
                epoch: Epoch(1),
            }),
            records_from: None,
        };
        let parts = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        let wire = response_to_wire(&identity(), 18, Response::Fetch(message.clone()), parts);
        let (back, records) = response_from_wire(wire).unwrap();
        assert_eq!(back, Response::Fetch(message));
        assert_eq!(&records[..], b"abc");
    }
}
