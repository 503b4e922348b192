//! Which connections must go: those that stand idle, and, when memory is short, those that keep it
//! and do nothing with it.
//!
//! Nothing is closed silently: each is counted, and a closing under pressure is a warning.

use super::{ConnectionSet, Open};
use quorate_raft::Instant;

/// When memory is short: how long answers may lie unread, and a large frame may not go on.
const STALLED_MS: u64 = 5_000;

/// When memory is short: how long a large frame may take to arrive.
const FRAME_MS: u64 = 30_000;

impl ConnectionSet {
    /// Closes what has been idle for too long.
    pub(super) fn close_idle(&mut self, now: Instant) {
        let idle_ms = self.limits.idle_ms;
        let is_idle = |open: &Open| {
            let is_silent = now.ms_since(open.active) > idle_ms && open.requests_open == 0;
            let is_deaf = open.sending && now.ms_since(open.sent_at) > idle_ms;
            is_silent || is_deaf
        };
        let closed = self.close_where(is_idle);
        self.stats.idle_closed += closed;
    }

    /// Closes what keeps others waiting, if others must wait.
    pub(super) fn relieve(&mut self, now: Instant) {
        if self.limits.answers.is_exhausted() {
            let is_deaf = |open: &Open| open.sending && now.ms_since(open.sent_at) > STALLED_MS;
            let closed = self.close_where(is_deaf);
            self.shed(
                closed,
                "left their answers unread while memory for answers is used up",
            );
        }
        if self.limits.requests.is_awaited() && self.limits.requests.is_used() {
            let is_stalled = |open: &Open| {
                let asked_at = open.asked_at;
                let late = now.ms_since(open.active.max(asked_at)) > STALLED_MS
                    || now.ms_since(asked_at) + open.frame_ns / 1_000_000 > FRAME_MS;
                // Who is not read from, because of others or of its own requests, can do nothing.
                open.receiving && open.has_large_frame() && late
            };
            let favoured = self.favoured.and_then(|index| self.open_at(index));
            let is_blocked = favoured.is_some_and(is_stalled);
            let mut closed = self.close_where(is_stalled);
            if is_blocked {
                closed += self.close_starved(self.limits.requests.over());
            }
            self.shed(
                closed,
                "left a request unfinished while memory for requests is used up",
            );
        }
    }

    /// The one that may go on does not: those that wait with it are halves of requests as well, so
    /// the oldest of them give up their memory, `bytes` of it, lest each is waited for in turn.
    fn close_starved(&mut self, mut bytes: usize) -> u64 {
        let mut due = Vec::new();
        for index in &self.starved {
            let Some(open) = self.open_at(*index).filter(|open| open.requests_open == 0) else {
                continue;
            };
            if bytes == 0 {
                break;
            }
            bytes = bytes.saturating_sub(open.counted.request_excess());
            due.push(*index);
        }
        due.iter().for_each(|index| self.close(*index));
        due.len() as u64
    }

    fn shed(&mut self, closed: u64, why: &str) {
        if closed > 0 {
            self.stats.shed += closed;
            tracing::warn!(connections = closed, "closed connections that {why}");
        }
    }

    /// Closes all connections of which `is_due`. How many.
    fn close_where(&mut self, is_due: impl Fn(&Open) -> bool) -> u64 {
        let mut closed = 0;
        for index in 0..self.slots.len() {
            let open = self.slots[index].open.as_ref();
            if open.is_some_and(|open| !open.closing && is_due(open)) {
                self.close(index as u32);
                closed += 1;
            }
        }
        closed
    }
}
