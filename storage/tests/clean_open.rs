//! A log that was closed cleanly is opened without being read, as long as it is as it was left; and
//! what a disk did to its bytes meanwhile is found when they are read.

mod common;

use common::{Driver, Rng, all_files, batch, bytes_of, config, dir, log_path, open, stamped};
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::{BatchBuilder, BatchHeader, NewRecord};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{
    Disk, DiskFile, LogEvent, OpenMode, ReadError, ReadFault, StampedBatch, open_log,
};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEGMENT: u64 = 64 * 1024;

/// A log of `count` batches of 1000 bytes in two epochs, closed cleanly.
fn closed(count: usize) -> (SimDisk, Vec<StampedBatch>) {
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    let mut batches = driver.fill(1, count / 2, 1000);
    batches.extend(driver.fill(2, count - count / 2, 1000));
    driver.close();
    (disk, batches)
}

fn index_path(base: i64) -> PathBuf {
    dir().join(format!("{base:020}.index"))
}

/// A disk that counts the bytes that are read from it.
#[derive(Clone)]
struct Counting {
    disk: SimDisk,
    read: Arc<AtomicU64>,
}

struct CountingFile {
    file: <SimDisk as Disk>::File,
    read: Arc<AtomicU64>,
}

impl fmt::Debug for CountingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl Disk for Counting {
    type File = CountingFile;

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<CountingFile> {
        let file = self.disk.open(path, mode)?;
        let read = Arc::clone(&self.read);
        Ok(CountingFile { file, read })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn unique_id(&self) -> io::Result<[u8; 16]> {
        self.disk.unique_id()
    }
}

impl DiskFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let count = self.file.read_at(buf, pos)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        self.file.write_at(buf, pos)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Opens and says how many bytes were read for it.
fn read_by_open(disk: SimDisk) -> u64 {
    let read = Arc::new(AtomicU64::new(0));
    let disk = Counting {
        disk,
        read: Arc::clone(&read),
    };
    open(&disk, config(SEGMENT)).unwrap();
    read.load(Ordering::Relaxed)
}

#[test]
fn a_log_that_was_closed_cleanly_is_not_read() {
    let (small, _) = closed(100);
    let (large, batches) = closed(2000);
    let found = open(&large.duplicate(), config(SEGMENT)).unwrap();
    assert!(found.opened.report.is_clean);
    assert_eq!(found.opened.report.batches, None);
    assert_eq!(found.opened.report.bytes, 2_000_000);
    assert_eq!(found.opened.log_end, Offset(2000));
    assert_eq!(found.opened.epochs, [(1, 0), (2, 1000)]);
    assert!(found.read_all() == bytes_of(&batches));
    let (less, more) = (read_by_open(small), read_by_open(large.duplicate()));
    assert!(less < 16 * 1024 && more < 16 * 1024, "{less}, {more}");
    // After a crash all of it is read: the marker is gone.
    open(&large, config(SEGMENT)).unwrap();
    let found = open(&large, config(SEGMENT)).unwrap();
    assert_eq!(found.opened.report.batches, Some(2000));
}

#[test]
fn a_log_opened_without_reading_goes_on_as_any_other() {
    let (disk, mut batches) = closed(300);
    for round in 0..4 {
        let mut driver = open(&disk, config(SEGMENT)).unwrap();
        assert_eq!(driver.opened.report.batches, None, "round {round}");
        batches.extend(driver.fill(3 + round, 40, 1000));
        assert!(driver.read_all() == bytes_of(&batches));
        let end = batches.len() as i64 - 70;
        driver.truncate(end, 1);
        driver.settle().unwrap();
        batches.truncate(end as usize);
        assert!(driver.read_all() == bytes_of(&batches), "round {round}");
        driver.close();
    }
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    driver.truncate(0, 1);
    driver.settle().unwrap();
    assert!(driver.read_all().is_empty());
    driver.close();
    assert_eq!(
        open(&disk, config(SEGMENT)).unwrap().opened.log_end,
        Offset(0)
    );
}

/// Nothing in the directory can be taken away, cut, lengthened or added unnoticed.
#[test]
fn whatever_is_not_as_it_was_left_makes_everything_be_read() {
    let (disk, batches) = closed(300);
    let is_trusted = |image: &SimDisk, what: &str| {
        let before = all_files(image, &dir());
        match open(image, config(SEGMENT)) {
            Ok(found) if found.opened.report.batches.is_none() => true,
            Ok(found) => {
                assert!(found.read_all() == bytes_of(&batches), "{what}");
                false
            }
            Err(error) => {
                let same = all_files(image, &dir()) == before;
                assert!(same, "{what}: changed in spite of {error}");
                false
            }
        }
    };
    assert!(is_trusted(&disk.duplicate(), "untouched"));
    let mut tried = 0;
    for (name, content) in all_files(&disk, &dir()) {
        let path = dir().join(&name);
        let counts = name.ends_with(".log")
            || name == "quorate-producers"
            || name == "leader-epoch-checkpoint"
            || name == ".quorate_cleanshutdown";
        if !counts {
            continue;
        }
        let longer = [&content[..], b"0\n"].concat();
        for edited in [&content[..content.len() - 2], b"", &longer] {
            let image = disk.duplicate();
            image.edit(&path, |bytes| *bytes = edited.to_vec());
            assert!(!is_trusted(&image, &name), "{name}: {} bytes", edited.len());
            tried += 1;
        }
        let image = disk.duplicate();
        image.remove(&path).unwrap();
        assert!(!is_trusted(&image, &name), "{name} removed");
        if !name.ends_with(".log") {
            for at in 0..content.len() {
                let image = disk.duplicate();
                image.edit(&path, |bytes| bytes[at] ^= 1);
                assert!(!is_trusted(&image, &name), "{name}, byte {at} changed");
                tried += 1;
            }
        }
    }
    let image = disk.duplicate();
    image.put(&log_path(300), b"");
    assert!(!is_trusted(&image, "a segment more"));
    assert!(tried > 100, "{tried}");
}

/// The end of the log is looked at even so.
#[test]
fn a_last_batch_that_is_damaged_is_refused_at_the_start() {
    let (disk, _) = closed(300);
    for at in 0..1000 {
        let image = disk.duplicate();
        image.edit(&log_path(260), |bytes| {
            let start = bytes.len() - 1000;
            bytes[start + at] ^= 0x20;
        });
        assert!(open(&image, config(SEGMENT)).is_err(), "byte {at}");
    }
}

/// What is read between two damaged batches, and what the damage is called.
fn assert_read_around(driver: &Driver<SimDisk>, batches: &[StampedBatch], bad: usize, what: &str) {
    let end = Offset(batches.len() as i64);
    for (from, expected) in batches.iter().enumerate() {
        let plan = driver.index.plan(Offset(from as i64), 1000, end).unwrap();
        match plan.run(&driver.disk) {
            Ok(bytes) if from != bad => assert!(bytes == expected.bytes, "{what}: {from}"),
            Ok(_) => panic!("{what}: given out"),
            // Batches that are found by way of the damaged one are out of reach as well.
            Err(ReadError::Corrupt {
                position, offset, ..
            }) => {
                let reach = bad..bad + 70;
                assert!(reach.contains(&from), "{what}: {from}");
                assert_eq!(offset, Offset(bad as i64), "{what}");
                assert_eq!(position, bad as u64 % 65 * 1000, "{what}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

#[test]
fn a_batch_that_rotted_in_a_log_that_was_not_read_is_never_given_out() {
    let (disk, batches) = closed(300);
    for at in [0, 7, 8, 11, 12, 15, 16, 17, 21, 30, 60, 61, 500, 999] {
        let image = disk.duplicate();
        image.edit(&log_path(65), |bytes| bytes[20_000 + at] ^= 0x04);
        let driver = open(&image, config(SEGMENT)).unwrap();
        assert_eq!(driver.opened.report.batches, None, "byte {at}");
        assert_read_around(&driver, &batches, 85, &format!("byte {at}"));
        let plan = driver.index.plan(Offset(70), 1 << 20, Offset(300)).unwrap();
        let before = bytes_of(&batches[70..85]).concat();
        assert!(plan.run(&image).unwrap() == before, "up to the fault");
    }
}

#[test]
fn the_epoch_of_what_is_read_must_be_the_logs() {
    let (disk, _) = closed(300);
    // The second epoch begins at 150.
    for (offset, epoch) in [(149, 2), (150, 1), (100, 0), (200, 3)] {
        let image = disk.duplicate();
        let base = offset / 65 * 65;
        image.edit(&log_path(base), |bytes| {
            bytes[(offset - base) as usize * 1000 + 15] = epoch;
        });
        let driver = open(&image, config(SEGMENT)).unwrap();
        let plan = driver
            .index
            .plan(Offset(offset), 1000, Offset(300))
            .unwrap();
        let error = plan.run(&image).unwrap_err();
        let ReadError::Corrupt { fault, .. } = &error else {
            panic!("{error}");
        };
        let found = Epoch(epoch.into());
        let is_named = matches!(fault, ReadFault::Epoch { found: named, .. } if *named == found);
        assert!(is_named, "{error}");
        assert!(
            error.to_string().contains(&format!("offset {offset}")),
            "{error}"
        );
    }
}

#[test]
fn a_batch_in_anothers_place_is_never_given_out() {
    let (disk, _) = closed(300);
    let first = disk.content(&log_path(0)).unwrap();
    disk.edit(&log_path(65), |bytes| *bytes = first);
    let driver = open(&disk, config(SEGMENT)).unwrap();
    for from in 65..130 {
        let plan = driver.index.plan(Offset(from), 1000, Offset(300)).unwrap();
        let error = plan.run(&disk).unwrap_err();
        let fault = matches!(
            error,
            ReadError::Corrupt {
                fault: ReadFault::Offset { .. },
                ..
            }
        );
        assert!(fault, "{error}");
    }
}

/// A damaged index costs time, never records.
#[test]
fn an_index_is_believed_only_where_it_is_right() {
    let (disk, batches) = closed(300);
    let mut rng = Rng(5);
    let whole = disk.content(&index_path(65)).unwrap();
    assert!(whole.len() > 80, "{} bytes", whole.len());
    for round in 0..whole.len() + 20 {
        let image = disk.duplicate();
        image.edit(&index_path(65), |bytes| match bytes.get_mut(round) {
            Some(byte) => *byte ^= 1 << rng.below(8),
            None => bytes.truncate(rng.below(80)),
        });
        let driver = open(&image, config(SEGMENT)).unwrap();
        assert_eq!(driver.opened.report.batches, None);
        for from in (65..130).step_by(9) {
            let plan = driver.index.plan(Offset(from), 1000, Offset(300)).unwrap();
            let bytes = plan.run(&image).unwrap();
            assert!(
                bytes == batches[from as usize].bytes,
                "round {round}: {from}"
            );
        }
    }
}

#[test]
fn what_is_known_of_producers_outlives_a_clean_stop() {
    let disk = SimDisk::new();
    let mut opened = open_log(disk.clone(), config(SEGMENT), common::QUORUM_EPOCH).unwrap();
    for number in 0..200 {
        let base = opened.writer.appended_end();
        let (producer, sequence) = (i64::from(number % 7), number / 7);
        let builder = BatchBuilder::new(base, Epoch(1)).idempotent(producer, 3, sequence);
        let mut builder = builder;
        builder.push(NewRecord::value(0, &[7; 900]));
        let batch = stamped(builder.build());
        let header = BatchHeader::parse(&batch.bytes).unwrap();
        opened.producers.observe(quorate_raft::Instant(0), &header);
        opened.writer.append(batch);
    }
    let snapshot = opened.producers.snapshot(opened.writer.appended_end());
    opened.writer.close(Some(snapshot));
    let mut events = Vec::new();
    while let Some(io) = opened.writer.poll() {
        events.extend(match io {
            quorate_storage::Io::Group(group) => {
                let result = group.run_blocking();
                opened.writer.on_group_done(group, result).unwrap()
            }
            quorate_storage::Io::Job(job) => opened.writer.on_job_done(job.run()).unwrap(),
        });
    }
    assert_eq!(events.last(), Some(&LogEvent::Closed));
    let trusted = open_log(disk.clone(), config(SEGMENT), common::QUORUM_EPOCH).unwrap();
    assert_eq!(trusted.report.batches, None);
    assert_eq!(trusted.producers.len(), 7);
    let read = open_log(disk, config(SEGMENT), common::QUORUM_EPOCH).unwrap();
    assert_eq!(read.report.batches, Some(200));
    assert!(read.producers.is_same(&trusted.producers));
}

#[test]
fn a_clean_stop_leaves_the_next_segment_ready() {
    let disk = SimDisk::new();
    // Zeroed in eight steps, of which few are done when the log is closed.
    let mut driver = open(&disk, config(8 << 20)).unwrap();
    driver.writer.append(batch(Offset(0), Epoch(1), 700, 1));
    let none = driver.producers();
    driver.writer.close(Some(none));
    driver.settle().unwrap();
    let names = disk.list(&dir()).unwrap();
    assert!(
        names.iter().any(|name| name == "segment.spare"),
        "{names:?}"
    );
}
