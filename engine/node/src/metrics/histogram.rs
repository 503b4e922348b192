//! Histograms: how often which value, in buckets an eighth of their value wide.
//!
//! Written by one thread without a locked instruction, as cells are. A bucket is found by its bits,
//! so that recording costs the same few instructions whatever the value.

use super::cell::Counter;

/// Buckets per doubling, as a power of two: 8.
const STEP_BITS: u32 = 3;
const STEPS: u64 = 1 << STEP_BITS;
/// Values of 2^40 (18 minutes in ns, a TiB in bytes) and more share the last bucket.
const OCTAVES: u32 = 40;
const BUCKETS: usize = ((OCTAVES - STEP_BITS + 1) * STEPS as u32) as usize;

/// How often which value came.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum: Counter::default(),
        }
    }
}

/// The bucket of a value.
fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let bucket = match bits.checked_sub(STEP_BITS + 1) {
        None => value,
        Some(shift) => u64::from(shift + 1) * STEPS + (value >> shift) % STEPS,
    };
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The least value that is above all values of `bucket`.
fn bound_of(bucket: usize) -> u64 {
    let bucket = bucket as u64 + 1;
    match (bucket / STEPS).checked_sub(1) {
        None => bucket,
        Some(shift) => (STEPS + bucket % STEPS) << shift,
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value `count` times.
    pub fn record_many(&self, value: u64, count: u64) {
        self.buckets[bucket_of(value)].add(count);
        self.sum.add(value.saturating_mul(count));
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        Counts {
            buckets: self.buckets.iter().map(Counter::get).collect(),
            sum: self.sum.get(),
        }
    }
}

/// A histogram as it was at one moment, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<u64>,
    sum: u64,
}

impl Counts {
    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let old = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(old);
        Self {
            buckets: buckets.map(|(new, old)| new.saturating_sub(old)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// How many values are below `bound`, which is exact for powers of two, and for these and their
    /// halves together.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let below = bucket_of(bound).min(self.buckets.len());
        self.buckets[..below].iter().sum()
    }

    /// The value that a share of `per_mille` is not above, too high by an eighth at most; `None`
    /// without values.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let wanted = count.saturating_mul(per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|values| {
            seen += values;
            seen >= wanted
        });
        found.filter(|_| count > 0).map(bound_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_below_its_bucket_bound_by_an_eighth_at_most() {
        let octaves = (0..OCTAVES).flat_map(|octave| [1u64 << octave, (1 << octave) + 1]);
        for value in (0..5000).chain(octaves) {
            let bucket = bucket_of(value);
            let bound = bound_of(bucket);
            assert!(value < bound, "{value}");
            assert!(bound - value <= 1 + value / 8, "{value} {bound}");
            assert!(bucket == 0 || bound_of(bucket - 1) <= value, "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of((1 << OCTAVES) - 1), BUCKETS - 1);
    }

    #[test]
    fn counts_below_powers_of_two_and_their_halves_are_exact() {
        let histogram = Histogram::default();
        (0..4096).for_each(|value| histogram.record(value));
        let counts = histogram.read();
        for bound in [1, 2, 3, 8, 12, 1024, 1536, 2048, 3072, 4096] {
            assert_eq!(counts.below(bound), bound);
        }
        assert_eq!(counts.below(1 << 39), 4096);
        assert_eq!((counts.count(), counts.sum()), (4096, 4095 * 2048));
    }

    #[test]
    fn quantiles_are_those_of_what_came_since() {
        let histogram = Histogram::default();
        histogram.record_many(1_000_000, 1000);
        let before = histogram.read();
        assert_eq!(before.since(&before).quantile(500), None);
        histogram.record_many(100, 98);
        histogram.record_many(10_000, 2);
        let since = histogram.read().since(&before);
        assert_eq!(since.count(), 100);
        assert!((100..=112).contains(&since.quantile(500).unwrap()));
        assert!((100..=112).contains(&since.quantile(980).unwrap()));
        assert!((10_000..=11_250).contains(&since.quantile(990).unwrap()));
        assert_eq!(since.sum(), 98 * 100 + 2 * 10_000);
    }
}
