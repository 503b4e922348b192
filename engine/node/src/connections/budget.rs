//! What the connections of all loops share: how many there are, and how much memory their requests
//! take, and the answers that their clients have not read.
//!
//! Counters only; who waits and who is closed because of them is decided in `connections`.

use quorate_net::ApiResponse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count with an upper bound, shared by loops.
#[derive(Debug)]
pub struct ConnectionCount {
    open: AtomicUsize,
    max: usize,
}

impl ConnectionCount {
    /// None yet, of at most `max`.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let open = AtomicUsize::new(0);
        Arc::new(Self { open, max })
    }

    /// Takes a place, if there is one.
    pub(super) fn try_enter(&self) -> bool {
        let entered = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < self.max).then_some(open + 1)
            });
        entered.is_ok()
    }

    pub(super) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of requests that connections keep beyond their shares, over all loops.
#[derive(Debug)]
pub struct RequestBudget {
    used: AtomicUsize,
    /// Connections that are not read from until there is room.
    waiting: AtomicUsize,
    max: usize,
}

impl RequestBudget {
    /// Nothing used yet, of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let (used, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { used, waiting, max })
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.max
    }

    /// Bytes to be given back before it is not used up any more.
    pub(super) fn over(&self) -> usize {
        (self.used.load(Ordering::Relaxed) + 1).saturating_sub(self.max)
    }

    /// A connection kept `before` bytes beyond its share, and keeps `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        if now >= before {
            self.used.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let used = self.used.fetch_sub(before - now, Ordering::Relaxed);
            assert!(used >= before - now, "{used} bytes used, {before} of one");
        }
    }

    pub(super) fn begin_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether anybody waits, on any loop.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Bytes of answers that are made and not yet taken by the kernel, over all connections of one
/// kind.
///
/// Above `max` it is tight: a connection that has unread answers is not served further, and
/// consumers are given little at a time. Above one and a half times `max` it is exhausted: nobody
/// is served, and connections that do not read what they asked for are closed.
#[derive(Debug)]
pub struct AnswerBudget {
    used: AtomicUsize,
    max: usize,
}

impl AnswerBudget {
    /// Nothing used yet, of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { used, max })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn is_tight(&self) -> bool {
        self.used() >= self.max
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.used() >= self.max + self.max / 2
    }

    /// What may still be handed to consumers.
    #[must_use]
    pub fn room(&self) -> AnswerRoom {
        let used = self.used();
        AnswerRoom {
            plenty: self.max.saturating_sub(used),
            last: (self.max + self.max / 2).saturating_sub(used),
        }
    }

    /// Counts an answer that is on its way to another loop; that loop takes it off again.
    pub fn charge(&self, answer: &ApiResponse) {
        self.add(record_bytes(answer));
    }

    /// The answer is where it belongs, and counted there.
    pub fn discharge(&self, answer: &ApiResponse) {
        self.sub(record_bytes(answer));
    }

    pub(super) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }
}

/// How many bytes of records consumers may be given before the next look at the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerRoom {
    /// Until the budget is tight.
    pub plenty: usize,
    /// Until it is exhausted.
    pub last: usize,
}

impl AnswerRoom {
    /// Takes off what was given.
    pub fn take(&mut self, bytes: usize) {
        self.plenty = self.plenty.saturating_sub(bytes);
        self.last = self.last.saturating_sub(bytes);
    }
}

/// Answers with records are the large ones.
fn record_bytes(answer: &ApiResponse) -> usize {
    let ApiResponse::Fetch(fetch) = answer else {
        return 0;
    };
    let partitions = fetch.responses.iter().flat_map(|topic| &topic.partitions);
    let parts = partitions.flat_map(|partition| &partition.records);
    parts.map(bytes::Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_over_all_loops() {
        let count = ConnectionCount::new(2);
        assert!(count.try_enter() && count.try_enter());
        assert!(!count.try_enter());
        count.leave();
        assert!(count.try_enter());
    }

    #[test]
    fn room_ends_first_for_plenty_and_then_for_all() {
        let budget = AnswerBudget::new(100);
        budget.add(70);
        let mut room = budget.room();
        assert_eq!((room.plenty, room.last), (30, 80));
        room.take(50);
        assert_eq!((room.plenty, room.last), (0, 30));
        budget.add(50);
        assert!(budget.is_tight() && !budget.is_exhausted());
        budget.add(30);
        assert!(budget.is_exhausted());
        budget.sub(150);
        assert_eq!(budget.used(), 0);
    }
}
