//! librdkafka, set up as an ordinary client would be, and reading the whole log with it.

use super::{Deadline, TOPIC, s, wait_for};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use std::time::Duration;

/// A record as a consumer got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is.
    pub offset: i64,
    /// Its key, if any.
    pub key: Option<Vec<u8>>,
    /// Its value, if any.
    pub value: Option<Vec<u8>>,
    /// Its headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Its timestamp in ms since 1970.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// Copies what librdkafka lends.
    pub fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message
            .headers()
            .into_iter()
            .flat_map(|headers| headers.iter());
        Self {
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
            timestamp_ms: message.timestamp().to_millis(),
        }
    }
}

/// What producers and consumers have in common. Only what a test can't wait for differs from
/// librdkafka's defaults: how long it stays away from a node whose connection failed.
pub fn client_config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("reconnect.backoff.max.ms", "500")
        .set("broker.address.family", "v4");
    config
}

/// A consumer of the log from `offset` on that never jumps: an offset the log does not have is an
/// error to it.
pub fn consumer_from(bootstrap: &str, offset: i64) -> BaseConsumer {
    let consumer: BaseConsumer = client_config(bootstrap)
        .set("group.id", "tests")
        .set("auto.offset.reset", "error")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true")
        .create()
        .expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset(TOPIC, 0, Offset::Offset(offset))
        .expect("a partition");
    consumer.assign(&partitions).expect("an assignment");
    consumer
}

/// All records committed by now, with a consumer of its own. Others may be appending.
pub fn read_all(bootstrap: &str) -> Vec<Record> {
    let consumer = consumer_from(bootstrap, 0);
    let deadline = Deadline::after(s(60));
    let end = wait_for("the log tells its end", s(40), || {
        let watermarks = consumer.fetch_watermarks(TOPIC, 0, Duration::from_secs(1));
        watermarks.ok().map(|(_, high)| high)
    });
    let mut records = Vec::new();
    loop {
        deadline.check("a consumer reads to the end of the log");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) if message.offset() < end => records.push(Record::of(&message)),
            // Control records come to nobody: the end may be seen only by what lies behind it.
            Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => return records,
            Some(Err(error)) => assert_passing(&error),
            None => {}
        }
    }
}

/// # Panics
/// Unless `error` is one that tells of a lost connection, which librdkafka sees to by itself.
pub fn assert_passing(error: &KafkaError) {
    use rdkafka::types::RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    assert!(
        matches!(
            code,
            Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut)
        ),
        "a consumer got {error}"
    );
}
