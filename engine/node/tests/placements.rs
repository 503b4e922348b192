//! The loops in every placement: what is committed does not depend on which thread does what.
//!
//! Voters change over one by one, under load, from one thread for everything to a log writer and
//! client loops of their own that look before they sleep; then their leader is killed.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, Load, read_all};
use std::fs;
use std::io::Write;

const SPLIT: &str = "
quorate.cores=split
quorate.wait=adaptive
quorate.client.loops=2
quorate.pin.cpus=0,1
";

/// Appends lines to the configuration of voter `id`.
fn configure(cluster: &Cluster, id: i32, lines: &str) {
    let path = cluster.node(id).dir.join("server.properties");
    let file = fs::OpenOptions::new().append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes()))
        .expect("a configuration");
}

/// The names of a process's threads.
fn threads(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks
        .map(|task| name(task.expect("a thread")).trim().to_owned())
        .collect()
}

#[test]
fn voters_change_over_to_split_loops_under_load_and_lose_nothing() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 4);
    load.wait_for_acks(300);
    for id in 1..=3 {
        cluster.begin_stop(id);
        cluster.wait_until_gone(id);
        configure(&cluster, id, SPLIT);
        cluster.restart(id);
        cluster.wait_until_caught_up(id);
        load.wait_for_acks(300);
    }
    for id in 1..=3 {
        let threads = threads(cluster.node(id).process.pid());
        let count = |name: &str| threads.iter().filter(|found| *found == name).count();
        assert_eq!((count("log"), count("client")), (1, 2), "{threads:?}");
    }
    let before = cluster.describe();
    cluster.kill(before.leader_id);
    cluster.leader_after(before.leader_epoch);
    cluster.restart(before.leader_id);
    load.wait_for_acks(300);
    let report = load.finish();
    let log = read_all(&bootstrap);
    report.assert_all_kept(&log);
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}
