//! Step 5 of 5 of the append path (before: `log_writer.rs`): where the bytes land. Names and layout
//! of segment files; no I/O.
//!
//! A segment is named by the offset of its first record. While it is active it has its full length:
//! batches, zeros, and two mark slots in the last two blocks. Sealed, it is cut to its batches and
//! is what Kafka would have written.

use crate::format::{BATCH_BYTES_LIMIT, MARK_BYTES};
use quorate_raft::Offset;
use std::path::{Path, PathBuf};

/// The unit in which segments are written, in bytes. Covers the direct-I/O alignment of all common
/// disks; `check_data_dir` refuses others.
pub const BLOCK_BYTES: usize = 4096;
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

const _: () = assert!(BLOCK_BYTES == quorate_ring::BUFFER_ALIGNMENT);
const _: () = assert!(MARK_BYTES == BLOCK_BYTES);
const _: () = assert!(BATCH_BYTES_LIMIT.is_multiple_of(BLOCK_BYTES));

/// A prepared segment that has no offset yet.
pub(crate) const SPARE_NAME: &str = "segment.spare";
/// The same, not yet finished: worthless after a crash.
pub(crate) const SPARE_UNFINISHED_NAME: &str = "segment.spare.tmp";
/// End of the name of every file that is not finished: nobody misses it.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// The files that belong to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    Log,
    OffsetIndex,
    TimeIndex,
}

impl SegmentFile {
    pub(crate) const ALL: [Self; 3] = [Self::Log, Self::OffsetIndex, Self::TimeIndex];

    fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
        }
    }
}

/// Path of a segment's file: twenty digits and the extension (Kafka's `LogFileUtils`).
pub(crate) fn segment_path(dir: &Path, base: Offset, file: SegmentFile) -> PathBuf {
    dir.join(format!("{:020}.{}", base.0, file.extension()))
}

/// The base offset in a segment's file name, and which of its files it is.
pub(crate) fn parse_segment_name(name: &str) -> Option<(Offset, SegmentFile)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let base = digits.parse().ok()?;
    let mut files = SegmentFile::ALL.into_iter();
    let file = files.find(|file| file.extension() == extension)?;
    Some((Offset(base), file))
}

/// The end offset in a snapshot's name: twenty digits, `-`, ten digits of epoch, `.checkpoint`.
pub(crate) fn parse_snapshot_name(name: &str) -> Option<Offset> {
    let (end, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    if end.len() != 20 || epoch.len() != 10 || epoch.parse::<i32>().is_err() {
        return None;
    }
    end.parse().ok().map(Offset)
}

/// `position` cut down to a block boundary.
pub(crate) fn block_floor(position: u64) -> u64 {
    position / BLOCK * BLOCK
}

/// `position` raised to a block boundary.
pub(crate) fn block_ceil(position: u64) -> u64 {
    position.div_ceil(BLOCK) * BLOCK
}

/// Layout of an active segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    file_bytes: u64,
}

impl Layout {
    /// The layout with room for `data_bytes` of batches (rounded down to blocks, at least one).
    pub(crate) fn for_data(data_bytes: u64) -> Self {
        Self {
            file_bytes: block_floor(data_bytes).max(BLOCK) + 2 * BLOCK,
        }
    }

    /// The layout of a file of this length, if an active segment can be that long.
    pub(crate) fn of_file(file_bytes: u64) -> Option<Self> {
        let fits = file_bytes.is_multiple_of(BLOCK) && file_bytes >= 3 * BLOCK;
        fits.then_some(Self { file_bytes })
    }

    /// Length of the file.
    pub(crate) fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Room for batches; the mark slots begin here.
    pub(crate) fn data_bytes(self) -> u64 {
        self.file_bytes - 2 * BLOCK
    }

    /// Where the mark of group `sequence` stands.
    pub(crate) fn mark_position(self, sequence: u64) -> u64 {
        self.data_bytes() + sequence % 2 * BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas_and_come_back() {
        let path = segment_path(Path::new("d"), Offset(42), SegmentFile::TimeIndex);
        assert_eq!(path, Path::new("d/00000000000000000042.timeindex"));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            parse_segment_name(name),
            Some((Offset(42), SegmentFile::TimeIndex))
        );
        for name in [
            "42.log",
            "00000000000000000042.log.deleted",
            "quorum-state",
            "99999999999999999999.log",
            "+0000000000000000042.log",
        ] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
        let snapshot = "00000000000000000007-0000000002.checkpoint";
        assert_eq!(parse_snapshot_name(snapshot), Some(Offset(7)));
        assert_eq!(parse_snapshot_name("bootstrap.checkpoint"), None);
    }

    #[test]
    fn marks_alternate_in_the_last_two_blocks() {
        let layout = Layout::for_data(10_000);
        assert_eq!((layout.data_bytes(), layout.file_bytes()), (8192, 16384));
        assert_eq!(layout.mark_position(4), 8192);
        assert_eq!(layout.mark_position(5), 12288);
        assert_eq!(Layout::of_file(16384), Some(layout));
        assert_eq!(Layout::of_file(8192), None);
        assert_eq!(Layout::of_file(16000), None);
    }
}
