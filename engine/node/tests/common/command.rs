//! Running the program: to its end within a limit, or in the background until it is told to stop.

use super::{Deadline, pause};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program under test.
pub const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");

/// What a finished command left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Finished {
    /// Its standard output.
    ///
    /// # Panics
    /// If it failed.
    pub fn expect_success(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }
}

/// Runs `quorate` with `arguments` and `input` on its standard input to its end.
///
/// # Panics
/// If it is not done within `limit`; it is killed then.
pub fn quorate<A: AsRef<OsStr>>(arguments: &[A], input: &str, limit: Duration) -> Finished {
    let mut command = Command::new(QUORATE);
    command.args(arguments);
    run(command, input, limit)
}

/// The same for a command prepared by the caller.
///
/// # Panics
/// See [`quorate`].
pub fn run(mut command: Command, input: &str, limit: Duration) -> Finished {
    let start = Instant::now();
    let deadline = Deadline::after(limit);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let stdout = drain(child.stdout.take().expect("piped"));
    let stderr = drain(child.stderr.take().expect("piped"));
    feed(&mut child, input.to_owned());
    while deadline.is_ahead() {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return Finished {
                status,
                stdout: stdout.join().expect("a reader"),
                stderr: stderr.join().expect("a reader"),
                took: start.elapsed(),
            };
        }
        pause(Duration::from_millis(2));
    }
    child.kill().expect("a child to kill");
    let (stdout, stderr) = (stdout.join(), stderr.join());
    panic!("{command:?} is not done after {limit:?}: {stdout:?} {stderr:?}");
}

fn drain(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        from.read_to_end(&mut text).expect("output to read");
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// On its own thread, since the command may not read before somebody reads what it prints.
fn feed(child: &mut Child, input: String) {
    let mut stdin = child.stdin.take().expect("piped");
    // It may well end without having read everything.
    thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
}

/// A process to signal: our own child, or a child of our `quorate dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pid: i32,
}

impl Running {
    /// The process with this id.
    pub fn new(pid: i32) -> Self {
        assert!(pid > 1, "{pid} is none of ours");
        Self { pid }
    }

    /// Its id.
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// Whether it still runs. A zombie without other threads does not: it has closed everything.
    pub fn is_running(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The state follows the command, which is in parentheses and may contain any of them.
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count);
        match state {
            None | Some('X') => false,
            Some('Z') => threads > 1,
            Some(_) => true,
        }
    }

    /// Whether it runs the program under test, and not something that got the same id later.
    fn is_ours(self) -> bool {
        let program = fs::canonicalize(QUORATE).expect("the program under test");
        let path = fs::read_link(format!("/proc/{}/exe", self.pid));
        // Followed by " (deleted)" if it was built anew since.
        path.is_ok_and(|path| {
            path.to_string_lossy()
                .starts_with(&*program.to_string_lossy())
        })
    }

    /// Sends `signal` if it runs. Whether it did.
    pub fn signal(self, signal: Signal) -> bool {
        let pid = Pid::from_raw(self.pid).expect("positive");
        self.is_running() && self.is_ours() && kill_process(pid, signal).is_ok()
    }
}
