//! Golden scenarios: each file in `testdata` is a story with commands, and under each command what
//! the replicas then did, one line for each message and change.
//!
//! `REWRITE=1 cargo test -p quorate-raft --test scenarios` records anew; review the difference.
//!
//! Commands (times are per replica, each has its own clock):
//! - `voters 1,2,3`; `replica 2 log 1,1,2 epoch 3 leader 1 voted 2`: not running yet, a record
//!   for each epoch named; all but the id may be left out. `start 1,2` or `start all`, `restart 1`.
//! - `timeout 1`: the clock of 1 moves on, from deadline to deadline, until 1 changes its state.
//!   `advance 150 1,2`: by 150 ms.
//! - `run [1,2]`: delivers, persists and flushes (among these replicas) until nothing is left to
//!   do. `elect 1`: `timeout 1` until it stands for election, and `run`.
//! - `deliver 1->2`, `drop 1->2`: all messages that are on their way now. `fail 1->2`: the requests
//!   that 1 sent are answered with a broken connection. `cut 3`, `heal 3`.
//! - `persist 1`, `flush 1`: everything; `flush-one 1`: the oldest write.
//! - `quietly` before any command: without a line for each thing that happens.
//! - `append 1 [count]`, `crash 1`, `shutdown 1`, `break-disk 1`, `state`, `log 1`.

mod common;

use common::{Cluster, Payload, option};
use quorate_raft::*;
use std::path::Path;

const TIMEOUTS_MAX: u32 = 20;
const TICKS_MAX: u32 = 200;
const DELIVERIES_MAX: u32 = 2_000;

#[test]
fn replicas_behave_as_the_scenarios_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("testdata is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 12, "scenarios are missing");
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut differing = Vec::new();
    for path in paths {
        let recorded = std::fs::read_to_string(&path).expect("a scenario");
        let played = play(&recorded);
        if played != recorded && rewrite {
            std::fs::write(&path, &played).expect("testdata can be written");
        } else if played != recorded {
            let line = played
                .lines()
                .zip(recorded.lines())
                .position(|(a, b)| a != b);
            differing.push((path, line.map(|line| line + 1), played));
        }
    }
    for (path, line, played) in &differing {
        println!(
            "{} differs from line {line:?} on; now it is:\n{played}",
            path.display()
        );
    }
    assert!(
        differing.is_empty(),
        "run with REWRITE=1 and review the difference"
    );
}

/// Runs the commands of a scenario and returns it with what happens now.
fn play(text: &str) -> String {
    let mut played = String::new();
    let mut cluster = Cluster::new(&[], 0);
    for line in text.lines() {
        if line.starts_with("  ") {
            continue;
        }
        played.push_str(line);
        played.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let is_quiet = words[0] == "quietly";
        if is_quiet {
            words.remove(0);
        }
        command(&mut cluster, &words);
        if is_quiet {
            cluster.trace.clear();
        }
        for happened in cluster.trace.drain(..) {
            played.push_str("  ");
            played.push_str(&happened);
            played.push('\n');
        }
    }
    played
}

fn ids(word: &str) -> Vec<NodeId> {
    let parse = |id: &str| id.parse().unwrap_or_else(|_| panic!("no replica {id}"));
    word.split(',').map(parse).collect()
}

fn ids_or_all(cluster: &Cluster, word: Option<&&str>) -> Vec<NodeId> {
    match word {
        Some(word) if *word != "all" => ids(word),
        _ => cluster.nodes.keys().copied().collect(),
    }
}

fn command(cluster: &mut Cluster, words: &[&str]) {
    let argument = words.get(1);
    match words[0] {
        "voters" => *cluster = Cluster::new(&ids(words[1]), 1),
        "replica" => add_replica(cluster, &words[1..]),
        "start" if words[1] == "all" => start(cluster, &cluster.voters.clone()),
        "start" => start(cluster, &ids(words[1])),
        "timeout" => each(cluster, argument, wait_for_change),
        "advance" => {
            let ms = words[1].parse().expect("milliseconds");
            for id in ids_or_all(cluster, words.get(2)) {
                cluster.advance(id, ms);
            }
        }
        "run" => run(cluster, &ids_or_all(cluster, argument)),
        "elect" => elect(cluster, ids(words[1])[0]),
        "deliver" | "drop" | "fail" => move_messages(cluster, words[0], words[1]),
        "cut" => cluster.cut_off.extend(ids(words[1])),
        "heal" => cluster.cut_off.retain(|id| !ids(words[1]).contains(id)),
        "persist" => each(
            cluster,
            argument,
            |cluster, id| while cluster.persist(id) {},
        ),
        "flush" => each(cluster, argument, |cluster, id| while cluster.flush(id) {}),
        "flush-one" => each(cluster, argument, |cluster, id| {
            assert!(cluster.flush(id), "nothing to flush");
        }),
        "append" => {
            for _ in 0..words
                .get(2)
                .map_or(1, |count| count.parse().expect("a count"))
            {
                cluster.append(ids(words[1])[0]);
            }
        }
        "crash" => each(cluster, argument, |cluster, id| cluster.crash(id, 0, 0)),
        "restart" => start(cluster, &ids(words[1])),
        "shutdown" => each(cluster, argument, |cluster, id| {
            cluster.step(id, &[], |raft, now, out| raft.shutdown(now, out));
        }),
        "break-disk" => each(cluster, argument, |cluster, id| {
            cluster.step(id, &[], |raft, now, out| raft.on_storage_failed(now, out));
        }),
        "state" => {
            for id in ids_or_all(cluster, argument) {
                let line = cluster.state_of(id);
                cluster.trace.push(line);
            }
        }
        "log" => each(cluster, argument, print_log),
        other => panic!("unknown command {other}"),
    }
}

fn each(cluster: &mut Cluster, argument: Option<&&str>, act: impl Fn(&mut Cluster, NodeId)) {
    for id in ids_or_all(cluster, argument) {
        act(cluster, id);
    }
}

fn add_replica(cluster: &mut Cluster, words: &[&str]) {
    let mut epochs = Vec::new();
    let mut election = ElectionState::default();
    for pair in words[1..].chunks(2) {
        let number = || pair[1].parse().expect("a number");
        match pair[0] {
            "log" => epochs = ids(pair[1]),
            "epoch" => election.epoch = Epoch(number()),
            "leader" => election.leader_id = Some(number()),
            "voted" => election.voted = Some(ReplicaKey::of(number())),
            other => panic!("unknown property {other}"),
        }
    }
    cluster.add(ids(words[0])[0], &epochs, election);
}

fn start(cluster: &mut Cluster, ids: &[NodeId]) {
    for id in ids {
        if !cluster.nodes.contains_key(id) {
            cluster.add(*id, &[], ElectionState::default());
        }
        cluster.start(*id);
    }
}

/// Everything that needs no time to pass, in a fixed order: files, logs, then the oldest message.
fn run(cluster: &mut Cluster, among: &[NodeId]) {
    for _ in 0..DELIVERIES_MAX {
        let is_busy = among
            .iter()
            .any(|id| cluster.persist(*id) | cluster.flush(*id));
        let is_inside = |m: &common::Message| among.contains(&m.from) && among.contains(&m.to);
        match cluster.network.iter().position(is_inside) {
            _ if is_busy => {}
            Some(index) => cluster.deliver(index),
            None => return,
        }
    }
    panic!("the replicas do not come to rest");
}

fn wait_for_change(cluster: &mut Cluster, id: NodeId) {
    let state = |cluster: &Cluster| (cluster.raft(id).role(), cluster.raft(id).epoch());
    let before = state(cluster);
    for _ in 0..TICKS_MAX {
        cluster.timeout(id);
        if state(cluster) != before {
            return;
        }
    }
    panic!("{id} stays {before:?}");
}

fn elect(cluster: &mut Cluster, id: NodeId) {
    let all = ids_or_all(cluster, None);
    for _ in 0..TIMEOUTS_MAX {
        run(cluster, &all);
        if cluster.raft(id).role() == Role::Leader {
            return;
        }
        wait_for_change(cluster, id);
    }
    panic!("{id} is not elected");
}

fn move_messages(cluster: &mut Cluster, what: &str, way: &str) {
    let (from, to) = way.split_once("->").expect("a way such as 1->2");
    let (from, to) = (ids(from)[0], ids(to)[0]);
    let on_way = |m: &common::Message| m.from == from && m.to == to;
    let count = cluster.network.iter().filter(|m| on_way(m)).count();
    assert!(count > 0, "nothing is on its way from {from} to {to}");
    for _ in 0..count {
        let index = cluster.network.iter().position(on_way).expect("counted");
        match what {
            "deliver" => cluster.deliver(index),
            "drop" => drop(cluster.network.remove(index)),
            _ => {
                let message = cluster.network.remove(index).expect("counted");
                let is_request = matches!(message.payload, Payload::Request(_));
                assert!(is_request, "only requests fail");
                let failure = RequestFailure::Disconnected;
                cluster.step(from, &[], |raft, now, out| {
                    raft.on_request_failed(now, to, message.id, failure, out);
                });
            }
        }
    }
}

fn print_log(cluster: &mut Cluster, id: NodeId) {
    let raft = cluster.raft(id);
    let epochs = raft.epochs().iter();
    let epochs: Vec<String> = epochs
        .map(|entry| format!("{}@{}", entry.start_offset, entry.epoch))
        .collect();
    let line = format!(
        "{id} log {}..{} flushed {} high watermark {}, epochs from {}",
        raft.log_start_offset(),
        raft.log_end_offset(),
        raft.flushed_offset(),
        option(raft.high_watermark()),
        epochs.join(" ")
    );
    cluster.trace.push(line);
}
