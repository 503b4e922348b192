//! Frames that Kafka 4.4.0 itself sent or took: read, and written again byte for byte.

use crate::apis::{ApiRequest, ApiResponse};
use crate::frame::{FrameReader, write_frame};
use crate::wire::{ApiKey, EncodeError, Reader, RequestHeader, ResponseHeader, Writer};
use bytes::Bytes;

struct GoldenFrame {
    line: usize,
    is_request: bool,
    api: ApiKey,
    version: i16,
    bytes: Vec<u8>,
}

/// The frames of a file whose API has a codec here, and how many there are of other APIs.
fn read(text: &str) -> (Vec<GoldenFrame>, usize) {
    let mut frames = Vec::new();
    let mut others = 0;
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
    {
        let words: Vec<&str> = line.split(' ').collect();
        let [.., direction, api, version, hex] = words[..] else {
            panic!("line {}: not a frame", index + 1);
        };
        let Some(api) = ApiKey::ALL
            .into_iter()
            .find(|known| known.to_string() == api)
        else {
            others += 1;
            continue;
        };
        frames.push(GoldenFrame {
            line: index + 1,
            is_request: direction == "REQ",
            api,
            version: version[1..].parse().expect("v and a number"),
            bytes: unhex(hex),
        });
    }
    (frames, others)
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn reencode_request(golden: &GoldenFrame, frame: &Bytes, out: &mut Writer) {
    let mut reader = Reader::new(frame);
    let mut header = RequestHeader::decode_start(&mut reader).expect("a header");
    assert_eq!(
        (header.api_key, header.api_version),
        (golden.api.code(), golden.version)
    );
    header
        .decode_rest(golden.api, &mut reader)
        .expect("a header");
    let request = ApiRequest::decode(golden.api, golden.version, &mut reader)
        .unwrap_or_else(|error| panic!("line {}: {error}", golden.line));
    write_frame(out, |out| {
        header.encode(golden.api, out)?;
        request.encode(golden.version, out)
    })
    .expect("it was read from this version");
}

fn reencode_response(golden: &GoldenFrame, frame: &Bytes, out: &mut Writer) {
    let mut reader = Reader::new(frame);
    let header = ResponseHeader::decode(golden.api, golden.version, &mut reader).expect("a header");
    let response = ApiResponse::decode(golden.api, golden.version, &mut reader)
        .unwrap_or_else(|error| panic!("line {}: {error}", golden.line));
    write_frame(out, |out| -> Result<(), EncodeError> {
        header.encode(golden.api, golden.version, out);
        response.encode(golden.version, out)
    })
    .expect("it was read from this version");
}

fn check(text: &str, frames_known: usize, frames_of_other_apis: usize) {
    let (frames, others) = read(text);
    assert_eq!((frames.len(), others), (frames_known, frames_of_other_apis));
    for golden in frames {
        let mut input = FrameReader::new(1 << 20);
        input.received(&golden.bytes);
        let frame = input
            .next_frame()
            .expect("a good length")
            .expect("a whole frame");
        assert!(input.is_empty());
        let mut out = Writer::new();
        if golden.is_request {
            reencode_request(&golden, &frame, &mut out);
        } else {
            reencode_response(&golden, &frame, &mut out);
        }
        assert_eq!(out.as_bytes(), golden.bytes, "line {}", golden.line);
    }
}

#[test]
fn frames_of_kafkas_raft_client_survive() {
    check(include_str!("../../../testdata/raft_client.txt"), 41, 0);
}

#[test]
fn frames_of_a_kafka_follower_survive() {
    check(include_str!("../../../testdata/follower.txt"), 52, 4);
}

#[test]
fn frames_of_kafkas_tools_survive() {
    check(include_str!("../../../testdata/tools.txt"), 44, 6);
}
