//! After a change of leaders a consumer asks where the epoch of its last record ended (KIP-320),
//! and learns that nothing it read is gone.
//!
//! kafka-python reads on only when it has heard so.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, EpochEnd, RawClient, batch, s, wait_for};

/// No such epoch in the log.
const NONE: EpochEnd = EpochEnd {
    error: 0,
    epoch: -1,
    end: -1,
};
const NOT_LEADER: i16 = 6;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;

fn end(epoch: i32, end: i64) -> EpochEnd {
    EpochEnd {
        error: 0,
        epoch,
        end,
    }
}

/// Appends a record; its offset, once it is committed.
fn append(client: &mut RawClient) -> i64 {
    wait_for("an append is acknowledged", s(20), || {
        let produced = client.produce(&batch(b"record")).expect("an answer");
        (produced.error == 0).then_some(produced.offset)
    })
}

#[test]
fn a_new_leader_tells_where_the_epoch_of_the_old_one_ended() {
    let mut cluster = Cluster::start(3);
    let old = cluster.describe();
    let connect = |cluster: &Cluster, id| {
        RawClient::connect(&cluster.node(id).address).expect("a client listener")
    };
    let last_of_old = append(&mut connect(&cluster, old.leader_id));
    cluster.kill(old.leader_id);

    let new = cluster.leader_after(old.leader_epoch);
    let mut client = connect(&cluster, new.leader_id);
    let last = append(&mut client);
    let [before, now] = [old.leader_epoch as i32, new.leader_epoch as i32];
    let mut ask = |current, epoch| client.epoch_end(current, epoch).expect("an answer");

    assert_eq!(ask(now, before), end(before, last_of_old + 1));
    assert_eq!(ask(now, now - 1), end(before, last_of_old + 1), "between");
    assert_eq!(ask(now, now), end(now, last + 1));
    assert_eq!(
        ask(-1, now),
        end(now, last + 1),
        "a client without an epoch"
    );
    assert_eq!(ask(now, now + 1), NONE);
    assert_eq!(ask(now, -1), NONE);
    assert_eq!(ask(before, before).error, FENCED_LEADER_EPOCH);
    assert_eq!(ask(now + 1, before).error, UNKNOWN_LEADER_EPOCH);

    let follower = 6 - old.leader_id - new.leader_id;
    let answer = connect(&cluster, follower).epoch_end(-1, before);
    assert_eq!(answer.expect("an answer").error, NOT_LEADER);
}
