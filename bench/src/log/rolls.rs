//! Where segments end: what the first append of a new segment waits for, and what the preparation
//! of the next one does to all others.

use super::ENGINE;
use super::shape;
use crate::latency::Latencies;
use quorate::disk_io::FlushMethod;
use quorate::lone_log::LoneLog;
use quorate_storage::LogConfig;
use serde::Serialize;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Small, so that there are many rolls; preparing takes as long per byte as that of a large one.
const SEGMENT_BYTES: u64 = 8 << 20;

/// What was seen. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rolls {
    rolls: u64,
    /// Appends while the next segment was prepared and none ended.
    quiet: u64,
    quiet_p50_us: f64,
    quiet_p99_us: f64,
    quiet_p999_us: f64,
    /// Appends while the next segment was in preparation.
    preparing: u64,
    preparing_p50_us: f64,
    preparing_p99_us: f64,
    preparing_p999_us: f64,
    /// The appends that waited for a new segment.
    first_p50_us: f64,
    first_max_us: f64,
    /// How much more than the quiet 99th percentile the median of those took.
    first_over_quiet_p99_us: f64,
}

/// One append at a time, until `count` segments have ended.
pub(crate) fn measure(
    count: u64,
    method: FlushMethod,
    dir: &Path,
) -> Result<Rolls, Box<dyn Error>> {
    let log_dir = dir.join("rolls");
    let mut config = LogConfig::new(log_dir.clone(), [1; 16]);
    config.segment_bytes = SEGMENT_BYTES;
    let mut log = LoneLog::open(config, ENGINE, method)?;
    log.prepare()?;
    // Large enough that a segment ends every thousand appends.
    let shape = shape::Shape {
        record_bytes: 8000,
        ..shape::ONE_RECORD
    };
    let batch = shape.batch();
    let (mut quiet, mut preparing) = (Latencies::new(), Latencies::new());
    let mut first = Vec::new();
    while (first.len() as u64) < count {
        let (rolls, ready) = (log.rolls(), log.has_spare());
        let group = shape.group(&batch, log.appended_end());
        let begin = Instant::now();
        group
            .into_iter()
            .for_each(|bytes| log.append_stamped(bytes));
        log.flush()?;
        let took = begin.elapsed();
        match (log.rolls() > rolls, ready && log.has_spare()) {
            (true, _) => first.push(took),
            (false, true) => quiet.record(took),
            (false, false) => preparing.record(took),
        }
    }
    log.close()?;
    std::fs::remove_dir_all(&log_dir)?;
    first.sort_unstable();
    let us = |time: Duration| (time.as_nanos() as f64 / 100.0).round() / 10.0;
    let first_p50_us = us(first[first.len() / 2]);
    let quiet_p99_us = quiet.quantile_us(0.99);
    Ok(Rolls {
        rolls: count,
        quiet: quiet.count(),
        quiet_p50_us: quiet.quantile_us(0.5),
        quiet_p99_us,
        quiet_p999_us: quiet.quantile_us(0.999),
        preparing: preparing.count(),
        preparing_p50_us: preparing.quantile_us(0.5),
        preparing_p99_us: preparing.quantile_us(0.99),
        preparing_p999_us: preparing.quantile_us(0.999),
        first_p50_us,
        first_max_us: us(first[first.len() - 1]),
        first_over_quiet_p99_us: first_p50_us - quiet_p99_us,
    })
}

impl fmt::Display for Rolls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "quiet:      p50 {:7.1}  p99 {:8.1}  p99.9 {:8.1} us ({} appends)",
            self.quiet_p50_us, self.quiet_p99_us, self.quiet_p999_us, self.quiet
        )?;
        writeln!(
            f,
            "preparing:  p50 {:7.1}  p99 {:8.1}  p99.9 {:8.1} us ({} appends)",
            self.preparing_p50_us, self.preparing_p99_us, self.preparing_p999_us, self.preparing
        )?;
        write!(
            f,
            "after a roll: p50 {:.1}, max {:.1} us ({} rolls); {:.1} us over the quiet p99 \
             (goal: at most 300)",
            self.first_p50_us, self.first_max_us, self.rolls, self.first_over_quiet_p99_us
        )
    }
}
