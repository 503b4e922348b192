//! Names that are late, change or have several addresses: which link gets which answer.

use super::*;
use quorate_raft::{DirectoryId, EndQuorumEpochRequest, Epoch, VoterSet};
use quorate_ring::{Completion, Engine, RingConfig, Wait};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const TAG: u8 = 3;

struct Bench {
    ring: Ring,
    peers: Peers,
    next_id: u64,
}

impl Bench {
    fn new() -> Self {
        let identity = Identity {
            node_id: 1,
            directory_id: DirectoryId([1; 16]),
            cluster_id: "c".into(),
            cluster_id_strict: false,
            topic_name: "t".into(),
            topic_id: [1; 16],
            listener_name: "CONTROLLER".into(),
            voters: VoterSet::default(),
        };
        let config = RingConfig {
            engine: Engine::Uring,
            entries: 16,
            ..RingConfig::default()
        };
        Self {
            ring: Ring::new(&config).unwrap(),
            peers: Peers::new(TAG, Arc::new(identity)),
            next_id: 0,
        }
    }

    /// Sends something to voter 2 at `host:port`, `ms` after the start.
    fn send(&mut self, host: &str, port: u16, ms: u64) {
        let host = host.into();
        let to = Peer {
            id: 2,
            endpoint: Endpoint { host, port },
        };
        let request = Request::EndQuorumEpoch(EndQuorumEpochRequest {
            leader_id: 1,
            epoch: Epoch(1),
            preferred_candidates: Vec::new(),
            endpoint: None,
        });
        self.next_id += 1;
        let (id, now) = (RequestId(self.next_id), Instant(ms * 1_000_000));
        self.peers.send(&mut self.ring, now, to, id, request);
        self.peers.flush(&mut self.ring, now);
    }

    /// The names asked for since the last call.
    fn look_ups(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        self.peers.take_events(&mut events);
        let name = |event| match event {
            PeerEvent::Resolve { endpoint } => Some(endpoint.host.to_string()),
            _ => None,
        };
        events.into_iter().filter_map(name).collect()
    }

    fn on_resolved(&mut self, host: &str, port: u16, addresses: &[SocketAddr]) {
        let host = host.into();
        let endpoint = Endpoint { host, port };
        let result = Ok(addresses.to_vec());
        self.peers.on_resolved(&mut self.ring, &endpoint, result);
    }

    /// Turns once or twice; what ends is taken in at `ms`.
    fn turn(&mut self, ms: u64) {
        let mut out = Vec::new();
        let timeout = Some(Duration::from_millis(20));
        self.ring.turn(Wait::Until { timeout }, &mut out).unwrap();
        let now = Instant(ms * 1_000_000);
        for Completion { user, kind } in out {
            self.peers.on_completion(&mut self.ring, now, user, kind);
        }
        self.peers.flush(&mut self.ring, now);
    }

    fn connects_to(&mut self, listener: &TcpListener, ms: u64) {
        listener.set_nonblocking(true).unwrap();
        for _ in 0..500 {
            self.turn(ms);
            if listener.accept().is_ok() {
                return;
            }
        }
        panic!("no link to {:?}", listener.local_addr());
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A port that refuses, and that nobody else can get meanwhile.
fn bound() -> (OwnedFd, SocketAddr) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

/// A listener that takes no connection any more, not even a request for one, and what fills it.
fn deaf() -> (OwnedFd, SocketAddr, Vec<TcpStream>) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&socket, 0).unwrap();
    let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    let patience = Duration::from_millis(200);
    let fill = (0..10).map_while(|_| TcpStream::connect_timeout(&address, patience).ok());
    let fill: Vec<_> = fill.collect();
    assert!(fill.len() < 10, "it still listens");
    (socket, address, fill)
}

#[test]
fn a_name_is_not_looked_up_again_while_its_look_up_hangs() {
    // A resolver that hangs for half a minute must not be asked anew with each retry: the look-ups
    // would pile up without bound, and the good answer would come after all of them.
    let mut bench = Bench::new();
    for ms in (0..40_000).step_by(1_500) {
        bench.send("peer.example", 9093, ms);
    }
    assert_eq!(bench.look_ups(), ["peer.example"]);
    let (listener, address) = listen();
    bench.on_resolved("peer.example", 9093, &[address]);
    bench.connects_to(&listener, 40_000);

    // The next link asks again: addresses change.
    bench.peers.drop_link(0);
    bench.send("peer.example", 9093, 41_000);
    assert_eq!(bench.look_ups(), ["peer.example"]);
}

#[test]
fn a_late_look_up_does_not_reach_a_peer_that_is_elsewhere_by_now() {
    let mut bench = Bench::new();
    bench.send("old.example", 9093, 0);
    bench.send("new.example", 9093, 2_000);
    assert_eq!(bench.look_ups(), ["old.example", "new.example"]);
    let ((old, old_address), (new, new_address)) = (listen(), listen());
    bench.on_resolved("old.example", 9093, &[old_address]);
    bench.on_resolved("new.example", 9093, &[new_address]);
    bench.connects_to(&new, 2_000);
    old.set_nonblocking(true).unwrap();
    assert!(old.accept().is_err(), "nobody goes there");
}

#[test]
fn an_address_without_a_route_or_a_listener_is_followed_by_the_next() {
    let (_nobody, refused) = bound();
    let (listener, address) = listen();
    // A link-local address without an interface leads nowhere, on any host and at once.
    let mut bench = Bench::new();
    bench.send("peer.example", 9093, 0);
    let no_route: SocketAddr = "[fe80::1]:9093".parse().unwrap();
    bench.on_resolved("peer.example", 9093, &[no_route, refused, address]);
    bench.connects_to(&listener, 0);
}

#[test]
fn an_address_that_never_answers_is_left_for_the_next_after_a_second() {
    let (_socket, silent, _fill) = deaf();
    let (listener, address) = listen();
    let mut bench = Bench::new();
    bench.send("peer.example", 9093, 0);
    bench.on_resolved("peer.example", 9093, &[silent, address]);
    bench.turn(0);
    assert_eq!(bench.look_ups().len(), 1);
    bench.send("peer.example", 9093, 1_000);
    assert_eq!(bench.look_ups().len(), 1, "a new link, a new look-up");
    bench.on_resolved("peer.example", 9093, &[silent, address]);
    bench.connects_to(&listener, 1_000);
}
