//! A node's turn: its inbox into the replica, the replica's effects into the world, as the raft
//! loop does it. How messages travel between turns is `messages.rs`.

use crate::checkers::{Entry, Violation, content_of};
use crate::node::{Input, Node, Running, Stage, Task};
use crate::queue::{MS, Nanos};
use crate::workload::Told;
use crate::world::{World, id_of};
use quorate::replica::Effect;
use quorate_raft::{Epoch, Offset, RequestToken, Role};
use quorate_storage::format::batches;
use quorate_storage::{LogEvent, StampedBatch, StorageError};

/// How long a node that shuts down waits for its appends to be committed.
const DRAIN: Nanos = 500 * MS;
/// How long it waits for a successor.
const SUCCESSOR: Nanos = 5_000 * MS;
/// How long answers given last may take to leave.
const LINGER: Nanos = 50 * MS;

impl World {
    pub(crate) fn turn(&mut self, node: usize, life: u64) -> Result<(), Violation> {
        let Node {
            life: current,
            paused_until,
            running,
            ..
        } = &mut self.nodes[node];
        let is_due =
            |running: &mut Box<Running>| *current == life && running.next_turn == Some(self.now);
        let Some(mut running) = running.take_if(is_due) else {
            return Ok(());
        };
        running.next_turn = None;
        if *paused_until > self.now {
            let until = *paused_until;
            self.nodes[node].running = Some(running);
            self.wake(node, until);
            return Ok(());
        }
        self.take_turn(node, &mut running)?;
        let is_over = running.stage == Stage::Done;
        let deadline = self.next_deadline(node, &running);
        self.nodes[node].running = Some(running);
        if is_over {
            self.stop(node);
            self.start_later(node, 50 * MS, 1_000 * MS);
        } else if let Some(at) = deadline {
            self.wake(node, at.max(self.now));
        }
        Ok(())
    }

    fn take_turn(&mut self, node: usize, running: &mut Running) -> Result<(), Violation> {
        let now = self.nodes[node].clocks(self.now);
        while let Some(input) = running.inbox.pop_front() {
            self.take_input(node, running, input)?;
            running.replica.raft().check_invariants();
            // At once, so that the checkers know of a commit before the next input reads it.
            self.carry_out(node, running)?;
        }
        if running
            .replica
            .next_deadline()
            .is_some_and(|at| at <= now.instant)
        {
            running.replica.on_tick(now);
            running.replica.raft().check_invariants();
        }
        running.replica.finish_turn(now);
        running.replica.raft().check_invariants();
        self.carry_out(node, running)?;
        self.advance_stage(node, running);
        self.carry_out(node, running)?;
        if !matches!(running.stage, Stage::Failed(_) | Stage::Done) {
            self.start_io(node, running);
        }
        Ok(())
    }

    fn next_deadline(&self, node: usize, running: &Running) -> Option<Nanos> {
        let stage = match running.stage {
            Stage::Draining(at) | Stage::Leaving(at) | Stage::Lingering(at) | Stage::Failed(at) => {
                Some(at)
            }
            Stage::Running | Stage::Closing | Stage::Done => None,
        };
        let replica = running
            .replica
            .next_deadline()
            .map(|at| self.nodes[node].time_of(at));
        // A deadline of the past was just handled; the next look is not at the same instant.
        let replica = replica.map(|at| at.max(self.now + 1));
        [stage, replica].into_iter().flatten().min()
    }

    fn take_input(
        &mut self,
        node: usize,
        running: &mut Running,
        input: Input,
    ) -> Result<(), Violation> {
        let now = self.nodes[node].clocks(self.now);
        let replica = &mut running.replica;
        match input {
            Input::Request { token, request } => {
                replica.on_request(now, RequestToken(token), &request);
            }
            Input::Forget { token } => replica.forget_request(RequestToken(token)),
            Input::Response {
                from,
                id,
                response,
                records,
            } => {
                replica.on_response(now, from, id, &response, &records);
            }
            Input::Failed { from, id, failure } => {
                replica.on_request_failed(now, from, id, failure);
            }
            Input::GroupDone { io, result } => {
                let outcome = running.writer.on_group_done(io, result);
                self.on_log_outcome(node, running, outcome);
            }
            Input::JobDone(done) => {
                let outcome = running.writer.on_job_done(done);
                self.on_log_outcome(node, running, outcome);
            }
            Input::Persisted {
                seq,
                result: Ok(()),
            } => replica.on_election_persisted(now, seq),
            Input::Persisted { result: Err(_), .. } => self.on_storage_failed(node, running),
            Input::ReadDone { id, result } => replica.on_read(id, result),
            Input::Produce(produced) => return self.produce(node, running, produced),
            Input::Consume { reader, from } => return self.consume(node, running, reader, from),
            Input::Shutdown => {
                if running.stage == Stage::Running {
                    self.trace.note(self.now, node, "is asked to stop", 0, 0);
                    running.stage = Stage::Draining(self.now + DRAIN);
                }
            }
        }
        Ok(())
    }

    fn on_log_outcome(
        &mut self,
        node: usize,
        running: &mut Running,
        outcome: Result<Option<LogEvent>, StorageError>,
    ) {
        let now = self.nodes[node].clocks(self.now);
        match outcome {
            Ok(Some(LogEvent::Closed)) => {
                self.trace.note(self.now, node, "stops", 0, 0);
                self.stats.shutdowns += 1;
                running.stage = Stage::Done;
            }
            Ok(Some(event)) => {
                if let LogEvent::Truncated { generation, .. } = event
                    && generation == running.replica.raft().generation()
                {
                    self.checkers.logs[node].on_cut_done();
                }
                running.replica.on_log_event(now, &event);
            }
            Ok(None) => {}
            Err(error) => {
                self.trace
                    .say(self.now, node, format_args!("the disk failed: {error}"));
                self.on_storage_failed(node, running);
            }
        }
    }

    fn on_storage_failed(&mut self, node: usize, running: &mut Running) {
        const FAREWELL: Nanos = 300 * MS;
        if !matches!(running.stage, Stage::Failed(_) | Stage::Done) {
            running.stage = Stage::Failed(self.now + FAREWELL);
            running
                .replica
                .on_storage_failed(self.nodes[node].clocks(self.now));
        }
    }

    fn advance_stage(&mut self, node: usize, running: &mut Running) {
        let now = self.now;
        match running.stage {
            Stage::Draining(until) if running.appends.is_empty() || now >= until => {
                running.stage = Stage::Leaving(now + SUCCESSOR);
                running.replica.shutdown(self.nodes[node].clocks(now));
            }
            Stage::Leaving(until) if now >= until => running.stage = Stage::Lingering(now),
            Stage::Lingering(until) if now >= until => {
                running.writer.close(running.replica.producer_snapshot());
                running.stage = Stage::Closing;
            }
            Stage::Failed(until) if now >= until => running.stage = Stage::Done,
            _ => {}
        }
    }

    fn carry_out(&mut self, node: usize, running: &mut Running) -> Result<(), Violation> {
        let mut effects = std::mem::take(&mut running.effects);
        loop {
            running.replica.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                self.carry_out_one(node, running, effect)?;
            }
        }
        running.effects = effects;
        Ok(())
    }

    fn carry_out_one(
        &mut self,
        node: usize,
        running: &mut Running,
        effect: Effect,
    ) -> Result<(), Violation> {
        match effect {
            Effect::Send { to, id, request } => self.send(node, to, id, request)?,
            Effect::Respond {
                token,
                response,
                records,
            } => {
                self.respond(node, token.0, response, &records)?;
            }
            Effect::Append(batch) => self.append(node, running, batch)?,
            Effect::Truncate {
                end_offset,
                generation,
            } => {
                let end = end_offset.0.unsigned_abs();
                self.trace
                    .note(self.now, node, "cuts its log to", end, generation.0);
                self.stats.truncations += 1;
                let cut = self.checkers.logs[node].on_cut(end_offset);
                self.checkers.committed.on_cut(id_of(node), &cut)?;
                if !running.is_log_closed() {
                    running.writer.truncate(end_offset, generation);
                }
            }
            Effect::PersistElection { seq, election } => {
                let task = Task::PersistElection { seq, election };
                running.background.tasks.push_back(task);
            }
            Effect::Read { id, plan } => {
                running.background.tasks.push_back(Task::Read { id, plan });
            }
            Effect::ConsumerRead { id, records } => {
                if let Some((reader, from)) = running.reads.remove(&id) {
                    match records {
                        Ok(records) => self.show(node, running, reader, from, &records)?,
                        Err(_) => {
                            self.tell_reader(reader, crate::clients::ReaderTold::Nothing);
                        }
                    }
                }
            }
            Effect::ReadFault(error) => {
                self.trace
                    .say(self.now, node, format_args!("cannot read its log: {error}"));
            }
            Effect::Committed(high_watermark) => self.on_commit(node, running, high_watermark)?,
            Effect::Became {
                role,
                epoch,
                leader_id,
                reason,
            } => {
                let text = format_args!(
                    "becomes {role:?} in epoch {epoch} (leader {leader_id:?}): {reason}"
                );
                self.trace.say(self.now, node, text);
                let number = u64::from(epoch.0.unsigned_abs());
                self.trace
                    .note(self.now, node, "changes its state", number, role as u64);
                self.on_became(node, running, role, epoch)?;
            }
            Effect::Conflict { what, from } => {
                self.trace.say(
                    self.now,
                    node,
                    format_args!("conflict with {from:?}: {what}"),
                );
                self.stats.conflicts += 1;
            }
            Effect::ShutdownComplete => {
                if matches!(running.stage, Stage::Leaving(_)) {
                    running.stage = Stage::Lingering(self.now + LINGER);
                }
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        node: usize,
        running: &mut Running,
        batch: StampedBatch,
    ) -> Result<(), Violation> {
        let is_control = batches(&batch.bytes)
            .next()
            .and_then(Result::ok)
            .is_some_and(|(header, _)| header.is_control());
        let entry = Entry {
            base: batch.base_offset,
            end: batch.end_offset,
            epoch: batch.epoch,
            content: content_of(&batch.bytes),
            is_control,
        };
        self.trace.note(
            self.now,
            node,
            "appends",
            entry.base.0.unsigned_abs(),
            entry.content,
        );
        self.checkers.contents.on_batch(id_of(node), entry)?;
        self.checkers.logs[node].on_append(entry, batch.bytes.clone())?;
        if !running.is_log_closed() {
            running.writer.append(batch);
        }
        Ok(())
    }

    fn on_commit(
        &mut self,
        node: usize,
        running: &mut Running,
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let raft = running.replica.raft();
        let number = high_watermark.0.unsigned_abs();
        self.trace
            .note(self.now, node, "knows as committed", number, 0);
        let checkers = &mut self.checkers;
        checkers.committed.on_commit(
            id_of(node),
            raft.epoch(),
            high_watermark,
            checkers.logs[node].appended(),
            checkers.logs[..self.scenario.voters].iter(),
        )?;
        if raft.role() == Role::Leader {
            while let Some(pending) = running
                .appends
                .pop_front_if(|pending| pending.end <= high_watermark)
            {
                self.acknowledge(pending)?;
            }
        }
        Ok(())
    }

    fn on_became(
        &mut self,
        node: usize,
        running: &mut Running,
        role: Role,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        if role == Role::Leader {
            let is_new = self.checkers.leaders.on_leader(id_of(node), epoch)?;
            self.stats.leader_changes += u64::from(is_new);
            return Ok(());
        }
        for pending in std::mem::take(&mut running.appends) {
            self.tell_client(pending.client, pending.op, Told::Unknown);
        }
        Ok(())
    }
}
