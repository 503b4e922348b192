//! `quorate tail`: committed records, to the end or beyond it.

use super::CliError;
use super::args::{Addresses, TailArgs};
use super::connect::{connect, options};
use super::output::Output;
use bytes::Bytes;
use quorate_net::ListenerKind;
use quorate_net::client::{self, Client, ClientError, FetchResult, OffsetSpec};
use quorate_raft::Offset;
use quorate_storage::format::{Record, batches, records};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::io;

/// How long the leader may hold an answer without records. It only says how often we ask in vain.
const WAIT_MS: i32 = 5000;
/// Records per answer.
const BYTES_MAX: i32 = 1 << 20;

/// Prints from where the arguments say.
pub(super) fn run(args: TailArgs) -> Result<(), CliError> {
    client::run(tail(&args))?
}

async fn tail(args: &TailArgs) -> Result<(), CliError> {
    let Addresses(bootstrap) = &args.bootstrap_server;
    let mut client = connect(bootstrap, ListenerKind::Client, options(&args.topic)).await?;
    let end = client.list_offsets(OffsetSpec::Latest).await?;
    let mut next = match args.from {
        Some(from) => Offset(from),
        None => client.list_offsets(OffsetSpec::Earliest).await?,
    };
    if next > end {
        return Err(CliError::BeyondEnd { from: next, end });
    }
    let mut printer = Printer {
        out: Output::new(),
        json: args.json,
    };
    while args.follow || next < end {
        let fetched = fetch(&mut client, next, args.follow).await?;
        next = printer.print_batches(next, &fetched.records)?;
        printer.out.flush()?;
    }
    Ok(())
}

/// The next records. Who follows waits for a leader as long as it takes.
async fn fetch(client: &mut Client, from: Offset, follow: bool) -> Result<FetchResult, CliError> {
    loop {
        match client.fetch(from, WAIT_MS, BYTES_MAX).await {
            Err(error @ ClientError::GaveUp { .. }) if follow => {
                tracing::warn!(%error, "still trying");
            }
            fetched => return Ok(fetched?),
        }
    }
}

struct Printer {
    out: Output,
    json: bool,
}

impl Printer {
    /// Prints the records of `bytes` from `from` on; returns the offset behind the last batch.
    fn print_batches(&mut self, from: Offset, bytes: &Bytes) -> Result<Offset, CliError> {
        let mut next = from;
        let broken = |offset| move |source| CliError::Batch { offset, source };
        for batch in batches(bytes) {
            let (header, range) = batch.map_err(broken(next))?;
            // Control batches concern replicas only.
            if !header.is_control() {
                for record in records(&bytes[range]).map_err(broken(header.base_offset))? {
                    let record = record.map_err(broken(header.base_offset))?;
                    if record.offset >= from {
                        self.print(&record)?;
                    }
                }
            }
            next = next.max(header.end_offset());
        }
        Ok(next)
    }

    fn print(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.json {
            self.out.json(&JsonRecord(record))
        } else {
            self.out.line(text(record))
        }
    }
}

/// `offset: value` or `offset: key = value`. Control characters are escaped: whoever wrote the
/// record is not to write to this terminal.
fn text(record: &Record<'_>) -> String {
    let value = record.value.map_or("(no value)".into(), printable);
    match record.key {
        Some(key) => format!("{}: {} = {value}", record.offset, printable(key)),
        None => format!("{}: {value}", record.offset),
    }
}

fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() && c != '\t' {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// A record as JSON: `offset`, `timestamp`, `key`, `value`, `headers`. Bytes that are no UTF-8
/// stand in hexadecimal under the name with `_hex`.
struct JsonRecord<'a>(&'a Record<'a>);

impl Serialize for JsonRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(record) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("offset", &record.offset.0)?;
        map.serialize_entry("timestamp", &record.timestamp)?;
        serialize_bytes(&mut map, "key", record.key)?;
        serialize_bytes(&mut map, "value", record.value)?;
        let headers = record.headers.iter();
        let headers: Vec<_> = headers
            .map(|(key, value)| JsonHeader(key, *value))
            .collect();
        map.serialize_entry("headers", &headers)?;
        map.end()
    }
}

struct JsonHeader<'a>(&'a [u8], Option<&'a [u8]>);

impl Serialize for JsonHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_bytes(&mut map, "key", Some(self.0))?;
        serialize_bytes(&mut map, "value", self.1)?;
        map.end()
    }
}

fn serialize_bytes<M: SerializeMap>(
    map: &mut M,
    name: &str,
    bytes: Option<&[u8]>,
) -> Result<(), M::Error> {
    match bytes.map(std::str::from_utf8) {
        None => map.serialize_entry(name, &None::<()>),
        Some(Ok(text)) => map.serialize_entry(name, text),
        Some(Err(_)) => {
            let hex = bytes
                .unwrap_or_default()
                .iter()
                .map(|byte| format!("{byte:02x}"));
            map.serialize_entry(&format!("{name}_hex"), &hex.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Record<'a> {
        Record {
            offset: Offset(5),
            timestamp: 1000,
            key,
            value,
            headers: vec![(b"h", Some(b"v")), (b"n", None)],
        }
    }

    #[test]
    fn records_are_lines() {
        assert_eq!(text(&record(None, Some(b"hello"))), "5: hello");
        assert_eq!(text(&record(Some(b"k"), Some(b"v"))), "5: k = v");
        assert_eq!(text(&record(Some(b"k"), None)), "5: k = (no value)");
    }

    #[test]
    fn a_record_cannot_write_to_the_terminal() {
        let line = text(&record(None, Some(b"a\x1b[2J\nb\tc\xff")));
        assert_eq!(line, "5: a\\u{1b}[2J\\nb\tc\u{fffd}");
    }

    #[test]
    fn records_are_json_objects() {
        let json = |key, value| serde_json::to_value(JsonRecord(&record(key, value))).unwrap();
        let headers = serde_json::json!([{"key": "h", "value": "v"}, {"key": "n", "value": null}]);
        let expected = serde_json::json!({
            "offset": 5, "timestamp": 1000, "key": null, "value": "v", "headers": headers,
        });
        assert_eq!(json(None, Some(b"v")), expected);
        let expected = serde_json::json!({
            "offset": 5, "timestamp": 1000, "key_hex": "ff00", "value": null, "headers": headers,
        });
        assert_eq!(json(Some(b"\xff\x00"), None), expected);
    }
}
