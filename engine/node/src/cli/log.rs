//! `quorate log dump` and `quorate log verify`: storage's own reading, printed.

use super::CliError;
use super::args::{DumpArgs, VerifyArgs};
use super::output::Output;
use quorate_storage::{BatchDump, RecordDump, VerifyReport, dump as dump_log, verify_dir};
use std::fs;
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
    let mut progress = |segment: &Path, bytes: u64| {
        tracing::info!(segment = %segment.display(), bytes, "checked");
    };
    let report = verify_dir(&args.dir, &mut progress).map_err(Box::new)?;
    let mut out = Output::new();
    out.line(format_args!("{}: {}", args.dir.display(), summary(&report)))?;
    Ok(out.flush()?)
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
