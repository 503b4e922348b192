//! An ordinary Kafka client commits records to three voters and reads exactly these; the program's
//! own `append`, `tail` and `describe` see the same log.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Cluster, Record, TOPIC, assert_same_logs, client_config, consumer_from, quorate, read_all, s,
};
use rdkafka::ClientContext;
use rdkafka::consumer::BaseConsumer;
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use serde_json::Value;
use std::sync::Mutex;

/// What a test sends, and expects back but for the offset.
fn record(number: usize) -> Record {
    let key = match number % 3 {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(format!("key {number}").into_bytes()),
    };
    let value = match number % 5 {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(
            format!("value {number}")
                .repeat(1 + number % 40)
                .into_bytes(),
        ),
    };
    let headers = (0..number % 4).map(|header| {
        let value = (header != 2).then(|| format!("{number}").into_bytes());
        (format!("header {}", header % 2), value)
    });
    Record {
        offset: -1,
        key,
        value,
        headers: headers.collect(),
        timestamp_ms: Some(1_700_000_000_000 + number as i64 * 7),
    }
}

/// Offsets by record number, as acknowledged.
struct Reports(Mutex<Vec<Option<i64>>>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let offset = match result {
            Ok(message) => message.offset(),
            Err((error, _)) => panic!("record {number} was given up: {error}"),
        };
        let earlier = self.0.lock().unwrap()[*number].replace(offset);
        assert_eq!(earlier, None, "record {number} was reported twice");
    }
}

/// Sends `records` with acks=all; where each was acknowledged.
fn produce(bootstrap: &str, compression: &str, records: &[Record]) -> Vec<i64> {
    let reports = Reports(Mutex::new(vec![None; records.len()]));
    let producer: BaseProducer<Reports> = client_config(bootstrap)
        .set("acks", "all")
        .set("compression.type", compression)
        .set("message.timeout.ms", "30000")
        .create_with_context(reports)
        .unwrap();
    for (number, record) in records.iter().enumerate() {
        let headers = record
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: value.as_ref(),
                })
            });
        let mut message = BaseRecord::with_opaque_to(TOPIC, Box::new(number)).partition(0);
        message = message
            .headers(headers)
            .timestamp(record.timestamp_ms.unwrap());
        message.key = record.key.as_ref();
        message.payload = record.value.as_ref();
        producer.send(message).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(s(60)).unwrap();
    let offsets = producer.context().0.lock().unwrap();
    offsets
        .iter()
        .map(|offset| offset.expect("a delivery report"))
        .collect()
}

/// `records` where they were acknowledged.
fn at_offsets(records: &[Record], offsets: &[i64]) -> Vec<Record> {
    let pairs = records.iter().zip(offsets);
    pairs
        .map(|(record, offset)| Record {
            offset: *offset,
            ..record.clone()
        })
        .collect()
}

#[test]
fn ten_thousand_records_are_committed_and_read_back_exactly_and_in_order() {
    let mut cluster = Cluster::start(3);
    let records: Vec<Record> = (0..10_000).map(record).collect();
    let offsets = produce(&cluster.bootstrap(), "none", &records);
    assert!(
        offsets.is_sorted_by(|a, b| a < b),
        "offsets are in the order of sending"
    );

    let read = read_all(&cluster.bootstrap());
    let expected = at_offsets(&records, &offsets);
    assert_eq!(read.len(), expected.len());
    for (read, expected) in read.iter().zip(&expected) {
        assert_eq!(read, expected);
    }

    let described = cluster.describe();
    assert!(
        described.high_watermark > *offsets.last().unwrap(),
        "{described:?}"
    );
    assert!(cluster.stop_dev().success());
    assert_same_logs(cluster.nodes(), described.high_watermark);
    for node in cluster.nodes() {
        let dir = node.log_dir();
        let verified = quorate(
            &["log".as_ref(), "verify".as_ref(), dir.as_os_str()],
            "",
            s(20),
        );
        verified.expect_success();
    }
}

#[test]
fn compressed_batches_are_kept_as_sent_and_offsets_out_of_range_are_said_to_be() {
    let cluster = Cluster::start(3);
    let records: Vec<Record> = (0..500).map(record).collect();
    let offsets = produce(&cluster.bootstrap(), "lz4", &records);
    assert_eq!(
        read_all(&cluster.bootstrap()),
        at_offsets(&records, &offsets)
    );

    let from = offsets[250];
    let consumer = consumer_from(&cluster.bootstrap(), from);
    let message = first_message(&consumer).expect("a record");
    assert_eq!(
        message, from,
        "reading begins within a batch where it was asked to"
    );

    let beyond = offsets[499] + 1_000;
    let error = first_message(&consumer_from(&cluster.bootstrap(), beyond)).unwrap_err();
    assert!(
        error.contains("AutoOffsetReset") || error.contains("out of range"),
        "{error}"
    );
}

/// Offset of the first record that comes, or the first error.
fn first_message(consumer: &BaseConsumer) -> Result<i64, String> {
    let polled = common::wait_for("a record or an error", s(20), || {
        consumer.poll(std::time::Duration::from_millis(100))
    });
    polled
        .map(|message| message.offset())
        .map_err(|error| error.to_string())
}

#[test]
fn append_tail_and_describe_see_one_log() {
    let cluster = Cluster::start(3);
    let bootstrap = cluster.bootstrap();
    let at = ["--bootstrap-server", bootstrap.as_str()];

    let append = |more: &[&str], lines: &str| {
        let finished = quorate(&[&["append"], &at[..], more].concat(), lines, s(30));
        offsets_of(&finished.expect_success())
    };
    let plain = append(&[], "one\ntwo\nthree\n");
    let keyed = append(&["--key", "k"], "four\n");
    let atomic = append(&["--atomic"], "five\nsix\nseven\n");
    assert_eq!([plain.len(), keyed.len(), atomic.len()], [3, 1, 3]);
    assert!(plain.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(atomic[2] - atomic[0], 2, "one batch: {atomic:?}");
    let offsets = [plain, keyed, atomic].concat();

    let expected: Vec<(i64, &str, Option<&str>)> = offsets
        .iter()
        .zip(["one", "two", "three", "four", "five", "six", "seven"])
        .map(|(offset, value)| (*offset, value, (value == "four").then_some("k")))
        .collect();
    let tailed = quorate(&[&["tail", "--json"], &at[..]].concat(), "", s(30)).expect_success();
    let tailed: Vec<Value> = tailed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = tailed
        .iter()
        .map(|record| {
            let (offset, value) = (record["offset"].as_i64(), record["value"].as_str());
            (offset.unwrap(), value.unwrap(), record["key"].as_str())
        })
        .collect();
    assert_eq!(seen, expected);

    let from = offsets[5].to_string();
    let text = quorate(&[&["tail", "--from", &from], &at[..]].concat(), "", s(30)).expect_success();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("six") && lines[1].contains("seven"),
        "{text}"
    );

    let consumed = read_all(&bootstrap);
    let consumed: Vec<_> = consumed.iter().map(|record| record.offset).collect();
    assert_eq!(consumed, offsets);

    let described = cluster.describe();
    assert_eq!(described.high_watermark, offsets[6] + 1);
    let ids: Vec<i32> = described.voters.iter().map(|voter| voter.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(ids.contains(&described.leader_id));
}

/// The first number of each line that `append` prints.
fn offsets_of(printed: &str) -> Vec<i64> {
    let number = |line: &str| -> i64 {
        let digits = line
            .split(|c: char| !c.is_ascii_digit())
            .find(|word| !word.is_empty());
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("no offset: {line}"))
    };
    printed.lines().map(number).collect()
}
