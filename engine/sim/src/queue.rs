//! What happens next: events ordered by time, and by the order of their making where times agree.
//!
//! Nothing else in the simulator moves time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in simulated time, in nanoseconds since the run began.
pub type Nanos = u64;

/// Nanoseconds of a microsecond.
pub const US: Nanos = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: Nanos = 1_000_000;
/// Nanoseconds of a second.
pub const S: Nanos = 1_000_000_000;

/// Events to come.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    made: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> Queue<E> {
    /// Nothing to come.
    #[must_use]
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            made: 0,
        }
    }

    /// `event` happens at `at`, after everything that was already to happen then.
    pub fn push(&mut self, at: Nanos, event: E) {
        let number = self.made;
        self.made += 1;
        self.heap.push(Reverse(Entry { at, number, event }));
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.heap
            .pop()
            .map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// How many events were ever made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_making() {
        let mut queue = Queue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(at, event);
        }
        let order: Vec<char> = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
