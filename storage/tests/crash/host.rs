//! Whoever carries out the log's I/O: the two writes of a group in any order, then its flush, then
//! the report, and jobs beside them, each step when it is told to. Any number may be under way; a
//! completion that is held back is what a stalled disk looks like.

use crate::common::{Rng, dir};
use crate::disk::{Mistake, TestDisk};
use crate::model::Violation;
use quorate_raft::{ElectionState, NodeId};
use quorate_storage::format::batches;
use quorate_storage::{
    Disk, DiskFile, GroupIo, Io, Job, JobDone, LogConfig, LogEvent, LogWriter, OpenedLog,
    ProducerLimits, ProducerStates, SegmentIndex, StorageError, open_log, open_quorum_state,
};
use std::io;

/// The configured voters.
pub const VOTERS: [NodeId; 3] = [1, 2, 3];

/// A log, and what is under way.
pub struct Host {
    pub disk: TestDisk,
    pub writer: LogWriter<TestDisk>,
    pub index: SegmentIndex,
    pub election: ElectionState,
    /// As recovery found them: epoch and start offset.
    pub epochs: Vec<(i32, i64)>,
    pub log_end: i64,
    tasks: Vec<Task>,
    /// What the group before wrote: file position and bytes.
    last_data: Option<(u64, Vec<u8>)>,
}

enum Task {
    Group(GroupTask),
    Job(Job<TestDisk>),
    /// The job was carried out and nobody has heard of it.
    Done(JobDone<TestDisk>, &'static str),
}

struct GroupTask {
    io: GroupIo<TestDisk>,
    is_data_written: bool,
    is_mark_written: bool,
    flushed: Option<io::Result<()>>,
}

/// Starts on a disk as a node does: its vote first, then its log. The error says why there is none.
pub fn start(disk: &TestDisk, config: &LogConfig) -> Result<Host, Violation> {
    disk.set_recovering(true);
    let started = start_log(disk, config);
    disk.set_recovering(false);
    started
}

fn start_log(disk: &TestDisk, config: &LogConfig) -> Result<Host, Violation> {
    disk.create_dir_all(&dir())
        .map_err(|error| error.to_string())?;
    let election = open_quorum_state(disk, &dir(), &VOTERS).map_err(|error| error.to_string())?;
    let opened = open_log(disk.clone(), config.clone(), election.epoch);
    let opened = opened.map_err(|error| error.to_string())?;
    let OpenedLog {
        writer,
        index,
        log_end,
        epochs,
        ..
    } = opened;
    let epochs = epochs.iter();
    Ok(Host {
        disk: disk.clone(),
        writer,
        index,
        election,
        epochs: epochs.map(|e| (e.epoch.0, e.start_offset.0)).collect(),
        log_end: log_end.0,
        tasks: Vec::new(),
        last_data: None,
    })
}

impl Host {
    fn poll(&mut self) {
        while let Some(io) = self.writer.poll() {
            self.tasks.push(match io {
                Io::Group(io) => Task::Group(GroupTask {
                    io,
                    is_data_written: false,
                    is_mark_written: false,
                    flushed: None,
                }),
                Io::Job(job) => Task::Job(job),
            });
        }
        self.writer.fill_next_group();
        assert!(self.tasks.len() < 16, "too much under way");
    }

    /// Whether a truncation is being carried out.
    pub fn is_truncating(&self) -> bool {
        self.tasks.iter().any(|task| match task {
            Task::Job(job) => job.name() == "truncate",
            Task::Done(_, name) => *name == "truncate",
            Task::Group(_) => false,
        })
    }

    /// One step of something that is under way. `None` if nothing is.
    pub fn step(&mut self, rng: &mut Rng) -> Option<Result<Option<LogEvent>, StorageError>> {
        self.poll();
        if self.tasks.is_empty() {
            return None;
        }
        let index = rng.below(self.tasks.len());
        Some(self.step_of(index, rng))
    }

    fn step_of(&mut self, index: usize, rng: &mut Rng) -> Result<Option<LogEvent>, StorageError> {
        // Groups are flushed and told of in their order.
        let is_group = |task: &Task| matches!(task, Task::Group(_));
        let first_group = self.tasks.iter().position(is_group);
        match self.tasks.remove(index) {
            Task::Group(mut group) if group.flushed.is_none() => {
                if group.is_data_written && group.is_mark_written && first_group != Some(index) {
                    self.tasks.insert(index, Task::Group(group));
                    return Ok(None);
                }
                self.advance(&mut group, rng);
                self.tasks.insert(index, Task::Group(group));
                Ok(None)
            }
            Task::Group(group) => {
                let result = group.flushed.expect("it is flushed");
                let event = self.writer.on_group_done(group.io, result)?;
                Ok(self.told(event))
            }
            Task::Job(job) => {
                let name = job.name();
                self.tasks.push(Task::Done(job.run(), name));
                Ok(None)
            }
            Task::Done(done, _) => {
                let event = self.writer.on_job_done(done)?;
                Ok(self.told(event))
            }
        }
    }

    fn told(&mut self, event: Option<LogEvent>) -> Option<LogEvent> {
        if let Some(event) = &event {
            self.index.on_event(event);
        }
        event
    }

    /// The next write of a group, or its flush. As the ring's driver: what is short or interrupted
    /// is written again, everything else is final.
    fn advance(&mut self, group: &mut GroupTask, rng: &mut Rng) {
        let io = &group.io;
        let is_early = self.disk.mistake == Some(Mistake::FlushOvertakesWrite);
        let writes_data = !group.is_data_written && (group.is_mark_written || rng.chance(50));
        if is_early && group.is_mark_written && !group.is_data_written {
            let flushed = io.file.sync_data();
            group.flushed = Some(flushed.and_then(|()| self.write_data(io)));
            return;
        }
        if writes_data && !is_early {
            match self.write_data(io) {
                Ok(()) => group.is_data_written = true,
                Err(error) => group.flushed = Some(Err(error)),
            }
        } else if !group.is_mark_written {
            match write_whole(&*io.file, &io.mark, io.mark_position) {
                Ok(()) => group.is_mark_written = true,
                Err(error) => group.flushed = Some(Err(error)),
            }
        } else {
            group.flushed = Some(io.file.sync_data());
        }
    }

    fn write_data(&mut self, io: &GroupIo<TestDisk>) -> io::Result<()> {
        write_whole(&*io.file, &io.data, io.data_position)?;
        if self.disk.mistake == Some(Mistake::TailIsWrittenTwice) {
            let before = self.last_data.replace((io.data_position, io.data.to_vec()));
            if let Some((position, data)) = before
                && position + data.len() as u64 == io.data_position + 4096
            {
                write_whole(&*io.file, &data, position)?;
            }
        }
        Ok(())
    }

    /// A clean stop; the batches of these tests have no producers.
    pub fn close(&mut self) {
        let none = ProducerStates::new(ProducerLimits::default(), self.index.log_start());
        self.writer
            .close(Some(none.snapshot(self.writer.appended_end())));
    }

    /// Carries everything out. Gives what was reported.
    pub fn settle(&mut self, rng: &mut Rng) -> Result<Vec<LogEvent>, StorageError> {
        let mut events = Vec::new();
        while let Some(stepped) = self.step(rng) {
            events.extend(stepped?);
        }
        Ok(events)
    }

    /// All batches below the flushed end, read back.
    pub fn read_all(&self) -> Result<Vec<Vec<u8>>, Violation> {
        let end = self.index.flushed_end();
        let mut out = Vec::new();
        let mut next = self.index.log_start();
        while next < end {
            let plan = self.index.plan(next, 4096, end);
            let plan = plan.ok_or_else(|| format!("no plan to read offset {next}"))?;
            let bytes = plan.run(&self.disk).map_err(|error| error.to_string())?;
            for batch in batches(&bytes) {
                let (header, range) = batch.map_err(|error| error.to_string())?;
                if header.base_offset != next {
                    return Err(format!("read {} instead of {next}", header.base_offset));
                }
                next = header.end_offset();
                out.push(bytes[range].to_vec());
            }
        }
        Ok(out)
    }
}

fn write_whole(file: &impl DiskFile, buf: &[u8], position: u64) -> io::Result<()> {
    for _ in 0..16 {
        match file.write_at(buf, position) {
            Ok(written) if written == buf.len() => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::WriteZero))
}
