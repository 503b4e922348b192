//! A loop of its own for clients: accepts, parses, encodes; the raft loop decides.
//!
//! Requests go to the raft loop in batches, one per turn, answers come back the same way. With no
//! such loop (the default on few cores) the raft loop serves its clients itself.

use crate::background::Mailbox;
use crate::client_service::Answer;
use crate::clock::Clock;
use crate::connections::{AnswerBudget, ConnectionId, ConnectionSet, Origin, SetLimits};
use crate::metrics::SetMetrics;
use crate::raft_loop::WaitKind;
use quorate_net::{ApiRequest, ListenerKind};
use quorate_ring::{Completion, Ring, Wait};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The two mailboxes between a client loop and the raft loop.
pub struct ClientLane {
    /// To the raft loop.
    pub requests: Arc<Mailbox<LaneIn>>,
    /// To the client loop.
    pub answers: Arc<Mailbox<LaneOut>>,
}

/// What a client loop sends the raft loop: what came up in one turn.
#[derive(Default)]
pub struct LaneIn {
    /// Requests, in the order in which each connection sent them.
    pub requests: Vec<(Origin, ApiRequest)>,
    /// Connections that are gone and have requests not answered.
    pub gone: Vec<ConnectionId>,
}

impl LaneIn {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.gone.is_empty()
    }
}

/// What comes back.
pub type LaneOut = Vec<Answer>;

/// Batches that may wait in one direction; the loops' limits on requests in flight come first.
pub const LANE_MAX: usize = 1024;

/// A client loop.
pub struct ClientLoop {
    ring: Ring,
    clock: Clock,
    connections: ConnectionSet,
    answers: Arc<AnswerBudget>,
    lane: ClientLane,
    pending: LaneIn,
    stop: Arc<AtomicBool>,
    wait: WaitKind,
    metrics: Arc<SetMetrics>,
}

impl ClientLoop {
    /// A loop that accepts from `listeners`.
    #[must_use]
    pub fn new(
        ring: Ring,
        clock: Clock,
        listeners: Vec<Arc<OwnedFd>>,
        limits: SetLimits,
        lane: ClientLane,
        stop: Arc<AtomicBool>,
        wait: WaitKind,
        metrics: Arc<SetMetrics>,
    ) -> Self {
        let answers = Arc::clone(&limits.answers);
        let connections = ConnectionSet::new(ListenerKind::Client, 0, listeners, limits);
        Self {
            ring,
            clock,
            connections,
            answers,
            lane,
            pending: LaneIn::default(),
            stop,
            wait,
            metrics,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut completions: Vec<Completion> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.read().instant;
            while let Some(answers) = self.lane.answers.receive() {
                answers.into_iter().for_each(|answer| self.give(answer));
            }
            while let Some(request) = self.connections.next_request() {
                self.pending.requests.push(request);
            }
            self.pending.gone.extend(self.connections.take_abandoned());
            if !self.pending.is_empty()
                && let Err(unsent) = self.lane.requests.send(std::mem::take(&mut self.pending))
            {
                self.pending = unsent;
            }
            self.connections.on_tick(&mut self.ring, now);
            self.connections.flush(&mut self.ring);
            self.connections.publish(&self.metrics);
            self.ring.turn(self.next_wait(), &mut completions)?;
            let now = self.clock.read().instant;
            for Completion { user, kind } in completions.drain(..) {
                self.connections
                    .on_completion(&mut self.ring, now, user, kind);
            }
        }
        Ok(())
    }

    fn give(&mut self, answer: Answer) {
        if let Some(response) = &answer.response {
            self.answers.discharge(response);
        }
        answer.give(&mut self.connections);
    }

    fn next_wait(&self) -> Wait {
        if !self.pending.is_empty() {
            // The raft loop's box is full: look again soon.
            return Wait::Until {
                timeout: Some(Duration::from_millis(1)),
            };
        }
        let now = self.clock.read().instant;
        let deadline = self.connections.next_deadline();
        let timeout = deadline.map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)));
        self.wait.until(timeout)
    }
}
