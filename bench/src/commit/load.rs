//! Drives all clients from one thread: a closed loop over a few connections on one ring.

use super::leader::Leader;
use super::session::Session;
use super::{CONNECTIONS_MAX, Plan};
use crate::latency::Latencies;
use bytes::Bytes;
use quorate_ring::{Completion, CompletionKind, Ring, RingConfig, Wait};
use quorate_storage::format::{BatchBuilder, NewRecord};
use std::error::Error;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes a receive takes at most.
const RECEIVE_BYTES: usize = 64 << 10;

/// Longest silence of a server.
const PATIENCE: Duration = Duration::from_secs(30);

struct Connection {
    socket: Arc<OwnedFd>,
    session: Session,
    sending: bool,
}

/// When the clock counts.
struct Window {
    start: Instant,
    end: Instant,
}

struct Load {
    ring: Ring,
    connections: Vec<Connection>,
    /// Per client when its outstanding request was made; None: it has none.
    started: Vec<Option<Instant>>,
    window: Window,
    latencies: Latencies,
    /// All base offsets that were answered.
    offsets: Vec<i64>,
}

/// Runs the plan against the leader. Latencies are those of commits answered after the warm-up.
pub(crate) fn run(leader: &Leader, plan: &Plan) -> Result<Latencies, Box<dyn Error>> {
    let batch = Bytes::from(batch(plan.record_size)?);
    let connect = |_| connect(leader, &batch);
    let count = plan.clients.min(CONNECTIONS_MAX);
    let connections = (0..count).map(connect).collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now() + plan.warm_up;
    let mut load = Load {
        ring: Ring::new(&RingConfig {
            entries: 64,
            ..RingConfig::default()
        })?,
        connections,
        started: vec![None; plan.clients],
        window: Window {
            start,
            end: start + plan.duration,
        },
        latencies: Latencies::new(),
        offsets: Vec::new(),
    };
    load.run(plan.spin)?;
    assert_given_once(load.offsets)?;
    Ok(load.latencies)
}

/// One record with a value of `record_size` bytes.
fn batch(record_size: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let value: Vec<u8> = (0..record_size).map(|at| at as u8).collect();
    let mut builder = BatchBuilder::produced();
    builder.push(NewRecord::value(now, &value));
    Ok(builder.build())
}

fn connect(leader: &Leader, batch: &Bytes) -> io::Result<Connection> {
    let stream = TcpStream::connect(&leader.address)?;
    stream.set_nodelay(true)?;
    let session = Session::new(&leader.topic, batch.clone());
    Ok(Connection {
        socket: Arc::new(stream.into()),
        session,
        sending: false,
    })
}

fn assert_given_once(mut offsets: Vec<i64>) -> Result<(), Box<dyn Error>> {
    offsets.sort_unstable();
    match offsets.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("offset {} was given to two commits", pair[0]).into()),
        None => Ok(()),
    }
}

impl Load {
    fn run(&mut self, spin: Duration) -> Result<(), Box<dyn Error>> {
        for index in 0..self.connections.len() {
            self.receive(index, Vec::with_capacity(RECEIVE_BYTES));
            self.send(index);
        }
        let wait = match spin.is_zero() {
            true => Wait::Until {
                timeout: Some(PATIENCE),
            },
            false => Wait::Spin {
                for_: spin,
                timeout: Some(PATIENCE),
            },
        };
        let mut done = Vec::new();
        let mut last_sign = Instant::now();
        while !self.is_over() {
            self.ring.turn(wait, &mut done)?;
            let now = Instant::now();
            if !done.is_empty() {
                last_sign = now;
            } else if now - last_sign >= PATIENCE {
                return Err(format!("no answer for {PATIENCE:?}").into());
            }
            for completion in done.drain(..) {
                self.on_completion(completion, now)?;
            }
        }
        Ok(())
    }

    /// After the window no client sends any more; it is over when the last was answered.
    fn is_over(&self) -> bool {
        Instant::now() >= self.window.end && self.started.iter().all(Option::is_none)
    }

    fn receive(&mut self, index: usize, buf: Vec<u8>) {
        self.ring
            .recv(&self.connections[index].socket, buf, index as u64);
    }

    /// Sends what the session has, unless the last send still goes on.
    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.sending {
            return;
        }
        if let Some(output) = connection.session.take_output() {
            connection.sending = true;
            self.ring.send(&connection.socket, output, 0, index as u64);
        }
    }

    fn on_completion(&mut self, done: Completion, now: Instant) -> Result<(), Box<dyn Error>> {
        let index = done.user as usize;
        match done.kind {
            CompletionKind::Received { mut buf, result } => {
                if result? == 0 {
                    return Err("the server closed the connection".into());
                }
                self.on_bytes(index, &buf, now)?;
                buf.clear();
                self.receive(index, buf);
            }
            CompletionKind::Sent { buf, result } => {
                if result? != buf.len() {
                    return Err("the connection broke".into());
                }
                let connection = &mut self.connections[index];
                connection.sending = false;
                connection.session.recycle(buf);
            }
            other => panic!("never asked for: {other:?}"),
        }
        self.send(index);
        Ok(())
    }

    fn on_bytes(&mut self, index: usize, bytes: &[u8], now: Instant) -> Result<(), Box<dyn Error>> {
        let was_ready = self.connections[index].session.is_ready();
        self.connections[index].session.received(bytes);
        while let Some(committed) = self.connections[index].session.next_committed()? {
            self.offsets.push(committed.base_offset);
            self.on_committed(committed.client, now)?;
        }
        if !was_ready && self.connections[index].session.is_ready() {
            let first_of_each = index..self.started.len();
            for client in first_of_each.step_by(self.connections.len()) {
                self.produce(client)?;
            }
        }
        Ok(())
    }

    fn on_committed(&mut self, client: usize, now: Instant) -> Result<(), Box<dyn Error>> {
        let started = self.started.get_mut(client).and_then(Option::take);
        let started = started.ok_or("an answer to a client that asked nothing")?;
        if now >= self.window.start && now < self.window.end {
            self.latencies.record(now - started);
        }
        if now < self.window.end {
            self.produce(client)
        } else {
            Ok(())
        }
    }

    fn produce(&mut self, client: usize) -> Result<(), Box<dyn Error>> {
        let index = client % self.connections.len();
        self.started[client] = Some(Instant::now());
        self.connections[index].session.produce(client)
    }
}
