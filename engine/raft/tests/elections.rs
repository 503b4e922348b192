//! One replica against hand-made messages about elections: the checks in Kafka's order, who gets a
//! vote, and what a wrong or hostile peer may and may not do.

mod replica;

use quorate_raft::*;
use replica::*;

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
fn leader_that_shuts_down_does_not_wait_for_voters_that_are_gone() {
    let mut leader = Replica::leader();
    leader.done.clear();
    leader.act(|raft, now, out| raft.shutdown(now, out));
    let refused = RequestFailure::Refused;
    for (index, (from, id, _)) in leader.take_sent().into_iter().enumerate() {
        assert!(
            !leader.done.contains(&Output::ShutdownComplete),
            "{index} of 2 are gone"
        );
        leader.act(|raft, now, out| raft.on_request_failed(now, from, id, refused, out));
    }
    assert!(leader.done.contains(&Output::ShutdownComplete));
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
