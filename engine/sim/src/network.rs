//! Connections between nodes: requests that arrive late, never, or at a node that is down; answers
//! that come after the asker has asked something else; links cut in one direction or both.
//!
//! Over TCP nothing is duplicated: a request is delivered at most once, and its answer too.

use crate::queue::Nanos;
use crate::rng::Rng;
use crate::scenario::Delays;
use bytes::Bytes;
use quorate_raft::{Epoch, NodeId, Request, RequestId, Response};
use std::collections::BTreeMap;

/// Names an exchange; also the token under which its receiver answers.
pub(crate) type ExchangeId = u64;

/// One request and its answer, on one connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Index of the node that asks, and which of its lives it is in.
    pub(crate) from: usize,
    pub(crate) from_life: u64,
    /// Index of the node that is asked.
    pub(crate) to: usize,
    /// The life in which it took the request.
    pub(crate) to_life: Option<u64>,
    /// The id it was addressed by; negative for a bootstrap server.
    pub(crate) addressed: NodeId,
    pub(crate) id: RequestId,
    /// Until it arrives.
    pub(crate) request: Option<Request>,
    /// Until it arrives.
    pub(crate) answer: Option<(Response, Bytes)>,
    /// If it asks for a vote (not a pre-vote): the epoch and who asks.
    pub(crate) vote: Option<(Epoch, NodeId)>,
}

/// The links and what travels on them.
#[derive(Debug)]
pub(crate) struct Network {
    rng: Rng,
    delays: Delays,
    breaks_per_mille: u64,
    /// Per direction: cut until then.
    cut_until: Vec<Vec<Nanos>>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    next: ExchangeId,
}

/// What becomes of one crossing of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// It arrives at this time.
    Arrives(Nanos),
    /// The connection breaks; both ends notice at this time.
    Breaks(Nanos),
    /// It vanishes, and nobody is told.
    Vanishes,
}

impl Network {
    pub(crate) fn new(rng: Rng, nodes: usize, delays: Delays, breaks_per_mille: u64) -> Self {
        let cut_until = vec![vec![0; nodes]; nodes];
        Self {
            rng,
            delays,
            breaks_per_mille,
            cut_until,
            exchanges: BTreeMap::new(),
            next: 1,
        }
    }

    /// How long something takes on a link.
    pub(crate) fn delay(&mut self) -> Nanos {
        self.delays.next(&mut self.rng)
    }

    /// Sends something from one node to another.
    pub(crate) fn cross(&mut self, now: Nanos, from: usize, to: usize) -> Crossing {
        if self.is_cut(now, from, to) {
            return Crossing::Vanishes;
        }
        let at = now + self.delay();
        if self.rng.chance(self.breaks_per_mille) {
            return Crossing::Breaks(at);
        }
        Crossing::Arrives(at)
    }

    /// Whether nothing gets from one node to another at `now`.
    pub(crate) fn is_cut(&self, now: Nanos, from: usize, to: usize) -> bool {
        self.cut_until[from][to] > now
    }

    /// Cuts one direction of a link.
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: Nanos) {
        self.cut_until[from][to] = self.cut_until[from][to].max(until);
    }

    /// Ends everything that goes wrong here.
    pub(crate) fn heal(&mut self) {
        self.cut_until.iter_mut().for_each(|row| row.fill(0));
        self.delays = self.delays.healthy();
        self.breaks_per_mille = 0;
    }

    /// Begins an exchange.
    pub(crate) fn open(&mut self, exchange: Exchange) -> ExchangeId {
        let id = self.next;
        self.next += 1;
        self.exchanges.insert(id, exchange);
        id
    }

    pub(crate) fn get_mut(&mut self, id: ExchangeId) -> Option<&mut Exchange> {
        self.exchanges.get_mut(&id)
    }

    pub(crate) fn close(&mut self, id: ExchangeId) -> Option<Exchange> {
        self.exchanges.remove(&id)
    }

    /// The exchanges of `from` with `addressed` which a newer one makes obsolete and whose
    /// connection is dropped for it. The others may still be answered, for nobody.
    pub(crate) fn drop_obsolete(
        &mut self,
        from: usize,
        addressed: NodeId,
    ) -> Vec<(ExchangeId, Exchange)> {
        let of_pair = |e: &Exchange| e.from == from && e.addressed == addressed;
        let ids = self.ids_where(of_pair);
        let dropped: Vec<_> = ids.into_iter().filter(|_| self.rng.chance(500)).collect();
        self.take(dropped)
    }

    /// The exchanges that `node` asked.
    pub(crate) fn take_asked_by(&mut self, node: usize) -> Vec<(ExchangeId, Exchange)> {
        let ids = self.ids_where(|exchange| exchange.from == node);
        self.take(ids)
    }

    /// The exchanges that `node` took and has not answered.
    pub(crate) fn taken_by(&self, node: usize) -> Vec<ExchangeId> {
        self.ids_where(|e| e.to == node && e.to_life.is_some() && e.answer.is_none())
    }

    fn ids_where(&self, is_it: impl Fn(&Exchange) -> bool) -> Vec<ExchangeId> {
        self.exchanges
            .iter()
            .filter(|(_, e)| is_it(e))
            .map(|(id, _)| *id)
            .collect()
    }

    fn take(&mut self, ids: Vec<ExchangeId>) -> Vec<(ExchangeId, Exchange)> {
        ids.into_iter()
            .filter_map(|id| Some((id, self.exchanges.remove(&id)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let delays = Delays {
            usual: (5, 10),
            long: 50,
            long_per_mille: 100,
        };
        Network::new(Rng::new(1), 2, delays, 0)
    }

    #[test]
    fn cut_link_takes_one_direction_and_heals() {
        let mut network = network();
        network.cut(0, 1, 100);
        assert_eq!(network.cross(99, 0, 1), Crossing::Vanishes);
        assert!(matches!(network.cross(99, 1, 0), Crossing::Arrives(_)));
        assert!(matches!(network.cross(100, 0, 1), Crossing::Arrives(at) if at > 100));
        network.cut(0, 1, 1000);
        network.heal();
        assert!(matches!(network.cross(200, 0, 1), Crossing::Arrives(_)));
    }

    #[test]
    fn newer_request_drops_the_older_one_or_leaves_it_to_be_answered_late() {
        let (mut dropped, mut left) = (0, 0);
        for _ in 0..100 {
            let mut network = network();
            network.rng = Rng::new(dropped + 100 * left);
            network.open(Exchange {
                from: 0,
                from_life: 0,
                to: 1,
                to_life: None,
                addressed: 2,
                id: RequestId(1),
                request: None,
                answer: None,
                vote: None,
            });
            assert!(network.drop_obsolete(1, 2).is_empty(), "of somebody else");
            match network.drop_obsolete(0, 2).len() {
                0 => left += 1,
                _ => dropped += 1,
            }
        }
        assert!(dropped > 10 && left > 10, "{dropped} dropped, {left} left");
    }
}
