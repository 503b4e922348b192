//! Idempotent producers: what they send is in the log once and in order, whatever happens to the
//! leader in between.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, Load, ProducerId, RawClient, numbered_batch, read_all, s, wait_for};
use rustix::process::Signal;
use std::collections::HashSet;
use std::time::Duration;

/// How often the leader is killed.
const KILLS: usize = 8;
/// Acknowledgements by the new leader before the next round.
const ACKS_BETWEEN: u64 = 400;

#[test]
fn nothing_is_missing_and_nothing_there_twice_when_leaders_are_killed() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let load = Load::start_idempotent(&bootstrap, 4);
    load.wait_for_acks(ACKS_BETWEEN);
    for _ in 1..=KILLS {
        let old = cluster.describe();
        cluster.kill(old.leader_id);
        cluster.leader_after(old.leader_epoch);
        load.wait_for_acks(ACKS_BETWEEN);
        cluster.restart(old.leader_id);
        cluster.wait_until_caught_up(old.leader_id);
    }
    let report = load.finish();
    let log = read_all(&bootstrap);
    report.assert_all_kept(&log);
    report.assert_each_once(&log);
}

const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;

/// Sends batches of one record to whoever leads, and again while nobody does.
struct Producer<'a> {
    cluster: &'a Cluster,
    id: i64,
}

impl Producer<'_> {
    /// Error and offset, once a leader has answered.
    fn send(&self, epoch: i16, sequence: i32) -> (i16, i64) {
        let value = format!("{epoch} {sequence}");
        let batch = numbered_batch(value.as_bytes(), self.id, epoch, sequence);
        wait_for("a leader takes or refuses the batch", s(30), || {
            let leader = self.cluster.try_describe()?.leader_id;
            let address = &self
                .cluster
                .nodes()
                .iter()
                .find(|node| node.id == leader)?
                .address;
            let answer = RawClient::connect(address).ok()?.produce(&batch).ok()?;
            // Not the leader, timed out, not ready yet: what clients send again for.
            let passes = matches!(answer.error, 6 | 7 | 19);
            (!passes).then_some((answer.error, answer.offset))
        })
    }

    /// A batch that was taken at `offset` is found there, and one behind a gap is not taken.
    fn check(&self, sequence: i32, offset: i64) {
        assert_eq!(self.send(0, sequence), (0, offset), "sent again");
        let ahead = self.send(0, sequence + 2);
        assert_eq!(ahead, (OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "behind a gap");
    }
}

fn init(cluster: &Cluster, node: usize, transactional_id: Option<&str>) -> ProducerId {
    let mut client = RawClient::connect(&cluster.nodes()[node].address).expect("a connection");
    client
        .init_producer_id(transactional_id)
        .expect("an answer")
}

#[test]
fn every_node_gives_out_ids_of_its_own_and_none_for_transactions() {
    let cluster = Cluster::start(3);
    let mut ids = HashSet::new();
    for node in [0, 1, 2, 0, 1, 2] {
        let ProducerId { error, id, epoch } = init(&cluster, node, None);
        assert_eq!((error, epoch), (0, 0));
        assert!(id >= 0 && ids.insert(id), "{id} again");
    }
    let refused = init(&cluster, 1, Some("a transaction"));
    assert_eq!(
        (refused.error, refused.id),
        (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    );
}

#[test]
fn a_batch_sent_again_is_where_it_was_under_a_new_leader_and_after_a_restart_of_all() {
    let mut cluster = Cluster::start(3);
    let id = init(&cluster, 0, None).id;
    let send = |cluster: &Cluster, sequence| Producer { cluster, id }.send(0, sequence);
    let check = |cluster: &Cluster, sequence, offset| {
        Producer { cluster, id }.check(sequence, offset);
    };
    let (error, first) = send(&cluster, 0);
    assert_eq!(error, 0);
    check(&cluster, 0, first);

    let old = cluster.describe();
    cluster.kill(old.leader_id);
    cluster.leader_after(old.leader_epoch);
    check(&cluster, 0, first);
    let (error, second) = send(&cluster, 1);
    assert!(error == 0 && second > first);
    cluster.restart(old.leader_id);
    cluster.wait_until_caught_up(old.leader_id);

    let before = cluster.describe().leader_epoch;
    for node in 1..=3 {
        cluster.kill(node);
    }
    for node in 1..=3 {
        cluster.restart(node);
    }
    cluster.leader_after(before);
    check(&cluster, 1, second);
    assert_eq!(send(&cluster, 0), (0, first));

    for sequence in 2..7 {
        assert_eq!(send(&cluster, sequence).0, 0);
    }
    assert_eq!(send(&cluster, 0), (DUPLICATE_SEQUENCE_NUMBER, -1));
    let producer = Producer {
        cluster: &cluster,
        id,
    };
    assert_eq!(producer.send(1, 3).0, OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(producer.send(1, 0).0, 0);
    assert_eq!(producer.send(0, 7).0, INVALID_PRODUCER_EPOCH);
    let read = read_all(&cluster.bootstrap());
    let values: Vec<_> = read.iter().map(|record| record.value.as_deref()).collect();
    let expected: Vec<String> = (0..7).map(|sequence| format!("0 {sequence}")).collect();
    let expected = expected.iter().map(String::as_str).chain(["1 0"]);
    let expected: Vec<_> = expected.map(|value| Some(value.as_bytes())).collect();
    assert_eq!(values, expected);
}

#[test]
fn a_duplicate_is_answered_no_sooner_than_its_original_is_committed() {
    let cluster = Cluster::start(3);
    let id = init(&cluster, 0, None).id;
    let producer = Producer {
        cluster: &cluster,
        id,
    };
    let (error, first) = producer.send(0, 0);
    assert_eq!(error, 0);
    let leader = cluster.leader();
    let followers = cluster.nodes().iter().filter(|node| node.id != leader);
    let followers: Vec<_> = followers.map(|node| node.process).collect();
    for follower in &followers {
        assert!(follower.signal(Signal::STOP), "a follower ended by itself");
    }
    let address = &cluster.node(leader).address;
    let mut clients: Vec<_> = (0..3)
        .map(|_| RawClient::connect(address).expect("a connection"))
        .collect();
    for client in &mut clients {
        let batch = numbered_batch(b"0 1", id, 0, 1);
        client.send_produce(&batch).expect("sent");
        let silent = client
            .is_silent_for(Duration::from_millis(100))
            .expect("a connection");
        assert!(silent, "answered without the followers");
    }
    let mut committed = RawClient::connect(address).expect("a connection");
    let batch = numbered_batch(b"0 0", id, 0, 0);
    let answer = committed.produce(&batch).expect("an answer");
    assert_eq!((answer.error, answer.offset), (0, first), "of one that is");
    for follower in &followers {
        assert!(follower.signal(Signal::CONT), "a stopped follower ended");
    }
    for client in &mut clients {
        let answer = client.receive_produce().expect("an answer");
        assert_eq!((answer.error, answer.offset), (0, first + 1));
    }
}
