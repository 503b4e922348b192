//! A quorum in memory: replicas, their disks, and the network between them, all by hand.
//!
//! Nothing happens by itself: messages wait until they are delivered, writes until the disk is told
//! to go on, and each replica has its own clock. The scenarios and the randomized test drive it.
#![allow(dead_code)]

use quorate_raft::*;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// A batch as it lies in a log. `value` stands for the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub meta: BatchMeta,
    pub value: u64,
}

/// One thing that the disk has been asked to do to the log.
#[derive(Clone, Copy, Debug)]
pub enum LogWrite {
    Append(Generation, Batch),
    Truncate(Generation, Offset),
}

/// What survives a crash, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub durable_log: Vec<Batch>,
    pub durable_election: ElectionState,
    pub log_writes: VecDeque<LogWrite>,
    pub election_writes: VecDeque<(ElectionSeq, ElectionState)>,
}

impl Disk {
    /// Carries out the oldest write; the report for the core.
    pub fn write_log(&mut self) -> Option<(Generation, Offset)> {
        match self.log_writes.pop_front()? {
            LogWrite::Append(generation, batch) => {
                assert_eq!(end_of(&self.durable_log), batch.meta.base_offset);
                self.durable_log.push(batch);
                Some((generation, batch.meta.end_offset))
            }
            LogWrite::Truncate(generation, end) => {
                cut(&mut self.durable_log, end);
                Some((generation, end))
            }
        }
    }

    /// Checks a request of replica `id` against what is durable, whatever the core thinks.
    fn assert_may_leave(&self, id: NodeId, request: &Request) {
        let durable = self.durable_election;
        match request {
            Request::Vote(vote) if !vote.pre_vote => {
                let is_own = durable.voted.is_some_and(|key| key.id == id);
                assert!(
                    is_own && durable.epoch == vote.epoch,
                    "{id} asks: {durable:?}"
                );
            }
            Request::Vote(_) | Request::EndQuorumEpoch(_) => {}
            Request::BeginQuorumEpoch(begin) => {
                let is_leader = durable.leader_id == Some(id) && durable.epoch == begin.epoch;
                assert!(is_leader, "{id} begins: {durable:?}");
            }
            Request::Fetch(fetch) => {
                assert_eq!(durable.epoch, fetch.current_leader_epoch, "{id} fetches");
                let mut acknowledged = self.durable_log.clone();
                assert!(
                    end_of(&acknowledged) >= fetch.fetch_offset,
                    "{id} acknowledges too much"
                );
                cut(&mut acknowledged, fetch.fetch_offset);
                let last = acknowledged
                    .last()
                    .map_or(Epoch(0), |batch| batch.meta.epoch);
                assert_eq!(
                    last, fetch.last_fetched_epoch,
                    "{id} acknowledges another log"
                );
            }
        }
    }

    /// The log with everything that was asked for.
    pub fn log(&self) -> Vec<Batch> {
        let mut whole = self.clone();
        while whole.write_log().is_some() {}
        whole.durable_log
    }
}

pub fn end_of(log: &[Batch]) -> Offset {
    log.last().map_or(Offset(0), |batch| batch.meta.end_offset)
}

fn cut(log: &mut Vec<Batch>, end: Offset) {
    while end_of(log) > end {
        let last = log.last_mut().expect("the end is above 0");
        if last.meta.base_offset >= end {
            log.pop();
        } else {
            // A log of a real follower is only ever cut at batch borders.
            last.meta.end_offset = end;
        }
    }
}

pub struct Node {
    pub config: Config,
    pub disk: Disk,
    /// `None`: not running.
    pub raft: Option<Raft>,
    pub now: Instant,
    /// Requests that wait for an answer of this replica; with the vote that each asks for, if one.
    pub tokens: BTreeMap<RequestToken, (NodeId, RequestId, Option<Epoch>)>,
    pub high_watermark: Option<Offset>,
    pub is_shut_down: bool,
    pub conflicts: u32,
}

#[derive(Clone, Debug)]
pub enum Payload {
    Request(Request),
    Response(Response, Vec<Batch>),
    Failure(RequestFailure),
}

#[derive(Clone, Debug)]
pub struct Message {
    pub from: NodeId,
    pub to: NodeId,
    pub id: RequestId,
    pub payload: Payload,
}

/// The replicas and what is between them.
pub struct Cluster {
    pub voters: Vec<NodeId>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub network: VecDeque<Message>,
    /// Those that were asked to shut down and have not been started again.
    pub shutting_down: Vec<NodeId>,
    /// Messages from or to these are lost as they are sent.
    pub cut_off: Vec<NodeId>,
    /// One line for each message and each change.
    pub trace: Vec<String>,
    pub is_tracing: bool,
    next_token: u64,
    next_value: u64,
    seed: u64,
}

pub fn endpoint(id: NodeId) -> Endpoint {
    Endpoint {
        host: format!("node{id}").into(),
        port: 9093,
    }
}

impl Cluster {
    pub fn new(voters: &[NodeId], seed: u64) -> Self {
        Self {
            voters: voters.to_vec(),
            nodes: BTreeMap::new(),
            network: VecDeque::new(),
            shutting_down: Vec::new(),
            cut_off: Vec::new(),
            trace: Vec::new(),
            is_tracing: true,
            next_token: 1,
            next_value: 1,
            seed,
        }
    }

    fn voter_set(&self) -> VoterSet {
        let voter = |id: &NodeId| Voter {
            key: ReplicaKey::of(*id),
            endpoint: endpoint(*id),
        };
        VoterSet::new(self.voters.iter().map(voter).collect())
    }

    fn config(&self, id: NodeId) -> Config {
        let mut directory_id = DirectoryId::default();
        directory_id.0[15] = u8::try_from(id).expect("small ids");
        Config {
            local: ReplicaKey { id, directory_id },
            voters: self.voter_set(),
            bootstrap: Vec::new(),
            local_endpoint: endpoint(id),
            election_timeout_ms: 1000,
            fetch_timeout_ms: 2000,
            election_backoff_max_ms: 1000,
            request_timeout_ms: 2000,
            retry_backoff_ms: 20,
            retry_backoff_max_ms: 1000,
            fetch_max_wait_ms: 500,
            fetch_max_bytes: 1 << 20,
            fetch_hw_linger_ms: 0,
            seed: self
                .seed
                .wrapping_mul(1000)
                .wrapping_add(u64::from(directory_id.0[15])),
        }
    }

    /// A replica that is not running yet; `epochs` are those of its records, one a batch.
    pub fn add(&mut self, id: NodeId, epochs: &[i32], election: ElectionState) {
        let batch = |(index, epoch): (usize, &i32)| {
            let base = i64::try_from(index).expect("small logs");
            Batch {
                meta: BatchMeta {
                    base_offset: Offset(base),
                    end_offset: Offset(base + 1),
                    epoch: Epoch(*epoch),
                },
                value: 1_000_000 * u64::from(epoch.unsigned_abs()) + base.unsigned_abs(),
            }
        };
        let disk = Disk {
            durable_log: epochs.iter().enumerate().map(batch).collect(),
            durable_election: election,
            ..Disk::default()
        };
        let node = Node {
            config: self.config(id),
            disk,
            raft: None,
            now: Instant::default(),
            tokens: BTreeMap::new(),
            high_watermark: None,
            is_shut_down: false,
            conflicts: 0,
        };
        self.nodes.insert(id, node);
    }

    pub fn start(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a replica");
        let log = LogState {
            start_offset: Offset(0),
            end_offset: end_of(&node.disk.durable_log),
            epochs: epochs_of(&node.disk.durable_log),
        };
        let mut out = Outputs::new();
        let election = node.disk.durable_election;
        let raft = Raft::new(node.config.clone(), election, log, node.now, &mut out);
        node.raft = Some(raft);
        node.is_shut_down = false;
        node.high_watermark = None;
        self.carry_out(id, out, &[]);
    }

    /// Memory is lost; the disk keeps what it had, and by chance more: the first `log_writes` and
    /// `election_writes` of those that were on their way.
    pub fn crash(&mut self, id: NodeId, log_writes: usize, election_writes: usize) {
        let node = self.nodes.get_mut(&id).expect("a replica");
        node.raft = None;
        for _ in 0..log_writes {
            node.disk.write_log();
        }
        for _ in 0..election_writes {
            if let Some((_, election)) = node.disk.election_writes.pop_front() {
                node.disk.durable_election = election;
            }
        }
        node.disk.log_writes.clear();
        node.disk.election_writes.clear();
        node.tokens.clear();
        self.note(format!("{id} crashes"));
    }

    pub fn raft(&self, id: NodeId) -> &Raft {
        self.nodes[&id].raft.as_ref().expect("a running replica")
    }

    pub fn is_running(&self, id: NodeId) -> bool {
        self.nodes[&id].raft.is_some()
    }

    /// Hands something to the core of `id`, ends its turn, and carries out what it asks for.
    pub fn step<T>(
        &mut self,
        id: NodeId,
        batches: &[Batch],
        act: impl FnOnce(&mut Raft, Instant, &mut Outputs) -> T,
    ) -> Option<T> {
        let node = self.nodes.get_mut(&id).expect("a replica");
        let raft = node.raft.as_mut()?;
        let mut out = Outputs::new();
        let result = act(raft, node.now, &mut out);
        raft.finish_turn(node.now, &mut out);
        raft.check_invariants();
        let deadline = raft.next_deadline();
        assert!(deadline.is_none_or(|due| due > node.now), "{id} would spin");
        self.carry_out(id, out, batches);
        Some(result)
    }

    pub fn append(&mut self, id: NodeId) -> bool {
        let value = self.next_value;
        self.next_value += 1;
        let node = self.nodes.get_mut(&id).expect("a replica");
        let Some(raft) = node.raft.as_mut() else {
            return false;
        };
        match raft.append(node.now, 1) {
            Ok(appended) => {
                let meta = BatchMeta {
                    base_offset: appended.base_offset,
                    end_offset: Offset(appended.base_offset.0 + 1),
                    epoch: appended.epoch,
                };
                let generation = raft.generation();
                let batch = Batch { meta, value };
                let write = LogWrite::Append(generation, batch);
                node.disk.log_writes.push_back(write);
                self.note(format!(
                    "{id} appends {} epoch {}",
                    meta.base_offset, meta.epoch
                ));
                self.step(id, &[], |_, _, _| ());
                true
            }
            Err(refused) => {
                let leader = option(refused.leader.leader_id);
                self.note(format!("{id} refuses the append, leader {leader}"));
                false
            }
        }
    }

    /// Ticks `id` at its next deadline; its clock moves there.
    pub fn timeout(&mut self, id: NodeId) {
        let Some(due) = self.nodes[&id].raft.as_ref().and_then(Raft::next_deadline) else {
            return;
        };
        let node = self.nodes.get_mut(&id).expect("a replica");
        node.now = node.now.max(due);
        self.step(id, &[], |raft, now, out| raft.on_tick(now, out));
    }

    /// Moves the clock of `id` on, firing what becomes due on the way, message after message.
    pub fn advance(&mut self, id: NodeId, ms: u64) {
        let until = self.nodes[&id].now.plus_ms(ms);
        loop {
            let raft = self.nodes[&id].raft.as_ref();
            match raft.and_then(Raft::next_deadline) {
                Some(due) if due <= until => self.timeout(id),
                _ => break,
            }
        }
        self.nodes.get_mut(&id).expect("a replica").now = until;
    }

    pub fn persist(&mut self, id: NodeId) -> bool {
        let disk = &mut self.nodes.get_mut(&id).expect("a replica").disk;
        let Some((seq, election)) = disk.election_writes.pop_front() else {
            return false;
        };
        disk.durable_election = election;
        self.note(format!("{id} persisted #{}", seq.0));
        self.step(id, &[], |raft, now, out| {
            raft.on_election_persisted(now, seq, out);
        });
        true
    }

    pub fn flush(&mut self, id: NodeId) -> bool {
        let disk = &mut self.nodes.get_mut(&id).expect("a replica").disk;
        let Some((generation, end)) = disk.write_log() else {
            return false;
        };
        self.note(format!("{id} flushed to {end} generation {}", generation.0));
        self.step(id, &[], |raft, now, out| {
            raft.on_flushed(now, generation, end, out);
        });
        true
    }

    /// Takes the message at `index` off the network and gives it to its receiver.
    pub fn deliver(&mut self, index: usize) {
        let message = self.network.remove(index).expect("a message");
        let Message { from, to, id, .. } = message;
        match message.payload {
            Payload::Request(_) if !self.is_running(to) => {
                let payload = Payload::Failure(RequestFailure::Refused);
                self.post(Message {
                    from: to,
                    to: from,
                    id,
                    payload,
                });
            }
            Payload::Request(request) => {
                let token = RequestToken(self.next_token);
                self.next_token += 1;
                let node = self.nodes.get_mut(&to).expect("a replica");
                let vote = match &request {
                    Request::Vote(vote) if !vote.pre_vote => Some(vote.epoch),
                    _ => None,
                };
                node.tokens.insert(token, (from, id, vote));
                self.step(to, &[], |raft, now, out| {
                    raft.on_request(now, token, &request, out);
                });
            }
            Payload::Response(response, batches) => {
                let metas: Vec<BatchMeta> = batches.iter().map(|batch| batch.meta).collect();
                self.step(to, &batches, |raft, now, out| {
                    raft.on_response(now, from, id, &response, &metas, out);
                });
            }
            Payload::Failure(failure) => {
                self.step(to, &[], |raft, now, out| {
                    raft.on_request_failed(now, from, id, failure, out);
                });
            }
        }
    }

    fn post(&mut self, message: Message) {
        let is_lost = [message.from, message.to]
            .iter()
            .any(|id| self.cut_off.contains(id));
        let line = describe_message(&message);
        if is_lost {
            self.note(format!("{line} (lost)"));
        } else {
            self.note(line);
            self.network.push_back(message);
        }
    }

    fn respond(&mut self, from: NodeId, token: RequestToken, response: Response, log: Vec<Batch>) {
        let node = self.nodes.get_mut(&from).expect("a replica");
        let Some((to, id, vote)) = node.tokens.remove(&token) else {
            panic!("{from} answered {token:?} twice");
        };
        if let (Response::Vote(VoteResponse { granted: true, .. }), Some(epoch)) = (&response, vote)
        {
            let durable = node.disk.durable_election;
            let is_given = durable.epoch == epoch && durable.voted.is_some_and(|key| key.id == to);
            assert!(
                is_given || durable.epoch > epoch,
                "{from} promised {to} a vote: {durable:?}"
            );
        }
        let payload = Payload::Response(response, log);
        self.post(Message {
            from,
            to,
            id,
            payload,
        });
    }

    fn carry_out(&mut self, id: NodeId, out: Outputs, fetched: &[Batch]) {
        for output in out {
            self.carry_out_one(id, output, fetched);
        }
    }

    fn carry_out_one(&mut self, id: NodeId, output: Output, fetched: &[Batch]) {
        let node = self.nodes.get_mut(&id).expect("a replica");
        let generation = node.raft.as_ref().map(Raft::generation).unwrap_or_default();
        match output {
            Output::Send {
                to,
                id: request_id,
                request,
            } => {
                node.disk.assert_may_leave(id, &request);
                let payload = Payload::Request(request);
                self.post(Message {
                    from: id,
                    to: to.id,
                    id: request_id,
                    payload,
                });
            }
            Output::Respond { token, response } => self.respond(id, token, response, Vec::new()),
            Output::RespondFetch {
                token, response, ..
            } => {
                let from = response.records_from.unwrap_or(Offset(i64::MAX));
                let log = node.disk.log().into_iter();
                let records = log.filter(|batch| batch.meta.base_offset >= from).take(5);
                let records = records.collect();
                self.respond(id, token, Response::Fetch(response), records);
            }
            Output::AppendLeaderChange {
                base_offset,
                epoch,
                granting,
                ..
            } => {
                let meta = BatchMeta {
                    base_offset,
                    end_offset: Offset(base_offset.0 + 1),
                    epoch,
                };
                let value = 1_000_000_000 + u64::from(epoch.0.unsigned_abs());
                let write = LogWrite::Append(generation, Batch { meta, value });
                node.disk.log_writes.push_back(write);
                self.note(format!(
                    "{id} appends {base_offset} epoch {epoch}: LeaderChange, granting {granting:?}"
                ));
            }
            Output::AppendFetched { count } => {
                for batch in &fetched[..count] {
                    node.disk
                        .log_writes
                        .push_back(LogWrite::Append(generation, *batch));
                }
                let (first, end) = (
                    fetched[0].meta.base_offset,
                    fetched[count - 1].meta.end_offset,
                );
                self.note(format!("{id} appends {first}..{end} fetched"));
            }
            Output::Truncate {
                end_offset,
                generation,
            } => {
                let write = LogWrite::Truncate(generation, end_offset);
                node.disk.log_writes.push_back(write);
                self.note(format!(
                    "{id} truncates to {end_offset}, generation {}",
                    generation.0
                ));
            }
            Output::PersistElection { seq, election } => {
                node.disk.election_writes.push_back((seq, election));
                let leader = option(election.leader_id);
                let voted = option(election.voted.map(|key| key.id));
                let epoch = election.epoch;
                self.note(format!(
                    "{id} persists #{}: epoch {epoch} leader {leader} voted {voted}",
                    seq.0
                ));
            }
            Output::Commit { high_watermark } => {
                assert!(
                    Some(high_watermark) > node.high_watermark,
                    "high watermark fell"
                );
                node.high_watermark = Some(high_watermark);
                self.note(format!("{id} commits to {high_watermark}"));
            }
            Output::Become {
                role,
                epoch,
                leader_id,
                reason,
            } => {
                let leader = option(leader_id);
                self.note(format!(
                    "{id} is {role:?}, epoch {epoch} leader {leader}: {reason}"
                ));
            }
            Output::Conflict { what, from } => {
                node.conflicts += 1;
                self.note(format!("{id} CONFLICT with {}: {what}", option(from)));
            }
            Output::ShutdownComplete => {
                node.is_shut_down = true;
                self.note(format!("{id} shut down"));
            }
        }
    }

    fn note(&mut self, line: String) {
        if self.is_tracing {
            self.trace.push(line);
        }
    }

    pub fn state_of(&self, id: NodeId) -> String {
        let Some(raft) = self.nodes[&id].raft.as_ref() else {
            return format!("{id} is down");
        };
        format!(
            "{id} {:?} epoch {} leader {} high watermark {} flushed {} end {} epoch {}",
            raft.role(),
            raft.epoch(),
            option(raft.leader_id()),
            option(raft.high_watermark()),
            raft.flushed_offset(),
            raft.log_end_offset(),
            raft.last_epoch()
        )
    }
}

pub fn epochs_of(log: &[Batch]) -> Vec<EpochStart> {
    let mut epochs: Vec<EpochStart> = Vec::new();
    for batch in log {
        if epochs
            .last()
            .is_none_or(|last| last.epoch < batch.meta.epoch)
        {
            epochs.push(EpochStart {
                epoch: batch.meta.epoch,
                start_offset: batch.meta.base_offset,
            });
        }
    }
    epochs
}

pub fn option<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn describe_message(message: &Message) -> String {
    let what = match &message.payload {
        Payload::Request(request) => describe_request(request),
        Payload::Response(response, batches) => describe_response(response, batches),
        Payload::Failure(failure) => format!("{failure:?}"),
    };
    format!("{} -> {} {what}", message.from, message.to)
}

fn describe_request(request: &Request) -> String {
    match request {
        Request::Vote(vote) => format!(
            "{} epoch {} last {}@{}",
            if vote.pre_vote { "PreVote" } else { "Vote" },
            vote.epoch,
            vote.last.offset,
            vote.last.epoch
        ),
        Request::BeginQuorumEpoch(begin) => {
            format!(
                "BeginQuorumEpoch leader {} epoch {}",
                begin.leader_id, begin.epoch
            )
        }
        Request::EndQuorumEpoch(end) => {
            let preferred = end.preferred_candidates.iter().map(|key| key.id);
            let preferred: Vec<NodeId> = preferred.collect();
            format!(
                "EndQuorumEpoch leader {} epoch {} preferred {preferred:?}",
                end.leader_id, end.epoch
            )
        }
        Request::Fetch(fetch) => format!(
            "Fetch epoch {} at {}@{} high watermark {}",
            fetch.current_leader_epoch,
            fetch.fetch_offset,
            fetch.last_fetched_epoch,
            option(fetch.high_watermark)
        ),
    }
}

fn describe_response(response: &Response, batches: &[Batch]) -> String {
    let mut line = String::new();
    let leader = match response {
        Response::Vote(vote) => {
            write!(line, "answers Vote {}", vote.error).unwrap();
            line.push_str(if vote.granted { " granted" } else { " refused" });
            &vote.leader
        }
        Response::BeginQuorumEpoch(begin) => {
            write!(line, "answers BeginQuorumEpoch {}", begin.error).unwrap();
            &begin.leader
        }
        Response::EndQuorumEpoch(end) => {
            write!(line, "answers EndQuorumEpoch {}", end.error).unwrap();
            &end.leader
        }
        Response::Fetch(fetch) => {
            write!(line, "answers Fetch {}", fetch.error).unwrap();
            if let Some(end) = fetch.diverging {
                write!(line, " diverging {}@{}", end.offset, end.epoch).unwrap();
            }
            if let (Some(first), Some(last)) = (batches.first(), batches.last()) {
                let (first, end) = (first.meta.base_offset, last.meta.end_offset);
                write!(line, " records {first}..{end}").unwrap();
            }
            let high_watermark = option(fetch.high_watermark);
            write!(line, " high watermark {high_watermark}").unwrap();
            &fetch.leader
        }
    };
    let leader_id = option(leader.leader_id);
    write!(line, ", epoch {} leader {leader_id}", leader.epoch).unwrap();
    line
}
