//! Averages, maxima and rates over the last half minute or so, as Kafka's sensors have them.
//!
//! Kafka keeps two samples of 30 s (`MetricConfig`: metrics.num.samples, metrics.sample.window.ms)
//! and looks at both, so that a value covers the last 30 to 60 s. One thread writes.

use super::cell::Counter;
use quorate_raft::Instant;

/// Length of a sample, in ns.
const SAMPLE_NS: u64 = 30_000_000_000;

/// Values of the last 30 to 60 s.
#[derive(Debug, Default)]
pub struct Window {
    samples: [Sample; 2],
    /// Which of them is being filled.
    current: Counter,
}

#[derive(Debug, Default)]
struct Sample {
    /// In ns of the node's clock, plus 1; 0: never used.
    start: Counter,
    sum: Counter,
    count: Counter,
    max: Counter,
}

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRead {
    /// Sum of the values.
    pub sum: u64,
    /// How many.
    pub count: u64,
    /// The greatest.
    pub max: u64,
    /// The time they are from, in ns; a whole sample at least, as in Kafka's `Rate`.
    pub span_ns: u64,
}

impl Window {
    /// Adds `value`, `count` times.
    pub fn record(&self, now: Instant, value: u64, count: u64) {
        let mut sample = &self.samples[self.index()];
        let start = sample.start.get();
        if start == 0 || now.0 >= start - 1 + SAMPLE_NS {
            if start != 0 {
                self.current.set(1 - self.current.get());
            }
            sample = &self.samples[self.index()];
            sample.sum.set(0);
            sample.count.set(0);
            sample.max.set(0);
            sample.start.set(now.0 + 1);
        }
        sample.sum.add(value.saturating_mul(count));
        sample.count.add(count);
        sample.max.raise(value);
    }

    fn index(&self) -> usize {
        usize::from(self.current.get() == 1)
    }

    /// What is in it at `now`. May miss a value or two when a sample begins at this moment.
    #[must_use]
    pub fn read(&self, now: Instant) -> WindowRead {
        let mut read = WindowRead {
            span_ns: SAMPLE_NS,
            ..WindowRead::default()
        };
        for sample in &self.samples {
            let Some(start) = sample.start.get().checked_sub(1) else {
                continue;
            };
            let age = now.0.saturating_sub(start);
            if age < 2 * SAMPLE_NS {
                read.sum += sample.sum.get();
                read.count += sample.count.get();
                read.max = read.max.max(sample.max.get());
                read.span_ns = read.span_ns.max(age);
            }
        }
        read
    }
}

impl WindowRead {
    /// The average value; 0 without values.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for people
    pub fn average(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum as f64 / self.count as f64
    }

    /// The sum per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for people
    pub fn per_second(&self) -> f64 {
        self.sum as f64 * 1e9 / self.span_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn values_are_forgotten_after_two_samples() {
        let window = Window::default();
        assert_eq!(window.read(at(5)).count, 0);
        window.record(at(0), 10, 1);
        window.record(at(29), 30, 3);
        let read = window.read(at(29));
        assert_eq!((read.sum, read.count, read.max), (100, 4, 30));
        assert_eq!(read.average(), 25.0);
        window.record(at(31), 1, 1);
        assert_eq!(window.read(at(59)).count, 5);
        assert_eq!(window.read(at(60)).count, 1, "the first sample is over");
        assert_eq!(window.read(at(91)).count, 0);
        window.record(at(200), 7, 1);
        let read = window.read(at(200));
        assert_eq!((read.count, read.max), (1, 7));
    }

    #[test]
    fn a_rate_is_over_half_a_minute_at_least() {
        let window = Window::default();
        window.record(at(100), 300, 1);
        assert_eq!(window.read(at(101)).per_second(), 10.0);
        assert_eq!(window.read(at(150)).per_second(), 6.0);
    }
}
