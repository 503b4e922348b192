//! The floor with all its processes, for a moment.

#![allow(missing_docs)]

use serde_json::Value;
use std::process::{Command, Output};

/// Runs the floor on the build's disk (/tmp may be a tmpfs).
fn floor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate-bench"));
    command.args(["floor", "--json", "--seconds", "0.2"]);
    command
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn assert_measured(method: &str) {
    let output = floor(&["--method", method]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let us = |key: &str| report[key].as_f64().unwrap();
    assert!(us("p50_us") > 10.0, "no disk flushes in {report}");
    assert!(
        us("p50_us") <= us("p99_us") && us("p99_us") <= us("p999_us"),
        "{report}"
    );
    assert_eq!(report["method"], report["tried"][0]["method"]);
    assert_eq!(report["tried"].as_array().unwrap().len(), 1);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn blocking_members_commit() {
    assert_measured("blocking, sleep, cpu of client any");
}

#[test]
fn members_on_rings_commit() {
    assert_measured("ring, sleep, cpu of client any");
}

#[test]
fn directory_that_is_not_there_is_an_error() {
    let output = floor(&["--dir", "/nowhere", "--method", "any"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere: No such file"));
}
