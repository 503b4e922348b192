//! The admin listener of real nodes: what it says through their lives, whether its numbers are
//! those that the quorum itself tells, and what strangers can do to it.

#![allow(clippy::disallowed_methods)] // tests have their own time

mod common;

use common::{
    Answered, Cluster, Lone, RawClient, Samples, Serving, assert_refused, batch, exchange, get, s,
    scrape, server, wait_for,
};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A change of leader, on a busy machine.
const ELECTION_LIMIT: Duration = s(30);

fn ready(address: &str) -> Option<Answered> {
    get(address, "/readyz?verbose").ok()
}

/// Waits until /readyz gives `status` with `words`.
fn wait_until_ready_says(address: &str, status: u16, words: &str) -> Answered {
    let what = format!("/readyz of {address} says {status} with {words:?}");
    wait_for(&what, ELECTION_LIMIT, || {
        ready(address).filter(|said| said.status == status && said.body.contains(words))
    })
}

#[test]
fn a_node_is_ready_with_a_leader_and_live_without_one() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    for node in cluster.nodes() {
        let said = wait_until_ready_says(&node.admin, 200, "ok\n");
        assert!(
            said.body.contains(&format!("node {leader} leads epoch")),
            "{said:?}"
        );
    }
    let ids: Vec<i32> = cluster.nodes().iter().map(|node| node.id).collect();
    let alone = ids.iter().copied().find(|id| *id != leader).expect("three");
    let admin = cluster.node(alone).admin.clone();
    for id in ids.into_iter().filter(|id| *id != alone) {
        cluster.kill(id);
    }
    wait_until_ready_says(&admin, 503, "[-]leader: none");
    let live = get(&admin, "/livez").expect("an answer");
    assert_eq!(
        (live.status, &*live.body),
        (200, "ok\n"),
        "nobody need restart it"
    );
    let short = get(&admin, "/readyz").expect("an answer");
    assert!(!short.body.contains("[+]"), "only what is wrong: {short:?}");

    cluster.restart(leader);
    let again = cluster.node(leader).admin.clone();
    wait_until_ready_says(&admin, 200, "leads epoch");
    wait_until_ready_says(&again, 200, "leads epoch");
}

#[test]
fn a_node_that_shuts_down_is_not_ready() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let admin = cluster.node(leader).admin.clone();
    wait_until_ready_says(&admin, 200, "[+]high-watermark");
    // Nobody answers when it asks for a successor, so that it waits for one.
    let followers = cluster.nodes().iter().filter(|node| node.id != leader);
    let followers: Vec<_> = followers.map(|node| node.process).collect();
    for follower in &followers {
        assert!(follower.signal(Signal::STOP));
    }
    cluster.begin_stop(leader);
    let said = wait_until_ready_says(&admin, 503, "[-]running: the node is shutting down");
    assert!(said.body.ends_with("not ok\n"), "{said:?}");
    for follower in &followers {
        assert!(follower.signal(Signal::CONT));
    }
}

/// A sample that must be there.
fn sample(samples: &Samples, name: &str) -> f64 {
    let found = samples.get(name);
    *found.unwrap_or_else(|| panic!("{name} is not among {:?}", samples.keys()))
}

#[test]
fn metrics_say_what_the_quorum_says_of_itself() {
    let cluster = Cluster::start(3);
    let before = cluster.describe();
    let mut client =
        RawClient::connect(&cluster.node(before.leader_id).address).expect("a client listener");
    for _ in 0..50 {
        client.produce(&batch(b"value")).expect("a commit");
    }
    for node in cluster.nodes() {
        cluster.wait_until_caught_up(node.id);
    }
    let described = cluster.describe();
    let raft = |name: &str| format!("kafka_server_raftmetrics_{name}");
    for node in cluster.nodes() {
        let leads = node.id == described.leader_id;
        let what = format!("node {} knows the high watermark", node.id);
        let samples = wait_for(&what, s(10), || {
            let samples = scrape(&node.admin);
            let known = sample(&samples, &raft("high_watermark"));
            (known == described.high_watermark as f64).then_some(samples)
        });
        let state = if leads { "leader" } else { "follower" };
        let state = format!("{}{{current_state=\"{state}\"}}", raft("current_state"));
        assert_eq!(sample(&samples, &state), 1.0);
        for (name, value) in [
            ("current_leader", described.leader_id as f64),
            ("current_epoch", described.leader_epoch as f64),
            ("current_vote", described.leader_id as f64),
            ("log_end_offset", described.high_watermark as f64),
            ("log_end_epoch", described.leader_epoch as f64),
            ("number_unknown_voter_connections", 0.0),
        ] {
            assert_eq!(
                sample(&samples, &raft(name)),
                value,
                "{name} of {}",
                node.id
            );
        }
        let idle = sample(&samples, &raft("poll_idle_ratio_avg"));
        assert!((0.0..=1.0).contains(&idle), "{idle}");
        let groups = sample(&samples, "quorate_log_flush_seconds_count");
        assert!(
            (1.0..=described.high_watermark as f64).contains(&groups),
            "{groups}"
        );
        let batches = sample(&samples, "quorate_log_group_batches_sum");
        let records = described.high_watermark as f64;
        assert!(batches >= records, "one record in each: {batches}");
        assert_eq!(sample(&samples, "quorate_conflicts_total"), 0.0);
        if leads {
            check_leader(&samples, described.high_watermark as f64);
        } else {
            let fetched = sample(&samples, "quorate_fetched_records_total");
            assert!((50.0..=records).contains(&fetched), "{fetched}");
            assert!(sample(&samples, &raft("fetch_records_rate")) > 0.0);
        }
    }
}

/// The leader of a log that ends at `log_end`, of records in one batch each: its own epoch's first
/// and 50 of a client at least.
fn check_leader(samples: &Samples, log_end: f64) {
    let records = sample(samples, "quorate_appended_records_total");
    assert!((51.0..=log_end).contains(&records), "{records}");
    assert_eq!(sample(samples, "quorate_commit_seconds_count"), records);
    for stage in ["group", "write", "flush", "acknowledge", "answer", "total"] {
        let name = format!("quorate_commit_stage_seconds_count{{stage=\"{stage}\"}}");
        assert_eq!(sample(samples, &name), records, "{stage}");
    }
    let queue = "quorate_commit_stage_seconds_count{stage=\"queue\"}";
    assert_eq!(sample(samples, queue), 50.0, "what clients sent");
    let total = sample(samples, "quorate_commit_stage_seconds_sum{stage=\"total\"}");
    let commit = sample(samples, "quorate_commit_seconds_sum");
    assert!(total >= commit && commit > 0.0, "{total} {commit}");
    let average = sample(samples, "kafka_server_raftmetrics_commit_latency_avg");
    let expected = commit / records * 1000.0;
    assert!(
        (average - expected).abs() < expected / 100.0,
        "{average} {expected}"
    );
    let longest = sample(samples, "kafka_server_raftmetrics_commit_latency_max");
    assert!(longest >= average, "{longest} {average}");
    assert!(sample(samples, "kafka_server_raftmetrics_append_records_rate") > 0.0);
    assert!(sample(samples, "kafka_server_raftmetrics_election_latency_avg") > 0.0);
    let voters = samples.iter().filter(|(name, _)| {
        name.starts_with("quorate_replica_log_end_offset{") && name.contains("kind=\"voter\"")
    });
    let ends: Vec<f64> = voters.map(|(_, end)| *end).collect();
    assert_eq!(ends, [log_end; 3]);
    let won = "quorate_state_changes_total{state=\"leader\",\
               reason=\"a majority voted for this replica\"}";
    assert!(sample(samples, won) >= 1.0);
}

#[test]
fn status_is_the_same_at_every_node() {
    let cluster = Cluster::start(3);
    let described = cluster.describe();
    for node in cluster.nodes() {
        let what = format!("node {} shows what the leader knows", node.id);
        let status = wait_for(&what, s(20), || {
            let said = get(&node.admin, "/api/status").ok()?;
            let status: serde_json::Value = serde_json::from_str(&said.body).ok()?;
            let replicas = status["quorum"]["replicas"].as_array()?.clone();
            let caught_up = |one: &serde_json::Value| one["lag"].as_i64() == Some(0);
            // A follower is ready once it has heard of a high watermark.
            let is_whole = status["ready"] == true
                && status["quorum"]["is_leaders_view"] == true
                && status["quorum"]["high_watermark"].as_i64() >= Some(described.high_watermark);
            (is_whole && replicas.len() == 3 && replicas.iter().all(caught_up)).then_some(status)
        });
        assert_eq!(status["quorum"]["leader_id"], described.leader_id);
        assert_eq!(status["node"]["id"], node.id);
    }
}

// ---- where it listens --------------------------------------------------------------------------

#[test]
fn a_busy_admin_port_is_refused() {
    let lone = Lone::new();
    let config = lone.formatted();
    let port = lone.ports.base() + 150;
    let _taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let address = format!("127.0.0.1:{port}");
    let words = [&*address, "admin.listener", "in use"];
    assert_refused(&server(&config), &words);
}

/// Replaces the address of the admin listener.
fn listen_on(config: &Path, address: &str) {
    let text = fs::read_to_string(config).expect("a configuration");
    let lines = text.lines().filter(|line| !line.starts_with("admin."));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(config, format!("{lines}admin.listener={address}\n")).expect("a configuration");
}

#[test]
fn port_zero_is_named_in_the_log_and_none_is_nowhere() {
    let lone = Lone::new();
    let config = lone.formatted();
    let log = lone.dir.path().join("log.txt");
    let start = |address: &str| {
        listen_on(&config, address);
        let file = File::create(&log).expect("a file");
        let client = format!("127.0.0.1:{}", lone.ports.base());
        Serving::start_prepared(&config, &client, Stdio::from(file), &|_| ())
    };
    let named = || {
        let text = fs::read_to_string(&log).expect("a log");
        let (_, rest) = text.split_once("admin listener on http://")?;
        Some(rest.split('/').next()?.to_owned())
    };
    let mut serving = start("127.0.0.1:0");
    let address = named().expect("an address in the log");
    wait_until_ready_says(&address, 200, "ok\n");
    serving.stop();
    let mut serving = start("none");
    assert_eq!(named(), None);
    serving.stop();
}

// ---- strangers ---------------------------------------------------------------------------------

/// Memory of a process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.expect("a size")
}

#[test]
fn strangers_on_the_admin_port_harm_nobody() {
    let lone = Lone::new();
    let config = lone.formatted();
    let mut serving = Serving::start(&config, lone.ports.base());
    let admin = format!("127.0.0.1:{}", lone.ports.base() + 150);
    let client_address = format!("127.0.0.1:{}", lone.ports.base());
    wait_until_ready_says(&admin, 200, "ok\n");
    let before = resident_kib(serving.pid());

    for (bytes, status) in [
        (
            &b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"[..],
            405,
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (
            b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01a\x00",
            400,
        ),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez HTTP/1.1\r\nA: \xff\xfe\x00\r\n\r\n", 400),
    ] {
        let said = exchange(&admin, bytes).expect("an answer");
        assert_eq!(said.status, status, "{}", String::from_utf8_lossy(bytes));
    }
    let mut endless = b"GET / HTTP/1.1\r\n".to_vec();
    endless.extend(b"A: b\r\n".repeat(10_000));
    // Refused while it still sends: the answer may be lost on the way.
    if let Ok(said) = exchange(&admin, &endless) {
        assert_eq!(said.status, 431);
    }

    // Slow, silent and vanishing ones, while a client commits and a probe asks.
    let mut slow: Vec<TcpStream> = Vec::new();
    let mut client = RawClient::connect(&client_address).expect("a client listener");
    let begun = Instant::now();
    for round in 0..300 {
        let mut stream = TcpStream::connect(&admin).expect("a connection");
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
        if round % 3 != 0 {
            slow.push(stream);
        }
        client.produce(&batch(b"value")).expect("a commit");
        if round % 50 == 0 {
            let live = get(&admin, "/livez").expect("an answer");
            assert_eq!(live.status, 200, "{live:?}");
        }
    }
    let took = begun.elapsed();
    assert!(took < s(60), "300 commits and 7 probes took {took:?}");
    for mut stream in &slow {
        let _ = stream.write_all(b"a");
    }
    let samples = scrape(&admin);
    assert_eq!(sample(&samples, "quorate_ready"), 1.0);
    assert!(
        sample(&samples, "process_open_fds") < 200.0,
        "connections are bounded"
    );
    let grown = resident_kib(serving.pid()).saturating_sub(before);
    assert!(grown < 32 * 1024, "memory grew by {grown} KiB");
    serving.stop();
}
