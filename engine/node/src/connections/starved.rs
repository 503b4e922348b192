//! Which of the connections that have used their share is read from, when the common budget for
//! requests is used up.
//!
//! Requests that are whole end by themselves, and give their memory back. Frames that have half
//! arrived end only if somebody reads on, so that if they were all that fills the budget nothing
//! would ever go on: the oldest is read from all the same, one at a time and to the end of its
//! frame. The budget is exceeded by no more than that frame. If it stalls, `pressure` closes it.

use super::{ConnectionSet, Open, SHARE_BYTES};

impl ConnectionSet {
    /// A connection waits for memory.
    pub(super) fn starve(&mut self, index: u32) {
        if let Some(open) = self.slots[index as usize].open.as_mut() {
            open.is_starved = true;
            self.starved.push_back(index);
            self.limits.requests.begin_waiting();
        }
    }

    /// It waits no more.
    pub(super) fn unstarve(&mut self, index: u32) {
        if let Some(open) = self.slots[index as usize].open.as_mut() {
            open.is_starved = false;
            self.starved.retain(|starved| *starved != index);
            self.limits.requests.end_waiting();
            self.mark_dirty(index);
        }
    }

    /// Those that had to wait for memory are looked after again: all of them once there is some,
    /// else one.
    pub(super) fn feed_starved(&mut self) {
        if !self.limits.requests.is_used() {
            self.favoured = None;
            while let Some(index) = self.starved.front() {
                self.unstarve(*index);
            }
            return;
        }
        let is_done = |index: u32| self.open_at(index).is_none_or(has_had_its_turn);
        if self.favoured.is_some_and(is_done) {
            self.favoured = None;
        }
        if self.favoured.is_none() {
            let can_only_read = |index: &u32| {
                let open = self.open_at(*index);
                open.is_some_and(|open| open.requests_open == 0)
            };
            self.favoured = self.starved.iter().copied().find(can_only_read);
            if let Some(index) = self.favoured {
                self.unstarve(index);
            }
        }
    }

    pub(super) fn open_at(&self, index: u32) -> Option<&Open> {
        self.slots[index as usize].open.as_ref()
    }
}

/// Whether a connection that was favoured has finished its frame, or cannot go on with it.
fn has_had_its_turn(open: &Open) -> bool {
    let is_stuck = !open.receiving && !open.is_dirty && !open.is_ready;
    let has_ended = open.is_starved || is_stuck;
    open.counted.requests < SHARE_BYTES || (has_ended && open.requests_open == 0)
}
