//! The admin listener's connections: one thread that polls, and waits for nobody.
//!
//! Everything is bounded: connections, the bytes of a request, the time for each step. When there
//! are too many connections, the one that has kept its request to itself for longest has to go, so
//! that silent strangers cannot keep a probe out.

use super::http::{self, HEAD_BYTES_MAX, Parsed, Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Accepted in one round at most, so that those accepted are looked after.
const ACCEPTS_PER_ROUND: usize = 16;
/// How long a request may take to come in.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take to be read.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the other side may take to hang up. If it is cut off with unread bytes, it may lose the
/// answer.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);
/// Nobody sends more than this behind a request by mistake.
const DISCARDED_MAX: usize = 1024 * 1024;
/// Pause in accepting when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All connections of the listener.
pub(super) struct Connections {
    listener: TcpListener,
    /// Oldest first.
    open: Vec<Connection>,
    accept_after: Option<Instant>,
}

struct Connection {
    stream: TcpStream,
    state: State,
    deadline: Instant,
}

enum State {
    Reading(Vec<u8>),
    Writing {
        bytes: Vec<u8>,
        written: usize,
    },
    /// Answered; so many bytes that came after the request are thrown away.
    Closing {
        discarded: usize,
    },
    Done,
}

impl Connections {
    /// Serves `listener`.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            open: Vec::new(),
            accept_after: None,
        })
    }

    /// Open connections.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.open.len()
    }

    /// One round: waits until something happens, at most until `until`, and does what is to be
    /// done. `now` reads the clock.
    ///
    /// # Errors
    /// If the kernel cannot poll.
    pub(super) fn turn(
        &mut self,
        until: Instant,
        now: impl Fn() -> Instant,
        mut answer: impl FnMut(&Request) -> Response,
    ) -> io::Result<()> {
        let wait = self.next_deadline(until).saturating_duration_since(now());
        let (may_accept, ready) = self.poll(wait, now())?;
        for (connection, ready) in self.open.iter_mut().zip(ready) {
            if ready {
                connection.advance(now(), &mut answer);
            }
        }
        let moment = now();
        self.open.retain(|connection| {
            !matches!(connection.state, State::Done) && connection.deadline > moment
        });
        if may_accept {
            self.accept(now, &mut answer);
        }
        Ok(())
    }

    fn next_deadline(&self, until: Instant) -> Instant {
        let deadlines = self.open.iter().map(|connection| connection.deadline);
        let all = deadlines.chain(self.accept_after).chain([until]);
        all.min().unwrap_or(until)
    }

    /// Whether somebody wants to connect, and which connections have something to do.
    fn poll(&mut self, wait: Duration, now: Instant) -> io::Result<(bool, Vec<bool>)> {
        if self.accept_after.is_some_and(|at| at <= now) {
            self.accept_after = None;
        }
        let accepts = match self.accept_after {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = Vec::with_capacity(self.open.len() + 1);
        fds.push(PollFd::new(&self.listener, accepts));
        for connection in &self.open {
            let wanted = match connection.state {
                State::Writing { .. } => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            fds.push(PollFd::new(&connection.stream, wanted));
        }
        // Rounded up, so that a deadline has passed when the wait for it ends.
        let wait = wait + Duration::from_millis(1);
        let timeout = Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut ready: Vec<bool> = ready.collect();
        let may_accept = ready.remove(0);
        Ok((may_accept, ready))
    }

    fn accept(&mut self, now: impl Fn() -> Instant, answer: &mut impl FnMut(&Request) -> Response) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.accept_after = Some(now() + ACCEPT_PAUSE);
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.open.len() >= CONNECTIONS_MAX {
                self.open.remove(self.most_silent());
            }
            let mut connection = Connection {
                stream,
                state: State::Reading(Vec::new()),
                deadline: now() + REQUEST_PATIENCE,
            };
            // The request is often there already.
            connection.advance(now(), answer);
            self.open.push(connection);
        }
    }

    /// The oldest connection without a whole request, else the oldest of all.
    fn most_silent(&self) -> usize {
        let mut all = self.open.iter();
        let reads = |connection: &Connection| matches!(connection.state, State::Reading(_));
        all.position(reads).unwrap_or(0)
    }
}

impl Connection {
    /// Goes as far as it can without waiting.
    fn advance(&mut self, now: Instant, answer: &mut impl FnMut(&Request) -> Response) {
        loop {
            let step = match &mut self.state {
                State::Reading(_) => self.read(now, answer),
                State::Writing { .. } => self.write(now),
                State::Closing { .. } => self.discard(),
                State::Done => return,
            };
            match step {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.state = State::Done,
            }
        }
    }

    fn read(
        &mut self,
        now: Instant,
        answer: &mut impl FnMut(&Request) -> Response,
    ) -> io::Result<()> {
        let State::Reading(input) = &mut self.state else {
            return Ok(());
        };
        let mut bytes = [0; 1024];
        let room = bytes.len().min(HEAD_BYTES_MAX - input.len());
        let count = self.stream.read(&mut bytes[..room])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(&bytes[..count]);
        let response = match http::parse(input) {
            Parsed::Partial => return Ok(()),
            Parsed::Refused(response) => response,
            Parsed::Get(request) => answer(&request),
        };
        self.deadline = now + ANSWER_PATIENCE;
        self.state = State::Writing {
            bytes: response.into_bytes(),
            written: 0,
        };
        Ok(())
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        let State::Writing { bytes, written } = &mut self.state else {
            return Ok(());
        };
        *written += self.stream.write(&bytes[*written..])?;
        if *written == bytes.len() {
            self.stream.shutdown(Shutdown::Write)?;
            self.deadline = now + FAREWELL_PATIENCE;
            self.state = State::Closing { discarded: 0 };
        }
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        let State::Closing { discarded } = &mut self.state else {
            return Ok(());
        };
        let count = self.stream.read(&mut [0; 4096])?;
        *discarded += count;
        if count == 0 || *discarded > DISCARDED_MAX {
            self.state = State::Done;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // sockets have their own time
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread::{self, JoinHandle};

    /// A listener that answers everything with a body of so many bytes.
    struct Served {
        address: SocketAddr,
        stop: Arc<AtomicBool>,
        open_max: Arc<AtomicUsize>,
        thread: Option<JoinHandle<()>>,
    }

    fn serve(body_bytes: usize) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let open_max = Arc::<AtomicUsize>::default();
        let (stopped, most) = (Arc::clone(&stop), Arc::clone(&open_max));
        let run = move || {
            let mut connections = Connections::new(listener).unwrap();
            while !stopped.load(Ordering::Acquire) {
                let until = Instant::now() + Duration::from_millis(50);
                let answer = |_: &Request| Response::text(200, "x".repeat(body_bytes));
                connections.turn(until, Instant::now, answer).unwrap();
                most.fetch_max(connections.len(), Ordering::AcqRel);
            }
        };
        let thread = Some(thread::spawn(run));
        Served {
            address,
            stop,
            open_max,
            thread,
        }
    }

    impl Served {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            stream
        }

        fn get(&self) -> String {
            let mut stream = self.connect();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Release);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn an_answer_larger_than_the_sockets_buffers_arrives_whole() {
        let served = serve(20_000_000);
        let text = served.get();
        let body = text.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body.len(), 20_000_000);
    }

    #[test]
    fn silent_connections_make_room_for_a_request() {
        let served = serve(10);
        let silent: Vec<TcpStream> = (0..200).map(|_| served.connect()).collect();
        for mut stream in &silent {
            // Whoever was sent away already does not mind.
            let _ = stream.write_all(b"GET /");
        }
        let begun = Instant::now();
        assert!(served.get().starts_with("HTTP/1.1 200"));
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
        assert!(served.open_max.load(Ordering::Acquire) <= CONNECTIONS_MAX);
    }

    #[test]
    fn a_request_that_never_ends_is_cut_off() {
        let served = serve(10);
        let mut stream = served.connect();
        let begun = Instant::now();
        stream.write_all(b"GET / HTTP/1.1\r\nA: ").unwrap();
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).unwrap_or(0), 0);
        let took = begun.elapsed();
        assert!(
            took >= REQUEST_PATIENCE && took < 3 * REQUEST_PATIENCE,
            "{took:?}"
        );
    }

    #[test]
    fn a_refused_request_hears_why_although_it_goes_on_sending() {
        let served = serve(10);
        let mut stream = served.connect();
        let endless = vec![b'a'; 100_000];
        stream.write_all(b"GET / HTTP/1.1\r\nA: ").unwrap();
        stream.write_all(&endless).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }
}
