//! The file `leader-epoch-checkpoint`: where each leader epoch begins.
//!
//! Text, one item a line: version `0`, number of entries, then `epoch startOffset` per entry, both
//! ascending (Kafka's `LeaderEpochCheckpointFile`).

use super::{FileFormatError, malformed};
use quorate_raft::{Epoch, EpochStart, Offset};
use std::fmt::Write;

/// The file's content for `epochs`.
#[must_use]
pub fn encode_epoch_checkpoint(epochs: &[EpochStart]) -> Vec<u8> {
    let mut text = format!("0\n{}\n", epochs.len());
    for entry in epochs {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
    }
    text.into_bytes()
}

/// Reads the file's content.
///
/// # Errors
/// Unless it is exactly what [`encode_epoch_checkpoint`] writes: ascending and as many entries as
/// it says.
pub fn decode_epoch_checkpoint(bytes: &[u8]) -> Result<Vec<EpochStart>, FileFormatError> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("not text"))?;
    let mut lines = text.lines();
    let version: i64 = number(lines.next(), "version")?;
    if version != 0 {
        return Err(FileFormatError::Version(version));
    }
    let count: usize = number(lines.next(), "number of entries")?;
    let epochs = lines.map(entry).collect::<Result<Vec<_>, _>>()?;
    if epochs.len() != count {
        let found = epochs.len();
        return Err(malformed(format!("{found} entries instead of {count}")));
    }
    let ascends = |pair: &[EpochStart]| {
        pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
    };
    if !epochs.windows(2).all(ascends) {
        return Err(malformed("epochs or offsets do not ascend"));
    }
    Ok(epochs)
}

fn entry(line: &str) -> Result<EpochStart, FileFormatError> {
    let (epoch, offset) = line
        .split_once(' ')
        .ok_or_else(|| malformed(format!("line '{line}'")))?;
    let epoch: i32 = number(Some(epoch), "epoch")?;
    let offset: i64 = number(Some(offset), "offset")?;
    if epoch < 0 || offset < 0 {
        return Err(malformed(format!("line '{line}'")));
    }
    Ok(EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    })
}

fn number<T: std::str::FromStr>(text: Option<&str>, what: &str) -> Result<T, FileFormatError> {
    let text = text.ok_or_else(|| malformed(format!("no {what}")))?;
    text.parse()
        .map_err(|_| malformed(format!("{what} is '{text}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../../testdata/leader-epoch-checkpoint");

    #[test]
    fn kafkas_file_is_read_and_written_byte_for_byte() {
        let epochs = decode_epoch_checkpoint(GOLDEN).unwrap();
        assert_eq!(epochs.len(), 1);
        assert_eq!(epochs[0].epoch, Epoch(1));
        assert_eq!(epochs[0].start_offset, Offset(0));
        assert_eq!(encode_epoch_checkpoint(&epochs), GOLDEN);
    }

    #[test]
    fn cut_garbled_and_unordered_files_are_refused() {
        for text in [
            "",
            "0",
            "0\n1\n",
            "0\n2\n1 0\n",
            "0\n0\n1 0\n",
            "x\n0\n",
            "0\n1\n1\n",
            "0\n1\n-1 0\n",
            "0\n2\n2 0\n1 5\n",
            "0\n2\n1 5\n2 5\n",
            "0\n1\n1 0 7\n",
        ] {
            assert!(
                decode_epoch_checkpoint(text.as_bytes()).is_err(),
                "{text:?}"
            );
        }
        let version = decode_epoch_checkpoint(b"7\n0\n");
        assert_eq!(version, Err(FileFormatError::Version(7)));
    }
}
