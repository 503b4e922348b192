//! The background threads: everything that blocks on files or names and must stay off the loops.
//!
//! One for state files, segment rolls and cuts, which votes and commits wait for; one for reads for
//! replicas and consumers that lag; one that starts a thread for each name look-up, since a name
//! that takes half a minute to fail must not hold up that of a peer that is there. Preparing spare
//! segments is done in small steps on the first, and only while nothing else waits there. They
//! decide nothing: results go back to the loop that asked.

use crate::client_service::{BatchCheck, BatchChecked};
use crate::replica::ReadId;
use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use quorate_raft::{ElectionSeq, ElectionState, Endpoint, NodeId};
use quorate_ring::Waker;
use quorate_storage::format::Decompressor;
use quorate_storage::{FileDisk, Job, JobDone, ReadError, ReadPlan, write_quorum_state};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Tasks that may wait for a thread. The loops have few under way at a time: one storage job,
/// one state file, some dozens of reads, a name per peer.
const TASKS_MAX: usize = 4096;

/// Results that may wait for a loop; never fewer than tasks, so that the thread never blocks on a
/// loop that waits for it.
const RESULTS_MAX: usize = 4 * TASKS_MAX;

/// Pause between two steps of preparing a spare segment, so that commits keep the disk.
const PREPARE_PAUSE: Duration = Duration::from_millis(2);

/// Something to do in the background.
#[derive(Debug)]
pub enum Task {
    /// A blocking job of the log writer.
    Storage(Job<FileDisk>),
    /// Write the quorum-state file.
    PersistElection {
        /// Comes back.
        seq: ElectionSeq,
        /// What to write.
        election: ElectionState,
    },
    /// Read from the log.
    Read {
        /// Comes back.
        id: ReadId,
        /// What to read.
        plan: ReadPlan,
    },
    /// Check compressed batches.
    Check(BatchCheck),
    /// Look a host name up.
    Resolve {
        /// The name and port; comes back.
        endpoint: Endpoint,
    },
}

/// What came of a [`Task`] of the raft loop.
#[derive(Debug)]
pub enum Done {
    /// A storage job (only in the `fused` placement, where the raft loop drives the log writer).
    Storage(JobDone<FileDisk>),
    /// The quorum-state file is written, or could not be.
    ElectionPersisted {
        /// Which election.
        seq: ElectionSeq,
        /// Failure is final.
        result: io::Result<()>,
    },
    /// The read ended.
    Read {
        /// Which read.
        id: ReadId,
        /// The records.
        result: Result<Bytes, ReadError>,
    },
    /// The batches are checked.
    Checked(BatchChecked),
    /// The name is looked up.
    Resolved {
        /// The name and port.
        endpoint: Endpoint,
        /// Its addresses, best first.
        result: io::Result<Vec<SocketAddr>>,
    },
}

/// Where results of one kind go, and how to wake who reads them.
pub struct Mailbox<T> {
    queue: ArrayQueue<T>,
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// A mailbox of `capacity` for the loop behind `waker`.
    #[must_use]
    pub fn new(capacity: usize, waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            queue: ArrayQueue::new(capacity),
            waker,
        })
    }

    /// Puts a message in and wakes the reader; gives it back if the box is full.
    ///
    /// # Errors
    /// The message, if the box is full.
    pub fn send(&self, message: T) -> Result<(), T> {
        let sent = self.queue.push(message);
        self.waker.wake();
        sent
    }

    /// The next message, if any.
    #[must_use]
    pub fn receive(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Messages that wait to be received.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// Tasks that wait or are being carried out, by thread; for metrics.
#[derive(Debug, Default)]
pub struct BackgroundCounts {
    /// State files, segment rolls and cuts, preparation.
    pub files: AtomicI64,
    /// Reads.
    pub reads: AtomicI64,
    /// Checks of compressed batches.
    pub checks: AtomicI64,
    /// Name look-ups.
    pub names: AtomicI64,
}

impl BackgroundCounts {
    fn of(&self, task: &Task) -> &AtomicI64 {
        match task {
            Task::Storage(_) | Task::PersistElection { .. } => &self.files,
            Task::Read { .. } => &self.reads,
            Task::Check(_) => &self.checks,
            Task::Resolve { .. } => &self.names,
        }
    }

    fn ended(&self, done: &Done) {
        let thread = match done {
            Done::Storage(_) | Done::ElectionPersisted { .. } => &self.files,
            Done::Read { .. } => &self.reads,
            Done::Checked(_) => &self.checks,
            Done::Resolved { .. } => &self.names,
        };
        thread.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The loops' end of the background thread.
#[derive(Clone)]
pub struct Background {
    counts: Arc<BackgroundCounts>,
    files: SyncSender<Assignment>,
    reads: SyncSender<Assignment>,
    checks: SyncSender<Assignment>,
    names: SyncSender<Assignment>,
    results: Arc<Mailbox<Done>>,
}

/// A task, and where its result goes.
type Assignment = (Task, Arc<Mailbox<Done>>);

impl Background {
    /// Starts the threads. Results go to the loop behind `waker`.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(
        log_dir: PathBuf,
        voters: Vec<NodeId>,
        counts: Arc<BackgroundCounts>,
        waker: Waker,
    ) -> io::Result<Self> {
        let start = |name: &str| {
            let (tasks, receiver) = sync_channel(TASKS_MAX);
            let worker = Worker {
                log_dir: log_dir.clone(),
                voters: voters.clone(),
                counts: Arc::clone(&counts),
                receiver,
                prepare: VecDeque::new(),
                decompressor: Decompressor::new(),
            };
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || worker.run())?;
            io::Result::Ok(tasks)
        };
        Ok(Self {
            files: start("files")?,
            reads: start("reads")?,
            checks: start("checks")?,
            names: start("names")?,
            results: Mailbox::new(RESULTS_MAX, waker),
            counts,
        })
    }

    /// The same threads for another loop, with results of its own.
    #[must_use]
    pub fn for_loop(&self, waker: Waker) -> Self {
        Self {
            results: Mailbox::new(RESULTS_MAX, waker),
            ..self.clone()
        }
    }

    /// Hands a task over. Never blocks.
    ///
    /// # Panics
    /// If `TASKS_MAX` tasks of its kind wait already: the loops bound what they have under way.
    pub fn start_task(&self, task: Task) {
        self.counts.of(&task).fetch_add(1, Ordering::Relaxed);
        let thread = match &task {
            Task::Storage(_) | Task::PersistElection { .. } => &self.files,
            Task::Read { .. } => &self.reads,
            Task::Check(_) => &self.checks,
            Task::Resolve { .. } => &self.names,
        };
        match thread.try_send((task, Arc::clone(&self.results))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => panic!("more than {TASKS_MAX} background tasks"),
            Err(TrySendError::Disconnected(_)) => panic!("a background thread ended"),
        }
    }

    /// The next result, if any.
    #[must_use]
    pub fn next_result(&self) -> Option<Done> {
        self.results.receive()
    }
}

struct Worker {
    log_dir: PathBuf,
    voters: Vec<NodeId>,
    counts: Arc<BackgroundCounts>,
    receiver: Receiver<Assignment>,
    prepare: VecDeque<(Job<FileDisk>, Arc<Mailbox<Done>>)>,
    decompressor: Decompressor,
}

impl Worker {
    fn run(mut self) {
        loop {
            let next = if self.prepare.is_empty() {
                self.receiver
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.receiver.recv_timeout(PREPARE_PAUSE)
            };
            match next {
                Ok((Task::Storage(job), results)) if job.is_prepare() => {
                    self.prepare.push_back((job, results));
                }
                Ok((Task::Resolve { endpoint }, results)) => self.look_up(endpoint, results),
                Ok((task, results)) => {
                    let done = self.carry_out(task);
                    self.post(&results, done);
                }
                Err(RecvTimeoutError::Timeout) => self.prepare_one_step(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn prepare_one_step(&mut self) {
        if let Some((job, results)) = self.prepare.pop_front() {
            let done = Done::Storage(job.run());
            self.post(&results, done);
        }
    }

    fn carry_out(&mut self, task: Task) -> Done {
        match task {
            Task::Storage(job) => Done::Storage(job.run()),
            Task::PersistElection { seq, election } => Done::ElectionPersisted {
                seq,
                result: write_quorum_state(&FileDisk, &self.log_dir, &election, &self.voters),
            },
            Task::Read { id, plan } => Done::Read {
                id,
                result: plan.run(&FileDisk),
            },
            Task::Check(check) => Done::Checked(check.run(&mut self.decompressor)),
            Task::Resolve { .. } => unreachable!("each look-up has a thread of its own"),
        }
    }

    /// Starts a look-up. There are as many at a time as names in use: [`crate::peers::Peers`] asks
    /// for a name again only when it was answered.
    fn look_up(&self, endpoint: Endpoint, results: Arc<Mailbox<Done>>) {
        let (counts, back) = (Arc::clone(&self.counts), Arc::clone(&results));
        let looked_up = endpoint.clone();
        let run = move || {
            let found = (&*endpoint.host, endpoint.port).to_socket_addrs();
            let result = found.map(Iterator::collect);
            post(&counts, &back, Done::Resolved { endpoint, result });
        };
        let thread = std::thread::Builder::new().name("name".into()).spawn(run);
        if let Err(error) = thread {
            let result = Err(error);
            let endpoint = looked_up;
            self.post(&results, Done::Resolved { endpoint, result });
        }
    }

    fn post(&self, results: &Mailbox<Done>, done: Done) {
        post(&self.counts, results, done);
    }
}

/// Results outnumber tasks under way never, so the box has room.
fn post(counts: &BackgroundCounts, results: &Mailbox<Done>, done: Done) {
    counts.ended(&done);
    assert!(
        results.send(done).is_ok(),
        "a loop left more than {RESULTS_MAX} results unread"
    );
}
