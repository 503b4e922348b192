//! The election in memory and on disk, and the answers that wait for the disk.
//!
//! The state in memory changes at once; no message leaves while the quorum-state file is behind it.
//! That covers what must not be forgotten after it was said (a granted vote, an acknowledgement in
//! a new epoch) without anybody having to think which message says what. Requests are not kept
//! here: they are made when they may leave, so that those of an earlier state never come to be.

use crate::output::{ElectionSeq, ElectionState, Output, Outputs, RequestToken};
use alloc::collections::VecDeque;

/// The election and how much of it is durable.
#[derive(Debug)]
pub(crate) struct Election {
    current: ElectionState,
    /// Number of the last write asked for, or about to be.
    requested: ElectionSeq,
    /// Changed since the last write was asked for. One input may change the election several times
    /// (a newer epoch, then a vote in it) and is worth one write.
    is_dirty: bool,
    /// Number of the last write reported.
    durable: ElectionSeq,
    /// Answers in order, each with the write that it waits for. Bounded by the connections: a peer
    /// has one request in flight.
    held: VecDeque<(ElectionSeq, RequestToken, Output)>,
}

impl Election {
    pub(crate) fn new(current: ElectionState) -> Self {
        Self {
            current,
            requested: ElectionSeq(0),
            is_dirty: false,
            durable: ElectionSeq(0),
            held: VecDeque::new(),
        }
    }

    pub(crate) fn current(&self) -> &ElectionState {
        &self.current
    }

    /// Whether the file says what memory says.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable == self.requested
    }

    /// Changes the election; unless it is the same, it has to be written.
    ///
    /// # Panics
    /// If the epoch goes back, or a vote of the same epoch is taken back for another.
    pub(crate) fn set(&mut self, next: ElectionState) {
        let current = &self.current;
        assert!(next.epoch >= current.epoch, "{current:?} to {next:?}");
        if next.epoch == current.epoch
            && let (Some(before), Some(after)) = (current.voted, next.voted)
        {
            assert!(before.matches(after), "{current:?} to {next:?}");
        }
        if next != *current {
            self.current = next;
            self.touch();
        }
    }

    /// Has the election written even if it is what the file should say.
    pub(crate) fn touch(&mut self) {
        if !self.is_dirty {
            self.is_dirty = true;
            self.requested.0 += 1;
        }
    }

    /// Asks for the write, if there is one to ask for. Once per input.
    pub(crate) fn write(&mut self, out: &mut Outputs) {
        if self.is_dirty {
            self.is_dirty = false;
            out.push(Output::PersistElection {
                seq: self.requested,
                election: self.current,
            });
        }
    }

    /// The disk reports a write, and with it all earlier ones.
    ///
    /// # Panics
    /// If it was never asked for.
    pub(crate) fn on_persisted(&mut self, seq: ElectionSeq) {
        assert!(
            seq <= self.requested,
            "{seq:?} reported, {:?} asked for",
            self.requested
        );
        self.durable = self.durable.max(seq);
    }

    /// Gives an answer, at once or as soon as the election is durable.
    pub(crate) fn answer(&mut self, token: RequestToken, output: Output, out: &mut Outputs) {
        if self.is_durable() {
            assert!(self.held.is_empty(), "an answer would overtake another");
            out.push(output);
        } else {
            self.held.push_back((self.requested, token, output));
        }
    }

    /// Lets go what has become durable.
    pub(crate) fn release(&mut self, out: &mut Outputs) {
        while let Some((seq, _, _)) = self.held.front()
            && *seq <= self.durable
            && let Some((_, _, output)) = self.held.pop_front()
        {
            out.push(output);
        }
    }

    pub(crate) fn forget(&mut self, token: RequestToken) {
        self.held.retain(|(_, held, _)| *held != token);
    }

    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Epoch, ReplicaKey};
    use alloc::vec::Vec;

    fn voted(epoch: i32, id: i32) -> ElectionState {
        ElectionState {
            epoch: Epoch(epoch),
            leader_id: None,
            voted: Some(ReplicaKey::of(id)),
        }
    }

    #[test]
    fn answers_wait_for_the_write_that_they_depend_on_and_keep_their_order() {
        let mut out = Vec::new();
        let mut election = Election::new(ElectionState::default());
        election.set(voted(1, 2));
        election.write(&mut out);
        election.answer(RequestToken(1), Output::ShutdownComplete, &mut out);
        election.set(voted(2, 3));
        election.write(&mut out);
        election.answer(RequestToken(2), Output::ShutdownComplete, &mut out);
        election.answer(RequestToken(3), Output::ShutdownComplete, &mut out);
        assert_eq!(out.len(), 2, "nothing but the two writes");

        election.on_persisted(ElectionSeq(1));
        election.release(&mut out);
        assert_eq!(out.len(), 3);
        assert!(!election.is_durable() && election.is_holding());

        election.forget(RequestToken(2));
        election.on_persisted(ElectionSeq(2));
        election.release(&mut out);
        assert_eq!(out.len(), 4);
        assert!(election.is_durable() && !election.is_holding());
    }

    #[test]
    fn changes_of_one_input_are_one_write_and_no_change_is_none() {
        let mut out = Vec::new();
        let mut election = Election::new(voted(1, 2));
        election.set(voted(1, 2));
        election.write(&mut out);
        assert!(out.is_empty() && election.is_durable());
        election.set(ElectionState {
            voted: None,
            ..voted(2, 2)
        });
        election.set(voted(2, 3));
        assert!(!election.is_durable(), "before the write is even asked for");
        election.write(&mut out);
        election.write(&mut out);
        let seq = ElectionSeq(1);
        let election = voted(2, 3);
        assert_eq!(out, [Output::PersistElection { seq, election }]);
    }

    #[test]
    #[should_panic(expected = "to ElectionState")]
    fn second_vote_in_an_epoch_is_a_fault_of_ours() {
        let mut election = Election::new(voted(1, 2));
        election.set(voted(1, 3));
    }
}
