//! One replica against hand-made messages: the checks of requests in Kafka's order, and what a wrong
//! or hostile peer may and may not do.

use quorate_raft::*;

/// A replica whose disk reports everything at once.
struct Replica {
    raft: Raft,
    now: Instant,
    next_token: u64,
    /// What it did since the last look, without disk writes.
    done: Vec<Output>,
}

fn endpoint(id: NodeId) -> Endpoint {
    Endpoint {
        host: format!("node{id}").into(),
        port: 9093,
    }
}

fn at(offset: i64, epoch: i32) -> OffsetAndEpoch {
    OffsetAndEpoch {
        offset: Offset(offset),
        epoch: Epoch(epoch),
    }
}

fn key(id: NodeId) -> ReplicaKey {
    ReplicaKey {
        id,
        directory_id: DirectoryId([u8::try_from(id).unwrap(); 16]),
    }
}

fn config(id: NodeId, voters: &[NodeId]) -> Config {
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
        seed: 1,
    }
}

fn log_state(epochs: &[(i32, i64)], end: i64) -> LogState {
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
    fn voter(epoch: i32, leader_id: Option<NodeId>, end: i64) -> Self {
        let log = match end {
            0 => log_state(&[], 0),
            end => log_state(&[(1, 0)], end),
        };
        Self::start(config(1, &[1, 2, 3]), epoch, leader_id, log)
    }

    fn start(config: Config, epoch: i32, leader_id: Option<NodeId>, log: LogState) -> Self {
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
    fn leader() -> Self {
        let mut replica = Self::voter(1, None, 3);
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
    fn settle(&mut self, out: Outputs) {
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

    fn act(&mut self, act: impl FnOnce(&mut Raft, Instant, &mut Outputs)) {
        let mut out = Outputs::new();
        act(&mut self.raft, self.now, &mut out);
        self.settle(out);
    }

    fn elapse(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.act(|raft, now, out| raft.on_tick(now, out));
    }

    fn request(&mut self, request: Request) -> RequestToken {
        let token = RequestToken(self.next_token);
        self.next_token += 1;
        self.act(|raft, now, out| raft.on_request(now, token, &request, out));
        token
    }

    /// The answer to `token`, if it has been given.
    fn answer(&self, token: RequestToken) -> Option<Response> {
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

    fn vote(&mut self, request: VoteRequest) -> VoteResponse {
        let token = self.request(Request::Vote(request));
        match self.answer(token) {
            Some(Response::Vote(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, leader_id: NodeId, epoch: i32) -> EpochResponse {
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

    fn end(&mut self, leader_id: NodeId, epoch: i32, preferred: &[NodeId]) -> EpochResponse {
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

    fn fetch(&mut self, request: FetchRequest) -> Option<FetchResponse> {
        let token = self.request(Request::Fetch(request));
        match self.answer(token) {
            Some(Response::Fetch(response)) => Some(response),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    fn fetch_error(&mut self, request: FetchRequest) -> ErrorCode {
        self.fetch(request).expect("an answer").error
    }

    /// The requests that were sent and not looked at yet.
    fn take_sent(&mut self) -> Vec<(NodeId, RequestId, Request)> {
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

    fn answer_all(&mut self, answer: impl Fn(&Request) -> Option<Response>) {
        for (from, id, request) in self.take_sent() {
            if let Some(response) = answer(&request) {
                self.act(|raft, now, out| raft.on_response(now, from, id, &response, &[], out));
            }
        }
    }

    /// Answers the Fetch that is out to `leader`.
    fn answer_fetch(&mut self, leader: NodeId, response: FetchResponse, batches: &[BatchMeta]) {
        let sent = self.take_sent().into_iter();
        let mut fetches =
            sent.filter(|(to, _, request)| *to == leader && matches!(request, Request::Fetch(_)));
        let (from, id, _) = fetches.next().expect("a Fetch to the leader");
        let response = Response::Fetch(response);
        self.act(|raft, now, out| raft.on_response(now, from, id, &response, batches, out));
    }

    fn conflicts(&self) -> usize {
        let conflicts = self.done.iter();
        conflicts
            .filter(|output| matches!(output, Output::Conflict { .. }))
            .count()
    }

    fn truncations(&self) -> usize {
        let truncations = self.done.iter();
        truncations
            .filter(|output| matches!(output, Output::Truncate { .. }))
            .count()
    }
}

fn granted(epoch: i32) -> Response {
    Response::Vote(VoteResponse {
        error: ErrorCode::NONE,
        leader: LeaderInfo {
            epoch: Epoch(epoch),
            ..LeaderInfo::default()
        },
        granted: true,
    })
}

fn vote_request(from: NodeId, epoch: i32, last: OffsetAndEpoch) -> VoteRequest {
    VoteRequest {
        voter: Some(ReplicaKey::of(1)),
        epoch: Epoch(epoch),
        replica: key(from),
        last,
        pre_vote: false,
    }
}

fn pre_vote_request(from: NodeId, epoch: i32, last: OffsetAndEpoch) -> VoteRequest {
    VoteRequest {
        pre_vote: true,
        ..vote_request(from, epoch, last)
    }
}

fn fetch_request(from: NodeId, epoch: i32, position: OffsetAndEpoch) -> FetchRequest {
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

fn fetched(leader: NodeId, epoch: i32, high_watermark: Option<i64>) -> FetchResponse {
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

fn batch(base: i64, end: i64, epoch: i32) -> BatchMeta {
    BatchMeta {
        base_offset: Offset(base),
        end_offset: Offset(end),
        epoch: Epoch(epoch),
    }
}

// Votes.

#[test]
fn vote_out_of_range_is_refused_and_raises_no_epoch() {
    let mut replica = Replica::voter(3, None, 5);
    for request in [
        vote_request(2, 9, at(-5, 1)),
        vote_request(2, 9, at(5, -1)),
        vote_request(2, 9, at(5, 9)),
        vote_request(2, i32::MAX, at(5, 1)),
        vote_request(2, i32::MAX - 1, at(5, 1)),
        pre_vote_request(2, 9, at(5, 10)),
        pre_vote_request(2, i32::MAX, at(5, 1)),
        vote_request(1, 9, at(5, 1)),
        vote_request(1, 3, at(5, 1)),
    ] {
        let response = replica.vote(request.clone());
        assert_eq!(response.error, ErrorCode::INVALID_REQUEST, "{request:?}");
        assert!(!response.granted);
        assert_eq!(replica.raft.epoch(), Epoch(3));
    }
}

#[test]
fn vote_of_an_older_epoch_is_fenced() {
    let mut replica = Replica::voter(3, None, 5);
    let response = replica.vote(vote_request(2, 2, at(5, 1)));
    assert_eq!(response.error, ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(response.leader.epoch, Epoch(3));
}

#[test]
fn one_vote_per_epoch_and_the_same_again_for_the_same_candidate() {
    let mut replica = Replica::voter(3, None, 5);
    assert!(replica.vote(vote_request(2, 4, at(5, 1))).granted);
    assert!(!replica.vote(vote_request(3, 4, at(9, 3))).granted);
    assert!(
        replica.vote(vote_request(2, 4, at(0, 0))).granted,
        "the log is not compared again"
    );
    assert!(
        replica.vote(vote_request(3, 5, at(9, 3))).granted,
        "a new epoch"
    );
}

#[test]
fn shorter_log_gets_no_vote_but_its_epoch_counts() {
    let mut replica = Replica::voter(3, None, 5);
    assert!(!replica.vote(vote_request(2, 4, at(4, 1))).granted);
    assert_eq!(replica.raft.epoch(), Epoch(4));
    assert!(
        replica.vote(vote_request(3, 4, at(5, 1))).granted,
        "the vote was not given away"
    );
}

/// A node that was removed from the quorum, or never was in it, asks with ever larger epochs. Where
/// they are adopted, it deposes every leader (hashicorp/raft 524, canonical/raft 137).
#[test]
fn stranger_gets_no_answer_that_deposes_the_leader() {
    let mut replica = Replica::leader();
    for epoch in [3, 1_000_000, i32::MAX - 2] {
        let response = replica.vote(vote_request(7, epoch, at(100, 2)));
        assert_eq!((response.error, response.granted), (ErrorCode::NONE, false));
        let response = replica.vote(pre_vote_request(7, epoch, at(100, 2)));
        assert_eq!((response.error, response.granted), (ErrorCode::NONE, false));
        assert_eq!(replica.begin(7, epoch).error, ErrorCode::INVALID_REQUEST);
        assert_eq!(
            replica.end(7, epoch, &[1]).error,
            ErrorCode::INVALID_REQUEST
        );
        assert_eq!(replica.raft.role(), Role::Leader);
        assert_eq!(replica.raft.epoch(), Epoch(2));
    }
}

#[test]
fn vote_meant_for_another_is_refused_after_the_epoch_is_raised() {
    let mut replica = Replica::voter(3, None, 5);
    let meant_for = |key, epoch| VoteRequest {
        voter: Some(key),
        ..vote_request(2, epoch, at(5, 1))
    };
    let wrong_directory = ReplicaKey { id: 1, ..key(9) };
    for (epoch, wrong) in [(4, ReplicaKey::of(3)), (5, wrong_directory)] {
        let response = replica.vote(meant_for(wrong, epoch));
        assert_eq!(response.error, ErrorCode::INVALID_VOTER_KEY);
        assert_eq!(replica.raft.epoch(), Epoch(epoch));
    }
    assert!(replica.vote(meant_for(key(1), 5)).granted);
}

#[test]
fn leader_and_follower_give_no_vote_in_their_epoch() {
    let mut leader = Replica::leader();
    let response = leader.vote(vote_request(2, 2, at(9, 1)));
    assert!(response.error.is_none() && !response.granted);
    assert_eq!(response.leader.leader_id, Some(1));
    assert!(!leader.vote(pre_vote_request(2, 2, at(9, 2))).granted);

    let mut follower = Replica::voter(2, Some(2), 3);
    assert!(!follower.vote(vote_request(3, 2, at(9, 1))).granted);
}

#[test]
fn follower_refuses_pre_votes_once_it_has_fetched_and_grants_them_once_the_leader_resigns() {
    let mut replica = Replica::voter(2, Some(2), 3);
    let request = pre_vote_request(3, 2, at(3, 1));
    assert!(
        replica.vote(request.clone()).granted,
        "before the first Fetch"
    );
    replica.answer_fetch(2, fetched(2, 2, None), &[]);
    assert!(!replica.vote(request.clone()).granted, "after it");
    assert!(replica.end(2, 2, &[3, 1]).error.is_none());
    assert!(
        replica.vote(request.clone()).granted,
        "after EndQuorumEpoch"
    );
    assert!(
        !replica.vote(pre_vote_request(3, 2, at(2, 1))).granted,
        "never for a shorter log"
    );
    assert_eq!(
        replica.raft.role(),
        Role::Prospective,
        "which cannot win without this one"
    );
}

#[test]
fn follower_grants_pre_votes_once_its_leader_says_that_it_does_not_lead() {
    let mut replica = Replica::voter(2, Some(2), 3);
    replica.answer_fetch(2, fetched(2, 2, None), &[]);
    let resigned = FetchResponse {
        error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ..fetched(2, 2, None)
    };
    replica.answer_fetch(2, resigned, &[]);
    assert!(replica.vote(pre_vote_request(3, 2, at(3, 1))).granted);
}

#[test]
fn peer_without_pre_votes_is_asked_for_a_vote() {
    let mut replica = Replica::voter(1, None, 3);
    replica.elapse(5_000);
    assert_eq!(replica.raft.role(), Role::Prospective);
    let (from, id, _) = replica.take_sent().pop().expect("a pre-vote");
    let failure = RequestFailure::UnsupportedVersion;
    replica.act(|raft, now, out| raft.on_request_failed(now, from, id, failure, out));
    assert_eq!(
        (replica.raft.role(), replica.raft.epoch()),
        (Role::Candidate, Epoch(2))
    );
}

#[test]
fn lost_election_is_repeated_long_before_the_election_timeout() {
    let mut replica = Replica::voter(1, None, 3);
    replica.elapse(5_000);
    replica.answer_all(|_| Some(granted(1)));
    assert_eq!(replica.raft.role(), Role::Candidate);
    replica.answer_all(|_| {
        let Response::Vote(vote) = granted(2) else {
            unreachable!()
        };
        let refused = VoteResponse {
            granted: false,
            ..vote
        };
        Some(Response::Vote(refused))
    });
    assert_eq!(replica.raft.role(), Role::Candidate);
    replica.elapse(25);
    assert_eq!(
        (replica.raft.role(), replica.raft.epoch()),
        (Role::Prospective, Epoch(2))
    );
}

#[test]
fn epoch_with_none_above_it_is_refused_in_answers_too() {
    let mut replica = Replica::voter(2, Some(2), 3);
    replica.answer_fetch(2, fetched(2, i32::MAX, None), &[]);
    assert_eq!(replica.raft.epoch(), Epoch(2));
    assert_eq!(replica.conflicts(), 1);
}

// BeginQuorumEpoch and EndQuorumEpoch.

#[test]
fn second_leader_in_an_epoch_is_an_error_and_changes_nothing() {
    let mut follower = Replica::voter(2, Some(2), 3);
    assert_eq!(follower.begin(3, 2).error, ErrorCode::INVALID_REQUEST);
    assert_eq!(follower.end(3, 2, &[1]).error, ErrorCode::INVALID_REQUEST);
    assert_eq!(follower.raft.leader_id(), Some(2));

    let mut leader = Replica::leader();
    assert_eq!(leader.begin(3, 2).error, ErrorCode::INVALID_REQUEST);
    assert!(leader.begin(1, 2).error.is_none(), "itself");
    assert_eq!(
        leader.begin(1, 3).error,
        ErrorCode::INVALID_REQUEST,
        "itself, but not in 3"
    );
    assert_eq!(leader.raft.role(), Role::Leader);
    assert_eq!((follower.conflicts(), leader.conflicts()), (2, 2));
}

#[test]
fn announcement_is_followed_even_if_it_was_meant_for_another() {
    let mut replica = Replica::voter(1, None, 3);
    let token = replica.request(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        voter: Some(ReplicaKey::of(3)),
        leader_id: 2,
        epoch: Epoch(4),
        endpoint: None,
    }));
    let Some(Response::BeginQuorumEpoch(response)) = replica.answer(token) else {
        panic!("no answer");
    };
    assert_eq!(response.error, ErrorCode::INVALID_VOTER_KEY);
    assert_eq!(response.leader.leader_id, Some(2));
    assert_eq!(replica.raft.role(), Role::Follower);
}

#[test]
fn announcements_of_older_or_impossible_epochs_are_errors() {
    let mut replica = Replica::voter(3, None, 3);
    assert_eq!(replica.begin(2, 2).error, ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(
        replica.end(2, -1, &[1]).error,
        ErrorCode::FENCED_LEADER_EPOCH
    );
    assert_eq!(replica.begin(2, i32::MAX).error, ErrorCode::INVALID_REQUEST);
    assert_eq!(replica.end(-1, 3, &[1]).error, ErrorCode::INVALID_REQUEST);
    assert_eq!(replica.raft.role(), Role::Unattached);
}

#[test]
fn first_successor_stands_at_once_and_others_after_their_pause() {
    for (preferred, pause_ms) in [(&[1, 3][..], 0), (&[3, 1], 500), (&[3], 1000), (&[], 1000)] {
        let mut replica = Replica::voter(2, Some(2), 3);
        assert!(replica.end(2, 2, preferred).error.is_none());
        if pause_ms > 0 {
            replica.elapse(pause_ms - 1);
            assert_eq!(replica.raft.role(), Role::Follower);
            replica.elapse(1);
        }
        assert_eq!(replica.raft.role(), Role::Prospective, "{preferred:?}");
    }
}

#[test]
fn successor_with_another_directory_is_somebody_else() {
    let mut replica = Replica::voter(2, Some(2), 3);
    let token = replica.request(Request::EndQuorumEpoch(EndQuorumEpochRequest {
        leader_id: 2,
        epoch: Epoch(2),
        preferred_candidates: vec![ReplicaKey { id: 1, ..key(9) }],
        endpoint: None,
    }));
    assert!(replica.answer(token).is_some());
    assert_eq!(replica.raft.role(), Role::Follower);
}

// Fetch at the leader.

#[test]
fn fetch_checks_come_in_kafkas_order() {
    let mut leader = Replica::leader();
    let good = fetch_request(2, 2, at(3, 1));
    let bad = |change: fn(&mut FetchRequest)| {
        let mut request = good.clone();
        // Out of range and of another epoch: the range is checked first.
        request.current_leader_epoch = Epoch(1);
        change(&mut request);
        request
    };
    for request in [
        bad(|request| request.fetch_offset = Offset(-5)),
        bad(|request| request.last_fetched_epoch = Epoch(-1)),
        bad(|request| request.last_fetched_epoch = Epoch(2)),
        bad(|request| request.max_wait_ms = -1),
    ] {
        assert_eq!(leader.fetch_error(request), ErrorCode::INVALID_REQUEST);
    }
    let fenced = fetch_request(2, 1, at(3, 1));
    assert_eq!(leader.fetch_error(fenced), ErrorCode::FENCED_LEADER_EPOCH);
    let unknown = fetch_request(2, 3, at(3, 1));
    assert_eq!(leader.fetch_error(unknown), ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(leader.raft.epoch(), Epoch(2), "a Fetch raises no epoch");
    let mut follower = Replica::voter(2, Some(2), 3);
    assert_eq!(
        follower.fetch_error(good),
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
}

#[test]
fn only_a_fetch_that_matches_the_log_acknowledges() {
    let mut leader = Replica::leader();
    for position in [at(4, 1), at(5, 2), at(i64::MAX, 2), at(4, 0)] {
        let response = leader
            .fetch(fetch_request(2, 2, position))
            .expect("at once");
        assert!(
            response.error.is_none() && response.diverging.is_some(),
            "{position:?}"
        );
        assert!(response.records_from.is_none());
    }
    assert_eq!(leader.raft.high_watermark(), None);
    let beyond = leader
        .fetch(fetch_request(2, 2, at(9, 2)))
        .expect("at once");
    assert_eq!(beyond.diverging, Some(at(4, 2)), "back to the end");
    // An observer, a stranger without an id, and the leader's own id acknowledge nothing.
    for id in [7, -1, 1] {
        let mut request = fetch_request(2, 2, at(4, 2));
        request.replica.id = id;
        assert_eq!(leader.fetch(request), None, "parked");
    }
    assert_eq!(leader.raft.high_watermark(), None);
    leader.fetch(fetch_request(2, 2, at(4, 2)));
    assert_eq!(leader.raft.high_watermark(), Some(Offset(4)));
}

#[test]
fn acknowledgement_that_goes_back_is_taken_but_commits_stay() {
    let mut leader = Replica::leader();
    leader.fetch(fetch_request(2, 2, at(4, 2)));
    assert_eq!(leader.raft.high_watermark(), Some(Offset(4)));
    leader.fetch(fetch_request(2, 2, at(1, 1)));
    assert_eq!(leader.raft.high_watermark(), Some(Offset(4)));
    let description = leader.raft.describe(leader.now).expect("the leader");
    assert_eq!(description.voters[1].log_end_offset, Some(Offset(1)));
}

#[test]
fn records_of_the_leader_are_sent_before_they_are_flushed_and_committed_after() {
    let mut leader = Replica::leader();
    let parked = leader.request(Request::Fetch(fetch_request(2, 2, at(4, 2))));
    assert!(
        leader.answer(parked).is_some(),
        "the high watermark is news"
    );
    let mut request = fetch_request(2, 2, at(4, 2));
    request.high_watermark = Some(Offset(4));
    let parked = leader.request(Request::Fetch(request.clone()));
    assert!(leader.answer(parked).is_none());
    let now = leader.now;
    let appended = leader.raft.append(now, 10).expect("the leader");
    assert_eq!(
        (appended.base_offset, appended.epoch),
        (Offset(4), Epoch(2))
    );
    leader.act(|_, _, _| ());
    let Some(Response::Fetch(response)) = leader.answer(parked) else {
        panic!("still parked");
    };
    assert_eq!(response.records_from, Some(Offset(4)));
    request.fetch_offset = Offset(14);
    leader.fetch(request.clone());
    assert_eq!(
        leader.raft.high_watermark(),
        Some(Offset(4)),
        "one disk of three"
    );
    request.replica = key(3);
    leader.fetch(request);
    assert_eq!(
        leader.raft.high_watermark(),
        Some(Offset(14)),
        "two, not the leader's"
    );
    assert_eq!(leader.raft.flushed_offset(), Offset(4));
}

#[test]
fn parked_fetch_is_answered_empty_when_its_time_is_over() {
    let mut leader = Replica::leader();
    let parked = leader.request(Request::Fetch(fetch_request(7, 2, at(4, 2))));
    leader.elapse(499);
    assert!(leader.answer(parked).is_none());
    leader.elapse(1);
    let Some(Response::Fetch(response)) = leader.answer(parked) else {
        panic!("still parked");
    };
    assert!(response.error.is_none() && response.records_from.is_none());
    let mut at_once = fetch_request(7, 2, at(4, 2));
    at_once.max_wait_ms = 0;
    assert!(leader.fetch(at_once).is_some());
}

#[test]
fn high_watermark_is_news_only_to_those_that_ask_for_it() {
    let mut leader = Replica::leader();
    let mut silent = fetch_request(7, 2, at(4, 2));
    silent.high_watermark = None;
    let parked = leader.request(Request::Fetch(silent.clone()));
    leader.fetch(fetch_request(2, 2, at(4, 2)));
    assert!(
        leader.answer(parked).is_some(),
        "but a move completes every parked Fetch"
    );
    assert_eq!(
        leader.fetch(silent),
        None,
        "no news for somebody who says nothing"
    );
    assert!(
        leader.fetch(fetch_request(7, 2, at(4, 2))).is_some(),
        "-1 is behind"
    );
}

#[test]
fn parked_fetches_end_with_the_leadership_and_forgotten_ones_are_never_answered() {
    let mut leader = Replica::leader();
    let parked = leader.request(Request::Fetch(fetch_request(2, 2, at(3, 1))));
    assert!(leader.answer(parked).is_some(), "records are there");
    let parked = leader.request(Request::Fetch(fetch_request(7, 2, at(4, 2))));
    let forgotten = leader.request(Request::Fetch(fetch_request(8, 2, at(4, 2))));
    leader.raft.forget_request(forgotten);
    assert!(leader.begin(2, 3).error.is_none());
    let Some(Response::Fetch(response)) = leader.answer(parked) else {
        panic!("still parked");
    };
    assert_eq!(response.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(response.leader.leader_id, Some(2));
    assert!(leader.answer(forgotten).is_none());
}

/// A voter fetches from a leader whose election is not on disk yet: it gets nothing, not even an
/// empty answer, before the leader's first record is there.
#[test]
fn fetch_waits_until_the_leadership_is_durable() {
    let mut leader = Replica::voter(1, None, 3);
    leader.elapse(5_000);
    leader.answer_all(|_| Some(granted(1)));
    let (from, id, _) = leader.take_sent().pop().expect("a Vote");
    let (now, mut out) = (leader.now, Outputs::new());
    leader
        .raft
        .on_response(now, from, id, &granted(2), &[], &mut out);
    assert_eq!(leader.raft.role(), Role::Leader);
    assert!(leader.raft.append(now, 1).is_err());
    let request = Request::Fetch(fetch_request(2, 2, at(1, 1)));
    leader
        .raft
        .on_request(now, RequestToken(50), &request, &mut out);
    leader.raft.finish_turn(now, &mut out);
    leader.settle(out);
    let Some(Response::Fetch(response)) = leader.answer(RequestToken(50)) else {
        panic!("still parked");
    };
    assert_eq!(response.records_from, Some(Offset(1)));
    let first = leader
        .done
        .iter()
        .position(|o| matches!(o, Output::AppendLeaderChange { .. }));
    let answer = leader
        .done
        .iter()
        .position(|o| matches!(o, Output::RespondFetch { .. }));
    assert!(first.is_some() && first < answer);
}

#[test]
fn leader_of_five_resigns_when_only_one_voter_fetches() {
    let voters = config(1, &[1, 2, 3, 4, 5]);
    let mut leader = Replica::start(voters, 1, None, log_state(&[(1, 0)], 3));
    leader.elapse(5_000);
    leader.answer_all(|_| Some(granted(1)));
    leader.answer_all(|_| Some(granted(2)));
    assert_eq!(leader.raft.role(), Role::Leader);
    let fetch = |leader: &mut Replica, id| drop(leader.fetch(fetch_request(id, 2, at(3, 1))));
    for _ in 0..10 {
        leader.elapse(1_499);
        fetch(&mut leader, 2);
        leader.elapse(1_499);
        fetch(&mut leader, 3);
        assert_eq!(
            leader.raft.role(),
            Role::Leader,
            "two others and itself are a majority"
        );
    }
    for _ in 0..2 {
        leader.elapse(1_499);
        // One voter and any number of observers are none.
        fetch(&mut leader, 2);
        fetch(&mut leader, 7);
        fetch(&mut leader, 8);
    }
    assert_eq!(leader.raft.role(), Role::Leader);
    leader.elapse(2);
    assert_eq!(leader.raft.role(), Role::Resigned);
}

#[test]
fn describe_shows_voters_and_recent_observers() {
    let mut leader = Replica::leader();
    leader.fetch(fetch_request(2, 2, at(3, 1)));
    leader.fetch(fetch_request(7, 2, at(0, 0)));
    leader.elapse(10);
    let description = leader.raft.describe(leader.now).expect("the leader");
    assert_eq!(
        (description.leader_id, description.leader_epoch),
        (1, Epoch(2))
    );
    assert_eq!(description.high_watermark, None);
    let ends = description.voters.iter().map(|voter| voter.log_end_offset);
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [Some(Offset(4)), Some(Offset(3)), None]
    );
    assert_eq!(description.voters[0].last_caught_up, Some(leader.now));
    assert_eq!(description.voters[1].replica, key(2));
    assert_eq!(description.observers.len(), 1);
    assert_eq!(description.observers[0].replica, key(7));
    assert!(
        Replica::voter(1, Some(2), 3)
            .raft
            .describe(Instant::default())
            .is_none()
    );
}

// Fetch answers at the follower.

/// The Fetch of a follower of 2 in epoch 2 that knows the high watermark 5; its log is 0..5 of
/// epoch 1 and 5..8 of epoch 2.
fn follower_with_commits() -> Replica {
    let mut replica = Replica::voter(2, Some(2), 5);
    replica.answer_fetch(2, fetched(2, 2, Some(5)), &[batch(5, 8, 2)]);
    assert_eq!(replica.raft.high_watermark(), Some(Offset(5)));
    assert_eq!(replica.raft.flushed_offset(), Offset(8));
    replica
}

#[test]
fn divergence_below_the_high_watermark_keeps_the_log() {
    let mut replica = follower_with_commits();
    for (round, diverging) in [at(4, 1), at(0, 0), at(i64::MIN, 1), at(4, -7)]
        .into_iter()
        .enumerate()
    {
        let response = FetchResponse {
            diverging: Some(diverging),
            ..fetched(2, 2, Some(5))
        };
        replica.answer_fetch(2, response, &[]);
        assert_eq!(replica.conflicts(), round + 1, "{diverging:?}");
        assert_eq!(replica.raft.log_end_offset(), Offset(8));
        replica.elapse(1_300);
    }
    assert_eq!(replica.truncations(), 0);
    assert_eq!(
        replica.raft.role(),
        Role::Follower,
        "the leader is alive, whatever it says"
    );
}

#[test]
fn divergence_above_the_high_watermark_truncates() {
    let mut replica = follower_with_commits();
    let response = FetchResponse {
        diverging: Some(at(5, 1)),
        ..fetched(2, 2, Some(5))
    };
    replica.answer_fetch(2, response, &[]);
    assert_eq!(replica.raft.log_end_offset(), Offset(5));
    assert_eq!(replica.raft.generation(), Generation(1));
    assert_eq!(replica.conflicts(), 0);
    let (_, _, Request::Fetch(next)) = replica.take_sent().pop().expect("a Fetch") else {
        panic!("not a Fetch");
    };
    assert_eq!(
        (next.fetch_offset, next.last_fetched_epoch),
        (Offset(5), Epoch(1))
    );
}

#[test]
fn divergence_without_anything_to_cut_does_not_loop() {
    let mut replica = follower_with_commits();
    let response = FetchResponse {
        diverging: Some(at(8, 2)),
        ..fetched(2, 2, Some(5))
    };
    replica.answer_fetch(2, response, &[]);
    assert_eq!((replica.conflicts(), replica.truncations()), (1, 0));
    let is_to_leader = |sent: &(NodeId, RequestId, Request)| sent.0 == 2;
    assert!(!replica.take_sent().iter().any(is_to_leader), "not at once");
}

#[test]
fn high_watermark_neither_falls_nor_is_forgotten_nor_passes_the_log() {
    let mut replica = follower_with_commits();
    replica.answer_fetch(2, fetched(2, 2, Some(4)), &[]);
    replica.answer_fetch(2, fetched(2, 2, None), &[]);
    replica.answer_fetch(2, fetched(2, 2, Some(-3)), &[]);
    assert_eq!(replica.conflicts(), 3);
    assert_eq!(replica.raft.high_watermark(), Some(Offset(5)));
    replica.answer_fetch(2, fetched(2, 2, Some(i64::MAX)), &[]);
    assert_eq!(replica.raft.high_watermark(), Some(Offset(8)));
}

#[test]
fn bad_records_leave_the_log_alone_and_are_asked_for_again() {
    let mut replica = follower_with_commits();
    let gap = [batch(9, 10, 2)];
    let older = [batch(8, 9, 2), batch(9, 10, 1)];
    let newer = [batch(8, 9, 3)];
    for (round, batches) in [&gap[..], &older, &newer].into_iter().enumerate() {
        replica.answer_fetch(2, fetched(2, 2, Some(5)), batches);
        assert_eq!(replica.raft.log_end_offset(), Offset(8));
        assert_eq!(replica.conflicts(), round + 1);
        replica.elapse(1_300);
    }
    assert_eq!(replica.raft.role(), Role::Follower);
}

/// Redpanda 30815: the timer was not set anew where an answer carried an error, and a follower in
/// contact with its leader kept standing for election.
#[test]
fn error_of_the_leader_in_its_epoch_is_contact() {
    let mut replica = Replica::voter(2, Some(2), 3);
    for _ in 0..5 {
        let error = FetchResponse {
            error: ErrorCode::UNKNOWN_SERVER_ERROR,
            ..fetched(2, 2, None)
        };
        replica.answer_fetch(2, error, &[]);
        replica.elapse(1_500);
        assert_eq!(replica.raft.role(), Role::Follower);
    }
    replica.elapse(500);
    assert_eq!(replica.raft.role(), Role::Prospective);
}

#[test]
fn late_answer_to_an_earlier_state_is_ignored() {
    let mut replica = Replica::voter(2, Some(2), 3);
    let (from, id, _) = replica.take_sent().pop().expect("a Fetch");
    replica.begin(3, 3);
    let response = Response::Fetch(fetched(2, 2, Some(5)));
    let batches = [batch(3, 5, 2)];
    replica.act(|raft, now, out| raft.on_response(now, from, id, &response, &batches, out));
    assert_eq!(replica.raft.log_end_offset(), Offset(3));
    assert_eq!(replica.raft.leader_id(), Some(3));
}

#[test]
fn node_that_lost_its_disk_does_not_follow_itself() {
    let mut replica = Replica::voter(0, None, 0);
    let (from, id, _) = replica.take_sent().pop().expect("a Fetch");
    let response = Response::Fetch(FetchResponse {
        error: ErrorCode::FENCED_LEADER_EPOCH,
        ..fetched(1, 7, None)
    });
    replica.act(|raft, now, out| raft.on_response(now, from, id, &response, &[], out));
    assert_eq!(replica.raft.epoch(), Epoch(7));
    assert_eq!(
        (replica.raft.role(), replica.raft.leader_id()),
        (Role::Unattached, None)
    );
}

/// The report of a flush that was on its way when the log was cut must not let the next Fetch
/// acknowledge bytes that are gone.
#[test]
fn flush_report_from_before_a_truncation_is_ignored() {
    let mut replica = follower_with_commits();
    let (from, id, _) = replica.take_sent().pop().expect("a Fetch");
    let response = Response::Fetch(FetchResponse {
        diverging: Some(at(6, 2)),
        ..fetched(2, 2, Some(5))
    });
    let (now, mut out) = (replica.now, Outputs::new());
    let raft = &mut replica.raft;
    raft.on_response(now, from, id, &response, &[], &mut out);
    raft.on_flushed(now, Generation(0), Offset(8), &mut out);
    assert_eq!(
        (raft.flushed_offset(), raft.log_end_offset()),
        (Offset(6), Offset(6))
    );
    let is_send = |output: &Output| matches!(output, Output::Send { .. });
    assert!(!out.iter().any(is_send), "the cut is not on disk");
    raft.on_flushed(now, Generation(1), Offset(6), &mut out);
    assert!(out.iter().any(is_send));
}

// Shutdown and a broken disk.

#[test]
fn replica_that_shuts_down_never_stands_for_election() {
    let mut replica = Replica::voter(2, Some(2), 3);
    replica.act(|raft, now, out| raft.shutdown(now, out));
    assert!(replica.done.contains(&Output::ShutdownComplete));
    replica.elapse(60_000);
    assert_eq!(replica.raft.role(), Role::Follower);
}

#[test]
fn leader_that_shuts_down_waits_for_a_newer_epoch() {
    let mut leader = Replica::leader();
    leader.act(|raft, now, out| raft.shutdown(now, out));
    leader.elapse(60_000);
    assert_eq!(
        leader.raft.role(),
        Role::Resigned,
        "its epoch is left to the successor"
    );
    assert!(!leader.done.contains(&Output::ShutdownComplete));
    let vote = leader.request(Request::Vote(vote_request(2, 3, at(4, 2))));
    let position = |wanted: &dyn Fn(&Output) -> bool| leader.done.iter().position(wanted);
    let answered =
        position(&|output| matches!(output, Output::Respond { token, .. } if *token == vote));
    let complete = position(&|output| *output == Output::ShutdownComplete);
    assert!(
        answered.is_some() && answered < complete,
        "the vote leaves first"
    );
}

#[test]
fn voter_with_the_longest_flushed_log_is_the_first_successor() {
    let mut leader = Replica::leader();
    leader.fetch(fetch_request(2, 2, at(2, 1)));
    leader.fetch(fetch_request(3, 2, at(3, 1)));
    leader.done.clear();
    leader.act(|raft, now, out| raft.shutdown(now, out));
    for (_, _, request) in leader.take_sent() {
        let Request::EndQuorumEpoch(end) = request else {
            panic!("{request:?}");
        };
        assert_eq!(end.preferred_candidates, [key(3), key(2)]);
    }
}

#[test]
fn broken_disk_acknowledges_nothing_more() {
    let mut replica = Replica::voter(2, Some(2), 3);
    let (from, id, _) = replica.take_sent().pop().expect("a Fetch");
    replica.act(|raft, now, out| raft.on_storage_failed(now, out));
    let response = Response::Fetch(fetched(2, 2, None));
    let batches = [batch(3, 5, 2)];
    replica.act(|raft, now, out| raft.on_response(now, from, id, &response, &batches, out));
    replica.elapse(60_000);
    assert_eq!(replica.raft.flushed_offset(), Offset(3));
    assert!(replica.take_sent().is_empty());
}
