//! A node whose disk fails while it runs stops with an exit code of its own and one clear line.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Lone, QUORATE, TOPIC, quorate, s, server_command, wait_for};
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

/// The directory goes away under the node: at the next segment there is nowhere to write.
#[test]
fn a_node_whose_directory_is_removed_stops_with_exit_code_3() {
    let lone = Lone::new();
    let config = lone.formatted();
    let small = "internal.metadata.log.segment.bytes=65536\n";
    let text = fs::read_to_string(&config).expect("a configuration") + small;
    fs::write(&config, text).expect("a configuration");
    let mut child = server_command(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("a server");
    let address = format!("127.0.0.1:{}", lone.ports.base());
    let arguments = ["append", "--bootstrap-server", &address];
    quorate(&arguments, "one\n", s(30)).expect_success();

    fs::remove_dir_all(lone.data_dir().join(format!("{TOPIC}-0"))).expect("a log to remove");
    // It tries again until somebody leads, so it is not waited for.
    let lines = format!("{}\n", "x".repeat(1000)).repeat(200);
    let file = lone.dir.path().join("lines");
    fs::write(&file, lines).expect("a file");
    let mut append = Command::new(QUORATE)
        .args(arguments)
        .stdin(File::open(&file).expect("a file"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client");
    let status = wait_for("the node to stop", s(20), || {
        child.try_wait().expect("a child")
    });
    append.kill().expect("a child to kill");
    append.wait().expect("a child");
    let mut told = String::new();
    let stderr = child.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut told).expect("what it said");
    assert_eq!(status.code(), Some(3), "{told}");
    let last = told.lines().last().expect("a line");
    assert!(last.starts_with("quorate: the disk failed"), "{told}");
    assert!(last.contains(&*lone.data_dir().to_string_lossy()), "{told}");
}
