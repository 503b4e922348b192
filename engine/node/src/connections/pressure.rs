//! Which connections must go: those that stand idle, and, when memory is short, those that keep it
//! and do nothing with it.
//!
//! Nothing is closed silently: each is counted, and a closing under pressure is a warning.

use super::{ConnectionSet, Open, SHARE_BYTES};
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
        if !self.starved.is_empty() && self.is_request_budget_used() {
            let is_stalled = |open: &Open| {
                let late = now.ms_since(open.active) > STALLED_MS
                    || open
                        .frame_since
                        .is_some_and(|at| now.ms_since(at) > FRAME_MS);
                !open.is_starved && open.protocol.buffered() >= SHARE_BYTES && late
            };
            let closed = self.close_where(is_stalled);
            self.shed(
                closed,
                "left a request unfinished while memory for requests is used up",
            );
        }
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
