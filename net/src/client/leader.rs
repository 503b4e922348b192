//! How a client finds the leader: Metadata on client listeners, DescribeCluster on controllers'
//! (KIP-919). Whoever answers names the leader and the others, which are asked when it is gone.

use super::error::{Address, ClientError};
use super::transport::Transport;
use crate::apis::ListenerKind;
use crate::wire::describe_cluster::{
    DescribeClusterRequest, DescribeClusterResponse, ENDPOINT_TYPE_BROKER, ENDPOINT_TYPE_CONTROLLER,
};
use crate::wire::metadata::{MetadataRequest, MetadataResponse, MetadataTopicRequest};
use crate::wire::{ApiKey, Uuid};
use quorate_raft::{ErrorCode, NodeId};
use std::time::Duration;

/// What a node tells about the cluster.
pub(super) struct Cluster {
    pub(super) leader_id: NodeId,
    pub(super) nodes: Vec<(NodeId, Address)>,
    /// Zero on controller listeners, which do not tell it.
    pub(super) topic_id: Uuid,
}

impl Cluster {
    pub(super) fn leader(&self) -> Option<&Address> {
        let leader = self.nodes.iter().find(|(id, _)| *id == self.leader_id);
        leader.map(|(_, address)| address)
    }
}

/// Asks the node behind `transport`.
pub(super) async fn ask(
    transport: &mut Transport,
    kind: ListenerKind,
    topic: &str,
    limit: Duration,
) -> Result<Cluster, ClientError> {
    match kind {
        ListenerKind::Client => {
            let response = transport.call(metadata_request(topic), limit).await?;
            from_metadata(transport.address(), response)
        }
        ListenerKind::Controller => {
            let response = transport.call(cluster_request(kind), limit).await?;
            from_cluster(transport.address(), response)
        }
    }
}

/// A DescribeCluster request for the endpoints of this kind of listener.
pub(super) fn cluster_request(kind: ListenerKind) -> DescribeClusterRequest {
    let endpoint_type = match kind {
        ListenerKind::Client => ENDPOINT_TYPE_BROKER,
        ListenerKind::Controller => ENDPOINT_TYPE_CONTROLLER,
    };
    DescribeClusterRequest {
        endpoint_type,
        ..Default::default()
    }
}

fn metadata_request(topic: &str) -> MetadataRequest {
    let by_name = MetadataTopicRequest {
        name: Some(topic.to_owned()),
        ..Default::default()
    };
    MetadataRequest {
        topics: Some(vec![by_name]),
        allow_auto_topic_creation: false,
        ..Default::default()
    }
}

fn from_metadata(address: &Address, response: MetadataResponse) -> Result<Cluster, ClientError> {
    let api = ApiKey::Metadata;
    let incomplete = || ClientError::Incomplete {
        address: address.clone(),
        api,
    };
    check(address, api, response.error_code, None)?;
    let topic = response.topics.first().ok_or_else(incomplete)?;
    check(address, api, topic.error_code, None)?;
    let mut partitions = topic.partitions.iter();
    let partition = partitions
        .find(|p| p.partition_index == 0)
        .ok_or_else(incomplete)?;
    check(address, api, partition.error_code, None)?;
    let nodes = response.brokers.into_iter();
    Ok(Cluster {
        leader_id: partition.leader_id,
        nodes: nodes
            .filter_map(|node| known(node.node_id, node.host, node.port))
            .collect(),
        topic_id: topic.topic_id,
    })
}

fn from_cluster(
    address: &Address,
    response: DescribeClusterResponse,
) -> Result<Cluster, ClientError> {
    let message = response.error_message;
    check(
        address,
        ApiKey::DescribeCluster,
        response.error_code,
        message,
    )?;
    let nodes = response.brokers.into_iter();
    Ok(Cluster {
        leader_id: response.controller_id,
        nodes: nodes
            .filter_map(|node| known(node.broker_id, node.host, node.port))
            .collect(),
        topic_id: Uuid::ZERO,
    })
}

fn known(id: NodeId, host: String, port: i32) -> Option<(NodeId, Address)> {
    let port = u16::try_from(port).ok()?;
    Some((id, Address { host, port }))
}

/// Turns an error code of an answer into an error.
pub(super) fn check(
    address: &Address,
    api: ApiKey,
    error: ErrorCode,
    message: Option<String>,
) -> Result<(), ClientError> {
    if error.is_none() {
        return Ok(());
    }
    Err(ClientError::Server {
        address: address.clone(),
        api,
        error,
        message,
    })
}
