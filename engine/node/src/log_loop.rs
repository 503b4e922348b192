//! Step 4 of 5 of the append path, in the `split` placement: the log writer on its own core.
//!
//! Before: the raft loop, which sends commands; after: `quorate_storage::LogWriter`, which forms
//! groups, and the ring, which writes and flushes them. In the `fused` placement the raft loop
//! drives the same [`LogDriver`] itself.

use crate::background::{Background, Done, Mailbox, Task};
use crate::clock::Clock;
use crate::disk_io::{DiskOps, FlushMethod, GroupExecutor};
use crate::metrics::{GroupTimes, LogMetrics};
use quorate_raft::{Generation, Instant, Offset};
use quorate_ring::{AlignedBuf, Completion, CompletionKind, Ring, Wait};
use quorate_storage::{
    FileDisk, Io, JobDone, LogEvent, LogWriter, ProducerSnapshot, StampedBatch, StorageError,
    WriterStats,
};
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;

/// What the raft loop tells the log writer.
#[derive(Debug)]
pub enum LogCommand {
    /// Append a batch.
    Append(StampedBatch),
    /// Cut the log.
    Truncate {
        /// New end.
        end_offset: Offset,
        /// The generation that begins.
        generation: Generation,
    },
    /// Flush everything, seal, mark the clean stop; with what is known of producers, if it is.
    Close(Option<ProducerSnapshot>),
}

/// Something that the log writer has done.
#[derive(Clone, Copy, Debug)]
pub struct LogDone {
    /// What.
    pub event: LogEvent,
    /// When the group was where, if it was one.
    pub times: Option<GroupTimes>,
}

/// What the log writer reports.
pub type LogReport = Result<LogDone, StorageError>;

/// The log writer with the ring and the background thread that carry its I/O out.
pub struct LogDriver {
    writer: LogWriter<FileDisk>,
    executor: GroupExecutor,
    background: Background,
    metrics: Arc<LogMetrics>,
}

impl LogDriver {
    /// Drives `writer` on `ring`; its blocking jobs go to `background`.
    #[must_use]
    pub fn new(
        mut writer: LogWriter<FileDisk>,
        ring: &mut Ring,
        ops: DiskOps,
        method: FlushMethod,
        background: Background,
        metrics: Arc<LogMetrics>,
    ) -> Self {
        if !method.needs_disk_threads() {
            register_buffers(&mut writer, ring);
        }
        Self {
            writer,
            executor: GroupExecutor::new(ops, method),
            background,
            metrics,
        }
    }

    /// Whether the segment after the active one is prepared.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.writer.has_spare()
    }

    /// What the writer counts.
    #[must_use]
    pub fn stats(&self) -> &WriterStats {
        self.writer.stats()
    }

    /// Takes a command. Nothing is started before [`Self::start_io`].
    pub fn on_command(&mut self, command: LogCommand) {
        match command {
            LogCommand::Append(batch) => self.writer.append(batch),
            LogCommand::Truncate {
                end_offset,
                generation,
            } => {
                self.writer.truncate(end_offset, generation);
            }
            LogCommand::Close(producers) => self.writer.close(producers),
        }
    }

    /// Starts what the writer wants to be done next. Called once per turn, after its commands, so
    /// that all of them share one group.
    pub fn start_io(&mut self, ring: &mut Ring, now: Instant) {
        while let Some(io) = self.writer.poll() {
            match io {
                Io::Group(group) => self.executor.start(ring, now, group),
                Io::Job(job) => self.background.start_task(Task::Storage(job)),
            }
        }
        // The disk should not wait while much is copied for the next group.
        if self.writer.waiting_bytes() >= LONG_COPY_BYTES {
            ring.submit();
        }
        self.writer.fill_next_group();
    }

    /// A write or flush of the group in flight completed.
    ///
    /// # Errors
    /// If the disk failed: final.
    pub fn on_completion(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        user: u64,
        kind: CompletionKind,
    ) -> Result<Option<LogDone>, StorageError> {
        let done = self.executor.on_completion(ring, now, user, kind);
        let Some((group, result, times)) = done else {
            return Ok(None);
        };
        let before = *self.writer.stats();
        let event = self.writer.on_group_done(group, result)?;
        self.metrics.on_group(times, &before, self.writer.stats());
        Ok(event.map(|event| LogDone {
            event,
            times: Some(times),
        }))
    }

    /// A blocking job ended.
    ///
    /// # Errors
    /// If the disk failed: final.
    pub fn on_job_done(
        &mut self,
        done: JobDone<FileDisk>,
    ) -> Result<Option<LogDone>, StorageError> {
        let event = self.writer.on_job_done(done)?;
        let times = None;
        Ok(event.map(|event| LogDone { event, times }))
    }
}

/// Copying as much takes about as long as a system call.
const LONG_COPY_BYTES: usize = 32 * 1024;

/// Locked memory that a user must be allowed for buffers to be registered. Rings count against the
/// same limit, of all nodes of the user together, and no node starts without those.
const LOCKED_BYTES_ENOUGH: u64 = 64 << 20;

fn register_buffers(writer: &mut LogWriter<FileDisk>, ring: &mut Ring) {
    let limit = getrlimit(Resource::Memlock).current;
    if limit.is_some_and(|limit| limit < LOCKED_BYTES_ENOUGH) {
        return;
    }
    let mut buffers: Vec<&mut AlignedBuf> = writer.group_buffers().collect();
    if let Err(error) = ring.register_buffers(&mut buffers) {
        tracing::warn!(
            %error,
            "the kernel does not lock the buffers of the log in memory, which makes large writes \
             slower; mostly the limit for locked memory (ulimit -l, LimitMEMLOCK=) is too low"
        );
    }
}

/// Commands that may wait for the log writer.
pub const COMMANDS_MAX: usize = 4096;
/// Reports that may wait for the raft loop.
pub const REPORTS_MAX: usize = 4096;

/// The log writer's own loop.
pub struct LogLoop {
    ring: Ring,
    clock: Clock,
    driver: LogDriver,
    background: Background,
    commands: Arc<Mailbox<Vec<LogCommand>>>,
    reports: Arc<Mailbox<LogReport>>,
    wait: Wait,
}

const DATA: u64 = 1;
const MARK: u64 = 2;
const FLUSH: u64 = 3;

impl LogLoop {
    /// Two writes and a flush are in flight at most, and the ring's own wake-up read.
    pub const RING_ENTRIES: u32 = 16;

    /// The loop around `writer`, between the two mailboxes.
    #[must_use]
    pub fn new(
        mut ring: Ring,
        clock: Clock,
        writer: LogWriter<FileDisk>,
        method: FlushMethod,
        background: Background,
        metrics: Arc<LogMetrics>,
        commands: Arc<Mailbox<Vec<LogCommand>>>,
        reports: Arc<Mailbox<LogReport>>,
        wait: Wait,
    ) -> Self {
        let ops = DiskOps {
            data: DATA,
            mark: MARK,
            flush: FLUSH,
        };
        let driver = LogDriver::new(writer, &mut ring, ops, method, background.clone(), metrics);
        Self {
            ring,
            clock,
            driver,
            background,
            commands,
            reports,
            wait,
        }
    }

    /// Runs until the log is closed or the disk fails.
    pub fn run(mut self) {
        let mut completions: Vec<Completion> = Vec::new();
        let mut now = self.clock.instant();
        loop {
            while let Some(commands) = self.commands.receive() {
                commands
                    .into_iter()
                    .for_each(|command| self.driver.on_command(command));
            }
            while let Some(Done::Storage(done)) = self.background.next_result() {
                let outcome = self.driver.on_job_done(done);
                if self.report(outcome) {
                    return;
                }
            }
            self.driver.start_io(&mut self.ring, now);
            if let Err(error) = self.ring.turn(self.wait, &mut completions) {
                panic!("the log writer's ring failed: {error}");
            }
            now = self.clock.instant();
            for Completion { user, kind } in completions.drain(..) {
                let outcome = self.driver.on_completion(&mut self.ring, now, user, kind);
                if self.report(outcome) {
                    return;
                }
            }
        }
    }

    /// Passes an outcome on; whether it was the last.
    fn report(&mut self, outcome: Result<Option<LogDone>, StorageError>) -> bool {
        let Some(report) = outcome.transpose() else {
            return false;
        };
        let last = match &report {
            Ok(done) => done.event == LogEvent::Closed,
            Err(_) => true,
        };
        assert!(
            self.reports.send(report).is_ok(),
            "{REPORTS_MAX} log reports are unread"
        );
        last
    }
}
