//! What goes wrong: crashes at any time and in the middle of a disk operation, links cut, processes
//! stopped, disks slow or failing, graceful stops. Until the healing, when nothing does any more.

use crate::disk::{arm_crash, arm_failure, cut_power, disarm};
use crate::network::Crossing;
use crate::node::Input;
use crate::queue::{MS, Nanos, S};
use crate::world::{Event, Phase, World};
use quorate_raft::RequestFailure;

/// Something that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Crash,
    CrashLeader,
    CrashAll,
    CrashInDiskOperation,
    Shutdown,
    ShutdownLeader,
    CutLink,
    CutOff,
    CutOffLeader,
    Split,
    Pause,
    PauseLeader,
    SlowDisk,
    FailDisk,
    BreakConnections,
}

/// As often as they stand here.
const FAULTS: [Fault; 24] = [
    Fault::Crash,
    Fault::Crash,
    Fault::CrashLeader,
    Fault::CrashLeader,
    Fault::CrashAll,
    Fault::CrashInDiskOperation,
    Fault::CrashInDiskOperation,
    Fault::CrashInDiskOperation,
    Fault::Shutdown,
    Fault::ShutdownLeader,
    Fault::ShutdownLeader,
    Fault::CutLink,
    Fault::CutLink,
    Fault::CutOff,
    Fault::CutOffLeader,
    Fault::CutOffLeader,
    Fault::Split,
    Fault::Split,
    Fault::Pause,
    Fault::PauseLeader,
    Fault::SlowDisk,
    Fault::SlowDisk,
    Fault::FailDisk,
    Fault::BreakConnections,
];

impl World {
    pub(crate) fn fault(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        let fault = self.rng.pick(&FAULTS);
        let any = self.rng.index(self.nodes.len());
        let leader = self.leader().unwrap_or(any);
        self.trace.say(
            self.now,
            any,
            format_args!("-- {fault:?} (leader {})", leader + 1),
        );
        match fault {
            Fault::Crash => self.crash_and_restart(any),
            Fault::CrashLeader => self.crash_and_restart(leader),
            Fault::CrashAll => (0..self.nodes.len()).for_each(|node| self.crash_and_restart(node)),
            Fault::CrashInDiskOperation => {
                let operations = self.rng.between(1, 300);
                arm_crash(&self.nodes[any].disk, operations);
            }
            Fault::Shutdown => self.give(any, Input::Shutdown),
            Fault::ShutdownLeader => self.give(leader, Input::Shutdown),
            Fault::CutLink => self.cut_link(any),
            Fault::CutOff => self.cut_off(any),
            Fault::CutOffLeader => self.cut_off(leader),
            Fault::Split => self.split(),
            Fault::Pause => self.pause(any),
            Fault::PauseLeader => self.pause(leader),
            Fault::SlowDisk => {
                self.stats.pauses += 1;
                self.nodes[any].slow_until = self.now + self.some_time();
            }
            Fault::FailDisk => {
                self.stats.disk_failures += 1;
                let operations = self.rng.between(1, 100);
                arm_failure(&self.nodes[any].disk, operations, &mut self.rng);
            }
            Fault::BreakConnections => self.break_connections(any),
        }
        let pause = self.rng.between(1, 2 * self.scenario.fault_interval);
        self.queue.push(self.now + pause, Event::Fault);
    }

    /// How long a fault lasts: up to several fetch timeouts.
    fn some_time(&mut self) -> Nanos {
        let fetch_timeout = self.scenario.fetch_timeout_ms() * MS;
        let longest = self
            .rng
            .pick(&[fetch_timeout / 2, fetch_timeout, 4 * fetch_timeout]);
        self.rng.between(10 * MS, longest.min(5 * S))
    }

    pub(crate) fn heal(&mut self) {
        self.trace.note(self.now, 0, "everything heals", 0, 0);
        self.network.heal();
        self.scenario.disk = self.scenario.disk.healthy();
        for node in 0..self.nodes.len() {
            disarm(&self.nodes[node].disk);
            self.nodes[node].paused_until = 0;
            self.nodes[node].slow_until = 0;
            self.wake(node, self.now);
            let at = self.now + self.rng.between(MS, 100 * MS);
            self.queue.push(at, Event::Start(node));
        }
        self.begin_watch();
    }

    /// A node that starts may find that its disk stops working while it recovers.
    pub(crate) fn maybe_fail_while_starting(&mut self, node: usize) {
        if self.phase == Phase::Faults && self.rng.chance(150) {
            let operations = self.rng.between(1, 80);
            arm_crash(&self.nodes[node].disk, operations);
        }
    }

    /// Power fails at a node, or only its process dies; it comes back later.
    pub(crate) fn crash_and_restart(&mut self, node: usize) {
        if self.nodes[node].running.is_none() {
            return;
        }
        self.crash(node);
        if self.rng.chance(700) {
            cut_power(&self.nodes[node].disk, &mut self.rng);
        }
        let high = self.rng.pick(&[100 * MS, 3 * S]);
        self.start_later(node, 20 * MS, high);
    }

    /// Power fails at a node in the middle of a disk operation.
    pub(crate) fn crash_of_disk(&mut self, node: usize) {
        self.crash(node);
        cut_power(&self.nodes[node].disk, &mut self.rng);
        self.start_later(node, 20 * MS, S);
    }

    /// A node is gone: its memory, and its connections.
    pub(crate) fn crash(&mut self, node: usize) {
        if self.nodes[node].running.is_some() {
            self.stats.crashes += 1;
            self.trace
                .note(self.now, node, "crashes", self.nodes[node].life, 0);
        }
        self.stop(node);
    }

    /// A process ends, however it does.
    pub(crate) fn stop(&mut self, node: usize) {
        let Some(running) = self.nodes[node].running.take() else {
            return;
        };
        self.stats.rolls += running.writer.stats().rolls;
        self.checkers
            .committed
            .on_stopped(crate::world::id_of(node));
        self.break_connections(node);
    }

    /// Every connection of a node breaks.
    fn break_connections(&mut self, node: usize) {
        for (token, exchange) in self.network.take_asked_by(node) {
            self.forget_at(exchange.to, exchange.to_life, token);
            if self.nodes[node].running.is_some() {
                let (from, id) = (exchange.addressed, exchange.id);
                let failure = RequestFailure::Disconnected;
                self.give(node, Input::Failed { from, id, failure });
            }
        }
        for token in self.network.taken_by(node) {
            let Some(exchange) = self.network.get_mut(token) else {
                continue;
            };
            let (from, to_life) = (exchange.from, exchange.to_life);
            self.forget_at(node, to_life, token);
            if let Crossing::Arrives(at) | Crossing::Breaks(at) =
                self.network.cross(self.now, node, from)
            {
                let event = Event::Broken(token, RequestFailure::Disconnected);
                self.queue.push(at, event);
            }
        }
    }

    fn cut_link(&mut self, node: usize) {
        let other = self.rng.index(self.nodes.len());
        let until = self.now + self.some_time();
        self.stats.partitions += 1;
        self.network.cut(node, other, until);
    }

    fn cut_off(&mut self, node: usize) {
        let until = self.now + self.some_time();
        let direction = self.rng.below(3);
        self.stats.partitions += 1;
        for other in 0..self.nodes.len() {
            if direction != 1 {
                self.network.cut(node, other, until);
            }
            if direction != 2 {
                self.network.cut(other, node, until);
            }
        }
    }

    fn split(&mut self) {
        let until = self.now + self.some_time();
        let side: Vec<bool> = self.nodes.iter().map(|_| self.rng.chance(500)).collect();
        self.stats.partitions += 1;
        for from in 0..side.len() {
            for to in (0..side.len()).filter(|to| side[*to] != side[from]) {
                self.network.cut(from, to, until);
            }
        }
    }

    fn pause(&mut self, node: usize) {
        self.stats.pauses += 1;
        self.nodes[node].paused_until = self.now + self.some_time();
    }
}
