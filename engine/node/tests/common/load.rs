//! Load from librdkafka producers, with a record kept of everything that was acknowledged.

use super::{Background, Record, TOPIC, client_config, pause, s, wait_for};
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records that each producer sends in one step, and how long a step takes.
const RECORDS_PER_STEP: u64 = 5;
const STEP: Duration = Duration::from_millis(10);
/// Bytes of a value, mostly filler.
const VALUE_BYTES: usize = 200;

/// Names a record: which producer sent it, as its how-manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// From 0.
    pub producer: u32,
    /// From 0.
    pub sequence: u64,
}

impl RecordId {
    fn value(self) -> String {
        let Self { producer, sequence } = self;
        format!("{:.<VALUE_BYTES$}", format!("load {producer} {sequence} "))
    }

    /// The name of a record that a load sent; `None` for any other.
    pub fn of(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.strip_prefix("load ")?.split(' ');
        let producer = words.next()?.parse().ok()?;
        let sequence = words.next()?.parse().ok()?;
        let id = Self { producer, sequence };
        assert_eq!(text, id.value(), "a changed record");
        Some(id)
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Where the record is said to be.
    pub offset: i64,
    /// Which one.
    pub id: RecordId,
}

/// What delivery reports say, shared by all producers of a load.
#[derive(Default)]
struct Ledger {
    acked: Mutex<Vec<Acked>>,
    failed: Mutex<Vec<String>>,
    count: AtomicU64,
    newest_offset: AtomicI64,
}

struct Reports(Arc<Ledger>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<RecordId>;

    fn delivery(&self, result: &DeliveryResult<'_>, id: Box<RecordId>) {
        match result {
            Ok(message) => {
                let acked = Acked {
                    offset: message.offset(),
                    id: *id,
                };
                self.0.acked.lock().expect("no panic").push(acked);
                self.0
                    .newest_offset
                    .fetch_max(acked.offset, Ordering::AcqRel);
                self.0.count.fetch_add(1, Ordering::AcqRel);
            }
            Err((error, _)) => {
                let failed = format!("{id:?}: {error}");
                self.0.failed.lock().expect("no panic").push(failed);
            }
        }
    }
}

/// Producers that append at a steady pace until told to stop.
pub struct Load {
    ledger: Arc<Ledger>,
    producers: Vec<Background<u64>>,
}

/// What came of a load.
pub struct LoadReport {
    /// All acknowledgements.
    pub acked: Vec<Acked>,
    /// Deliveries that librdkafka gave up.
    pub failed: Vec<String>,
    /// How many records were handed to librdkafka.
    pub sent: u64,
}

impl Load {
    /// Starts `producers` producers, each with its own connections, some 500 records a second each.
    pub fn start(bootstrap: &str, producers: u32) -> Self {
        Self::start_with(bootstrap, producers, &[])
    }

    /// The same with idempotent producers, and otherwise with what Java's producer has as its
    /// defaults: five requests in flight, and as many retries as time allows.
    pub fn start_idempotent(bootstrap: &str, producers: u32) -> Self {
        let settings = [
            ("enable.idempotence", "true"),
            ("max.in.flight.requests.per.connection", "5"),
            ("retries", "2147483647"),
        ];
        Self::start_with(bootstrap, producers, &settings)
    }

    fn start_with(bootstrap: &str, producers: u32, settings: &[(&str, &str)]) -> Self {
        let ledger = Arc::new(Ledger::default());
        let start = |number| {
            let producer = new_producer(bootstrap, settings, &ledger);
            Background::start(move |stop| produce(&producer, number, stop))
        };
        let producers = (0..producers).map(start).collect();
        Self { ledger, producers }
    }

    /// How many records are acknowledged by now.
    pub fn acked_count(&self) -> u64 {
        self.ledger.count.load(Ordering::Acquire)
    }

    /// Reads the greatest offset acknowledged so far, -1 for none.
    pub fn newest_acked(&self) -> impl Fn() -> i64 + Send + 'static {
        let ledger = Arc::clone(&self.ledger);
        move || match ledger.count.load(Ordering::Acquire) {
            0 => -1,
            _ => ledger.newest_offset.load(Ordering::Acquire),
        }
    }

    /// Waits for `more` acknowledgements from now on.
    pub fn wait_for_acks(&self, more: u64) {
        let target = self.acked_count() + more;
        wait_for(&format!("{more} more acknowledgements"), s(40), || {
            (self.acked_count() >= target).then_some(())
        });
    }

    /// Sends no more, and waits until each record is acknowledged or given up.
    pub fn finish(self) -> LoadReport {
        self.producers.iter().for_each(Background::stop);
        let sent = self.producers.into_iter().map(Background::join).sum();
        LoadReport {
            acked: std::mem::take(&mut self.ledger.acked.lock().expect("no panic")),
            failed: std::mem::take(&mut self.ledger.failed.lock().expect("no panic")),
            sent,
        }
    }
}

impl LoadReport {
    /// # Panics
    /// Unless each record sent was acknowledged, and is in `log` where its acknowledgement says.
    pub fn assert_all_kept(&self, log: &[Record]) {
        assert!(
            self.failed.is_empty(),
            "{} given up, first {}",
            self.failed.len(),
            self.failed[0]
        );
        assert_eq!(
            self.acked.len() as u64,
            self.sent,
            "some were neither acknowledged nor given up"
        );
        self.assert_acked_kept(log);
    }

    /// # Panics
    /// Unless each producer's records are in `log` once each, all of them, and in the order in
    /// which it sent them.
    pub fn assert_each_once(&self, log: &[Record]) {
        let mut next: HashMap<u32, u64> = HashMap::new();
        let values = log.iter().filter_map(|record| record.value.as_deref());
        for id in values.filter_map(RecordId::of) {
            let expected = next.entry(id.producer).or_default();
            assert_eq!(id.sequence, *expected, "producer {}", id.producer);
            *expected += 1;
        }
        let found: u64 = next.values().sum();
        assert_eq!(found, self.sent, "records in the log and records sent");
    }

    /// # Panics
    /// Unless each acknowledged record is in `log` where its acknowledgement says.
    pub fn assert_acked_kept(&self, log: &[Record]) {
        let by_offset: HashMap<i64, &Record> =
            log.iter().map(|record| (record.offset, record)).collect();
        for Acked { offset, id } in &self.acked {
            let record = by_offset.get(offset);
            let found = record.and_then(|record| RecordId::of(record.value.as_deref()?));
            assert_eq!(
                found,
                Some(*id),
                "acknowledged at offset {offset}, found {record:?}"
            );
        }
    }
}

fn new_producer(
    bootstrap: &str,
    settings: &[(&str, &str)],
    ledger: &Arc<Ledger>,
) -> BaseProducer<Reports> {
    let mut config = client_config(bootstrap);
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config
        .set("acks", "all")
        .set("message.timeout.ms", "60000")
        .create_with_context(Reports(Arc::clone(ledger)))
        .expect("a producer")
}

/// Sends until `stop`, then waits for all reports. How many were sent.
fn produce(producer: &BaseProducer<Reports>, number: u32, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Acquire) {
        for _ in 0..RECORDS_PER_STEP {
            send(
                producer,
                RecordId {
                    producer: number,
                    sequence: sent,
                },
            );
            sent += 1;
        }
        producer.poll(STEP);
    }
    producer.flush(s(65)).expect("all delivery reports");
    sent
}

fn send(producer: &BaseProducer<Reports>, id: RecordId) {
    let value = id.value();
    let key = id.producer.to_string();
    let record = BaseRecord::with_opaque_to(TOPIC, Box::new(id));
    let mut record = record.partition(0).key(&key).payload(&value);
    loop {
        match producer.send(record) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back
            }
            Err((error, _)) => panic!("librdkafka takes no record: {error}"),
        }
        producer.poll(STEP);
        pause(Duration::from_millis(1));
    }
}
