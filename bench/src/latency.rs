//! Latencies in microseconds, as every subcommand reports them.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest latency that is told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// A histogram of latencies, kept in nanoseconds with three significant digits.
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        let max = LATENCY_MAX.as_nanos() as u64;
        let histogram = Histogram::new_with_max(max, 3).expect("a valid range and precision");
        Latencies { histogram }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
    }

    /// Takes in all of another.
    pub(crate) fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("of one range");
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `fraction` (0 to 1) of all stay within, in microseconds.
    pub(crate) fn quantile_us(&self, fraction: f64) -> f64 {
        micros(self.histogram.value_at_quantile(fraction))
    }

    pub(crate) fn max_us(&self) -> f64 {
        micros(self.histogram.max())
    }
}

/// Rounded to a tenth: more would be noise.
fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|us| latencies.record(Duration::from_micros(us)));
        assert_eq!(latencies.count(), 1000);
        assert!((latencies.quantile_us(0.5) - 500.0).abs() < 1.0);
        assert!((latencies.quantile_us(0.99) - 990.0).abs() < 1.0);
        assert!((latencies.max_us() - 1000.0).abs() < 1.0);
    }

    #[test]
    fn stall_beyond_the_range_counts_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3600));
        assert!(latencies.max_us() > 5.9e7);
    }
}
