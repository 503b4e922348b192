//! Connections over loopback.

mod common;

use common::{Numbers, PATIENCE, ring, run, shared};
use quorate_ring::{Completion, CompletionKind, Engine, Ring, Wait};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

on_both_engines! {
    echo_returns_what_each_client_sent,
    tiny_ring_serves_more_connections_than_its_queues_hold,
    connect_reaches_a_listener_and_hears_a_refusal,
    connect_that_nobody_answers_ends_when_it_is_shut_down_or_cancelled,
    received_bytes_go_behind_those_already_there,
    large_send_is_not_cut_short,
    send_to_a_closed_connection_is_an_error_not_a_signal,
    cancelled_receive_gives_its_buffer_back_and_others_go_on,
    cancelled_accept_ends_and_can_begin_again,
    dropping_the_ring_takes_its_receives_and_accepts_back,
}

fn listen() -> (Arc<OwnedFd>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (shared(listener), address)
}

fn tcp_socket() -> Arc<OwnedFd> {
    let (family, kind) = (
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
    );
    shared(rustix::net::socket(family, kind, None).unwrap())
}

fn pair() -> (TcpStream, Arc<OwnedFd>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, shared(listener.accept().unwrap().0))
}

const LISTENER: u64 = 0;

/// Echoes on every connection until all were closed by their clients.
struct EchoServer {
    ring: Ring,
    listener: Arc<OwnedFd>,
    sockets: HashMap<u64, Arc<OwnedFd>>,
    accepted: u64,
}

impl EchoServer {
    fn serve(&mut self, connections: u64) {
        let mut out = Vec::new();
        self.ring.accept(&self.listener, LISTENER);
        while self.accepted < connections || !self.sockets.is_empty() {
            self.ring.turn(PATIENCE, &mut out).unwrap();
            for done in std::mem::take(&mut out) {
                self.on_completion(done);
            }
        }
    }

    fn on_completion(&mut self, done: Completion) {
        let user = done.user;
        match done.kind {
            CompletionKind::Accepted { socket } => {
                self.accepted += 1;
                rustix::net::sockopt::set_tcp_nodelay(&socket, true).unwrap();
                let socket = Arc::new(socket);
                self.ring
                    .recv(&socket, Vec::with_capacity(1000), self.accepted);
                self.sockets.insert(self.accepted, socket);
            }
            CompletionKind::AcceptEnded { .. } => self.ring.accept(&self.listener, LISTENER),
            CompletionKind::Received { buf, result } => match result.unwrap() {
                0 => drop(self.sockets.remove(&user)),
                _ => self.ring.send(&self.sockets[&user], buf, 0, user),
            },
            CompletionKind::Sent { mut buf, result } => {
                assert_eq!(result.unwrap(), buf.len());
                buf.clear();
                self.ring.recv(&self.sockets[&user], buf, user);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn echo_client(address: SocketAddr, seed: u64, rounds: usize) {
    let (mut stream, mut numbers) = (TcpStream::connect(address).unwrap(), Numbers(seed));
    for _ in 0..rounds {
        let sent: Vec<u8> = (0..1 + numbers.below(3000))
            .map(|_| numbers.below(256) as u8)
            .collect();
        stream.write_all(&sent).unwrap();
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).unwrap();
        assert!(sent == got);
    }
}

fn echo_returns_what_each_client_sent(engine: Engine) {
    let (listener, address) = listen();
    let clients: Vec<_> = (1..=4)
        .map(|seed| thread::spawn(move || echo_client(address, seed, 200)))
        .collect();
    EchoServer {
        ring: ring(engine, 64),
        listener,
        sockets: HashMap::new(),
        accepted: 0,
    }
    .serve(4);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
}

fn tiny_ring_serves_more_connections_than_its_queues_hold(engine: Engine) {
    // 120 connections on 8 entries (32 completions): all answer in bursts, and each is served.
    let (listener, address) = listen();
    let clients = thread::spawn(move || {
        let mut streams: Vec<_> = (0..120)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for round in 0..20u8 {
            streams
                .iter_mut()
                .for_each(|stream| stream.write_all(&[round; 100]).unwrap());
            for stream in &mut streams {
                let mut got = [0; 100];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, [round; 100]);
            }
        }
    });
    let mut server = EchoServer {
        ring: ring(engine, 8),
        listener,
        sockets: HashMap::new(),
        accepted: 0,
    };
    server.serve(120);
    clients.join().unwrap();
}

fn connect_reaches_a_listener_and_hears_a_refusal(engine: Engine) {
    let (listener, address) = listen();
    let mut ring = ring(engine, 8);
    ring.accept(&listener, 1);
    ring.connect(&tcp_socket(), address, 2);
    let done = run(&mut ring, 2);
    assert!(
        done.iter()
            .any(|done| matches!(done.kind, CompletionKind::Accepted { .. }))
    );
    assert!(
        done.iter()
            .any(|done| matches!(done.kind, CompletionKind::Connected(Ok(()))))
    );

    let (closed, address) = listen();
    drop(closed);
    ring.connect(&tcp_socket(), address, 3);
    let kind = run(&mut ring, 1).remove(0).kind;
    let CompletionKind::Connected(Err(error)) = kind else {
        panic!("{kind:?}")
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
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

/// The next completion, which must come within 20 s: the kernel gives a connection that is
/// begun anew up after two minutes.
fn run_briefly(ring: &mut Ring) -> Completion {
    let mut out = Vec::new();
    let patience = Wait::Until {
        timeout: Some(Duration::from_secs(4)),
    };
    for _ in 0..5 {
        ring.turn(patience, &mut out).unwrap();
        if let Some(done) = out.pop() {
            return done;
        }
    }
    panic!("the connection attempt goes on");
}

fn connect_that_nobody_answers_ends_when_it_is_shut_down_or_cancelled(engine: Engine) {
    let (_socket, address, _fill) = deaf();
    let mut ring = ring(engine, 8);
    let ends = |ring: &mut Ring, end: &dyn Fn(&mut Ring, &Arc<OwnedFd>)| {
        let socket = tcp_socket();
        ring.connect(&socket, address, 1);
        let mut out = Vec::new();
        ring.turn(Wait::No, &mut out).unwrap();
        assert!(out.is_empty());
        end(ring, &socket);
        let kind = run_briefly(ring).kind;
        assert!(
            matches!(kind, CompletionKind::Connected(Err(_))),
            "{kind:?}"
        );
    };
    ends(&mut ring, &|_, socket| {
        // Says ENOTCONN, and gives the connection up all the same.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    });
    ends(&mut ring, &|ring, _| ring.cancel_all_of(1));
}

fn received_bytes_go_behind_those_already_there(engine: Engine) {
    let (ours, socket) = pair();
    let mut ring = ring(engine, 8);
    let mut buf = Vec::with_capacity(6);
    buf.extend_from_slice(b"abc");
    let capacity = buf.capacity();
    (&ours).write_all(b"defghijklmnop").unwrap();
    ring.recv(&socket, buf, 1);
    let kind = run(&mut ring, 1).remove(0).kind;
    let CompletionKind::Received { buf, result } = kind else {
        panic!("{kind:?}")
    };
    assert_eq!(result.unwrap(), capacity - 3);
    assert_eq!(buf, &b"abcdefghijklmnop"[..capacity]);
}

fn large_send_is_not_cut_short(engine: Engine) {
    let (mut ours, socket) = pair();
    let mut ring = ring(engine, 8);
    let sent: Vec<u8> = (0..8_000_000u32).map(|at| (at >> 4) as u8).collect();
    ring.send(&socket, sent.clone(), 17, 1);
    let reader = thread::spawn(move || {
        let mut got = vec![0; 8_000_000 - 17];
        ours.read_exact(&mut got).unwrap();
        got
    });
    let kind = run(&mut ring, 1).remove(0).kind;
    assert!(matches!(
        kind,
        CompletionKind::Sent {
            result: Ok(7_999_983),
            ..
        }
    ));
    assert!(reader.join().unwrap() == sent[17..]);
}

fn send_to_a_closed_connection_is_an_error_not_a_signal(engine: Engine) {
    let (ours, socket) = pair();
    drop(ours);
    let mut ring = ring(engine, 8);
    let failed = (0..20).any(|_| {
        ring.send(&socket, vec![1; 100], 0, 1);
        let kind = run(&mut ring, 1).remove(0).kind;
        matches!(kind, CompletionKind::Sent { result: Err(_), .. })
    });
    assert!(failed);
}

fn cancelled_receive_gives_its_buffer_back_and_others_go_on(engine: Engine) {
    let ((_first_peer, first), (second_peer, second)) = (pair(), pair());
    let mut ring = ring(engine, 8);
    let mut out = Vec::new();
    ring.recv(&first, Vec::with_capacity(100), 1);
    ring.recv(&second, Vec::with_capacity(200), 2);
    ring.turn(Wait::No, &mut out).unwrap();
    ring.cancel_all_of(1);
    let done = run(&mut ring, 1).remove(0);
    let CompletionKind::Received { buf, result } = done.kind else {
        panic!("{:?}", done.kind)
    };
    assert_eq!((done.user, buf.capacity()), (1, 100));
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));

    (&second_peer).write_all(b"still here").unwrap();
    let done = run(&mut ring, 1).remove(0);
    assert_eq!(done.user, 2);
    assert!(matches!(
        done.kind,
        CompletionKind::Received { result: Ok(10), .. }
    ));
}

fn cancelled_accept_ends_and_can_begin_again(engine: Engine) {
    let (listener, address) = listen();
    let mut ring = ring(engine, 8);
    ring.accept(&listener, 1);
    ring.turn(Wait::No, &mut Vec::new()).unwrap();
    ring.cancel_all_of(1);
    let kind = run(&mut ring, 1).remove(0).kind;
    assert!(
        matches!(kind, CompletionKind::AcceptEnded { error: Some(_) }),
        "{kind:?}"
    );
    let _client = TcpStream::connect(address).unwrap();
    ring.accept(&listener, 2);
    assert!(matches!(
        run(&mut ring, 1)[0].kind,
        CompletionKind::Accepted { .. }
    ));
}

fn dropping_the_ring_takes_its_receives_and_accepts_back(engine: Engine) {
    let ((ours, socket), (listener, address)) = (pair(), listen());
    let mut ring = ring(engine, 8);
    ring.recv(&socket, Vec::with_capacity(100), 1);
    ring.accept(&listener, 2);
    ring.turn(Wait::No, &mut Vec::new()).unwrap();
    let mut waiting = TcpStream::connect(address).unwrap();
    drop(ring);
    assert_eq!(Arc::strong_count(&socket), 1, "nothing was leaked");
    assert_eq!(Arc::strong_count(&listener), 1);
    // A connection that nobody saw was closed, not forgotten.
    drop(listener);
    assert!(matches!(waiting.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(ours);
}
