//! One voter on its own, for what needs no quorum: a configuration file, a data directory, ports.

use super::{Finished, PortBlock, QUORATE, Running, run, s, scratch_dir, wait_for};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A refusal takes no longer.
pub const REFUSAL_LIMIT: Duration = s(10);

/// # Panics
/// Unless the command failed with exit code 1 and one line, which has all of `words`.
pub fn assert_refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.status.code(), Some(1), "{finished:?}");
    let told: Vec<&str> = finished
        .stderr
        .lines()
        .filter(|line| line.starts_with("quorate: "))
        .collect();
    assert_eq!(told.len(), 1, "{finished:?}");
    assert_eq!(
        finished.stderr.lines().last(),
        Some(told[0]),
        "{finished:?}"
    );
    for word in words {
        assert!(told[0].contains(word), "{word:?} is not in {:?}", told[0]);
    }
    assert_eq!(finished.stdout, "");
}

/// A voter on its own: a configuration file, a data directory, ports.
pub struct Lone {
    /// For what the test needs beside the data.
    pub dir: TempDir,
    /// Its clients' ports; those of peers are 100 above, those of the admin listener 150.
    pub ports: PortBlock,
}

impl Lone {
    pub fn new() -> Self {
        Self {
            dir: scratch_dir(),
            ports: PortBlock::acquire(),
        }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes a configuration `name` with client port base + `shift`.
    pub fn config(&self, name: &str, data_dir: &Path, shift: u16) -> PathBuf {
        let client = self.ports.base() + shift;
        let (peer, admin) = (client + 100, client + 150);
        let text = format!(
            "node.id=1\nprocess.roles=controller\n\
             listeners=CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{peer}\n\
             controller.listener.names=CONTROLLER\n\
             controller.quorum.voters=1@127.0.0.1:{peer}\nlog.dirs={}\n\
             admin.listener=127.0.0.1:{admin}\n",
            data_dir.display()
        );
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a configuration file");
        path
    }

    /// A configuration whose data directory is formatted.
    pub fn formatted(&self) -> PathBuf {
        let config = self.config("server.properties", &self.data_dir(), 0);
        format(&config, &[]).expect_success();
        config
    }
}

/// Runs `quorate format`, without the two seconds in which it tries out flush methods.
pub fn format(config: &Path, more: &[&str]) -> Finished {
    let mut command = Command::new(QUORATE);
    command.args(["format", "--flush-method", "parallel", "--config"]);
    command.arg(config).args(more);
    run(command, "", REFUSAL_LIMIT)
}

/// `quorate server`, to be run.
pub fn server_command(config: &Path) -> Command {
    let mut command = Command::new(QUORATE);
    command.args(["server", "--config"]).arg(config);
    command
}

/// Runs `quorate server`, which must end by itself.
pub fn server(config: &Path) -> Finished {
    run(server_command(config), "", REFUSAL_LIMIT)
}

/// A server that is killed when dropped.
pub struct Serving(Child);

impl Serving {
    /// Starts one and waits until it leads its quorum of one.
    pub fn start(config: &Path, client_port: u16) -> Self {
        let address = format!("127.0.0.1:{client_port}");
        Self::start_prepared(config, &address, Stdio::null(), &|_| ())
    }

    /// The same with a client's address of any kind. Its log goes to `log`; `prepare` is applied to
    /// the server and to the client that asks it.
    pub fn start_prepared(
        config: &Path,
        address: &str,
        log: Stdio,
        prepare: &dyn Fn(&mut Command),
    ) -> Self {
        let mut command = server_command(config);
        prepare(&mut command);
        let child = command.stderr(log).stdin(Stdio::null()).spawn();
        let serving = Self(child.expect("a server"));
        wait_for("a quorum of one", s(20), || {
            let mut client = Command::new(QUORATE);
            prepare(&mut client);
            client.args(["quorum", "describe", "--bootstrap-server", address]);
            run(client, "", REFUSAL_LIMIT)
                .status
                .success()
                .then_some(())
        });
        serving
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn still_runs(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }

    /// Stops it with SIGTERM and waits for its end.
    pub fn stop(&mut self) {
        let pid = i32::try_from(self.0.id()).expect("an id");
        assert!(Running::new(pid).signal(Signal::TERM), "it runs");
        wait_for("a graceful stop", s(20), || {
            self.0.try_wait().expect("a child")
        });
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Names and contents of all files in a directory of a node that does not run.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}
