//! One replica for tests with hand-made messages. Its disk reports everything at once.
#![allow(dead_code)]

use quorate_raft::*;

/// A replica whose disk reports everything at once.
pub struct Replica {
    pub raft: Raft,
    pub now: Instant,
    next_token: u64,
    /// What it did since the last look, without disk writes.
    pub done: Vec<Output>,
}

pub fn endpoint(id: NodeId) -> Endpoint {
    Endpoint {
        host: format!("node{id}").into(),
        port: 9093,
    }
}

pub fn at(offset: i64, epoch: i32) -> OffsetAndEpoch {
    OffsetAndEpoch {
        offset: Offset(offset),
        epoch: Epoch(epoch),
    }
}

pub fn key(id: NodeId) -> ReplicaKey {
    ReplicaKey {
        id,
        directory_id: DirectoryId([u8::try_from(id).unwrap(); 16]),
    }
}

pub fn config(id: NodeId, voters: &[NodeId]) -> Config {
    let voter = |id: &NodeId| Voter {
        key: ReplicaKey::of(*id),
        endpoint: endpoint(*id),
    };
    Config {
        local: key(id),
        voters: VoterSet::new(voters.iter().map(voter).collect()),
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
        seed: 1,
    }
}

pub fn log_state(epochs: &[(i32, i64)], end: i64) -> LogState {
    let start = |(epoch, start): &(i32, i64)| EpochStart {
        epoch: Epoch(*epoch),
        start_offset: Offset(*start),
    };
    LogState {
        start_offset: Offset(0),
        end_offset: Offset(end),
        epochs: epochs.iter().map(start).collect(),
    }
}

impl Replica {
    /// Voter 1 of 1, 2, 3 in `epoch`, with a log of epoch 1 up to `end`.
    pub fn voter(epoch: i32, leader_id: Option<NodeId>, end: i64) -> Self {
        let log = match end {
            0 => log_state(&[], 0),
            end => log_state(&[(1, 0)], end),
        };
        Self::start(config(1, &[1, 2, 3]), epoch, leader_id, log)
    }

    /// As [`Self::leader`], one that holds answers with nothing but a new high watermark.
    pub fn lingering_leader(linger_ms: u64) -> Self {
        let mut config = config(1, &[1, 2, 3]);
        config.fetch_hw_linger_ms = linger_ms;
        Self::start(config, 1, None, log_state(&[(1, 0)], 3)).elected()
    }

    pub fn start(config: Config, epoch: i32, leader_id: Option<NodeId>, log: LogState) -> Self {
        let election = ElectionState {
            epoch: Epoch(epoch),
            leader_id,
            voted: None,
        };
        let now = Instant::default();
        let mut out = Outputs::new();
        let raft = Raft::new(config, election, log, now, &mut out);
        let mut replica = Self {
            raft,
            now,
            next_token: 1,
            done: Vec::new(),
        };
        replica.settle(out);
        replica
    }

    /// A leader of epoch 2 whose log is 0..3 of epoch 1 and its LeaderChange record at 3, flushed.
    pub fn leader() -> Self {
        Self::voter(1, None, 3).elected()
    }

    fn elected(self) -> Self {
        let mut replica = self;
        replica.elapse(5_000);
        replica.answer_all(|request| match request {
            Request::Vote(vote) => Some(granted(vote.epoch.0)),
            _ => None,
        });
        replica.answer_all(|request| match request {
            Request::Vote(vote) => Some(granted(vote.epoch.0)),
            _ => None,
        });
        assert_eq!(replica.raft.role(), Role::Leader);
        replica.done.clear();
        replica
    }

    /// Carries out what concerns the disk, at once.
    pub fn settle(&mut self, out: Outputs) {
        let mut pending = out;
        loop {
            let mut next = Outputs::new();
            for output in pending {
                match output {
                    Output::PersistElection { seq, .. } => {
                        self.raft.on_election_persisted(self.now, seq, &mut next);
                    }
                    Output::AppendFetched { .. }
                    | Output::AppendLeaderChange { .. }
                    | Output::Truncate { .. } => {
                        let (generation, end) =
                            (self.raft.generation(), self.raft.log_end_offset());
                        self.done.push(output);
                        self.raft.on_flushed(self.now, generation, end, &mut next);
                    }
                    other => self.done.push(other),
                }
            }
            self.raft.finish_turn(self.now, &mut next);
            self.raft.check_invariants();
            if next.is_empty() {
                return;
            }
            pending = next;
        }
    }

    pub fn act(&mut self, act: impl FnOnce(&mut Raft, Instant, &mut Outputs)) {
        let mut out = Outputs::new();
        act(&mut self.raft, self.now, &mut out);
        self.settle(out);
    }

    pub fn elapse(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.act(|raft, now, out| raft.on_tick(now, out));
    }

    pub fn request(&mut self, request: Request) -> RequestToken {
        let token = RequestToken(self.next_token);
        self.next_token += 1;
        self.act(|raft, now, out| raft.on_request(now, token, &request, out));
        token
    }

    /// The answer to `token`, if it has been given.
    pub fn answer(&self, token: RequestToken) -> Option<Response> {
        self.done.iter().find_map(|output| match output {
            Output::Respond {
                token: of,
                response,
            } if *of == token => Some(response.clone()),
            Output::RespondFetch {
                token: of,
                response,
                ..
            } if *of == token => Some(Response::Fetch(response.clone())),
            _ => None,
        })
    }

    pub fn vote(&mut self, request: VoteRequest) -> VoteResponse {
        let token = self.request(Request::Vote(request));
        match self.answer(token) {
            Some(Response::Vote(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn begin(&mut self, leader_id: NodeId, epoch: i32) -> EpochResponse {
        let token = self.request(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            voter: Some(ReplicaKey::of(1)),
            leader_id,
            epoch: Epoch(epoch),
            endpoint: Some(endpoint(leader_id)),
        }));
        match self.answer(token) {
            Some(Response::BeginQuorumEpoch(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn end(&mut self, leader_id: NodeId, epoch: i32, preferred: &[NodeId]) -> EpochResponse {
        let token = self.request(Request::EndQuorumEpoch(EndQuorumEpochRequest {
            leader_id,
            epoch: Epoch(epoch),
            preferred_candidates: preferred.iter().map(|id| ReplicaKey::of(*id)).collect(),
            endpoint: None,
        }));
        match self.answer(token) {
            Some(Response::EndQuorumEpoch(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn fetch(&mut self, request: FetchRequest) -> Option<FetchResponse> {
        let token = self.request(Request::Fetch(request));
        match self.answer(token) {
            Some(Response::Fetch(response)) => Some(response),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn fetch_error(&mut self, request: FetchRequest) -> ErrorCode {
        self.fetch(request).expect("an answer").error
    }

    /// The requests that were sent and not looked at yet.
    pub fn take_sent(&mut self) -> Vec<(NodeId, RequestId, Request)> {
        let mut sent = Vec::new();
        self.done.retain(|output| match output {
            Output::Send { to, id, request } => {
                sent.push((to.id, *id, request.clone()));
                false
            }
            _ => true,
        });
        sent
    }

    pub fn answer_all(&mut self, answer: impl Fn(&Request) -> Option<Response>) {
        for (from, id, request) in self.take_sent() {
            if let Some(response) = answer(&request) {
                self.act(|raft, now, out| raft.on_response(now, from, id, &response, &[], out));
            }
        }
    }

    /// Answers the Fetch that is out to `leader`.
    pub fn answer_fetch(&mut self, leader: NodeId, response: FetchResponse, batches: &[BatchMeta]) {
        let sent = self.take_sent().into_iter();
        let mut fetches =
            sent.filter(|(to, _, request)| *to == leader && matches!(request, Request::Fetch(_)));
        let (from, id, _) = fetches.next().expect("a Fetch to the leader");
        let response = Response::Fetch(response);
        self.act(|raft, now, out| raft.on_response(now, from, id, &response, batches, out));
    }

    pub fn conflicts(&self) -> usize {
        let conflicts = self.done.iter();
        conflicts
            .filter(|output| matches!(output, Output::Conflict { .. }))
            .count()
    }

    pub fn truncations(&self) -> usize {
        let truncations = self.done.iter();
        truncations
            .filter(|output| matches!(output, Output::Truncate { .. }))
            .count()
    }
}

pub fn granted(epoch: i32) -> Response {
    Response::Vote(VoteResponse {
        error: ErrorCode::NONE,
        leader: LeaderInfo {
            epoch: Epoch(epoch),
            ..LeaderInfo::default()
        },
        granted: true,
    })
}

pub fn vote_request(from: NodeId, epoch: i32, last: OffsetAndEpoch) -> VoteRequest {
    VoteRequest {
        voter: Some(ReplicaKey::of(1)),
        epoch: Epoch(epoch),
        replica: key(from),
        last,
        pre_vote: false,
    }
}

pub fn pre_vote_request(from: NodeId, epoch: i32, last: OffsetAndEpoch) -> VoteRequest {
    VoteRequest {
        pre_vote: true,
        ..vote_request(from, epoch, last)
    }
}

pub fn fetch_request(from: NodeId, epoch: i32, position: OffsetAndEpoch) -> FetchRequest {
    FetchRequest {
        replica: key(from),
        current_leader_epoch: Epoch(epoch),
        fetch_offset: position.offset,
        last_fetched_epoch: position.epoch,
        max_wait_ms: 500,
        max_bytes: 1 << 20,
        high_watermark: Some(Offset(-1)),
    }
}

pub fn fetched(leader: NodeId, epoch: i32, high_watermark: Option<i64>) -> FetchResponse {
    FetchResponse {
        error: ErrorCode::NONE,
        leader: LeaderInfo {
            epoch: Epoch(epoch),
            leader_id: Some(leader),
            endpoint: None,
        },
        high_watermark: high_watermark.map(Offset),
        log_start_offset: Offset(0),
        diverging: None,
        records_from: None,
    }
}

pub fn batch(base: i64, end: i64, epoch: i32) -> BatchMeta {
    BatchMeta {
        base_offset: Offset(base),
        end_offset: Offset(end),
        epoch: Epoch(epoch),
    }
}
