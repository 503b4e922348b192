//! Step 2 of 5 of the append path: the raft loop, one thread with one ring.
//!
//! Before: `quorate_net::Connection` made a typed request of a frame; after: the core assigns
//! offsets (`quorate_raft`, step 3) and the log writer forms a group (step 4). One turn = drain
//! completions and queues, read the clock once, step the replica, carry its effects out, submit
//! once. Sends to followers are pushed ahead of the disk write, so that all disks work at once.

mod observer;

pub use observer::Observer;

use crate::background::{Background, Done, Mailbox, Task};
use crate::client_loop::ClientLane;
use crate::client_service::{Answer, ClientService, Lane};
use crate::clock::{Clock, Now};
use crate::connections::{AnswerBudget, ConnectionSet, Origin};
use crate::log_loop::{LogCommand, LogDone, LogDriver, LogReport};
use crate::peers::{PeerEvent, Peers};
use crate::raft_service::{RaftService, Routed};
use crate::replica::{Effect, Replica};
use quorate_net::ApiRequest;
use quorate_raft::{ErrorCode, Instant, NodeId, Response, Role, VoterSet};
use quorate_ring::{Completion, Ring, Wait};
use quorate_storage::{LogEvent, StorageError};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Top byte of the user data of the raft loop's completions.
pub mod tags {
    /// Connections of the controller listener.
    pub const CONTROLLERS: u8 = 1;
    /// Connections of client listeners, when the raft loop serves clients itself.
    pub const CLIENTS: u8 = 2;
    /// Links to peers.
    pub const PEERS: u8 = 3;
    /// Writes and flushes of the log, in the `fused` placement.
    pub const LOG: u8 = 4;
}

/// How long a leader that shuts down waits for appends under way to be committed.
const DRAIN_MS: u64 = 500;
/// How long it waits for a successor.
const SUCCESSOR_MS: u64 = 5_000;
/// How long answers given last may take to leave.
const LINGER_MS: u64 = 50;
/// How long a node whose disk failed tells the voters so before it ends.
const FAREWELL_MS: u64 = 300;

/// What one turn takes in of clients' requests, in bytes of Produce: bounds the time until its
/// sends and writes are submitted.
const TURN_BYTES: usize = 1024 * 1024;

/// A byte of another request costs as much as so many of Produce: it is decoded field by field.
const QUESTION_WEIGHT: usize = 8;

/// What each request costs besides, as bytes of Produce.
const REQUEST_WEIGHT: usize = 1024;

/// Requests of peers in one turn.
const PEER_REQUESTS_PER_TURN: usize = 256;

/// How a raft loop ends badly.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The log could not be written; the node must not go on.
    #[error("the disk failed, so this node stops: {0}")]
    Storage(#[from] StorageError),
    /// The quorum-state file could not be written.
    #[error("the election state could not be written, so this node stops: {0}")]
    ElectionState(io::Error),
    /// The ring failed.
    #[error("io_uring failed: {0}")]
    Ring(io::Error),
    /// A majority of the voters belongs to another cluster.
    #[error(
        "this node's data directory is of cluster {cluster_id:?}, but voters {voters:?} are of \
         another one: its meta.properties or controller.quorum.voters is wrong"
    )]
    WrongCluster {
        /// `cluster.id` of this node.
        cluster_id: String,
        /// Who refused it.
        voters: BTreeSet<NodeId>,
    },
}

impl LoopError {
    /// Whether the machine failed, and not what the operator wrote.
    #[must_use]
    pub fn is_hardware(&self) -> bool {
        !matches!(self, Self::WrongCluster { .. })
    }
}

/// Where the log writer runs.
pub enum Log {
    /// On this thread and ring.
    Fused(Box<LogDriver>),
    /// On its own thread.
    Split {
        /// Commands to it.
        commands: Arc<Mailbox<Vec<LogCommand>>>,
        /// Commands of this turn, and those that did not fit into the mailbox.
        pending: Vec<LogCommand>,
        /// Reports from it.
        reports: Arc<Mailbox<LogReport>>,
    },
}

/// Everything a raft loop is made of.
pub struct Parts {
    /// Its ring, made on its thread.
    pub ring: Ring,
    /// The clock all timers go by.
    pub clock: Clock,
    /// The replica.
    pub replica: Replica,
    /// Answers peers.
    pub raft_service: RaftService,
    /// Answers clients.
    pub client_service: ClientService,
    /// The controller listener's connections.
    pub controllers: ConnectionSet,
    /// Client connections, if this loop serves them itself.
    pub clients: Option<ConnectionSet>,
    /// What clients' unread answers take.
    pub answers: Arc<AnswerBudget>,
    /// Client loops, if there are any.
    pub lanes: Vec<ClientLane>,
    /// Links to peers.
    pub peers: Peers,
    /// The log writer.
    pub log: Log,
    /// The background thread.
    pub background: Background,
    /// Set from outside to begin the graceful shutdown.
    pub stop: Arc<AtomicBool>,
    /// How the loop waits.
    pub wait: WaitKind,
    /// Appended but not flushed bytes above which senders wait.
    pub unflushed_bytes_max: usize,
    /// What is noticed for the operator.
    pub observer: Observer,
}

/// How a loop waits for its next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// Sleeps in the kernel at once.
    Block,
    /// Looks at the queue for a bounded time first.
    Adaptive {
        /// The bound; 50 us or less.
        spin: Duration,
    },
}

impl WaitKind {
    /// Waiting for at most `timeout`.
    #[must_use]
    pub fn until(self, timeout: Option<Duration>) -> Wait {
        match self {
            Self::Block => Wait::Until { timeout },
            Self::Adaptive { spin } => Wait::Spin {
                for_: spin,
                timeout,
            },
        }
    }

    /// Waiting without a deadline.
    #[must_use]
    pub fn forever(self) -> Wait {
        self.until(None)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// No new appends; those under way are waited for.
    Draining {
        until: Instant,
    },
    /// The core has been told to shut down.
    Leaving {
        until: Instant,
    },
    /// Last answers leave.
    Lingering {
        until: Instant,
    },
    /// The log is being sealed.
    Closing,
    /// The disk failed; the voters are told.
    Failed {
        until: Instant,
    },
    Done,
}

/// Peers that refused this node's cluster id, until one takes it.
#[derive(Default)]
struct ClusterRefusals {
    by: BTreeSet<NodeId>,
    is_taken: bool,
}

impl ClusterRefusals {
    /// Counts an answer; whether a majority of `voters` has refused this node and nobody ever took
    /// it. So a single stray node cannot make others believe that they are in the wrong place.
    fn on_answer(&mut self, from: NodeId, response: &Response, voters: &VoterSet) -> bool {
        if response.error() != ErrorCode::INCONSISTENT_CLUSTER_ID {
            self.is_taken = true;
            return false;
        }
        if self.by.insert(from) {
            tracing::error!(peer = from, "a peer is of another cluster");
        }
        !self.is_taken && self.by.len() >= voters.majority()
    }
}

/// The raft loop.
pub struct RaftLoop {
    parts: Parts,
    stage: Stage,
    failure: Option<LoopError>,
    refusals: ClusterRefusals,
    completions: Vec<Completion>,
    effects: Vec<Effect>,
    peer_events: Vec<PeerEvent>,
    answers: Vec<Answer>,
    lane_answers: Vec<Vec<Answer>>,
    /// The last turn left requests of client loops for the next.
    has_more_requests: bool,
}

impl RaftLoop {
    /// A loop of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let lane_answers = parts.lanes.iter().map(|_| Vec::new()).collect();
        Self {
            parts,
            stage: Stage::Running,
            failure: None,
            refusals: ClusterRefusals::default(),
            completions: Vec::new(),
            effects: Vec::new(),
            peer_events: Vec::new(),
            answers: Vec::new(),
            lane_answers,
            has_more_requests: false,
        }
    }

    /// Runs until the node has shut down.
    ///
    /// # Errors
    /// If the disk or the ring failed.
    pub fn run(mut self) -> Result<(), LoopError> {
        let mut now = self.parts.clock.read();
        while self.stage != Stage::Done {
            self.work(now);
            let worked = self.parts.clock.instant();
            self.publish(now, worked);
            self.submit(now, worked);
            let wait = self.wait(now);
            self.parts
                .ring
                .turn(wait, &mut self.completions)
                .map_err(LoopError::Ring)?;
            now = self.parts.clock.read();
            self.parts.observer.on_returned(worked, now.instant);
            self.take_completions(now);
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Everything between two submissions.
    fn work(&mut self, now: Now) {
        self.take_background_results(now);
        self.take_log_reports(now);
        self.take_peer_events(now);
        self.forget_gone();
        let room = self.parts.answers.room();
        self.parts.client_service.set_room(room);
        self.serve_peers(now);
        self.serve_clients(now);
        while let Some(check) = self.parts.client_service.next_check() {
            self.parts.background.start_task(Task::Check(check));
        }
        self.fire_timers(now);
        self.parts.replica.finish_turn(now);
        self.carry_out(now);
        self.hand_out_answers();
        self.advance_stage(now);
        self.carry_out(now);
        self.hand_out_answers();
    }

    /// Tells the operator's side what the turn was like, and how things stand if it asked.
    fn publish(&mut self, now: Now, worked: Instant) {
        let parts = &mut self.parts;
        let observer = &mut parts.observer;
        observer.on_worked(now.instant, worked, &parts.replica);
        let is_stopping = self.stage != Stage::Running;
        observer.maybe_answer(now, &parts.replica, is_stopping);
        let metrics = observer.metrics();
        metrics.raft.ring.publish(parts.ring.counters());
        parts.controllers.publish(&metrics.controllers);
        if let Some(clients) = &parts.clients {
            clients.publish(&metrics.clients[0]);
        }
        let service = &parts.client_service;
        let raft = &metrics.raft;
        raft.waiting_appends.set_size(service.waiting_appends());
        raft.waiting_fetches.set_size(service.waiting_fetches());
        if let Log::Split { commands, .. } = &parts.log {
            raft.log_commands.set_size(commands.waiting());
        }
        if !parts.lanes.is_empty() {
            let waiting = parts.lanes.iter().map(|lane| lane.requests.waiting());
            raft.client_requests.set_size(waiting.sum());
        }
    }

    fn wait(&self, now: Now) -> Wait {
        let stage = match self.stage {
            Stage::Draining { until }
            | Stage::Leaving { until }
            | Stage::Lingering { until }
            | Stage::Failed { until } => Some(until),
            _ => None,
        };
        let deadline = [
            self.parts.replica.next_deadline(),
            self.parts.client_service.next_deadline(),
            self.parts.controllers.next_deadline(),
            self.parts
                .clients
                .as_ref()
                .and_then(ConnectionSet::next_deadline),
            stage,
        ];
        let deadline = deadline.into_iter().flatten().min();
        let timeout = deadline.map(|at| Duration::from_nanos(at.0.saturating_sub(now.instant.0)));
        if self.stage == Stage::Done || self.has_more_work() {
            return Wait::No;
        }
        self.parts.wait.until(timeout)
    }

    /// Whether something was left for the next turn that can be done in it.
    fn has_more_work(&self) -> bool {
        let parts = &self.parts;
        let clients = parts.clients.as_ref();
        parts.peers.has_events()
            || (self.has_more_requests && !self.is_held_back())
            || parts.controllers.has_ready()
            || (!self.is_held_back() && clients.is_some_and(ConnectionSet::has_ready))
            || self.lane_answers.iter().any(|answers| !answers.is_empty())
    }

    /// Whether senders have to wait for the disk.
    fn is_held_back(&self) -> bool {
        self.parts.replica.unflushed_bytes() > self.parts.unflushed_bytes_max
    }

    fn take_completions(&mut self, now: Now) {
        let mut completions = std::mem::take(&mut self.completions);
        for Completion { user, kind } in completions.drain(..) {
            let parts = &mut self.parts;
            match (user >> 56) as u8 {
                tags::CONTROLLERS => {
                    parts
                        .controllers
                        .on_completion(&mut parts.ring, now.instant, user, kind);
                }
                tags::CLIENTS => {
                    let clients = parts.clients.as_mut().expect("only its own completions");
                    clients.on_completion(&mut parts.ring, now.instant, user, kind);
                }
                tags::PEERS => {
                    parts
                        .peers
                        .on_completion(&mut parts.ring, now.instant, user, kind);
                }
                tags::LOG => {
                    let Log::Fused(driver) = &mut parts.log else {
                        panic!("a log completion without a log writer")
                    };
                    let outcome = driver.on_completion(&mut parts.ring, now.instant, user, kind);
                    self.on_log_outcome(now, outcome);
                }
                tag => panic!("a completion with an unknown tag {tag}"),
            }
        }
        self.completions = completions;
    }

    fn take_background_results(&mut self, now: Now) {
        while let Some(done) = self.parts.background.next_result() {
            match done {
                Done::Storage(job) => {
                    let Log::Fused(driver) = &mut self.parts.log else {
                        panic!("a storage job of another loop")
                    };
                    let outcome = driver.on_job_done(job);
                    self.on_log_outcome(now, outcome);
                }
                Done::ElectionPersisted {
                    seq,
                    result: Ok(()),
                } => {
                    self.parts.replica.on_election_persisted(now, seq);
                }
                Done::ElectionPersisted {
                    result: Err(error), ..
                } => {
                    self.failure.get_or_insert(LoopError::ElectionState(error));
                }
                Done::Read { id, result } => self.parts.replica.on_read(id, result),
                Done::Checked(checked) => {
                    let parts = &mut self.parts;
                    let (service, replica) = (&mut parts.client_service, &mut parts.replica);
                    service.on_checked(now, replica, checked, &mut self.answers);
                }
                Done::Resolved { endpoint, result } => {
                    self.parts
                        .peers
                        .on_resolved(&mut self.parts.ring, &endpoint, result);
                }
            }
        }
    }

    fn take_log_reports(&mut self, now: Now) {
        let Log::Split { reports, .. } = &self.parts.log else {
            return;
        };
        let reports = Arc::clone(reports);
        while let Some(report) = reports.receive() {
            self.on_log_outcome(now, report.map(Some));
        }
    }

    /// Tells the replica what the log writer reported.
    fn on_log_outcome(&mut self, now: Now, outcome: Result<Option<LogDone>, StorageError>) {
        match outcome {
            Ok(Some(done)) if done.event == LogEvent::Closed => self.stage = Stage::Done,
            Ok(Some(done)) if self.failure.is_none() => {
                self.parts.observer.on_log(&done);
                self.parts.replica.on_log_event(now, &done.event);
            }
            Ok(_) => {}
            Err(error) => {
                self.failure.get_or_insert(LoopError::Storage(error));
            }
        }
    }

    fn take_peer_events(&mut self, now: Now) {
        let mut events = std::mem::take(&mut self.peer_events);
        self.parts.peers.take_events(&mut events);
        for event in events.drain(..) {
            match event {
                PeerEvent::Response {
                    from,
                    id,
                    response,
                    records,
                } => {
                    self.check_cluster(from, &response);
                    self.parts
                        .replica
                        .on_response(now, from, id, &response, &records);
                }
                PeerEvent::Failed { from, id, failure } => {
                    self.parts.replica.on_request_failed(now, from, id, failure);
                }
                PeerEvent::ClientEndpoints(endpoints) => {
                    let directory = self.parts.client_service.directory_mut();
                    directory.learn(endpoints);
                    let complete = directory.is_complete(self.parts.replica.raft().voters());
                    self.parts.peers.set_directory_complete(complete);
                }
                PeerEvent::Resolve { endpoint } => {
                    self.parts.background.start_task(Task::Resolve { endpoint });
                }
            }
        }
        self.peer_events = events;
    }

    fn check_cluster(&mut self, from: NodeId, response: &Response) {
        let voters = self.parts.replica.raft().voters();
        if self.refusals.on_answer(from, response, voters) {
            let cluster_id = self.parts.raft_service.cluster_id().to_owned();
            let voters = self.refusals.by.clone();
            self.failure
                .get_or_insert(LoopError::WrongCluster { cluster_id, voters });
        }
    }

    fn serve_peers(&mut self, now: Now) {
        for _ in 0..PEER_REQUESTS_PER_TURN {
            let Some((origin, request)) = self.parts.controllers.next_request() else {
                return;
            };
            match self.parts.raft_service.on_request(origin, request) {
                Routed::Raft(token, request) => {
                    self.parts.replica.on_request(now, token, &request);
                }
                Routed::Refused(response) => {
                    self.parts.observer.on_answer(&response);
                    self.parts.controllers.respond(origin, &response);
                }
                Routed::Other(request) => {
                    self.serve_client(now, Lane::Controllers, origin, request);
                }
            }
        }
    }

    fn serve_clients(&mut self, now: Now) {
        let mut left = TURN_BYTES;
        while left > 0 && !self.is_held_back() {
            let Some(clients) = self.parts.clients.as_mut() else {
                break;
            };
            let Some((origin, request)) = clients.next_request() else {
                break;
            };
            left = left.saturating_sub(weight(&origin, &request));
            self.serve_client(now, Lane::Clients, origin, request);
            // At once, so that a connection's unread answers hold its next request back.
            self.hand_out_answers();
        }
        for index in 0..self.parts.lanes.len() {
            let requests = Arc::clone(&self.parts.lanes[index].requests);
            while left > 0
                && !self.is_held_back()
                && let Some(batch) = requests.receive()
            {
                for (origin, request) in batch.requests {
                    left = left.saturating_sub(weight(&origin, &request));
                    self.serve_client(now, Lane::Loop(index), origin, request);
                }
                self.parts
                    .client_service
                    .forget(Lane::Loop(index), &batch.gone);
            }
        }
        self.has_more_requests = left == 0;
    }

    /// Clients that left are not read for any more.
    fn forget_gone(&mut self) {
        let parts = &mut self.parts;
        let clients = parts
            .clients
            .as_mut()
            .map(|clients| (Lane::Clients, clients));
        for (lane, set) in [(Lane::Controllers, &mut parts.controllers)]
            .into_iter()
            .chain(clients)
        {
            let gone = set.take_abandoned();
            if gone.is_empty() {
                continue;
            }
            parts.client_service.forget(lane, &gone);
            if lane == Lane::Controllers {
                for token in parts.raft_service.forget(&gone) {
                    parts.replica.forget_request(token);
                }
            }
        }
    }

    fn serve_client(&mut self, now: Now, lane: Lane, origin: Origin, request: ApiRequest) {
        let parts = &mut self.parts;
        parts.observer.on_request(now.instant, origin, &request);
        parts.client_service.on_request(
            now,
            &mut parts.replica,
            lane,
            origin,
            request,
            &mut self.answers,
        );
    }

    fn fire_timers(&mut self, now: Now) {
        let parts = &mut self.parts;
        if parts
            .replica
            .next_deadline()
            .is_some_and(|at| at <= now.instant)
        {
            parts.replica.on_tick(now);
        }
        parts
            .client_service
            .on_tick(now, &mut parts.replica, &mut self.answers);
        parts.controllers.on_tick(&mut parts.ring, now.instant);
        if let Some(clients) = &mut parts.clients {
            clients.on_tick(&mut parts.ring, now.instant);
        }
    }

    /// Carries the replica's effects out, in their order.
    fn carry_out(&mut self, now: Now) {
        let mut effects = std::mem::take(&mut self.effects);
        loop {
            self.parts.replica.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                self.carry_out_one(now, effect);
            }
        }
        self.effects = effects;
    }

    fn is_log_closed(&self) -> bool {
        self.failure.is_some() || matches!(self.stage, Stage::Closing | Stage::Done)
    }

    fn carry_out_one(&mut self, now: Now, effect: Effect) {
        let log_closed = self.is_log_closed();
        let parts = &mut self.parts;
        match effect {
            Effect::Send { to, id, request } => {
                parts
                    .peers
                    .send(&mut parts.ring, now.instant, to, id, request)
            }
            Effect::Respond {
                token,
                response,
                records,
            } => {
                parts.observer.on_peer_answer(response.error());
                parts
                    .raft_service
                    .respond(&mut parts.controllers, token, response, records);
            }
            // Once the log is being sealed, or has failed, nothing that comes in is taken: it is
            // never flushed, so it is never acknowledged.
            Effect::Append(_) | Effect::Truncate { .. } if log_closed => {}
            Effect::Append(batch) => {
                parts
                    .observer
                    .on_append(parts.replica.raft().role(), &batch);
                parts.log.on_command(LogCommand::Append(batch));
            }
            Effect::Truncate {
                end_offset,
                generation,
            } => {
                parts.observer.on_truncate();
                tracing::warn!(%end_offset, "cutting the log: it diverged from the leader's");
                parts.log.on_command(LogCommand::Truncate {
                    end_offset,
                    generation,
                });
            }
            Effect::PersistElection { seq, election } => {
                parts
                    .background
                    .start_task(Task::PersistElection { seq, election });
            }
            Effect::Read { id, plan } => parts.background.start_task(Task::Read { id, plan }),
            Effect::ConsumerRead { id, records } => {
                parts.client_service.on_read(
                    now,
                    &mut parts.replica,
                    id,
                    records,
                    &mut self.answers,
                );
            }
            Effect::ReadFault(error) => parts.observer.on_read_fault(now.instant, &error),
            Effect::Committed(high_watermark) => {
                parts.observer.on_committed(now.instant, high_watermark);
                parts
                    .client_service
                    .on_commit(now, &mut parts.replica, &mut self.answers);
            }
            Effect::Became {
                role,
                epoch,
                leader_id,
                reason,
            } => {
                parts.observer.on_became(now, role, leader_id, reason);
                let leader = leader_id.map_or_else(|| "none".to_owned(), |id| id.to_string());
                tracing::info!(?role, %epoch, leader, reason, "state changed");
                if role != Role::Leader {
                    parts
                        .client_service
                        .on_leadership_lost(&mut parts.replica, &mut self.answers);
                }
            }
            Effect::Conflict { what, from } => {
                parts.observer.on_conflict(now.instant, what, from);
            }
            Effect::ShutdownComplete => {
                if matches!(self.stage, Stage::Leaving { .. }) {
                    self.stage = Stage::Lingering {
                        until: now.instant.plus_ms(LINGER_MS),
                    };
                }
            }
        }
    }

    /// Gives answers to the connections they belong to.
    fn hand_out_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        for answer in answers.drain(..) {
            if let Some(response) = &answer.response {
                self.parts.observer.on_answer(response);
            }
            match answer.lane {
                Lane::Controllers => answer.give(&mut self.parts.controllers),
                Lane::Clients => {
                    answer.give(
                        self.parts
                            .clients
                            .as_mut()
                            .expect("its request came from there"),
                    );
                }
                Lane::Loop(index) => {
                    if let Some(response) = &answer.response {
                        self.parts.answers.charge(response);
                    }
                    self.lane_answers[index].push(answer);
                }
            }
        }
        self.answers = answers;
        for (index, pending) in self.lane_answers.iter_mut().enumerate() {
            if !pending.is_empty() {
                let batch = std::mem::take(pending);
                if let Err(batch) = self.parts.lanes[index].answers.send(batch) {
                    *pending = batch;
                }
            }
        }
    }

    /// Walks through the shutdown.
    fn advance_stage(&mut self, now: Now) {
        if self.failure.is_some() && !matches!(self.stage, Stage::Failed { .. } | Stage::Done) {
            self.parts.client_service.refuse_appends();
            self.parts.replica.on_storage_failed(now);
            self.stage = Stage::Failed {
                until: now.instant.plus_ms(FAREWELL_MS),
            };
        }
        match self.stage {
            Stage::Running if self.parts.stop.load(Ordering::Acquire) => {
                tracing::info!("shutting down");
                self.parts.client_service.refuse_appends();
                self.stage = Stage::Draining {
                    until: now.instant.plus_ms(DRAIN_MS),
                };
                self.advance_stage(now);
            }
            Stage::Draining { until }
                if !self.parts.client_service.has_uncommitted() || now.instant >= until =>
            {
                self.stage = Stage::Leaving {
                    until: now.instant.plus_ms(SUCCESSOR_MS),
                };
                self.parts.replica.shutdown(now);
            }
            Stage::Leaving { until } if now.instant >= until => {
                tracing::warn!("no successor took over in time");
                self.stage = Stage::Lingering { until: now.instant };
            }
            Stage::Lingering { until } if now.instant >= until => {
                let producers = self.parts.replica.producer_snapshot();
                self.parts.log.on_command(LogCommand::Close(producers));
                self.stage = Stage::Closing;
            }
            Stage::Failed { until } if now.instant >= until => self.stage = Stage::Done,
            _ => {}
        }
    }

    /// Pushes what is to be submitted: answers and sends first, then the disk.
    fn submit(&mut self, now: Now, worked: Instant) {
        let parts = &mut self.parts;
        parts.controllers.flush(&mut parts.ring);
        parts.peers.flush(&mut parts.ring, now.instant);
        if let Some(clients) = &mut parts.clients {
            clients.flush(&mut parts.ring);
        }
        match &mut parts.log {
            Log::Fused(driver) if self.failure.is_none() => {
                driver.start_io(&mut parts.ring, worked)
            }
            Log::Fused(_) => {}
            Log::Split {
                commands, pending, ..
            } => {
                if !pending.is_empty()
                    && let Err(unsent) = commands.send(std::mem::take(pending))
                {
                    *pending = unsent;
                }
            }
        }
    }
}

/// What a request costs a turn.
fn weight(origin: &Origin, request: &ApiRequest) -> usize {
    let bytes = match request {
        ApiRequest::Produce(_) => origin.frame_bytes,
        _ => origin.frame_bytes * QUESTION_WEIGHT,
    };
    bytes + REQUEST_WEIGHT
}

impl Log {
    fn on_command(&mut self, command: LogCommand) {
        match self {
            Self::Fused(driver) => driver.on_command(command),
            Self::Split { pending, .. } => pending.push(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_raft::{Endpoint, EpochResponse, LeaderInfo, ReplicaKey, Voter};

    fn voters() -> VoterSet {
        let endpoint = Endpoint {
            host: "h".into(),
            port: 1,
        };
        let voter = |id| Voter {
            key: ReplicaKey::of(id),
            endpoint: endpoint.clone(),
        };
        VoterSet::new((1..=3).map(voter).collect())
    }

    fn answer(error: ErrorCode) -> Response {
        Response::BeginQuorumEpoch(EpochResponse {
            error,
            leader: LeaderInfo::default(),
        })
    }

    #[test]
    fn a_node_is_in_the_wrong_cluster_only_if_a_majority_says_so_and_nobody_took_it() {
        let refusal = answer(ErrorCode::INCONSISTENT_CLUSTER_ID);
        let mut stray = ClusterRefusals::default();
        assert!(!stray.on_answer(2, &refusal, &voters()));
        assert!(
            !stray.on_answer(2, &refusal, &voters()),
            "the same voter again"
        );
        assert!(stray.on_answer(3, &refusal, &voters()));
        let mut rightful = ClusterRefusals::default();
        assert!(!rightful.on_answer(2, &answer(ErrorCode::NONE), &voters()));
        assert!(!rightful.on_answer(3, &refusal, &voters()));
        assert!(!rightful.on_answer(2, &refusal, &voters()));
    }
}
