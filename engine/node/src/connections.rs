//! The accepted connections of one loop: sockets on the ring, frames in, answers out.
//!
//! Step 1 of 5 of the append path is `quorate_net::Connection`, which this file feeds; after it
//! comes the raft loop. Limits live here: connections, bytes of requests and of answers, idle time.
//! A sender above a limit is not read from until it is below; a stranger's bad frame costs him his
//! connection and nobody else anything.
//!
//! Memory is bounded twice. Every connection has a small share of its own, so that nobody's
//! greed keeps another one's short question from being answered; what goes beyond the share comes
//! out of a common budget. What is kept in memory at most is the budget and the shares:
//! `connections x` [`SHARE_BYTES`], and as much again for one receive each.

mod budget;
mod pressure;
mod starved;
mod told;

pub use budget::{AnswerBudget, AnswerRoom, ConnectionCount, RequestBudget};

use crate::metrics::SetMetrics;
use quorate_net::{ApiRequest, ApiResponse, Connection, Limits, ListenerKind, Slot};
use quorate_raft::Instant;
use quorate_ring::{CompletionKind, Ring};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use told::Told;

/// Room for the first receives of a connection: small requests fit, and an idle connection is
/// cheap.
const RECEIVE_BYTES_MIN: usize = 4 * 1024;

/// Room for a receive once one was full. Larger frames grow inside the connection, as their bytes
/// arrive.
const RECEIVE_BYTES_MAX: usize = 32 * 1024;

/// What a connection may keep in memory, of requests and of answers each, without asking whether
/// the common budget has room.
pub const SHARE_BYTES: usize = 64 * 1024;

/// Pause before accepting again when the process is out of descriptors or memory.
const ACCEPT_RETRY_MS: u64 = 100;

/// How often idle connections are looked for, and under pressure those to be closed.
const SWEEP_MS: u64 = 1_000;

/// How soon requests that wait for another loop's answers to leave are looked at again.
const EXHAUSTED_RETRY_MS: u64 = 20;

/// Names a connection; never the same for two connections of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

/// Where a request came from, for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The connection.
    pub connection: ConnectionId,
    /// The place in its order of answers.
    pub slot: Slot,
    /// Version of the API that was asked in.
    pub version: i16,
    /// Bytes of the frame, in flight until it is answered.
    pub frame_bytes: usize,
    /// When its connection last received something.
    pub received: Instant,
}

/// Bounds of a set.
#[derive(Clone, Debug)]
pub struct SetLimits {
    /// Connections at a time, counted together with other sets; further ones are closed at once.
    pub connections: Arc<ConnectionCount>,
    /// Bytes of requests beyond the connections' shares, those that arrive and those that are not
    /// answered; counted together with other sets.
    pub requests: Arc<RequestBudget>,
    /// Bytes of answers, counted together with other sets.
    pub answers: Arc<AnswerBudget>,
    /// A connection that neither sends nor waits for this long is closed, and so is one that does
    /// not take an answer for this long.
    pub idle_ms: u64,
    /// Bounds of one connection.
    pub connection: Limits,
}

/// Counters for logs and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because of the limit.
    pub refused: u64,
    /// Connections closed for what they sent.
    pub broken: u64,
    /// Connections closed for being idle.
    pub idle_closed: u64,
    /// Connections closed because memory was short and they kept some without using it.
    pub shed: u64,
}

const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const OP_SHIFT: u32 = 48;
const INDEX_MASK: u64 = (1 << OP_SHIFT) - 1;

/// All accepted connections of one kind on one loop.
pub struct ConnectionSet {
    kind: ListenerKind,
    tag: u64,
    limits: SetLimits,
    listeners: Vec<Arc<OwnedFd>>,
    silent_listeners: Vec<(usize, Instant)>,
    slots: Vec<Entry>,
    free: Vec<u32>,
    open: usize,
    /// Bytes of requests, of all connections.
    request_bytes: usize,
    /// Connections that would be read from if there were memory for it, the oldest first.
    starved: VecDeque<u32>,
    /// The one of them that may finish its frame although there is none.
    favoured: Option<u32>,
    /// Closed connections with requests that are not answered.
    abandoned: Vec<ConnectionId>,
    /// Connections whose input may hold a whole request.
    ready: VecDeque<u32>,
    /// Connections to look after at the end of the turn.
    dirty: Vec<u32>,
    next_sweep: Instant,
    now: Instant,
    stats: SetStats,
    told: Told,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    open: Option<Open>,
}

struct Open {
    socket: Arc<OwnedFd>,
    protocol: Connection,
    /// For the next receive; none while one is under way.
    spare: Option<Vec<u8>>,
    receiving: bool,
    sending: bool,
    /// Bytes of the buffer being sent that the kernel has, and that it has not.
    sent: usize,
    unsent: usize,
    is_ready: bool,
    is_dirty: bool,
    /// It is in `starved`.
    is_starved: bool,
    closing: bool,
    requests_open: usize,
    /// When bytes last came.
    received: Instant,
    /// Bytes of the frames of these requests.
    in_flight_bytes: usize,
    /// What is in the sums over all connections for this one.
    counted: Account,
    /// When bytes last came or went.
    active: Instant,
    /// When the kernel last took some of the answers.
    sent_at: Instant,
    /// When the receive under way, or the last one, began.
    asked_at: Instant,
    /// How long the large frame that is arriving has been waited for, in ns: the time in which
    /// nobody read is not the sender's fault.
    frame_ns: u64,
}

/// Bytes that a connection keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    requests: usize,
    answers: usize,
}

impl Account {
    /// What is beyond the share, and comes out of the common budget.
    fn request_excess(self) -> usize {
        self.requests.saturating_sub(SHARE_BYTES)
    }
}

impl Open {
    fn new(socket: OwnedFd, protocol: Connection, now: Instant) -> Self {
        Self {
            socket: Arc::new(socket),
            protocol,
            spare: Some(Vec::with_capacity(RECEIVE_BYTES_MIN)),
            receiving: false,
            sending: false,
            sent: 0,
            unsent: 0,
            is_ready: false,
            is_dirty: false,
            is_starved: false,
            closing: false,
            requests_open: 0,
            in_flight_bytes: 0,
            counted: Account::default(),
            received: now,
            active: now,
            sent_at: now,
            asked_at: now,
            frame_ns: 0,
        }
    }

    /// Whether it keeps more of what arrives than its share.
    fn has_large_frame(&self) -> bool {
        self.protocol.buffered() >= SHARE_BYTES
    }

    fn account(&self) -> Account {
        Account {
            requests: self.protocol.buffered() + self.in_flight_bytes,
            answers: self.protocol.unsent() + self.unsent,
        }
    }
}

impl ConnectionSet {
    /// A set for `listeners`, whose completions carry `tag` in the top byte of their user data.
    #[must_use]
    pub fn new(
        kind: ListenerKind,
        tag: u8,
        listeners: Vec<Arc<OwnedFd>>,
        limits: SetLimits,
    ) -> Self {
        Self {
            kind,
            tag: u64::from(tag) << 56,
            limits,
            silent_listeners: (0..listeners.len()).map(|i| (i, Instant(0))).collect(),
            listeners,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            request_bytes: 0,
            starved: VecDeque::new(),
            favoured: None,
            abandoned: Vec::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            next_sweep: Instant(0),
            now: Instant(0),
            stats: SetStats::default(),
            told: Told::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> SetStats {
        self.stats
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Tells the metrics how it stands.
    pub fn publish(&self, metrics: &SetMetrics) {
        metrics.publish(self.open, self.request_bytes, self.stats);
        metrics.answer_bytes.set_size(self.limits.answers.used());
    }

    /// When [`Self::on_tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let accept = self.silent_listeners.iter().map(|(_, at)| *at).min();
        let sweep = (self.open > 0).then_some(self.next_sweep);
        let waits = !self.ready.is_empty() && self.limits.answers.is_exhausted();
        // Another loop may make the room that these wait for.
        let waits = waits || !self.starved.is_empty();
        let retry = waits.then(|| self.now.plus_ms(EXHAUSTED_RETRY_MS));
        [accept, sweep, retry].into_iter().flatten().min()
    }

    /// Accepts on listeners that are silent, closes idle connections.
    pub fn on_tick(&mut self, ring: &mut Ring, now: Instant) {
        self.now = now;
        let listeners = &self.listeners;
        let tag = self.tag;
        self.silent_listeners.retain(|(index, at)| {
            let due = *at <= now;
            if due {
                ring.accept(&listeners[*index], tag | ACCEPT << OP_SHIFT | *index as u64);
            }
            !due
        });
        if now >= self.next_sweep {
            self.next_sweep = now.plus_ms(SWEEP_MS);
            self.close_idle(now);
            self.relieve(now);
        }
    }

    /// Takes a completion that carries this set's tag.
    pub fn on_completion(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        user: u64,
        kind: CompletionKind,
    ) {
        let index = (user & INDEX_MASK & !self.tag) as u32;
        match kind {
            CompletionKind::Accepted { socket } => self.on_accepted(now, socket),
            CompletionKind::AcceptEnded { .. } => {
                self.silent_listeners
                    .push((index as usize, now.plus_ms(ACCEPT_RETRY_MS)));
            }
            CompletionKind::Received { buf, result } => self.on_received(now, index, buf, result),
            CompletionKind::Sent { buf, result } => self.on_sent(ring, now, index, buf, result),
            other => panic!("not a completion of a connection: {other:?}"),
        }
    }

    fn on_accepted(&mut self, now: Instant, socket: OwnedFd) {
        if !self.limits.connections.try_enter() {
            self.stats.refused += 1;
            self.told.refused(now, &socket, self.open);
            return;
        }
        // Answers are small and awaited: never held back for more to come.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Entry::default());
            (self.slots.len() - 1) as u32
        });
        self.stats.accepted += 1;
        self.open += 1;
        let protocol = Connection::new(self.kind, self.limits.connection);
        self.slots[index as usize].open = Some(Open::new(socket, protocol, now));
        self.mark_dirty(index);
    }

    fn on_received(
        &mut self,
        now: Instant,
        index: u32,
        mut buf: Vec<u8>,
        result: io::Result<usize>,
    ) {
        let open = self.slots[index as usize]
            .open
            .as_mut()
            .expect("it waited for this receive");
        open.receiving = false;
        match result {
            Ok(count) if count > 0 && !open.closing => {
                open.active = now;
                open.received = now;
                if open.has_large_frame() {
                    open.frame_ns += now.0.saturating_sub(open.asked_at.0);
                }
                open.protocol.received(&buf);
                if buf.len() == buf.capacity() && buf.capacity() < RECEIVE_BYTES_MAX {
                    buf = Vec::with_capacity(RECEIVE_BYTES_MAX);
                }
                buf.clear();
                open.spare = Some(buf);
                self.mark_ready(index);
                self.settle(index);
            }
            _ => self.close(index),
        }
    }

    fn on_sent(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        index: u32,
        buf: Vec<u8>,
        result: io::Result<usize>,
    ) {
        let tag = self.tag;
        let open = self.slots[index as usize]
            .open
            .as_mut()
            .expect("it waited for this send");
        open.sending = false;
        match result {
            Ok(count) if count > 0 && !open.closing => {
                open.active = now;
                open.sent_at = now;
                open.sent += count;
                open.unsent -= count;
                if open.sent < buf.len() {
                    open.sending = true;
                    ring.send(
                        &open.socket,
                        buf,
                        open.sent,
                        tag | SEND << OP_SHIFT | u64::from(index),
                    );
                    self.settle(index);
                    return;
                }
                open.protocol.recycle(buf);
                // Room for more answers may let more requests in.
                self.mark_ready(index);
                self.settle(index);
            }
            _ => self.close(index),
        }
    }

    /// Whether [`Self::next_request`] may give one.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() && !self.limits.answers.is_exhausted()
    }

    /// The next whole request, of each connection in turn, while the budget for answers lasts.
    pub fn next_request(&mut self) -> Option<(Origin, ApiRequest)> {
        while !self.limits.answers.is_exhausted() {
            let index = self.ready.pop_front()?;
            let is_tight = self.limits.answers.is_tight();
            let entry = &mut self.slots[index as usize];
            let Some(open) = entry.open.as_mut() else {
                continue;
            };
            open.is_ready = false;
            // What leaves makes it ready again.
            if open.closing || (is_tight && open.counted.answers >= SHARE_BYTES) {
                continue;
            }
            match open.protocol.next_request() {
                Ok(Some(inbound)) => {
                    open.requests_open += 1;
                    open.in_flight_bytes += inbound.frame_bytes;
                    let origin = Origin {
                        connection: ConnectionId {
                            index,
                            generation: entry.generation,
                        },
                        slot: inbound.slot,
                        version: inbound.header.api_version,
                        frame_bytes: inbound.frame_bytes,
                        received: open.received,
                    };
                    self.mark_ready(index);
                    self.settle(index);
                    return Some((origin, inbound.request));
                }
                Ok(None) => self.settle(index),
                Err(error) => {
                    self.told.broken(self.now, &*open.socket, &error);
                    self.stats.broken += 1;
                    self.close(index);
                }
            }
        }
        None
    }

    /// Connections that were closed with requests not answered, since the last time this was asked:
    /// whoever still works for them may stop.
    pub fn take_abandoned(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.abandoned)
    }

    /// Brings the sums over all connections up to date with one of them, and has it looked after.
    fn settle(&mut self, index: u32) {
        let Some(open) = self.slots[index as usize].open.as_mut() else {
            return;
        };
        let now = open.account();
        let before = std::mem::replace(&mut open.counted, now);
        if !open.has_large_frame() {
            open.frame_ns = 0;
        }
        self.request_bytes = self.request_bytes - before.requests + now.requests;
        let requests = &self.limits.requests;
        requests.change(before.request_excess(), now.request_excess());
        if now.answers >= before.answers {
            self.limits.answers.add(now.answers - before.answers);
        } else {
            self.limits.answers.sub(before.answers - now.answers);
        }
        self.mark_dirty(index);
    }

    /// Answers a request; nothing happens if its connection is gone.
    ///
    /// An answer that its version can't express is a bug of ours, but never a stranger's way to
    /// stop the node: it costs him his connection.
    pub fn respond(&mut self, origin: Origin, response: &ApiResponse) {
        let index = origin.connection.index;
        let Some(open) = self.finish(origin) else {
            return;
        };
        match open.protocol.respond_with(origin.slot, response) {
            Ok(()) => {
                // A request may have waited for this answer.
                if open.protocol.buffered() > 0 {
                    self.mark_ready(index);
                }
                self.settle(index);
            }
            Err(error) => {
                let (api, version) = (response.api(), origin.version);
                tracing::error!(%error, ?api, version, "an answer could not be written");
                self.close(index);
            }
        }
    }

    /// Marks a request as done without an answer (acks=0).
    pub fn skip(&mut self, origin: Origin) {
        let index = origin.connection.index;
        if let Some(open) = self.finish(origin) {
            open.protocol.skip(origin.slot);
            // No send will follow, so whole requests that wait behind it are looked for now.
            self.mark_ready(index);
            self.settle(index);
        }
    }

    fn finish(&mut self, origin: Origin) -> Option<&mut Open> {
        let ConnectionId { index, generation } = origin.connection;
        let entry = &mut self.slots[index as usize];
        let open = entry
            .open
            .as_mut()
            .filter(|_| entry.generation == generation)?;
        open.requests_open -= 1;
        open.in_flight_bytes -= origin.frame_bytes;
        Some(open)
    }

    /// The input of a connection may hold a whole request.
    fn mark_ready(&mut self, index: u32) {
        if let Some(open) = self.slots[index as usize].open.as_mut()
            && !open.is_ready
        {
            open.is_ready = true;
            self.ready.push_back(index);
        }
    }

    fn mark_dirty(&mut self, index: u32) {
        if let Some(open) = self.slots[index as usize].open.as_mut()
            && !open.is_dirty
        {
            open.is_dirty = true;
            self.dirty.push(index);
        }
    }

    fn close(&mut self, index: u32) {
        let entry = &mut self.slots[index as usize];
        let Some(open) = entry.open.as_mut() else {
            return;
        };
        if !open.closing {
            open.closing = true;
            // Whatever is in flight on the socket ends now.
            let _ = rustix::net::shutdown(&open.socket, rustix::net::Shutdown::Both);
            if open.requests_open > 0 {
                let generation = entry.generation;
                self.abandoned.push(ConnectionId { index, generation });
            }
        }
        self.mark_dirty(index);
    }

    /// Ends a turn: starts the sends and receives that are due. One pass over what changed.
    pub fn flush(&mut self, ring: &mut Ring) {
        self.feed_starved();
        let is_short = self.limits.requests.is_used();
        let is_tight = self.limits.answers.is_tight();
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(open) = self.slots[index as usize].open.as_mut() else {
                continue;
            };
            open.is_dirty = false;
            if open.closing {
                self.release(index);
                continue;
            }
            let user = self.tag | u64::from(index);
            if !open.sending
                && let Some(output) = open.protocol.take_output()
            {
                open.sending = true;
                open.sent = 0;
                open.unsent = output.len();
                // What lay unread before was read: the time for this one begins.
                open.sent_at = self.now;
                ring.send(&open.socket, output, 0, user | SEND << OP_SHIFT);
            }
            let is_greedy = is_tight && open.counted.answers >= SHARE_BYTES;
            if open.receiving
                || open.is_ready
                || open.is_starved
                || is_greedy
                || !open.protocol.wants_input()
            {
                continue;
            }
            let may_read = !is_short
                || open.counted.requests < SHARE_BYTES
                || (self.favoured == Some(index) && open.requests_open == 0);
            if !may_read {
                self.starve(index);
            } else if let Some(buf) = open.spare.take() {
                open.receiving = true;
                open.asked_at = self.now;
                ring.recv(&open.socket, buf, user | RECEIVE << OP_SHIFT);
            }
        }
        self.dirty = dirty;
    }

    /// Frees a closing connection once nothing of it is in flight in the kernel.
    fn release(&mut self, index: u32) {
        let entry = &mut self.slots[index as usize];
        let Some(open) = &entry.open else { return };
        if open.receiving || open.sending {
            return;
        }
        let counted = open.counted;
        if open.is_starved {
            self.unstarve(index);
        }
        self.request_bytes -= counted.requests;
        self.limits.requests.change(counted.request_excess(), 0);
        self.limits.answers.sub(counted.answers);
        self.limits.connections.leave();
        let entry = &mut self.slots[index as usize];
        entry.open = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.open -= 1;
    }
}
