//! What must hold after a client's run, whatever the client.

use crate::common::Record;
use std::collections::{BTreeSet, HashMap};

/// Words by which the clients' logs tell that they could not read an answer, or that a node did not
/// take a request in a version it said it takes (error 35). In small letters.
const FAULTS: &[&str] = &[
    "parse fail",
    "parse error",
    "protouflow",
    "protoerr",
    "underflow",
    "malformed",
    "unsupported_version",
    "unsupportedversion",
    "apiversionrequest failed",
    "retrying with v0",
    "downgrading",
    "errorcode=35",
    "error_code=35",
    "\"errorcode\":35",
    "schemaexception",
    "error reading field",
    "unable to decode",
    "decodeerror",
    "rangeerror",
    "does not match request",
    "do not match",
];

/// Lines that have such words and are no fault.
const NO_FAULTS: &[&str] = &[
    // The Java client asks for telemetry if a node offers it, and says so when none does.
    "UnsupportedVersionException: The node does not support GET_TELEMETRY_SUBSCRIPTIONS",
];

/// # Panics
/// Unless a client's debug log speaks of ApiVersions, and of no answer that it could not read.
pub fn assert_log_clean(log: &str, api_versions: &str) {
    assert!(log.contains(api_versions), "no debug log of {api_versions}");
    for line in log
        .lines()
        .filter(|line| !NO_FAULTS.iter().any(|known| line.contains(known)))
    {
        let lower = line.to_lowercase();
        let fault = FAULTS.iter().find(|fault| lower.contains(*fault));
        assert_eq!(fault, None, "in a client's log: {line}");
    }
}

/// What a producing program printed: values and where they were acknowledged, in that order.
pub struct Report(Vec<(String, i64)>);

impl Report {
    /// # Panics
    /// On a line that is no acknowledgement.
    pub fn parse(lines: &[String]) -> Self {
        let parse = |line: &String| {
            let (value, offset) = line.strip_prefix("acked ")?.split_once(' ')?;
            Some((value.to_owned(), offset.parse().ok()?))
        };
        let parsed = lines
            .iter()
            .map(|line| parse(line).unwrap_or_else(|| panic!("no acknowledgement: {line:?}")));
        Self(parsed.collect())
    }

    /// # Panics
    /// Unless all `count` records were acknowledged once, and the log has each of them where its
    /// acknowledgement says. The log may have some more than once, and in another order.
    pub fn assert_all_kept(&self, count: usize, log: &[Record]) {
        let values: BTreeSet<&str> = self.0.iter().map(|(value, _)| &value[..]).collect();
        assert_eq!(
            values.len(),
            self.0.len(),
            "values acknowledged, and acknowledgements"
        );
        assert_eq!(values.len(), count, "acknowledged in all");
        let by_offset: HashMap<i64, String> = log
            .iter()
            .map(|record| (record.offset, text(record)))
            .collect();
        for (value, offset) in &self.0 {
            assert_eq!(by_offset.get(offset), Some(value), "at offset {offset}");
        }
    }

    /// # Panics
    /// Unless all `count` records were acknowledged once, and the log has exactly these, in the
    /// order of sending and where their acknowledgements say.
    pub fn assert_once_and_in_order(mut self, count: usize, log: &[Record]) {
        self.0.sort_by_key(|(_, offset)| *offset);
        let sent = (0..count).map(|number| format!("value-{number}"));
        for ((value, offset), sent) in self.0.iter().zip(sent) {
            assert_eq!(*value, sent, "acknowledged at offset {offset}");
        }
        assert_eq!(self.0.len(), count, "acknowledged in all");
        for (record, (value, offset)) in log.iter().zip(&self.0) {
            assert_eq!(
                (&text(record), record.offset),
                (value, *offset),
                "in the log"
            );
        }
        assert_eq!(log.len(), count, "records in the log");
    }
}

/// # Panics
/// Unless a consuming program printed exactly the records of the log.
pub fn assert_read(printed: &[String], log: &[Record]) {
    for (line, record) in printed.iter().zip(log) {
        assert_eq!(*line, format!("{} {}", record.offset, text(record)));
    }
    assert_eq!(printed.len(), log.len(), "records read");
}

fn text(record: &Record) -> String {
    let value = record.value.as_deref().unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}
