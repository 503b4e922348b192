//! Carries the log writer's I/O out on the simulated disk, as the ring and the background thread of
//! a node do: both writes of a group in any order, then one flush; blocking work one by one, beside
//! it. Each step takes its time, and the node may be gone before the next.

use crate::checkers::Violation;
use crate::node::{GroupInFlight, Input, Running, Task, log_dir, voter_ids};
use crate::queue::{MS, Nanos};
use crate::scenario::Mutant;
use crate::world::{Event, World, id_of};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{DiskFile, GroupIo, Io, write_quorum_state};
use std::io;

/// What is next for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupStep {
    FirstWrite,
    SecondWrite,
    Flush,
    Report,
}

/// A slow disk takes so many times as long.
const SLOW_FACTOR: u64 = 20;
/// Between two steps of preparing a segment.
const PREPARE_PAUSE: Nanos = 2 * MS;

impl World {
    fn disk_delay(&mut self, node: usize) -> Nanos {
        let delay = self.scenario.disk.next(&mut self.rng);
        let is_slow = self.nodes[node].slow_until > self.now;
        if is_slow { delay * SLOW_FACTOR } else { delay }
    }

    /// Starts what the writer wants to be done next.
    pub(crate) fn start_io(&mut self, node: usize, running: &mut Running) {
        let life = self.nodes[node].life;
        while let Some(io) = running.writer.poll() {
            match io {
                Io::Group(io) => {
                    assert!(running.group.is_none(), "one group at a time");
                    running.group = Some(GroupInFlight {
                        io,
                        mark_first: self.rng.chance(500),
                    });
                    let at = self.now + self.disk_delay(node) / 2;
                    let step = GroupStep::FirstWrite;
                    self.queue.push(at, Event::Group { node, life, step });
                }
                Io::Job(job) if job.is_prepare() => running.background.prepare.push_back(job),
                Io::Job(job) => running.background.tasks.push_back(Task::Storage(job)),
            }
        }
        // A loop may be too busy to copy ahead.
        if self.rng.chance(700) {
            running.writer.fill_next_group();
        }
        self.start_background(node, running);
    }

    /// Lets the background thread begin its next task, if it has one and is idle.
    fn start_background(&mut self, node: usize, running: &mut Running) {
        if running.background.is_busy() {
            return;
        }
        let mut at = self.now + self.disk_delay(node);
        let mut next = running.background.tasks.pop_front();
        if next.is_none() {
            next = running.background.prepare.pop_front().map(Task::Storage);
            at += PREPARE_PAUSE;
        }
        if next.is_some() {
            running.background.current = next;
            let life = self.nodes[node].life;
            self.queue.push(
                at,
                Event::Background {
                    node,
                    life,
                    is_done: false,
                },
            );
        }
    }

    pub(crate) fn on_group_step(
        &mut self,
        node: usize,
        life: u64,
        step: GroupStep,
    ) -> Result<(), Violation> {
        if self.nodes[node].life != life {
            return Ok(());
        }
        let Some(mut running) = self.nodes[node].running.take() else {
            return Ok(());
        };
        let group = running.group.take().expect("a group is on its way");
        let next = match step {
            GroupStep::FirstWrite | GroupStep::SecondWrite => {
                let is_first = step == GroupStep::FirstWrite;
                write(&group.io, is_first == group.mark_first).map(|()| match step {
                    GroupStep::FirstWrite => GroupStep::SecondWrite,
                    _ => GroupStep::Flush,
                })
            }
            GroupStep::Flush => self.flush(node, &group.io)?.map(|()| GroupStep::Report),
            GroupStep::Report => {
                self.nodes[node].running = Some(running);
                self.give(
                    node,
                    Input::GroupDone {
                        io: group.io,
                        result: Ok(()),
                    },
                );
                return Ok(());
            }
        };
        match next {
            Ok(step) => {
                running.group = Some(group);
                self.nodes[node].running = Some(running);
                let at = self.now + self.disk_delay(node) / 2;
                self.queue.push(at, Event::Group { node, life, step });
            }
            Err(error) => {
                self.nodes[node].running = Some(running);
                self.on_disk_error(
                    node,
                    Input::GroupDone {
                        io: group.io,
                        result: Err(error),
                    },
                );
            }
        }
        Ok(())
    }

    fn flush(&mut self, node: usize, io: &GroupIo<SimDisk>) -> Result<io::Result<()>, Violation> {
        let is_skipped = self.scenario.mutant == Some(Mutant::FlushSkipped);
        let result = if is_skipped {
            Ok(())
        } else {
            io.file.sync_data()
        };
        if result.is_ok() {
            self.checkers.logs[node].on_flush(&io.data)?;
        }
        self.trace.note(
            self.now,
            node,
            "flushed",
            io.data_position,
            u64::from(result.is_ok()),
        );
        Ok(result)
    }

    pub(crate) fn on_background(
        &mut self,
        node: usize,
        life: u64,
        is_done: bool,
    ) -> Result<(), Violation> {
        if self.nodes[node].life != life {
            return Ok(());
        }
        let Some(mut running) = self.nodes[node].running.take() else {
            return Ok(());
        };
        if is_done {
            let result = running.background.result.take().expect("a task is done");
            self.start_background(node, &mut running);
            self.nodes[node].running = Some(running);
            self.give(node, result);
            return Ok(());
        }
        let task = running.background.current.take().expect("a task is begun");
        let result = self.carry_out_task(node, task)?;
        running.background.result = Some(result);
        self.nodes[node].running = Some(running);
        if self.nodes[node].disk.is_crashed() {
            self.crash_of_disk(node);
            return Ok(());
        }
        let at = self.now + self.disk_delay(node) / 4;
        self.queue.push(
            at,
            Event::Background {
                node,
                life,
                is_done: true,
            },
        );
        Ok(())
    }

    fn carry_out_task(&mut self, node: usize, task: Task) -> Result<Input, Violation> {
        let disk = &self.nodes[node].disk;
        Ok(match task {
            Task::Storage(job) => {
                self.trace
                    .say(self.now, node, format_args!("disk: {}", job.name()));
                Input::JobDone(job.run())
            }
            Task::Read { id, plan } => {
                self.stats.disk_reads += 1;
                Input::ReadDone {
                    id,
                    result: plan.run(disk),
                }
            }
            Task::PersistElection { seq, election } => {
                let result = if self.scenario.mutant == Some(Mutant::ElectionNotWritten) {
                    Ok(())
                } else {
                    write_quorum_state(disk, &log_dir(), &election, &voter_ids(&self.scenario))
                };
                let is_ok = u64::from(result.is_ok());
                let epoch = u64::from(election.epoch.0.unsigned_abs());
                self.trace
                    .note(self.now, node, "persists its election", epoch, is_ok);
                if result.is_ok() {
                    self.checkers.votes.on_persisted(id_of(node), election)?;
                }
                Input::Persisted { seq, result }
            }
        })
    }

    /// A disk operation failed: the machine is gone, or the node is told.
    fn on_disk_error(&mut self, node: usize, input: Input) {
        if self.nodes[node].disk.is_crashed() {
            self.crash_of_disk(node);
        } else {
            self.give(node, input);
        }
    }
}

fn write(io: &GroupIo<SimDisk>, is_mark: bool) -> io::Result<()> {
    let (buf, position) = if is_mark {
        (&io.mark, io.mark_position)
    } else {
        (&io.data, io.data_position)
    };
    // A short write of the simulated disk would be written again by the ring's driver.
    match io.file.write_at(buf, position)? {
        written if written == buf.len() => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
    }
}
