//! A node that must not run says why in one line, with exit code 1, and touches nothing.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Cluster, Lone, QUORATE, REFUSAL_LIMIT, Serving, assert_refused, contents, format, run, s,
    server, server_command,
};
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use tempfile::TempDir;

#[test]
fn a_second_node_on_a_directory_is_refused_and_the_first_goes_on() {
    let lone = Lone::new();
    let first = lone.formatted();
    let second = lone.config("second.properties", &lone.data_dir(), 1);
    let mut serving = Serving::start(&first, lone.ports.base());
    let data_dir = lone.data_dir();
    assert_refused(&server(&second), &[&data_dir.to_string_lossy()]);

    let link = lone.dir.path().join("link");
    std::os::unix::fs::symlink(&data_dir, &link).expect("a link");
    let through_link = lone.config("link.properties", &link, 1);
    assert_refused(&server(&through_link), &[&link.to_string_lossy()]);
    assert!(serving.still_runs());

    // Lock and ports are the kernel's: a killed holder leaves none behind, and a new one need not
    // wait for the kernel to have tidied up.
    drop(serving);
    Serving::start(&first, lone.ports.base());
}

#[test]
fn a_busy_port_is_refused() {
    let lone = Lone::new();
    let config = lone.formatted();
    for port in [lone.ports.base(), lone.ports.base() + 100] {
        let taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let address = format!("127.0.0.1:{port}");
        assert_refused(&server(&config), &["cannot listen on", &address, "in use"]);
        drop(taken);
    }
}

#[test]
fn a_busy_port_is_told_by_dev() {
    let lone = Lone::new();
    let port = lone.ports.base() + 2;
    let _taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let mut command = Command::new(QUORATE);
    command.args([
        "dev",
        "--json",
        "--base-port",
        &lone.ports.base().to_string(),
        "--dir",
    ]);
    command.arg(lone.data_dir());
    let refused = run(command, "", s(30));
    assert_refused(
        &refused,
        &["voter 3", &format!("127.0.0.1:{port}"), "in use"],
    );
}

#[test]
fn formatting_for_another_cluster_is_refused() {
    let lone = Lone::new();
    let config = lone.config("server.properties", &lone.data_dir(), 0);
    format(&config, &["--cluster-id", "the-first"]).expect_success();
    let before = contents(&lone.data_dir());
    let refused = format(&config, &["--cluster-id", "the-second"]);
    assert_refused(&refused, &["the-first", "the-second", "meta.properties"]);
    assert_eq!(contents(&lone.data_dir()), before);
}

#[test]
fn a_voter_of_another_cluster_is_refused_by_its_peers_and_says_so() {
    let mut cluster = Cluster::start(3);
    let before = cluster.describe();
    let stranger = 1 + before.leader_id % 3;
    cluster.kill(stranger);
    let dir = cluster.node(stranger).dir.clone();
    let meta = dir.join("meta.properties");
    let text = fs::read_to_string(&meta).expect("an identity");
    let other = |line: &str| match line.strip_prefix("cluster.id=") {
        Some(_) => "cluster.id=another-cluster".to_owned(),
        None => line.to_owned(),
    };
    let edited: Vec<String> = text.lines().map(other).collect();
    fs::write(&meta, edited.join("\n") + "\n").expect("an identity");

    let refused = run(server_command(&dir.join("server.properties")), "", s(20));
    assert_refused(&refused, &["another-cluster"]);
    let after = cluster.describe();
    assert_eq!(
        (after.leader_id, after.leader_epoch),
        (before.leader_id, before.leader_epoch)
    );
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_nearest_right_one() {
    let lone = Lone::new();
    let config = lone.formatted();
    let text = fs::read_to_string(&config).expect("a configuration");
    let misspelt = text.replace("controller.quorum.voters", "controler.quorum.voters");
    fs::write(&config, misspelt).expect("a configuration");
    assert_refused(
        &server(&config),
        &["controler.quorum.voters", "controller.quorum.voters", ":5"],
    );
}

/// A directory of this user's own in memory.
fn tmpfs_dir() -> TempDir {
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
    let of_kind = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields[2] == "tmpfs").then(|| fields[1].to_owned())
    };
    let mut usable = mounts
        .lines()
        .filter_map(of_kind)
        .filter_map(|at| tempfile::tempdir_in(at).ok());
    usable
        .next()
        .expect("a writable tmpfs, /dev/shm for one: without it nothing is shown")
}

#[test]
fn a_data_directory_in_memory_is_refused() {
    let lone = Lone::new();
    let memory = tmpfs_dir();
    let data_dir = memory.path().join("data");
    let config = lone.config("server.properties", &data_dir, 0);
    let formatted = format(&config, &[]);
    if formatted.status.success() {
        assert_refused(&server(&config), &["tmpfs", &data_dir.to_string_lossy()]);
    } else {
        assert_refused(&formatted, &["tmpfs", &data_dir.to_string_lossy()]);
    }

    let mut command = Command::new(QUORATE);
    command.args([
        "dev",
        "--json",
        "--base-port",
        &lone.ports.base().to_string(),
        "--dir",
    ]);
    let dev_dir = memory.path().join("dev");
    command.arg(&dev_dir);
    assert_refused(
        &run(command, "", REFUSAL_LIMIT),
        &["tmpfs", &dev_dir.to_string_lossy()],
    );
}
