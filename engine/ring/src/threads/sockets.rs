//! Socket operations: tried at once, and again whenever epoll reports a change.
//!
//! Each socket is registered once, edge-triggered, for both directions, when an operation on it
//! first has to wait. No change is lost:
//!
//! 1. An operation is tried before it waits; if that says EAGAIN, whatever comes later is a change.
//! 2. Registering reports the present state as a change, so what came between the first try and the
//!    registration is reported too.
//! 3. A change that finds no operation waiting is dropped; the next operation is tried first.
//!
//! A descriptor's number says nothing once it was closed: a socket is known by its `Arc`, of which
//! the registration keeps a weak half.

use crate::completion::{Completion, CompletionKind};
use crate::op::Op;
use crate::slots::{Key, Slots};
use crate::waker::WakeState;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, connect, recv, send};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Changes taken from the kernel by one call; more come with the next.
const EVENTS_PER_CALL: usize = 256;

/// Connections accepted from one listener before others have their turn.
const ACCEPTS_PER_GO: usize = 64;

/// Stands for the wake-up descriptor where others have their number.
const WAKE: u64 = u64::MAX;

/// All sockets with operations, and the epoll instance that watches them.
pub(super) struct Sockets {
    epoll: OwnedFd,
    /// By descriptor number.
    endpoints: Vec<Endpoint>,
    /// Reported and not looked at.
    events: Vec<Event>,
    /// Listeners that may have more connections than one go takes.
    more: Vec<usize>,
}

/// One descriptor number and the operations that wait on the socket it stands for now.
#[derive(Default)]
struct Endpoint {
    /// The socket that epoll watches under this number, if it is still that one.
    registered: Weak<OwnedFd>,
    /// Receives and accepts, oldest first.
    incoming: VecDeque<Key>,
    /// Sends and connects, oldest first.
    outgoing: VecDeque<Key>,
}

#[derive(Clone, Copy)]
enum Direction {
    Incoming,
    Outgoing,
}

impl Direction {
    fn of(op: &Op) -> Direction {
        match op {
            Op::Recv { .. } | Op::Accept { .. } => Direction::Incoming,
            _ => Direction::Outgoing,
        }
    }
}

impl Endpoint {
    fn queue(&mut self, direction: Direction) -> &mut VecDeque<Key> {
        match direction {
            Direction::Incoming => &mut self.incoming,
            Direction::Outgoing => &mut self.outgoing,
        }
    }
}

/// What came of a try.
enum Tried {
    Ended(CompletionKind),
    /// Not now: the kernel will report a change.
    Blocked,
    /// There may be more, but others are to have their turn.
    More,
}

impl Sockets {
    pub(super) fn new(wake: &WakeState) -> io::Result<Sockets> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Edge-triggered: every write to it is a change, so it need never be read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, wake, EventData::new_u64(WAKE), flags)?;
        Ok(Sockets {
            epoll,
            endpoints: Vec::new(),
            events: Vec::with_capacity(EVENTS_PER_CALL),
            more: Vec::new(),
        })
    }

    /// Takes an operation in: it ends at once, or waits behind the others of its socket.
    pub(super) fn begin(&mut self, key: Key, slots: &mut Slots, out: &mut Vec<Completion>) {
        let slot = slots.get_mut(key);
        slot.submitted = true;
        let direction = Direction::of(&slot.op);
        let socket = slot.op.socket().expect("a socket operation");
        let number = socket.as_raw_fd() as usize;
        if matches!(slot.op, Op::Accept { .. } | Op::Connect { .. }) {
            // Receives and sends say so with each call. If it is no socket, the try will tell.
            let _ = ioctl_fionbio(socket, true);
        }
        if number >= self.endpoints.len() {
            self.endpoints.resize_with(number + 1, Endpoint::default);
        }
        let queue = self.endpoints[number].queue(direction);
        queue.push_back(key);
        if queue.len() == 1 {
            self.advance(number, direction, slots, out);
        }
    }

    /// Lets an operation that waited go.
    pub(super) fn forget(&mut self, key: Key, op: &Op) {
        let number = op.socket().expect("a socket operation").as_raw_fd() as usize;
        let queue = self.endpoints[number].queue(Direction::of(op));
        queue.retain(|waiting| *waiting != key);
    }

    /// Whether some socket is to be tried again without a report.
    pub(super) fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// Tries the sockets that had more than one go takes.
    pub(super) fn go_on(&mut self, slots: &mut Slots, out: &mut Vec<Completion>) {
        for number in std::mem::take(&mut self.more) {
            self.advance(number, Direction::Incoming, slots, out);
        }
    }

    /// Whether [`Sockets::on_events`] has something to look at.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Waits for changes; returns early after a signal. A timeout is rounded up to whole
    /// milliseconds.
    pub(super) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        // A timeout beyond what the kernel can count is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries what waits on the sockets that changed.
    pub(super) fn on_events(&mut self, slots: &mut Slots, out: &mut Vec<Completion>) {
        let broken = EventFlags::HUP | EventFlags::ERR;
        for at in 0..self.events.len() {
            let (data, flags) = (self.events[at].data.u64(), self.events[at].flags);
            if data == WAKE {
                continue;
            }
            let number = data as usize;
            if flags.intersects(EventFlags::IN | broken) {
                self.advance(number, Direction::Incoming, slots, out);
            }
            if flags.intersects(EventFlags::OUT | broken) {
                self.advance(number, Direction::Outgoing, slots, out);
            }
        }
        self.events.clear();
    }

    /// Tries the operations of one direction in order, until one has to wait.
    fn advance(
        &mut self,
        number: usize,
        direction: Direction,
        slots: &mut Slots,
        out: &mut Vec<Completion>,
    ) {
        while let Some(&key) = self.endpoints[number].queue(direction).front() {
            let slot = slots.get_mut(key);
            let user = slot.user;
            let kind = match attempt(&mut slot.op, user, out) {
                Tried::Ended(kind) => kind,
                Tried::Blocked => {
                    let socket = slot.op.socket().expect("a socket operation").clone();
                    match self.ensure_registered(number, &socket) {
                        Ok(()) => return,
                        Err(error) => failed(&mut slot.op, error),
                    }
                }
                Tried::More => {
                    if !self.more.contains(&number) {
                        self.more.push(number);
                    }
                    return;
                }
            };
            self.endpoints[number].queue(direction).pop_front();
            slots.remove(key);
            out.push(Completion { user, kind });
        }
    }

    fn ensure_registered(&mut self, number: usize, socket: &Arc<OwnedFd>) -> io::Result<()> {
        let endpoint = &mut self.endpoints[number];
        // The weak half keeps the address from being used for another socket.
        if Weak::as_ptr(&endpoint.registered) == Arc::as_ptr(socket) {
            return Ok(());
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        let data = EventData::new_u64(number as u64);
        match epoll::add(&self.epoll, socket, data, flags) {
            // Shared with another `Arc` of this number that is gone: reports go on, and this makes
            // the kernel look at its state again.
            Err(Errno::EXIST) => epoll::modify(&self.epoll, socket, data, flags)?,
            added => added?,
        }
        endpoint.registered = Arc::downgrade(socket);
        Ok(())
    }
}

/// Carries an operation out as far as that is possible now. Its buffer is gone when it has ended.
fn attempt(op: &mut Op, user: u64, out: &mut Vec<Completion>) -> Tried {
    match op {
        Op::Accept { listener } => attempt_accept(listener, user, out),
        Op::Connect {
            socket,
            address,
            begun,
            ..
        } => attempt_connect(socket, *address, begun),
        Op::Recv { socket, buf } => attempt_recv(socket, buf),
        Op::Send {
            socket,
            buf,
            from,
            sent,
        } => attempt_send(socket, buf, *from, sent),
        _ => unreachable!("not a socket operation"),
    }
}

fn attempt_accept(listener: &OwnedFd, user: u64, out: &mut Vec<Completion>) -> Tried {
    for _ in 0..ACCEPTS_PER_GO {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let kind = CompletionKind::Accepted { socket };
                out.push(Completion { user, kind });
            }
            Err(Errno::AGAIN) => return Tried::Blocked,
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                let error = Some(error.into());
                return Tried::Ended(CompletionKind::AcceptEnded { error });
            }
        }
    }
    Tried::More
}

/// Only the first try calls `connect`: on a socket that was shut down meanwhile a second call would
/// begin anew.
fn attempt_connect(socket: &OwnedFd, address: SocketAddr, begun: &mut bool) -> Tried {
    let begins = !std::mem::replace(begun, true);
    let result = if begins {
        connect(socket, &address)
    } else {
        connect_result(socket)
    };
    match result {
        Ok(()) => Tried::Ended(CompletionKind::Connected(Ok(()))),
        Err(Errno::INPROGRESS | Errno::INTR) => Tried::Blocked,
        Err(error) => Tried::Ended(CompletionKind::Connected(Err(error.into()))),
    }
}

/// How far the kernel is with a connection: INPROGRESS, or the end.
fn connect_result(socket: &OwnedFd) -> Result<(), Errno> {
    let mut state = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut state, Some(&Timespec::default()))?;
    let state = state[0].revents();
    if !state.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) {
        return Err(Errno::INPROGRESS);
    }
    socket_error(socket)??;
    match state.contains(PollFlags::HUP) {
        true => Err(Errno::CONNABORTED),
        false => Ok(()),
    }
}

fn attempt_recv(socket: &OwnedFd, buf: &mut Vec<u8>) -> Tried {
    let result = loop {
        match recv(socket, spare_capacity(buf), RecvFlags::DONTWAIT) {
            Ok((_, count)) => break Ok(count),
            Err(Errno::AGAIN) => return Tried::Blocked,
            Err(Errno::INTR) => {}
            Err(error) => break Err(error.into()),
        }
    };
    let buf = std::mem::take(buf);
    Tried::Ended(CompletionKind::Received { buf, result })
}

fn attempt_send(socket: &OwnedFd, buf: &mut Vec<u8>, from: usize, sent: &mut usize) -> Tried {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let result = loop {
        match send(socket, &buf[from + *sent..], flags) {
            Ok(count) => {
                *sent += count;
                if from + *sent == buf.len() {
                    break Ok(*sent);
                }
            }
            Err(Errno::AGAIN) => return Tried::Blocked,
            Err(Errno::INTR) => {}
            // What was taken before counts; the error comes again with the next send.
            Err(_) if *sent > 0 => break Ok(*sent),
            Err(error) => break Err(error.into()),
        }
    };
    let buf = std::mem::take(buf);
    Tried::Ended(CompletionKind::Sent { buf, result })
}

/// The end of an operation that was cancelled; bytes already sent count.
pub(super) fn cancelled(op: Op) -> CompletionKind {
    match op {
        Op::Send { buf, sent, .. } if sent > 0 => CompletionKind::Sent {
            buf,
            result: Ok(sent),
        },
        op => {
            let ended = op.finish(-libc::ECANCELED);
            ended.expect("not an internal operation")
        }
    }
}

/// The end of an operation that cannot even wait.
fn failed(op: &mut Op, error: io::Error) -> CompletionKind {
    match op {
        Op::Accept { .. } => CompletionKind::AcceptEnded { error: Some(error) },
        Op::Connect { .. } => CompletionKind::Connected(Err(error)),
        Op::Recv { buf, .. } => CompletionKind::Received {
            buf: std::mem::take(buf),
            result: Err(error),
        },
        Op::Send { buf, .. } => CompletionKind::Sent {
            buf: std::mem::take(buf),
            result: Err(error),
        },
        _ => unreachable!("not a socket operation"),
    }
}
