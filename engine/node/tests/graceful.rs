//! A leader that is asked to stop hands over: others commit within 100 ms, and clients only notice
//! that somebody else answers.
//!
//! What is measured: from just before SIGTERM is sent to the moment when a client holds the answer
//! to a Produce (acks=all) that another voter led to its commit. One connection to each of the
//! other voters sends it over and over, each time 1 ms after it was refused. So election,
//! LeaderChange record, a record of the client and its way there and back are all in the time.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Background, Cluster, Deadline, Load, PROBE_VALUE, RawClient, batch, pause, read_all, s,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Hand-overs per size of the quorum. The median counts: the machine does other things as well.
const ROUNDS: usize = 7;
/// The promise.
const LIMIT: Duration = Duration::from_millis(100);

/// NOT_LEADER_OR_FOLLOWER: ask somebody else.
const NOT_LEADER: i16 = 6;

#[test]
fn three_voters_commit_within_100_ms_after_the_leader_is_asked_to_stop() {
    hand_over_again_and_again(3);
}

#[test]
fn five_voters_commit_within_100_ms_after_the_leader_is_asked_to_stop() {
    hand_over_again_and_again(5);
}

fn hand_over_again_and_again(voters: usize) {
    let mut cluster = Cluster::start(voters);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 2);
    load.wait_for_acks(100);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| hand_over(&mut cluster, &load))
        .collect();

    let report = load.finish();
    // Also: no producer was told of an error.
    report.assert_all_kept(&read_all(&bootstrap));
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);

    times.sort();
    println!("{voters} voters, from SIGTERM to a commit by the new leader: {times:?}");
    let median = times[ROUNDS / 2];
    assert!(median < LIMIT, "median {median:?} of {times:?}");
}

/// Stops the leader and starts it again. How long clients had none.
fn hand_over(cluster: &mut Cluster, load: &Load) -> Duration {
    let old = cluster.describe();
    let probes = Probes::start(cluster, old.leader_id);
    let start = Instant::now();
    cluster.begin_stop(old.leader_id);
    let committed = probes.first_commit();
    let status = cluster.wait_until_gone(old.leader_id);
    assert!(
        status.is_none_or(|status| status.success()),
        "the old leader ended with {status:?}"
    );
    load.wait_for_acks(50);
    cluster.restart(old.leader_id);
    cluster.wait_until_caught_up(old.leader_id);
    committed.duration_since(start)
}

/// One thread and connection for each voter but the leader, each trying to commit a record.
struct Probes {
    commits: mpsc::Receiver<Instant>,
    _threads: Vec<Background<()>>,
}

impl Probes {
    /// Returns when all are connected and were refused once, since another voter leads.
    fn start(cluster: &Cluster, leader: i32) -> Self {
        let (commit_out, commits) = mpsc::channel();
        let mut threads = Vec::new();
        for node in cluster.nodes().iter().filter(|node| node.id != leader) {
            let mut client = RawClient::connect(&node.address).expect("a voter that listens");
            let refused = client.produce(&batch(PROBE_VALUE)).expect("an answer");
            assert_eq!(refused.error, NOT_LEADER, "voter {leader} led just now");
            let commit_out = commit_out.clone();
            threads.push(Background::start(move |stop| {
                try_to_commit(client, &commit_out, stop);
            }));
        }
        Self {
            commits,
            _threads: threads,
        }
    }

    /// When the first commit was known to a client.
    fn first_commit(self) -> Instant {
        let first = self.commits.recv_timeout(s(20));
        first.expect("a commit by another voter")
    }
}

fn try_to_commit(mut client: RawClient, commits: &mpsc::Sender<Instant>, stop: &AtomicBool) {
    let record = batch(PROBE_VALUE);
    let deadline = Deadline::after(s(20));
    while !stop.load(Ordering::Acquire) && deadline.is_ahead() {
        match client.produce(&record) {
            Ok(produced) if produced.error == 0 => {
                // The test may have ended with another's commit.
                let _ = commits.send(Instant::now());
                return;
            }
            // Leaves the CPUs to those who elect a leader.
            Ok(_) => pause(Duration::from_millis(1)),
            // Seen by the test if nobody commits.
            Err(error) => return eprintln!("a probe lost its connection: {error}"),
        }
    }
}
