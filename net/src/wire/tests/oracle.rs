//! Our codecs and those of the crate `kafka-protocol`, generated from Kafka's own schemas, must say
//! the same in every version that both know.

use super::sample::{Sample, Source};
use crate::wire::message::{Message, decode_message, encode_message, layout_of};
use crate::wire::{ApiKey, EncodeError, Reader, RequestHeader, ResponseHeader, Writer};
use bytes::Bytes;
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::TestRunner;
use std::fmt::Debug;

/// Decodes with their codec and encodes with it again, maybe in another version. `None` if that one
/// cannot say it.
fn rewrite<M: Encodable + Decodable>(bytes: &Bytes, from: i16, to: i16) -> Option<Bytes> {
    let mut input = bytes.clone();
    let message = M::decode(&mut input, from).expect("they can read it");
    assert!(input.is_empty(), "they leave {} bytes unread", input.len());
    let mut output = bytes::BytesMut::new();
    message.encode(&mut output, to).ok()?;
    Some(output.freeze())
}

type Rewrite = fn(&Bytes, i16, i16) -> Option<Bytes>;

fn encoded<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut out = Writer::new();
    encode_message(message, version, &mut out)?;
    Ok(out.into_bytes().into())
}

fn check<M: Message + Sample + PartialEq + Debug>(last_known_to_them: i16, rewrite: Rewrite) {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let entropy = vec(any::<u8>(), 0..1500);
    let outcome = runner.run(&entropy, |entropy| {
        for version in M::VERSIONS {
            let message = M::sample(&mut Source::new(&entropy), layout_of::<M>(version));
            check_message(&message, version, last_known_to_them, rewrite);
        }
        Ok(())
    });
    outcome.expect("they agree");
}

fn check_message<M: Message + PartialEq + Debug>(
    message: &M,
    version: i16,
    last_known_to_them: i16,
    rewrite: Rewrite,
) {
    let ours = encoded(message, version).expect("samples fit their version");
    let read = decode_message::<M>(version, &mut Reader::new(&ours));
    assert_eq!(read.as_ref(), Ok(message), "version {version}");
    if version > last_known_to_them {
        return;
    }
    let theirs = rewrite(&ours, version, version);
    assert_eq!(
        theirs.as_ref(),
        Some(&ours),
        "version {version} of {message:?}"
    );
    // In the version before, what is new must be missing, and nothing else. Whatever they can say
    // there we must say too. (The other way round, we drop some hints of answers over which they
    // fail.)
    let before = version - 1;
    if M::VERSIONS.contains(&before)
        && let Some(theirs) = rewrite(&ours, version, before)
    {
        let ours = encoded(message, before);
        if !ours.as_ref().is_err_and(only_we_refuse) {
            assert_eq!(ours, Ok(theirs), "version {before} of {message:?}");
        }
    }
}

/// They write null where the version has none, and drop tagged fields however much these mean.
fn only_we_refuse(error: &EncodeError) -> bool {
    match error {
        EncodeError::Null { .. } => true,
        EncodeError::FieldNotInVersion { field, .. } => [
            "FetchRequest.replica_state",
            "FetchPartitionResponse.diverging_epoch",
            "FetchPartitionResponse.snapshot_id",
        ]
        .contains(field),
        _ => false,
    }
}

macro_rules! agrees {
    ($($test:ident: $module:ident::$name:ident up_to $last:literal;)*) => {$(
        #[test]
        fn $test() {
            check::<crate::wire::$module::$name>($last, rewrite::<theirs::$name>);
        }
    )*};
}

agrees! {
    produce_requests_agree: produce::ProduceRequest up_to 13;
    produce_responses_agree: produce::ProduceResponse up_to 13;
    fetch_requests_agree: fetch::FetchRequest up_to 18;
    fetch_responses_agree: fetch::FetchResponse up_to 18;
    list_offsets_requests_agree: list_offsets::ListOffsetsRequest up_to 10;
    list_offsets_responses_agree: list_offsets::ListOffsetsResponse up_to 10;
    metadata_requests_agree: metadata::MetadataRequest up_to 13;
    metadata_responses_agree: metadata::MetadataResponse up_to 13;
    api_versions_requests_agree: api_versions::ApiVersionsRequest up_to 4;
    api_versions_responses_agree: api_versions::ApiVersionsResponse up_to 4;
    init_producer_id_requests_agree: init_producer_id::InitProducerIdRequest up_to 5;
    init_producer_id_responses_agree: init_producer_id::InitProducerIdResponse up_to 5;
    epoch_end_requests_agree:
        offset_for_leader_epoch::OffsetForLeaderEpochRequest up_to 4;
    epoch_end_responses_agree:
        offset_for_leader_epoch::OffsetForLeaderEpochResponse up_to 4;
    vote_requests_agree: vote::VoteRequest up_to 2;
    vote_responses_agree: vote::VoteResponse up_to 2;
    begin_requests_agree: begin_quorum_epoch::BeginQuorumEpochRequest up_to 1;
    begin_responses_agree: begin_quorum_epoch::BeginQuorumEpochResponse up_to 1;
    end_requests_agree: end_quorum_epoch::EndQuorumEpochRequest up_to 1;
    end_responses_agree: end_quorum_epoch::EndQuorumEpochResponse up_to 1;
    describe_quorum_requests_agree: describe_quorum::DescribeQuorumRequest up_to 2;
    describe_quorum_responses_agree: describe_quorum::DescribeQuorumResponse up_to 2;
    describe_cluster_requests_agree: describe_cluster::DescribeClusterRequest up_to 2;
    describe_cluster_responses_agree: describe_cluster::DescribeClusterResponse up_to 2;
}

#[test]
fn header_versions_agree_for_every_api_and_version() {
    for api in ApiKey::ALL {
        let known = theirs::ApiKey::try_from(api.code()).expect("they know it");
        for version in 0..=18 {
            let request = if api.request_header_has_tags(version) {
                2
            } else {
                1
            };
            assert_eq!(
                request,
                known.request_header_version(version),
                "{api} {version}"
            );
            let response = i16::from(api.response_header_has_tags(version));
            assert_eq!(
                response,
                known.response_header_version(version),
                "{api} {version}"
            );
        }
    }
}

#[test]
fn headers_agree() {
    for (api, version) in [
        (ApiKey::Fetch, 11),
        (ApiKey::Fetch, 12),
        (ApiKey::ApiVersions, 3),
    ] {
        for client_id in [None, Some(String::new()), Some("a client".to_owned())] {
            let header = RequestHeader {
                api_key: api.code(),
                api_version: version,
                correlation_id: -7,
                client_id,
            };
            let mut out = Writer::new();
            header.encode(api, &mut out).expect("short client id");
            let bytes = Bytes::from(out.into_bytes());
            let tags = i16::from(api.request_header_has_tags(version));
            let theirs = rewrite::<theirs::RequestHeader>(&bytes, 1 + tags, 1 + tags);
            assert_eq!(theirs, Some(bytes));
        }
        let header = ResponseHeader { correlation_id: 9 };
        let mut out = Writer::new();
        header.encode(api, version, &mut out);
        let bytes = Bytes::from(out.into_bytes());
        let tags = i16::from(api.response_header_has_tags(version));
        let theirs = rewrite::<theirs::ResponseHeader>(&bytes, tags, tags);
        assert_eq!(theirs.as_ref(), Some(&bytes));
        let read = ResponseHeader::decode(api, version, &mut Reader::new(&bytes));
        assert_eq!(read, Ok(header));
    }
}
