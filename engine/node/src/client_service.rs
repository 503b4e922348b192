//! Answers clients: appends that wait for their commit, reads of committed records, and questions
//! about the quorum.
//!
//! Runs on the raft loop, beside the replica. An append is answered after its commit and never
//! before; a reader sees committed records and nothing else, whatever replica id it claims.

use crate::clock::Now;
use crate::connections::{ConnectionSet, Origin};
use crate::directory::Directory;
use crate::raft_wire::{ENDPOINT_TYPE_BROKER, ENDPOINT_TYPE_CONTROLLER, Identity};
use crate::replica::{CommittedRead, ReadId, Replica};
use bytes::Bytes;
use quorate_net::apis::api_versions_response;
use quorate_net::wire::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use quorate_net::wire::describe_quorum::{
    DescribeQuorumListener, DescribeQuorumNode, DescribeQuorumPartitionResponse,
    DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumTopicResponse, DescribedReplica,
};
use quorate_net::wire::fetch::{
    FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopic,
    FetchTopicResponse,
};
use quorate_net::wire::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use quorate_net::wire::metadata::{
    MetadataBroker, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
    MetadataTopicRequest,
};
use quorate_net::wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse,
};
use quorate_net::wire::{BrokerEndpoint, LeaderIdAndEpoch, Uuid};
use quorate_net::{ApiRequest, ApiResponse, ListenerKind};
use quorate_raft::{
    Epoch, ErrorCode, Instant, LeaderInfo, NodeId, Offset, ReplicaDescription, Role,
};
use quorate_storage::format::check_produced;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Records in one answer to a consumer, at most; one batch is always sent whole.
const FETCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest that a consumer's Fetch is held, whatever it asks for.
const FETCH_WAIT_MAX_MS: u64 = 30_000;

/// How soon readers that the disk has no room for ask again.
const BUSY_RETRY_MS: u64 = 5;

/// How often appends that wait are looked at for their time-out.
const TIMEOUT_SWEEP_MS: u64 = 100;

/// No leader can be named at the moment (Kafka's LEADER_NOT_AVAILABLE).
const LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(5);

/// Which set of connections a request came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The controller listener's.
    Controllers,
    /// Clients that the raft loop serves itself.
    Clients,
    /// A client loop's.
    Loop(usize),
}

/// An answer on its way to the connection it belongs to.
#[derive(Debug)]
pub struct Answer {
    /// Whose set of connections.
    pub lane: Lane,
    /// Which request.
    pub origin: Origin,
    /// `None`: done, and as the protocol has it never answered (acks=0).
    pub response: Option<ApiResponse>,
}

impl Answer {
    /// Hands the answer to the set it belongs to.
    pub fn give(self, connections: &mut ConnectionSet) {
        match self.response {
            Some(response) => connections.respond(self.origin, &response),
            None => connections.skip(self.origin),
        }
    }
}

/// Who asked.
#[derive(Clone, Copy, Debug)]
struct Asker {
    lane: Lane,
    origin: Origin,
}

impl Asker {
    fn answer(self, response: ApiResponse) -> Answer {
        Answer {
            lane: self.lane,
            origin: self.origin,
            response: Some(response),
        }
    }
}

/// An append that is not committed yet.
struct Append {
    asker: Asker,
    response: ProduceResponse,
    /// Committed once the high watermark is here.
    end: Offset,
    deadline: Instant,
}

/// A Fetch with nothing to read yet, or whose records are on their way from the disk.
struct Reader {
    asker: Asker,
    response: FetchResponse,
    topic: usize,
    partition: usize,
    from: Offset,
    bytes_max: usize,
    deadline: Instant,
}

/// Serves clients.
pub struct ClientService {
    identity: Arc<Identity>,
    directory: Directory,
    appends: VecDeque<Append>,
    parked: Vec<Reader>,
    reading: HashMap<ReadId, Reader>,
    /// Readers whose records are on the disk, and who wait for their turn to be read for.
    busy: VecDeque<Reader>,
    busy_retry: Instant,
    refuses_appends: bool,
    next_sweep: Instant,
}

impl ClientService {
    /// A service for the log of `identity`.
    #[must_use]
    pub fn new(identity: Arc<Identity>, directory: Directory) -> Self {
        Self {
            identity,
            directory,
            appends: VecDeque::new(),
            parked: Vec::new(),
            reading: HashMap::new(),
            busy: VecDeque::new(),
            busy_retry: Instant(0),
            refuses_appends: false,
            next_sweep: Instant(0),
        }
    }

    /// Where clients find the nodes.
    pub fn directory_mut(&mut self) -> &mut Directory {
        &mut self.directory
    }

    /// From now on appends are answered NOT_LEADER_OR_FOLLOWER: this node is about to leave.
    pub fn refuse_appends(&mut self) {
        self.refuses_appends = true;
    }

    /// Whether appends wait for their commit.
    #[must_use]
    pub fn has_uncommitted(&self) -> bool {
        !self.appends.is_empty()
    }

    /// When [`Self::on_tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let parked = self.parked.iter().map(|reader| reader.deadline).min();
        let sweep = (!self.appends.is_empty()).then_some(self.next_sweep);
        let busy = (!self.busy.is_empty()).then_some(self.busy_retry);
        [parked, sweep, busy].into_iter().flatten().min()
    }

    /// A request came in. Its answer goes into `answers`, now or later.
    pub fn on_request(
        &mut self,
        now: Now,
        replica: &mut Replica,
        lane: Lane,
        origin: Origin,
        request: ApiRequest,
        answers: &mut Vec<Answer>,
    ) {
        let asker = Asker { lane, origin };
        let response = match request {
            ApiRequest::Produce(request) => {
                return self.produce(now, replica, asker, &request, answers);
            }
            ApiRequest::Fetch(request) => {
                return self.fetch(now, replica, asker, &request, answers);
            }
            ApiRequest::ApiVersions(request) => {
                let kind = match lane {
                    Lane::Controllers => ListenerKind::Controller,
                    Lane::Clients | Lane::Loop(_) => ListenerKind::Client,
                };
                ApiResponse::ApiVersions(api_versions_response(kind, origin.version, &request))
            }
            ApiRequest::Metadata(request) => {
                ApiResponse::Metadata(self.metadata(replica, origin.version, &request))
            }
            ApiRequest::ListOffsets(request) => {
                ApiResponse::ListOffsets(self.list_offsets(replica, &request))
            }
            ApiRequest::DescribeQuorum(request) => {
                ApiResponse::DescribeQuorum(self.describe_quorum(now, replica, &request))
            }
            ApiRequest::DescribeCluster(request) => {
                ApiResponse::DescribeCluster(self.describe_cluster(replica, lane, &request))
            }
            ApiRequest::Vote(_)
            | ApiRequest::BeginQuorumEpoch(_)
            | ApiRequest::EndQuorumEpoch(_) => {
                unreachable!("raft requests are offered on controller listeners only")
            }
        };
        answers.push(asker.answer(response));
    }

    // ---- appends -------------------------------------------------------------------------------

    fn produce(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: &ProduceRequest,
        answers: &mut Vec<Answer>,
    ) {
        let mut response = ProduceResponse::default();
        let mut end = None;
        for topic in &request.topic_data {
            let mut partitions = Vec::with_capacity(topic.partition_data.len());
            for partition in &topic.partition_data {
                let mut one = ProducePartitionResponse {
                    index: partition.index,
                    base_offset: Offset(-1),
                    ..Default::default()
                };
                let fault = self.topic_fault(asker, &topic.name, topic.topic_id, partition.index);
                let appended = match fault {
                    Some(error) => Err((error, None)),
                    None => self.append(now, replica, request.acks, partition),
                };
                match appended {
                    Ok((base_offset, batch_end)) => {
                        one.base_offset = base_offset;
                        one.log_start_offset = replica.raft().log_start_offset();
                        end = end.max(Some(batch_end));
                    }
                    Err((error, message)) => {
                        one.error_code = error;
                        one.error_message = message;
                    }
                }
                partitions.push(one);
            }
            response.responses.push(ProduceTopicResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: partitions,
            });
        }
        match end {
            Some(end) if request.acks != 0 => self.appends.push_back(Append {
                asker,
                response,
                end,
                deadline: now.instant.plus_ms(positive_ms(request.timeout_ms)),
            }),
            _ if request.acks == 0 => {
                answers.push(Answer {
                    lane: asker.lane,
                    origin: asker.origin,
                    response: None,
                });
            }
            _ => {
                self.name_leader_in_produce(&replica.raft().leader_info(), &mut response);
                answers.push(asker.answer(ApiResponse::Produce(response)));
            }
        }
    }

    /// Checks a batch whole and appends it; its offsets, or why not.
    fn append(
        &self,
        now: Now,
        replica: &mut Replica,
        acks: i16,
        partition: &ProducePartition,
    ) -> Result<(Offset, Offset), (ErrorCode, Option<String>)> {
        if !(-1..=1).contains(&acks) {
            return Err((ErrorCode::INVALID_REQUIRED_ACKS, None));
        }
        if self.refuses_appends || replica.raft().role() != Role::Leader {
            return Err((ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        }
        let Some(records) = &partition.records else {
            return Err((
                ErrorCode::INVALID_RECORD,
                Some("no record batch".to_owned()),
            ));
        };
        let info = check_produced(records)
            .map_err(|error| (error.error_code(), Some(error.to_string())))?;
        let appended = replica
            .produce(now, records, info.count.unsigned_abs())
            .map_err(|_| (ErrorCode::NOT_LEADER_OR_FOLLOWER, None))?;
        let end = Offset(appended.base_offset.0 + i64::from(info.count));
        Ok((appended.base_offset, end))
    }

    fn name_leader_in_produce(&self, leader: &LeaderInfo, response: &mut ProduceResponse) {
        let partitions = response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partition_responses);
        let mut named = false;
        for partition in partitions {
            if partition.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
                partition.current_leader = self.leader_id_and_epoch(leader);
                named = true;
            }
        }
        if named {
            response.node_endpoints = self.broker_endpoint(leader);
        }
    }

    /// The high watermark moved: appends below it are answered, readers get what is new.
    pub fn on_commit(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        let Some(high_watermark) = replica.raft().high_watermark() else {
            return;
        };
        if replica.raft().role() != Role::Leader {
            return;
        }
        while let Some(append) = self
            .appends
            .pop_front_if(|append| append.end <= high_watermark)
        {
            answers.push(append.asker.answer(ApiResponse::Produce(append.response)));
        }
        for reader in std::mem::take(&mut self.parked) {
            self.read(now, replica, reader, answers);
        }
    }

    /// This node does not lead any more: whoever waits is told to look for the leader.
    pub fn on_leadership_lost(&mut self, replica: &mut Replica, answers: &mut Vec<Answer>) {
        for append in std::mem::take(&mut self.appends) {
            answers.push(self.failed_append(replica, append, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        for reader in std::mem::take(&mut self.parked) {
            answers.push(self.failed_read(replica, reader, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
    }

    fn failed_append(&self, replica: &Replica, mut append: Append, error: ErrorCode) -> Answer {
        let partitions = append
            .response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partition_responses)
            .filter(|partition| partition.error_code.is_none());
        for partition in partitions {
            partition.error_code = error;
            partition.base_offset = Offset(-1);
        }
        self.name_leader_in_produce(&replica.raft().leader_info(), &mut append.response);
        append.asker.answer(ApiResponse::Produce(append.response))
    }

    /// Answers what has waited long enough.
    pub fn on_tick(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        let due = |reader: &mut Reader| reader.deadline <= now.instant;
        for reader in self.parked.extract_if(.., due).collect::<Vec<_>>() {
            let known = replica.raft().high_watermark().is_some();
            let error = if known {
                ErrorCode::NONE
            } else {
                ErrorCode::OFFSET_NOT_AVAILABLE
            };
            answers.push(self.failed_read(replica, reader, error));
        }
        if now.instant >= self.busy_retry {
            self.retry_busy(now, replica, answers);
        }
        if now.instant < self.next_sweep || self.appends.is_empty() {
            return;
        }
        self.next_sweep = now.instant.plus_ms(TIMEOUT_SWEEP_MS);
        let (late, waiting): (VecDeque<_>, VecDeque<_>) = self
            .appends
            .drain(..)
            .partition(|append| append.deadline <= now.instant);
        self.appends = waiting;
        for append in late {
            answers.push(self.failed_append(replica, append, ErrorCode::REQUEST_TIMED_OUT));
        }
    }

    // ---- reads ---------------------------------------------------------------------------------

    fn fetch(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: &FetchRequest,
        answers: &mut Vec<Answer>,
    ) {
        let mut response = FetchResponse::default();
        let mut found: Option<(usize, usize, &FetchPartition)> = None;
        let mut faulty = false;
        for (topic_index, topic) in request.topics.iter().enumerate() {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for (index, partition) in topic.partitions.iter().enumerate() {
                let fault = self.fetch_fault(replica, asker, topic, partition, found.is_some());
                faulty |= fault.is_some();
                if fault.is_none() {
                    found = Some((topic_index, index, partition));
                }
                partitions.push(FetchPartitionResponse {
                    partition_index: partition.partition,
                    error_code: fault.unwrap_or_default(),
                    high_watermark: Offset(-1),
                    ..Default::default()
                });
            }
            response.responses.push(FetchTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions,
            });
        }
        let wait_ms = positive_ms(request.max_wait_ms).min(FETCH_WAIT_MAX_MS);
        // A Fetch that already has something to say does not wait.
        let wait_ms = if faulty { 0 } else { wait_ms };
        let Some((topic, partition, asked)) = found else {
            self.name_leader_in_fetch(&replica.raft().leader_info(), &mut response);
            answers.push(asker.answer(ApiResponse::Fetch(response)));
            return;
        };
        let bytes_max = asked.partition_max_bytes.min(request.max_bytes);
        let reader = Reader {
            asker,
            response,
            topic,
            partition,
            from: asked.fetch_offset,
            bytes_max: usize::try_from(bytes_max).unwrap_or(0).min(FETCH_BYTES_MAX),
            deadline: now.instant.plus_ms(wait_ms),
        };
        self.read(now, replica, reader, answers);
    }

    fn fetch_fault(
        &self,
        replica: &Replica,
        asker: Asker,
        topic: &FetchTopic,
        partition: &FetchPartition,
        again: bool,
    ) -> Option<ErrorCode> {
        let fault = self.topic_fault(asker, &topic.topic, topic.topic_id, partition.partition);
        if fault.is_some() {
            return fault;
        }
        if again {
            return Some(ErrorCode::INVALID_REQUEST);
        }
        epoch_fault(replica, partition.current_leader_epoch)
    }

    /// Answers a reader, or parks it until there is something.
    fn read(&mut self, now: Now, replica: &mut Replica, reader: Reader, answers: &mut Vec<Answer>) {
        let error = match replica.read_committed(reader.from, reader.bytes_max) {
            CommittedRead::Records(records) => {
                answers.push(self.full_read(replica, reader, records));
                return;
            }
            CommittedRead::Pending(id) => {
                self.reading.insert(id, reader);
                return;
            }
            CommittedRead::Busy => {
                self.busy_retry = now.instant.plus_ms(BUSY_RETRY_MS);
                self.busy.push_back(reader);
                return;
            }
            CommittedRead::AtEnd | CommittedRead::NotAvailable if reader.deadline > now.instant => {
                self.parked.push(reader);
                return;
            }
            CommittedRead::AtEnd => ErrorCode::NONE,
            CommittedRead::NotAvailable => ErrorCode::OFFSET_NOT_AVAILABLE,
            CommittedRead::OutOfRange => ErrorCode::OFFSET_OUT_OF_RANGE,
            CommittedRead::NotLeader => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        };
        answers.push(self.failed_read(replica, reader, error));
    }

    /// Reads for those that had to wait, in their order, as far as there is room.
    fn retry_busy(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        for _ in 0..self.busy.len() {
            let Some(reader) = self.busy.pop_front() else {
                return;
            };
            let waiting = self.busy.len();
            self.read(now, replica, reader, answers);
            if self.busy.len() > waiting {
                // No room: back to the front of the line.
                self.busy.rotate_right(1);
                return;
            }
        }
    }

    /// A read of the disk is done.
    pub fn on_read(
        &mut self,
        now: Now,
        replica: &mut Replica,
        id: ReadId,
        records: Option<Bytes>,
        answers: &mut Vec<Answer>,
    ) {
        let Some(reader) = self.reading.remove(&id) else {
            return;
        };
        match records {
            Some(records) if replica.raft().role() == Role::Leader => {
                answers.push(self.full_read(replica, reader, vec![records]));
            }
            // The log changed underneath, or the read failed: the client asks again.
            _ if replica.raft().role() == Role::Leader => {
                answers.push(self.failed_read(replica, reader, ErrorCode::UNKNOWN_SERVER_ERROR));
            }
            _ => self.read(now, replica, reader, answers),
        }
        self.retry_busy(now, replica, answers);
    }

    fn full_read(&self, replica: &Replica, mut reader: Reader, records: Vec<Bytes>) -> Answer {
        let partition = reader.partition_mut();
        partition.records = records;
        fill_offsets(replica, partition);
        reader.asker.answer(ApiResponse::Fetch(reader.response))
    }

    fn failed_read(&self, replica: &Replica, mut reader: Reader, error: ErrorCode) -> Answer {
        let partition = reader.partition_mut();
        partition.error_code = error;
        fill_offsets(replica, partition);
        self.name_leader_in_fetch(&replica.raft().leader_info(), &mut reader.response);
        reader.asker.answer(ApiResponse::Fetch(reader.response))
    }

    fn name_leader_in_fetch(&self, leader: &LeaderInfo, response: &mut FetchResponse) {
        let mut named = false;
        for partition in response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            let stale = matches!(
                partition.error_code,
                ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
            );
            if stale {
                partition.current_leader = self.leader_id_and_epoch(leader);
                named = true;
            }
        }
        if named {
            response.node_endpoints = self.broker_endpoint(leader);
        }
    }

    // ---- questions -----------------------------------------------------------------------------

    fn list_offsets(&self, replica: &Replica, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let topics = request.topics.iter().map(|topic| {
            let is_ours = topic.name == self.identity.topic_name;
            let partitions = topic.partitions.iter();
            ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: partitions
                    .map(|one| list_offset(replica, is_ours, one))
                    .collect(),
            }
        });
        ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn metadata(
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

    fn describe_quorum(
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
    fn describe_cluster(
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

    // ---- what answers share --------------------------------------------------------------------

    /// Whether a partition of a request is not the one log that is here. From version 13 on Fetch
    /// and Produce name a topic by id only.
    fn topic_fault(
        &self,
        asker: Asker,
        name: &str,
        topic_id: Uuid,
        partition: i32,
    ) -> Option<ErrorCode> {
        let by_id = asker.origin.version >= 13;
        if by_id && topic_id != Uuid(self.identity.topic_id) {
            return Some(ErrorCode::UNKNOWN_TOPIC_ID);
        }
        if (!by_id && name != self.identity.topic_name) || partition != 0 {
            return Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        None
    }

    /// The leader, if clients can be told where it is.
    fn reachable_leader(&self, leader: &LeaderInfo) -> Option<NodeId> {
        leader
            .leader_id
            .filter(|id| self.directory.get(*id).is_some())
    }

    fn leader_id_and_epoch(&self, leader: &LeaderInfo) -> LeaderIdAndEpoch {
        LeaderIdAndEpoch {
            leader_id: self.reachable_leader(leader).unwrap_or(-1),
            leader_epoch: leader.epoch,
        }
    }

    fn broker_endpoint(&self, leader: &LeaderInfo) -> Vec<BrokerEndpoint> {
        let endpoint = leader
            .leader_id
            .and_then(|id| self.directory.get(id).map(|endpoint| (id, endpoint)));
        endpoint
            .map(|(node_id, endpoint)| BrokerEndpoint {
                node_id,
                host: endpoint.host.to_string(),
                port: i32::from(endpoint.port),
                rack: None,
            })
            .into_iter()
            .collect()
    }
}

impl Reader {
    fn partition_mut(&mut self) -> &mut FetchPartitionResponse {
        &mut self.response.responses[self.topic].partitions[self.partition]
    }
}

fn positive_ms(ms: i32) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

/// A client that names an epoch wants to be told when it is not the leader's.
fn epoch_fault(replica: &Replica, epoch: Epoch) -> Option<ErrorCode> {
    let own = replica.raft().epoch();
    if epoch.0 < 0 || epoch == own {
        None
    } else if epoch < own {
        Some(ErrorCode::FENCED_LEADER_EPOCH)
    } else {
        Some(ErrorCode::UNKNOWN_LEADER_EPOCH)
    }
}

fn fill_offsets(replica: &Replica, partition: &mut FetchPartitionResponse) {
    let leads = replica.raft().role() == Role::Leader;
    let high_watermark = replica.raft().high_watermark().filter(|_| leads);
    partition.high_watermark = high_watermark.unwrap_or(Offset(-1));
    partition.last_stable_offset = partition.high_watermark;
    partition.log_start_offset = replica.raft().log_start_offset();
}

fn list_offset(
    replica: &Replica,
    is_ours: bool,
    asked: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let raft = replica.raft();
    let found = if !is_ours || asked.partition_index != 0 {
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    } else if raft.role() != Role::Leader {
        Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    } else if let Some(fault) = epoch_fault(replica, asked.current_leader_epoch) {
        Err(fault)
    } else {
        match (asked.timestamp, raft.high_watermark()) {
            (_, None) => Err(ErrorCode::OFFSET_NOT_AVAILABLE),
            (EARLIEST_TIMESTAMP, Some(_)) => Ok(raft.log_start_offset()),
            (LATEST_TIMESTAMP, Some(high_watermark)) => Ok(high_watermark),
            // Look-ups by timestamp are not offered.
            _ => Err(ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT),
        }
    };
    let mut response = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..Default::default()
    };
    match found {
        Ok(offset) => {
            response.offset = offset;
            response.leader_epoch = raft.epoch();
        }
        Err(error) => response.error_code = error,
    }
    response
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
