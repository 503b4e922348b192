//! `quorate format` tries out how the disk is best flushed, and the node does as it found.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::lone::{Lone, Serving};
use common::{Finished, QUORATE, run, s};
use quorate::disk_io::FlushMethod;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn format(config: &Path, more: &[&str]) -> Finished {
    let mut command = Command::new(QUORATE);
    command.args(["format", "--config"]).arg(config).args(more);
    run(command, "", s(60))
}

fn append_line(path: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("a file");
    writeln!(file, "{line}").expect("a line");
}

#[test]
fn format_tries_the_methods_once_for_a_device_and_stores_the_table() {
    let lone = Lone::new();
    let config = lone.config("server.properties", &lone.data_dir(), 0);
    let said = format(&config, &[]).expect_success();
    let stored = fs::read(lone.data_dir().join("flush-method")).expect("a result");
    let choice: Value = serde_json::from_slice(&stored).expect("JSON");
    for method in FlushMethod::ALL.map(FlushMethod::name) {
        assert!(said.lines().any(|line| line.contains(method)), "{said}");
        let rows = choice["rows"].as_array().expect("rows");
        let row = rows
            .iter()
            .find(|row| row["method"] == method)
            .expect(method);
        assert!(row["groups"].as_u64() >= Some(16), "{row}");
        for time in ["idle_p50_us", "idle_p99_us", "busy_p50_us", "busy_p99_us"] {
            assert!(row[time].as_f64() > Some(0.0), "{row}");
        }
    }
    assert!(FlushMethod::from_name(choice["method"].as_str().unwrap()).is_some());
    let names = fs::read_dir(lone.data_dir()).expect("a directory");
    let left = names.filter(|name| {
        let name = name.as_ref().unwrap().file_name();
        name.to_string_lossy().contains("tmp")
    });
    assert_eq!(left.count(), 0, "the probe cleans up");

    // A second time: nothing is measured, nothing changes.
    let again = format(&config, &["--ignore-formatted"]).expect_success();
    assert!(!again.contains("idle"), "{again}");
    assert_eq!(
        fs::read(lone.data_dir().join("flush-method")).unwrap(),
        stored
    );
    // Unless the directory has come to another device.
    let moved = String::from_utf8(stored)
        .unwrap()
        .replace("\"device\": \"", "\"device\": \"9");
    fs::write(lone.data_dir().join("flush-method"), moved).unwrap();
    let anew = format(&config, &["--ignore-formatted"]).expect_success();
    assert!(anew.contains("idle p50"), "{anew}");
}

/// The lines of the log of a node with `lines` in its configuration, after some appends.
fn log_of_run(lone: &Lone, config: &Path) -> String {
    let log = lone.dir.path().join("log");
    let (address, file) = (
        format!("127.0.0.1:{}", lone.ports.base()),
        File::create(&log),
    );
    let log_to = Stdio::from(file.expect("a file"));
    let mut serving = Serving::start_prepared(config, &address, log_to, &|_| ());
    for _ in 0..5 {
        let mut append = Command::new(QUORATE);
        append.args(["append", "--bootstrap-server", &address]);
        run(append, "a\nb\nc\n", s(20)).expect_success();
    }
    serving.stop();
    fs::read_to_string(log).expect("a log")
}

#[test]
fn a_node_flushes_as_it_is_told() {
    for method in FlushMethod::ALL.map(FlushMethod::name) {
        for placement in ["fused", "split"] {
            let lone = Lone::new();
            let config = lone.config("server.properties", &lone.data_dir(), 0);
            append_line(&config, &format!("quorate.cores={placement}"));
            // Split by the configuration, fused by what is stored.
            if placement == "split" {
                append_line(&config, &format!("log.flush.method={method}"));
                format(&config, &["--flush-method", "parallel"]).expect_success();
            } else {
                format(&config, &["--flush-method", method]).expect_success();
            }
            // A LeaderChange record each time, and five times three.
            for expected_end in [16, 32] {
                let log = log_of_run(&lone, &config);
                let chosen = format!("flush_method={method}");
                assert!(log.contains(&chosen), "{chosen} is not in {log}");
                let end = stored_end(&lone);
                assert_eq!(end, expected_end, "{method}, {placement}");
            }
        }
    }
}

/// Where a whole, cleanly closed log ends.
fn stored_end(lone: &Lone) -> i64 {
    let dir = lone.data_dir().join("__cluster_metadata-0");
    let report = quorate_storage::verify_dir(&dir, &mut |_, _| ()).expect("a whole log");
    assert!(report.is_clean && report.torn.is_none(), "{report:?}");
    report.log_end.0
}

#[test]
fn a_stored_result_that_is_of_no_use_is_told_and_not_used() {
    let lone = Lone::new();
    let config = lone.formatted();
    let path = lone.data_dir().join("flush-method");
    for (content, told) in [
        ("{", "EOF while parsing"),
        (
            "{\"method\":\"thread\",\"device\":\"99:99\"}",
            "of device 99:99",
        ),
    ] {
        fs::write(&path, content).expect("a file");
        let log = log_of_run(&lone, &config);
        assert!(log.contains(told), "{told} is not in {log}");
        assert!(log.contains("flush_method=parallel"), "{log}");
    }
}
