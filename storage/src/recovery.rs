//! The acting half of recovery: makes the log end exactly where `inspect.rs` found that it ends,
//! durably, and a new active segment ready. Every step can be cut by a crash and is done again by
//! the next start, with the same result.
//!
//! Readable is not flushed: a process may die between write and flush. What lies between the newest
//! mark's durable point and the end is written again, byte for byte (so that a crash in here
//! changes nothing that the marks tell of), and flushed; only then is that end reported.

use crate::clean_shutdown::remove_clean_shutdown;
use crate::disk::{Disk, DiskFile, OpenMode, found, write_blocks, write_file_atomically};
use crate::error::{Context, Operation, RecoveryError, StorageError};
use crate::format::{LogIdentity, encode_log_identity, encode_partition_metadata};
use crate::inspect::{Found, Tail, Torn};
use crate::job::write_epoch_checkpoint;
use crate::log::{LogConfig, OpenedLog};
use crate::log_writer::{LogWriter, WriterStart};
use crate::scan::read_blocks;
use crate::seal::{
    SealAt, Spare, SpareInProgress, activate, cut, reuse_spare, seal, write_indexes,
};
use crate::segment::{Layout, SegmentFile, block_ceil, block_floor, segment_path};
use crate::segment_index::SegmentIndex;
use crate::state_file::{LOG_IDENTITY_NAME, PARTITION_METADATA_NAME};
use quorate_raft::{Epoch, Offset};
use quorate_ring::AlignedBuf;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What recovery found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Directory of the log.
    pub dir: PathBuf,
    /// There was no log; it was created.
    pub is_new: bool,
    /// The log had been closed cleanly.
    pub is_clean: bool,
    /// The log was written by Kafka and is taken over.
    pub is_foreign: bool,
    /// Segments that hold batches.
    pub segments: usize,
    /// Batches in them; `None` if the log was closed cleanly and not read.
    pub batches: Option<u64>,
    /// Bytes of these batches.
    pub bytes: u64,
    /// First offset.
    pub log_start: Offset,
    /// End (exclusive).
    pub log_end: Offset,
    /// Epoch of the last batch; 0 for an empty log.
    pub end_epoch: Epoch,
    /// Bytes that were there but perhaps not durable, and were written again.
    pub rewritten_bytes: u64,
    /// What was cut off.
    pub torn: Option<Torn>,
    /// Entries of the epoch checkpoint that were dropped: nothing of these epochs had been written.
    pub epochs_dropped: usize,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.dir.display())?;
        if self.is_new {
            return f.write_str("created an empty log");
        }
        let how = match (self.is_clean, self.is_foreign) {
            (true, _) => "closed cleanly",
            (_, true) => "written by Kafka",
            _ => "not closed cleanly",
        };
        write!(
            f,
            "{how}; offsets {} to {} in {} segments, {} bytes",
            self.log_start, self.log_end, self.segments, self.bytes
        )?;
        match self.batches {
            Some(batches) => write!(f, ", {batches} batches, all of them read")?,
            None => f.write_str(", not read")?,
        }
        if self.rewritten_bytes > 0 {
            write!(f, "; wrote the last {} bytes again", self.rewritten_bytes)?;
        }
        if self.epochs_dropped > 0 {
            write!(
                f,
                "; dropped {} epochs without records",
                self.epochs_dropped
            )?;
        }
        if let Some(torn) = &self.torn {
            let (file, at) = (torn.segment.display(), torn.position);
            write!(
                f,
                "; cut an unfinished write off {file} at {at} ({})",
                torn.reason
            )?;
        }
        Ok(())
    }
}

/// Acts on what was found.
pub(crate) fn repair<D: Disk>(
    disk: D,
    config: LogConfig,
    found: Found,
) -> Result<OpenedLog<D>, RecoveryError> {
    let repair = Repair {
        disk: &disk,
        dir: &config.dir,
        found: &found,
    };
    repair.prepare_directory(config.topic_id)?;
    repair.seal_last_but_one()?;
    let rewritten_bytes = repair.settle_tail()?;
    repair.tidy()?;
    let epochs_dropped = repair.settle_epochs()?;
    // Only now: from here on the segments are ours and marks count.
    let identity = repair.identity()?;
    let active = repair.activate(identity, Layout::for_data(config.segment_bytes))?;
    remove_clean_shutdown(&disk, &config.dir)?;
    let report = report(&config.dir, &found, rewritten_bytes, epochs_dropped);
    let mut segments = found.segments;
    segments.retain(|base| *base < found.log_end);
    segments.push(found.log_end);
    let index = SegmentIndex::new(
        config.dir.clone(),
        found.log_start,
        found.log_end,
        found.indexed,
        found.epochs.clone(),
    );
    let writer = LogWriter::new(WriterStart {
        disk,
        config,
        identity,
        segments,
        active,
        epochs: found.epochs.clone(),
        end_epoch: found.end_epoch,
    });
    Ok(OpenedLog {
        writer,
        index,
        log_start: found.log_start,
        log_end: found.log_end,
        epochs: found.epochs,
        producers: found.producers,
        report,
    })
}

struct Repair<'a, D> {
    disk: &'a D,
    dir: &'a Path,
    found: &'a Found,
}

impl<D: Disk> Repair<'_, D> {
    fn prepare_directory(&self, topic_id: [u8; 16]) -> Result<(), StorageError> {
        self.disk
            .create_dir_all(self.dir)
            .during(Operation::CreateDir, self.dir)?;
        if self.found.has_partition_metadata {
            return Ok(());
        }
        self.write_file(
            PARTITION_METADATA_NAME,
            &encode_partition_metadata(topic_id),
        )
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), StorageError> {
        write_file_atomically(self.disk, self.dir, name, content)
            .during(Operation::WriteStateFile, &self.dir.join(name))
    }

    /// A roll may have been cut short after the new segment had its name: the one before it was cut
    /// to its end, or is to be, and perhaps not flushed since.
    fn seal_last_but_one(&self) -> Result<(), StorageError> {
        let Some(&segment) = self.found.segments.iter().rev().nth(1) else {
            return Ok(());
        };
        if self.found.clean.is_some() {
            return Ok(());
        }
        let path = segment_path(self.dir, segment, SegmentFile::Log);
        let opened = self.disk.open(&path, OpenMode::Direct);
        let file = opened.during(Operation::Open, &path)?;
        if let Some((_, position)) = self.found.unsealed {
            cut(&file, &path, position)?;
        }
        file.sync_all().during(Operation::Flush, &path)
    }

    /// Makes the end of the last segment durable and exact. Returns the bytes written again.
    fn settle_tail(&self) -> Result<u64, StorageError> {
        let (Some(&base), Some(position)) = (self.found.segments.last(), self.tail_position())
        else {
            return Ok(0);
        };
        let path = segment_path(self.dir, base, SegmentFile::Log);
        let opened = self.disk.open(&path, OpenMode::Direct);
        let file = Arc::new(opened.during(Operation::Open, &path)?);
        let mut rewritten = 0;
        if let Tail::Active {
            durable_position, ..
        } = self.found.tail
        {
            rewritten = position - durable_position;
            rewrite::<D>(&file, &path, durable_position, position)?;
        }
        // An empty one is replaced by the new active segment of the same name.
        if base < self.found.log_end {
            let at = SealAt {
                segment: base,
                file: Some(file),
                position,
            };
            seal(self.disk, self.dir, &self.found.segments, &at)?;
        }
        Ok(rewritten)
    }

    fn tail_position(&self) -> Option<u64> {
        match self.found.tail {
            Tail::Missing => None,
            Tail::Sealed { position }
            | Tail::Active { position, .. }
            | Tail::Foreign { position, .. } => Some(position),
        }
    }

    fn tidy(&self) -> Result<(), StorageError> {
        for indexes in &self.found.stale_indexes {
            write_indexes(self.disk, self.dir, indexes)?;
        }
        for path in &self.found.strays {
            found(self.disk.remove(path)).during(Operation::Remove, path)?;
        }
        self.disk
            .sync_dir(self.dir)
            .during(Operation::FlushDir, self.dir)
    }

    /// Makes the checkpoint say what the batches say. Returns how many entries it had too many.
    fn settle_epochs(&self) -> Result<usize, StorageError> {
        let stored = self.found.checkpoint.as_ref();
        if stored == Some(&self.found.epochs) {
            return Ok(0);
        }
        write_epoch_checkpoint(self.disk, self.dir, &self.found.epochs)?;
        let before = stored.map_or(0, Vec::len);
        Ok(before.saturating_sub(self.found.epochs.len()))
    }

    fn identity(&self) -> Result<LogIdentity, StorageError> {
        if let Some(identity) = self.found.identity {
            return Ok(identity);
        }
        let path = self.dir.join(LOG_IDENTITY_NAME);
        let id = self.disk.unique_id().during(Operation::Read, &path)?;
        let identity = LogIdentity(id);
        self.write_file(LOG_IDENTITY_NAME, &encode_log_identity(identity))?;
        Ok(identity)
    }

    fn activate(
        &self,
        identity: LogIdentity,
        layout: Layout,
    ) -> Result<Spare<D::File>, StorageError> {
        let spare = match reuse_spare(self.disk, self.dir, layout, identity)? {
            Some(spare) => spare,
            None => SpareInProgress::new(layout, identity).finish(self.disk, self.dir)?,
        };
        activate(self.disk, self.dir, self.found.log_end)?;
        Ok(spare)
    }
}

/// Writes the bytes from `from` to `to` again as they are, and flushes them.
fn rewrite<D: Disk>(file: &D::File, path: &Path, from: u64, to: u64) -> Result<(), StorageError> {
    const STEP_BYTES: u64 = 1024 * 1024;
    if from == to {
        return Ok(());
    }
    let (mut at, end) = (block_floor(from), block_ceil(to));
    while at < end {
        let count = STEP_BYTES.min(end - at) as usize;
        let mut buf = AlignedBuf::zeroed(count);
        let failed = |operation| move |source| StorageError::new(operation, path, at, source);
        read_blocks(file, &mut buf, at, count).map_err(failed(Operation::Read))?;
        write_blocks(file, &buf, at).map_err(failed(Operation::Write))?;
        at += count as u64;
    }
    file.sync_data().during(Operation::Flush, path)
}

fn report(
    dir: &Path,
    found: &Found,
    rewritten_bytes: u64,
    epochs_dropped: usize,
) -> RecoveryReport {
    let torn = match &found.tail {
        Tail::Active { torn, .. } | Tail::Foreign { torn, .. } => torn.clone(),
        Tail::Missing | Tail::Sealed { .. } => None,
    };
    RecoveryReport {
        dir: dir.to_path_buf(),
        is_new: found.segments.is_empty(),
        is_clean: found.clean.is_some(),
        is_foreign: found.identity.is_none() && !found.segments.is_empty(),
        segments: found.indexed.len(),
        batches: found.batches,
        bytes: found.bytes,
        log_start: found.log_start,
        log_end: found.log_end,
        end_epoch: found.end_epoch,
        rewritten_bytes,
        torn,
        epochs_dropped,
    }
}
