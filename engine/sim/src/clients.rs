//! Lets producers and consumers act: they ask whom they believe to lead, over links that are never
//! cut, and look elsewhere when they are refused or not answered.

use crate::checkers::Violation;
use crate::checkers::{OpId, entries_of};
use crate::idempotent::Idempotent;
use crate::node::{Input, Running, Stage};
use crate::queue::{MS, Nanos, US};
use crate::scenario::Mutant;
use crate::workload::{Client, Pending, Produced, Reader, Told};
use crate::world::{Event, World, id_of};
use bytes::Bytes;
use quorate::replica::{CommittedRead, ProduceError, Produced as Taken};
use quorate_raft::{Epoch, NodeId, Offset, Role};
use quorate_storage::format::check_produced;

/// What a reader is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderTold {
    /// Records up to here (exclusive), by the leader of this epoch.
    Records { end: Offset, epoch: Epoch },
    /// Nothing there (yet).
    Nothing,
    /// Ask another node, this one if known.
    NotLeader(Option<NodeId>),
}

/// A client that hears nothing for so long gives up.
const PATIENCE: Nanos = 800 * MS;
/// Before a refused client tries again.
const RETRY: (Nanos, Nanos) = (5 * MS, 40 * MS);
/// Between two questions of a reader.
const READ_PAUSE: (Nanos, Nanos) = (5 * MS, 60 * MS);
/// Bytes that are appended and not flushed above which a node takes nothing more.
const UNFLUSHED_BYTES_MAX: usize = 256 * 1024;

impl World {
    pub(crate) fn begin_workload(&mut self) {
        for client in 0..self.scenario.clients {
            let wakes_at = self.rng.between(MS, 500 * MS);
            let target = self.rng.index(self.nodes.len());
            self.clients.push(Client {
                target,
                waits_for: None,
                wakes_at,
                is_done: false,
            });
            self.queue.push(wakes_at, Event::Client(client));
        }
        self.begin_idempotent();
        for reader in 0..self.scenario.readers {
            let wakes_at = self.rng.between(MS, 500 * MS);
            let target = self.rng.index(self.nodes.len());
            let (position, epoch) = (Offset(0), Epoch(0));
            self.readers.push(Reader {
                target,
                position,
                epoch,
                wakes_at,
            });
            self.queue.push(wakes_at, Event::Reader(reader));
        }
    }

    /// No new batches from now on.
    pub(crate) fn stop_clients(&mut self) {
        self.clients
            .iter_mut()
            .for_each(|client| client.is_done = true);
        self.idempotent.iter_mut().for_each(Idempotent::stop);
    }

    pub(crate) fn client_delay(&mut self) -> Nanos {
        self.rng.between(20 * US, 500 * US)
    }

    fn wake_client(&mut self, client: usize, after: Nanos) {
        let at = self.now + after;
        self.clients[client].wakes_at = at;
        self.queue.push(at, Event::Client(client));
    }

    pub(crate) fn on_client_timer(&mut self, client: usize) {
        if let Some(index) = client.checked_sub(self.clients.len()) {
            return self.on_idempotent_timer(index);
        }
        if self.clients[client].wakes_at != self.now {
            return;
        }
        if self.clients[client].waits_for.take().is_some() {
            self.stats.unknown += 1;
            self.clients[client].target = self.rng.index(self.nodes.len());
        }
        if self.clients[client].is_done {
            return;
        }
        let timestamp = self.nodes[0].clocks(self.now).wall_ms;
        let produced = self.batches.next(client, timestamp);
        self.checkers
            .acknowledged
            .on_sent(produced.op, produced.content);
        self.clients[client].waits_for = Some(produced.op);
        let node = self.clients[client].target;
        if self.nodes[node].running.is_none() {
            let (at, op) = (self.now + self.client_delay(), produced.op);
            self.checkers.acknowledged.on_refused(op, produced.content);
            self.queue.push(
                at,
                Event::ClientTold {
                    client,
                    op,
                    told: Told::NotLeader(None),
                },
            );
        } else {
            let (at, life) = (self.now + self.client_delay(), self.nodes[node].life);
            let input = Input::Produce(produced);
            self.queue.push(
                at,
                Event::Arrives {
                    node,
                    life: Some(life),
                    input,
                },
            );
        }
        self.wake_client(client, PATIENCE);
    }

    pub(crate) fn tell_client(&mut self, client: usize, op: OpId, told: Told) {
        let at = self.now + self.client_delay();
        self.queue.push(at, Event::ClientTold { client, op, told });
    }

    pub(crate) fn on_client_told(&mut self, client: usize, op: OpId, told: Told) {
        if let Some(index) = client.checked_sub(self.clients.len()) {
            return self.on_idempotent_told(index, op, told);
        }
        if self.clients[client].waits_for != Some(op) {
            return;
        }
        self.clients[client].waits_for = None;
        let pause = match told {
            Told::Committed => self.rng.between(0, 2 * self.scenario.think),
            Told::Unknown => {
                self.stats.unknown += 1;
                self.clients[client].target = self.rng.index(self.nodes.len());
                self.rng.between(RETRY.0, RETRY.1)
            }
            Told::Again => self.rng.between(RETRY.0, RETRY.1),
            Told::NotLeader(leader) => {
                self.clients[client].target = self.next_target(leader);
                self.rng.between(RETRY.0, RETRY.1)
            }
        };
        self.wake_client(client, pause);
    }

    pub(crate) fn next_target(&mut self, leader: Option<NodeId>) -> usize {
        let named = leader.and_then(|id| usize::try_from(id - 1).ok());
        named.unwrap_or_else(|| self.rng.index(self.nodes.len()))
    }

    /// A node takes a client's batch, or refuses it.
    pub(crate) fn produce(
        &mut self,
        node: usize,
        running: &mut Running,
        produced: Produced,
    ) -> Result<(), Violation> {
        let is_open = running.stage == Stage::Running
            && running.replica.unflushed_bytes() <= UNFLUSHED_BYTES_MAX;
        if !is_open {
            self.refuse(&produced, Told::NotLeader(None));
            return Ok(());
        }
        let now = self.nodes[node].clocks(self.now);
        let mut info = check_produced(&produced.batch).expect("clients send good batches");
        if self.scenario.mutant == Some(Mutant::SequencesIgnored) {
            info.producer_id = -1;
        }
        let (base, end) = match running.replica.produce(now, &produced.batch, &info) {
            Ok(Taken::Appended {
                base_offset,
                end_offset,
            }) => (Some(base_offset), end_offset),
            Ok(Taken::Duplicate {
                base_offset,
                end_offset,
            }) => {
                self.stats.duplicates += 1;
                (Some(base_offset), end_offset)
            }
            Ok(Taken::Older { below }) => {
                self.stats.duplicates += 1;
                (None, below)
            }
            Err(ProduceError::NotLeader(leader)) => {
                self.refuse(&produced, Told::NotLeader(leader.leader_id));
                return Ok(());
            }
            Err(ProduceError::QuotaUsedUp { .. }) => unreachable!("no quota was set"),
            Err(error @ (ProduceError::NotReady | ProduceError::Sequence(_))) => {
                match error {
                    ProduceError::Sequence(_) => self.stats.out_of_order += 1,
                    _ => self.stats.not_ready += 1,
                }
                self.refuse(&produced, Told::Again);
                return Ok(());
            }
        };
        let pending = Pending {
            client: produced.client,
            op: produced.op,
            content: produced.content,
            base,
            end,
        };
        let is_committed = running.replica.raft().high_watermark() >= Some(end);
        if is_committed || self.scenario.mutant == Some(Mutant::AcknowledgedTooEarly) {
            return self.acknowledge(pending);
        }
        let place = running
            .appends
            .partition_point(|waiting| waiting.end <= end);
        running.appends.insert(place, pending);
        Ok(())
    }

    fn refuse(&mut self, produced: &Produced, told: Told) {
        let acknowledged = &mut self.checkers.acknowledged;
        acknowledged.on_refused(produced.op, produced.content);
        self.tell_client(produced.client, produced.op, told);
    }

    /// A client's batch is committed: it may be told so.
    pub(crate) fn acknowledge(&mut self, pending: Pending) -> Result<(), Violation> {
        let Pending {
            client,
            op,
            content,
            base,
            ..
        } = pending;
        self.stats.acknowledged += 1;
        let committed = self.checkers.committed.log();
        let offset = match base {
            Some(base) => base,
            None => committed
                .offset_of(content)
                .ok_or(Violation::AcknowledgedNowhere { op })?,
        };
        self.trace.note(
            self.now,
            client,
            "client is told of the commit at",
            offset.0 as u64,
            op.0,
        );
        self.checkers
            .acknowledged
            .on_acknowledged(op, content, offset, committed)?;
        self.tell_client(client, op, Told::Committed);
        Ok(())
    }

    fn wake_reader(&mut self, reader: usize, after: Nanos) {
        let at = self.now + after;
        self.readers[reader].wakes_at = at;
        self.queue.push(at, Event::Reader(reader));
    }

    pub(crate) fn on_reader_timer(&mut self, reader: usize) {
        if self.readers[reader].wakes_at != self.now {
            return;
        }
        if self.rng.chance(30) {
            self.jump(reader);
        }
        let Reader {
            target, position, ..
        } = self.readers[reader];
        let at = self.now + self.client_delay();
        if self.nodes[target].running.is_some() {
            let input = Input::Consume {
                reader,
                from: position,
            };
            self.queue.push(
                at,
                Event::Arrives {
                    node: target,
                    life: None,
                    input,
                },
            );
            self.wake_reader(reader, PATIENCE);
        } else {
            self.readers[reader].target = self.rng.index(self.nodes.len());
            self.wake_reader(reader, READ_PAUSE.1);
        }
    }

    /// Lets a reader go on at a random committed offset. It knows that offset from a leader of the
    /// epoch in which it was written, or of a newer one.
    fn jump(&mut self, reader: usize) {
        let committed = self.checkers.committed.log();
        let end = committed.end().0.unsigned_abs();
        let offset = Offset(i64::try_from(self.rng.below(end)).unwrap_or(0));
        let batch = committed.at(offset);
        let reader = &mut self.readers[reader];
        reader.position = offset;
        reader.epoch = reader
            .epoch
            .max(batch.map_or(Epoch(0), |batch| batch.epoch));
    }

    pub(crate) fn tell_reader(&mut self, reader: usize, told: ReaderTold) {
        let at = self.now + self.client_delay();
        self.queue.push(at, Event::ReaderTold { reader, told });
    }

    pub(crate) fn on_reader_told(&mut self, reader: usize, told: ReaderTold) {
        match told {
            ReaderTold::Records { end, epoch } => {
                self.readers[reader].position = end;
                self.readers[reader].epoch = self.readers[reader].epoch.max(epoch);
            }
            ReaderTold::Nothing => {}
            ReaderTold::NotLeader(leader) => {
                self.readers[reader].target = self.next_target(leader);
            }
        }
        let pause = self.rng.between(READ_PAUSE.0, READ_PAUSE.1);
        self.wake_reader(reader, pause);
    }

    /// A node answers a reader, or begins to read its disk for it.
    pub(crate) fn consume(
        &mut self,
        node: usize,
        running: &mut Running,
        reader: usize,
        from: Offset,
    ) -> Result<(), Violation> {
        const READ_BYTES: usize = 4096;
        if self.scenario.mutant == Some(Mutant::UncommittedShown)
            && running.replica.raft().role() == Role::Leader
            && let Some(last) = self.checkers.logs[node].appended().entries().last()
        {
            self.checkers.committed.on_shown(id_of(node), *last)?;
        }
        match running.replica.read_committed(from, READ_BYTES) {
            CommittedRead::Records(parts) => {
                self.show(node, running, reader, from, &parts.concat().into())?;
            }
            CommittedRead::Pending(id) => {
                running.reads.insert(id, (reader, from));
            }
            CommittedRead::AtEnd | CommittedRead::NotAvailable | CommittedRead::Busy => {
                self.tell_reader(reader, ReaderTold::Nothing);
            }
            CommittedRead::OutOfRange => {
                // A leader that was deposed and does not know it may be behind; it goes soon.
                if running.replica.raft().epoch() >= self.readers[reader].epoch {
                    let node = id_of(node);
                    return Err(Violation::ReaderThrownOut { node, offset: from });
                }
                self.tell_reader(reader, ReaderTold::NotLeader(None));
            }
            CommittedRead::NotLeader => {
                let leader = running.replica.raft().leader_id();
                let other = leader.filter(|id| *id != id_of(node));
                self.tell_reader(reader, ReaderTold::NotLeader(other));
            }
        }
        Ok(())
    }

    /// Shows records to a reader: they must be committed, and begin where it asked.
    pub(crate) fn show(
        &mut self,
        node: usize,
        running: &Running,
        reader: usize,
        from: Offset,
        records: &Bytes,
    ) -> Result<(), Violation> {
        let id = id_of(node);
        let entries = entries_of(records).unwrap_or_default();
        let mut end = from;
        for entry in &entries {
            let continues = entry.base <= end && entry.end > end;
            if !continues {
                return Err(Violation::NotContiguous {
                    node: id,
                    end,
                    batch: *entry,
                });
            }
            self.checkers.committed.on_shown(id, *entry)?;
            end = entry.end;
        }
        self.stats.shown += entries.len() as u64;
        self.trace
            .note(self.now, node, "shows records", from.0 as u64, end.0 as u64);
        let epoch = running.replica.raft().epoch();
        self.tell_reader(reader, ReaderTold::Records { end, epoch });
        Ok(())
    }
}
