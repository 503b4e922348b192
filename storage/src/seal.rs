//! Sealing: giving the log an exact end on disk. Roll, clean stop, truncation and recovery all come
//! through here, so the bytes behind the end of the log are zeros in a fresh file, always.
//!
//! This matters: a follower cuts 100..101 of epoch 7 and gets a new 100 of epoch 6 with the same
//! size. Were the old bytes still behind it, a crash would bring the old 101 back: continuous, with
//! a valid checksum and a rising epoch, and false.
//!
//! Order, each step durable before the next:
//! 1. segments behind the end are unlinked, highest first, the directory flushed after each
//! 2. the last segment is cut to its exact end and flushed: its marks are gone, it is sealed
//! 3. (not at a clean stop) a zeroed spare is renamed to the end offset; the directory is flushed
//!
//! A crash between any two leaves whole sealed segments that are a prefix of the log.
//!
//! A roll, which commits wait for, flushes only once: the full segment is cut, the spare renamed,
//! the directory flushed, and the full segment flushed in the background before the next roll. File
//! systems with a journal keep the cut before the name; where a crash does undo it, the last but
//! one segment still has its marks, and recovery seals it where its newest one says.

use crate::disk::{Disk, DiskFile, OpenMode, found, read_full, write_all, write_blocks};
use crate::error::{Context, Operation, StorageError};
use crate::format::{LogIdentity, Mark};
use crate::index_file::IndexFiles;
use crate::segment::{BLOCK, Layout, SPARE_NAME, SPARE_UNFINISHED_NAME, SegmentFile, segment_path};
use quorate_raft::Offset;
use quorate_ring::AlignedBuf;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the log ends on disk.
#[derive(Clone, Debug)]
pub(crate) struct SealAt<F> {
    /// The segment that the end is in.
    pub segment: Offset,
    /// Its file, if it is open.
    pub file: Option<Arc<F>>,
    /// Byte of the segment where the last batch ends.
    pub position: u64,
}

/// Steps 1 and 2. `segments` are the base offsets of all segments, ascending.
pub(crate) fn seal<D: Disk>(
    disk: &D,
    dir: &Path,
    segments: &[Offset],
    at: &SealAt<D::File>,
) -> Result<(), StorageError> {
    unlink_behind(disk, dir, segments, at.segment)?;
    let path = segment_path(dir, at.segment, SegmentFile::Log);
    let file = match &at.file {
        Some(file) => Arc::clone(file),
        None => {
            let opened = disk.open(&path, OpenMode::Direct);
            Arc::new(opened.during(Operation::Open, &path)?)
        }
    };
    cut(&*file, &path, at.position)?;
    // In any case: an earlier attempt may have cut the file and not lived to flush it.
    file.sync_all().during(Operation::Flush, &path)
}

/// Cuts a segment to its exact end; durable once the file is flushed.
pub(crate) fn cut<F: DiskFile>(file: &F, path: &Path, position: u64) -> Result<(), StorageError> {
    let bytes = file.len().during(Operation::Read, path)?;
    assert!(position <= bytes, "{position} of {bytes}");
    if bytes == position {
        return Ok(());
    }
    file.set_len(position)
        .map_err(|source| StorageError::new(Operation::SetLen, path, position, source))
}

/// A segment that was cut and has its successor: what is left to do for it.
#[derive(Debug)]
pub(crate) struct Unfinished<F> {
    /// Not flushed since the cut.
    pub file: Arc<F>,
    /// Not written.
    pub indexes: IndexFiles,
}

impl<F: DiskFile> Unfinished<F> {
    /// Makes the cut durable and writes the indexes.
    pub(crate) fn finish<D: Disk<File = F>>(
        &self,
        disk: &D,
        dir: &Path,
    ) -> Result<(), StorageError> {
        let path = segment_path(dir, self.indexes.base, SegmentFile::Log);
        self.file.sync_all().during(Operation::Flush, &path)?;
        write_indexes(disk, dir, &self.indexes)
    }
}

/// Step 1: removes all segments with a base offset above `last`. Each is gone for good before the
/// one below it is touched: a file system may keep removals in any order, and a hole in the middle
/// would look like a lost segment.
pub(crate) fn unlink_behind<D: Disk>(
    disk: &D,
    dir: &Path,
    segments: &[Offset],
    last: Offset,
) -> Result<(), StorageError> {
    for base in segments.iter().rev().take_while(|base| **base > last) {
        // The log last: an index without its log is removed at the next start.
        for file in [
            SegmentFile::TimeIndex,
            SegmentFile::OffsetIndex,
            SegmentFile::Log,
        ] {
            let path = segment_path(dir, *base, file);
            found(disk.remove(&path)).during(Operation::Remove, &path)?;
        }
        disk.sync_dir(dir).during(Operation::FlushDir, dir)?;
    }
    Ok(())
}

/// A zeroed, flushed segment without a name of its own yet.
#[derive(Debug)]
pub(crate) struct Spare<F> {
    pub file: Arc<F>,
    pub layout: Layout,
}

impl<F> Clone for Spare<F> {
    fn clone(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            layout: self.layout,
        }
    }
}

/// Step 3: makes the spare the active segment at `base`, replacing an empty one of that name.
pub(crate) fn activate<D: Disk>(disk: &D, dir: &Path, base: Offset) -> Result<(), StorageError> {
    let from = dir.join(SPARE_NAME);
    let to = segment_path(dir, base, SegmentFile::Log);
    disk.rename(&from, &to).during(Operation::Rename, &to)?;
    disk.sync_dir(dir).during(Operation::FlushDir, dir)
}

/// Writes the index files of a sealed segment. Nothing depends on them being whole after a crash:
/// recovery compares them with the segment.
pub(crate) fn write_indexes<D: Disk>(
    disk: &D,
    dir: &Path,
    indexes: &IndexFiles,
) -> Result<(), StorageError> {
    let files = [
        (SegmentFile::OffsetIndex, &indexes.offsets),
        (SegmentFile::TimeIndex, &indexes.times),
    ];
    for (kind, content) in files {
        let path = segment_path(dir, indexes.base, kind);
        let file = disk
            .open(&path, OpenMode::Create)
            .during(Operation::Open, &path)?;
        write_all(&file, content, 0).during(Operation::Write, &path)?;
        file.sync_all().during(Operation::Flush, &path)?;
    }
    Ok(())
}

/// A spare in the making. Zeroed in steps, so that whoever makes it can do other things in between
/// and the disk is never busy with it for long.
#[derive(Debug)]
pub(crate) struct SpareInProgress<F> {
    file: Option<Arc<F>>,
    /// What is written, from the first step to the last.
    zeros: Option<AlignedBuf>,
    done: u64,
    layout: Layout,
    identity: LogIdentity,
}

/// Bytes that one step zeroes.
const STEP_BYTES: u64 = 1024 * 1024;

impl<F> SpareInProgress<F> {
    pub(crate) fn new(layout: Layout, identity: LogIdentity) -> Self {
        Self {
            file: None,
            zeros: None,
            done: 0,
            layout,
            identity,
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }
}

impl<F: DiskFile> SpareInProgress<F> {
    /// Zeroes the next step. Returns the spare once it is finished, durable, and has its name.
    pub(crate) fn step<D: Disk<File = F>>(
        &mut self,
        disk: &D,
        dir: &Path,
    ) -> Result<Option<Spare<F>>, StorageError> {
        let path = dir.join(SPARE_UNFINISHED_NAME);
        let file = self.open(disk, &path)?;
        let count = STEP_BYTES.min(self.layout.file_bytes() - self.done);
        let step = || AlignedBuf::zeroed(STEP_BYTES as usize);
        let zeros = self.zeros.get_or_insert_with(step);
        write_blocks(&*file, &zeros[..count as usize], self.done)
            .map_err(|source| StorageError::new(Operation::Write, &path, self.done, source))?;
        self.done += count;
        if self.done < self.layout.file_bytes() {
            return Ok(None);
        }
        self.write_mark(&*file, &path)?;
        file.sync_all().during(Operation::Flush, &path)?;
        let named: PathBuf = dir.join(SPARE_NAME);
        disk.rename(&path, &named)
            .during(Operation::Rename, &named)?;
        disk.sync_dir(dir).during(Operation::FlushDir, dir)?;
        let layout = self.layout;
        Ok(Some(Spare { file, layout }))
    }

    /// By which recovery knows that the segment was prepared, and nothing written to it yet.
    fn write_mark(&self, file: &F, path: &Path) -> Result<(), StorageError> {
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        Mark::of_spare().encode(self.identity, &mut block);
        let at = self.layout.mark_position(0);
        write_blocks(file, &block, at)
            .map_err(|source| StorageError::new(Operation::Write, path, at, source))
    }

    fn open<D: Disk<File = F>>(&mut self, disk: &D, path: &Path) -> Result<Arc<F>, StorageError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = disk
            .open(path, OpenMode::CreateDirect)
            .during(Operation::Open, path)?;
        let file = Arc::new(file);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// All steps at once.
    pub(crate) fn finish<D: Disk<File = F>>(
        mut self,
        disk: &D,
        dir: &Path,
    ) -> Result<Spare<F>, StorageError> {
        loop {
            if let Some(spare) = self.step(disk, dir)? {
                return Ok(spare);
            }
        }
    }
}

/// A finished spare that an earlier run left behind, if it has the wanted layout and is this log's.
pub(crate) fn reuse_spare<D: Disk>(
    disk: &D,
    dir: &Path,
    wanted: Layout,
    identity: LogIdentity,
) -> Result<Option<Spare<D::File>>, StorageError> {
    let path = dir.join(SPARE_NAME);
    let opened = found(disk.open(&path, OpenMode::Direct)).during(Operation::Open, &path)?;
    let Some(file) = opened else {
        return Ok(None);
    };
    let bytes = file.len().during(Operation::Read, &path)?;
    if Layout::of_file(bytes) != Some(wanted) {
        return Ok(None);
    }
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    let filled = read_full(&file, &mut block, wanted.mark_position(0));
    filled.during(Operation::Read, &path)?;
    let mark = Mark::decode(&block, identity, Offset(0));
    Ok((mark == Some(Mark::of_spare())).then(|| Spare {
        file: Arc::new(file),
        layout: wanted,
    }))
}
