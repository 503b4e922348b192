//! Streams cut anywhere: what comes out of a connection must not depend on how its bytes arrived.

use crate::source::Source;
use quorate_net::{ApiKey, ApiResponse, Connection, Inbound, Limits, ListenerKind, Outbound};

/// Small, so that inputs reach it.
const FRAME_BYTES_MAX: usize = 4096;

/// Input: listener kind, how many bytes say where the stream is cut, these bytes, the stream.
pub fn frames(data: &[u8]) {
    let mut source = Source::new(data);
    let is_peer = source.byte() & 2 != 0;
    let kind = *source.choose(&[ListenerKind::Client, ListenerKind::Controller]);
    let cuts = usize::from(source.byte() % 16);
    let cuts = source.take(cuts).to_vec();
    let stream = source.rest();
    if is_peer {
        assert_eq!(answers_of(stream, &[]), answers_of(stream, &cuts));
    } else {
        assert_eq!(
            requests_of(kind, stream, &[]),
            requests_of(kind, stream, &cuts)
        );
    }
}

/// The stream in pieces as long as `cuts` say, in turn; in one piece without any.
fn pieces<'s>(mut stream: &'s [u8], cuts: &[u8]) -> Vec<&'s [u8]> {
    let mut pieces = Vec::new();
    let mut lengths = cuts.iter().cycle();
    while !stream.is_empty() {
        let length = lengths
            .next()
            .map_or(stream.len(), |cut| usize::from(*cut) + 1);
        let (piece, rest) = stream.split_at(length.min(stream.len()));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

/// All that a server hears and says: its requests, its answers, and how the connection ended.
fn requests_of(kind: ListenerKind, stream: &[u8], cuts: &[u8]) -> (Vec<String>, Vec<u8>, String) {
    let limits = Limits {
        frame_bytes_max: FRAME_BYTES_MAX,
        ..Limits::default()
    };
    let mut connection = Connection::new(kind, limits);
    let (mut heard, mut said) = (Vec::new(), Vec::new());
    let mut end = None;
    for piece in pieces(stream, cuts) {
        connection.received(piece);
        end = hear(&mut connection, &mut heard);
        if let Some(output) = connection.take_output() {
            said.extend_from_slice(&output);
            connection.recycle(output);
        }
        if end.is_some() {
            break;
        }
    }
    let end = end.unwrap_or_else(|| format!("open {}", connection.is_between_requests()));
    (heard, said, end)
}

/// Takes and answers all whole requests. Why the connection must be closed, if it must.
fn hear(connection: &mut Connection, heard: &mut Vec<String>) -> Option<String> {
    loop {
        match connection.next_request() {
            Ok(Some(inbound)) => answer(connection, inbound, heard),
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Every second request is answered, the others have no answer.
fn answer(connection: &mut Connection, inbound: Inbound, heard: &mut Vec<String>) {
    let Inbound {
        slot,
        header,
        request,
        ..
    } = inbound;
    heard.push(format!("{header:?} {request:?}"));
    match slot.api() {
        ApiKey::ApiVersions if heard.len().is_multiple_of(2) => {
            let response = ApiResponse::ApiVersions(Default::default());
            let answered = connection.respond_with(slot, &response);
            assert_eq!(answered, Ok(()));
        }
        _ => connection.skip(slot),
    }
}

/// All that a client hears.
fn answers_of(stream: &[u8], cuts: &[u8]) -> (Vec<String>, bool, String) {
    let mut outbound = Outbound::new("fuzz");
    let mut heard = Vec::new();
    for piece in pieces(stream, cuts) {
        outbound.received(piece);
        loop {
            match outbound.next_response() {
                Ok(Some(answer)) => heard.push(format!("{answer:?}")),
                Ok(None) => break,
                Err(error) => return (heard, outbound.is_ready(), error.to_string()),
            }
        }
    }
    (heard, outbound.is_ready(), "open".to_owned())
}
