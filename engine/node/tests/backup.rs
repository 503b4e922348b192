//! Backup and restore, step by step as docs/operations.md says.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, format, quorate, read_all, s};
use std::fs;
use std::path::Path;

/// # Panics
/// Unless the copy succeeds.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("a copy");
    }
}

#[test]
fn a_quorum_that_lost_every_disk_comes_back_from_the_copy_of_one_stopped_voter() {
    let mut cluster = Cluster::start(3);
    let lines: String = (0..200).map(|n| format!("record {n}\n")).collect();
    let arguments = ["append", "--bootstrap-server", &cluster.bootstrap()];
    quorate(&arguments, &lines, s(30)).expect_success();
    let before = read_all(&cluster.bootstrap());

    // The copy: of a follower that was stopped.
    let follower = 1 + cluster.leader() % 3;
    cluster.wait_until_caught_up(follower);
    cluster.begin_stop(follower);
    cluster.wait_until_gone(follower);
    let backup = cluster.node(follower).dir.join("../backup");
    copy_files(&cluster.node(follower).log_dir(), &backup);
    let verified = quorate(&["log", "verify", &backup.to_string_lossy()], "", s(20));
    assert!(verified.expect_success().contains("closed cleanly"));
    let meta = fs::read_to_string(cluster.node(follower).dir.join("meta.properties"));
    let meta = meta.expect("an identity");
    let cluster_id = meta
        .lines()
        .find_map(|line| line.strip_prefix("cluster.id="))
        .expect("a cluster id");

    // Every disk is lost, this voter's too.
    cluster.restart(follower);
    cluster.wait_until_caught_up(follower);
    cluster.power_cut();
    for node in cluster.nodes() {
        let config = node.dir.join("server.properties");
        fs::remove_dir_all(node.log_dir()).expect("a log to lose");
        fs::remove_file(node.dir.join("meta.properties")).expect("an identity to lose");
        format(&config, &["--cluster-id", cluster_id]).expect_success();
        copy_files(&backup, &node.log_dir());
    }
    cluster.power_on();
    let after = read_all(&cluster.bootstrap());
    assert_eq!(after, before);
    quorate(&arguments, "and on it goes\n", s(30)).expect_success();
}
