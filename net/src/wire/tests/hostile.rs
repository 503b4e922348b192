//! Bytes that mean harm: wrong lengths, cut frames, random damage. No decoder may panic, or reserve
//! more than a constant times what it was given (KAFKA-2878: a small request reserved gigabytes).

use super::sample::{Sample, Source};
use crate::wire::message::{Message, decode_message, encode_message, layout_of};
use crate::wire::{Reader, Writer};
use bytes::Bytes;

/// Most memory that arrays may reserve for a byte received: the largest element against its
/// smallest form on the wire.
const RESERVED_PER_BYTE_MAX: usize = 64;

const SAMPLES: u64 = 4;
const MUTATIONS: u64 = 2_000;

/// A small generator (splitmix64), so that a failure repeats.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Decodes; whether it was taken.
fn decodes<M: Message>(bytes: Vec<u8>, version: i16) -> bool {
    let bytes = Bytes::from(bytes);
    let mut reader = Reader::new(&bytes);
    let decoded = decode_message::<M>(version, &mut reader).is_ok();
    let bound = RESERVED_PER_BYTE_MAX * bytes.len();
    let reserved = reader.reserved_bytes;
    assert!(
        reserved <= bound,
        "{reserved} bytes reserved for {} received",
        bytes.len()
    );
    decoded
}

fn sample<M: Message + Sample>(seed: u64, version: i16) -> Writer {
    let mut chance = Chance(seed);
    let entropy: Vec<u8> = (0..800).map(|_| chance.next() as u8).collect();
    let message = M::sample(&mut Source::new(&entropy), layout_of::<M>(version));
    let mut out = Writer::new();
    encode_message(&message, version, &mut out).expect("samples fit their version");
    out
}

fn replace(bytes: &[u8], position: usize, size: usize, by: &[u8]) -> Vec<u8> {
    [&bytes[..position], by, &bytes[position + size..]].concat()
}

/// Every length, count and size in turn becomes each of the values that have broken servers.
fn wrong_lengths<M: Message>(valid: &Writer, version: i16) {
    let bytes = valid.as_bytes();
    for at in &valid.lengths {
        let (always_wrong, maybe_right): (&[&[u8]], &[&[u8]]) = match (at.compact, at.size) {
            (true, _) => (
                &[
                    &[0xff; 5],
                    &[0xff; 10],
                    &[0xff, 0xff, 0xff, 0xff, 0x0f],
                    &[0x80; 5],
                ],
                &[&[0], &[1], &[0xff, 0xff, 0xff, 0xff, 0x07]],
            ),
            (false, 2) => (
                &[&[0xff, 0xfe], &[0x80, 0], &[0x7f, 0xff]],
                &[&[0xff, 0xff], &[0, 0]],
            ),
            (false, _) => (
                &[
                    &[0xff, 0xff, 0xff, 0xfe],
                    &[0x80, 0, 0, 0],
                    &[0x7f, 0xff, 0xff, 0xff],
                ],
                &[&[0xff; 4], &[0; 4]],
            ),
        };
        for wrong in always_wrong {
            let broken = replace(bytes, at.position, at.size, wrong);
            assert!(
                !decodes::<M>(broken, version),
                "version {version}, {at:?} as {wrong:?}"
            );
        }
        for odd in maybe_right {
            decodes::<M>(replace(bytes, at.position, at.size, odd), version);
        }
    }
}

fn truncations<M: Message>(valid: &Writer, version: i16) {
    let bytes = valid.as_bytes();
    for length in 0..bytes.len() {
        let cut = bytes[..length].to_vec();
        assert!(
            !decodes::<M>(cut, version),
            "version {version}, {length} of {}",
            bytes.len()
        );
    }
    let longer = [bytes, &[0]].concat();
    assert!(
        !decodes::<M>(longer, version),
        "version {version} with a byte more"
    );
}

fn mutations<M: Message>(valid: &Writer, version: i16, chance: &mut Chance) {
    for _ in 0..MUTATIONS {
        let mut bytes = valid.as_bytes().to_vec();
        for _ in 0..=chance.below(4) {
            let position = chance.below(bytes.len());
            match chance.below(4) {
                0 => bytes.truncate(position),
                1 => bytes.insert(position, chance.next() as u8),
                _ if bytes.is_empty() => {}
                2 => bytes[position] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5)],
                _ => bytes[position] = chance.next() as u8,
            }
        }
        decodes::<M>(bytes, version);
    }
}

fn harm<M: Message + Sample>() {
    for version in M::VERSIONS {
        for seed in 0..SAMPLES {
            let valid = sample::<M>(seed, version);
            assert!(decodes::<M>(valid.as_bytes().to_vec(), version));
            wrong_lengths::<M>(&valid, version);
            truncations::<M>(&valid, version);
        }
        let mut chance = Chance(version.unsigned_abs().into());
        mutations::<M>(&sample::<M>(7, version), version, &mut chance);
    }
}

macro_rules! withstands {
    ($($test:ident: $module:ident::$name:ident;)*) => {$(
        #[test]
        fn $test() {
            harm::<crate::wire::$module::$name>();
        }
    )*};
}

withstands! {
    produce_requests_withstand_harm: produce::ProduceRequest;
    produce_responses_withstand_harm: produce::ProduceResponse;
    fetch_requests_withstand_harm: fetch::FetchRequest;
    fetch_responses_withstand_harm: fetch::FetchResponse;
    list_offsets_requests_withstand_harm: list_offsets::ListOffsetsRequest;
    list_offsets_responses_withstand_harm: list_offsets::ListOffsetsResponse;
    metadata_requests_withstand_harm: metadata::MetadataRequest;
    metadata_responses_withstand_harm: metadata::MetadataResponse;
    api_versions_requests_withstand_harm: api_versions::ApiVersionsRequest;
    api_versions_responses_withstand_harm: api_versions::ApiVersionsResponse;
    init_producer_id_requests_withstand_harm: init_producer_id::InitProducerIdRequest;
    init_producer_id_responses_withstand_harm: init_producer_id::InitProducerIdResponse;
    epoch_end_requests_withstand_harm: offset_for_leader_epoch::OffsetForLeaderEpochRequest;
    epoch_end_responses_withstand_harm: offset_for_leader_epoch::OffsetForLeaderEpochResponse;
    vote_requests_withstand_harm: vote::VoteRequest;
    vote_responses_withstand_harm: vote::VoteResponse;
    begin_requests_withstand_harm: begin_quorum_epoch::BeginQuorumEpochRequest;
    begin_responses_withstand_harm: begin_quorum_epoch::BeginQuorumEpochResponse;
    end_requests_withstand_harm: end_quorum_epoch::EndQuorumEpochRequest;
    end_responses_withstand_harm: end_quorum_epoch::EndQuorumEpochResponse;
    describe_quorum_requests_withstand_harm: describe_quorum::DescribeQuorumRequest;
    describe_quorum_responses_withstand_harm: describe_quorum::DescribeQuorumResponse;
    describe_cluster_requests_withstand_harm: describe_cluster::DescribeClusterRequest;
    describe_cluster_responses_withstand_harm: describe_cluster::DescribeClusterResponse;
}
