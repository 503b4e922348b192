//! Clients that look on while a test does its worst: one that reads all records as they come, and
//! one that asks for the high watermark over and over.

use super::clients::assert_passing;
use super::{
    Background, Deadline, RawClient, Record, TOPIC, client_config, consumer_from, pause, s,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// Kafka's error code for an offset that the log does not have.
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// A consumer (auto.offset.reset=error) that reads the log from its start, live.
pub struct Follower {
    last_offset: Arc<AtomicI64>,
    thread: Background<Vec<Record>>,
}

impl Follower {
    /// Starts to read.
    pub fn start(bootstrap: &str) -> Self {
        let last_offset = Arc::new(AtomicI64::new(i64::MAX));
        let (until, bootstrap) = (Arc::clone(&last_offset), bootstrap.to_owned());
        let thread =
            Background::start(move |stop| follow(&consumer_from(&bootstrap, 0), &until, stop));
        Self {
            last_offset,
            thread,
        }
    }

    /// All that it has read once it has come to `last_offset`.
    pub fn finish(self, last_offset: i64) -> Vec<Record> {
        self.last_offset.store(last_offset, Ordering::Release);
        self.thread.join()
    }
}

fn follow(consumer: &BaseConsumer, until: &AtomicI64, stop: &AtomicBool) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut deadline = None;
    loop {
        let last = until.load(Ordering::Acquire);
        let is_last = records.last().is_some_and(|record| record.offset >= last);
        if is_last || stop.load(Ordering::Acquire) {
            return records;
        }
        if last < i64::MAX {
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(s(60)));
            deadline.check("the live consumer comes to the end of the log");
        }
        match consumer.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => records.push(Record::of(&message)),
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => assert_passing(&error),
        }
    }
}

/// Asks for the high watermark without a break, through librdkafka (ListOffsets) and with a raw
/// Fetch at each voter in turn. The first answer that goes back, or lies below what was
/// acknowledged before the question, ends it with a panic.
pub struct Watermarks(Background<(i64, u64)>);

impl Watermarks {
    /// Starts to ask. `newest_acked`: the greatest offset acknowledged so far.
    pub fn start(bootstrap: &str, newest_acked: impl Fn() -> i64 + Send + 'static) -> Self {
        let bootstrap = bootstrap.to_owned();
        Self(Background::start(move |stop| {
            watch(&bootstrap, &newest_acked, stop)
        }))
    }

    /// The last high watermark seen, and how many answers there were.
    pub fn finish(self) -> (i64, u64) {
        self.0.stop();
        self.0.join()
    }
}

fn watch(bootstrap: &str, newest_acked: &dyn Fn() -> i64, stop: &AtomicBool) -> (i64, u64) {
    let consumer: BaseConsumer = client_config(bootstrap).create().expect("a consumer");
    let mut probes: Vec<Probe> = bootstrap.split(',').map(Probe::new).collect();
    let (mut last, mut answers) = (0, 0);
    while !stop.load(Ordering::Acquire) {
        for probe in &mut probes {
            let acked = newest_acked();
            if let Some(found) = probe.high_watermark(last) {
                saw(&mut last, acked, found, "Fetch");
                answers += 1;
            }
        }
        let acked = newest_acked();
        // Without a leader there is no answer, and nothing to learn.
        if let Ok((_, found)) = consumer.fetch_watermarks(TOPIC, 0, Duration::from_millis(500)) {
            saw(&mut last, acked, found, "ListOffsets");
            answers += 1;
        }
        pause(Duration::from_millis(5));
    }
    (last, answers)
}

fn saw(last: &mut i64, acked: i64, found: i64, by: &str) {
    assert!(
        found > acked,
        "{by}: {found}, but offset {acked} was acknowledged before"
    );
    assert!(
        found >= *last,
        "{by}: the high watermark went from {last} to {found}"
    );
    *last = found;
}

/// A raw connection to one voter, made again when it breaks.
struct Probe {
    address: String,
    client: Option<RawClient>,
}

impl Probe {
    fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            client: None,
        }
    }

    /// The high watermark, if this voter leads and knows one. `last`: the last one seen, an offset
    /// that no leader may take for one it does not have.
    fn high_watermark(&mut self, last: i64) -> Option<i64> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => RawClient::connect(&self.address).ok()?,
        };
        let fetched = client.fetch(last, 0).ok()?;
        let address = &self.address;
        assert_ne!(
            fetched.error, OFFSET_OUT_OF_RANGE,
            "{address} has no offset {last} any more"
        );
        self.client = Some(client);
        (fetched.error == 0).then_some(fetched.high_watermark)
    }
}
