//! The floor's client: one frame at a time, from sending to its answer.

use super::way::Way;
use super::{ANSWER_BYTES, FRAME_BYTES};
use crate::latency::Latencies;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How long it commits before the clock counts.
const WARM_UP: Duration = Duration::from_millis(200);

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Commits against the leader at `address` for `duration`.
pub(crate) fn measure(
    address: SocketAddr,
    way: &Way,
    duration: Duration,
) -> Result<Latencies, Box<dyn Error>> {
    let way = *way;
    // A thread of its own, since it may be bound to a processor and the next way to another.
    let client = thread::spawn(move || commit_for(address, &way, duration));
    let latencies = client.join().map_err(|_| "the floor's client panicked")??;
    Ok(latencies)
}

fn commit_for(address: SocketAddr, way: &Way, duration: Duration) -> io::Result<Latencies> {
    if let Some(cpu) = way.placement.client {
        quorate_ring::pin_to_cpu(cpu)?;
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nonblocking(way.spin)?;
    let mut latencies = Latencies::new();
    let mut now = Instant::now();
    let window = now + WARM_UP..now + WARM_UP + duration;
    for number in 1.. {
        let start = now;
        if start >= window.end {
            break;
        }
        commit(&mut stream, number)?;
        now = Instant::now();
        if start >= window.start {
            latencies.record(now - start);
        }
    }
    Ok(latencies)
}

fn commit(stream: &mut TcpStream, number: u64) -> io::Result<()> {
    let mut frame = [0; FRAME_BYTES];
    frame[..8].copy_from_slice(&number.to_le_bytes());
    stream.write_all(&frame)?;
    let mut answer = [0; ANSWER_BYTES];
    read_exact_spinning(stream, &mut answer)?;
    let answered = u64::from_le_bytes(answer);
    if answered != number {
        return Err(io::Error::other(format!(
            "answer to {answered} instead of {number}"
        )));
    }
    Ok(())
}

/// `read_exact`, which on a non-blocking stream tries again and again.
fn read_exact_spinning(stream: &mut TcpStream, mut rest: &mut [u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
