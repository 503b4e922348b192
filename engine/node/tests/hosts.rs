//! Hosts that forbid io_uring: the node does without, as durably, and says so; or it refuses.
//!
//! Forbidden as container run-times do it, by a seccomp filter that the node and its clients
//! inherit.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Cluster, Filter, IO_URING, Load, Lone, QUORATE, REFUSAL_LIMIT, Serving, assert_refused,
    contents, read_all, run, s, server_command,
};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls of io_uring that are forbidden, the error they get, and the one that is blamed.
fn cases() -> Vec<(Vec<libc::c_long>, i32, &'static str)> {
    let one = |call| vec![call];
    vec![
        (IO_URING.to_vec(), libc::EPERM, "io_uring_setup"),
        (IO_URING.to_vec(), libc::ENOSYS, "io_uring_setup"),
        (
            one(libc::SYS_io_uring_register),
            libc::EPERM,
            "io_uring_register",
        ),
        (one(libc::SYS_io_uring_enter), libc::EPERM, "io_uring_enter"),
    ]
}

fn append_line(path: &Path, line: &str) {
    let file = OpenOptions::new().append(true).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{line}"));
    written.expect("a configuration");
}

/// What the open files of a process are.
fn open_files(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let target = |entry: fs::DirEntry| fs::read_link(entry.path()).unwrap_or_default();
    entries
        .map(|entry| target(entry.expect("a file")).display().to_string())
        .collect()
}

fn has_io_uring(pid: u32) -> bool {
    open_files(pid).iter().any(|file| file.contains("io_uring"))
}

#[test]
fn asked_for_uring_a_node_refuses_at_once_and_touches_nothing() {
    let lone = Lone::new();
    let config = lone.formatted();
    append_line(&config, "io.engine=uring");
    let before = contents(&lone.data_dir());
    for (calls, errno, blamed) in cases() {
        let filter = Filter::forbid(&calls, errno);
        let mut command = server_command(&config);
        filter.apply_to(&mut command);
        let refused = run(command, "", REFUSAL_LIMIT);
        let blamed = format!("io_uring is not allowed here ({blamed}: ");
        assert_refused(&refused, &[&blamed, "a seccomp filter", "io.engine=auto"]);
        assert!(refused.took < s(1), "{refused:?}");
    }
    assert_eq!(contents(&lone.data_dir()), before);
}

#[test]
fn left_the_choice_a_node_and_its_clients_do_without_io_uring() {
    let lone = Lone::new();
    let config = lone.formatted();
    let address = format!("127.0.0.1:{}", lone.ports.base());
    for (round, (calls, errno, blamed)) in cases().into_iter().enumerate() {
        let filter = Filter::forbid(&calls, errno);
        let prepare = |command: &mut Command| filter.apply_to(command);
        let log_path = lone.dir.path().join(format!("log-{round}"));
        let log = File::create(&log_path).expect("a log file");
        let mut serving = Serving::start_prepared(&config, &address, log.into(), &prepare);
        assert!(!has_io_uring(serving.pid()));

        let mut append = Command::new(QUORATE);
        append.args(["append", "--bootstrap-server", &address]);
        prepare(&mut append);
        run(append, &format!("line {round}\n"), s(20)).expect_success();
        serving.stop();

        let log = fs::read_to_string(&log_path).expect("a log");
        let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 1, "{log}");
        for word in [blamed, "a seccomp filter", "io.engine=threads"] {
            assert!(warnings[0].contains(word), "{word}: {}", warnings[0]);
        }
    }

    // Where io_uring is to be had again, it is used, on the same directory.
    let serving = Serving::start(&config, lone.ports.base());
    assert!(has_io_uring(serving.pid()));
    let mut tail = Command::new(QUORATE);
    tail.args(["tail", "--bootstrap-server", &address, "--from", "0"]);
    let lines = run(tail, "", s(20)).expect_success();
    for round in 0..cases().len() {
        assert!(lines.contains(&format!("line {round}")), "{lines}");
    }
}

/// System calls of a trace, by name, that succeeded.
fn count(trace: &str, call: &str) -> usize {
    let called = format!(" {call}(");
    let is_it = |line: &&str| line.contains(&called) && !line.contains("= -1");
    trace.lines().filter(is_it).count()
}

#[test]
fn without_io_uring_each_commit_is_flushed() {
    if Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!("skipped: strace is not here to look at the node's system calls");
        return;
    }
    let lone = Lone::new();
    let config = lone.formatted();
    append_line(&config, "io.engine=threads");
    let address = format!("127.0.0.1:{}", lone.ports.base());
    let serving = Serving::start(&config, lone.ports.base());
    assert!(!has_io_uring(serving.pid()));

    let trace_path = lone.dir.path().join("trace");
    let mut strace = Command::new("strace")
        .args(["-f", "-e", "trace=pwrite64,fdatasync", "-o"])
        .arg(&trace_path)
        .args(["-p", &serving.pid().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("strace");
    // It follows once it has written something of what it sees; appends see to that.
    let append = |value: &str| {
        let mut append = Command::new(QUORATE);
        append.args(["append", "--bootstrap-server", &address]);
        run(append, value, s(20)).expect_success();
    };
    let trace = || fs::read_to_string(&trace_path).unwrap_or_default();
    let follows = common::wait_for("strace follows, or cannot", s(20), || {
        append("before\n");
        let gave_up = strace.try_wait().expect("a child").is_some();
        (gave_up || count(&trace(), "fdatasync") > 0).then_some(!gave_up)
    });
    if !follows {
        println!("skipped: strace may not look at the node's system calls (ptrace is restricted)");
        return;
    }
    let before = count(&trace(), "fdatasync");
    let appends = 10;
    (0..appends).for_each(|_| append("counted\n"));
    common::wait_for("strace has told of each flush", s(20), || {
        (count(&trace(), "fdatasync") >= before + appends).then_some(())
    });
    assert!(
        count(&trace(), "pwrite64") >= 2 * appends,
        "records and marks"
    );
    drop(serving);
    strace.wait().expect("strace ends with what it follows");
}

#[test]
fn voters_change_over_to_threads_under_load_and_lose_nothing() {
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 4);
    load.wait_for_acks(300);
    for id in 1..=3 {
        // The leader goes when the quorum is mixed, whatever it stands on, and at the end.
        let before = cluster.describe();
        cluster.kill(before.leader_id);
        cluster.leader_after(before.leader_epoch);
        cluster.restart(before.leader_id);
        cluster.wait_until_caught_up(before.leader_id);

        cluster.begin_stop(id);
        cluster.wait_until_gone(id);
        append_line(
            &cluster.node(id).dir.join("server.properties"),
            "io.engine=threads",
        );
        cluster.restart(id);
        cluster.wait_until_caught_up(id);
        load.wait_for_acks(300);
        for voter in cluster.nodes() {
            let pid = voter.process.pid() as u32;
            assert_eq!(has_io_uring(pid), voter.id > id, "voter {}", voter.id);
        }
    }
    let before = cluster.describe();
    cluster.kill(before.leader_id);
    cluster.leader_after(before.leader_epoch);
    load.wait_for_acks(300);
    cluster.restart(before.leader_id);
    cluster.wait_until_caught_up(before.leader_id);
    let report = load.finish();
    report.assert_all_kept(&read_all(&bootstrap));
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}

#[test]
fn dev_runs_where_io_uring_is_forbidden() {
    let forbid = |command: &mut Command| Filter::forbid(&IO_URING, libc::EPERM).apply_to(command);
    let mut cluster = Cluster::start_prepared(3, forbid);
    let bootstrap = cluster.bootstrap();
    let load = Load::start(&bootstrap, 2);
    load.wait_for_acks(200);
    let old = cluster.describe();
    cluster.kill(old.leader_id);
    cluster.leader_after(old.leader_epoch);
    load.wait_for_acks(200);
    cluster.restart(old.leader_id);
    cluster.wait_until_caught_up(old.leader_id);
    for voter in cluster.nodes() {
        assert!(!has_io_uring(voter.process.pid() as u32));
    }
    load.finish().assert_all_kept(&read_all(&bootstrap));
    let end = cluster.describe().high_watermark;
    cluster.stop_and_compare(end);
}
