//! The last minutes, second by second, for the page's plots.
//!
//! The admin thread takes a sample each second from what the loops count anyway; they notice
//! nothing of it.

use crate::metrics::{Counts, Metrics};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a sample is taken.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Samples that are kept: five minutes.
const SAMPLES_MAX: usize = 300;

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sample {
    /// Ascending by 1.
    pub number: u64,
    /// Its end, in ms since 1970.
    pub at_ms: i64,
    /// Batches that this node committed as leader.
    pub commits: u64,
    /// Their latency from append to commit, at the median, in us; `None` without any.
    pub commit_p50_us: Option<u64>,
    /// The same for the 99th percentile.
    pub commit_p99_us: Option<u64>,
    /// Records that became known to be committed, whoever leads.
    pub records: u64,
    /// Groups that this node flushed.
    pub flushes: u64,
    /// How long the flush took, at the median, in us.
    pub flush_p50_us: Option<u64>,
    /// The same for the 99th percentile.
    pub flush_p99_us: Option<u64>,
}

/// The samples, and what the next one is compared with.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
    next: u64,
    commits: Counts,
    flushes: Counts,
    high_watermark: Option<i64>,
}

impl History {
    /// Takes a sample.
    pub(super) fn take(&mut self, wall_ms: i64, metrics: &Metrics) {
        let commits = metrics.commits.commit.read();
        let flushes = metrics.log.flush.read();
        let new_commits = commits.since(&self.commits);
        let new_flushes = flushes.since(&self.flushes);
        let high_watermark = metrics.raft.high_watermark.get();
        let us = |counts: &Counts, per_mille| Some(counts.quantile(per_mille)? / 1000);
        let known = (high_watermark >= 0).then_some(high_watermark);
        let rise = known.zip(self.high_watermark);
        let sample = Sample {
            number: self.next,
            at_ms: wall_ms,
            commits: new_commits.count(),
            commit_p50_us: us(&new_commits, 500),
            commit_p99_us: us(&new_commits, 990),
            records: rise.map_or(0, |(new, old)| u64::try_from(new - old).unwrap_or(0)),
            flushes: new_flushes.count(),
            flush_p50_us: us(&new_flushes, 500),
            flush_p99_us: us(&new_flushes, 990),
        };
        self.next += 1;
        // Unknown for a moment, after an election: what was committed meanwhile counts later.
        self.high_watermark = known.or(self.high_watermark);
        (self.commits, self.flushes) = (commits, flushes);
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples from number `from` on.
    pub(super) fn from(&self, from: u64) -> Vec<Sample> {
        let all = self.samples.iter();
        all.filter(|sample| sample.number >= from)
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_holds_what_came_since_the_one_before() {
        let metrics = Metrics::new(0);
        let mut history = History::default();
        metrics.raft.high_watermark.set(-1);
        metrics.commits.commit.record_many(500_000, 10);
        history.take(1000, &metrics);
        metrics.raft.high_watermark.set(70);
        history.take(2000, &metrics);
        metrics.raft.high_watermark.set(75);
        metrics.commits.commit.record_many(900_000, 4);
        metrics.log.flush.record(100_000);
        history.take(3000, &metrics);
        metrics.raft.high_watermark.set(-1);
        history.take(4000, &metrics);
        metrics.raft.high_watermark.set(76);
        history.take(5000, &metrics);

        let all = history.from(0);
        let commits: Vec<_> = all.iter().map(|sample| sample.commits).collect();
        assert_eq!(commits, [10, 0, 4, 0, 0]);
        let records: Vec<_> = all.iter().map(|sample| sample.records).collect();
        assert_eq!(records, [0, 0, 5, 0, 1]);
        assert!((500..=563).contains(&all[0].commit_p99_us.unwrap()));
        assert_eq!(all[1].commit_p50_us, None);
        assert_eq!((all[2].flushes, all[3].flushes), (1, 0));
        assert_eq!(history.from(4).len(), 1);
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut history = History::default();
        for second in 0..1000 {
            history.take(second, &Metrics::new(0));
        }
        let all = history.from(0);
        assert_eq!(all.len(), SAMPLES_MAX);
        assert_eq!(all[0].number, 1000 - SAMPLES_MAX as u64);
    }
}
