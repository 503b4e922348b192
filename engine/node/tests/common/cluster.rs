//! A quorum of real processes, as `quorate dev` runs it, in a directory and ports of its own.

use super::command::{Running, quorate};
use super::log_files::assert_same_logs;
use super::machine::{MachineLock, PortBlock, scratch_dir};
use super::{Deadline, QUORATE, TOPIC, pause, s, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Election of the first leader and everything before it.
const START_LIMIT: Duration = s(40);
/// An answer to a question that any node can answer.
const ANSWER_LIMIT: Duration = s(20);
/// How much of a node's log a failed test shows.
const LOG_LINES_SHOWN: usize = 80;

/// One voter.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id, from 1.
    pub id: i32,
    /// Its client listener, `host:port`.
    pub address: String,
    /// HOST:PORT of its admin listener.
    pub admin: String,
    /// Its data directory.
    pub dir: PathBuf,
    /// Its process; after a restart another one.
    pub process: Running,
}

impl Node {
    /// Its controller listener, `host:port`: 100 above the client's.
    pub fn peer_address(&self) -> String {
        let (host, port) = self.address.rsplit_once(':').expect("a port");
        let port: u16 = port.parse().expect("a port");
        format!("{host}:{}", port + 100)
    }

    /// The directory of segment files.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join(format!("{TOPIC}-0"))
    }
}

/// A voter as the leader sees it.
#[derive(Clone, Copy, Debug)]
pub struct DescribedVoter {
    /// Its id.
    pub id: i32,
    /// Its end, as far as the leader knows, -1 if it does not.
    pub log_end_offset: i64,
}

/// What `quorate quorum describe --json` says.
#[derive(Clone, Debug)]
pub struct Described {
    /// The leader's id.
    pub leader_id: i32,
    /// Its epoch.
    pub leader_epoch: i64,
    /// First offset not yet committed.
    pub high_watermark: i64,
    /// All voters.
    pub voters: Vec<DescribedVoter>,
}

impl Described {
    pub(super) fn parse(json: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(json).ok()?;
        let voter = |voter: &Value| {
            let id = i32::try_from(voter["id"].as_i64()?).ok()?;
            let log_end_offset = voter["log_end_offset"].as_i64()?;
            Some(DescribedVoter { id, log_end_offset })
        };
        Some(Self {
            leader_id: i32::try_from(value["leader_id"].as_i64()?).ok()?,
            leader_epoch: value["leader_epoch"].as_i64()?,
            high_watermark: value["high_watermark"].as_i64()?,
            voters: value["voters"]
                .as_array()?
                .iter()
                .map(voter)
                .collect::<Option<_>>()?,
        })
    }
}

/// A running quorum. Dropped, it ends its processes; if the test failed, it shows their logs.
pub struct Cluster {
    voters: usize,
    /// `quorate dev`, unless it was killed.
    supervisor: Option<Child>,
    /// `quorate dev --only`, one for each voter started again.
    restarted: Vec<(i32, Child)>,
    nodes: Vec<Node>,
    /// What is done to each command that starts voters.
    prepare: fn(&mut Command),
    dir: TempDir,
    ports: PortBlock,
    _machine: MachineLock,
}

impl Cluster {
    /// Starts `voters` voters and waits for their first leader; before that, for other tests'
    /// quorums to end.
    pub fn start(voters: usize) -> Self {
        Self::start_prepared(voters, |_| ())
    }

    /// The same, with `prepare` applied to each command that starts voters.
    pub fn start_prepared(voters: usize, prepare: fn(&mut Command)) -> Self {
        let machine = MachineLock::acquire();
        let mut cluster = Self {
            voters,
            supervisor: None,
            restarted: Vec::new(),
            nodes: Vec::new(),
            prepare,
            dir: scratch_dir(),
            ports: PortBlock::acquire(),
            _machine: machine,
        };
        cluster.run_dev();
        cluster
    }

    /// Runs `quorate dev` in the quorum's directory and takes the addresses from its JSON line.
    fn run_dev(&mut self) {
        let errors = File::options()
            .create(true)
            .append(true)
            .open(self.dev_log());
        let mut command = Command::new(QUORATE);
        (self.prepare)(&mut command);
        let mut child = command
            .args(["dev", "--json", "--voters", &self.voters.to_string()])
            .args(["--base-port", &self.ports.base().to_string(), "--dir"])
            .arg(self.data_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.expect("a file for errors"))
            .spawn()
            .expect("quorate dev");
        let stdout = child.stdout.take().expect("piped");
        self.supervisor = Some(child);
        let line = first_line(stdout, START_LIMIT).expect("the JSON line of quorate dev");
        self.nodes = parse_nodes(&line).unwrap_or_else(|| panic!("unexpected: {line}"));
        assert_eq!(self.nodes.len(), self.voters, "{line}");
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn dev_log(&self) -> PathBuf {
        self.dir.path().join("dev-stderr.txt")
    }

    /// All voters.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The voter with this id.
    pub fn node(&self, id: i32) -> &Node {
        self.nodes
            .iter()
            .find(|node| node.id == id)
            .expect("a voter of this id")
    }

    fn node_mut(&mut self, id: i32) -> &mut Node {
        self.nodes
            .iter_mut()
            .find(|node| node.id == id)
            .expect("a voter of this id")
    }

    /// All client listeners, as clients take them.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| &node.address[..]).collect();
        addresses.join(",")
    }

    /// What the quorum says about itself, if it has a leader that answers.
    pub fn try_describe(&self) -> Option<Described> {
        let bootstrap = self.bootstrap();
        let arguments = [
            "quorum",
            "describe",
            "--json",
            "--bootstrap-server",
            &bootstrap,
        ];
        let finished = quorate(&arguments, "", ANSWER_LIMIT);
        finished
            .status
            .success()
            .then(|| Described::parse(&finished.stdout))?
    }

    /// The same, once there is a leader.
    pub fn describe(&self) -> Described {
        wait_for("the quorum describes itself", START_LIMIT, || {
            self.try_describe()
        })
    }

    /// The leader's id, once there is one.
    pub fn leader(&self) -> i32 {
        self.describe().leader_id
    }

    /// A leader of an epoch above `epoch`, once there is one that has committed in it.
    pub fn leader_after(&self, epoch: i64) -> Described {
        wait_for(
            &format!("a leader after epoch {epoch}"),
            START_LIMIT,
            || {
                self.try_describe()
                    .filter(|now| now.leader_epoch > epoch && now.high_watermark > 0)
            },
        )
    }

    /// Kills a voter as a crash would, and waits until it is gone.
    pub fn kill(&mut self, id: i32) {
        let process = self.node(id).process;
        assert!(
            process.signal(Signal::KILL),
            "voter {id} had ended by itself"
        );
        self.wait_until_gone(id);
    }

    /// Kills the leader when its followers have stood still for `alone`: what it acknowledged
    /// without them would be gone, and what it sent them before is theirs without a client knowing.
    pub fn kill_while_alone(&mut self, leader: i32, alone: Duration) {
        let nodes = self.nodes.iter().filter(|node| node.id != leader);
        let followers: Vec<Running> = nodes.map(|node| node.process).collect();
        for follower in &followers {
            assert!(follower.signal(Signal::STOP), "a follower ended by itself");
        }
        pause(alone);
        self.kill(leader);
        for follower in &followers {
            assert!(follower.signal(Signal::CONT), "a stopped follower ended");
        }
    }

    /// Kills all voters at one moment, as a power cut would, `quorate dev` as well.
    pub fn power_cut(&mut self) {
        for node in &self.nodes {
            assert!(
                node.process.signal(Signal::KILL),
                "voter {} had ended by itself",
                node.id
            );
        }
        if let Some(mut supervisor) = self.supervisor.take() {
            supervisor.kill().expect("quorate dev to kill");
            supervisor.wait().expect("quorate dev to wait for");
        }
        for id in 1..=self.voters as i32 {
            self.wait_until_gone(id);
        }
    }

    /// Starts everything again after a power cut.
    pub fn power_on(&mut self) {
        assert!(self.supervisor.is_none(), "the power is on");
        self.run_dev();
    }

    /// Asks a voter to stop, without waiting for it.
    pub fn begin_stop(&self, id: i32) {
        assert!(
            self.node(id).process.signal(Signal::TERM),
            "voter {id} had ended by itself"
        );
    }

    /// Waits until the process of a voter has ended; its status, if it is our own child.
    pub fn wait_until_gone(&mut self, id: i32) -> Option<ExitStatus> {
        let process = self.node(id).process;
        let what = format!("the process of voter {id} ends");
        wait_for(&what, s(15), || (!process.is_running()).then_some(()));
        let ours = self
            .restarted
            .iter()
            .position(|(of, child)| *of == id && child.id() as i32 == process.pid())?;
        let (_, mut child) = self.restarted.remove(ours);
        Some(child.wait().expect("a child to wait for"))
    }

    /// Starts a voter again whose process has ended; does not wait for it to serve.
    pub fn restart(&mut self, id: i32) {
        assert!(!self.node(id).process.is_running(), "voter {id} still runs");
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.node(id).dir.join("log.txt"));
        let log = log.expect("the log of a voter");
        let mut command = Command::new(QUORATE);
        (self.prepare)(&mut command);
        let child = command
            .args(["dev", "--only", &id.to_string(), "--dir"])
            .arg(self.data_dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("quorate dev --only");
        self.node_mut(id).process = Running::new(child.id() as i32);
        self.restarted.push((id, child));
    }

    /// Waits until a voter has, as the leader knows, everything committed by now.
    pub fn wait_until_caught_up(&self, id: i32) {
        let target = self.describe().high_watermark;
        wait_for(&format!("voter {id} catches up to {target}"), s(30), || {
            let now = self.try_describe()?;
            let voter = now.voters.iter().find(|voter| voter.id == id)?;
            (voter.log_end_offset >= target).then_some(())
        });
    }

    /// Stops all gracefully, waits until they are gone, and compares their logs below `end_offset`.
    pub fn stop_and_compare(&mut self, end_offset: i64) {
        for node in &self.nodes {
            node.process.signal(Signal::TERM);
        }
        for id in 1..=self.voters as i32 {
            let status = self.wait_until_gone(id);
            assert!(
                status.is_none_or(|status| status.success()),
                "voter {id}: {status:?}"
            );
        }
        assert_same_logs(&self.nodes, end_offset);
    }

    /// Stops `quorate dev` by SIGTERM, and with it all voters it started. How it ended.
    pub fn stop_dev(&mut self) -> ExitStatus {
        let mut supervisor = self.supervisor.take().expect("a supervisor");
        Running::new(supervisor.id() as i32).signal(Signal::TERM);
        wait_for("quorate dev stops", s(15), || {
            supervisor.try_wait().expect("a child")
        })
    }

    fn end_all(&mut self) {
        let restarted = self.restarted.iter_mut().map(|(_, child)| child);
        for child in restarted.chain(&mut self.supervisor) {
            // Voters of `quorate dev` die with it; killed ones are gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in &self.nodes {
            node.process.signal(Signal::KILL);
        }
        let deadline = Deadline::after(s(10));
        while deadline.is_ahead() && self.nodes.iter().any(|node| node.process.is_running()) {
            pause(Duration::from_millis(5));
        }
    }

    fn show_logs(&self) {
        show_end(&self.dev_log());
        for id in 1..=self.voters {
            show_end(&self.data_dir().join(format!("voter-{id}/log.txt")));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_all();
        if thread::panicking() {
            self.show_logs();
            self.dir
                .disable_cleanup(std::env::var_os("QUORATE_TEST_KEEP").is_some());
        }
    }
}

/// The first line that comes, and everything after it to nowhere.
fn first_line(stdout: ChildStdout, limit: Duration) -> Option<String> {
    let (line_out, line_in) = mpsc::channel();
    thread::spawn(move || {
        // The test may have given up waiting.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = line_out.send(line);
        }
    });
    line_in.recv_timeout(limit).ok()
}

fn parse_nodes(json: &str) -> Option<Vec<Node>> {
    let value: Value = serde_json::from_str(json).ok()?;
    value["cluster_id"].as_str().filter(|id| !id.is_empty())?;
    value["leader_id"].as_i64().filter(|id| *id > 0)?;
    let node = |voter: &Value| {
        voter["peer_address"].as_str()?;
        Some(Node {
            id: i32::try_from(voter["id"].as_i64()?).ok()?,
            address: voter["address"].as_str()?.to_owned(),
            admin: admin_of(voter["admin_address"].as_str()?)?,
            dir: PathBuf::from(voter["dir"].as_str()?),
            process: Running::new(i32::try_from(voter["pid"].as_i64()?).ok()?),
        })
    };
    value["voters"].as_array()?.iter().map(node).collect()
}

/// HOST:PORT of a URL without a path.
fn admin_of(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    Some(rest.trim_end_matches('/').to_owned())
}

fn show_end(path: &Path) {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
    eprintln!("--- the end of {} ({} lines)", path.display(), lines.len());
    for line in shown {
        eprintln!("{line}");
    }
}
