//! Connections to other nodes' controller listeners: requests out, answers in.
//!
//! One link per peer, made when something is to be sent. A new request makes the one in flight
//! obsolete: its link is dropped, so that a vote never waits behind a parked Fetch. Retries and
//! backoff are the raft core's; nothing is sent twice here.

use crate::raft_wire::{self, Identity};
use bytes::Bytes;
use quorate_net::wire::describe_cluster::DescribeClusterRequest;
use quorate_net::{ApiRequest, ApiResponse, Outbound};
use quorate_raft::{Endpoint, Instant, NodeId, Peer, Request, RequestFailure, RequestId, Response};
use quorate_ring::{CompletionKind, Ring};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What came of a request, or was learnt on the way.
#[derive(Debug)]
pub enum PeerEvent {
    /// The peer answered.
    Response {
        /// The id the request was sent to.
        from: NodeId,
        /// The request.
        id: RequestId,
        /// Its answer.
        response: Response,
        /// Records behind a Fetch answer.
        records: Bytes,
    },
    /// The request failed.
    Failed {
        /// The id the request was sent to.
        from: NodeId,
        /// The request.
        id: RequestId,
        /// How.
        failure: RequestFailure,
    },
    /// Client addresses of nodes, as the peer knows them.
    ClientEndpoints(Vec<(NodeId, Endpoint)>),
    /// The name of an endpoint has to be looked up; answer with [`Peers::on_resolved`].
    Resolve {
        /// The endpoint.
        endpoint: Endpoint,
    },
}

const CONNECT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const OP_SHIFT: u32 = 48;
const INDEX_MASK: u64 = 0xffff_ffff;

const RECEIVE_BYTES: usize = 64 * 1024;

/// A link that is not up after this long is made anew when something is to be sent: the kernel
/// tries lost connection requests again at longer and longer intervals.
const OPEN_PATIENCE_MS: u64 = 1_000;

/// A peer whose client address is not known is asked again this often.
const DIRECTORY_RETRY_MS: u64 = 500;

/// All links to peers.
pub struct Peers {
    tag: u64,
    identity: Arc<Identity>,
    client_id: String,
    links: Vec<Option<Link>>,
    by_peer: HashMap<NodeId, usize>,
    /// Endpoints whose names are being looked up. A look-up may outlive the link that asked for it,
    /// and then serves the next link to the same endpoint: a name is never looked up twice at once.
    look_ups: Vec<Endpoint>,
    /// How many addresses of a peer did not answer at all, one after the other: its next link
    /// begins behind them.
    silent_addresses: HashMap<NodeId, usize>,
    dirty: Vec<usize>,
    events: Vec<PeerEvent>,
    directory_complete: bool,
}

struct Link {
    peer: Peer,
    state: LinkState,
    socket: Option<Arc<OwnedFd>>,
    addresses: Vec<SocketAddr>,
    outbound: Outbound,
    request: Option<(RequestId, Request)>,
    on_the_wire: Option<(i32, RequestId)>,
    directory_request: Option<i32>,
    directory_asked: Instant,
    opened_at: Instant,
    next_correlation: i32,
    spare: Option<Vec<u8>>,
    busy: u8,
    sending: bool,
    receiving: bool,
    sent: usize,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Resolving,
    Connecting,
    Up,
}

impl Peers {
    /// No links yet. Completions carry `tag` in the top byte of their user data.
    #[must_use]
    pub fn new(tag: u8, identity: Arc<Identity>) -> Self {
        Self {
            tag: u64::from(tag) << 56,
            client_id: format!("raft-client-{}", identity.node_id),
            identity,
            links: Vec::new(),
            by_peer: HashMap::new(),
            look_ups: Vec::new(),
            silent_addresses: HashMap::new(),
            dirty: Vec::new(),
            events: Vec::new(),
            directory_complete: false,
        }
    }

    /// Whether client addresses of voters are still missing: peers are asked for them then.
    pub fn set_directory_complete(&mut self, complete: bool) {
        self.directory_complete = complete;
    }

    /// Takes what happened. `into` is cleared first and swapped in.
    pub fn take_events(&mut self, into: &mut Vec<PeerEvent>) {
        into.clear();
        std::mem::swap(&mut self.events, into);
    }

    /// Sends a request; one in flight to the same peer is given up.
    pub fn send(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        to: Peer,
        id: RequestId,
        request: Request,
    ) {
        if let Some(&index) = self.by_peer.get(&to.id) {
            let link = self.links[index].as_mut().expect("a peer's link exists");
            let is_stuck =
                !link.outbound.is_ready() && now.ms_since(link.opened_at) >= OPEN_PATIENCE_MS;
            let idle = link.on_the_wire.is_none() && !is_stuck;
            if idle && link.peer.endpoint == to.endpoint {
                link.request = Some((id, request));
                self.mark_dirty(index);
                return;
            }
            if is_stuck && link.state == LinkState::Connecting {
                *self.silent_addresses.entry(to.id).or_default() += 1;
            }
            self.drop_link(index);
        }
        self.open(ring, now, to, id, request);
    }

    /// Whether [`Self::take_events`] has something.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn open(&mut self, ring: &mut Ring, now: Instant, to: Peer, id: RequestId, request: Request) {
        let index = self
            .links
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.links.push(None);
                self.links.len() - 1
            });
        let peer_id = to.id;
        let endpoint = to.endpoint.clone();
        self.links[index] = Some(Link {
            peer: to,
            state: LinkState::Resolving,
            socket: None,
            addresses: Vec::new(),
            outbound: Outbound::new(&self.client_id),
            request: Some((id, request)),
            on_the_wire: None,
            directory_request: None,
            directory_asked: Instant(0),
            opened_at: now,
            next_correlation: 1,
            spare: Some(Vec::with_capacity(RECEIVE_BYTES)),
            busy: 0,
            sending: false,
            receiving: false,
            sent: 0,
            closing: false,
        });
        self.by_peer.insert(peer_id, index);
        match endpoint.host.parse::<IpAddr>() {
            Ok(ip) => {
                let addresses = vec![SocketAddr::new(ip, endpoint.port)];
                self.connect(ring, index, addresses);
            }
            Err(_) if self.look_ups.contains(&endpoint) => {}
            Err(_) => {
                self.look_ups.push(endpoint.clone());
                self.events.push(PeerEvent::Resolve { endpoint });
            }
        }
    }

    /// A name look-up ended. Links that were opened meanwhile and wait for the same name take it.
    pub fn on_resolved(
        &mut self,
        ring: &mut Ring,
        endpoint: &Endpoint,
        result: io::Result<Vec<SocketAddr>>,
    ) {
        self.look_ups.retain(|name| name != endpoint);
        if let Err(error) = &result {
            tracing::debug!(%endpoint, %error, "cannot look a peer's host name up");
        }
        for index in 0..self.links.len() {
            let waits = |link: &Link| {
                link.state == LinkState::Resolving
                    && !link.closing
                    && link.peer.endpoint == *endpoint
            };
            if !self.links[index].as_ref().is_some_and(waits) {
                continue;
            }
            match &result {
                Ok(addresses) => self.connect(ring, index, addresses.clone()),
                Err(_) => self.fail(index, RequestFailure::Disconnected),
            }
        }
    }

    fn connect(&mut self, ring: &mut Ring, index: usize, mut addresses: Vec<SocketAddr>) {
        let link = self.links[index].as_mut().expect("it is being opened");
        if !addresses.is_empty() {
            let silent = self.silent_addresses.get(&link.peer.id).unwrap_or(&0);
            let first = silent % addresses.len();
            addresses.rotate_left(first);
        }
        addresses.reverse();
        link.addresses = addresses;
        self.connect_next(ring, index, RequestFailure::Disconnected);
    }

    /// Tries the next address of the peer; fails the request when there is none left.
    fn connect_next(&mut self, ring: &mut Ring, index: usize, failure: RequestFailure) {
        let user = self.tag | CONNECT << OP_SHIFT | index as u64;
        let link = self.links[index].as_mut().expect("it is being connected");
        while let Some(address) = link.addresses.pop() {
            match new_socket(address) {
                Ok(socket) => {
                    let socket = Arc::new(socket);
                    ring.connect(&socket, address, user);
                    link.socket = Some(socket);
                    link.state = LinkState::Connecting;
                    link.busy += 1;
                    return;
                }
                // A host without IPv6, for one, has no sockets of that family.
                Err(error) => tracing::warn!(%address, %error, "cannot make a socket"),
            }
        }
        self.fail(index, failure);
    }

    /// Takes a completion that carries this tag.
    pub fn on_completion(
        &mut self,
        ring: &mut Ring,
        now: Instant,
        user: u64,
        kind: CompletionKind,
    ) {
        let index = (user & INDEX_MASK) as usize;
        let link = self.links[index]
            .as_mut()
            .expect("links outlive what they have in flight");
        link.busy -= 1;
        if link.closing {
            self.mark_dirty(index);
            return;
        }
        match kind {
            CompletionKind::Connected(Ok(())) => {
                link.state = LinkState::Up;
                self.silent_addresses.remove(&link.peer.id);
                self.mark_dirty(index);
            }
            CompletionKind::Connected(Err(error)) => {
                let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                let failure = if refused {
                    RequestFailure::Refused
                } else {
                    RequestFailure::Disconnected
                };
                self.connect_next(ring, index, failure);
            }
            CompletionKind::Received { buf, result } => {
                link.receiving = false;
                self.on_received(now, index, buf, result);
            }
            CompletionKind::Sent { buf, result } => {
                link.sending = false;
                self.on_sent(ring, index, buf, result);
            }
            other => panic!("not a completion of a link: {other:?}"),
        }
    }

    fn on_received(
        &mut self,
        now: Instant,
        index: usize,
        mut buf: Vec<u8>,
        result: io::Result<usize>,
    ) {
        let link = self.links[index].as_mut().expect("checked by the caller");
        if !matches!(result, Ok(count) if count > 0) {
            self.fail(index, RequestFailure::Disconnected);
            return;
        }
        link.outbound.received(&buf);
        buf.clear();
        link.spare = Some(buf);
        loop {
            let link = self.links[index].as_mut().expect("still there");
            match link.outbound.next_response() {
                Ok(Some((correlation, response))) => {
                    if !self.on_response(now, index, correlation, response) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(peer = link.peer.id, %error, "a peer's answer is malformed");
                    self.fail(index, RequestFailure::Disconnected);
                    return;
                }
            }
        }
        self.mark_dirty(index);
    }

    /// Whether the link is still good.
    fn on_response(
        &mut self,
        now: Instant,
        index: usize,
        correlation: i32,
        response: ApiResponse,
    ) -> bool {
        let link = self.links[index].as_mut().expect("checked by the caller");
        if link.directory_request == Some(correlation) {
            link.directory_request = None;
            link.directory_asked = now;
            if let ApiResponse::DescribeCluster(response) = response {
                let endpoints = raft_wire::client_endpoints(&response);
                self.events.push(PeerEvent::ClientEndpoints(endpoints));
            }
            return true;
        }
        let from = link.peer.id;
        match link
            .on_the_wire
            .take_if(|(waiting, _)| *waiting == correlation)
        {
            Some((_, id)) => match raft_wire::response_from_wire(response) {
                Some((response, records)) => {
                    self.events.push(PeerEvent::Response {
                        from,
                        id,
                        response,
                        records,
                    });
                    true
                }
                None => {
                    self.fail(index, RequestFailure::Disconnected);
                    false
                }
            },
            None => {
                tracing::warn!(
                    peer = from,
                    correlation,
                    "an answer to nothing that was asked"
                );
                self.fail(index, RequestFailure::Disconnected);
                false
            }
        }
    }

    fn on_sent(&mut self, ring: &mut Ring, index: usize, buf: Vec<u8>, result: io::Result<usize>) {
        let user = self.tag | SEND << OP_SHIFT | index as u64;
        let link = self.links[index].as_mut().expect("checked by the caller");
        match result {
            Ok(count) if count > 0 => {
                link.sent += count;
                if link.sent < buf.len() {
                    let socket = link.socket.as_ref().expect("it is connected");
                    ring.send(socket, buf, link.sent, user);
                    link.sending = true;
                    link.busy += 1;
                } else {
                    link.outbound.recycle(buf);
                    self.mark_dirty(index);
                }
            }
            _ => self.fail(index, RequestFailure::Disconnected),
        }
    }

    /// Gives the link up and reports its request as failed.
    fn fail(&mut self, index: usize, failure: RequestFailure) {
        let link = self.links[index].as_mut().expect("checked by the caller");
        let from = link.peer.id;
        let waiting = link.on_the_wire.take().map(|(_, id)| id);
        let queued = link.request.take().map(|(id, _)| id);
        for id in waiting.into_iter().chain(queued) {
            self.events.push(PeerEvent::Failed { from, id, failure });
        }
        self.drop_link(index);
    }

    fn drop_link(&mut self, index: usize) {
        let link = self.links[index].as_mut().expect("checked by the caller");
        if self.by_peer.get(&link.peer.id) == Some(&index) {
            self.by_peer.remove(&link.peer.id);
        }
        if !link.closing {
            link.closing = true;
            if let Some(socket) = &link.socket {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            }
        }
        self.mark_dirty(index);
    }

    fn mark_dirty(&mut self, index: usize) {
        if !self.dirty.contains(&index) {
            self.dirty.push(index);
        }
    }

    /// Ends a turn: starts the sends and receives that are due.
    pub fn flush(&mut self, ring: &mut Ring, now: Instant) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(link) = self.links[index].as_mut() else {
                continue;
            };
            if link.closing {
                if link.busy == 0 {
                    self.links[index] = None;
                }
                continue;
            }
            if link.state != LinkState::Up {
                continue;
            }
            self.enqueue(now, index);
            self.start_io(ring, index);
        }
        self.dirty = dirty;
    }

    /// Encodes what waits, once versions are negotiated.
    fn enqueue(&mut self, now: Instant, index: usize) {
        let Some(link) = self.links[index]
            .as_mut()
            .filter(|link| link.outbound.is_ready())
        else {
            return;
        };
        if let Some((id, request)) = link.request.take() {
            let correlation = link.next_correlation();
            let wire = raft_wire::request_to_wire(&self.identity, &link.peer, &request);
            match link.outbound.enqueue(&wire, correlation) {
                Ok(()) => link.on_the_wire = Some((correlation, id)),
                Err(_) => {
                    let from = link.peer.id;
                    let failure = RequestFailure::UnsupportedVersion;
                    self.events.push(PeerEvent::Failed { from, id, failure });
                }
            }
        }
        let link = self.links[index].as_mut().expect("still there");
        let due = now.ms_since(link.directory_asked) >= DIRECTORY_RETRY_MS;
        if !self.directory_complete
            && due
            && link.directory_request.is_none()
            && link.outbound.peer_has_feature("quorate.peer")
        {
            let correlation = link.next_correlation();
            let wire = ApiRequest::DescribeCluster(DescribeClusterRequest {
                endpoint_type: raft_wire::ENDPOINT_TYPE_BROKER,
                ..Default::default()
            });
            if link.outbound.enqueue(&wire, correlation).is_ok() {
                link.directory_request = Some(correlation);
            }
        }
    }

    fn start_io(&mut self, ring: &mut Ring, index: usize) {
        let tag = self.tag;
        let Some(link) = self.links[index].as_mut() else {
            return;
        };
        let socket = link.socket.as_ref().expect("it is connected");
        if !link.sending
            && let Some(output) = link.outbound.take_output()
        {
            link.sent = 0;
            link.sending = true;
            link.busy += 1;
            ring.send(socket, output, 0, tag | SEND << OP_SHIFT | index as u64);
        }
        if !link.receiving
            && let Some(buf) = link.spare.take()
        {
            link.receiving = true;
            link.busy += 1;
            ring.recv(socket, buf, tag | RECEIVE << OP_SHIFT | index as u64);
        }
    }
}

impl Link {
    fn next_correlation(&mut self) -> i32 {
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        correlation
    }
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
