//! One walk over all segments, in order: how far each is whole, and whether what stops it is the
//! end of the log, a write that did not finish, or damage. Part of `inspect.rs`, whose header has
//! the rules.

use crate::clean_shutdown::CleanShutdown;
use crate::disk::{Disk, DiskFile, OpenMode, read_file};
use crate::error::{Context, Operation, RecoveryError, StateFileError, StorageError};
use crate::format::{BatchHeader, LogIdentity, Mark};
use crate::index_file::{IndexBuilder, IndexFiles};
use crate::inspect::{Fault, Inspection, Progress, Tail, Torn};
use crate::marks::{Marks, any_byte, judge_group, read_marks};
use crate::producers::ProducerStates;
use crate::read_ahead::{CHUNK_BYTES, READ_AHEAD_BYTES_MIN, ReadAhead};
use crate::scan::{ScanError, Scanner};
use crate::segment::{Layout, SegmentFile, segment_path};
use crate::segment_index::{ENTRIES_MAX, IndexedSegment, keep_newest_entries};
use crate::state_file::LOG_IDENTITY_NAME;
use quorate_raft::{Epoch, EpochStart, Instant, Offset};
use std::path::{Path, PathBuf};

/// One walk over all segments, in order.
pub(crate) struct Walk<'a> {
    what: &'a Inspection<'a>,
    /// What the checkpoint says; `None` if the epochs are what the batches have.
    checkpoint: Option<&'a [EpochStart]>,
    /// Where the next batch must begin; at last the log end.
    pub next: Offset,
    /// Of the last batch.
    pub epoch: Epoch,
    /// Where each epoch begins, as the batches have it.
    pub epochs: Vec<EpochStart>,
    /// Of the segments that hold batches.
    pub indexed: Vec<IndexedSegment>,
    /// Index files that are missing or not what they should be.
    pub stale_indexes: Vec<IndexFiles>,
    /// The last segment but one, if it still has its marks, and where its last batch ends.
    pub unsealed: Option<(Offset, u64)>,
    /// What the batches say of idempotent producers.
    pub producers: ProducerStates,
    pub batches: u64,
    pub bytes: u64,
    progress: Progress<'a>,
    /// Bytes when it was last told.
    told: u64,
}

/// Bytes that are walked over between two reports of progress.
const PROGRESS_BYTES: u64 = 8 * 1024 * 1024;

/// Where a segment stands among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Before,
    LastButOne,
    Last,
}

/// How far a segment is whole.
#[derive(Debug)]
struct Extent {
    position: u64,
    fault: Option<Fault>,
    /// Which of the awaited batch boundaries were met.
    met: Vec<bool>,
    indexes: IndexFiles,
}

/// A batch boundary that a mark tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    position: u64,
    offset: Offset,
    epoch: Epoch,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        what: &'a Inspection<'a>,
        log_start: Offset,
        checkpoint: Option<&'a [EpochStart]>,
        progress: Progress<'a>,
    ) -> Self {
        Self {
            what,
            checkpoint,
            next: log_start,
            epoch: Epoch(0),
            epochs: Vec::new(),
            indexed: Vec::new(),
            stale_indexes: Vec::new(),
            unsealed: None,
            producers: ProducerStates::new(what.producers, log_start),
            batches: 0,
            bytes: 0,
            progress,
            told: 0,
        }
    }

    /// Records that are told of must be there.
    pub(crate) fn check_presence(
        &self,
        segments: &[Offset],
        identity: Option<LogIdentity>,
        clean: Option<CleanShutdown>,
    ) -> Result<(), RecoveryError> {
        let is_told_of = self.checkpoint.is_some_and(|epochs| !epochs.is_empty())
            || clean.is_some_and(|marker| marker.log_end_offset > Offset(0));
        if segments.is_empty() && is_told_of {
            let dir = self.what.dir.to_path_buf();
            return Err(RecoveryError::NoSegments { dir });
        }
        // The checkpoint is written before the first batch of an epoch.
        if identity.is_some() && self.checkpoint.is_none() && !segments.is_empty() {
            return Err(RecoveryError::StateFile(StateFileError::Malformed {
                path: self.what.dir.join(crate::job::EPOCH_CHECKPOINT_NAME),
                reason: "it is missing".into(),
            }));
        }
        Ok(())
    }

    /// Walks over the segment at `base`.
    pub(crate) fn segment<D: Disk>(
        &mut self,
        disk: &D,
        base: Offset,
        place: Place,
        identity: Option<LogIdentity>,
    ) -> Result<Tail, RecoveryError> {
        let path = segment_path(self.what.dir, base, SegmentFile::Log);
        if base != self.next {
            let from = self.next;
            return Err(missing_or_overlapping(from, base, path));
        }
        let file = disk
            .open(&path, OpenMode::Direct)
            .during(Operation::Open, &path)?;
        let file_bytes = file.len().during(Operation::Read, &path)?;
        let layout = Layout::of_file(file_bytes).filter(|_| place != Place::Before);
        let marks = match layout {
            Some(layout) => {
                read_marks(&file, layout, identity, base).during(Operation::Read, &path)?
            }
            None => Marks::None,
        };
        match (marks, layout) {
            (Marks::Of(mark), Some(layout)) if place == Place::Last => {
                self.active(&file, &path, base, layout, &mark)
            }
            (Marks::Of(mark), Some(layout)) => self.unsealed(&file, &path, base, layout, &mark),
            (Marks::OfAnotherLog, _) => Err(RecoveryError::StateFile(StateFileError::Malformed {
                path: self.what.dir.join(LOG_IDENTITY_NAME),
                reason: format!("{} was written under another identity", path.display()),
            })),
            _ if place == Place::Last && identity.is_none() => {
                self.foreign(&file, &path, base, disk)
            }
            _ => self.sealed(&file, &path, base, disk),
        }
    }

    fn sealed<D: Disk>(
        &mut self,
        file: &D::File,
        path: &Path,
        base: Offset,
        disk: &D,
    ) -> Result<Tail, RecoveryError> {
        let extent = self.walk(file, path, base, u64::MAX, &[])?;
        if let Some(fault) = extent.fault {
            return Err(fault.corrupt(path));
        }
        self.compare_indexes(disk, extent.indexes);
        let position = extent.position;
        Ok(Tail::Sealed { position })
    }

    fn foreign<D: Disk>(
        &mut self,
        file: &D::File,
        path: &Path,
        base: Offset,
        disk: &D,
    ) -> Result<Tail, RecoveryError> {
        let extent = self.walk(file, path, base, u64::MAX, &[])?;
        self.compare_indexes(disk, extent.indexes);
        let torn = extent.fault.map(|fault| torn(path, fault));
        let position = extent.position;
        Ok(Tail::Foreign { position, torn })
    }

    /// A full segment whose cut a crash has undone.
    fn unsealed<F: DiskFile>(
        &mut self,
        file: &F,
        path: &Path,
        base: Offset,
        layout: Layout,
        mark: &Mark,
    ) -> Result<Tail, RecoveryError> {
        let tail = self.active(file, path, base, layout, mark)?;
        let Tail::Active { position, torn, .. } = &tail else {
            unreachable!("an active segment");
        };
        if let Some(torn) = torn {
            let fault = Fault {
                position: torn.position,
                expected: format!("batches up to byte {} and zeros behind", mark.end_position),
                found: torn.reason.clone(),
            };
            return Err(fault.corrupt(path));
        }
        self.unsealed = Some((base, *position));
        Ok(tail)
    }

    fn active<F: DiskFile>(
        &mut self,
        file: &F,
        path: &Path,
        base: Offset,
        layout: Layout,
        mark: &Mark,
    ) -> Result<Tail, RecoveryError> {
        let [durable, end] = self.boundaries(mark, base);
        let extent = self.walk(file, path, base, layout.data_bytes(), &[durable, end])?;
        // The zeros at the end of a segment that is not full are no fault of it.
        let fault = extent
            .fault
            .clone()
            .unwrap_or_else(|| full(extent.position));
        if !extent.met[0] {
            return Err(before_mark(extent.position, fault, durable).corrupt(path));
        }
        if extent.position >= mark.end_position {
            if !extent.met[1] {
                return Err(before_mark(extent.position, fault, end).corrupt(path));
            }
        } else if let Some(damage) =
            judge_group(file, mark, &fault).during(Operation::Read, path)?
        {
            return Err(damage.corrupt(path));
        }
        let is_torn = extent.position < mark.end_position
            || any_byte(file, extent.position, layout.data_bytes())
                .during(Operation::Read, path)?;
        if self.next > base {
            self.stale_indexes.push(extent.indexes);
        }
        Ok(Tail::Active {
            durable_position: mark.durable_position,
            position: extent.position,
            torn: is_torn.then(|| torn(path, fault)),
        })
    }

    /// Walks over the batches of one segment as far as they are whole and in their place.
    fn walk<F: DiskFile>(
        &mut self,
        file: &F,
        path: &Path,
        base: Offset,
        limit: u64,
        awaited: &[Boundary],
    ) -> Result<Extent, RecoveryError> {
        let limit = limit.min(file.len().during(Operation::Read, path)?);
        if limit < READ_AHEAD_BYTES_MIN {
            let mut scanner = Scanner::new(file, 0, limit).during(Operation::Read, path)?;
            let next = || Ok(scanner.next()?.map(|batch| batch.header));
            return self.walk_over(next, path, base, awaited);
        }
        std::thread::scope(|scope| {
            let ahead = ReadAhead::start(scope, file, limit, CHUNK_BYTES);
            let mut ahead = ahead.during(Operation::Read, path)?;
            self.walk_over(|| ahead.next(), path, base, awaited)
        })
    }

    fn walk_over(
        &mut self,
        mut next: impl FnMut() -> Result<Option<BatchHeader>, ScanError>,
        path: &Path,
        base: Offset,
        awaited: &[Boundary],
    ) -> Result<Extent, RecoveryError> {
        let mut indexes = IndexBuilder::new(base, self.what.index_interval_bytes);
        let mut indexed = IndexedSegment::new(base);
        let mut met = Vec::new();
        self.meet(0, awaited, &mut met);
        let fault = loop {
            let position = indexed.end_position;
            match next() {
                Ok(Some(header)) => {
                    if let Err(fault) = self.check_place(&header, position, base) {
                        break Some(fault);
                    }
                    self.check_epoch_is_known(&header)?;
                    let end_position = position + header.size as u64;
                    indexes.add(&header, position);
                    indexed.add(header.base_offset, position, end_position);
                    self.advance(&header);
                    if self.bytes - self.told >= PROGRESS_BYTES {
                        self.tell(path);
                    }
                    self.meet(end_position, awaited, &mut met);
                }
                Ok(None) => break None,
                Err(ScanError::Io(source)) => {
                    return Err(StorageError::new(Operation::Read, path, position, source).into());
                }
                Err(ScanError::Fault(error)) => {
                    break Some(Fault {
                        position,
                        expected: format!("a batch at offset {}", self.next),
                        found: error.to_string(),
                    });
                }
            }
        };
        self.tell(path);
        let position = indexed.end_position;
        if position > 0 {
            self.indexed.push(indexed);
            keep_newest_entries(&mut self.indexed, ENTRIES_MAX);
        }
        Ok(Extent {
            position,
            fault,
            met: awaited
                .iter()
                .map(|boundary| met.contains(boundary))
                .collect(),
            indexes: indexes.finish(),
        })
    }

    /// Where the mark's group begins and ends. Mark 0 is older than the segment's name.
    fn boundaries(&self, mark: &Mark, base: Offset) -> [Boundary; 2] {
        if mark.sequence == 0 {
            let start = Boundary {
                position: 0,
                offset: base,
                epoch: self.epoch,
            };
            return [start, start];
        }
        let durable = Boundary {
            position: mark.durable_position,
            offset: mark.durable_offset,
            epoch: mark.durable_epoch,
        };
        let end = Boundary {
            position: mark.end_position,
            offset: mark.end_offset,
            epoch: mark.end_epoch,
        };
        [durable, end]
    }

    /// Tells how far the walk came.
    fn tell(&mut self, path: &Path) {
        self.told = self.bytes;
        (self.progress)(path, self.bytes);
    }

    fn meet(&self, position: u64, awaited: &[Boundary], met: &mut Vec<Boundary>) {
        let here = Boundary {
            position,
            offset: self.next,
            epoch: self.epoch,
        };
        if awaited.contains(&here) {
            met.push(here);
        }
    }

    /// Offset and epoch lie outside the CRC: they must be what comes next.
    fn check_place(&self, header: &BatchHeader, position: u64, base: Offset) -> Result<(), Fault> {
        let fault = |expected: String, found: String| {
            Err(Fault {
                position,
                expected,
                found,
            })
        };
        let offset = header.base_offset;
        if offset != self.next {
            let expected = format!("a batch at offset {}", self.next);
            return fault(expected, format!("a batch at offset {offset}"));
        }
        if header.end_offset().0 - base.0 > i64::from(i32::MAX) + 1 {
            let found = format!("a batch to offset {}", header.end_offset());
            return fault("offsets within 31 bits of the segment's base".into(), found);
        }
        let expected = match self.checkpoint {
            Some(epochs) => epoch_at(epochs, offset),
            None => header.epoch.max(self.epoch),
        };
        if header.epoch != expected {
            let expected = format!("epoch {expected} at offset {offset}");
            return fault(expected, format!("epoch {}", header.epoch));
        }
        Ok(())
    }

    fn check_epoch_is_known(&self, header: &BatchHeader) -> Result<(), RecoveryError> {
        if header.epoch <= self.what.quorum_epoch {
            return Ok(());
        }
        Err(RecoveryError::EpochAhead {
            dir: self.what.dir.to_path_buf(),
            log_epoch: header.epoch,
            quorum_epoch: self.what.quorum_epoch,
        })
    }

    fn advance(&mut self, header: &BatchHeader) {
        if self
            .epochs
            .last()
            .is_none_or(|last| last.epoch < header.epoch)
        {
            self.epochs.push(EpochStart {
                epoch: header.epoch,
                start_offset: header.base_offset,
            });
        }
        self.producers.observe(Instant(0), header);
        self.epoch = header.epoch;
        self.next = header.end_offset();
        self.batches += 1;
        self.bytes += header.size as u64;
    }

    /// Only to write them anew where they differ: nothing here reads them.
    fn compare_indexes<D: Disk>(&mut self, disk: &D, indexes: IndexFiles) {
        let same = |file, content: &Vec<u8>| {
            let path = segment_path(self.what.dir, indexes.base, file);
            read_file(disk, &path, content.len()).is_ok_and(|found| found == *content)
        };
        let are_same = same(SegmentFile::OffsetIndex, &indexes.offsets)
            && same(SegmentFile::TimeIndex, &indexes.times);
        if !are_same {
            self.stale_indexes.push(indexes);
        }
    }
}

/// The epoch that the checkpoint gives for `offset`; -1 before its first entry.
fn epoch_at(epochs: &[EpochStart], offset: Offset) -> Epoch {
    let after = epochs.partition_point(|entry| entry.start_offset <= offset);
    after
        .checked_sub(1)
        .map_or(Epoch(-1), |index| epochs[index].epoch)
}

fn missing_or_overlapping(from: Offset, base: Offset, path: PathBuf) -> RecoveryError {
    if base > from {
        return RecoveryError::MissingSegment {
            from,
            to: base,
            next: path,
        };
    }
    RecoveryError::Corrupt {
        segment: path,
        position: 0,
        expected: format!("a segment at offset {from}"),
        found: format!("a segment at offset {base}"),
    }
}

fn torn(path: &Path, fault: Fault) -> Torn {
    Torn {
        segment: path.to_path_buf(),
        position: fault.position,
        reason: fault.found,
    }
}

fn full(position: u64) -> Fault {
    Fault {
        position,
        expected: "batches".into(),
        found: "the end of the segment".into(),
    }
}

/// The fault of a segment that ends before, or runs past, a boundary that a mark tells of.
fn before_mark(position: u64, fault: Fault, boundary: Boundary) -> Fault {
    if position < boundary.position {
        return fault;
    }
    Fault {
        position: boundary.position,
        expected: format!(
            "epoch {} to end at offset {}",
            boundary.epoch, boundary.offset
        ),
        found: "no such batch boundary".into(),
    }
}
