//! More than a quorum can take: senders are slowed down, none is dropped, memory stays bounded and
//! the leader leads on.
//!
//! `QUORATE_OVERLOAD_SECONDS` makes it last longer than the usual fifteen seconds. It may write
//! 50 MB a second, and the log keeps everything.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::stranger::resident_bytes;
use common::{Cluster, RawClient, batch, pause, s, wait_for};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Producers, of which each thread here drives several, each with its own connection.
const PRODUCERS: usize = 1024;
const THREADS: usize = 16;

/// Requests that each has under way, of so many bytes: with large ones the test would write
/// gigabytes.
const PIPELINED: usize = 8;
const VALUE_BYTES: usize = 256;

/// What a node may have in memory then: requests (64 MiB and 64 KiB for each connection), the
/// unflushed tail and the tail in memory (48 MiB), groups being written, answers, the program.
const RESIDENT_MAX: u64 = 320 << 20;

fn duration() -> Duration {
    let seconds = std::env::var("QUORATE_OVERLOAD_SECONDS");
    s(seconds
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(15))
}

/// Answers counted by all threads.
#[derive(Default)]
struct Tally {
    acknowledged: AtomicU64,
    /// Told that time ran out, which is an answer too.
    refused: AtomicU64,
}

fn drive(address: &str, tally: &Tally, stop: &AtomicBool) -> io::Result<()> {
    let batch = batch(&[b'x'; VALUE_BYTES]);
    let connect = |_| RawClient::connect(address);
    let mut clients = (0..PRODUCERS / THREADS)
        .map(connect)
        .collect::<io::Result<Vec<_>>>()?;
    for client in &mut clients {
        client.wait_for_answers(s(60))?;
        for _ in 0..PIPELINED {
            client.send_produce(&batch)?;
        }
    }
    while !stop.load(Ordering::Acquire) {
        for client in &mut clients {
            receive(client, tally)?;
            client.send_produce(&batch)?;
        }
    }
    for client in &mut clients {
        for _ in 0..PIPELINED {
            receive(client, tally)?;
        }
    }
    Ok(())
}

fn receive(client: &mut RawClient, tally: &Tally) -> io::Result<()> {
    /// The request's time-out passed before its commit.
    const REQUEST_TIMED_OUT: i16 = 7;
    match client.receive_produce()?.error {
        0 => tally.acknowledged.fetch_add(1, Ordering::Relaxed),
        REQUEST_TIMED_OUT => tally.refused.fetch_add(1, Ordering::Relaxed),
        error => return Err(io::Error::other(format!("error {error}"))),
    };
    Ok(())
}

#[test]
fn a_thousand_producers_at_full_speed_are_slowed_down_and_none_is_dropped() {
    let cluster = Cluster::start(3);
    // It answers as the leader before it has written down that it is.
    let before = wait_for("a leader that has committed", s(30), || {
        cluster
            .try_describe()
            .filter(|quorum| quorum.high_watermark > 0)
    });
    let address = cluster.node(before.leader_id).address.clone();
    let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let threads: Vec<JoinHandle<io::Result<()>>> = (0..THREADS)
        .map(|_| {
            let (tally, stop) = (Arc::clone(&tally), Arc::clone(&stop));
            let address = address.clone();
            thread::spawn(move || drive(&address, &tally, &stop))
        })
        .collect();

    let start = Instant::now();
    let mut most = vec![0; 3];
    while start.elapsed() < duration() {
        for (most, node) in most.iter_mut().zip(cluster.nodes()) {
            *most = (*most).max(resident_bytes(node.process.pid() as u32));
        }
        pause(Duration::from_millis(50));
    }
    stop.store(true, Ordering::Release);
    for thread in threads {
        thread
            .join()
            .expect("no panic")
            .expect("every request has its answer");
    }
    let acknowledged = tally.acknowledged.load(Ordering::Relaxed);
    let refused = tally.refused.load(Ordering::Relaxed);
    let took = start.elapsed();
    println!("{acknowledged} acknowledged and {refused} late in {took:?}, most memory {most:?}");

    let after = cluster.describe();
    let of = |quorum: &common::Described| (quorum.leader_id, quorum.leader_epoch);
    assert_eq!(of(&after), of(&before), "an election");
    assert!(acknowledged > 1000, "{acknowledged} acknowledged");
    assert!(
        most.iter().all(|most| *most < RESIDENT_MAX),
        "{most:?} bytes of memory"
    );
}
