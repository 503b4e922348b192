//! One replica against hand-made Fetches and answers to them: what acknowledges, what commits, what
//! waits, and what never cuts the log.

mod replica;

use quorate_raft::*;
use replica::*;

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
fn new_high_watermark_alone_may_wait_for_records_to_take_it_along() {
    let mut leader = Replica::lingering_leader(5);
    let parked = leader.request(Request::Fetch(fetch_request(3, 2, at(4, 2))));
    let second = leader.request(Request::Fetch(fetch_request(2, 2, at(4, 2))));
    assert_eq!(leader.raft.high_watermark(), Some(Offset(4)));
    leader.elapse(4);
    assert!(leader.answer(parked).is_none() && leader.answer(second).is_none());
    leader.elapse(1);
    for token in [parked, second] {
        let Some(Response::Fetch(response)) = leader.answer(token) else {
            panic!("still parked");
        };
        assert_eq!(response.high_watermark, Some(Offset(4)));
    }
    let again = leader.request(Request::Fetch(fetch_request(2, 2, at(4, 2))));
    let now = leader.now;
    leader.raft.append(now, 1).expect("the leader");
    leader.act(|_, _, _| ());
    let Some(Response::Fetch(response)) = leader.answer(again) else {
        panic!("records do not linger");
    };
    assert_eq!(response.high_watermark, Some(Offset(4)));
    assert_eq!(response.records_from, Some(Offset(4)));
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

#[test]
fn answers_held_for_the_disk_leave_before_a_timer_gives_others() {
    let mut replica = Replica::voter(1, None, 3);
    replica.elapse(5_000);
    replica.answer_all(|request| match request {
        Request::Vote(vote) if vote.pre_vote => Some(granted(vote.epoch.0)),
        _ => None,
    });
    let (from, id, _) = replica.take_sent().remove(0);
    let (now, mut out) = (replica.now, Outputs::new());
    let raft = &mut replica.raft;
    raft.on_response(now, from, id, &granted(2), &[], &mut out);
    assert_eq!(raft.role(), Role::Leader);
    let written = out.iter().find_map(|output| match output {
        Output::PersistElection { seq, .. } => Some(*seq),
        _ => None,
    });
    let (parked, held) = (RequestToken(900), RequestToken(901));
    let fetch = Request::Fetch(fetch_request(2, 2, at(3, 1)));
    raft.on_request(now, parked, &fetch, &mut out);
    let late = Request::Fetch(fetch_request(3, 1, at(3, 1)));
    raft.on_request(now, held, &late, &mut out);
    out.clear();
    raft.on_election_persisted(now.plus_ms(600), written.expect("an election"), &mut out);
    let answered: Vec<RequestToken> = out
        .iter()
        .filter_map(|output| match output {
            Output::RespondFetch { token, .. } => Some(*token),
            _ => None,
        })
        .collect();
    assert_eq!(answered, [held, parked]);
}
