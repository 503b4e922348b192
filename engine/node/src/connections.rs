//! The accepted connections of one loop: sockets on the ring, frames in, answers out.
//!
//! Step 1 of 5 of the append path is `quorate_net::Connection`, which this file feeds; after it
//! comes the raft loop. Limits live here: connections, bytes of requests in flight, idle time. A
//! sender above a limit is not read from until it is below; a stranger's bad frame costs him his
//! connection and nobody else anything.

use crate::metrics::SetMetrics;
use quorate_net::{ApiRequest, ApiResponse, Connection, Limits, ListenerKind, Slot};
use quorate_raft::Instant;
use quorate_ring::{CompletionKind, Ring};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Room for one receive. Larger frames grow inside the connection, as their bytes arrive.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Pause before accepting again when the process is out of descriptors or memory.
const ACCEPT_RETRY_MS: u64 = 100;

/// How often idle connections are looked for.
const IDLE_SWEEP_MS: u64 = 5_000;

/// Names a connection; never the same for two connections of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug)]
pub struct SetLimits {
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// Bytes of requests that are not answered yet, over all connections.
    pub in_flight_bytes_max: usize,
    /// A connection that neither sends nor waits for this long is closed.
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
    in_flight_bytes: usize,
    /// Connections whose input may hold a whole request.
    ready: VecDeque<u32>,
    /// Connections to look after at the end of the turn.
    dirty: Vec<u32>,
    next_sweep: Instant,
    stats: SetStats,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    open: Option<Open>,
}

struct Open {
    socket: Arc<OwnedFd>,
    protocol: Connection,
    spare: Option<Vec<u8>>,
    receiving: bool,
    sending: bool,
    sent: usize,
    is_ready: bool,
    is_dirty: bool,
    closing: bool,
    requests_open: usize,
    received: Instant,
    active: Instant,
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
            in_flight_bytes: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            next_sweep: Instant(0),
            stats: SetStats::default(),
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
        metrics.publish(self.open, self.in_flight_bytes, self.stats);
    }

    /// When [`Self::on_tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let accept = self.silent_listeners.iter().map(|(_, at)| *at).min();
        let sweep = (self.open > 0).then_some(self.next_sweep);
        [accept, sweep].into_iter().flatten().min()
    }

    /// Accepts on listeners that are silent, closes idle connections.
    pub fn on_tick(&mut self, ring: &mut Ring, now: Instant) {
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
            self.next_sweep = now.plus_ms(IDLE_SWEEP_MS);
            self.close_idle(now);
        }
    }

    fn close_idle(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let Some(open) = &self.slots[index].open else {
                continue;
            };
            let idle = now.ms_since(open.active) > self.limits.idle_ms;
            if idle && open.requests_open == 0 && !open.closing {
                self.stats.idle_closed += 1;
                self.close(index as u32);
            }
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
        if self.open >= self.limits.connections_max {
            self.stats.refused += 1;
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
        self.slots[index as usize].open = Some(Open {
            socket: Arc::new(socket),
            protocol: Connection::new(self.kind, self.limits.connection),
            spare: Some(Vec::with_capacity(RECEIVE_BYTES)),
            receiving: false,
            sending: false,
            sent: 0,
            is_ready: false,
            is_dirty: false,
            closing: false,
            requests_open: 0,
            received: now,
            active: now,
        });
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
                open.protocol.received(&buf);
                buf.clear();
                open.spare = Some(buf);
                self.mark_ready(index);
                self.mark_dirty(index);
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
                open.sent += count;
                if open.sent < buf.len() {
                    open.sending = true;
                    ring.send(
                        &open.socket,
                        buf,
                        open.sent,
                        tag | SEND << OP_SHIFT | u64::from(index),
                    );
                    return;
                }
                open.protocol.recycle(buf);
                // Room for more answers may let more requests in.
                self.mark_ready(index);
                self.mark_dirty(index);
            }
            _ => self.close(index),
        }
    }

    /// Whether [`Self::next_request`] may give one.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() && self.in_flight_bytes < self.limits.in_flight_bytes_max
    }

    /// The next whole request of any connection, while the bound on bytes in flight allows one.
    pub fn next_request(&mut self) -> Option<(Origin, ApiRequest)> {
        while self.in_flight_bytes < self.limits.in_flight_bytes_max {
            let index = *self.ready.front()?;
            let entry = &mut self.slots[index as usize];
            let Some(open) = entry.open.as_mut().filter(|open| !open.closing) else {
                self.ready.pop_front();
                continue;
            };
            match open.protocol.next_request() {
                Ok(Some(inbound)) => {
                    open.requests_open += 1;
                    self.in_flight_bytes += inbound.frame_bytes;
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
                    return Some((origin, inbound.request));
                }
                Ok(None) => {
                    open.is_ready = false;
                    self.ready.pop_front();
                    self.mark_dirty(index);
                }
                Err(error) => {
                    tracing::debug!(%error, "closing a connection for what it sent");
                    self.stats.broken += 1;
                    self.ready.pop_front();
                    self.close(index);
                }
            }
        }
        None
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
            Ok(()) => self.mark_dirty(index),
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
            self.mark_dirty(index);
        }
    }

    fn finish(&mut self, origin: Origin) -> Option<&mut Open> {
        let ConnectionId { index, generation } = origin.connection;
        self.in_flight_bytes -= origin.frame_bytes;
        let entry = &mut self.slots[index as usize];
        let open = entry
            .open
            .as_mut()
            .filter(|_| entry.generation == generation)?;
        open.requests_open -= 1;
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
        let Some(open) = self.slots[index as usize].open.as_mut() else {
            return;
        };
        if !open.closing {
            open.closing = true;
            // Whatever is in flight on the socket ends now.
            let _ = rustix::net::shutdown(&open.socket, rustix::net::Shutdown::Both);
        }
        self.mark_dirty(index);
    }

    /// Ends a turn: starts the sends and receives that are due. One pass over what changed.
    pub fn flush(&mut self, ring: &mut Ring) {
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
                ring.send(&open.socket, output, 0, user | SEND << OP_SHIFT);
            }
            if !open.receiving
                && !open.is_ready
                && open.protocol.wants_input()
                && let Some(buf) = open.spare.take()
            {
                open.receiving = true;
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
        entry.open = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.open -= 1;
    }
}
