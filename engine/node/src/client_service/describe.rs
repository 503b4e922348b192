//! Answers questions about the cluster: who is there, who leads, how far each replica is.
//!
//! Every answer is made from what this node knows; nothing here waits or changes anything.

use super::{ClientService, Lane};
use crate::clock::Now;
use crate::raft_wire::{ENDPOINT_TYPE_BROKER, ENDPOINT_TYPE_CONTROLLER};
use crate::replica::Replica;
use quorate_net::wire::Uuid;
use quorate_net::wire::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use quorate_net::wire::describe_quorum::{
    DescribeQuorumListener, DescribeQuorumNode, DescribeQuorumPartitionResponse,
    DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumTopicResponse, DescribedReplica,
};
use quorate_net::wire::metadata::{
    MetadataBroker, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
    MetadataTopicRequest,
};
use quorate_raft::{ErrorCode, LeaderInfo, NodeId, Offset, ReplicaDescription};

/// No leader can be named at the moment (Kafka's LEADER_NOT_AVAILABLE).
const LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(5);

impl ClientService {
    pub(super) fn metadata(
        &self,
        replica: &Replica,
        version: i16,
        request: &MetadataRequest,
    ) -> MetadataResponse {
        let leader = replica.raft().leader_info();
        let brokers = self
            .directory
            .iter()
            .map(|(node_id, endpoint)| MetadataBroker {
                node_id,
                host: endpoint.host.to_string(),
                port: i32::from(endpoint.port),
                rack: None,
            });
        // Version 0 asks for all topics with an empty list, later ones with null.
        let topics = match &request.topics {
            None => vec![self.topic_metadata(replica, &leader)],
            Some(topics) if topics.is_empty() => vec![self.topic_metadata(replica, &leader)],
            Some(topics) => {
                let asked = topics.iter();
                asked
                    .map(|topic| self.asked_topic(replica, version, &leader, topic))
                    .collect()
            }
        };
        MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some(self.identity.cluster_id.clone()),
            controller_id: self.reachable_leader(&leader).unwrap_or(-1),
            topics,
            ..Default::default()
        }
    }

    fn asked_topic(
        &self,
        replica: &Replica,
        version: i16,
        leader: &LeaderInfo,
        asked: &MetadataTopicRequest,
    ) -> MetadataTopic {
        let by_name = asked
            .name
            .as_ref()
            .is_some_and(|name| *name == self.identity.topic_name);
        let by_id = asked.name.is_none() && asked.topic_id == Uuid(self.identity.topic_id);
        if by_name || by_id {
            return self.topic_metadata(replica, leader);
        }
        let error_code = if asked.name.is_some() {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        } else {
            ErrorCode::UNKNOWN_TOPIC_ID
        };
        // Answers may leave the name out from version 12 on, requests from version 10 on.
        let nameless = (version < 12).then(String::new);
        MetadataTopic {
            error_code,
            name: asked.name.clone().or(nameless),
            topic_id: asked.topic_id,
            ..Default::default()
        }
    }

    fn topic_metadata(&self, replica: &Replica, leader: &LeaderInfo) -> MetadataTopic {
        let voters: Vec<NodeId> = replica
            .raft()
            .voters()
            .voters()
            .iter()
            .map(|voter| voter.key.id)
            .collect();
        let leader_id = self.reachable_leader(leader);
        let error_code = if leader_id.is_some() {
            ErrorCode::NONE
        } else {
            LEADER_NOT_AVAILABLE
        };
        MetadataTopic {
            name: Some(self.identity.topic_name.clone()),
            topic_id: Uuid(self.identity.topic_id),
            partitions: vec![MetadataPartition {
                error_code,
                partition_index: 0,
                leader_id: leader_id.unwrap_or(-1),
                leader_epoch: leader.epoch,
                replica_nodes: voters.clone(),
                isr_nodes: voters,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    pub(super) fn describe_quorum(
        &self,
        now: Now,
        replica: &Replica,
        request: &DescribeQuorumRequest,
    ) -> DescribeQuorumResponse {
        let mut described = false;
        let topics = request.topics.iter().map(|topic| {
            let is_ours = topic.topic_name == self.identity.topic_name;
            let partitions = topic.partitions.iter().map(|partition| {
                let index = partition.partition_index;
                let is_log = is_ours && index == 0;
                // Once: a small request must not make an answer without bound.
                if is_log && !std::mem::replace(&mut described, true) {
                    return describe_partition(now, replica);
                }
                let error_code = if is_log {
                    ErrorCode::INVALID_REQUEST
                } else {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                };
                DescribeQuorumPartitionResponse {
                    partition_index: index,
                    error_code,
                    ..Default::default()
                }
            });
            DescribeQuorumTopicResponse {
                topic_name: topic.topic_name.clone(),
                partitions: partitions.collect(),
            }
        });
        let topics: Vec<_> = topics.collect();
        let described = topics.iter().flat_map(|topic| &topic.partitions);
        let any = described
            .into_iter()
            .any(|partition| partition.error_code.is_none());
        let voters = replica.raft().voters().voters().iter().filter(|_| any);
        DescribeQuorumResponse {
            topics,
            nodes: voters
                .map(|voter| DescribeQuorumNode {
                    node_id: voter.key.id,
                    listeners: vec![DescribeQuorumListener {
                        name: self.identity.listener_name.clone(),
                        host: voter.endpoint.host.to_string(),
                        port: voter.endpoint.port,
                    }],
                })
                .collect(),
            ..Default::default()
        }
    }

    /// On a client listener: the nodes' client endpoints. On a controller listener: the voters'
    /// controller endpoints (KIP-919), or their client endpoints, which is how nodes learn them.
    pub(super) fn describe_cluster(
        &self,
        replica: &Replica,
        lane: Lane,
        request: &DescribeClusterRequest,
    ) -> DescribeClusterResponse {
        let refuse = |error_code, message: &str| DescribeClusterResponse {
            error_code,
            error_message: Some(message.to_owned()),
            endpoint_type: request.endpoint_type,
            ..Default::default()
        };
        let leader = replica.raft().leader_info();
        let (controller_id, brokers) = match (request.endpoint_type, lane) {
            (ENDPOINT_TYPE_BROKER, _) => {
                let endpoints = self.directory.iter();
                let brokers = endpoints
                    .map(|(id, endpoint)| (id, endpoint.clone()))
                    .collect();
                (self.reachable_leader(&leader), brokers)
            }
            (ENDPOINT_TYPE_CONTROLLER, Lane::Controllers) => {
                let voters = replica.raft().voters().voters().iter();
                let brokers: Vec<_> = voters
                    .map(|voter| (voter.key.id, voter.endpoint.clone()))
                    .collect();
                (leader.leader_id, brokers)
            }
            (ENDPOINT_TYPE_CONTROLLER, _) => {
                let message = "this is a client listener: it knows no controller endpoints";
                return refuse(ErrorCode::MISMATCHED_ENDPOINT_TYPE, message);
            }
            _ => {
                return refuse(
                    ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
                    "no such endpoint type",
                );
            }
        };
        DescribeClusterResponse {
            endpoint_type: request.endpoint_type,
            cluster_id: self.identity.cluster_id.clone(),
            controller_id: controller_id.unwrap_or(-1),
            brokers: brokers
                .into_iter()
                .map(|(broker_id, endpoint)| DescribeClusterBroker {
                    broker_id,
                    host: endpoint.host.to_string(),
                    port: i32::from(endpoint.port),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }
}

fn describe_partition(now: Now, replica: &Replica) -> DescribeQuorumPartitionResponse {
    let Some(quorum) = replica.raft().describe(now.instant) else {
        let leader = replica.raft().leader_info();
        return DescribeQuorumPartitionResponse {
            error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
            error_message: Some("this node does not lead the quorum".to_owned()),
            leader_id: leader.leader_id.unwrap_or(-1),
            leader_epoch: leader.epoch,
            ..Default::default()
        };
    };
    let describe = |one: &ReplicaDescription| DescribedReplica {
        replica_id: one.replica.id,
        replica_directory_id: one.replica.directory_id,
        log_end_offset: one.log_end_offset.unwrap_or(Offset(-1)),
        last_fetch_timestamp: one.last_fetch.map_or(-1, |at| now.wall_ms_of(at)),
        last_caught_up_timestamp: one.last_caught_up.map_or(-1, |at| now.wall_ms_of(at)),
    };
    DescribeQuorumPartitionResponse {
        leader_id: quorum.leader_id,
        leader_epoch: quorum.leader_epoch,
        high_watermark: quorum.high_watermark.unwrap_or(Offset(-1)),
        current_voters: quorum.voters.iter().map(describe).collect(),
        observers: quorum.observers.iter().map(describe).collect(),
        ..Default::default()
    }
}
