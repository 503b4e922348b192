//! The leader is killed again and again under load, and no client is told a lie.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, Follower, Load, Watermarks, read_all};
use std::time::Duration;

/// How often the leader is killed.
const KILLS: usize = 20;
/// How long the followers stand still before some of the kills.
const ALONE: Duration = Duration::from_millis(40);
/// Acknowledgements by the new leader before the next round: those in flight when the old one died,
/// and more that came after.
const ACKS_BETWEEN: u64 = 400;

#[test]
fn nothing_acknowledged_is_lost_when_the_leader_is_killed_twenty_times() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 4);
    let watermarks = Watermarks::start(&bootstrap, load.newest_acked());
    let follower = Follower::start(&bootstrap);
    load.wait_for_acks(ACKS_BETWEEN);

    for kill in 1..=KILLS {
        let old = cluster.describe();
        let killed = old.leader_id;
        if kill % 2 == 0 {
            cluster.kill_while_alone(killed, ALONE);
        } else {
            cluster.kill(killed);
        }
        let new = cluster.leader_after(old.leader_epoch);
        assert_ne!(new.leader_id, killed, "a dead leader");
        load.wait_for_acks(ACKS_BETWEEN);
        cluster.restart(killed);
        cluster.wait_until_caught_up(killed);
        eprintln!(
            "kill {kill}: voter {killed} of epoch {}, then voter {} of epoch {}; {} acknowledged",
            old.leader_epoch,
            new.leader_id,
            new.leader_epoch,
            load.acked_count(),
        );
    }

    let report = load.finish();
    let log = read_all(&bootstrap);
    report.assert_all_kept(&log);

    let (high_watermark, answers) = watermarks.finish();
    let last = log.last().expect("records").offset;
    assert!(
        answers > 1_000,
        "the high watermark was seen {answers} times only"
    );
    assert!(high_watermark <= cluster.describe().high_watermark);

    let live = follower.finish(last);
    assert_eq!(
        live.len(),
        log.len(),
        "the live consumer got as many records as the log has"
    );
    for (live, kept) in live.iter().zip(&log) {
        assert_eq!(live, kept, "the live consumer got what is in the log");
    }
    let end = cluster.describe().high_watermark;
    assert!(end > last);
    cluster.stop_and_compare(end);
    println!(
        "{} acknowledged, {} in the log, {answers} high watermarks",
        report.sent,
        log.len()
    );
}
