//! A client's program under test, running beside the quorum.
//!
//! All of them are driven alike. `produce BOOTSTRAP TOPIC COUNT SETTINGS` appends `value-0`,
//! `value-1` and so on, five in about as many milliseconds, prints `acked VALUE OFFSET` for each
//! acknowledgement and ends when all have come. SETTINGS is `defaults`, or `idempotent` for a
//! client that by default is not. `consume BOOTSTRAP TOPIC` prints `OFFSET VALUE` for each record
//! from the first on and does not end. Everything else goes to standard error, together with the
//! client's debug log.

use crate::common::{s, scratch_dir, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// From its start to its last line; a leader is elected meanwhile, and clients back off.
const FINISH_LIMIT: Duration = s(120);
/// How much of a failed program's log is shown: lines, and characters of each.
const LOG_LINES_SHOWN: usize = 60;
const LOG_COLUMNS_SHOWN: usize = 240;

/// A running program. Dropped, it is killed with all that it started.
pub struct Program {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    dir: TempDir,
}

impl Program {
    /// Starts `command` with `arguments`.
    pub fn start(mut command: Command, arguments: &[&str]) -> Self {
        let dir = scratch_dir();
        let log = File::create(dir.path().join("log.txt")).expect("a file for the log");
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = Arc::default();
        let reader = collect(child.stdout.take().expect("piped"), Arc::clone(&lines));
        Self {
            child,
            lines,
            reader: Some(reader),
            dir,
        }
    }

    /// How many lines it has printed.
    pub fn line_count(&self) -> usize {
        self.lines.lock().expect("no panic").len()
    }

    /// Waits until it has printed `count` lines, and still runs.
    pub fn wait_for_lines(&mut self, count: usize) {
        wait_for(&format!("{count} lines"), FINISH_LIMIT, || {
            let status = self.child.try_wait().expect("a child to wait for");
            assert!(status.is_none(), "the program ended too early: {status:?}");
            (self.line_count() >= count).then_some(())
        });
    }

    /// Waits until it ends by itself, with success. What it printed, and its log.
    pub fn finish(mut self) -> (Vec<String>, String) {
        let status = wait_for("the program ends", FINISH_LIMIT, || {
            self.child.try_wait().expect("a child to wait for")
        });
        assert!(status.success(), "the program failed: {status}");
        self.into_output()
    }

    /// Ends it once it has printed a line that begins with `offset`. What it printed, and its log.
    pub fn stop_after(mut self, offset: i64) -> (Vec<String>, String) {
        let start = format!("{offset} ");
        wait_for(&format!("the record at {offset}"), FINISH_LIMIT, || {
            let status = self.child.try_wait().expect("a child to wait for");
            assert!(status.is_none(), "the consumer ended: {status:?}");
            let lines = self.lines.lock().expect("no panic");
            lines
                .last()
                .is_some_and(|line| line.starts_with(&start))
                .then_some(())
        });
        self.kill();
        self.into_output()
    }

    fn into_output(mut self) -> (Vec<String>, String) {
        // It ends with the output, which the program's end has closed.
        self.reader.take().expect("once").join().expect("a reader");
        let lines = std::mem::take(&mut *self.lines.lock().expect("no panic"));
        (lines, self.log())
    }

    fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log.txt")).expect("the log");
        String::from_utf8_lossy(&log).into_owned()
    }

    fn kill(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32).expect("positive");
        // Not waited for yet, so that its id is its own; the rest of the group may be gone.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
        if thread::panicking() {
            show_end(&self.log());
        }
    }
}

fn collect(stdout: ChildStdout, lines: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            lines.lock().expect("no panic").push(line);
        }
    })
}

fn show_end(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    eprintln!("--- the end of a client's log ({} lines)", lines.len());
    for line in &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..] {
        let cut: String = line.chars().take(LOG_COLUMNS_SHOWN).collect();
        eprintln!("{cut}");
    }
}
