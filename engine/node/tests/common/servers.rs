//! A quorum of `quorate server` processes with configurations of the test's own making: other
//! addresses, other users, other disks than `quorate dev` has.

use super::{Described, QUORATE, run, s, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// What a question may take, an election included.
const ANSWER_LIMIT: Duration = s(30);

/// One server: its configuration, and its process while it runs.
struct Server {
    config: PathBuf,
    child: Option<Child>,
}

/// Servers with ids from 1 on. Dropped, it kills them; if the test failed, it shows their logs.
pub struct Servers {
    dir: PathBuf,
    binary: PathBuf,
    /// First arguments of each command.
    first: Vec<String>,
    servers: Vec<Server>,
    /// Applied to each command, servers' and clients'.
    prepare: Box<dyn Fn(&mut Command)>,
    /// Applied to servers' commands alone.
    prepare_server: Box<dyn Fn(&mut Command)>,
    /// Client listeners, separated by commas.
    bootstrap: String,
}

impl Servers {
    /// No servers yet. Their files go to `dir`; `bootstrap` is where clients find them.
    pub fn new(dir: &Path, bootstrap: &str, prepare: impl Fn(&mut Command) + 'static) -> Self {
        Self {
            dir: dir.to_owned(),
            binary: QUORATE.into(),
            first: Vec::new(),
            servers: Vec::new(),
            prepare: Box::new(prepare),
            prepare_server: Box::new(|_| ()),
            bootstrap: bootstrap.to_owned(),
        }
    }

    /// Runs another file than the one that was built: a copy of it.
    pub fn run_from(&mut self, binary: PathBuf) {
        self.binary = binary;
    }

    /// Runs everything by `launcher`, which executes its arguments.
    pub fn run_by(&mut self, launcher: PathBuf) {
        self.binary = launcher;
        self.first = vec![QUORATE.to_owned()];
    }

    /// Applies `prepare` to the commands that start servers from now on.
    pub fn prepare_servers(&mut self, prepare: impl Fn(&mut Command) + 'static) {
        self.prepare_server = Box::new(prepare);
    }

    /// The data directory of server `id`.
    pub fn data_dir(&self, id: usize) -> PathBuf {
        self.dir.join(format!("data-{id}"))
    }

    /// Adds a server: `lines` and what every configuration needs. Without an admin listener, unless
    /// the lines have one.
    pub fn add(&mut self, voters: &str, lines: &str) {
        let id = self.servers.len() + 1;
        let config = self.dir.join(format!("server-{id}.properties"));
        let admin = match lines.contains("admin.listener=") {
            true => "",
            false => "admin.listener=none",
        };
        let text = format!(
            "node.id={id}\nprocess.roles=controller\ncontroller.listener.names=CONTROLLER\n\
             controller.quorum.voters={voters}\nlog.dirs={}\n{admin}\n{lines}\n",
            self.data_dir(id).display()
        );
        fs::write(&config, text).expect("a configuration");
        let mut format = self.command();
        format.args(["format", "--flush-method", "parallel"]);
        format.args(["--cluster-id", "hosts", "--config"]);
        format.arg(&config);
        run(format, "", s(20)).expect_success();
        let child = None;
        self.servers.push(Server { config, child });
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(&self.first);
        (self.prepare)(&mut command);
        command
    }

    /// A configuration file, to be changed before the next start.
    pub fn config(&self, id: usize) -> &Path {
        &self.servers[id - 1].config
    }

    /// What a server has logged so far.
    pub fn log(&self, id: usize) -> String {
        fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    fn log_path(&self, id: usize) -> PathBuf {
        self.dir.join(format!("log-{id}"))
    }

    /// Starts server `id`.
    pub fn start(&mut self, id: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(id))
            .expect("a log file");
        let mut command = self.command();
        (self.prepare_server)(&mut command);
        command.args(["server", "--config"]).arg(self.config(id));
        let child = command.stderr(log).spawn().expect("a server");
        self.servers[id - 1].child = Some(child);
    }

    /// Starts all.
    pub fn start_all(&mut self) {
        (1..=self.servers.len()).for_each(|id| self.start(id));
    }

    /// The process of server `id`.
    pub fn pid(&self, id: usize) -> u32 {
        let child = self.servers[id - 1].child.as_ref();
        child.expect("it was started").id()
    }

    /// Stops server `id` gracefully.
    pub fn stop(&mut self, id: usize) {
        let pid = Pid::from_raw(self.pid(id) as i32).expect("positive");
        kill_process(pid, Signal::TERM).expect("a child that was not waited for");
        let child = self.servers[id - 1].child.as_mut().expect("a child");
        let status = wait_for("a server stops", s(20), || {
            child.try_wait().expect("a child")
        });
        assert!(status.success(), "{status}: {}", self.log(id));
        self.servers[id - 1].child = None;
    }

    /// Kills server `id`.
    pub fn kill(&mut self, id: usize) {
        let mut child = self.servers[id - 1].child.take().expect("it was started");
        child.kill().expect("a child to kill");
        child.wait().expect("a child to wait for");
    }

    /// Runs a client's command with `input`.
    pub fn client(&self, arguments: &[&str], input: &str) -> super::Finished {
        let mut command = self.command();
        command.args(arguments);
        command.args(["--bootstrap-server", &self.bootstrap]);
        run(command, input, ANSWER_LIMIT)
    }

    /// What the quorum says, if it has a leader.
    pub fn try_describe(&self) -> Option<Described> {
        let finished = self.client(&["quorum", "describe", "--json"], "");
        let described = finished.status.success().then_some(finished.stdout)?;
        Described::parse(&described)
    }

    /// A leader of an epoch above `epoch` that has committed in it.
    pub fn leader_after(&self, epoch: i64) -> Described {
        wait_for("a leader", s(60), || {
            let described = self.try_describe()?;
            let committed = described.high_watermark > 0;
            (committed && described.leader_epoch > epoch).then_some(described)
        })
    }

    /// Appends `line` and waits until server `id` has it, as the leader knows.
    pub fn append_and_reach(&self, line: &str, id: usize) {
        let appended = self.client(&["append"], &format!("{line}\n"));
        appended.expect_success();
        let target = self.leader_after(0).high_watermark;
        wait_for(&format!("server {id} has {line:?}"), s(40), || {
            let described = self.try_describe()?;
            let mut voters = described.voters.iter();
            let voter = voters.find(|voter| voter.id == id as i32)?;
            (voter.log_end_offset >= target).then_some(())
        });
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            if let Some(child) = &mut server.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for id in 1..=self.servers.len() {
                let log = self.log(id);
                let last: Vec<_> = log.lines().rev().take(40).collect();
                eprintln!(
                    "--- log of server {id}, newest first ---\n{}",
                    last.join("\n")
                );
            }
        }
    }
}
