//! The smallest metrics: a number that one thread writes and any thread reads.
//!
//! A write is a relaxed load and a relaxed store, no locked instruction: each cell has exactly one
//! writer, the loop that owns it. A second writer would lose counts, and nothing else. Readers may
//! see two cells of the same moment a turn apart; what is made of them is for people.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts up from 0.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        let sum = self.get().wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Takes over a total that its owner counts elsewhere.
    pub fn set(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    /// Raises it to `value` if that is more.
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it to a length or size.
    pub fn set_size(&self, size: usize) {
        self.set(i64::try_from(size).unwrap_or(i64::MAX));
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_keep_what_they_are_given() {
        let counter = Counter::default();
        counter.add(2);
        counter.add(3);
        assert_eq!(counter.get(), 5);
        counter.raise(4);
        assert_eq!(counter.get(), 5);
        counter.raise(9);
        assert_eq!(counter.get(), 9);
        let gauge = Gauge::default();
        gauge.set(-1);
        assert_eq!(gauge.get(), -1);
        gauge.set_size(usize::MAX);
        assert_eq!(gauge.get(), i64::MAX);
    }
}
