//! A consumer beside the load: reads the whole log from its start, again and again, at a given
//! rate.

use quorate_net::ListenerKind;
use quorate_net::client::{self, Client, ClientError, ClientOptions, OffsetSpec};
use quorate_raft::Offset;
use quorate_storage::format::{BatchBuilder, NewRecord, batches};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes asked for at once.
const FETCH_BYTES: i32 = 1 << 20;

/// Records that fill the log: sixteen to a batch of nearly 1 MiB.
const FILL_RECORD_BYTES: usize = 64_000;
const FILL_RECORDS: usize = 16;

/// A consumer that runs until it is stopped.
pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    started: Instant,
    thread: JoinHandle<Result<(), ClientError>>,
}

/// HOST:PORT as the client takes it.
fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

async fn connect(servers: &[String], topic: &str) -> Result<Client, ClientError> {
    let bootstrap: Vec<(String, u16)> = servers.iter().filter_map(|one| split(one)).collect();
    let options = ClientOptions {
        client_id: "quorate-bench".to_owned(),
        topic: topic.to_owned(),
        ..ClientOptions::default()
    };
    Client::connect_with(&bootstrap, ListenerKind::Client, options).await
}

/// Appends so many bytes.
pub(crate) fn fill(servers: &[String], topic: &str, bytes: u64) -> Result<(), ClientError> {
    client::run(async {
        let mut client = connect(servers, topic).await?;
        let mut builder = BatchBuilder::produced();
        let value = vec![b'f'; FILL_RECORD_BYTES];
        (0..FILL_RECORDS).for_each(|_| builder.push(NewRecord::value(1_000, &value)));
        let batch = bytes::Bytes::from(builder.build());
        for _ in 0..bytes.div_ceil(batch.len() as u64) {
            client.produce(batch.clone()).await?;
        }
        Ok(())
    })?
}

impl Reader {
    /// Starts reading, at so many bytes a second at most.
    pub(crate) fn start(servers: &[String], topic: &str, bytes_per_s: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let bytes = Arc::new(AtomicU64::new(0));
        let (servers, topic) = (servers.to_vec(), topic.to_owned());
        let (stopped, read) = (Arc::clone(&stop), Arc::clone(&bytes));
        let thread = thread::spawn(move || {
            client::run(read_on(&servers, &topic, bytes_per_s, &stopped, &read))?
        });
        Self {
            stop,
            bytes,
            started: Instant::now(),
            thread,
        }
    }

    /// Stops it. Returns how many bytes a second it read.
    pub(crate) fn stop(self) -> Result<f64, Box<dyn std::error::Error>> {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let read = self.bytes.load(Ordering::Relaxed) as f64;
        self.thread.join().map_err(|_| "the reader panicked")??;
        Ok(read / elapsed)
    }
}

async fn read_on(
    servers: &[String],
    topic: &str,
    bytes_per_s: u64,
    stop: &AtomicBool,
    read: &AtomicU64,
) -> Result<(), ClientError> {
    let mut client = connect(servers, topic).await?;
    let first = client.list_offsets(OffsetSpec::Earliest).await?;
    let end = client.list_offsets(OffsetSpec::Latest).await?;
    let start = Instant::now();
    let mut next = first;
    while !stop.load(Ordering::Relaxed) {
        let fetched = client.fetch(next, 100, FETCH_BYTES).await?;
        let so_far = fetched.records.len() as u64;
        let total = read.fetch_add(so_far, Ordering::Relaxed) + so_far;
        let last = batches(&fetched.records).map_while(Result::ok).last();
        next = last.map_or(next, |(header, _)| header.end_offset());
        // Always the old part of the log: what is new is in the leader's memory.
        if next >= Offset(end.0) || so_far == 0 {
            next = first;
        }
        let due = Duration::from_secs_f64(total as f64 / bytes_per_s as f64);
        if let Some(early) = due.checked_sub(start.elapsed()) {
            // The thread has nothing else to do.
            thread::sleep(early);
        }
    }
    Ok(())
}
