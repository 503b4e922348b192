//! Tests of what only this engine does: descriptors that change hands, listeners with more than one
//! go takes, threads that come and go.

use super::*;
use crate::buffer::AlignedBuf;
use crate::completion::CompletionKind;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

fn run(ring: &mut Threads, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    while out.len() < count {
        let timeout = Some(Duration::from_secs(10));
        let before = out.len();
        ring.turn(Wait::Until { timeout }, &mut out).unwrap();
        assert!(
            out.len() > before || ring.counters.wakes > 0,
            "nothing came"
        );
    }
    out
}

fn pair() -> (TcpStream, Arc<OwnedFd>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, Arc::new(listener.accept().unwrap().0.into()))
}

fn receive(ring: &mut Threads, socket: &Arc<OwnedFd>, user: u64) {
    let (socket, buf) = (socket.clone(), Vec::with_capacity(100));
    ring.push(Op::Recv { socket, buf }, user, false);
}

#[test]
fn a_descriptor_number_that_is_used_again_is_watched_again() {
    // Epoll forgets a socket when it is closed; whoever thinks that the number is still watched
    // waits for ever.
    let mut ring = Threads::new().unwrap();
    let mut numbers = Vec::new();
    for round in 0..20 {
        let (mut ours, socket) = pair();
        numbers.push(socket.as_raw_fd());
        receive(&mut ring, &socket, round);
        ring.turn(Wait::No, &mut Vec::new()).unwrap();
        drop(socket);
        ours.write_all(b"hello").unwrap();
        let done = run(&mut ring, 1).remove(0);
        assert_eq!(done.user, round);
        let received = matches!(done.kind, CompletionKind::Received { result: Ok(5), .. });
        assert!(received, "{:?}", done.kind);
    }
    // Other tests of this process open files in between.
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() < 20, "no number came twice: {numbers:?}");
}

#[test]
fn receives_of_one_socket_end_in_order() {
    let (mut ours, socket) = pair();
    let mut ring = Threads::new().unwrap();
    (1..=3).for_each(|user| receive(&mut ring, &socket, user));
    ring.turn(Wait::No, &mut Vec::new()).unwrap();
    for user in 1..=3 {
        ours.write_all(&[user; 7]).unwrap();
        let done = run(&mut ring, 1).remove(0);
        assert_eq!(done.user, u64::from(user));
    }
}

#[test]
fn a_listener_with_more_than_one_go_takes_is_emptied() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..120)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut ring = Threads::new().unwrap();
    let listener = Arc::new(OwnedFd::from(listener));
    ring.push(Op::Accept { listener }, 1, false);
    let accepted = run(&mut ring, clients.len());
    let all = accepted
        .iter()
        .all(|done| matches!(done.kind, CompletionKind::Accepted { .. }));
    assert!(all);
}

#[test]
fn a_broken_chain_flushes_nothing_and_ends_whole() {
    let read_only = Arc::new(OwnedFd::from(
        std::fs::File::open("/proc/self/exe").unwrap(),
    ));
    let mut ring = Threads::new().unwrap();
    let write = |file: &Arc<OwnedFd>| Op::Write {
        file: file.clone(),
        position: 0,
        buf: AlignedBuf::zeroed(4096),
        dsync: false,
    };
    ring.push(write(&read_only), 1, true);
    ring.push(write(&read_only), 2, true);
    let file = read_only.clone();
    ring.push(Op::Flush { file }, 3, false);
    let done = run(&mut ring, 3);
    let errno = |kind: &CompletionKind| match kind {
        CompletionKind::Wrote { result, .. } => result.as_ref().unwrap_err().raw_os_error(),
        CompletionKind::Flushed(result) => result.as_ref().unwrap_err().raw_os_error(),
        other => panic!("{other:?}"),
    };
    let ends: Vec<_> = done
        .iter()
        .map(|done| (done.user, errno(&done.kind)))
        .collect();
    let cancelled = Some(libc::ECANCELED);
    assert_eq!(
        ends,
        [(1, Some(libc::EBADF)), (2, cancelled), (3, cancelled)]
    );
    assert_eq!(Arc::strong_count(&read_only), 1, "the operations let go");
}

#[test]
fn a_ring_without_disk_operations_has_no_threads() {
    let (mut ours, socket) = pair();
    let mut ring = Threads::new().unwrap();
    receive(&mut ring, &socket, 1);
    ours.write_all(b"hello").unwrap();
    run(&mut ring, 1);
    assert_eq!(ring.disk.workers_count(), 0);
}
