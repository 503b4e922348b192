//! The storage engine without a node around it: log writer, ring and background thread as a node
//! uses them, driven by the calling thread. For the flush probe and for benches.
//!
//! It knows no quorum and serves nobody; records are whatever its caller appends, of no idempotent
//! producer.

use crate::background::{Background, BackgroundCounts, Done};
use crate::clock::Clock;
use crate::disk_io::{DiskOps, FlushMethod};
use crate::log_loop::{LogCommand, LogDriver};
use crate::metrics::LogMetrics;
use bytes::Bytes;
use quorate_raft::{Epoch, Offset};
use quorate_ring::{Completion, Counters, Engine, Ring, RingConfig, RingError, Wait};
use quorate_storage::format::{BatchHeader, stamp};
use quorate_storage::{
    FileDisk, LogConfig, LogEvent, ProducerStates, RecoveryError, RecoveryReport, StampedBatch,
    StorageError, open_log,
};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The epoch of everything that is appended.
const EPOCH: Epoch = Epoch(1);

const OPS: DiskOps = DiskOps {
    data: 1,
    mark: 2,
    flush: 3,
};

/// Why there is no log, or no more of it.
#[derive(Debug, Error)]
pub enum LoneLogError {
    /// It can't be opened.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The ring can't be opened.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The ring or a thread failed.
    #[error("the log's ring or threads failed: {0}")]
    Os(#[from] io::Error),
}

/// A log and what drives it. See the module.
pub struct LoneLog {
    ring: Ring,
    clock: Clock,
    driver: LogDriver,
    background: Background,
    metrics: Arc<LogMetrics>,
    completions: Vec<Completion>,
    appended: Offset,
    flushed: Offset,
    closed: bool,
    report: RecoveryReport,
    producers: ProducerStates,
}

impl LoneLog {
    /// Opens the log of `config`, or creates it, to be written by `method` on `engine`.
    ///
    /// # Errors
    /// See [`LoneLogError`].
    pub fn open(
        config: LogConfig,
        engine: Engine,
        method: FlushMethod,
    ) -> Result<Self, LoneLogError> {
        let mut ring = Ring::new(&RingConfig {
            engine,
            entries: 16,
            disk_threads: method.needs_disk_threads(),
        })?;
        let counts = Arc::new(BackgroundCounts::default());
        let dir = config.dir.clone();
        let background = Background::start(dir, Vec::new(), counts, ring.waker())?;
        let opened = open_log(FileDisk, config, EPOCH)?;
        let metrics = Arc::new(LogMetrics::default());
        let driver = LogDriver::new(
            opened.writer,
            &mut ring,
            OPS,
            method,
            background.clone(),
            Arc::clone(&metrics),
        );
        Ok(Self {
            ring,
            clock: Clock::new(),
            driver,
            background,
            metrics,
            completions: Vec::new(),
            appended: opened.log_end,
            flushed: opened.log_end,
            closed: false,
            report: opened.report,
            producers: opened.producers,
        })
    }

    /// What opening it found.
    #[must_use]
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// Gives `batch` the next offset, writing it into its header, and appends it.
    ///
    /// # Panics
    /// If it is not a whole batch.
    pub fn append(&mut self, mut batch: Vec<u8>) {
        stamp(&mut batch, self.appended, EPOCH);
        self.append_stamped(batch.into());
    }

    /// Appends a batch that has the next offset and the epoch 1 already.
    ///
    /// # Panics
    /// If it has not.
    pub fn append_stamped(&mut self, bytes: Bytes) {
        let header = BatchHeader::parse(&bytes).expect("a whole batch");
        let batch = StampedBatch {
            bytes,
            base_offset: header.base_offset,
            end_offset: header.end_offset(),
            epoch: header.epoch,
        };
        self.appended = batch.end_offset;
        self.driver.on_command(LogCommand::Append(batch));
    }

    /// One turn: starts what can start, waits, takes in what ended.
    ///
    /// # Errors
    /// If the disk or the ring failed; final.
    pub fn turn(&mut self, wait: Wait) -> Result<(), LoneLogError> {
        self.driver.start_io(&mut self.ring, self.clock.instant());
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.turn(wait, &mut completions)?;
        let now = self.clock.instant();
        for Completion { user, kind } in completions.drain(..) {
            let done = self.driver.on_completion(&mut self.ring, now, user, kind)?;
            self.take(done.map(|done| done.event));
        }
        self.completions = completions;
        while let Some(Done::Storage(done)) = self.background.next_result() {
            let done = self.driver.on_job_done(done)?;
            self.take(done.map(|done| done.event));
        }
        Ok(())
    }

    fn take(&mut self, event: Option<LogEvent>) {
        match event {
            Some(LogEvent::Flushed(flushed)) => self.flushed = flushed.end_offset,
            Some(LogEvent::Closed) => self.closed = true,
            _ => {}
        }
    }

    /// Turns until the next segment is prepared.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub fn prepare(&mut self) -> Result<(), LoneLogError> {
        while !self.driver.has_spare() {
            self.turn(Wait::Until { timeout: None })?;
        }
        Ok(())
    }

    /// Turns until all that was appended is durable.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub fn flush(&mut self) -> Result<(), LoneLogError> {
        while self.flushed < self.appended {
            self.turn(Wait::Until { timeout: None })?;
        }
        Ok(())
    }

    /// Flushes, seals, and marks the clean stop.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub fn close(mut self) -> Result<(), LoneLogError> {
        let producers = self.producers.snapshot(self.appended);
        self.driver.on_command(LogCommand::Close(Some(producers)));
        while !self.closed {
            self.turn(Wait::Until { timeout: None })?;
        }
        Ok(())
    }

    /// Whether the segment after the active one is prepared.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.driver.has_spare()
    }

    /// Segments that ended since it was opened.
    #[must_use]
    pub fn rolls(&self) -> u64 {
        self.driver.stats().rolls
    }

    /// End of what was appended (exclusive).
    #[must_use]
    pub fn appended_end(&self) -> Offset {
        self.appended
    }

    /// End of what is durable (exclusive).
    #[must_use]
    pub fn flushed_end(&self) -> Offset {
        self.flushed
    }

    /// What its ring did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.ring.counters()
    }

    /// What a node would show of it.
    #[must_use]
    pub fn metrics(&self) -> &LogMetrics {
        &self.metrics
    }
}
