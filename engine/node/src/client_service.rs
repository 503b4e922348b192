//! Answers clients: appends that wait for their commit, reads of committed records, and questions
//! about the quorum.
//!
//! Runs on the raft loop, beside the replica. An append is answered after its commit and never
//! before; a reader sees committed records and nothing else, whatever replica id it claims.

mod checks;
mod describe;
mod epoch_ends;
mod produce;
mod producer_ids;
mod reads;

use crate::clock::Now;
use crate::connections::{AnswerRoom, ConnectionId, ConnectionSet, Origin};
use crate::directory::Directory;
use crate::raft_wire::Identity;
use crate::replica::{ReadId, Replica};
use checks::Checks;
pub use checks::{BatchCheck, BatchChecked};
use produce::Append;
pub use producer_ids::ProducerIds;
use quorate_net::apis::api_versions_response;
use quorate_net::wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use quorate_net::wire::{BrokerEndpoint, LeaderIdAndEpoch, Uuid};
use quorate_net::{ApiRequest, ApiResponse, ListenerKind};
use quorate_raft::{ErrorCode, Instant, LeaderInfo, NodeId, Role};
use reads::Reader;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The client's addresses are those of another cluster or node (Kafka's REBOOTSTRAP_REQUIRED).
const REBOOTSTRAP_REQUIRED: ErrorCode = ErrorCode(129);

/// Which set of connections a request came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Serves clients.
pub struct ClientService {
    identity: Arc<Identity>,
    directory: Directory,
    producer_ids: ProducerIds,
    checks: Checks,
    appends: VecDeque<Append>,
    parked: Vec<Reader>,
    reading: HashMap<ReadId, Reader>,
    /// Readers whose records are on the disk, and who wait for their turn to be read for.
    busy: VecDeque<Reader>,
    busy_retry: Instant,
    /// What readers may be given until the loop says anew.
    room: AnswerRoom,
    refuses_appends: bool,
    next_sweep: Instant,
}

impl ClientService {
    /// A service for the log of `identity`. Of a compressed batch, `decompressed_bytes_max` bytes
    /// are taken at most.
    #[must_use]
    pub fn new(
        identity: Arc<Identity>,
        directory: Directory,
        producer_ids: ProducerIds,
        decompressed_bytes_max: u64,
    ) -> Self {
        Self {
            identity,
            directory,
            producer_ids,
            checks: Checks::new(decompressed_bytes_max),
            appends: VecDeque::new(),
            parked: Vec::new(),
            reading: HashMap::new(),
            busy: VecDeque::new(),
            busy_retry: Instant(0),
            room: AnswerRoom {
                plenty: usize::MAX,
                last: usize::MAX,
            },
            refuses_appends: false,
            next_sweep: Instant(0),
        }
    }

    /// Says how much memory there is for answers with records. Without a word there is no bound.
    pub fn set_room(&mut self, room: AnswerRoom) {
        self.room = room;
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

    /// Appends that wait for their commit.
    #[must_use]
    pub fn waiting_appends(&self) -> usize {
        self.appends.len()
    }

    /// Fetches that wait for records or for the disk.
    #[must_use]
    pub fn waiting_fetches(&self) -> usize {
        self.parked.len() + self.reading.len() + self.busy.len()
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
                return self.take_produce(now, replica, asker, request, answers);
            }
            ApiRequest::Fetch(request) => {
                return self.fetch(now, replica, asker, &request, answers);
            }
            ApiRequest::ApiVersions(request) => {
                let kind = match lane {
                    Lane::Controllers => ListenerKind::Controller,
                    Lane::Clients | Lane::Loop(_) => ListenerKind::Client,
                };
                ApiResponse::ApiVersions(self.api_versions(kind, origin.version, &request))
            }
            ApiRequest::Metadata(request) => {
                ApiResponse::Metadata(self.metadata(replica, origin.version, &request))
            }
            ApiRequest::ListOffsets(request) => {
                ApiResponse::ListOffsets(self.list_offsets(replica, &request))
            }
            ApiRequest::InitProducerId(request) => {
                ApiResponse::InitProducerId(self.init_producer_id(replica, &request))
            }
            ApiRequest::OffsetForLeaderEpoch(request) => {
                ApiResponse::OffsetForLeaderEpoch(self.offset_for_leader_epoch(replica, &request))
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

    /// The high watermark moved: appends below it are answered, readers get what is new.
    pub fn on_commit(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        let Some(high_watermark) = replica.raft().high_watermark() else {
            return;
        };
        if replica.raft().role() != Role::Leader {
            return;
        }
        self.answer_committed(high_watermark, answers);
        self.wake_readers(now, replica, answers);
    }

    /// This node does not lead any more: whoever waits is told to look for the leader.
    pub fn on_leadership_lost(&mut self, replica: &mut Replica, answers: &mut Vec<Answer>) {
        self.fail_appends(replica, answers);
        self.fail_readers(replica, answers);
    }

    /// Connections of this lane are gone: nothing that waits for them is done or answered any more.
    /// What is appended stays appended.
    pub fn forget(&mut self, lane: Lane, gone: &[ConnectionId]) {
        let is_gone = |asker: Asker| asker.lane == lane && gone.contains(&asker.origin.connection);
        self.appends.retain(|append| !is_gone(append.asker()));
        self.forget_readers(&is_gone);
        self.checks.forget(&is_gone);
    }

    /// Answers what has waited long enough.
    pub fn on_tick(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        self.sweep_readers(now, replica, answers);
        self.sweep_appends(now, replica, answers);
    }

    /// 129 if the client looks for another cluster or node: it has old addresses (KIP-1242).
    fn api_versions(
        &self,
        kind: ListenerKind,
        version: i16,
        request: &ApiVersionsRequest,
    ) -> ApiVersionsResponse {
        let mut response = api_versions_response(kind, version, request);
        let expected = request.cluster_id.as_ref();
        let is_other = expected.is_some_and(|id| {
            *id != self.identity.cluster_id || request.node_id != self.identity.node_id
        });
        if is_other && response.error_code.is_none() {
            response = ApiVersionsResponse {
                error_code: REBOOTSTRAP_REQUIRED,
                ..Default::default()
            };
        }
        response
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

fn positive_ms(ms: i32) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}
