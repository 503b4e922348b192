//! The segment files of stopped nodes, read without the program's own code: just enough of the
//! record batch's header (magic 2) to walk from one to the next.

use super::Node;
use std::fs;
use std::path::Path;

/// Base offset (8), batch length (4), leader epoch (4), magic (1), CRC (4), attributes (2), last
/// offset delta (4), and 34 more.
const HEADER_BYTES: usize = 61;

struct Batch<'a> {
    base_offset: i64,
    last_offset: i64,
    bytes: &'a [u8],
}

/// The batch at the start of `bytes`; `None` at the zeros behind the last one, or at a cut one.
fn first_batch(bytes: &[u8]) -> Option<Batch<'_>> {
    let header = bytes.get(..HEADER_BYTES)?;
    let i32_at = |at: usize| i32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let base_offset = i64::from_be_bytes(header[..8].try_into().expect("8 bytes"));
    let size = 12 + usize::try_from(i32_at(8)).ok()?;
    if size < HEADER_BYTES || header[16] != 2 {
        return None;
    }
    let last_offset = base_offset + i64::from(i32_at(23));
    Some(Batch {
        base_offset,
        last_offset,
        bytes: bytes.get(..size)?,
    })
}

/// The bytes of all batches below `end_offset`, of all segments in order.
///
/// # Panics
/// If offsets have a gap, or the log ends before `end_offset`.
pub fn committed_bytes(log_dir: &Path, end_offset: i64) -> Vec<u8> {
    let mut committed = Vec::new();
    let mut next_offset = 0;
    for segment in segments(log_dir) {
        let file = fs::read(log_dir.join(&segment)).expect("a segment to read");
        let mut rest = &file[..];
        while let Some(batch) = first_batch(rest).filter(|_| next_offset < end_offset) {
            let what = format!("{} {segment}", log_dir.display());
            assert_eq!(batch.base_offset, next_offset, "a gap in {what}");
            assert!(
                batch.last_offset < end_offset,
                "{what}: {end_offset} is within a batch"
            );
            committed.extend_from_slice(batch.bytes);
            next_offset = batch.last_offset + 1;
            rest = &rest[batch.bytes.len()..];
        }
    }
    assert_eq!(next_offset, end_offset, "{} ends early", log_dir.display());
    committed
}

fn segments(log_dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(log_dir).expect("a log directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.filter_map(Result::ok).collect();
    names.retain(|name| {
        name.strip_suffix(".log")
            .is_some_and(|base| base.len() == 20)
    });
    names.sort();
    names
}

/// Compares the logs of stopped nodes.
///
/// # Panics
/// Unless they are the same byte for byte below `end_offset`.
pub fn assert_same_logs(nodes: &[Node], end_offset: i64) {
    let (first, others) = nodes.split_first().expect("nodes");
    let expected = committed_bytes(&first.log_dir(), end_offset);
    assert!(!expected.is_empty(), "nothing below {end_offset}");
    for node in others {
        let found = committed_bytes(&node.log_dir(), end_offset);
        let same = expected
            .iter()
            .zip(&found)
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            same == expected.len() && same == found.len(),
            "voters {} and {} differ at byte {same} of {} and {}, in the batch at offset {:?}",
            first.id,
            node.id,
            expected.len(),
            found.len(),
            offset_at(&expected, same),
        );
    }
}

/// Base offset of the batch that holds byte `position`.
fn offset_at(mut log: &[u8], mut position: usize) -> Option<i64> {
    loop {
        let batch = first_batch(log)?;
        if position < batch.bytes.len() {
            return Some(batch.base_offset);
        }
        position -= batch.bytes.len();
        log = &log[batch.bytes.len()..];
    }
}
