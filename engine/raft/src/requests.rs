//! One request at a time to each peer: whom we may ask now, whose answer still counts, and how long
//! to leave alone somebody who failed.
//!
//! All of it is forgotten when the replica changes its state, so that a late answer to what an
//! earlier state asked is dropped (Kafka `RequestManager`). The pause after failures in a row is
//! exponential with jitter (KIP-595 configuration, KIP-580), where Kafka's is constant.

use crate::output::RequestId;
use crate::rng::Rng;
use crate::types::{Instant, NodeId};
use alloc::collections::BTreeMap;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Vote,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Ready,
    Awaiting {
        id: RequestId,
        kind: RequestKind,
        deadline: Instant,
    },
    BackingOff {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    connection: Connection,
    /// Failures since the last success.
    failures: u32,
}

/// How long to wait for an answer, and before asking again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) request_timeout_ms: u64,
    pub(crate) retry_backoff_ms: u64,
    pub(crate) retry_backoff_max_ms: u64,
}

/// The outstanding requests and the pauses, per peer.
#[derive(Debug)]
pub(crate) struct RequestManager {
    patience: Patience,
    next_id: u64,
    /// Peers that were ever asked in this state; bounded by voters and bootstrap servers.
    destinations: BTreeMap<NodeId, Destination>,
}

/// `base_ms` doubled with each failure after the first, at most `max_ms`, and a fifth more or less
/// at random, so that peers which failed together do not come back together.
pub(crate) fn backoff_ms(base_ms: u64, max_ms: u64, failures: u32, rng: &mut Rng) -> u64 {
    let doublings = failures.saturating_sub(1).min(32);
    let full = base_ms.saturating_mul(1 << doublings).min(max_ms);
    let tenths = full.saturating_mul(8 + rng.below(5));
    (tenths / 10).min(max_ms)
}

impl RequestManager {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            next_id: 1,
            destinations: BTreeMap::new(),
        }
    }

    /// Forgets every outstanding request and every pause.
    pub(crate) fn reset(&mut self) {
        self.destinations.clear();
    }

    pub(crate) fn is_ready(&self, peer: NodeId) -> bool {
        match self.destinations.get(&peer) {
            Some(destination) => destination.connection == Connection::Ready,
            None => true,
        }
    }

    /// Whether a Fetch to anybody is outstanding.
    pub(crate) fn is_fetching(&self) -> bool {
        self.destinations.values().any(|destination| {
            matches!(
                destination.connection,
                Connection::Awaiting {
                    kind: RequestKind::Fetch,
                    ..
                }
            )
        })
    }

    /// Whether `peer` is left alone for a while after a failure.
    /// Forgets the Fetches in flight: their answers, should they still come, are of no use.
    pub(crate) fn forget_fetches(&mut self) {
        for destination in self.destinations.values_mut() {
            if let Connection::Awaiting {
                kind: RequestKind::Fetch,
                ..
            } = destination.connection
            {
                destination.connection = Connection::Ready;
            }
        }
    }

    pub(crate) fn is_backing_off(&self, peer: NodeId) -> bool {
        matches!(
            self.destinations.get(&peer),
            Some(Destination {
                connection: Connection::BackingOff { .. },
                ..
            })
        )
    }

    /// A request goes out to `peer`.
    ///
    /// # Panics
    /// If the peer is not ready.
    pub(crate) fn start(&mut self, now: Instant, peer: NodeId, kind: RequestKind) -> RequestId {
        assert!(self.is_ready(peer), "two requests at once to {peer}");
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let deadline = now.plus_ms(self.patience.request_timeout_ms);
        self.destination(peer).connection = Connection::Awaiting { id, kind, deadline };
        id
    }

    /// An answer came, or the news that none will. What was asked, or `None` if this request is not
    /// outstanding (any more). The peer is ready then; say whether it succeeded or failed.
    pub(crate) fn complete(&mut self, peer: NodeId, id: RequestId) -> Option<RequestKind> {
        let destination = self.destinations.get_mut(&peer)?;
        match destination.connection {
            Connection::Awaiting {
                id: awaited, kind, ..
            } if awaited == id => {
                destination.connection = Connection::Ready;
                Some(kind)
            }
            _ => None,
        }
    }

    pub(crate) fn succeeded(&mut self, peer: NodeId) {
        self.destination(peer).failures = 0;
    }

    /// Leaves `peer` alone for longer with each failure in a row.
    pub(crate) fn failed(&mut self, now: Instant, peer: NodeId, rng: &mut Rng) {
        let patience = self.patience;
        let destination = self.destination(peer);
        destination.failures = destination.failures.saturating_add(1);
        let (base, max) = (patience.retry_backoff_ms, patience.retry_backoff_max_ms);
        let pause = backoff_ms(base, max, destination.failures, rng);
        destination.connection = Connection::BackingOff {
            until: now.plus_ms(pause.max(1)),
        };
    }

    /// Leaves alone for the shortest pause a peer that answered in good order, but knew nothing.
    pub(crate) fn knew_nothing(&mut self, now: Instant, peer: NodeId, rng: &mut Rng) {
        self.destination(peer).failures = 0;
        self.failed(now, peer, rng);
    }

    /// Counts what was not answered in time as failed, and ends pauses that are over.
    pub(crate) fn expire(&mut self, now: Instant, rng: &mut Rng) {
        let mut timed_out = None;
        for (&peer, destination) in &mut self.destinations {
            match destination.connection {
                Connection::BackingOff { until } if until <= now => {
                    destination.connection = Connection::Ready;
                }
                Connection::Awaiting { deadline, .. } if deadline <= now => timed_out = Some(peer),
                _ => {}
            }
        }
        if let Some(peer) = timed_out {
            self.failed(now, peer, rng);
            // Rare, and one peer fewer with each round.
            self.expire(now, rng);
        }
    }

    /// When [`RequestManager::expire`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let due = |destination: &Destination| match destination.connection {
            Connection::Ready => None,
            Connection::Awaiting { deadline, .. } => Some(deadline),
            Connection::BackingOff { until } => Some(until),
        };
        self.destinations.values().filter_map(due).min()
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.destinations.keys().copied()
    }

    fn destination(&mut self, peer: NodeId) -> &mut Destination {
        self.destinations.entry(peer).or_insert(Destination {
            connection: Connection::Ready,
            failures: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager() -> RequestManager {
        RequestManager::new(Patience {
            request_timeout_ms: 100,
            retry_backoff_ms: 20,
            retry_backoff_max_ms: 1000,
        })
    }

    fn ms(ms: u64) -> Instant {
        Instant::default().plus_ms(ms)
    }

    #[test]
    fn only_the_outstanding_request_is_answered() {
        let mut requests = manager();
        let id = requests.start(ms(0), 2, RequestKind::Vote);
        assert!(!requests.is_ready(2) && requests.is_ready(3));
        assert_eq!(requests.complete(3, id), None);
        assert_eq!(requests.complete(2, RequestId(id.0 + 1)), None);
        assert_eq!(requests.complete(2, id), Some(RequestKind::Vote));
        assert_eq!(requests.complete(2, id), None);
        assert!(requests.is_ready(2));
    }

    #[test]
    fn late_answer_to_a_timed_out_request_is_ignored() {
        let (mut requests, mut rng) = (manager(), Rng::new(1));
        let id = requests.start(ms(0), 2, RequestKind::Fetch);
        assert_eq!(requests.next_deadline(), Some(ms(100)));
        assert!(requests.is_fetching());
        requests.expire(ms(99), &mut rng);
        assert!(requests.is_fetching());
        requests.expire(ms(100), &mut rng);
        assert!(requests.is_backing_off(2) && !requests.is_fetching());
        assert_eq!(requests.complete(2, id), None);
    }

    #[test]
    fn pause_doubles_with_each_failure_up_to_the_maximum() {
        let mut rng = Rng::new(5);
        for (failures, full) in [(1, 20), (2, 40), (4, 160), (7, 1000), (60, 1000)] {
            for _ in 0..100 {
                let pause = backoff_ms(20, 1000, failures, &mut rng);
                assert!(pause * 10 >= full * 8 && pause * 10 <= full * 12, "{pause}");
                assert!(pause <= 1000);
            }
        }
    }

    #[test]
    fn success_ends_the_row_of_failures() {
        let (mut requests, mut rng) = (manager(), Rng::new(1));
        for _ in 0..6 {
            requests.failed(ms(0), 2, &mut rng);
        }
        assert!(requests.next_deadline() > Some(ms(400)));
        requests.expire(ms(2000), &mut rng);
        let id = requests.start(ms(2000), 2, RequestKind::Fetch);
        requests.complete(2, id);
        requests.succeeded(2);
        requests.failed(ms(2000), 2, &mut rng);
        assert!(requests.next_deadline() <= Some(ms(2024)));
        requests.expire(ms(2024), &mut rng);
        assert!(requests.is_ready(2));
        assert_eq!(requests.next_deadline(), None);
    }

    #[test]
    fn reset_forgets_requests_but_never_reuses_an_id() {
        let mut requests = manager();
        let first = requests.start(ms(0), 2, RequestKind::Vote);
        requests.reset();
        assert_eq!(requests.complete(2, first), None);
        let second = requests.start(ms(0), 2, RequestKind::Vote);
        assert!(second > first);
    }
}
