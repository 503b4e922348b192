//! The Kafka clients of `docs/clients.md`, each as its users have it: brought by its package
//! manager, it appends to three voters and reads while their leader is killed.
//!
//! Behind the feature `interop`, since it needs the network and the clients' languages. How a
//! client is brought here says `toolchain.rs`, how its program is driven `program.rs`, and what
//! must hold `check.rs`. librdkafka itself is in `leader_kill.rs` and `librdkafka.rs`.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

#[path = "../common/mod.rs"]
mod common;

mod check;
mod program;
mod toolchain;

use check::{Report, assert_log_clean, assert_read};
use common::{Cluster, TOPIC, read_all};
use program::Program;
use std::path::Path;
use std::time::Duration;
use toolchain::Toolchain;

/// Records that a client appends, some 1,000 a second.
const RECORDS: usize = 4_000;
/// How many of them are acknowledged when the leader is killed.
const RECORDS_BEFORE: usize = 1_000;
/// How long the followers stand still before the leader is killed. They have then got records that
/// are not acknowledged, which the client sends again.
const ALONE: Duration = Duration::from_millis(40);
/// How many at least are acknowledged after that.
const RECORDS_AFTER_MIN: usize = 500;

/// How a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// By assigned partition, from the first record on, without end.
    Assigned,
    /// Not at all without a consumer group; it knows where the log begins and ends.
    OffsetsOnly,
}

/// How a client's producer is set up, and what must hold then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Producer {
    /// As it comes, which is idempotent: each record once and in order.
    DefaultsOnce,
    /// As it comes: each record at least once. What is sent again may come twice, or late.
    DefaultsAtLeastOnce,
    /// With idempotence turned on: each record once and in order.
    Idempotent,
}

impl Producer {
    /// What its program is told.
    fn settings(self) -> &'static str {
        match self {
            Self::DefaultsOnce | Self::DefaultsAtLeastOnce => "defaults",
            Self::Idempotent => "idempotent",
        }
    }
}

/// One client.
struct Client {
    toolchain: Toolchain,
    /// File under the toolchain's directory.
    program: &'static str,
    producer: Producer,
    reading: Reading,
    /// What its debug log says of ApiVersions, the newest version that it knows.
    api_versions: &'static str,
}

/// Appends and reads through a leader kill.
fn pass_a_leader_kill(client: &Client) {
    let tools = client.toolchain.prepare();
    let mut cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let at = [&bootstrap, TOPIC];
    let start = |mode: &str, more: &[&str]| {
        let arguments = [&[mode], &at[..], more].concat();
        Program::start(tools.command(client.program), &arguments)
    };
    let consumer = (client.reading == Reading::Assigned).then(|| start("consume", &[]));
    let mut producer = start(
        "produce",
        &[&RECORDS.to_string(), client.producer.settings()],
    );
    producer.wait_for_lines(RECORDS_BEFORE);

    let old = cluster.describe();
    cluster.kill_while_alone(old.leader_id, ALONE);
    let acked_before = producer.line_count();
    assert!(
        acked_before + RECORDS_AFTER_MIN <= RECORDS,
        "the leader died when {acked_before} of {RECORDS} were acknowledged"
    );
    let new = cluster.leader_after(old.leader_epoch);
    assert_ne!(new.leader_id, old.leader_id, "a dead leader");

    let (acked, log) = producer.finish();
    assert_log_clean(&log, client.api_versions);
    let records = read_all(&bootstrap);
    let report = Report::parse(&acked);
    match client.producer {
        Producer::DefaultsAtLeastOnce => report.assert_all_kept(RECORDS, &records),
        Producer::DefaultsOnce | Producer::Idempotent => {
            report.assert_once_and_in_order(RECORDS, &records);
        }
    }

    match consumer {
        Some(consumer) => {
            let last = records.last().expect("records").offset;
            let (read, log) = consumer.stop_after(last);
            assert_log_clean(&log, client.api_versions);
            assert_read(&read, &records);
        }
        None => {
            let (offsets, log) = start("offsets", &[]).finish();
            assert_log_clean(&log, client.api_versions);
            let end = cluster.describe().high_watermark;
            assert_eq!(offsets, [format!("offsets 0 {end}")]);
        }
    }
    println!(
        "{RECORDS} records sent, {acked_before} acknowledged when the leader died, {} in the log",
        records.len()
    );
}

#[test]
fn kcat_idempotent() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Kcat,
        program: "client.sh",
        producer: Producer::Idempotent,
        reading: Reading::Assigned,
        api_versions: "ApiVersionResponse (v3",
    });
}

#[test]
fn confluent_kafka_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Python,
        program: "client_confluent.py",
        producer: Producer::DefaultsAtLeastOnce,
        reading: Reading::Assigned,
        api_versions: "ApiVersionResponse (v3",
    });
}

#[test]
fn confluent_kafka_idempotent() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Python,
        program: "client_confluent.py",
        producer: Producer::Idempotent,
        reading: Reading::Assigned,
        api_versions: "ApiVersionResponse (v3",
    });
}

#[test]
fn kafka_python_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Python,
        program: "client_kafka_python.py",
        producer: Producer::DefaultsOnce,
        reading: Reading::Assigned,
        api_versions: "ApiVersionsResponse(version=4",
    });
}

#[test]
fn aiokafka_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Python,
        program: "client_aiokafka.py",
        producer: Producer::DefaultsAtLeastOnce,
        reading: Reading::Assigned,
        api_versions: "ApiVersionResponse_v0",
    });
}

#[test]
fn aiokafka_idempotent() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Python,
        program: "client_aiokafka.py",
        producer: Producer::Idempotent,
        reading: Reading::Assigned,
        api_versions: "ApiVersionResponse_v0",
    });
}

#[test]
fn java_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Java,
        program: "Client.java",
        producer: Producer::DefaultsOnce,
        reading: Reading::Assigned,
        api_versions: "apiKey=API_VERSIONS, apiVersion=5",
    });
}

#[test]
fn franz_go_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Go,
        program: "client",
        producer: Producer::DefaultsOnce,
        reading: Reading::Assigned,
        api_versions: "read ApiVersions v5",
    });
}

#[test]
fn kafkajs_with_its_defaults() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Node,
        program: "client.js",
        producer: Producer::DefaultsAtLeastOnce,
        reading: Reading::OffsetsOnly,
        api_versions: "Response ApiVersions(key: 18, version: 2)",
    });
}

#[test]
fn kafkajs_idempotent() {
    pass_a_leader_kill(&Client {
        toolchain: Toolchain::Node,
        program: "client.js",
        producer: Producer::Idempotent,
        reading: Reading::OffsetsOnly,
        api_versions: "Response ApiVersions(key: 18, version: 2)",
    });
}

#[test]
fn the_table_names_the_versions_that_are_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let page = std::fs::read_to_string(page).expect("docs/clients.md");
    for (client, version) in toolchain::pinned_versions() {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {client} ")));
        let row = row.unwrap_or_else(|| panic!("docs/clients.md has no row for {client}"));
        assert!(
            row.contains(&format!("| {version} ")),
            "docs/clients.md does not say that {client} {version} is tested: {row}"
        );
    }
}
