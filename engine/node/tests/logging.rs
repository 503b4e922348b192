//! The log of a node whose reader is slow, gone, or reads JSON: no reader ever stops a node.

#![allow(clippy::disallowed_methods)] // tests have their own time

mod common;

use common::{
    Lone, QUORATE, RawClient, Running, Samples, batch, get, s, scrape, server_command, wait_for,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that a node keeps for a slow reader, some more, and what the pipe itself holds.
const LINES: usize = 6_000;

/// A node whose log goes into a pipe.
struct Piped {
    child: Child,
    client: String,
    admin: String,
}

impl Piped {
    /// Starts one and waits until it leads.
    fn start(lone: &Lone, config: &Path, arguments: &[&str]) -> (Self, ChildStderr) {
        let mut command = server_command(config);
        command.args(arguments);
        let spawned = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("a server");
        let log = child.stderr.take().expect("piped");
        let piped = Self {
            child,
            client: format!("127.0.0.1:{}", lone.ports.base()),
            admin: format!("127.0.0.1:{}", lone.ports.base() + 150),
        };
        wait_for("a node that is ready", s(20), || {
            get(&piped.admin, "/readyz")
                .ok()
                .filter(|said| said.status == 200)
        });
        (piped, log)
    }

    /// Appends records one after the other; how long nine in ten of them took at most.
    fn commit(&self, count: usize) -> Duration {
        let mut client = RawClient::connect(&self.client).expect("a client listener");
        let commits = (0..count).map(|_| {
            let begun = Instant::now();
            client.produce(&batch(b"value")).expect("a commit");
            begun.elapsed()
        });
        let mut commits: Vec<Duration> = commits.collect();
        commits.sort_unstable();
        commits[commits.len() * 9 / 10]
    }

    /// Has the node log so many lines at level debug, each for a connection that sends nonsense.
    fn cause_lines(&self, count: usize) {
        for _ in 0..count {
            let mut stream = TcpStream::connect(&self.client).expect("a connection");
            let _ = stream.write_all(&[0xff; 8]);
            // Until the node has hung up: it has logged then, or is about to.
            stream.set_read_timeout(Some(s(5))).expect("a time-out");
            if let Err(error) = stream.read(&mut [0; 8]) {
                let hangs = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!hangs, "the node did not hang up within 5 s");
            }
        }
    }

    fn stop(&mut self) -> std::process::ExitStatus {
        let pid = i32::try_from(self.child.id()).expect("an id");
        assert!(Running::new(pid).signal(Signal::TERM));
        wait_for("a graceful stop", s(20), || {
            self.child.try_wait().expect("a child")
        })
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dropped(samples: &Samples) -> f64 {
    samples["quorate_logging_dropped_lines_total"]
}

#[test]
fn a_log_that_nobody_reads_stops_nobody_and_says_later_what_is_missing() {
    let lone = Lone::new();
    let config = lone.formatted();
    let (mut piped, log) = Piped::start(&lone, &config, &["--log-level", "debug"]);
    let calm = piped.commit(200);
    piped.cause_lines(LINES);
    wait_for("lines are dropped", s(20), || {
        (dropped(&scrape(&piped.admin)) > 0.0).then_some(())
    });
    let blocked = piped.commit(200);
    assert!(
        blocked < 4 * calm + Duration::from_millis(50),
        "nine in ten commits took {calm:?} at most, and {blocked:?} with the log blocked"
    );

    // Now somebody reads.
    let (lines_out, lines_in) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let _ = lines_out.send(line);
        }
    });
    let notice = lines_in
        .iter()
        .find(|line| line.contains("lines dropped here"))
        .expect("the place where lines are missing");
    assert!(notice.contains("WARN quorate::logging"), "{notice}");
    assert!(piped.stop().success());
    let last: Vec<String> = lines_in.iter().collect();
    assert!(
        last.iter().any(|line| line.contains("shutting down")),
        "what comes after a drop is there again: {last:?}"
    );
    reader.join().expect("a reader");
}

#[test]
fn a_node_ends_although_nobody_reads_its_log() {
    let lone = Lone::new();
    let config = lone.formatted();
    let (mut piped, log) = Piped::start(&lone, &config, &["--log-level", "debug"]);
    piped.cause_lines(LINES);
    let begun = Instant::now();
    assert!(piped.stop().success());
    assert!(begun.elapsed() < s(10), "{:?}", begun.elapsed());
    drop(log);
}

#[test]
fn a_node_goes_on_when_the_reader_of_its_log_is_gone() {
    let lone = Lone::new();
    let config = lone.formatted();
    let (mut piped, log) = Piped::start(&lone, &config, &["--log-level", "debug"]);
    drop(log);
    piped.cause_lines(100);
    piped.commit(20);
    assert!(piped.stop().success());
}

#[test]
fn in_json_every_line_is_an_object_with_level_and_reason() {
    let lone = Lone::new();
    let config = lone.formatted();
    let (mut piped, mut log) = Piped::start(&lone, &config, &["--log-format", "json"]);
    assert!(piped.stop().success());
    let mut text = String::new();
    log.read_to_string(&mut text).expect("a log");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let changes = lines
        .iter()
        .filter(|line| line["fields"]["message"] == "state changed");
    let reasons: Vec<&str> = changes
        .map(|line| line["fields"]["reason"].as_str().expect("a reason"))
        .collect();
    assert!(reasons.contains(&"this is the only voter"), "{reasons:?}");
    assert!(lines.iter().all(|line| line["level"].is_string()));
}

#[test]
fn a_slow_commit_is_told_with_its_stage() {
    let lone = Lone::new();
    let config = lone.formatted();
    let text = std::fs::read_to_string(&config).expect("a configuration");
    // Every commit takes longer than this on any disk worth its name, sooner or later.
    std::fs::write(&config, format!("{text}commit.slow.ms=1\n")).expect("a configuration");
    let (mut piped, log) = Piped::start(&lone, &config, &[]);
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let big = batch(&vec![b'x'; 4_000_000]);
    let mut client = RawClient::connect(&piped.client).expect("a client listener");
    client.produce(&big).expect("a commit");
    let line = lines.find(|line| line.contains("a commit was slow"));
    let line = line.expect("a line about it");
    for word in ["WARN", "total_ms=", "stage=", "stage_ms="] {
        assert!(line.contains(word), "{line}");
    }
    assert!(scrape(&piped.admin)["quorate_slow_commits_total"] >= 1.0);
    assert!(piped.stop().success());
}

#[test]
fn an_error_at_the_end_is_the_last_line() {
    let lone = Lone::new();
    let config = lone.config("server.properties", &lone.data_dir(), 0);
    let mut command = Command::new(QUORATE);
    command.args(["server", "--config"]).arg(&config);
    let finished = common::run(command, "", s(10));
    assert_eq!(finished.status.code(), Some(1));
    let last = finished.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("quorate: "), "{finished:?}");
}

#[test]
fn strangers_cannot_fill_the_log() {
    let lone = Lone::new();
    let config = lone.formatted();
    let begun = Instant::now();
    let (mut piped, mut log) = Piped::start(&lone, &config, &[]);
    piped.cause_lines(500);
    let counted = scrape(&piped.admin);
    let broken = "quorate_connections_broken_total{listener=\"client\",loop=\"raft\"}";
    assert!(counted[broken] >= 500.0, "{}", counted[broken]);
    assert!(piped.stop().success());
    let intervals = begun.elapsed().as_secs() / 10 + 1;
    let mut text = String::new();
    log.read_to_string(&mut text).expect("a log");
    let told = text
        .lines()
        .filter(|line| line.contains("closing a connection for what it sent"));
    let told: Vec<&str> = told.collect();
    assert!(told.len() as u64 <= 5 * intervals, "{} lines", told.len());
    assert!(
        told.iter().all(|line| line.contains("peer=127.0.0.1:")),
        "{told:?}"
    );
}
