//! A message can never stop a replica: random requests and answers with the most extreme values, in
//! every state, against a replica whose disk keeps up or lags.
//!
//! What a hostile peer may achieve is not judged here; only that there is an answer or none, that
//! the replica's own state stays consistent, and that it never asks to be woken in the past.

use quorate_raft::*;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn number(&mut self) -> i64 {
        let extremes = [i64::MIN, i64::MAX, i64::MAX - 1, -1];
        match self.below(12) {
            index @ 0..4 => extremes[usize::try_from(index).unwrap()],
            _ => i64::try_from(self.below(12)).unwrap(),
        }
    }

    fn epoch(&mut self, near: Epoch) -> Epoch {
        let extremes = [i32::MIN, i32::MAX, i32::MAX - 1, i32::MAX - 2, -1];
        match self.below(40) {
            index @ 0..5 => Epoch(extremes[usize::try_from(index).unwrap()]),
            _ => {
                let step = i32::try_from(self.below(6)).unwrap() - 2;
                Epoch(near.0.saturating_add(step.min(2)))
            }
        }
    }

    fn id(&mut self) -> NodeId {
        i32::try_from(self.below(7)).unwrap() - 1
    }

    fn key(&mut self) -> ReplicaKey {
        let directory = u8::try_from(self.below(3)).unwrap();
        ReplicaKey {
            id: self.id(),
            directory_id: DirectoryId([directory; 16]),
        }
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(3) > 0).then_some(value)
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        self.maybe(Endpoint {
            host: "anywhere".into(),
            port: 1,
        })
    }

    fn position(&mut self, near: Epoch) -> OffsetAndEpoch {
        OffsetAndEpoch {
            offset: Offset(self.number()),
            epoch: self.epoch(near),
        }
    }

    fn request(&mut self, near: Epoch) -> Request {
        let (epoch, key) = (self.epoch(near), self.key());
        match self.below(4) {
            0 => Request::Vote(VoteRequest {
                voter: self.maybe(key),
                epoch,
                replica: self.key(),
                last: self.position(near),
                pre_vote: self.below(2) == 0,
            }),
            1 => Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                voter: self.maybe(key),
                leader_id: self.id(),
                epoch,
                endpoint: self.endpoint(),
            }),
            2 => Request::EndQuorumEpoch(EndQuorumEpochRequest {
                leader_id: self.id(),
                epoch,
                preferred_candidates: (0..self.below(4)).map(|_| self.key()).collect(),
                endpoint: self.endpoint(),
            }),
            _ => Request::Fetch(FetchRequest {
                replica: key,
                current_leader_epoch: epoch,
                fetch_offset: Offset(self.number()),
                last_fetched_epoch: self.epoch(near),
                max_wait_ms: i32::try_from(self.below(3)).unwrap() * 300 - 1,
                max_bytes: -1,
                high_watermark: Some(Offset(self.number())),
            }),
        }
    }

    /// An answer to `request`, mostly of the right kind and epoch.
    fn response(&mut self, request: &Request, near: Epoch) -> Response {
        let errors = [0, 0, 0, 0, 6, 8, 35, 42, 74, 75, 104, 125, -1, 99];
        let index = usize::try_from(self.below(14)).unwrap();
        let (error, id) = (ErrorCode(errors[index]), self.id());
        let leader = LeaderInfo {
            epoch: self.epoch(near),
            leader_id: self.maybe(id),
            endpoint: self.endpoint(),
        };
        let other = self.request(near);
        let kind = if self.below(20) == 0 { &other } else { request };
        match kind {
            Request::Vote(_) => Response::Vote(VoteResponse {
                error,
                leader,
                granted: self.below(3) > 0,
            }),
            Request::BeginQuorumEpoch(_) => {
                Response::BeginQuorumEpoch(EpochResponse { error, leader })
            }
            Request::EndQuorumEpoch(_) => Response::EndQuorumEpoch(EpochResponse { error, leader }),
            Request::Fetch(_) => {
                let (high_watermark, diverging) = (Offset(self.number()), self.position(near));
                Response::Fetch(FetchResponse {
                    error,
                    leader,
                    high_watermark: self.maybe(high_watermark),
                    log_start_offset: Offset(self.number()),
                    diverging: (self.below(4) == 0).then_some(diverging),
                    records_from: None,
                })
            }
        }
    }

    fn batches(&mut self, log_end: Offset, near: Epoch) -> Vec<BatchMeta> {
        let mut base = log_end;
        let mut batches = Vec::new();
        for _ in 0..self.below(4) {
            let records = i64::try_from(self.below(4)).unwrap();
            let end_offset = match self.below(20) {
                0 => Offset(self.number()),
                _ => Offset(base.0.saturating_add(records)),
            };
            batches.push(BatchMeta {
                base_offset: base,
                end_offset,
                epoch: self.epoch(near),
            });
            base = end_offset;
        }
        batches
    }
}

fn config(local: NodeId, voters: i32, seed: u64) -> Config {
    let endpoint = |id: NodeId| Endpoint {
        host: format!("node{id}").into(),
        port: 9093,
    };
    let voter = |id| Voter {
        key: ReplicaKey::of(id),
        endpoint: endpoint(id),
    };
    Config {
        local: ReplicaKey {
            id: local,
            directory_id: DirectoryId([1; 16]),
        },
        voters: VoterSet::new((1..=voters).map(voter).collect()),
        bootstrap: Vec::new(),
        local_endpoint: endpoint(local),
        election_timeout_ms: 100,
        fetch_timeout_ms: 200,
        election_backoff_max_ms: 100,
        request_timeout_ms: 200,
        retry_backoff_ms: 2,
        retry_backoff_max_ms: 50,
        fetch_max_wait_ms: 50,
        fetch_max_bytes: 1024,
        fetch_hw_linger_ms: 0,
        seed,
    }
}

/// One replica and what it waits for.
struct Victim {
    raft: Raft,
    now: Instant,
    sent: Vec<(NodeId, RequestId, Request)>,
    writes: Vec<ElectionSeq>,
    roles: Vec<Role>,
}

impl Victim {
    fn take(&mut self, out: Outputs) {
        for output in out {
            match output {
                Output::Send { to, id, request } => self.sent.push((to.id, id, request)),
                Output::PersistElection { seq, .. } => self.writes.push(seq),
                Output::Become { role, .. } => self.roles.push(role),
                _ => {}
            }
        }
    }

    fn step(&mut self, chance: &mut Chance, token: u64) {
        let (mut out, now, epoch) = (Outputs::new(), self.now, self.raft.epoch());
        match chance.below(10) {
            0..3 => {
                let request = chance.request(epoch);
                let token = RequestToken(token);
                self.raft.on_request(now, token, &request, &mut out);
            }
            3..6 if !self.sent.is_empty() => {
                let index = usize::try_from(chance.below(self.sent.len() as u64)).unwrap();
                let (from, id, request) = self.sent.swap_remove(index);
                let response = chance.response(&request, epoch);
                let batches = chance.batches(self.raft.log_end_offset(), epoch);
                self.raft
                    .on_response(now, from, id, &response, &batches, &mut out);
            }
            6 if !self.writes.is_empty() => {
                let seq = self.writes.remove(0);
                self.raft.on_election_persisted(now, seq, &mut out);
            }
            7 => {
                let (generation, end) = (self.raft.generation(), self.raft.log_end_offset());
                self.raft.on_flushed(now, generation, end, &mut out);
            }
            8 => drop(
                self.raft
                    .append(now, 1 + u32::try_from(chance.below(3)).unwrap()),
            ),
            _ => {
                self.now = now.plus_ms(chance.below(60));
                self.raft.on_tick(self.now, &mut out);
            }
        }
        self.raft.finish_turn(self.now, &mut out);
        self.raft.check_invariants();
        let deadline = self.raft.next_deadline();
        assert!(
            deadline.is_none_or(|due| due > self.now),
            "{:?} would spin",
            self.raft.role()
        );
        self.take(out);
    }
}

#[test]
fn no_message_stops_a_replica() {
    let mut roles = Vec::new();
    for seed in 0..400 {
        let mut chance = Chance(seed * 7_919 + 1);
        let voters = [1, 2, 3, 5][usize::try_from(seed % 4).unwrap()];
        let local = if seed % 7 == 0 { 6 } else { 1 };
        let mut out = Outputs::new();
        let raft = Raft::new(
            config(local, voters, seed),
            ElectionState {
                leader_id: (seed % 5 == 0).then_some(1),
                ..ElectionState::default()
            },
            LogState::default(),
            Instant::default(),
            &mut out,
        );
        let mut victim = Victim {
            raft,
            now: Instant::default(),
            sent: Vec::new(),
            writes: Vec::new(),
            roles: Vec::new(),
        };
        victim.take(out);
        for token in 0..400 {
            victim.step(&mut chance, token);
        }
        roles.append(&mut victim.roles);
    }
    for role in [
        Role::Unattached,
        Role::Prospective,
        Role::Candidate,
        Role::Leader,
        Role::Follower,
        Role::Resigned,
    ] {
        let count = roles.iter().filter(|seen| **seen == role).count();
        assert!(count > 20, "{role:?} was hardly reached: {count}");
    }
}
