//! Idempotent producers that send blindly: up to five batches under way, in an order that the
//! network does not keep, and all of them again, to whomever, whenever one is refused or no answer
//! comes. Each must be in the log once, in the order in which they were made.

use crate::checkers::OpId;
use crate::node::Input;
use crate::queue::{MS, Nanos};
use crate::workload::{Produced, Told};
use crate::world::{Event, World};
use quorate_storage::{BATCHES_KEPT, sequence_after};
use std::collections::VecDeque;

/// How long it waits for answers before it sends everything again.
const PATIENCE: Nanos = 300 * MS;
/// Before it sends again what was refused.
const RETRY: (Nanos, Nanos) = (2 * MS, 30 * MS);

/// An idempotent producer.
#[derive(Debug)]
pub(crate) struct Idempotent {
    /// Index of the node that it takes for the leader.
    target: usize,
    producer_id: i64,
    producer_epoch: i16,
    next_sequence: i32,
    /// Batches without an answer that counts, in order; at most [`BATCHES_KEPT`].
    under_way: VecDeque<Produced>,
    wakes_at: Nanos,
    is_done: bool,
}

impl Idempotent {
    /// Whether it waits for nothing.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.under_way.is_empty()
    }

    /// It makes nothing new from now on, and goes on sending what is under way.
    pub(crate) fn stop(&mut self) {
        self.is_done = true;
    }
}

impl World {
    pub(crate) fn begin_idempotent(&mut self) {
        for index in 0..self.scenario.idempotent_clients {
            let wakes_at = self.rng.between(MS, 500 * MS);
            let target = self.rng.index(self.nodes.len());
            self.idempotent.push(Idempotent {
                target,
                producer_id: 7_000 + i64::try_from(index).unwrap_or(0),
                producer_epoch: 0,
                next_sequence: 0,
                under_way: VecDeque::new(),
                wakes_at,
                is_done: false,
            });
            let client = self.clients.len() + index;
            self.queue.push(wakes_at, Event::Client(client));
        }
    }

    fn wake_idempotent(&mut self, index: usize, after: Nanos) {
        let at = self.now + after;
        self.idempotent[index].wakes_at = at;
        let client = self.clients.len() + index;
        self.queue.push(at, Event::Client(client));
    }

    pub(crate) fn on_idempotent_timer(&mut self, index: usize) {
        if self.idempotent[index].wakes_at != self.now {
            return;
        }
        let begins_anew = self.rng.chance(20);
        let fresh = self.rng.index(BATCHES_KEPT) + 1;
        let producer = &mut self.idempotent[index];
        if begins_anew && producer.under_way.is_empty() {
            producer.producer_epoch += 1;
            producer.next_sequence = 0;
        }
        if !producer.is_done {
            for _ in producer.under_way.len()..fresh {
                self.make_numbered(index);
            }
        }
        let batches: Vec<_> = self.idempotent[index].under_way.iter().cloned().collect();
        if batches.is_empty() {
            return;
        }
        for produced in batches {
            self.send_numbered(index, produced);
        }
        self.wake_idempotent(index, PATIENCE);
    }

    fn make_numbered(&mut self, index: usize) {
        let client = self.clients.len() + index;
        let timestamp = self.nodes[0].clocks(self.now).wall_ms;
        let producer = &mut self.idempotent[index];
        let numbers = (
            producer.producer_id,
            producer.producer_epoch,
            producer.next_sequence,
        );
        let produced = self.batches.next_numbered(client, timestamp, numbers);
        let count = i32::try_from(produced.records).expect("few records");
        producer.next_sequence = sequence_after(producer.next_sequence, count);
        let acknowledged = &mut self.checkers.acknowledged;
        acknowledged.on_sent_in_order(produced.op, produced.content, client);
        producer.under_way.push_back(produced);
    }

    fn send_numbered(&mut self, index: usize, produced: Produced) {
        let at = self.now + self.client_delay();
        let node = self.idempotent[index].target;
        if self.nodes[node].running.is_some() {
            let (life, input) = (Some(self.nodes[node].life), Input::Produce(produced));
            self.queue.push(at, Event::Arrives { node, life, input });
        } else {
            let (client, op) = (produced.client, produced.op);
            let told = Told::NotLeader(None);
            self.queue.push(at, Event::ClientTold { client, op, told });
        }
    }

    pub(crate) fn on_idempotent_told(&mut self, index: usize, op: OpId, told: Told) {
        let under_way = &mut self.idempotent[index].under_way;
        let Some(place) = under_way.iter().position(|produced| produced.op == op) else {
            return;
        };
        match told {
            Told::Committed => {
                under_way.remove(place);
                if self.idempotent[index].is_at_rest() {
                    let pause = self.rng.between(0, 2 * self.scenario.think);
                    self.wake_idempotent(index, pause);
                }
                return;
            }
            Told::Again => {}
            Told::Unknown => self.idempotent[index].target = self.next_target(None),
            Told::NotLeader(leader) => self.idempotent[index].target = self.next_target(leader),
        }
        let pause = self.rng.between(RETRY.0, RETRY.1);
        self.wake_idempotent(index, pause);
    }
}
