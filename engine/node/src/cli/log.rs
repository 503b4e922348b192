//! `quorate log dump` and `quorate log verify`: storage's own reading, printed.

use super::CliError;
use super::args::{DumpArgs, VerifyArgs};
use super::output::Output;
use crate::clock::Clock;
use quorate_raft::Instant;
use quorate_storage::{
    BatchDump, RecordDump, VerifyFault, VerifyReport, dump as dump_log, verify_dir,
};
use serde::Serialize;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

/// Prints the batches that a path holds, up to the first fault.
pub(super) fn dump(args: &DumpArgs) -> Result<(), CliError> {
    if args.path.is_dir() {
        must_hold_a_log(&args.path)?;
    }
    let mut out = Output::new();
    for batch in dump_log(&args.path, args.records)? {
        match batch {
            Ok(batch) if args.json => out.json(&batch)?,
            Ok(batch) => {
                for line in lines(&batch) {
                    out.line(line)?;
                }
            }
            // What was read before it is shown as well.
            Err(error) => {
                out.flush()?;
                return Err(error.into());
            }
        }
    }
    Ok(out.flush()?)
}

/// Checks a log and says what it holds.
pub(super) fn verify(args: &VerifyArgs) -> Result<(), CliError> {
    must_hold_a_log(&args.dir)?;
    let shown = args.progress || io::stderr().is_terminal();
    let mut meter = Meter::new(bytes_in(&args.dir), Clock::new());
    let mut progress = |_: &Path, bytes: u64| {
        if shown && let Some(line) = meter.line(bytes) {
            eprintln!("{line}");
        }
    };
    let result = verify_dir(&args.dir, &mut progress);
    let mut out = Output::new();
    match &result {
        Ok(report) if args.json => out.json(&VerifyJson::sound(report))?,
        Ok(report) => out.line(format_args!("{}: {}", args.dir.display(), summary(report)))?,
        Err(fault) if args.json => out.json(&VerifyJson::at_fault(fault))?,
        Err(_) => {}
    }
    out.flush()?;
    result.map_err(Box::new)?;
    Ok(())
}

/// Length of all segments.
fn bytes_in(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "log"));
    logs.filter_map(|log| Some(log.metadata().ok()?.len()))
        .sum()
}

/// How far a check is, in a line per second at most.
struct Meter {
    bytes_total: u64,
    clock: Clock,
    started: Instant,
    told: Instant,
}

impl Meter {
    fn new(bytes_total: u64, clock: Clock) -> Self {
        let started = clock.instant();
        Self {
            bytes_total,
            clock,
            started,
            told: started,
        }
    }

    /// The line, if one is due: at the end, and a second after the last.
    fn line(&mut self, bytes: u64) -> Option<String> {
        let now = self.clock.instant();
        let is_due = now.ms_since(self.told) >= 1000 || bytes >= self.bytes_total;
        if !is_due {
            return None;
        }
        self.told = now;
        let elapsed_ms = now.ms_since(self.started);
        Some(progress_line(bytes, self.bytes_total, elapsed_ms))
    }
}

/// Bytes, share, speed, and the time that is left at that speed.
fn progress_line(bytes: u64, bytes_total: u64, elapsed_ms: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    let percent = (bytes * 100).checked_div(bytes_total).unwrap_or(100);
    let speed = bytes * 1000 / elapsed_ms.max(1);
    let left_s = bytes_total.saturating_sub(bytes).div_ceil(speed.max(1));
    format!(
        "checked {} of {} MiB ({percent} %), {} MiB/s, {left_s} s left",
        bytes / MIB,
        bytes_total / MIB,
        speed / MIB
    )
}

/// What was found, as one object.
#[derive(Serialize)]
struct VerifyJson<'a> {
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultJson<'a>>,
}

#[derive(Serialize)]
struct LogJson {
    log_start_offset: i64,
    log_end_offset: i64,
    epochs: usize,
    segments: usize,
    batches: u64,
    bytes: u64,
    closed_cleanly: bool,
    unfinished_write: bool,
}

#[derive(Serialize)]
struct FaultJson<'a> {
    file: &'a Path,
    position: u64,
    message: String,
}

impl<'a> VerifyJson<'a> {
    fn sound(report: &VerifyReport) -> Self {
        let log = LogJson {
            log_start_offset: report.log_start.0,
            log_end_offset: report.log_end.0,
            epochs: report.epochs.len(),
            segments: report.segments,
            batches: report.batches,
            bytes: report.bytes,
            closed_cleanly: report.is_clean,
            unfinished_write: report.torn.is_some(),
        };
        Self {
            sound: true,
            log: Some(log),
            fault: None,
        }
    }

    fn at_fault(fault: &'a VerifyFault) -> Self {
        Self {
            sound: false,
            log: None,
            fault: Some(FaultJson {
                file: &fault.segment,
                position: fault.position,
                message: fault.fault.to_string(),
            }),
        }
    }
}

/// A directory without segments has no fault, and is not what was meant. One that cannot be read is
/// left to those who read it next.
fn must_hold_a_log(dir: &Path) -> Result<(), CliError> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    if names.any(|name| name.to_string_lossy().ends_with(".log")) {
        return Ok(());
    }
    let dir = dir.to_owned();
    Err(CliError::NoLog { dir })
}

/// A batch in a line; each of its records, if they were asked for, in one below.
fn lines(batch: &BatchDump) -> Vec<String> {
    let mut line = format!(
        "{} {}: offsets {} to {}, epoch {}, {} records, {} bytes, crc {:08x}",
        batch.segment,
        batch.position,
        batch.base_offset,
        batch.last_offset,
        batch.epoch,
        batch.count,
        batch.size,
        batch.crc,
    );
    let codec = batch.codec.to_string();
    if codec != "none" {
        line += &format!(", {codec}");
    }
    if !batch.control.is_empty() {
        line += &format!(", {}", batch.control.join("; "));
    }
    let records = batch.records.iter().flatten().map(record_line);
    std::iter::once(line).chain(records).collect()
}

fn record_line(record: &RecordDump) -> String {
    let value = record.value.as_deref().unwrap_or("(no value)");
    match &record.key {
        Some(key) => format!("  {}: {key} = {value}", record.offset),
        None => format!("  {}: {value}", record.offset),
    }
}

fn summary(report: &VerifyReport) -> String {
    let stopped = if report.is_clean {
        "closed cleanly"
    } else {
        "not closed cleanly"
    };
    let torn = if report.torn.is_some() {
        ", with an unfinished write behind the end, which the next start cuts off"
    } else {
        ""
    };
    format!(
        "no fault in offsets {} to {} (exclusive): {} segments, {} batches, {} bytes; \
         {stopped}{torn}",
        report.log_start, report.log_end, report.segments, report.batches, report.bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_raft::{Epoch, Offset};
    use quorate_storage::format::{BatchBuilder, LeaderChange, NewRecord, leader_change_batch};
    /// The lines of a segment with these batches.
    fn dumped(batches: &[Vec<u8>], with_records: bool) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000040.log");
        fs::write(&path, batches.concat()).unwrap();
        let dump = dump_log(&path, with_records).unwrap();
        dump.flat_map(|batch| lines(&batch.unwrap())).collect()
    }

    #[test]
    fn a_batch_is_a_line_and_its_records_stand_below() {
        let mut builder = BatchBuilder::new(Offset(40), Epoch(3));
        builder.push(NewRecord::value(1, b"hello"));
        builder.push(NewRecord {
            key: Some(b"k"),
            ..NewRecord::default()
        });
        let batch = builder.build();
        let lines = dumped(&[batch], true);
        let start = "00000000000000000040.log 0: offsets 40 to 41, epoch 3, 2 records, ";
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        assert_eq!(lines[1..], ["  40: hello", "  41: k = (no value)"]);
    }

    #[test]
    fn progress_has_share_speed_and_the_time_that_is_left() {
        let line = progress_line(256 << 20, 1 << 30, 500);
        assert_eq!(line, "checked 256 of 1024 MiB (25 %), 512 MiB/s, 2 s left");
        let line = progress_line(0, 0, 0);
        assert_eq!(line, "checked 0 of 0 MiB (100 %), 0 MiB/s, 0 s left");
    }

    #[test]
    fn a_directory_without_segments_is_not_a_sound_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("__cluster_metadata-0");
        fs::create_dir(&log).unwrap();
        fs::write(log.join("00000000000000000000.log"), "").unwrap();
        must_hold_a_log(&log).unwrap();
        let fault = must_hold_a_log(dir.path()).unwrap_err();
        assert!(matches!(fault, CliError::NoLog { .. }), "{fault}");
    }

    #[test]
    fn control_batches_say_what_they_are() {
        let change = LeaderChange {
            leader_id: 2,
            voters: vec![1, 2],
            granting_voters: vec![2],
        };
        let batch = leader_change_batch(Offset(40), Epoch(3), 1, &change);
        let lines = dumped(&[batch], false);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains(", LEADER_CHANGE leader 2"),
            "{}",
            lines[0]
        );
    }
}
