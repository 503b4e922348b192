//! A whole node without sockets: hostile clients, hostile peers and an honest disk around the very
//! replica and services that a real node runs.
//!
//! Must hold: nothing panics, every answer can be written in the version that was asked in, and the
//! core's own invariants stand after every step.

use crate::messages::{choose_api_of, frame};
use crate::recovery::{dir, log_config};
use crate::source::Source;
use bytes::Bytes;
use quorate::client_service::{Answer, ClientService, Lane, ProducerIds};
use quorate::clock::Now;
use quorate::connections::{ConnectionId, Origin};
use quorate::directory::Directory;
use quorate::raft_wire::{self, FromWire, Identity};
use quorate::replica::{Effect, Replica};
use quorate_net::wire::{begin_quorum_epoch, end_quorum_epoch, fetch, vote};
use quorate_net::{
    ApiKey, ApiRequest, ApiResponse, Connection, Limits, ListenerKind, Reader, Slot,
};
use quorate_raft::{
    DirectoryId, ElectionState, Endpoint, Epoch, Instant, LogState, Outputs, Peer, Raft,
    ReplicaKey, Request, RequestFailure, RequestId, RequestToken, Role, Voter, VoterSet,
};
use quorate_storage::format::Decompressor;
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{Disk, Io, LogEvent, LogWriter, open_log};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const TOPIC: &str = "__cluster_metadata";
/// Steps of one input, at most.
const STEPS_MAX: usize = 64;

/// Input: 1 or 3 voters, then steps: a request to one of the two listeners, an answer to something
/// that the node asked, time that passes, the disk that gets its work done.
pub fn node(data: &[u8]) {
    let mut source = Source::new(data);
    let voters = *source.choose(&[1, 3]);
    let mut node = Node::new(voters);
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        node.step(&mut source);
    }
    node.settle();
    node.pass(60_000);
    node.settle();
}

/// Sends a leader `count` requests of one API and version, each with a body that `body` makes up,
/// then checks that it has stayed what it was.
///
/// # Panics
/// If something in the node does, or a client could move it.
pub fn storm(
    kind: ListenerKind,
    api: ApiKey,
    version: i16,
    count: usize,
    mut body: impl FnMut() -> Vec<u8>,
) {
    let mut node = Node::new(1);
    node.settle();
    node.pass(4_000);
    node.settle();
    let raft = node.replica.raft();
    assert_eq!(raft.role(), Role::Leader);
    let epoch = raft.epoch();
    let lane = match kind {
        ListenerKind::Client => Lane::Clients,
        ListenerKind::Controller => Lane::Controllers,
    };
    for number in 0..count {
        node.ask_with(lane, api, version, &body());
        node.finish_turn();
        if number % 100 == 99 {
            node.settle();
            node.pass(1);
        }
    }
    node.settle();
    let raft = node.replica.raft();
    if kind == ListenerKind::Client {
        assert_eq!((raft.role(), raft.epoch()), (Role::Leader, epoch));
    }
}

/// What the background thread of a real node would do.
enum Task {
    Persist(quorate_raft::ElectionSeq),
    Read(quorate::replica::ReadId, quorate_storage::ReadPlan),
}

struct Node {
    now: Now,
    identity: Arc<Identity>,
    disk: SimDisk,
    writer: LogWriter<SimDisk>,
    replica: Replica,
    service: ClientService,
    clients: Connection,
    controllers: Connection,
    next_correlation: i32,
    /// Requests that are not answered. Their correlation ids, so also their slots, all differ.
    open: HashMap<Slot, Lane>,
    /// Raft requests among them, by the token that the core knows them by.
    tokens: HashMap<RequestToken, Origin>,
    next_token: u64,
    asked: VecDeque<(Peer, RequestId, Request)>,
    tasks: VecDeque<Task>,
    answers: Vec<Answer>,
}

fn kind_of(lane: Lane) -> ListenerKind {
    match lane {
        Lane::Controllers => ListenerKind::Controller,
        _ => ListenerKind::Client,
    }
}

fn endpoint(id: i32) -> Endpoint {
    Endpoint {
        host: "node".into(),
        port: 9000 + id as u16,
    }
}

fn raft_config(voters: VoterSet) -> quorate_raft::Config {
    quorate_raft::Config {
        local: ReplicaKey {
            id: 1,
            directory_id: DirectoryId([1; 16]),
        },
        voters,
        bootstrap: Vec::new(),
        local_endpoint: endpoint(1),
        election_timeout_ms: 1000,
        fetch_timeout_ms: 2000,
        election_backoff_max_ms: 1000,
        request_timeout_ms: 2000,
        retry_backoff_ms: 20,
        retry_backoff_max_ms: 1000,
        fetch_max_wait_ms: 500,
        fetch_max_bytes: 1 << 20,
        fetch_hw_linger_ms: 5,
        seed: 1,
    }
}

impl Node {
    fn new(voters: i32) -> Self {
        let disk = SimDisk::new();
        disk.create_dir_all(&dir()).expect("a healthy disk");
        let log = open_log(disk.clone(), log_config(), Epoch(0)).expect("an empty log");
        let now = Now {
            instant: Instant(1_000_000_000),
            wall_ms: 1_700_000_000_000,
        };
        let voter = |id| Voter {
            key: ReplicaKey::of(id),
            endpoint: endpoint(id),
        };
        let voters = VoterSet::new((1..=voters).map(voter).collect());
        let mut outputs = Outputs::new();
        let state = LogState {
            start_offset: log.log_start,
            end_offset: log.log_end,
            epochs: log.epochs,
        };
        let config = raft_config(voters.clone());
        let election = ElectionState::default();
        let raft = Raft::new(config, election, state, now.instant, &mut outputs);
        let identity = Arc::new(Identity {
            node_id: 1,
            directory_id: DirectoryId([1; 16]),
            cluster_id: "fuzz".to_owned(),
            cluster_id_strict: false,
            topic_name: TOPIC.to_owned(),
            topic_id: [7; 16],
            listener_name: "CONTROLLER".to_owned(),
            voters,
        });
        let directory = Directory::new(1, Some(endpoint(1)));
        let mut node = Self {
            now,
            replica: Replica::new(raft, outputs, log.index, log.producers, 1 << 20, now),
            service: ClientService::new(
                Arc::clone(&identity),
                directory,
                ProducerIds::new(1),
                1024 * 1024,
            ),
            identity,
            disk,
            writer: log.writer,
            clients: Connection::new(ListenerKind::Client, Limits::default()),
            controllers: Connection::new(ListenerKind::Controller, Limits::default()),
            next_correlation: 0,
            open: HashMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
            asked: VecDeque::new(),
            tasks: VecDeque::new(),
            answers: Vec::new(),
        };
        node.finish_turn();
        node
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 8 {
            0 | 1 => self.ask(Lane::Clients, source),
            2 => self.ask(Lane::Controllers, source),
            3 => self.answer_badly(source),
            4 => self.answer_well(),
            5 => {
                if let Some((to, id, _)) = self.asked.pop_front() {
                    let failure = RequestFailure::Disconnected;
                    self.replica.on_request_failed(self.now, to.id, id, failure);
                }
            }
            6 => self.pass(u64::from(source.byte()) * 20),
            _ => self.settle(),
        }
        self.finish_turn();
    }

    /// A request with any body, in a frame as it must be.
    fn ask(&mut self, lane: Lane, source: &mut Source<'_>) {
        let kind = kind_of(lane);
        let (api, version) = choose_api_of(kind, source);
        let count = source.word();
        self.ask_with(lane, api, version, source.take(count));
    }

    fn ask_with(&mut self, lane: Lane, api: ApiKey, version: i16, body: &[u8]) {
        let kind = kind_of(lane);
        self.next_correlation += 1;
        let frame = frame(api, version, self.next_correlation, body);
        let connection = self.connection(lane);
        connection.received(&frame);
        loop {
            let inbound = match self.connection(lane).next_request() {
                Ok(Some(inbound)) => inbound,
                Ok(None) => return,
                // The stranger comes again.
                Err(_) => {
                    *self.connection(lane) = Connection::new(kind, Limits::default());
                    self.open.retain(|_, of| *of != lane);
                    return;
                }
            };
            let origin = Origin {
                connection: ConnectionId::default(),
                slot: inbound.slot,
                version: inbound.header.api_version,
                frame_bytes: inbound.frame_bytes,
                received: self.now.instant,
            };
            self.open.insert(inbound.slot, lane);
            self.serve(lane, origin, inbound.request);
        }
    }

    fn connection(&mut self, lane: Lane) -> &mut Connection {
        match lane {
            Lane::Controllers => &mut self.controllers,
            _ => &mut self.clients,
        }
    }

    fn serve(&mut self, lane: Lane, origin: Origin, request: ApiRequest) {
        let other = match lane {
            Lane::Controllers => match raft_wire::request_from_wire(&self.identity, request) {
                FromWire::Raft(request) => {
                    let token = RequestToken(self.next_token);
                    self.next_token += 1;
                    self.tokens.insert(token, origin);
                    return self.replica.on_request(self.now, token, &request);
                }
                FromWire::Refused(response) => return self.respond(lane, origin, Some(response)),
                FromWire::Other(other) => other,
            },
            _ => request,
        };
        let (replica, answers) = (&mut self.replica, &mut self.answers);
        self.service
            .on_request(self.now, replica, lane, origin, other, answers);
    }

    /// Whatever is answered must be possible to write.
    fn respond(&mut self, lane: Lane, origin: Origin, response: Option<ApiResponse>) {
        if self.open.remove(&origin.slot).is_none() {
            return;
        }
        let connection = self.connection(lane);
        match response {
            Some(response) => {
                let written = connection.respond_with(origin.slot, &response);
                assert_eq!(written, Ok(()), "version {}: {response:?}", origin.version);
            }
            None => connection.skip(origin.slot),
        }
        if let Some(output) = connection.take_output() {
            connection.recycle(output);
        }
    }

    /// A peer's answer with any body.
    fn answer_badly(&mut self, source: &mut Source<'_>) {
        let Some((to, id, request)) = self.asked.pop_front() else {
            return;
        };
        let api = raft_wire::request_to_wire(&self.identity, &to, &request).api();
        let versions = ListenerKind::Controller.versions(api).expect("a raft API");
        let versions: Vec<i16> = versions.collect();
        let version = *source.choose(&versions);
        let count = source.word();
        let body = Bytes::copy_from_slice(source.take(count));
        if let Ok(answer) = ApiResponse::decode(api, version, &mut Reader::new(&body)) {
            self.hear(&to, id, answer);
        }
    }

    /// A peer's answer as this node would like it: its vote, or nothing new.
    fn answer_well(&mut self) {
        let Some((to, id, request)) = self.asked.pop_front() else {
            return;
        };
        let epoch = self.replica.raft().epoch();
        let answer = match request {
            Request::Vote(request) => granted(request.epoch),
            Request::Fetch(_) => nothing_new(to.id, epoch),
            Request::BeginQuorumEpoch(_) => {
                ApiResponse::BeginQuorumEpoch(begin_quorum_epoch::BeginQuorumEpochResponse {
                    topics: vec![begin_quorum_epoch::BeginQuorumEpochTopicResponse {
                        topic_name: TOPIC.to_owned(),
                        partitions: vec![Default::default()],
                    }],
                    ..Default::default()
                })
            }
            Request::EndQuorumEpoch(_) => {
                ApiResponse::EndQuorumEpoch(end_quorum_epoch::EndQuorumEpochResponse::default())
            }
        };
        self.hear(&to, id, answer);
    }

    fn hear(&mut self, from: &Peer, id: RequestId, answer: ApiResponse) {
        match raft_wire::response_from_wire(answer) {
            Some((response, records)) => {
                self.replica
                    .on_response(self.now, from.id, id, &response, &records);
            }
            None => {
                let failure = RequestFailure::Disconnected;
                self.replica
                    .on_request_failed(self.now, from.id, id, failure);
            }
        }
    }

    /// Time passes, and timers fire on the way.
    fn pass(&mut self, ms: u64) {
        let end = self.now.instant.plus_ms(ms);
        // Every timer is set anew at least a millisecond ahead, or the node would spin.
        for _ in 0..4 * ms + 4 {
            let due = self.replica.next_deadline().filter(|at| *at <= end);
            self.now.instant = due.unwrap_or(end).max(self.now.instant);
            if due.is_some() {
                self.replica.on_tick(self.now);
            }
            let (replica, answers) = (&mut self.replica, &mut self.answers);
            self.service.on_tick(self.now, replica, answers);
            self.finish_turn();
            if due.is_none() {
                return;
            }
        }
    }

    fn finish_turn(&mut self) {
        while let Some(check) = self.service.next_check() {
            let checked = check.run(&mut Decompressor::new());
            let (replica, answers) = (&mut self.replica, &mut self.answers);
            self.service.on_checked(self.now, replica, checked, answers);
        }
        self.replica.finish_turn(self.now);
        self.carry_out();
        self.replica.raft().check_invariants();
    }

    fn carry_out(&mut self) {
        let mut effects = Vec::new();
        loop {
            for answer in std::mem::take(&mut self.answers) {
                self.respond(answer.lane, answer.origin, answer.response);
            }
            self.replica.take_effects(&mut effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects.drain(..) {
                self.carry_out_one(effect);
            }
        }
    }

    fn carry_out_one(&mut self, effect: Effect) {
        let (now, replica, answers) = (self.now, &mut self.replica, &mut self.answers);
        match effect {
            Effect::Send { to, id, request } => {
                self.asked.retain(|(peer, ..)| peer.id != to.id);
                self.asked.push_back((to, id, request));
            }
            Effect::Respond {
                token,
                response,
                records,
            } => {
                let origin = self.tokens.remove(&token).expect("answered once");
                let version = origin.version;
                let wire = raft_wire::response_to_wire(&self.identity, version, response, records);
                self.respond(Lane::Controllers, origin, Some(wire));
            }
            Effect::Append(batch) => self.writer.append(batch),
            Effect::Truncate {
                end_offset,
                generation,
            } => self.writer.truncate(end_offset, generation),
            Effect::PersistElection { seq, .. } => self.tasks.push_back(Task::Persist(seq)),
            Effect::Read { id, plan } => self.tasks.push_back(Task::Read(id, plan)),
            Effect::ConsumerRead { id, records } => {
                self.service.on_read(now, replica, id, records, answers);
            }
            Effect::Committed(_) => self.service.on_commit(now, replica, answers),
            Effect::Became { role, .. } => {
                if role != Role::Leader {
                    self.service.on_leadership_lost(replica, answers);
                }
            }
            Effect::ReadFault(error) => panic!("{error}"),
            Effect::Conflict { .. } | Effect::ShutdownComplete => {}
        }
    }

    /// The disk does what is asked of it, until nothing is left.
    fn settle(&mut self) {
        loop {
            self.finish_turn();
            if let Some(task) = self.tasks.pop_front() {
                match task {
                    Task::Persist(seq) => self.replica.on_election_persisted(self.now, seq),
                    Task::Read(id, plan) => self.replica.on_read(id, plan.run(&self.disk)),
                }
            } else if let Some(io) = self.writer.poll() {
                self.writer.fill_next_group();
                if let Some(event) = self.run(io) {
                    self.replica.on_log_event(self.now, &event);
                }
            } else {
                return;
            }
        }
    }

    fn run(&mut self, io: Io<SimDisk>) -> Option<LogEvent> {
        let done = match io {
            Io::Group(group) => {
                let result = group.run_blocking();
                self.writer.on_group_done(group, result)
            }
            Io::Job(job) => self.writer.on_job_done(job.run()),
        };
        done.expect("a healthy disk")
    }
}

fn granted(epoch: Epoch) -> ApiResponse {
    ApiResponse::Vote(vote::VoteResponse {
        topics: vec![vote::VoteTopicResponse {
            topic_name: TOPIC.to_owned(),
            partitions: vec![vote::VotePartitionResponse {
                partition_index: 0,
                leader_id: -1,
                leader_epoch: epoch,
                vote_granted: true,
                ..Default::default()
            }],
        }],
        ..Default::default()
    })
}

fn nothing_new(leader_id: i32, leader_epoch: Epoch) -> ApiResponse {
    ApiResponse::Fetch(fetch::FetchResponse {
        responses: vec![fetch::FetchTopicResponse {
            partitions: vec![fetch::FetchPartitionResponse {
                current_leader: quorate_net::wire::LeaderIdAndEpoch {
                    leader_id,
                    leader_epoch,
                },
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    })
}
