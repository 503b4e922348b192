//! Three voters of our own: `quorate dev` in a directory that is removed afterwards.

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a graceful end may take.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A voter's port for peers is this much above its port for clients.
const PEER_PORT_DISTANCE: u16 = 100;

/// And its port for the admin listener.
const ADMIN_PORT_DISTANCE: u16 = 150;

const VOTERS: u16 = 3;

/// What `quorate dev --json` says, as far as it matters here.
#[derive(Deserialize)]
struct Started {
    voters: Vec<Voter>,
}

#[derive(Deserialize)]
struct Voter {
    address: String,
}

/// A running quorum. Ends, ungracefully if need be, with its value.
pub(crate) struct Cluster {
    dev: Child,
    directory: PathBuf,
    /// HOST:PORT of each voter's client listener.
    pub(crate) servers: Vec<String>,
}

impl Cluster {
    /// Starts three voters with their data below `parent`, and waits until they have a leader.
    pub(crate) fn start(program: Option<&Path>, parent: &Path) -> Result<Cluster, Box<dyn Error>> {
        let program = program.map_or_else(own_quorate, |path| Ok(path.to_owned()))?;
        let directory = parent.join(format!("quorate-bench-{}", std::process::id()));
        eprintln!(
            "starting three voters of {} in {}",
            program.display(),
            directory.display()
        );
        let mut command = Command::new(&program);
        command.args([
            "dev",
            "--json",
            "--base-port",
            &free_base_port()?.to_string(),
            "--dir",
        ]);
        command
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let dev = command
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut cluster = Cluster {
            dev,
            directory,
            servers: Vec::new(),
        };
        cluster.servers = cluster.wait_for_start()?;
        Ok(cluster)
    }

    fn wait_for_start(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        let stdout = self
            .dev
            .stdout
            .take()
            .ok_or("its output was taken already")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            let status = self.dev.wait()?;
            return Err(format!("quorate dev ended before it had a leader ({status})").into());
        }
        let started: Started = serde_json::from_str(&line)?;
        Ok(started
            .voters
            .into_iter()
            .map(|voter| voter.address)
            .collect())
    }

    /// Stops all voters gracefully.
    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        kill_process(self.pid(), Signal::TERM)?;
        let end = Instant::now() + STOP_PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.dev.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(format!("quorate dev ended with {status}").into()),
                };
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("quorate dev did not end within {STOP_PATIENCE:?} of SIGTERM").into())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.dev)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Ok(None) = self.dev.try_wait() {
            // Not by SIGKILL: the voters are its children, and it is the one that ends them.
            let _ = kill_process(self.pid(), Signal::TERM);
            let _ = self.dev.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The program beside this one. Under cargo it is built first, so that it is not an old one.
fn own_quorate() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let directory = own.parent().ok_or("this program is in no directory")?;
    let program = directory.join("quorate");
    if let Some(cargo) = std::env::var_os("CARGO") {
        build_quorate(Path::new(&cargo), directory)?;
    }
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{} is not there; cargo build --release", program.display()).into()),
    }
}

/// Builds into the directory that this program was built into: `TARGET/PROFILE`.
fn build_quorate(cargo: &Path, directory: &Path) -> Result<(), Box<dyn Error>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--package",
        "quorate",
        "--bin",
        "quorate",
    ]);
    command.arg("--manifest-path").arg(manifest);
    if let Some(target) = directory.parent() {
        command.arg("--target-dir").arg(target);
    }
    if directory.ends_with("release") {
        command.arg("--release");
    }
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("building quorate failed".into())
    }
}

/// A base port with all the ports free that voters on it take.
fn free_base_port() -> Result<u16, Box<dyn Error>> {
    let first = 20_000 + (std::process::id() % 500) as u16 * 20;
    let mut candidates = (first..32_000).step_by(20);
    let free = candidates.find(|base| {
        let kinds = [0, PEER_PORT_DISTANCE, ADMIN_PORT_DISTANCE].into_iter();
        kinds
            .flat_map(|distance| base + distance..base + distance + VOTERS)
            .all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
    });
    free.ok_or_else(|| "no free ports between 20000 and 32000".into())
}
