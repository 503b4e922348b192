//! A log that may not grow for ever: `log.max.bytes` gives an alarm, then refuses clients in words,
//! and never stands between replicas.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Lone, MachineLock, PortBlock, RawClient, Servers, Serving, batch, get, quorate, read_all, s,
    scrape, scratch_dir, wait_for,
};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

/// Kafka's code for what the operator's bounds do not allow: clients tell their users.
const POLICY_VIOLATION: i16 = 44;

const MAX_BYTES: usize = 100_000;

fn append_line(path: &Path, line: &str) {
    let before = fs::read_to_string(path).expect("a configuration");
    fs::write(path, format!("{before}{line}\n")).expect("a configuration");
}

/// Waits until /readyz says `words` of the size, which makes nobody useless.
fn expect_ready(admin: &str, words: &str) {
    wait_for(
        &format!("a node that is ready and says {words:?}"),
        s(20),
        || {
            let answered = get(admin, "/readyz?verbose").ok()?;
            let line = answered
                .body
                .lines()
                .find(|line| line.contains("log-size"))?;
            (answered.status == 200 && line.contains(words)).then_some(())
        },
    );
}

#[test]
fn a_log_gives_an_alarm_then_refuses_in_words_and_takes_more_when_it_may() {
    let lone = Lone::new();
    let config = lone.formatted();
    append_line(&config, &format!("log.max.bytes={MAX_BYTES}"));
    let address = format!("127.0.0.1:{}", lone.ports.base());
    let admin = format!("127.0.0.1:{}", lone.ports.base() + 150);
    let log_path = lone.dir.path().join("log");
    let log = || Stdio::from(File::create(&log_path).expect("a log file"));
    let told = || fs::read_to_string(&log_path).expect("a log");
    let mut node = Serving::start_prepared(&config, &address, log(), &|_| ());
    let mut client = RawClient::connect(&address).expect("a connection");
    client.wait_for_answers(s(20)).expect("a socket option");
    let mut produce = || client.produce(&batch(&[b'x'; 900])).expect("an answer");

    expect_ready(&admin, "[+]log-size: ");
    let mut taken = 0;
    while produce().error == 0 {
        taken += 1;
        assert!(taken < MAX_BYTES / 900, "it takes more than it may");
        if taken == MAX_BYTES / 970 * 95 / 100 {
            expect_ready(&admin, "ALARM");
            assert!(told().contains("comes near log.max.bytes"), "{}", told());
        }
    }
    assert!(taken > MAX_BYTES / 1100, "{taken} records of 900 bytes");
    assert_eq!(produce().error, POLICY_VIOLATION);
    expect_ready(&admin, "READ-ONLY");
    assert!(
        told().contains("as large as log.max.bytes allows"),
        "{}",
        told()
    );
    let samples = scrape(&admin);
    assert_eq!(samples["quorate_log_read_only"], 1.0);
    assert!(samples["quorate_log_quota_percent"] >= 100.0);
    assert_eq!(read_all(&address).len(), taken);
    let appended = quorate(
        &["append", "--bootstrap-server", &address],
        "one more\n",
        s(30),
    );
    assert_eq!(appended.status.code(), Some(1), "{appended:?}");
    assert!(appended.stderr.contains("POLICY_VIOLATION"), "{appended:?}");

    // It leads again after a restart, with a record of its own beyond the bound.
    node.stop();
    let mut node = Serving::start_prepared(&config, &address, log(), &|_| ());
    let mut client = RawClient::connect(&address).expect("a connection");
    client.wait_for_answers(s(20)).expect("a socket option");
    let refused = client.produce(&batch(b"x")).expect("an answer");
    assert_eq!(refused.error, POLICY_VIOLATION);
    assert_eq!(read_all(&address).len(), taken);

    node.stop();
    let text = fs::read_to_string(&config).expect("a configuration");
    let raised = text.replace("log.max.bytes=", "log.max.bytes=1");
    fs::write(&config, raised).expect("a configuration");
    let mut node = Serving::start_prepared(&config, &address, log(), &|_| ());
    let appended = quorate(
        &["append", "--bootstrap-server", &address],
        "one more\n",
        s(30),
    );
    appended.expect_success();
    node.stop();
}

/// Voters may be given different bounds. Whoever leads goes by its own, and the others follow.
#[test]
fn a_follower_takes_what_its_leader_has_whatever_its_own_bound() {
    let _machine = MachineLock::acquire();
    let (dir, ports) = (scratch_dir(), PortBlock::acquire());
    let base = ports.base();
    let addresses = [0, 1, 2]
        .map(|n| format!("127.0.0.1:{}", base + n))
        .join(",");
    let mut servers = Servers::new(dir.path(), &addresses, |_| ());
    let voters = [0, 1, 2]
        .map(|n| format!("{}@127.0.0.1:{}", n + 1, base + 100 + n))
        .join(",");
    for n in 0..3 {
        let max = if n == 0 { -1 } else { 0 };
        let (client, peer) = (base + n, base + 100 + n);
        let lines = format!(
            "listeners=CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{peer}\n\
             log.max.bytes={max}"
        );
        servers.add(&voters, &lines);
    }
    servers.start_all();
    // The first of those with the longest log is the preferred successor.
    let mut leader = servers.leader_after(0);
    for _ in 0..5 {
        if leader.leader_id == 1 {
            break;
        }
        let id = usize::try_from(leader.leader_id).expect("an id");
        let refused = servers.client(&["append"], "refused\n");
        assert!(refused.stderr.contains("POLICY_VIOLATION"), "{refused:?}");
        servers.stop(id);
        servers.start(id);
        leader = servers.leader_after(leader.leader_epoch);
    }
    assert_eq!(leader.leader_id, 1, "{leader:?}");
    for id in [2, 3] {
        servers.append_and_reach(&"x".repeat(10_000), id);
    }
}
