//! A disk that changes what it holds: what is damaged is named and never given out, and the node
//! goes on with all else.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Lone, RawClient, Serving, batch, quorate, s, scrape, wait_for};
use serde_json::Value;
use std::fs::{self, File};

/// `CORRUPT_MESSAGE`.
const CORRUPT: i16 = 2;

/// Appends a record, as soon as the server leads.
fn append(client: &mut RawClient, value: &[u8]) {
    wait_for("an append", s(20), || {
        let appended = client.produce(&batch(value)).expect("an answer");
        (appended.error == 0).then_some(())
    });
}

#[test]
fn a_batch_that_rots_is_refused_to_consumers_and_everything_else_is_served() {
    let lone = Lone::new();
    let config = lone.formatted();
    let port = lone.ports.base();
    let address = format!("127.0.0.1:{port}");
    let mut server = Serving::start(&config, port);
    let mut client = RawClient::connect(&address).expect("a connection");
    // Offset 0 is the leader's own record.
    for number in 0..100_u8 {
        append(&mut client, &[number; 10_000]);
    }
    server.stop();

    let log_dir = lone.data_dir().join("__cluster_metadata-0");
    let segment = log_dir.join("00000000000000000000.log");
    let sound = fs::read(&segment).expect("a segment");
    let mut bytes = sound.clone();
    let value = [40_u8; 10_000];
    let at = bytes.windows(value.len()).position(|bytes| bytes == value);
    bytes[at.expect("record 41") + 5000] ^= 1;
    fs::write(&segment, bytes).expect("a damaged segment");

    // Closed cleanly, it is not read at the start.
    let stderr = lone.dir.path().join("stderr");
    let log = File::create(&stderr).expect("a log");
    let mut server = Serving::start_prepared(&config, &address, log.into(), &|_| ());
    let mut client = RawClient::connect(&address).expect("a connection");
    append(&mut client, b"it leads");
    let mut error_at = |offset| client.fetch(offset, 0).expect("an answer").error;
    assert_eq!(error_at(40), 0);
    assert_eq!(error_at(41), CORRUPT);
    assert_eq!(error_at(41), CORRUPT, "whoever asks again is told again");
    assert_eq!(error_at(60), 0);
    assert_eq!(error_at(100), 0);
    let samples = scrape(&format!("127.0.0.1:{}", port + 150));
    assert_eq!(samples["quorate_log_read_faults_total"], 2.0);
    let line = wait_for("the fault in the log", s(5), || {
        let text = fs::read_to_string(&stderr).expect("a log");
        let line = text.lines().find(|line| line.contains("is damaged"));
        line.map(str::to_owned)
    });
    assert!(
        line.contains("00000000000000000000.log is corrupt at byte"),
        "{line}"
    );
    assert!(line.contains("offset 41:"), "{line}");
    assert!(
        client
            .produce(&batch(b"it goes on"))
            .is_ok_and(|answer| answer.error == 0)
    );
    assert!(server.still_runs());
    server.stop();

    let arguments = [
        "log",
        "verify",
        "--json",
        "--progress",
        &log_dir.to_string_lossy(),
    ];
    let verified = quorate(&arguments, "", s(20));
    assert_eq!(verified.status.code(), Some(1));
    let json: Value = serde_json::from_str(&verified.stdout).expect("an object");
    assert_eq!(json["sound"], false);
    let file = json["fault"]["file"].as_str().expect("a file");
    assert!(file.ends_with("00000000000000000000.log"), "{file}");
    assert!(json["fault"]["position"].as_u64() > Some(400_000), "{json}");

    fs::write(&segment, sound).expect("a sound segment");
    let verified = quorate(&arguments, "", s(20));
    assert_eq!(verified.status.code(), Some(0), "{}", verified.stderr);
    let json: Value = serde_json::from_str(&verified.stdout).expect("an object");
    assert_eq!(json["sound"], true);
    assert_eq!(json["log"]["closed_cleanly"], true);
    assert!(verified.stderr.contains("(100 %)"), "{}", verified.stderr);
}
