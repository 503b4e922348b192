//! A node that forgot who it is, what it promised or what it held does not start, and says what is
//! where. A start that is refused changes nothing, so whatever was lost can still be put back.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Cluster, Lone, REFUSAL_LIMIT, Serving, TOPIC, assert_refused, contents, format, quorate, run,
    s, server, server_command, wait_for,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A voter that was used and stopped; its configuration and the directory of its log.
fn used(lone: &Lone, records: usize) -> (PathBuf, PathBuf) {
    let config = lone.formatted();
    let serving = Serving::start(&config, lone.ports.base());
    if records > 0 {
        append(lone.ports.base(), records);
    }
    drop(serving);
    (config, lone.data_dir().join(format!("{TOPIC}-0")))
}

fn append(port: u16, records: usize) {
    let lines: String = (0..records).map(|n| format!("record {n}\n")).collect();
    let address = format!("127.0.0.1:{port}");
    quorate(&["append", "--bootstrap-server", &address], &lines, s(20)).expect_success();
}

/// What `quorum describe` says of the lone voter: epoch and high watermark.
fn described(port: u16) -> (i64, i64) {
    let address = format!("127.0.0.1:{port}");
    let arguments = [
        "quorum",
        "describe",
        "--json",
        "--bootstrap-server",
        &address,
    ];
    let text = quorate(&arguments, "", REFUSAL_LIMIT).expect_success();
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let number = |key: &str| value[key].as_i64().expect("a number");
    (number("leader_epoch"), number("high_watermark"))
}

/// # Panics
/// Unless the start is refused for the reasons that `words` name, and changed nothing.
fn assert_start_refused(config: &Path, data_dir: &Path, words: &[&str]) {
    let before = contents(data_dir);
    let refused = server(config);
    assert_refused(&refused, words);
    assert_eq!(contents(data_dir), before, "{words:?}");
}

/// A voter whose disk was wiped has forgotten its votes and its records: it never starts by itself
/// as if it were new, not even if that happened to a majority.
#[test]
fn wiped_voters_do_not_start_and_elect_nobody() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.describe().leader_id;
    append_to(&cluster, leader);
    let wiped: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
    for id in &wiped {
        cluster.kill(*id);
        let dir = cluster.node(*id).dir.clone();
        fs::remove_dir_all(dir.join(format!("{TOPIC}-0"))).expect("a log to lose");
        fs::remove_file(dir.join("meta.properties")).expect("an identity to lose");
    }
    cluster.kill(leader);
    for id in wiped {
        let dir = cluster.node(id).dir.clone();
        let refused = run(server_command(&dir.join("server.properties")), "", s(20));
        assert_refused(&refused, &["is not formatted", &dir.to_string_lossy()]);
        assert!(!dir.join(format!("{TOPIC}-0")).exists());
    }
}

fn append_to(cluster: &Cluster, id: i32) {
    let address = cluster.node(id).address.clone();
    let arguments = ["append", "--bootstrap-server", &address];
    quorate(&arguments, "kept\n", s(20)).expect_success();
}

#[test]
fn a_data_directory_that_is_not_there_is_not_made() {
    let lone = Lone::new();
    used(&lone, 1);
    let elsewhere = lone.dir.path().join("unmounted");
    let config = lone.config("mistyped.properties", &elsewhere, 0);
    assert_refused(
        &server(&config),
        &["is not formatted", &elsewhere.to_string_lossy()],
    );
    assert!(!elsewhere.exists());
    // An empty mount point looks the same.
    fs::create_dir(&elsewhere).expect("a directory");
    assert_start_refused(&config, &elsewhere, &["is not formatted", "mounted"]);
}

/// meta.properties says that there was a log.
#[test]
fn a_log_that_is_gone_is_missed() {
    let lone = Lone::new();
    let (config, log) = used(&lone, 3);
    let data_dir = lone.data_dir();
    let away = lone.dir.path().join("away");
    fs::rename(&log, &away).expect("a log to move");
    assert_start_refused(&config, &data_dir, &["its log is missing"]);

    // The directory is there, its segments are not.
    fs::rename(&away, &log).expect("a log to move back");
    for entry in fs::read_dir(&log).expect("a log") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).expect("a segment to lose");
        }
    }
    assert_start_refused(&config, &data_dir, &["has no segment"]);
}

/// The vote file is what keeps a voter from voting twice in an epoch.
#[test]
fn a_vote_file_that_is_lost_or_damaged_is_missed() {
    for records in [0, 3] {
        let lone = Lone::new();
        let (config, log) = used(&lone, records);
        let (file, data_dir) = (log.join("quorum-state"), lone.data_dir());
        let good = fs::read(&file).expect("a vote file");
        let path = file.to_string_lossy();
        fs::remove_file(&file).expect("a file to lose");
        assert_start_refused(&config, &data_dir, &[&path, "is missing"]);
        for bad in [
            &b""[..],
            &good[..good.len() / 2],
            b"\0\0\0\0\0\0\0\0",
            b"{\"data_version\":99}",
        ] {
            fs::write(&file, bad).expect("a file");
            assert_start_refused(&config, &data_dir, &[&path]);
        }
        // As it was, with a key that a later release may add.
        let text = String::from_utf8(good).expect("text");
        let extended = text.replacen('{', "{\"aLaterKey\":[1,{}],", 1);
        fs::write(&file, extended).expect("a file");
        Serving::start(&config, lone.ports.base());
    }
}

/// An older copy of the vote file knows fewer epochs than the log.
#[test]
fn a_vote_file_that_went_back_in_time_is_refused() {
    let lone = Lone::new();
    let (config, log) = used(&lone, 1);
    let file = log.join("quorum-state");
    let old = fs::read(&file).expect("a vote file");
    let serving = Serving::start(&config, lone.ports.base());
    append(lone.ports.base(), 1);
    drop(serving);
    fs::write(&file, old).expect("a file");
    assert_start_refused(
        &config,
        &lone.data_dir(),
        &["has records of epoch 2", "knows only epoch 1"],
    );
}

/// Killed at any moment of start and election, the node finds a whole vote file, and no epoch is
/// ever led twice.
#[test]
fn a_node_killed_at_any_moment_starts_again_in_a_later_epoch() {
    let lone = Lone::new();
    let config = lone.formatted();
    let file = lone.data_dir().join(format!("{TOPIC}-0/quorum-state"));
    let mut last = 0;
    for round in 0..40_u64 {
        let mut child = server_command(&config)
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let begin = fs::metadata(&file).and_then(|meta| meta.modified()).ok();
        if round % 2 == 0 {
            common::pause(Duration::from_millis(round % 20));
        } else {
            // The moment after the file was replaced.
            wait_for("an election", s(20), || {
                let now = fs::metadata(&file).and_then(|meta| meta.modified()).ok();
                (now != begin).then_some(())
            });
        }
        child.kill().expect("a child to kill");
        child.wait().expect("a child");
        if let Ok(text) = fs::read_to_string(&file) {
            let state: Value = serde_json::from_str(&text).expect("a whole file");
            let epoch = state["leaderEpoch"].as_i64().expect("an epoch");
            assert!(epoch >= last, "epoch {epoch} after {last}");
            last = epoch;
        }
    }
    let mut serving = Serving::start(&config, lone.ports.base());
    serving.stop();
    // A spare segment may be half prepared; no half-written state file is left.
    let left: Vec<_> = contents(&lone.data_dir())
        .into_iter()
        .map(|(path, _)| path.file_name().expect("a file").to_owned())
        .filter(|name| {
            let name = name.to_string_lossy();
            name.ends_with(".tmp") && name != "segment.spare.tmp"
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Each change of the configuration that contradicts the directory is refused with both values.
#[test]
fn a_configuration_that_contradicts_the_directory_is_refused_with_both_values() {
    let lone = Lone::new();
    let (config, log) = used(&lone, 1);
    let text = fs::read_to_string(&config).expect("a configuration");
    let peer = lone.ports.base() + 100;
    let voters = format!("controller.quorum.voters=1@127.0.0.1:{peer}");
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&config, text.replace(from, to)).expect("a configuration");
    };
    let data_dir = lone.data_dir();
    let meta = data_dir.join("meta.properties");

    with("node.id=1", "node.id=7");
    assert_start_refused(
        &config,
        &data_dir,
        &[&meta.to_string_lossy(), "node.id=1", "node.id=7"],
    );
    with(&voters, &format!("{voters},2@127.0.0.1:1,3@127.0.0.1:2"));
    let state = log.join("quorum-state");
    assert_start_refused(
        &config,
        &data_dir,
        &[&state.to_string_lossy(), "voters [1]", "has [1, 2, 3]"],
    );
    with(
        "controller.listener.names=CONTROLLER",
        "controller.listener.names=CONTROLER",
    );
    assert_start_refused(
        &config,
        &data_dir,
        &["controller.listener.names", "CONTROLER"],
    );
    with(
        "node.id=1",
        "node.id=1\nquorum.topic.id=BBBBBBBBBBBBBBBBBBBBBA",
    );
    assert_start_refused(
        &config,
        &data_dir,
        &[
            "topic_id",
            "BBBBBBBBBBBBBBBBBBBBBA",
            "AAAAAAAAAAAAAAAAAAAAAQ",
        ],
    );
    for (from, to, words) in [
        (
            "node.id=1",
            "node.id=1\nquorate.typo=1",
            &["quorate.typo", ":2"][..],
        ),
        (
            &*format!("CONTROLLER://127.0.0.1:{peer}"),
            "CONTROLLER://127.0.0.1:70000",
            &["70000", ":3"],
        ),
        (&*format!("@127.0.0.1:{peer}"), "@127.0.0.1:0", &[":0"]),
        (
            &*voters,
            &*format!("{voters},1@127.0.0.1:9"),
            &["controller.quorum.voters", "1"],
        ),
    ] {
        with(from, to);
        assert_start_refused(&config, &data_dir, words);
    }

    // Trailing spaces are none of a value, and as it was it starts.
    with("node.id=1", "node.id=1  ");
    let (epoch, end) = {
        let _serving = Serving::start(&config, lone.ports.base());
        append(lone.ports.base(), 1);
        described(lone.ports.base())
    };
    assert_eq!(
        (epoch, end),
        (2, 4),
        "two records and two LeaderChange records"
    );
}

/// The lock is the kernel's: what is in the file, or whose it is, never matters.
#[test]
fn what_a_lock_file_holds_never_matters() {
    let lone = Lone::new();
    let (config, _) = used(&lone, 1);
    let lock = fs::read_dir(lone.data_dir())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.to_string_lossy().contains("lock"))
        .expect("a lock file");
    for content in [&b""[..], b"garbage", b"4194303\n"] {
        fs::write(&lock, content).expect("a lock file");
        drop(Serving::start(&config, lone.ports.base()));
    }
    fs::remove_file(&lock).expect("a lock file to lose");
    drop(Serving::start(&config, lone.ports.base()));
}

/// What is said about formatting a voter anew works: with a majority alive, the voter that comes
/// back empty gets everything again.
#[test]
fn a_voter_formatted_anew_catches_up_with_a_majority_that_remembers() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.describe().leader_id;
    append_to(&cluster, leader);
    let lost = 1 + leader % 3;
    cluster.kill(lost);
    let dir = cluster.node(lost).dir.clone();
    let cluster_id = fs::read_to_string(dir.join("meta.properties"))
        .expect("an identity")
        .lines()
        .find_map(|line| line.strip_prefix("cluster.id=").map(str::to_owned))
        .expect("a cluster id");
    fs::remove_dir_all(dir.join(format!("{TOPIC}-0"))).expect("a log to lose");
    fs::remove_file(dir.join("meta.properties")).expect("an identity to lose");
    let config = dir.join("server.properties");
    format(&config, &["--cluster-id", &cluster_id]).expect_success();
    cluster.restart(lost);
    append_to(&cluster, leader);
    wait_for("the new voter to catch up", s(30), || {
        let described = cluster.describe();
        let end = |id| {
            let voters = &described.voters;
            voters
                .iter()
                .find(|voter| voter.id == id)
                .map(|voter| voter.log_end_offset)
        };
        (end(lost) == end(leader)).then_some(())
    });
}

/// Directories that release 0.1 left, after a clean stop and after SIGKILL. Every later release
/// must open them with everything that is in them.
#[test]
fn directories_of_release_0_1_open_with_all_their_records() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/release-0.1");
    for kind in ["clean", "killed"] {
        let lone = Lone::new();
        copy_dir(&stored.join(kind), &lone.data_dir());
        let config = lone.config("server.properties", &lone.data_dir(), 0);
        let _serving = Serving::start(&config, lone.ports.base());
        append(lone.ports.base(), 1);
        let address = format!("127.0.0.1:{}", lone.ports.base());
        let tail = ["tail", "--bootstrap-server", &address];
        let text = quorate(&tail, "", s(20)).expect_success();
        let mut expected: Vec<String> = Vec::new();
        for run in 1..=2 {
            expected.extend((1..=500).map(|n| format!("{kind} run {run} record {n} ")));
        }
        expected.push("record 0".to_owned());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), expected.len());
        for (line, expected) in lines.iter().zip(&expected) {
            assert!(line.contains(expected.as_str()), "{expected:?}: {line:?}");
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

/// What a later release wrote is refused by name and left as it is.
#[test]
fn files_of_a_later_release_are_refused_and_left_alone() {
    let lone = Lone::new();
    let (config, log) = used(&lone, 1);
    let data_dir = lone.data_dir();
    let later = |path: &Path, from: &str, to: &str, words: &[&str]| {
        let good = fs::read_to_string(path).expect("a file");
        assert!(good.contains(from), "{good}");
        fs::write(path, good.replace(from, to)).expect("a file");
        assert_start_refused(&config, &data_dir, words);
        fs::write(path, good).expect("a file");
    };
    later(
        &data_dir.join("meta.properties"),
        "version=1",
        "version=2",
        &["meta.properties", "version \"2\""],
    );
    later(
        &log.join("quorum-state"),
        "\"data_version\":0",
        "\"data_version\":2",
        &["quorum-state", "version 2"],
    );
    later(
        &log.join("partition.metadata"),
        "version: 0",
        "version: 1",
        &["partition.metadata", "version"],
    );
    let checkpoint = log.join("leader-epoch-checkpoint");
    let good = fs::read_to_string(&checkpoint).expect("a file");
    fs::write(&checkpoint, good.replacen('0', "1", 1)).expect("a file");
    assert_start_refused(
        &config,
        &data_dir,
        &["leader-epoch-checkpoint", "version 1"],
    );
    fs::write(&checkpoint, good).expect("a file");

    let segment = log.join("00000000000000000000.log");
    let mut bytes = fs::read(&segment).expect("a segment");
    bytes[16] = 3;
    fs::write(&segment, &bytes).expect("a segment");
    assert_start_refused(&config, &data_dir, &["00000000000000000000.log", "magic"]);
}
