//! How the admin listener asks the raft loop for its state, and what it gets.
//!
//! The loop looks at one number once a turn; only when somebody asked does it describe itself. It
//! never waits for who asked: an answer that nobody takes is dropped. That the loop answers at all
//! is how the outside knows that it turns.

use crate::replica::LogSize;
use quorate_raft::{Epoch, Instant, LeaderInfo, NodeId, Offset, QuorumDescription, Role, VoterSet};
use quorate_ring::Waker;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A node as its raft loop sees it, at one moment.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// When, by the node's clock.
    pub at: Instant,
    /// When, in ms since 1970.
    pub wall_ms: i64,
    /// Its state.
    pub role: Role,
    /// Whether it is a voter.
    pub is_voter: bool,
    /// Its epoch.
    pub epoch: Epoch,
    /// Whom it voted for in this epoch.
    pub voted: Option<NodeId>,
    /// The leader, if known.
    pub leader: LeaderInfo,
    /// Exclusive; `None` if unknown.
    pub high_watermark: Option<Offset>,
    /// First offset of the log.
    pub log_start: Offset,
    /// End of the log (exclusive).
    pub log_end: Offset,
    /// Its size and how large it may be.
    pub log_size: LogSize,
    /// Epoch of the last record.
    pub last_epoch: Epoch,
    /// What is flushed of it (exclusive).
    pub flushed: Offset,
    /// A follower's leader's high watermark, as it last said.
    pub leader_high_watermark: Option<Offset>,
    /// A follower has had an answer of its leader within the time it waits for one.
    pub hears_leader: bool,
    /// When a follower last had all that its leader had committed.
    pub caught_up_at: Option<Instant>,
    /// The node is shutting down.
    pub is_stopping: bool,
    /// All voters of the configuration.
    pub voters: VoterSet,
    /// The replicas, if this node leads.
    pub quorum: Option<QuorumDescription>,
    /// The last change of state.
    pub changed: Change,
}

/// A change of state.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When, in ms since 1970.
    pub wall_ms: i64,
    /// Why.
    pub reason: &'static str,
}

/// The raft loop's end.
pub struct Respondent {
    asked: Arc<AtomicU64>,
    seen: u64,
    answers: SyncSender<(u64, NodeStatus)>,
}

impl Respondent {
    /// Whether somebody asked since the last answer. One relaxed load.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.seen
    }

    /// Answers. Never blocks.
    pub fn answer(&mut self, status: NodeStatus) {
        self.seen = self.asked.load(Ordering::Acquire);
        match self.answers.try_send((self.seen, status)) {
            // Nobody took the last one, or nobody is there any more.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// The admin listener's end.
pub struct Inquirer {
    asked: Arc<AtomicU64>,
    number: u64,
    waker: Arc<OnceLock<Waker>>,
    answers: Receiver<(u64, NodeStatus)>,
    /// When the oldest question was asked that is not answered yet.
    waiting_since: Option<Instant>,
    last: Option<NodeStatus>,
}

/// Both ends. `waker` is set when the raft loop is there.
#[must_use]
pub fn inquiry(waker: Arc<OnceLock<Waker>>) -> (Inquirer, Respondent) {
    let asked = Arc::new(AtomicU64::new(0));
    let (sender, answers) = sync_channel(1);
    let inquirer = Inquirer {
        asked: Arc::clone(&asked),
        number: 0,
        waker,
        answers,
        waiting_since: None,
        last: None,
    };
    let respondent = Respondent {
        asked,
        seen: 0,
        answers: sender,
    };
    (inquirer, respondent)
}

impl Inquirer {
    /// The state of the node as of now, or why there is none.
    ///
    /// Waits for up to `patience`, but not again while an earlier question is open.
    ///
    /// # Errors
    /// The loop has not answered.
    pub fn ask(&mut self, now: Instant, patience: Duration) -> Result<&NodeStatus, Silence> {
        let Some(waker) = self.waker.get().cloned() else {
            return Err(Silence::NotStarted);
        };
        self.take_answers();
        let was_waiting = self.waiting_since.is_some();
        if !was_waiting {
            self.number += 1;
            self.asked.store(self.number, Ordering::Release);
            self.waiting_since = Some(now);
        }
        waker.wake();
        let patience = if was_waiting {
            Duration::ZERO
        } else {
            patience
        };
        if let Ok(answer) = self.answers.recv_timeout(patience) {
            self.take(answer);
        }
        match (self.waiting_since, &self.last) {
            (None, Some(status)) => Ok(status),
            (since, _) => Err(Silence::Since(since.unwrap_or(now))),
        }
    }

    /// The last answer, however old.
    #[must_use]
    pub fn last(&self) -> Option<&NodeStatus> {
        self.last.as_ref()
    }

    fn take_answers(&mut self) {
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer);
        }
    }

    fn take(&mut self, (number, status): (u64, NodeStatus)) {
        self.last = Some(status);
        if number >= self.number {
            self.waiting_since = None;
        }
    }
}

/// The raft loop gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is not there yet: the log is being opened.
    NotStarted,
    /// It was asked then, and has not answered.
    Since(Instant),
}

#[cfg(test)]
mod tests {
    use super::super::health::tests::{ms, status};
    use super::*;
    use quorate_ring::{Ring, RingConfig};

    const SHORT: Duration = Duration::from_millis(20);

    fn ends() -> (Ring, Inquirer, Respondent) {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let waker = Arc::new(OnceLock::new());
        let (mut inquirer, respondent) = inquiry(Arc::clone(&waker));
        let before = inquirer.ask(ms(1), SHORT).err();
        assert_eq!(before, Some(Silence::NotStarted));
        assert!(waker.set(ring.waker()).is_ok());
        (ring, inquirer, respondent)
    }

    #[test]
    fn a_silent_loop_is_waited_for_once_and_its_late_answer_counts() {
        let (_ring, mut inquirer, mut respondent) = ends();
        assert!(!respondent.is_asked());
        let since = Some(Silence::Since(ms(10)));
        assert_eq!(inquirer.ask(ms(10), SHORT).err(), since);
        assert!(respondent.is_asked());
        // Without waiting, or this test would never end.
        let long = Duration::from_secs(100_000);
        assert_eq!(inquirer.ask(ms(7_000), long).err(), since);
        respondent.answer(status(Role::Leader, Some(1)));
        assert!(!respondent.is_asked(), "one answer for both");
        assert_eq!(
            inquirer.ask(ms(8_000), SHORT).err(),
            Some(Silence::Since(ms(8_000)))
        );
        assert!(inquirer.last().is_some());
        respondent.answer(status(Role::Leader, Some(1)));
        respondent.answer(status(Role::Leader, Some(1)));
        let since = Some(Silence::Since(ms(8_001)));
        assert_eq!(inquirer.ask(ms(8_001), SHORT).err(), since, "asked anew");
        assert!(respondent.is_asked());
    }
}
