//! Messages on their way from node to node: what a node says is checked against its disk before it
//! leaves, and arrives late, never, or at a node that is down.

use crate::checkers::Violation;
use crate::network::{Crossing, Exchange, ExchangeId};
use crate::node::{Input, log_end_on};
use crate::world::{Event, World, id_of};
use bytes::Bytes;
use quorate_raft::{Epoch, NodeId, Offset, Peer, Request, RequestFailure, RequestId, Response};

/// Of 1000 Fetches, those for which the durable image of the disk is opened.
const IMAGES_PER_MILLE: u64 = 3;

impl World {
    pub(crate) fn send(
        &mut self,
        node: usize,
        to: Peer,
        id: RequestId,
        request: Request,
    ) -> Result<(), Violation> {
        self.check_sent(node, &request)?;
        for (token, exchange) in self.network.drop_obsolete(node, to.id) {
            self.forget_at(exchange.to, exchange.to_life, token);
        }
        let target = usize::from(to.endpoint.port) - 1;
        let vote = match &request {
            Request::Vote(vote) if !vote.pre_vote => Some((vote.epoch, vote.replica.id)),
            _ => None,
        };
        self.trace
            .note(self.now, node, name_of(&request), target as u64 + 1, id.0);
        let exchange = Exchange {
            from: node,
            from_life: self.nodes[node].life,
            to: target,
            to_life: None,
            addressed: to.id,
            id,
            request: Some(request),
            answer: None,
            vote,
        };
        let token = self.network.open(exchange);
        match self.network.cross(self.now, node, target) {
            Crossing::Arrives(at) => self.queue.push(at, Event::Request(token)),
            Crossing::Breaks(at) => {
                self.queue
                    .push(at, Event::Broken(token, RequestFailure::Disconnected));
            }
            Crossing::Vanishes => {}
        }
        Ok(())
    }

    /// What a node says of itself must be on its disk.
    fn check_sent(&mut self, node: usize, request: &Request) -> Result<(), Violation> {
        match request {
            Request::Vote(vote) if !vote.pre_vote => {
                self.checkers
                    .votes
                    .on_told(id_of(node), vote.epoch, id_of(node))
            }
            Request::Fetch(fetch) => {
                let (end, epoch) = (fetch.fetch_offset, fetch.last_fetched_epoch);
                self.checkers.logs[node].on_acknowledge(end, epoch)?;
                if self.rng.chance(IMAGES_PER_MILLE) {
                    self.check_image(node, end, epoch)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Opens what the disk would hold if power failed now and nothing unflushed survived.
    fn check_image(
        &mut self,
        node: usize,
        acknowledged: Offset,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        self.stats.images_opened += 1;
        let image = self.nodes[node].disk.durable_only();
        match log_end_on(image, &self.scenario) {
            Ok(durable) if durable >= acknowledged => Ok(()),
            Ok(durable) => {
                let node = id_of(node);
                Err(Violation::AcknowledgedUnflushed {
                    node,
                    acknowledged,
                    epoch,
                    durable,
                })
            }
            Err(reason) => Err(Violation::RecoveryRefused {
                node: id_of(node),
                reason,
            }),
        }
    }

    pub(crate) fn respond(
        &mut self,
        node: usize,
        token: ExchangeId,
        response: Response,
        records: &[Bytes],
    ) -> Result<(), Violation> {
        let life = self.nodes[node].life;
        let Some(exchange) = self.network.get_mut(token) else {
            return Ok(());
        };
        if exchange.to != node || exchange.to_life != Some(life) || exchange.answer.is_some() {
            return Ok(());
        }
        if let Response::Vote(answer) = &response
            && answer.granted
            && let Some((epoch, candidate)) = exchange.vote
        {
            self.checkers.votes.on_told(id_of(node), epoch, candidate)?;
        }
        let from = exchange.from;
        exchange.answer = Some((response, Bytes::from(records.concat())));
        match self.network.cross(self.now, node, from) {
            Crossing::Arrives(at) => self.queue.push(at, Event::Answer(token)),
            Crossing::Breaks(at) => {
                self.queue
                    .push(at, Event::Broken(token, RequestFailure::Disconnected));
            }
            Crossing::Vanishes => {}
        }
        Ok(())
    }

    pub(crate) fn on_request_arrives(&mut self, token: ExchangeId) {
        let Some(exchange) = self.network.get_mut(token) else {
            return;
        };
        let (from, to) = (exchange.from, exchange.to);
        let Some(request) = exchange.request.take() else {
            return;
        };
        if self.nodes[to].running.is_some() {
            exchange.to_life = Some(self.nodes[to].life);
            self.give(to, Input::Request { token, request });
        } else if let Crossing::Arrives(at) | Crossing::Breaks(at) =
            self.network.cross(self.now, to, from)
        {
            self.queue
                .push(at, Event::Broken(token, RequestFailure::Refused));
        }
    }

    pub(crate) fn on_answer_arrives(&mut self, token: ExchangeId) {
        let Some(exchange) = self.network.close(token) else {
            return;
        };
        let Some((response, records)) = exchange.answer else {
            return;
        };
        if exchange.from_life == self.nodes[exchange.from].life {
            let (from, id): (NodeId, _) = (exchange.addressed, exchange.id);
            self.give(
                exchange.from,
                Input::Response {
                    from,
                    id,
                    response,
                    records,
                },
            );
        }
    }

    pub(crate) fn on_broken(&mut self, token: ExchangeId, failure: RequestFailure) {
        let Some(exchange) = self.network.close(token) else {
            return;
        };
        self.forget_at(exchange.to, exchange.to_life, token);
        if exchange.from_life == self.nodes[exchange.from].life {
            let (from, id) = (exchange.addressed, exchange.id);
            self.give(exchange.from, Input::Failed { from, id, failure });
        }
    }

    /// The node that took a request learns that nobody waits for its answer.
    pub(crate) fn forget_at(&mut self, node: usize, life: Option<u64>, token: ExchangeId) {
        if life.is_some() {
            let at = self.now + self.network.delay();
            let input = Input::Forget { token };
            self.queue.push(at, Event::Arrives { node, life, input });
        }
    }
}

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Vote(vote) if vote.pre_vote => "asks for a pre-vote",
        Request::Vote(_) => "asks for a vote",
        Request::BeginQuorumEpoch(_) => "begins its epoch",
        Request::EndQuorumEpoch(_) => "ends its epoch",
        Request::Fetch(_) => "fetches",
    }
}
