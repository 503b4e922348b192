//! One row: blocks of groups by the engine and by the bare ring in turn, and what the pairs say.

use super::raw::Raw;
use super::shape::Shape;
use super::{Arguments, ENGINE};
use crate::latency::Latencies;
use quorate::lone_log::LoneLog;
use quorate_ring::Wait;
use quorate_storage::LogConfig;
use serde::Serialize;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Groups that wait while one is on its way, in rows without a pause.
const GROUPS_AHEAD: i64 = 2;

/// What a row came to. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) shape: String,
    /// Bytes of batches in a group.
    group_bytes: u64,
    pairs: usize,
    engine_p50_us: f64,
    engine_p99_us: f64,
    raw_p50_us: f64,
    raw_p99_us: f64,
    /// Engine over ring: of latency, and without a pause of bandwidth. The median of the pairs.
    pub(crate) ratio: f64,
    /// The true median lies in here, 95 times in 100.
    ratio_low: f64,
    ratio_high: f64,
    /// System calls of the engine's ring per group.
    enters_per_group: f64,
}

/// One side's blocks.
#[derive(Default)]
struct Side {
    all: Option<Latencies>,
    /// Of each block: the median group, and all of it.
    medians: Vec<Duration>,
    totals: Vec<Duration>,
}

impl Side {
    fn block(&mut self, mut times: Vec<Duration>, total: Duration) {
        let all = self.all.get_or_insert_with(Latencies::new);
        times.iter().for_each(|time| all.record(*time));
        times.sort_unstable();
        self.medians.push(times[times.len() / 2]);
        self.totals.push(total);
    }

    fn us(&self, fraction: f64) -> f64 {
        self.all
            .as_ref()
            .map_or(0.0, |all| all.quantile_us(fraction))
    }
}

/// Measures one row in `dir`.
pub(crate) fn compare(
    shape: &Shape,
    arguments: &Arguments,
    dir: &Path,
) -> Result<Comparison, Box<dyn Error>> {
    let block = shape.block(arguments.block);
    let batch = shape.batch();
    let group_bytes = (batch.len() * shape.records) as u64;
    let blocks = arguments.pairs as u64 + 1;
    let log_dir = dir.join(format!(
        "{}x{}-{}",
        shape.records, shape.record_bytes, shape.is_busy
    ));
    let mut config = LogConfig::new(log_dir.clone(), [1; 16]);
    // No segment ends while it is measured: that is another row.
    config.segment_bytes = (blocks * block as u64 * group_bytes + (8 << 20)).min(1 << 30);
    config.group_bytes_max = (group_bytes as usize).max(4096);
    let mut engine = LoneLog::open(config, ENGINE, arguments.flush_method)?;
    engine.prepare()?;
    let mut raw = Raw::open(&dir.join("raw"), 64 << 20, 2 << 20, arguments.flush_method)?;
    let (mut by_engine, mut by_raw) = (Side::default(), Side::default());
    let mut enters = 0;
    for pair in 0..blocks {
        let before = engine.counters().enters;
        let (times, total) = engine_block(&mut engine, shape, &batch, block)?;
        enters += engine.counters().enters - before;
        let (raw_times, raw_total) = raw_block(&mut raw, group_bytes, block)?;
        // The first pair warms up.
        if pair > 0 {
            by_engine.block(times, total);
            by_raw.block(raw_times, raw_total);
        }
    }
    let pairs = arguments.pairs;
    let mut ratios: Vec<f64> = (0..pairs)
        .map(|pair| match shape.is_busy {
            true => ratio(by_raw.totals[pair], by_engine.totals[pair]),
            false => ratio(by_engine.medians[pair], by_raw.medians[pair]),
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (low, high) = median_interval(pairs);
    engine.close()?;
    std::fs::remove_dir_all(&log_dir)?;
    Ok(Comparison {
        shape: shape.to_string(),
        group_bytes,
        pairs,
        engine_p50_us: by_engine.us(0.5),
        engine_p99_us: by_engine.us(0.99),
        raw_p50_us: by_raw.us(0.5),
        raw_p99_us: by_raw.us(0.99),
        ratio: ratios[pairs / 2],
        ratio_low: ratios[low],
        ratio_high: ratios[high],
        enters_per_group: enters as f64 / (blocks * block as u64) as f64,
    })
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Which of `count` sorted values bound their median with 95 % confidence (the binomial's normal
/// approximation).
fn median_interval(count: usize) -> (usize, usize) {
    let half = 1.96 * (count as f64).sqrt() / 2.0;
    let low = (count as f64 / 2.0 - half).floor().max(0.0) as usize;
    let high = (count as f64 / 2.0 + half).ceil() as usize;
    (low, high.min(count - 1))
}

fn engine_block(
    engine: &mut LoneLog,
    shape: &Shape,
    batch: &[u8],
    groups: usize,
) -> Result<(Vec<Duration>, Duration), Box<dyn Error>> {
    // What a client's bytes cost before they are a batch is not the engine's.
    let first = engine.appended_end();
    let offset = |index: usize| quorate_raft::Offset(first.0 + (index * shape.records) as i64);
    let mut ready: VecDeque<_> = (0..groups)
        .map(|index| shape.group(batch, offset(index)))
        .collect();
    let mut times = Vec::with_capacity(groups);
    let start = Instant::now();
    if shape.is_busy {
        let ahead = GROUPS_AHEAD * shape.records as i64;
        let mut last = (start, first);
        while engine.flushed_end() < offset(groups) {
            while engine.appended_end().0 - engine.flushed_end().0 <= ahead
                && let Some(group) = ready.pop_front()
            {
                group
                    .into_iter()
                    .for_each(|bytes| engine.append_stamped(bytes));
            }
            engine.turn(Wait::Until { timeout: None })?;
            if engine.flushed_end() > last.1 {
                let now = Instant::now();
                times.push(now - last.0);
                last = (now, engine.flushed_end());
            }
        }
    } else {
        for group in ready {
            let begin = Instant::now();
            group
                .into_iter()
                .for_each(|bytes| engine.append_stamped(bytes));
            engine.flush()?;
            times.push(begin.elapsed());
        }
    }
    Ok((times, start.elapsed()))
}

fn raw_block(
    raw: &mut Raw,
    bytes: u64,
    groups: usize,
) -> Result<(Vec<Duration>, Duration), Box<dyn Error>> {
    let mut times = Vec::with_capacity(groups);
    let start = Instant::now();
    for _ in 0..groups {
        let begin = Instant::now();
        raw.group(bytes)?;
        times.push(begin.elapsed());
    }
    Ok((times, start.elapsed()))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:34} {:8} bytes  engine p50 {:7.1} p99 {:8.1}  ring p50 {:7.1} p99 {:8.1} us  \
             ratio {:.3} ({:.3} to {:.3})  {:.2} enters",
            self.shape,
            self.group_bytes,
            self.engine_p50_us,
            self.engine_p99_us,
            self.raw_p50_us,
            self.raw_p99_us,
            self.ratio,
            self.ratio_low,
            self.ratio_high,
            self.enters_per_group
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_the_tables() {
        // Order statistics of the binomial with p = 1/2, from 0.
        assert_eq!(median_interval(30), (9, 21));
        assert_eq!(median_interval(100), (40, 60));
        assert_eq!(median_interval(3), (0, 2));
    }
}
