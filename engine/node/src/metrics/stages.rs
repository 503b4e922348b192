//! Where the time of a commit goes, stage by stage.
//!
//! The raft loop gives one mark for all appends of a turn, since they share its clock reading; the
//! log writer tells when it wrote and flushed. So the cost is per turn and per group, never per
//! record. The loop owns the trace; the histograms it fills are read by whoever likes.

use super::cell::Counter;
use super::histogram::Histogram;
use super::window::Window;
use quorate_raft::{Instant, Offset};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Marks that wait for flush and commit. Beyond it, appends share the last one.
const MARKS_MAX: usize = 4096;

/// How often slow commits are told of at most.
const SLOW_LOG_INTERVAL_MS: u64 = 1_000;

/// When a group of the log was where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// Its writes were handed to the ring.
    pub started: Instant,
    /// They were complete, and the flush was handed to the ring.
    pub written: Instant,
    /// It was flushed.
    pub flushed: Instant,
}

/// Histograms of the stages, in ns, of batches that this node appended as leader.
#[derive(Debug, Default)]
pub struct CommitStages {
    /// From the receipt of the request's last bytes to its append. Long when the node holds
    /// requests back.
    pub queue: Histogram,
    /// From the append until this node's log writer starts its group.
    pub group: Histogram,
    /// Until the group is written.
    pub write: Histogram,
    /// Until it is flushed.
    pub flush: Histogram,
    /// From this node's flush until a majority has acknowledged; 0 if it had before.
    pub acknowledge: Histogram,
    /// From the commit until the answer is handed to the connection.
    pub answer: Histogram,
    /// From the receipt to the answer.
    pub total: Histogram,
    /// From the append to the commit: Kafka's commit-latency.
    pub commit: Histogram,
    /// The same over the last half minute, in ns.
    pub commit_window: Window,
    /// Commits that took longer than `commit.slow.ms`.
    pub slow: Counter,
}

/// The appends of one turn.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Where they end (exclusive).
    end: Offset,
    batches: u64,
    /// When the oldest of them came in.
    received: Instant,
    appended: Instant,
    times: Option<GroupTimes>,
    committed: Option<Instant>,
}

/// Follows appends through the stages.
#[derive(Debug)]
pub struct CommitTrace {
    stages: Arc<CommitStages>,
    /// In order of offset. `flushed` and `committed` of them, from the front, have been there.
    marks: VecDeque<Mark>,
    flushed: usize,
    committed: usize,
    /// Committed in this turn, not answered yet.
    answering: Vec<Mark>,
    slow_ns: Option<u64>,
    slow_told_at: Option<Instant>,
    slow_untold: u64,
}

/// A commit worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCommit {
    /// Where it ends (exclusive).
    pub end: Offset,
    /// From receipt to answer, in ms.
    pub total_ms: u64,
    /// The stage that took longest.
    pub stage: &'static str,
    /// How long that was, in ms.
    pub stage_ms: u64,
    /// Slow commits since the last one that was told.
    pub untold: u64,
}

impl CommitTrace {
    /// Nothing under way. Commits that take longer than `slow` are told.
    #[must_use]
    pub fn new(stages: Arc<CommitStages>, slow: Option<Duration>) -> Self {
        Self {
            stages,
            marks: VecDeque::new(),
            flushed: 0,
            committed: 0,
            answering: Vec::new(),
            slow_ns: slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX)),
            slow_told_at: None,
            slow_untold: 0,
        }
    }

    /// `batches` were appended in this turn, up to `end`; the oldest of them was received at
    /// `received`.
    pub fn on_appended(&mut self, now: Instant, end: Offset, batches: u64, received: Instant) {
        if self.marks.len() >= MARKS_MAX
            && self.committed < self.marks.len()
            && self.flushed < self.marks.len()
            && let Some(last) = self.marks.back_mut()
        {
            last.end = end;
            last.batches += batches;
            return;
        }
        self.marks.push_back(Mark {
            end,
            batches,
            received,
            appended: now,
            times: None,
            committed: None,
        });
    }

    /// This node's log is flushed up to `end`, by a group with these times.
    pub fn on_flushed(&mut self, end: Offset, times: GroupTimes) {
        while let Some(mark) = self.marks.get_mut(self.flushed)
            && mark.end <= end
        {
            self.flushed += 1;
            mark.times = Some(times);
            let stages = &self.stages;
            let count = mark.batches;
            let group = ns(mark.appended, times.started);
            stages.group.record_many(group, count);
            stages
                .write
                .record_many(ns(times.started, times.written), count);
            stages
                .flush
                .record_many(ns(times.written, times.flushed), count);
        }
        self.drop_finished();
    }

    /// The high watermark is `high_watermark` now.
    pub fn on_committed(&mut self, now: Instant, high_watermark: Offset) {
        while let Some(mark) = self.marks.get_mut(self.committed)
            && mark.end <= high_watermark
        {
            self.committed += 1;
            mark.committed = Some(now);
            let latency = ns(mark.appended, now);
            self.stages.commit.record_many(latency, mark.batches);
            self.stages.commit_window.record(now, latency, mark.batches);
            self.answering.push(*mark);
        }
        self.drop_finished();
    }

    /// Lets go of the marks that were flushed and committed.
    fn drop_finished(&mut self) {
        while self.flushed > 0 && self.committed > 0 {
            let Some(mark) = self.marks.pop_front() else {
                return;
            };
            self.flushed -= 1;
            self.committed -= 1;
            if let (Some(times), Some(committed)) = (mark.times, mark.committed) {
                let waited = ns(times.flushed, committed);
                self.stages.acknowledge.record_many(waited, mark.batches);
            }
        }
    }

    /// The answers of this turn are with their connections. A commit to tell of, if one was slow.
    pub fn on_answered(&mut self, now: Instant) -> Option<SlowCommit> {
        let mut slowest: Option<Mark> = None;
        for mark in &self.answering {
            let committed = mark.committed.unwrap_or(now);
            let total = ns(mark.received, now);
            let stages = &self.stages;
            stages.answer.record_many(ns(committed, now), mark.batches);
            stages.total.record_many(total, mark.batches);
            if self.slow_ns.is_some_and(|slow| total > slow) {
                stages.slow.add(mark.batches);
                self.slow_untold += mark.batches;
                slowest = slowest.or(Some(*mark));
            }
        }
        self.answering.clear();
        self.tell(now, slowest?)
    }

    fn tell(&mut self, now: Instant, mark: Mark) -> Option<SlowCommit> {
        let told = self.slow_told_at;
        if told.is_some_and(|at| now.ms_since(at) < SLOW_LOG_INTERVAL_MS) {
            return None;
        }
        self.slow_told_at = Some(now);
        let untold = std::mem::take(&mut self.slow_untold) - 1;
        Some(mark.describe(now, untold))
    }

    /// This node does not lead any more, or its log was cut: what was under way is not followed any
    /// further.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.flushed = 0;
        self.committed = 0;
    }
}

impl Mark {
    /// A slow commit in words, when its answer leaves.
    fn describe(&self, now: Instant, untold: u64) -> SlowCommit {
        let committed = self.committed.unwrap_or(now);
        // Without times the followers were faster than this node's own disk.
        let times = self.times.unwrap_or(GroupTimes {
            started: self.appended,
            written: self.appended,
            flushed: self.appended,
        });
        let stages = [
            ("queue", ns(self.received, self.appended)),
            ("group", ns(self.appended, times.started)),
            ("write", ns(times.started, times.written)),
            ("flush", ns(times.written, times.flushed)),
            ("acknowledge", ns(times.flushed, committed)),
            ("answer", ns(committed, now)),
        ];
        let longest = stages.into_iter().max_by_key(|(_, ns)| *ns);
        let (stage, stage_ns) = longest.unwrap_or(("total", 0));
        SlowCommit {
            end: self.end,
            total_ms: ns(self.received, now) / 1_000_000,
            stage,
            stage_ms: stage_ns / 1_000_000,
            untold,
        }
    }
}

/// Nanoseconds from one moment to another; 0 if they are the other way round.
fn ns(from: Instant, to: Instant) -> u64 {
    to.0.saturating_sub(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn times(started: u64, written: u64, flushed: u64) -> GroupTimes {
        GroupTimes {
            started: us(started),
            written: us(written),
            flushed: us(flushed),
        }
    }

    fn trace(slow_ms: u64) -> CommitTrace {
        let stages = Arc::new(CommitStages::default());
        CommitTrace::new(stages, Some(Duration::from_millis(slow_ms)))
    }

    fn sums(trace: &CommitTrace) -> [u64; 8] {
        let s = &trace.stages;
        let all = [
            &s.queue,
            &s.group,
            &s.write,
            &s.flush,
            &s.acknowledge,
            &s.answer,
            &s.total,
            &s.commit,
        ];
        all.map(|stage| stage.read().sum() / 1000)
    }

    #[test]
    fn a_commit_is_taken_apart_into_its_stages() {
        let mut trace = trace(1000);
        trace.on_appended(us(10), Offset(5), 1, us(3));
        trace.on_flushed(Offset(5), times(12, 40, 90));
        trace.on_committed(us(130), Offset(5));
        assert_eq!(trace.on_answered(us(135)), None);
        assert_eq!(sums(&trace), [0, 2, 28, 50, 40, 5, 132, 120]);
        assert!(trace.marks.is_empty());
    }

    #[test]
    fn a_commit_before_the_own_flush_waits_for_nobody_after_it() {
        let mut trace = trace(1000);
        trace.on_appended(us(0), Offset(1), 2, us(0));
        trace.on_committed(us(50), Offset(1));
        trace.on_answered(us(50));
        trace.on_flushed(Offset(1), times(0, 100, 400));
        assert_eq!(sums(&trace), [0, 0, 200, 600, 0, 0, 100, 100]);
        assert_eq!(trace.stages.acknowledge.read().count(), 2);
    }

    #[test]
    fn marks_of_a_leadership_that_ended_are_not_counted() {
        let mut trace = trace(1000);
        trace.on_appended(us(0), Offset(1), 1, us(0));
        trace.on_flushed(Offset(1), times(0, 1, 2));
        trace.clear();
        trace.on_committed(us(900), Offset(1));
        trace.on_appended(us(1000), Offset(2), 1, us(1000));
        trace.on_committed(us(1010), Offset(2));
        assert_eq!(trace.stages.commit.read().sum(), 10_000);
        assert_eq!(trace.stages.commit.read().count(), 1);
    }

    #[test]
    fn marks_are_bounded() {
        let mut trace = trace(1000);
        for end in 1..=5000 {
            trace.on_appended(us(1), Offset(end), 1, us(1));
        }
        assert_eq!(trace.marks.len(), MARKS_MAX);
        trace.on_committed(us(2), Offset(5000));
        assert_eq!(trace.stages.commit.read().count(), 5000);
    }

    #[test]
    fn a_slow_commit_names_its_longest_stage_and_is_told_once_a_second() {
        let mut trace = trace(10);
        let ms = |ms: u64| us(ms * 1000);
        trace.on_appended(ms(0), Offset(1), 1, ms(0));
        trace.on_flushed(Offset(1), times(1_000, 3_000, 42_000));
        trace.on_committed(ms(50), Offset(1));
        let slow = trace.on_answered(ms(50)).expect("it took 50 ms");
        assert_eq!(
            (slow.total_ms, slow.stage, slow.stage_ms),
            (50, "flush", 39)
        );
        trace.on_appended(ms(60), Offset(2), 3, ms(60));
        trace.on_committed(ms(90), Offset(2));
        assert_eq!(trace.on_answered(ms(90)), None);
        trace.on_appended(ms(2000), Offset(3), 1, ms(2000));
        trace.on_committed(ms(2030), Offset(3));
        let slow = trace.on_answered(ms(2030)).expect("a second later");
        assert_eq!((slow.stage, slow.untold), ("acknowledge", 3));
        assert_eq!(trace.stages.slow.get(), 5);
    }
}
