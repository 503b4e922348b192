//! A connection to the leader and the questions that are asked on it: requests out, what the caller
//! wants to know of the answers back. It never tries again; that is its owner's.

use super::error::ClientError;
use super::leader;
use super::transport::Transport;
use super::{FetchResult, OffsetSpec, ProduceAck};
use crate::apis::{ApiRequest, ListenerKind};
use crate::wire::describe_cluster::DescribeClusterResponse;
use crate::wire::describe_quorum::{
    DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumTopic,
};
use crate::wire::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use crate::wire::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic,
};
use crate::wire::produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic};
use crate::wire::{ApiKey, Uuid};
use bytes::Bytes;
use quorate_raft::{ErrorCode, Offset};
use std::collections::VecDeque;
use std::time::Duration;

/// A connection to the leader.
pub(super) struct Session {
    pub(super) transport: Transport,
    pub(super) topic: String,
    pub(super) topic_id: Uuid,
    /// How long the leader may take to answer.
    pub(super) limit: Duration,
}

impl Session {
    /// Appends the batches that are `open`, in order, and takes them out as they are committed.
    pub(super) async fn produce_all(
        &mut self,
        batches: &[Bytes],
        open: &mut VecDeque<usize>,
        in_flight_max: usize,
        on_ack: &mut impl FnMut(usize, ProduceAck),
    ) -> Result<(), ClientError> {
        let mut sent = 0;
        // Answers come in order, so the next one is for the first of `open`.
        while let Some(index) = open.front().copied() {
            while sent < open.len().min(in_flight_max) {
                let request = self.produce_request(&batches[open[sent]]);
                self.transport.queue(&request)?;
                sent += 1;
            }
            let response = self.transport.answer(self.limit).await?;
            let ack = self.produce_ack(response)?;
            open.pop_front();
            sent -= 1;
            on_ack(index, ack);
        }
        Ok(())
    }

    fn produce_request(&self, batch: &Bytes) -> ApiRequest {
        let partition = ProducePartition {
            index: 0,
            records: Some(batch.clone()),
        };
        let topic = ProduceTopic {
            name: self.topic.clone(),
            topic_id: self.topic_id,
            partition_data: vec![partition],
        };
        ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: i32::try_from(self.limit.as_millis()).unwrap_or(i32::MAX),
            topic_data: vec![topic],
        }
        .into()
    }

    fn produce_ack(&self, response: ProduceResponse) -> Result<ProduceAck, ClientError> {
        let api = ApiKey::Produce;
        let topic = response.responses.into_iter().next();
        let partition = topic.and_then(|topic| topic.partition_responses.into_iter().next());
        let partition = partition.ok_or_else(|| self.incomplete(api))?;
        self.check(api, partition.error_code, partition.error_message)?;
        Ok(ProduceAck {
            base_offset: partition.base_offset,
        })
    }

    pub(super) async fn fetch(
        &mut self,
        from: Offset,
        max_wait_ms: i32,
        max_bytes: i32,
    ) -> Result<FetchResult, ClientError> {
        let partition = FetchPartition {
            fetch_offset: from,
            partition_max_bytes: max_bytes,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: self.topic.clone(),
            topic_id: self.topic_id,
            partitions: vec![partition],
        };
        let request = FetchRequest {
            max_wait_ms,
            min_bytes: 1,
            max_bytes,
            topics: vec![topic],
            ..Default::default()
        };
        let wait = Duration::from_millis(max_wait_ms.max(0).unsigned_abs().into());
        let response = self.transport.call(request, self.limit + wait).await?;
        self.fetch_result(response)
    }

    fn fetch_result(&self, response: FetchResponse) -> Result<FetchResult, ClientError> {
        let api = ApiKey::Fetch;
        self.check(api, response.error_code, None)?;
        let topic = response.responses.into_iter().next();
        let partition = topic.and_then(|topic| topic.partitions.into_iter().next());
        let partition = partition.ok_or_else(|| self.incomplete(api))?;
        self.check(api, partition.error_code, None)?;
        Ok(FetchResult {
            records: partition.records.into_iter().next().unwrap_or_default(),
            high_watermark: partition.high_watermark,
            log_start: partition.log_start_offset,
        })
    }

    pub(super) async fn list_offsets(&mut self, spec: OffsetSpec) -> Result<Offset, ClientError> {
        let api = ApiKey::ListOffsets;
        let partition = ListOffsetsPartition {
            timestamp: match spec {
                OffsetSpec::Earliest => EARLIEST_TIMESTAMP,
                OffsetSpec::Latest => LATEST_TIMESTAMP,
            },
            ..Default::default()
        };
        let topic = ListOffsetsTopic {
            name: self.topic.clone(),
            partitions: vec![partition],
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response: ListOffsetsResponse = self.transport.call(request, self.limit).await?;
        let topic = response.topics.into_iter().next();
        let partition = topic.and_then(|topic| topic.partitions.into_iter().next());
        let partition = partition.ok_or_else(|| self.incomplete(api))?;
        self.check(api, partition.error_code, None)?;
        Ok(partition.offset)
    }

    pub(super) async fn describe_quorum(&mut self) -> Result<DescribeQuorumResponse, ClientError> {
        let api = ApiKey::DescribeQuorum;
        let topic = DescribeQuorumTopic {
            topic_name: self.topic.clone(),
            partitions: vec![DescribeQuorumPartition { partition_index: 0 }],
        };
        let request = DescribeQuorumRequest {
            topics: vec![topic],
        };
        let response: DescribeQuorumResponse = self.transport.call(request, self.limit).await?;
        self.check(api, response.error_code, response.error_message.clone())?;
        let partition = response
            .topics
            .first()
            .and_then(|topic| topic.partitions.first());
        let partition = partition.ok_or_else(|| self.incomplete(api))?;
        self.check(api, partition.error_code, partition.error_message.clone())?;
        Ok(response)
    }

    pub(super) async fn describe_cluster(
        &mut self,
        kind: ListenerKind,
    ) -> Result<DescribeClusterResponse, ClientError> {
        let request = leader::cluster_request(kind);
        let response: DescribeClusterResponse = self.transport.call(request, self.limit).await?;
        let message = response.error_message.clone();
        self.check(ApiKey::DescribeCluster, response.error_code, message)?;
        Ok(response)
    }

    fn check(
        &self,
        api: ApiKey,
        error: ErrorCode,
        message: Option<String>,
    ) -> Result<(), ClientError> {
        leader::check(self.transport.address(), api, error, message)
    }

    fn incomplete(&self, api: ApiKey) -> ClientError {
        ClientError::Incomplete {
            address: self.transport.address().clone(),
            api,
        }
    }
}
