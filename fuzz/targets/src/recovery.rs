//! Recovery of a damaged data directory: whatever stands in its files, opening the log refuses with
//! a reason or gives a log that can be read whole and that opens to the same end again.

use crate::batches::sign_all;
use crate::source::Source;
use bytes::Bytes;
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::{BatchBuilder, BatchHeader, MARK_BYTES, NewRecord, batches, crc32c};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{
    Disk, Io, LogConfig, LogWriter, OpenedLog, ReadError, RecoveryError, StampedBatch, open_log,
};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Small, so that a log has several.
const SEGMENT_BYTES: u64 = 32 * 1024;
const QUORUM_EPOCH: Epoch = Epoch(9);
const MARKER: &str = ".quorate_cleanshutdown";

pub(crate) fn dir() -> PathBuf {
    PathBuf::from("/log/topic-0")
}

pub(crate) fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT_BYTES,
        group_bytes_max: 8 * 1024,
        ..LogConfig::new(dir(), [7; 16])
    }
}

/// Input: which of two logs, then edits: a file, what to do, where, how many bytes, the bytes.
pub fn recovery(data: &[u8]) {
    static LOGS: OnceLock<[SimDisk; 2]> = OnceLock::new();
    let logs = LOGS.get_or_init(|| [running_log(), stopped_log()]);
    let mut source = Source::new(data);
    let disk = source.choose(logs).duplicate();
    for _ in 0..8 {
        if source.is_empty() {
            break;
        }
        edit(&disk, &mut source);
    }
    let Ok(opened) = open_log(disk.clone(), log_config(), QUORUM_EPOCH) else {
        return;
    };
    let end = opened.log_end;
    // After a clean stop old bytes are looked at when they are read, and not before.
    let was_read = opened.report.batches.is_some();
    match read_whole(&disk, &opened) {
        Ok(reached) => assert_eq!(reached, end, "a log is readable to its end"),
        Err(ReadError::Corrupt { .. }) if !was_read => {}
        Err(error) => panic!("a log that was opened is readable: {error}"),
    }
    drop(opened);
    match open_log(disk.clone(), log_config(), QUORUM_EPOCH) {
        Ok(again) => assert_eq!(again.log_end, end),
        Err(RecoveryError::Corrupt { .. }) if !was_read => {}
        Err(error) => panic!("a log that was repaired opens: {error}"),
    }
}

/// Five segments and an active one, as a killed node leaves them.
fn running_log() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(&dir()).expect("a healthy disk");
    let mut log = open_log(disk.clone(), log_config(), QUORUM_EPOCH).expect("an empty log");
    append_some(&mut log.writer, 2);
    disk
}

/// The same, cleanly stopped.
fn stopped_log() -> SimDisk {
    let disk = running_log();
    let mut log = open_log(disk.clone(), log_config(), QUORUM_EPOCH).expect("a healthy log");
    append_some(&mut log.writer, 4);
    let producers = log.producers.snapshot(log.writer.appended_end());
    log.writer.close(Some(producers));
    settle(&mut log.writer);
    disk
}

/// Batches of three epochs, the first of them `epoch`.
fn append_some(writer: &mut LogWriter<SimDisk>, epoch: i32) {
    for number in 0..24_u8 {
        let mut batch =
            BatchBuilder::new(writer.appended_end(), Epoch(epoch + i32::from(number) / 8));
        for _ in 0..=number % 3 {
            batch.push(NewRecord::value(i64::from(number), &[number; 1500]));
        }
        let bytes = Bytes::from(batch.build());
        let meta = BatchHeader::parse_whole(&bytes)
            .expect("a good batch")
            .meta();
        writer.append(StampedBatch {
            bytes,
            base_offset: meta.base_offset,
            end_offset: meta.end_offset,
            epoch: meta.epoch,
        });
        settle(writer);
    }
}

/// Carries out the writer's I/O until nothing is left of it.
fn settle(writer: &mut LogWriter<SimDisk>) {
    while let Some(io) = writer.poll() {
        let done = match io {
            Io::Group(group) => {
                let result = group.run_blocking();
                writer.on_group_done(group, result)
            }
            Io::Job(job) => writer.on_job_done(job.run()),
        };
        done.expect("a healthy disk");
    }
}

/// One edit of one file.
fn edit(disk: &SimDisk, source: &mut Source<'_>) {
    let mut names = disk.list(&dir()).expect("a directory");
    names.push(MARKER.to_owned());
    let path = dir().join(source.choose(&names));
    let (what, at, count) = (source.byte() % 6, source.word(), usize::from(source.byte()));
    let bytes = source.take(count).to_vec();
    let Some(length) = disk.content(&path).map(|content| content.len()) else {
        return disk.put(&path, &bytes);
    };
    let at = at.min(length);
    match what {
        0 => disk.edit(&path, |file| overwrite(file, at, &bytes)),
        1 => disk.edit(&path, |file| file.truncate(at)),
        2 => disk.edit(&path, |file| file.extend_from_slice(&bytes)),
        3 => disk.put(&path, &bytes),
        4 => disk.edit(&path, |file| {
            overwrite(file, at, &bytes);
            sign_all(file);
        }),
        // Counted from the end: the marks are there.
        _ => disk.edit(&path, |file| {
            let at = file.len().saturating_sub(at);
            overwrite(file, at, &bytes);
            sign_marks(file);
        }),
    }
}

fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    let count = bytes.len().min(file.len() - at);
    file[at..at + count].copy_from_slice(&bytes[..count]);
}

/// Gives the two mark slots at the end of a segment the checksums of their content.
fn sign_marks(file: &mut [u8]) {
    for slot in file.rchunks_exact_mut(MARK_BYTES).take(2) {
        sign_mark(slot);
    }
}

/// The checksum of a mark is its last four bytes.
pub(crate) fn sign_mark(block: &mut [u8]) {
    let (content, crc) = block.split_at_mut(MARK_BYTES - 4);
    crc.copy_from_slice(&crc32c(content).to_be_bytes());
}

/// Reads the log as a lagging replica would get it. Where it ends.
fn read_whole(disk: &SimDisk, opened: &OpenedLog<SimDisk>) -> Result<Offset, ReadError> {
    let mut next = opened.log_start;
    while next < opened.log_end {
        let plan = opened.index.plan(next, 8192, opened.log_end);
        let bytes = plan.expect("an offset of the log").run(disk)?;
        let from = next;
        for batch in batches(&bytes) {
            let (header, _) = batch.expect("a whole batch");
            assert_eq!(header.base_offset, next, "offsets without a gap");
            next = header.end_offset();
        }
        assert!(next > from, "progress at {next}");
    }
    Ok(next)
}
