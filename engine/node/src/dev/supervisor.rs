//! The loop of `quorate dev`: what happens to the voters, what is told, how it all ends.

use super::layout::{Layout, VoterPlan};
use super::screen::Screen;
use super::status::{self, QuorumStatus};
use super::table::{self, Gone, VoterRow};
use super::voter::{VoterProcess, describe_end};
use super::{DevError, DevOptions};
use quorate_raft::{Epoch, NodeId};
use rustix::process::Signal;
use serde::Serialize;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// With `--json` a script waits for the line: a leader that is not there by then never comes.
const LEADER_WAIT: Duration = Duration::from_secs(60);
/// What a voter gets to stop gracefully.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// What the supervisor reacts to.
pub(super) enum Event {
    /// A signal to this process.
    Signal(i32),
    /// What the quorum said; `None` if no voter says that it leads.
    Status(Option<QuorumStatus>),
}

/// The one line of `--json`.
#[derive(Serialize)]
struct Ready<'a> {
    cluster_id: &'a str,
    leader_id: NodeId,
    voters: Vec<ReadyVoter>,
}

#[derive(Serialize)]
struct ReadyVoter {
    id: NodeId,
    address: String,
    peer_address: String,
    /// The URL of its page; null if it has none.
    admin_address: Option<String>,
    pid: u32,
    dir: PathBuf,
}

/// The voters' parent.
pub(super) struct Supervisor {
    dir: PathBuf,
    cluster_id: String,
    voters: Vec<VoterProcess>,
    rows: Vec<VoterRow>,
    json: bool,
    screen: Screen<io::Stdout>,
    events: Receiver<Event>,
    /// Ends the asking when dropped.
    _asking: Sender<()>,
    status: Option<QuorumStatus>,
    /// The last leader that was told of, and its epoch.
    told: Option<(NodeId, Epoch)>,
}

impl Supervisor {
    /// Starts all voters, and the asking.
    pub(super) fn start(layout: &Layout, options: &DevOptions) -> Result<Self, DevError> {
        let (sender, events) = channel();
        forward_signals(sender.clone()).map_err(DevError::io("handle signals of", &layout.dir))?;
        let program = std::env::current_exe().map_err(DevError::io("find", "this program"))?;
        let mut voters = Vec::new();
        for plan in &layout.voters {
            // If one cannot be started, those before it end with this process.
            voters.push(VoterProcess::start(
                &program,
                plan.clone(),
                options.logging,
            )?);
        }
        let asked = layout.voters.iter().filter_map(|voter| {
            let address = voter.address()?.clone();
            Some((voter.id, address))
        });
        let topic = layout.voters[0].config.topic_name.clone();
        let (asking, stop) = channel();
        status::start(asked.collect(), topic, sender, stop)
            .map_err(DevError::io("start a thread for", &layout.dir))?;
        Ok(Self {
            dir: layout.dir.clone(),
            cluster_id: layout.cluster_id.clone(),
            rows: layout.voters.iter().map(row).collect(),
            voters,
            json: options.json,
            screen: Screen::stdout(),
            events,
            _asking: asking,
            status: None,
            told: None,
        })
    }

    /// Runs until a signal says stop.
    pub(super) fn run(mut self) -> Result<(), DevError> {
        let outcome = self.watch();
        self.stop();
        outcome
    }

    fn watch(&mut self) -> Result<(), DevError> {
        self.greet()?;
        let deadline = now() + LEADER_WAIT;
        loop {
            let patience = deadline.saturating_duration_since(now());
            if self.json && self.told.is_none() && patience.is_zero() {
                return Err(DevError::NoLeader {
                    seconds: LEADER_WAIT.as_secs(),
                    dir: self.dir.clone(),
                });
            }
            // The asking thread sends several events a second, so this does not wait long.
            match self.events.recv() {
                Ok(Event::Signal(SIGCHLD)) => self.on_child()?,
                Ok(Event::Signal(_)) | Err(_) => return Ok(()),
                Ok(Event::Status(status)) => self.on_status(status)?,
            }
        }
    }

    fn greet(&mut self) -> Result<(), DevError> {
        let greeting = format!(
            "{} voters in {}; each has its log in voter-*/log.txt there. Ctrl-C stops all of them.",
            self.voters.len(),
            self.dir.display()
        );
        self.say(&greeting)?;
        if self.screen.is_terminal() {
            return self.show();
        }
        let row = |row: &VoterRow| {
            format!(
                "voter {}: clients {}, peers {}, page {}",
                row.id, row.address, row.peer_address, row.page
            )
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        rows.iter().try_for_each(|line| self.say(line))
    }

    fn on_status(&mut self, status: Option<QuorumStatus>) -> Result<(), DevError> {
        self.status = status;
        let leader = self.status.as_ref().map(|s| (s.leader_id, s.leader_epoch));
        if let Some((leader_id, epoch)) = leader.filter(|_| self.told != leader) {
            if self.json && self.told.is_none() {
                self.tell_ready(leader_id)?;
            } else if !self.screen.is_terminal() {
                self.say(&format!("voter {leader_id} leads epoch {epoch}"))?;
            }
            self.told = leader;
        }
        self.show()
    }

    fn tell_ready(&mut self, leader_id: NodeId) -> Result<(), DevError> {
        let voter = |(voter, row): (&VoterProcess, &VoterRow)| ReadyVoter {
            id: row.id,
            address: row.address.clone(),
            peer_address: row.peer_address.clone(),
            admin_address: voter.plan.page_address(),
            pid: voter.pid(),
            dir: voter.plan.dir.clone(),
        };
        let ready = Ready {
            cluster_id: &self.cluster_id,
            leader_id,
            voters: self.voters.iter().zip(&self.rows).map(voter).collect(),
        };
        let line = serde_json::to_string(&ready).map_err(|error| DevError::Output(error.into()))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(DevError::Output)
    }

    /// Notes which voters ended.
    fn on_child(&mut self) -> Result<(), DevError> {
        for at in 0..self.voters.len() {
            if let Some(status) = self.voters[at].poll_end() {
                self.on_end(at, status)?;
            }
        }
        if self.voters.iter().any(VoterProcess::is_running) {
            return self.show();
        }
        let dir = self.dir.clone();
        Err(DevError::AllGone { dir })
    }

    fn on_end(&mut self, at: usize, status: ExitStatus) -> Result<(), DevError> {
        let voter = &self.voters[at];
        let id = voter.plan.id;
        let mut how = describe_end(status);
        let words = voter.last_words().filter(|_| status.code() == Some(1));
        // Killed by somebody is no failure to start.
        if self.told.is_none() && status.code().is_some() {
            let log = voter.plan.log_path();
            let reason = words.unwrap_or(how);
            return Err(DevError::DidNotStart { id, reason, log });
        }
        if let Some(words) = words {
            how = format!("{how}: {words}");
        }
        let told = format!(
            "voter {id} is gone ({how}). To start it again: quorate dev --dir {} --only {id}",
            self.dir.display()
        );
        let at_ms = unix_ms();
        self.rows[at].gone = Some(Gone { how, at_ms });
        if self.status.as_ref().is_some_and(|s| s.leader_id == id) {
            self.status = None;
        }
        self.warn(&told)
    }

    /// Asks all voters to stop, waits, and kills what is left. That nobody can be told of it is no
    /// reason to leave them running.
    fn stop(&mut self) {
        let waiting = self.running();
        if waiting.is_empty() {
            return;
        }
        let _ = self.say(&format!("stopping voters {}", waiting.join(", ")));
        self.signal_all(Signal::TERM);
        let deadline = now() + STOP_WAIT;
        while !self.running().is_empty() {
            let patience = deadline.saturating_duration_since(now());
            match self.events.recv_timeout(patience) {
                Ok(Event::Signal(SIGCHLD)) => self.reap(),
                Ok(Event::Status(_)) if !patience.is_zero() => {}
                // A second Ctrl-C, or out of patience.
                _ => return self.kill(),
            }
        }
        let _ = self.say("all voters stopped");
    }

    fn kill(&mut self) {
        let killed = self.running();
        self.signal_all(Signal::KILL);
        while !self.running().is_empty() {
            // SIGKILL cannot be ignored: an event comes for each.
            match self.events.recv() {
                Ok(_) => self.reap(),
                Err(_) => break,
            }
        }
        let killed = killed.join(", ");
        let _ = self.warn(&format!(
            "voters {killed} had not stopped yet and were killed"
        ));
    }

    fn running(&self) -> Vec<String> {
        let running = self.voters.iter().filter(|voter| voter.is_running());
        running.map(|voter| voter.plan.id.to_string()).collect()
    }

    fn signal_all(&self, signal: Signal) {
        self.voters.iter().for_each(|voter| voter.signal(signal));
    }

    fn reap(&mut self) {
        for voter in &mut self.voters {
            voter.poll_end();
        }
    }

    /// A line for people. A script is not told.
    fn say(&mut self, line: &str) -> Result<(), DevError> {
        if self.json {
            return Ok(());
        }
        self.screen.say(line).map_err(DevError::Output)
    }

    /// A line that matters to scripts as well: those find it on standard error.
    fn warn(&mut self, line: &str) -> Result<(), DevError> {
        if self.json {
            // Nobody reads it: no reason to stop the voters.
            let _ = writeln!(io::stderr(), "{line}");
        }
        self.say(line)
    }

    fn show(&mut self) -> Result<(), DevError> {
        if self.json {
            return Ok(());
        }
        let status = self.status.as_ref();
        let table = table::lines(&self.cluster_id, &self.rows, status, unix_ms());
        self.screen.show(table).map_err(DevError::Output)
    }
}

fn row(voter: &VoterPlan) -> VoterRow {
    VoterRow {
        id: voter.id,
        address: voter.address().map_or("-".into(), ToString::to_string),
        peer_address: voter.peer_address().to_string(),
        page: voter.page_address().unwrap_or("-".into()),
        gone: None,
    }
}

/// Signals become events. From here on Ctrl-C does not end this process by itself.
fn forward_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])?;
    let forward = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("dev-signals".into());
    thread.spawn(forward).map(drop)
}

#[allow(clippy::disallowed_methods)] // this loop is where time comes in
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods)] // as above
fn unix_ms() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
