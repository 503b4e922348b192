//! Batches that some reader could not read are refused before they are appended, each with Kafka's
//! error code, and harm nobody else: not their neighbours in a request, not the log or the quorum.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, RawClient, batch, numbered_batch, read_all, s, scrape, sign, wait_for};
use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;
use quorate_storage::format::{BatchBuilder, NewRecord};
use std::io::Write;
use std::time::Duration;

const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// Where the records begin in a batch, and where its attributes are.
const RECORDS_AT: usize = 61;
const ATTRIBUTES_AT: usize = 21;

fn good() -> Vec<u8> {
    batch(b"a neighbour")
}

/// A good batch with these bytes changed, and a CRC that is right all the same.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = good();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    sign(&mut batch);
    batch
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `batch` with its records replaced by `stream`, compressed with `codec`.
fn compressed(batch: &[u8], codec: u8, stream: &[u8]) -> Vec<u8> {
    let mut batch = [&batch[..RECORDS_AT], stream].concat();
    batch[ATTRIBUTES_AT + 1] = codec;
    sign(&mut batch);
    batch
}

/// LZ4 is what the consumer of these tests can read.
fn compressed_neighbour() -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(&good()[RECORDS_AT..]).unwrap();
    compressed(&good(), 3, &encoder.finish().unwrap())
}

/// A compressed batch of one record with a value of so many zeros.
fn zeros(count: usize) -> Vec<u8> {
    let plain = batch(&vec![0; count]);
    compressed(&plain, 1, &gzip(&plain[RECORDS_AT..]))
}

/// A compressed batch of the smallest records there are: nothing takes longer to look into.
fn small_records(bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    while builder.size() < bytes {
        builder.push(NewRecord::default());
    }
    let plain = builder.build();
    compressed(&plain, 1, &gzip(&plain[RECORDS_AT..]))
}

fn poison() -> Vec<(&'static str, Vec<u8>, i16)> {
    let mut broken_crc = good();
    broken_crc[17] ^= 1;
    let mut old_magic = good();
    old_magic[16] = 1;
    let mut cut = good();
    cut.truncate(cut.len() - 1);
    let records = good()[RECORDS_AT..].to_vec();
    let mut long = records.clone();
    long[0] += 2;
    let trailing_record = [&records[..], &records[..]].concat();
    let with = |records: &[u8]| compressed(&good(), 0, records);
    let invalid = INVALID_RECORD;
    vec![
        ("a broken CRC", broken_crc, CORRUPT_MESSAGE),
        ("half a batch", cut, CORRUPT_MESSAGE),
        ("nothing", Vec::new(), CORRUPT_MESSAGE),
        ("magic 1", old_magic, UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("two batches", [good(), good()].concat(), invalid),
        (
            "a control batch",
            changed(ATTRIBUTES_AT, &[0, 0x20]),
            invalid,
        ),
        ("a transaction", changed(ATTRIBUTES_AT, &[0, 0x10]), invalid),
        ("a base offset", changed(0, &7_i64.to_be_bytes()), invalid),
        (
            "an offset delta too many",
            changed(23, &1_i32.to_be_bytes()),
            invalid,
        ),
        (
            "a record too many",
            changed(57, &2_i32.to_be_bytes()),
            invalid,
        ),
        ("no record", changed(57, &0_i32.to_be_bytes()), invalid),
        (
            "2^31 - 1 records",
            changed(57, &i32::MAX.to_be_bytes()),
            invalid,
        ),
        (
            "no sequence number",
            changed(43, &7_i64.to_be_bytes()),
            invalid,
        ),
        ("a record that is too long", with(&long), invalid),
        (
            "a record that nobody counts",
            with(&trailing_record),
            invalid,
        ),
        (
            "codec 5",
            changed(ATTRIBUTES_AT, &[0, 5]),
            UNSUPPORTED_COMPRESSION_TYPE,
        ),
        (
            "zstd before its time",
            changed(ATTRIBUTES_AT, &[0, 4]),
            UNSUPPORTED_COMPRESSION_TYPE,
        ),
        (
            "plain text as gzip",
            compressed(&good(), 1, b"plain"),
            invalid,
        ),
        (
            "plain text as snappy",
            compressed(&good(), 2, b"plain"),
            invalid,
        ),
        (
            "plain text as lz4",
            compressed(&good(), 3, b"plain"),
            invalid,
        ),
        (
            "a bad record in gzip",
            compressed(&good(), 1, &gzip(&long)),
            invalid,
        ),
        ("a bomb", zeros(80 << 20), MESSAGE_TOO_LARGE),
        (
            "more than 8 MiB",
            batch(&vec![0; 8 << 20]),
            MESSAGE_TOO_LARGE,
        ),
    ]
}

#[test]
fn every_poison_gets_its_error_and_its_neighbours_are_appended() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut client = RawClient::connect(&cluster.node(leader).address).expect("a connection");
    let mut neighbours = 0;
    for (what, poison, code) in poison() {
        let alone = client.produce(&poison).expect(what);
        assert_eq!((alone.error, alone.offset), (code, -1), "{what}");
        client
            .send_produce_all(&[good(), poison, compressed_neighbour()])
            .expect(what);
        let answers = client.receive_produce_all().expect(what);
        let errors: Vec<i16> = answers.iter().map(|answer| answer.error).collect();
        assert_eq!(errors, [0, code, 0], "{what}");
        assert_eq!(answers[2].offset, answers[0].offset + 1, "{what}");
        neighbours += 2;
    }
    // Whatever a reader of another make could not read, it would not get past.
    assert_eq!(read_all(&cluster.bootstrap()).len(), neighbours);
}

#[test]
fn large_batches_keep_their_order_among_small_ones() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut client = RawClient::connect(&cluster.node(leader).address).expect("a connection");
    let id = client.init_producer_id(None).expect("an answer").id;
    let sequences = 0..40;
    for sequence in sequences.clone() {
        // Every fourth takes long to look into.
        let length = if sequence % 4 == 0 { 6 << 20 } else { 10 };
        let plain = numbered_batch(&vec![0; length], id, 0, sequence);
        let batch = compressed(&plain, 1, &gzip(&plain[RECORDS_AT..]));
        client.send_produce(&batch).expect("sent");
    }
    let mut last = -1;
    for sequence in sequences {
        let answer = client.receive_produce().expect("an answer");
        assert_eq!(answer.error, 0, "{sequence}");
        assert!(answer.offset > last, "{sequence}");
        last = answer.offset;
    }
}

#[test]
fn bombs_are_looked_into_off_the_loop_and_cost_nobody_a_commit_or_an_election() {
    const BOMBERS: usize = 4;
    let cluster = Cluster::start(3);
    let before = cluster.describe();
    let leader = cluster.node(before.leader_id);
    let checks = || scrape(&leader.admin)["quorate_queue_depth{queue=\"background_checks\"}"];
    let (bomb, too_much) = (small_records(14 << 20), zeros(80 << 20));
    let connect = || RawClient::connect(&leader.address).expect("a connection");
    let mut bombers: Vec<RawClient> = (0..BOMBERS).map(|_| connect()).collect();
    let mut client = connect();
    for bomber in &mut bombers {
        for batch in [&bomb, &too_much, &too_much, &bomb, &too_much] {
            bomber.send_produce(batch).expect("sent");
        }
    }
    wait_for("bombs are looked into", s(20), || {
        (checks() > 0.0).then_some(())
    });
    let answer = client
        .produce(&good())
        .expect("an answer while bombs are looked into");
    assert_eq!(answer.error, 0);
    assert!(checks() > 0.0, "the commit waited for the bombs");
    for bomber in &mut bombers {
        let refused = MESSAGE_TOO_LARGE;
        for error in [0, refused, refused, 0, refused] {
            wait_for("a bomb is answered", s(60), || {
                let silent = bomber.is_silent_for(Duration::from_millis(20));
                silent.is_ok_and(|silent| !silent).then_some(())
            });
            assert_eq!(bomber.receive_produce().expect("an answer").error, error);
        }
    }
    let after = cluster.describe();
    assert_eq!(after.leader_epoch, before.leader_epoch, "no election");
}
