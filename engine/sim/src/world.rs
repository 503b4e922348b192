//! Everything there is in a run, and its clock: takes the next event, lets it happen, and stops
//! when a promise is broken or the run is over.
//!
//! What nodes do in their turns is `turn.rs`, what they say to each other `messages.rs`, what their
//! disks do `disk_io.rs`, what goes wrong
//! `faults.rs`, what clients do `clients.rs`.

use crate::checkers::{
    Acknowledged, Committed, Contents, DurableLog, Leaders, OpId, Violation, Votes,
};
use crate::clients::ReaderTold;
use crate::disk::cut_power;
use crate::disk_io::GroupStep;
use crate::idempotent::Idempotent;
use crate::network::{ExchangeId, Network};
use crate::node::{Input, Node, StartError, format_disk};
use crate::queue::{MS, Nanos, Queue, S};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::trace::Trace;
use crate::workload::{Batches, Client, Reader, Told};
use quorate_raft::{NodeId, RequestFailure, Role};
use quorate_storage::ProducerStates;
use quorate_storage::sim_disk::SimDisk;

/// Something that happens at a time.
pub(crate) enum Event {
    /// A node looks at its inbox.
    Turn { node: usize, life: u64 },
    /// A request arrives.
    Request(ExchangeId),
    /// An answer arrives.
    Answer(ExchangeId),
    /// Whoever asked learns that no answer will come.
    Broken(ExchangeId, RequestFailure),
    /// Something of a client, or of a broken connection, arrives.
    Arrives {
        node: usize,
        life: Option<u64>,
        input: Input,
    },
    /// The group on its way to the disk goes on.
    Group {
        node: usize,
        life: u64,
        step: GroupStep,
    },
    /// The background thread carries its task out, or reports it.
    Background {
        node: usize,
        life: u64,
        is_done: bool,
    },
    /// A node starts.
    Start(usize),
    /// A client's timer.
    Client(usize),
    /// A client hears of its batch.
    ClientTold { client: usize, op: OpId, told: Told },
    /// A reader's timer.
    Reader(usize),
    /// A reader is answered.
    ReaderTold { reader: usize, told: ReaderTold },
    /// Something goes wrong.
    Fault,
    /// Nothing goes wrong any more.
    Heal,
    /// Looks whether the quorum got on since.
    Watch,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Things go wrong.
    Faults,
    /// They do not any more: nodes that are down or on their way down come back.
    Recovering { since: Nanos },
    /// All nodes run: a leader has to commit.
    Healed { since: Nanos, acknowledged: u64 },
    /// Clients stopped: every node has to catch up.
    Settling { since: Nanos },
    /// All is well and at rest.
    Over,
}

/// All checkers.
pub(crate) struct Checkers {
    pub(crate) leaders: Leaders,
    pub(crate) votes: Votes,
    pub(crate) contents: Contents,
    pub(crate) committed: Committed,
    pub(crate) acknowledged: Acknowledged,
    /// By node.
    pub(crate) logs: Vec<DurableLog>,
}

/// A run under way.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: Nanos,
    pub(crate) rng: Rng,
    pub(crate) queue: Queue<Event>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) batches: Batches,
    pub(crate) clients: Vec<Client>,
    pub(crate) idempotent: Vec<Idempotent>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) checkers: Checkers,
    pub(crate) phase: Phase,
    pub(crate) stats: Stats,
    pub(crate) trace: Trace,
}

/// A run has some hundred thousand events; one with so many goes round in circles.
const EVENTS_MAX: u64 = 20_000_000;
/// How often the quorum is looked at after the last fault.
const WATCH_INTERVAL: Nanos = 20 * MS;
/// A graceful shutdown takes at most so long, and the restart after it.
const RECOVERY_MAX: Nanos = 10 * S;
/// Within so many election timeouts after the last fault a leader has to commit, and within so many
/// again every node has to catch up.
const PATIENCE_ELECTION_TIMEOUTS: u64 = 10;

impl World {
    pub(crate) fn new(scenario: Scenario, tell: bool) -> Self {
        let mut rng = Rng::new(scenario.seed ^ 0x5176_0000);
        let nodes = (0..scenario.nodes())
            .map(|index| new_node(index, &mut rng))
            .collect();
        let network = Network::new(
            rng.fork(),
            scenario.nodes(),
            scenario.network,
            scenario.breaks_per_mille,
        );
        let checkers = Checkers {
            leaders: Leaders::default(),
            votes: Votes::default(),
            contents: Contents::default(),
            committed: Committed::default(),
            acknowledged: Acknowledged::default(),
            logs: (0..scenario.nodes())
                .map(|index| DurableLog::new(id_of(index)))
                .collect(),
        };
        let mut world = Self {
            now: 0,
            queue: Queue::new(),
            nodes,
            network,
            batches: Batches::new(rng.fork()),
            clients: Vec::new(),
            idempotent: Vec::new(),
            readers: Vec::new(),
            checkers,
            phase: Phase::Faults,
            stats: Stats {
                seeds: 1,
                ..Stats::default()
            },
            trace: Trace::new(tell),
            scenario,
            rng,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.start_later(node, 0, 20 * MS);
        }
        self.begin_workload();
        self.queue.push(self.scenario.fault_interval, Event::Fault);
        self.queue.push(self.scenario.faults_until, Event::Heal);
    }

    /// Lets everything happen until the run is over.
    ///
    /// # Errors
    /// The first broken promise.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while self.phase != Phase::Over {
            let Some((at, event)) = self.queue.pop() else {
                break;
            };
            assert!(at >= self.now, "time went back from {} to {at}", self.now);
            assert!(self.queue.made() < EVENTS_MAX, "the run does not end");
            self.now = at;
            self.happen(event)?;
        }
        self.check_final_logs()
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Turn { node, life } => return self.turn(node, life),
            Event::Request(id) => self.on_request_arrives(id),
            Event::Answer(id) => self.on_answer_arrives(id),
            Event::Broken(id, failure) => self.on_broken(id, failure),
            Event::Arrives { node, life, input } => {
                if life.is_none_or(|life| life == self.nodes[node].life) {
                    self.give(node, input);
                }
            }
            Event::Group { node, life, step } => return self.on_group_step(node, life, step),
            Event::Background {
                node,
                life,
                is_done,
            } => {
                return self.on_background(node, life, is_done);
            }
            Event::Start(node) => return self.start(node),
            Event::Client(client) => self.on_client_timer(client),
            Event::ClientTold { client, op, told } => self.on_client_told(client, op, told),
            Event::Reader(reader) => self.on_reader_timer(reader),
            Event::ReaderTold { reader, told } => self.on_reader_told(reader, told),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
            Event::Watch => return self.watch(),
        }
        Ok(())
    }

    /// Puts something into a node's inbox, if it runs.
    pub(crate) fn give(&mut self, node: usize, input: Input) {
        if let Some(running) = &mut self.nodes[node].running {
            running.inbox.push_back(input);
            let delay = self.scenario.turn.next(&mut self.rng);
            self.wake(node, self.now + delay);
        }
    }

    /// Gives a node its next turn at `at` or earlier.
    pub(crate) fn wake(&mut self, node: usize, at: Nanos) {
        let life = self.nodes[node].life;
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        if running.next_turn.is_none_or(|next| at < next) {
            running.next_turn = Some(at);
            self.queue.push(at, Event::Turn { node, life });
        }
    }

    /// A restart within the bounds from now.
    pub(crate) fn start_later(&mut self, node: usize, low: Nanos, high: Nanos) {
        if !std::mem::replace(&mut self.nodes[node].is_starting, true) {
            let at = self.now + self.rng.between(low, high);
            self.queue.push(at, Event::Start(node));
        }
    }

    fn start(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].is_starting = false;
        if self.nodes[node].running.is_some() {
            return Ok(());
        }
        self.maybe_fail_while_starting(node);
        let seed = self.rng.next_u64();
        let id = id_of(node);
        match self.nodes[node].start(self.now, &self.scenario, seed) {
            Ok(found) => {
                let (end, epoch) = (found.log.end(), found.election.epoch);
                self.trace
                    .note(self.now, node, "starts", end.0 as u64, epoch.0 as u64);
                self.stats.starts += 1;
                self.checkers.votes.on_recovered(id, found.election)?;
                self.checkers.votes.on_persisted(id, found.election)?;
                for batch in found.log.entries() {
                    self.checkers.contents.on_batch(id, *batch)?;
                }
                self.checkers.logs[node].on_recovered(found.log)?;
                self.wake(node, self.now);
                Ok(())
            }
            Err(StartError::Crashed) => {
                self.trace
                    .note(self.now, node, "crashes while it starts", 0, 0);
                self.stats.crashes += 1;
                cut_power(&self.nodes[node].disk, &mut self.rng);
                self.start_later(node, 10 * MS, 500 * MS);
                Ok(())
            }
            Err(StartError::DiskFailed(error)) if self.phase == Phase::Faults => {
                self.trace
                    .say(self.now, node, format_args!("does not start: {error}"));
                self.start_later(node, 10 * MS, 500 * MS);
                Ok(())
            }
            Err(error) => Err(error.into_violation(id)),
        }
    }

    /// The node that leads the newest epoch, if any does.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| {
            let raft = node.running.as_ref()?.replica.raft();
            (raft.role() == Role::Leader).then_some(raft.epoch())
        };
        let epochs = self.nodes.iter().map(leads).enumerate();
        let leaders = epochs.filter_map(|(node, epoch)| Some((epoch?, node)));
        leaders.max().map(|(_, node)| node)
    }

    pub(crate) fn begin_watch(&mut self) {
        self.phase = Phase::Recovering { since: self.now };
        self.queue.push(self.now + WATCH_INTERVAL, Event::Watch);
    }

    fn watch(&mut self) -> Result<(), Violation> {
        match self.phase {
            Phase::Recovering { since } => {
                if self.nodes.iter().all(Node::is_up) {
                    let acknowledged = self.stats.acknowledged;
                    self.phase = Phase::Healed {
                        since: self.now,
                        acknowledged,
                    };
                } else if self.now > since + RECOVERY_MAX {
                    return Err(self.stuck(since, "not every node came back"));
                }
            }
            Phase::Healed {
                since,
                acknowledged,
            } => {
                if self.leader().is_some() && self.stats.acknowledged > acknowledged {
                    self.stop_clients();
                    self.phase = Phase::Settling { since: self.now };
                } else {
                    self.check_patience(since, "no batch of a client was committed")?;
                }
            }
            Phase::Settling { since } => {
                if self.is_settled() {
                    self.phase = Phase::Over;
                } else {
                    self.check_patience(since, "not every node caught up")?;
                }
            }
            Phase::Faults | Phase::Over => {}
        }
        self.queue.push(self.now + WATCH_INTERVAL, Event::Watch);
        Ok(())
    }

    fn check_patience(&self, since: Nanos, what: &str) -> Result<(), Violation> {
        let patience = PATIENCE_ELECTION_TIMEOUTS * self.scenario.election_timeout_ms * MS;
        if self.now <= since + patience {
            Ok(())
        } else {
            Err(self.stuck(since, what))
        }
    }

    fn stuck(&self, since: Nanos, what: &str) -> Violation {
        let waited_ms = (self.now - since) / MS;
        Violation::Stuck {
            waited_ms,
            what: format!("{what}; {}", self.describe_nodes()),
        }
    }

    fn describe_nodes(&self) -> String {
        let describe = |node: &Node| match &node.running {
            None => format!("{} is down", node.id),
            Some(running) => {
                let raft = running.replica.raft();
                let end = raft.log_end_offset();
                let known = raft.high_watermark().map_or(-1, |offset| offset.0);
                let (role, epoch) = (raft.role(), raft.epoch());
                let flushed = raft.flushed_offset();
                format!(
                    "{} {role:?} in epoch {epoch}, end {end}, flushed {flushed}, committed {known}",
                    node.id,
                )
            }
        };
        self.nodes
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Whether all nodes have the same log and know that it is committed.
    fn is_settled(&self) -> bool {
        let end = self.checkers.committed.log().end();
        self.leader().is_some()
            && self.clients.iter().all(|client| client.waits_for.is_none())
            && self.idempotent.iter().all(Idempotent::is_at_rest)
            && self.nodes.iter().all(|node| {
                let running = node.running.as_ref();
                running.is_some_and(|running| running.replica.producers().is_some())
            })
            && self.nodes.iter().all(|node| {
                let raft = node.running.as_ref().map(|running| running.replica.raft());
                raft.is_some_and(|raft| {
                    raft.log_end_offset() == end
                        && raft.flushed_offset() == end
                        && raft.high_watermark() == Some(end)
                })
            })
    }

    /// What a replica learned batch by batch, what it read again after a truncation and what
    /// recovery finds must be the same.
    fn check_producers(
        &self,
        node: usize,
        known: Option<&ProducerStates>,
    ) -> Result<(), Violation> {
        let running = self.nodes[node].running.as_ref();
        let found = running.and_then(|running| running.replica.producers());
        match (known, found) {
            (Some(known), Some(found)) if known.is_same(found) => Ok(()),
            _ => Err(Violation::ProducersDiffer { node: id_of(node) }),
        }
    }

    /// After everything: what do the disks say?
    fn check_final_logs(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            let running = self.nodes[node].running.as_ref();
            let known = running.and_then(|running| running.replica.producers().cloned());
            self.stop(node);
            cut_power(&self.nodes[node].disk, &mut self.rng);
            match self.nodes[node].start(self.now, &self.scenario, 0) {
                Ok(found) => {
                    let id = id_of(node);
                    self.check_producers(node, known.as_ref())?;
                    self.checkers.committed.on_final(id, &found.log)?;
                    self.checkers.acknowledged.on_final(id, &found.log)?;
                    self.checkers.logs[node].on_recovered(found.log)?;
                }
                Err(error) => return Err(error.into_violation(id_of(node))),
            }
        }
        self.stats.events = self.queue.made();
        self.stats.simulated = self.now;
        Ok(())
    }
}

/// Ids begin at 1.
pub(crate) fn id_of(node: usize) -> NodeId {
    NodeId::try_from(node).expect("few nodes") + 1
}

fn new_node(index: usize, rng: &mut Rng) -> Node {
    let disk = SimDisk::new();
    format_disk(&disk).expect("a new disk works");
    let clock_ahead = rng.below(1 << 40);
    let wall_ahead_ms = i64::try_from(rng.below(2_000)).unwrap_or(0) - 1_000;
    Node::new(id_of(index), disk, clock_ahead, wall_ahead_ms)
}
