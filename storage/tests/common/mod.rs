//! Shared by the tests of the log: batches, a driver that carries out I/O, and chance from a seed.
#![allow(dead_code)] // every test file uses a part

use bytes::Bytes;
use quorate_raft::{Epoch, Generation, Offset};
use quorate_storage::format::{BatchBuilder, BatchHeader, NewRecord, batches};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{
    Disk, Io, LogConfig, LogEvent, LogWriter, OpenedLog, ProducerLimits, ProducerSnapshot,
    ProducerStates, RecoveryError, SegmentIndex, StampedBatch, StorageError, open_log,
};
use std::path::{Path, PathBuf};

/// Of every test's topic.
pub const TOPIC: [u8; 16] = [7; 16];

/// Later than any epoch in the tests.
pub const QUORUM_EPOCH: Epoch = Epoch(1_000_000);

/// Numbers from a seed (splitmix64).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

pub fn dir() -> PathBuf {
    PathBuf::from("/log/topic-0")
}

pub fn config_in(dir: PathBuf, segment_bytes: u64) -> LogConfig {
    LogConfig {
        segment_bytes,
        group_bytes_max: 8 * 1024,
        ..LogConfig::new(dir, TOPIC)
    }
}

pub fn config(segment_bytes: u64) -> LogConfig {
    config_in(dir(), segment_bytes)
}

/// A batch of one record and exactly `size` bytes, whose content tells `tag`.
pub fn batch(base: Offset, epoch: Epoch, size: usize, tag: u64) -> StampedBatch {
    let mut value = vec![0; size];
    let mut rng = Rng(tag);
    value
        .iter_mut()
        .for_each(|byte| *byte = rng.next() as u8 | 1);
    for overhead in 60..90 {
        let Some(len) = size.checked_sub(overhead) else {
            break;
        };
        let mut builder = BatchBuilder::new(base, epoch);
        builder.push(NewRecord::value(tag as i64, &value[..len]));
        let bytes = builder.build();
        if bytes.len() == size {
            return stamped(bytes);
        }
    }
    panic!("no batch has {size} bytes");
}

pub fn stamped(bytes: Vec<u8>) -> StampedBatch {
    let meta = BatchHeader::parse_whole(&bytes).unwrap().meta();
    StampedBatch {
        bytes: Bytes::from(bytes),
        base_offset: meta.base_offset,
        end_offset: meta.end_offset,
        epoch: meta.epoch,
    }
}

/// A log and somebody who carries out its I/O at once.
pub struct Driver<D: Disk> {
    pub disk: D,
    pub writer: LogWriter<D>,
    pub index: SegmentIndex,
    pub opened: Opened,
    pub in_flight: Vec<Io<D>>,
}

/// What opening found.
#[derive(Debug)]
pub struct Opened {
    pub log_start: Offset,
    pub log_end: Offset,
    pub epochs: Vec<(i32, i64)>,
    pub report: quorate_storage::RecoveryReport,
}

pub fn open<D: Disk>(disk: &D, config: LogConfig) -> Result<Driver<D>, RecoveryError> {
    let opened = open_log(disk.clone(), config, QUORUM_EPOCH)?;
    let OpenedLog {
        writer,
        index,
        log_start,
        log_end,
        epochs,
        report,
        ..
    } = opened;
    let epochs = epochs
        .iter()
        .map(|entry| (entry.epoch.0, entry.start_offset.0))
        .collect();
    Ok(Driver {
        disk: disk.clone(),
        writer,
        index,
        opened: Opened {
            log_start,
            log_end,
            epochs,
            report,
        },
        in_flight: Vec::new(),
    })
}

impl<D: Disk> Driver<D> {
    /// Starts what can be started.
    pub fn start(&mut self) {
        while let Some(io) = self.writer.poll() {
            self.in_flight.push(io);
        }
        self.writer.fill_next_group();
        let mains = self.in_flight.iter().filter(|io| !is_prepare(io)).count();
        assert!(
            mains <= 1 && self.in_flight.len() <= mains + 1,
            "too much in flight"
        );
    }

    /// Completes the started I/O number `index`.
    pub fn complete(&mut self, index: usize) -> Result<Option<LogEvent>, StorageError> {
        let event = match self.in_flight.remove(index) {
            Io::Group(group) => {
                let result = group.run_blocking();
                self.writer.on_group_done(group, result)?
            }
            Io::Job(job) => {
                let done = job.run();
                self.writer.on_job_done(done)?
            }
        };
        if let Some(event) = &event {
            self.index.on_event(event);
        }
        Ok(event)
    }

    /// Carries everything out, in order, until nothing is left to do.
    pub fn settle(&mut self) -> Result<Vec<LogEvent>, StorageError> {
        let mut events = Vec::new();
        loop {
            self.start();
            if self.in_flight.is_empty() {
                return Ok(events);
            }
            events.extend(self.complete(0)?);
        }
    }

    /// Appends one batch at the end.
    pub fn append(&mut self, epoch: i32, size: usize, tag: u64) -> StampedBatch {
        let batch = batch(self.writer.appended_end(), Epoch(epoch), size, tag);
        self.writer.append(batch.clone());
        batch
    }

    /// Appends and flushes `count` batches of `size` bytes each in their own group.
    pub fn fill(&mut self, epoch: i32, count: usize, size: usize) -> Vec<StampedBatch> {
        (0..count)
            .map(|index| {
                let batch = self.append(epoch, size, index as u64);
                self.settle().unwrap();
                batch
            })
            .collect()
    }

    pub fn truncate(&mut self, end: i64, generation: u64) {
        self.writer.truncate(Offset(end), Generation(generation));
    }

    /// What a log of batches without producers knows of producers.
    pub fn producers(&self) -> ProducerSnapshot {
        let none = ProducerStates::new(ProducerLimits::default(), self.index.log_start());
        none.snapshot(self.writer.appended_end())
    }

    pub fn close(mut self) {
        self.writer.close(Some(self.producers()));
        let events = self.settle().unwrap();
        assert_eq!(events.last(), Some(&LogEvent::Closed));
        assert!(self.writer.poll().is_none());
    }

    /// All batches below the flushed end, read back.
    pub fn read_all(&self) -> Vec<Vec<u8>> {
        let end = self.index.flushed_end();
        let mut out = Vec::new();
        let mut next = self.index.log_start();
        while next < end {
            let plan = self
                .index
                .plan(next, 4096, end)
                .expect("an offset of the log");
            let bytes = plan.run(&self.disk).unwrap();
            for batch in batches(&bytes) {
                let (header, range) = batch.unwrap();
                assert_eq!(header.base_offset, next, "continuity of what is read");
                next = header.end_offset();
                out.push(bytes[range].to_vec());
            }
        }
        out
    }
}

pub fn is_prepare<D: Disk>(io: &Io<D>) -> bool {
    matches!(io, Io::Job(job) if job.is_prepare())
}

pub fn bytes_of(batches: &[StampedBatch]) -> Vec<Vec<u8>> {
    batches.iter().map(|batch| batch.bytes.to_vec()).collect()
}

pub fn log_path(base: i64) -> PathBuf {
    dir().join(format!("{base:020}.log"))
}

/// Content of all files of the log's directory, to see that nothing was changed.
pub fn all_files(disk: &SimDisk, dir: &Path) -> Vec<(String, Vec<u8>)> {
    let names = disk.list(dir).unwrap();
    let content = |name: String| {
        let content = disk.content(&dir.join(&name)).unwrap();
        (name, content)
    };
    names.into_iter().map(content).collect()
}
