//! The replica: the raft core with its log bookkeeping, still without any I/O.
//!
//! Turns the core's outputs into effects that carry bytes: batches to write, answers with their
//! records. The raft loop carries the effects out on a ring; the simulator carries out the very
//! same effects on a simulated disk and network. It reads no clock and touches no file.

mod producers;
mod quota;

use crate::clock::Now;
use crate::tail::Tail;
use bytes::Bytes;
use producers::Producers;
pub use producers::{ProduceError, Produced};
use quorate_raft::{
    BatchMeta, ElectionSeq, ElectionState, Epoch, ErrorCode, FetchResponse, Generation, Instant,
    NodeId, Offset, Output, Outputs, Peer, Raft, Request, RequestFailure, RequestId, RequestToken,
    Response, Role,
};
use quorate_storage::format::{LeaderChange, batches, leader_change_batch};
use quorate_storage::{LogEvent, ProducerStates, ReadError, ReadPlan, SegmentIndex, StampedBatch};
pub use quota::{LogSize, QuotaLevel};
use std::collections::HashMap;

/// Names a read of the disk that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// One thing that the world must do for the replica, in the order given.
#[derive(Debug)]
pub enum Effect {
    /// Send a request to a peer. One that is still in flight to it is obsolete.
    Send {
        /// To whom.
        to: Peer,
        /// Comes back with the response.
        id: RequestId,
        /// What.
        request: Request,
    },
    /// Answer a peer's request, with `records` behind it if it was a Fetch.
    Respond {
        /// Which request.
        token: RequestToken,
        /// The answer.
        response: Response,
        /// Whole batches, in order.
        records: Vec<Bytes>,
    },
    /// Give a batch to the log writer.
    Append(StampedBatch),
    /// Tell the log writer to cut the log.
    Truncate {
        /// New log end (exclusive).
        end_offset: Offset,
        /// The generation that begins with the cut.
        generation: Generation,
    },
    /// Write the quorum-state file, then report `seq`.
    PersistElection {
        /// Comes back with the report.
        seq: ElectionSeq,
        /// What to write.
        election: ElectionState,
    },
    /// Read from the disk, then report `id`.
    Read {
        /// Comes back with the report.
        id: ReadId,
        /// What to read.
        plan: ReadPlan,
    },
    /// A read for a consumer is done: its records, or what the consumer is told.
    ConsumerRead {
        /// Which read.
        id: ReadId,
        /// Whole batches from the asked offset, all committed.
        records: Result<Bytes, ErrorCode>,
    },
    /// The log cannot be read where it should be sound. Nothing of it was given out.
    ReadFault(ReadError),
    /// The high watermark rose.
    Committed(Offset),
    /// The replica changed its state.
    Became {
        /// The new state.
        role: Role,
        /// Its epoch.
        epoch: Epoch,
        /// The leader, if known.
        leader_id: Option<NodeId>,
        /// Why.
        reason: &'static str,
    },
    /// A message conflicts with what is known to be true; nothing changed.
    Conflict {
        /// What it was.
        what: &'static str,
        /// Who sent it.
        from: Option<NodeId>,
    },
    /// The graceful shutdown is over.
    ShutdownComplete,
}

/// Reads of the disk under way at once, for replicas and consumers together.
const READS_MAX: usize = 64;

/// What a consumer's read gives.
#[derive(Debug, PartialEq, Eq)]
pub enum CommittedRead {
    /// Whole committed batches.
    Records(Vec<Bytes>),
    /// Nothing there yet: wait for the next commit.
    AtEnd,
    /// On its way from the disk: an [`Effect::ConsumerRead`] with this id follows.
    Pending(ReadId),
    /// Not now: enough reads of the disk are under way, or the log is being cut. Ask again.
    Busy,
    /// The offset is not in the log.
    OutOfRange,
    /// The high watermark of this epoch is not known yet.
    NotAvailable,
    /// This replica does not lead.
    NotLeader,
}

/// What whoever asked for records is told when they cannot be read. Kafka's replicas ask again
/// after any of these; a consumer's application may see an exception for the first.
fn told_of(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::Corrupt { .. } => ErrorCode::CORRUPT_MESSAGE,
        ReadError::Storage(_) | ReadError::Gone { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}

enum PendingRead {
    Replica {
        token: RequestToken,
        response: FetchResponse,
    },
    Consumer,
    /// To make the producer states anew.
    Producers,
}

/// The replica of one log.
pub struct Replica {
    raft: Raft,
    outputs: Outputs,
    effects: Vec<Effect>,
    tail: Tail,
    index: SegmentIndex,
    reads: HashMap<ReadId, (Generation, PendingRead)>,
    next_read: u64,
    fetched: Vec<(BatchMeta, Bytes)>,
    metas: Vec<BatchMeta>,
    producers: Producers,
    log_bytes_max: Option<u64>,
}

impl Replica {
    /// A replica around a started core. `outputs`: what the core's start asked for; `producers`:
    /// what the recovered log says of them.
    #[must_use]
    pub fn new(
        raft: Raft,
        outputs: Outputs,
        index: SegmentIndex,
        producers: ProducerStates,
        tail_bytes_max: usize,
        now: Now,
    ) -> Self {
        let tail = Tail::new(raft.log_end_offset(), tail_bytes_max);
        let mut replica = Self {
            raft,
            outputs,
            effects: Vec::new(),
            tail,
            index,
            reads: HashMap::new(),
            next_read: 0,
            fetched: Vec::new(),
            metas: Vec::new(),
            producers: Producers::new(producers, now),
            log_bytes_max: None,
        };
        replica.carry_out(now);
        replica
    }

    /// The core, for questions.
    #[must_use]
    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    /// Takes what is to be done, in order. `into` is cleared first and swapped in.
    pub fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.clear();
        std::mem::swap(&mut self.effects, into);
    }

    /// Bytes that are appended and not flushed: above a bound, senders have to wait.
    #[must_use]
    pub fn unflushed_bytes(&self) -> usize {
        self.tail.unflushed_bytes()
    }

    /// When [`Self::on_tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.raft.next_deadline(), self.producers.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// A peer's request came in.
    pub fn on_request(&mut self, now: Now, token: RequestToken, request: &Request) {
        self.raft
            .on_request(now.instant, token, request, &mut self.outputs);
        self.carry_out(now);
    }

    /// The connection of a parked request is gone.
    pub fn forget_request(&mut self, token: RequestToken) {
        self.raft.forget_request(token);
        self.reads.retain(|_, (_, read)| match read {
            PendingRead::Replica { token: waiting, .. } => *waiting != token,
            PendingRead::Consumer | PendingRead::Producers => true,
        });
    }

    /// A peer answered; `records` are those behind a Fetch answer.
    ///
    /// Batches behind the first broken one are ignored, as if they had not arrived.
    pub fn on_response(
        &mut self,
        now: Now,
        from: NodeId,
        id: RequestId,
        response: &Response,
        records: &Bytes,
    ) {
        self.fetched.clear();
        self.metas.clear();
        for found in batches(records) {
            let Ok((header, range)) = found else { break };
            let meta = header.meta();
            self.metas.push(meta);
            self.fetched.push((meta, records.slice(range)));
        }
        let metas = &self.metas;
        self.raft
            .on_response(now.instant, from, id, response, metas, &mut self.outputs);
        self.carry_out(now);
        self.fetched.clear();
    }

    /// A request could not be delivered or was not answered.
    pub fn on_request_failed(
        &mut self,
        now: Now,
        from: NodeId,
        id: RequestId,
        failure: RequestFailure,
    ) {
        self.raft
            .on_request_failed(now.instant, from, id, failure, &mut self.outputs);
        self.carry_out(now);
    }

    /// The log writer reports.
    pub fn on_log_event(&mut self, now: Now, event: &LogEvent) {
        let (generation, end_offset) = match event {
            LogEvent::Flushed(flushed) => (flushed.generation, flushed.end_offset),
            LogEvent::Truncated {
                generation,
                end_offset,
            } => (*generation, *end_offset),
            LogEvent::Closed => return,
        };
        // The index mirrors the writer's files, event by event. The core and the tail are ahead of
        // the writer: for them, a report of an older generation speaks of bytes already cut off.
        self.index.on_event(event);
        if generation != self.raft.generation() {
            return;
        }
        self.tail.on_flushed(end_offset);
        self.raft
            .on_flushed(now.instant, generation, end_offset, &mut self.outputs);
        self.carry_out(now);
    }

    /// The quorum-state file holds election `seq` now.
    pub fn on_election_persisted(&mut self, now: Now, seq: ElectionSeq) {
        self.raft
            .on_election_persisted(now.instant, seq, &mut self.outputs);
        self.carry_out(now);
    }

    /// A read of the disk ended. If the log was cut meanwhile, whatever came of it, the asker asks
    /// again; else an error is a fault of the log.
    pub fn on_read(&mut self, id: ReadId, result: Result<Bytes, ReadError>) {
        let Some((generation, read)) = self.reads.remove(&id) else {
            return;
        };
        let is_current = generation == self.raft.generation() && self.may_read_disk();
        let records = match result {
            Ok(records) if is_current => Ok(records),
            Err(error) if is_current => {
                let code = told_of(&error);
                self.effects.push(Effect::ReadFault(error));
                Err(code)
            }
            _ => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        match read {
            PendingRead::Consumer => self.effects.push(Effect::ConsumerRead { id, records }),
            PendingRead::Producers => self.producers.on_read(id, records.ok()),
            PendingRead::Replica { token, response } => {
                self.answer_from_disk(token, response, records);
            }
        }
    }

    fn answer_from_disk(
        &mut self,
        token: RequestToken,
        mut response: FetchResponse,
        records: Result<Bytes, ErrorCode>,
    ) {
        let leads = self.raft.role() == Role::Leader && self.raft.epoch() == response.leader.epoch;
        let mut parts = Vec::new();
        match records {
            Ok(bytes) if leads => parts.push(bytes),
            Ok(_) => {
                response.error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
                response.leader = self.raft.leader_info();
            }
            Err(error) => response.error = error,
        }
        let response = Response::Fetch(response);
        self.effects.push(Effect::Respond {
            token,
            response,
            records: parts,
        });
    }

    /// Fires the timers that are due.
    pub fn on_tick(&mut self, now: Now) {
        self.raft.on_tick(now.instant, &mut self.outputs);
        self.carry_out(now);
    }

    /// Ends a turn: answers parked Fetches that have news, and goes on with what was begun.
    pub fn finish_turn(&mut self, now: Now) {
        self.raft.finish_turn(now.instant, &mut self.outputs);
        self.carry_out(now);
        self.follow_log(now);
    }

    /// The disk failed: nothing is acknowledged any more, a leader resigns.
    pub fn on_storage_failed(&mut self, now: Now) {
        self.raft.on_storage_failed(now.instant, &mut self.outputs);
        self.carry_out(now);
    }

    /// Begins the graceful shutdown.
    pub fn shutdown(&mut self, now: Now) {
        self.raft.shutdown(now.instant, &mut self.outputs);
        self.carry_out(now);
    }

    /// Committed records for a consumer, from the batch that holds `from`.
    pub fn read_committed(&mut self, from: Offset, bytes_max: usize) -> CommittedRead {
        if self.raft.role() != Role::Leader {
            return CommittedRead::NotLeader;
        }
        if from < self.raft.log_start_offset() || from > self.raft.log_end_offset() {
            return CommittedRead::OutOfRange;
        }
        let Some(high_watermark) = self.raft.high_watermark() else {
            return CommittedRead::NotAvailable;
        };
        if from >= high_watermark {
            return CommittedRead::AtEnd;
        }
        match self.tail.read(from, bytes_max, high_watermark) {
            Some(parts) if parts.is_empty() => CommittedRead::AtEnd,
            Some(parts) => CommittedRead::Records(parts),
            None if !self.may_read_disk() || self.reads.len() >= READS_MAX => CommittedRead::Busy,
            None => match self.index.plan(from, bytes_max, high_watermark) {
                Some(plan) => CommittedRead::Pending(self.start_read(plan, PendingRead::Consumer)),
                None => CommittedRead::AtEnd,
            },
        }
    }

    /// Whether the files are what the core believes they are. While a cut is being carried out they
    /// still hold records that are gone.
    fn may_read_disk(&self) -> bool {
        self.index.generation() == self.raft.generation()
    }

    fn start_read(&mut self, plan: ReadPlan, read: PendingRead) -> ReadId {
        let id = ReadId(self.next_read);
        self.next_read += 1;
        self.reads.insert(id, (self.raft.generation(), read));
        self.effects.push(Effect::Read { id, plan });
        id
    }

    fn append(&mut self, now: Now, batch: StampedBatch) {
        self.producers.on_append(now, &batch.bytes);
        self.tail.push(batch.clone());
        self.effects.push(Effect::Append(batch));
    }

    /// Turns the core's outputs into effects, in order.
    fn carry_out(&mut self, now: Now) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            self.carry_out_one(now, output);
        }
        self.outputs = outputs;
    }

    fn carry_out_one(&mut self, now: Now, output: Output) {
        match output {
            Output::Send { to, id, request } => self.effects.push(Effect::Send { to, id, request }),
            Output::Respond { token, response } => {
                self.effects.push(Effect::Respond {
                    token,
                    response,
                    records: Vec::new(),
                });
            }
            Output::RespondFetch {
                token,
                response,
                max_bytes,
            } => {
                self.respond_fetch(token, response, max_bytes);
            }
            Output::AppendLeaderChange {
                base_offset,
                epoch,
                voters,
                granting,
            } => {
                self.append_leader_change(now, base_offset, epoch, voters, granting);
            }
            Output::AppendFetched { count } => {
                assert!(
                    count <= self.fetched.len(),
                    "the core appends only what it was given"
                );
                let fetched = std::mem::take(&mut self.fetched);
                for (meta, bytes) in fetched.iter().take(count) {
                    let batch = StampedBatch {
                        bytes: bytes.clone(),
                        base_offset: meta.base_offset,
                        end_offset: meta.end_offset,
                        epoch: meta.epoch,
                    };
                    self.append(now, batch);
                }
                self.fetched = fetched;
            }
            Output::Truncate {
                end_offset,
                generation,
            } => {
                self.tail.truncate(end_offset);
                self.producers.on_truncate(self.raft.log_start_offset());
                self.effects.push(Effect::Truncate {
                    end_offset,
                    generation,
                });
            }
            Output::PersistElection { seq, election } => {
                self.effects.push(Effect::PersistElection { seq, election });
            }
            Output::Commit { high_watermark } => {
                self.effects.push(Effect::Committed(high_watermark));
            }
            Output::Become {
                role,
                epoch,
                leader_id,
                reason,
            } => {
                self.effects.push(Effect::Became {
                    role,
                    epoch,
                    leader_id,
                    reason,
                });
            }
            Output::Conflict { what, from } => self.effects.push(Effect::Conflict { what, from }),
            Output::ShutdownComplete => self.effects.push(Effect::ShutdownComplete),
        }
    }

    /// Attaches records to a Fetch answer: from memory, else by a read of the disk.
    fn respond_fetch(&mut self, token: RequestToken, mut response: FetchResponse, max_bytes: i32) {
        let mut records = Vec::new();
        if let Some(from) = response.records_from {
            let bytes_max = usize::try_from(max_bytes).unwrap_or(0);
            let end = self.raft.log_end_offset();
            match self.tail.read(from, bytes_max, end) {
                Some(parts) => records = parts,
                // An error makes the replica ask again after its backoff.
                None if !self.may_read_disk() || self.reads.len() >= READS_MAX => {
                    response.error = ErrorCode::UNKNOWN_SERVER_ERROR;
                }
                None => {
                    if let Some(plan) = self.index.plan(from, bytes_max, end) {
                        self.start_read(plan, PendingRead::Replica { token, response });
                        return;
                    }
                }
            }
        }
        self.effects.push(Effect::Respond {
            token,
            response: Response::Fetch(response),
            records,
        });
    }

    fn append_leader_change(
        &mut self,
        now: Now,
        base_offset: Offset,
        epoch: Epoch,
        voters: Vec<NodeId>,
        granting: Vec<NodeId>,
    ) {
        let change = LeaderChange {
            leader_id: self.raft.leader_id().expect("a leader knows itself"),
            voters,
            granting_voters: granting,
        };
        let bytes = leader_change_batch(base_offset, epoch, now.wall_ms, &change).into();
        let batch = StampedBatch {
            bytes,
            base_offset,
            end_offset: Offset(base_offset.0 + 1),
            epoch,
        };
        self.append(now, batch);
    }
}
