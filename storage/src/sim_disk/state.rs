//! What a [`super::SimDisk`] holds: live and durable images, and what lies between them.

use super::faults::{Faults, FlushFault, take};
use super::{CrashRules, EntryOrder, Unsettled};
use crate::segment::BLOCK_BYTES;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) dirs: BTreeMap<PathBuf, Dir>,
    pub(super) inodes_made: u64,
    pub(super) ids_made: u64,
    pub(super) life: u64,
    pub(super) operations: u64,
    pub(super) flushes: u64,
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) crash_after: Option<u64>,
    pub(super) faults: Faults,
}

/// A file. The images are shared between duplicates of the disk until one of them changes.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) live: Arc<Vec<u8>>,
    pub(super) durable: Arc<Vec<u8>>,
    pub(super) pending: Vec<Change>,
    /// Numbers of the blocks that cannot be read.
    pub(super) unreadable: BTreeSet<u64>,
}

#[derive(Clone)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    /// Readers see it. Not so if the disk stopped at it: only a crash may show it then.
    pub(super) is_done: bool,
    /// A flush of it failed.
    pub(super) is_doomed: bool,
}

#[derive(Clone)]
pub(super) enum ChangeKind {
    /// Has its effect as far as the file goes: what makes a file longer is a change of its own.
    Write {
        at: usize,
        data: Bytes,
    },
    SetLen(usize),
}

#[derive(Clone, Default)]
pub(super) struct Dir {
    pub(super) live: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
    pub(super) pending: Vec<DirChange>,
}

#[derive(Clone)]
pub(super) enum DirChange {
    Set(String, u64),
    Rename(String, String),
    Remove(String),
}

impl State {
    pub(super) fn is_crashed(&self) -> bool {
        self.crash_after.is_some_and(|last| self.operations > last)
    }

    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.is_crashed() {
            return Err(crashed());
        }
        Ok(())
    }

    /// Counts a change. `Ok(true)`: it is done; `Ok(false)`: the crash interrupts it.
    pub(super) fn begin_change(&mut self) -> io::Result<bool> {
        self.check_alive()?;
        self.operations += 1;
        Ok(!self.is_crashed())
    }

    /// Counts a flush, and says what goes wrong with it.
    pub(super) fn begin_flush(&mut self) -> io::Result<Option<FlushFault>> {
        self.flushes += 1;
        if !self.begin_change()? {
            return Err(crashed());
        }
        Ok(take(&mut self.faults.flush, self.flushes))
    }

    pub(super) fn make_inode(&mut self) -> u64 {
        self.inodes_made += 1;
        self.inodes.insert(self.inodes_made, Inode::default());
        self.inodes_made
    }

    pub(super) fn find(&self, path: &Path) -> Option<u64> {
        let (dir, name) = split(path);
        self.dirs.get(&dir)?.live.get(&name).copied()
    }

    pub(super) fn dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        self.dirs.get_mut(path).ok_or_else(not_found)
    }

    pub(super) fn named(&self) -> BTreeSet<u64> {
        let dirs = self.dirs.values();
        dirs.flat_map(|dir| dir.live.values().copied()).collect()
    }

    /// Whether `more` bytes find room, beside what the files have by now.
    pub(super) fn check_room(&self, more: usize) -> io::Result<()> {
        let Some(room) = self.faults.room else {
            return Ok(());
        };
        let named = self.named();
        let lens = named.iter().map(|inode| self.inodes[inode].live.len());
        let used: usize = lens.map(|len| len.next_multiple_of(BLOCK_BYTES)).sum();
        if (used + more) as u64 > room {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, rules: CrashRules, keep: &mut dyn FnMut(Unsettled) -> bool) {
        for dir in self.dirs.values_mut() {
            dir.crash(rules.entries, keep);
        }
        let named = self.named();
        self.inodes.retain(|inode, _| named.contains(inode));
        for (&file, inode) in &mut self.inodes {
            inode.crash(file, rules.sector_bytes, keep);
        }
        self.life += 1;
        self.crash_after = None;
        self.faults.forget();
    }
}

impl Dir {
    pub(super) fn change(&mut self, change: DirChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn flush(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    fn crash(&mut self, order: EntryOrder, keep: &mut dyn FnMut(Unsettled) -> bool) {
        let mut lost: Vec<DirChange> = Vec::new();
        for change in self.pending.drain(..) {
            let needs_lost = match order {
                EntryOrder::Journal => !lost.is_empty(),
                EntryOrder::Any => lost.iter().any(|earlier| change.shares_name(earlier)),
            };
            if !needs_lost && keep(Unsettled::Entry) {
                change.apply(&mut self.durable);
            } else {
                lost.push(change);
            }
        }
        self.live = self.durable.clone();
    }
}

impl DirChange {
    fn apply(&self, entries: &mut BTreeMap<String, u64>) {
        match self {
            Self::Set(name, inode) => {
                entries.insert(name.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = entries.remove(from) {
                    entries.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => {
                entries.remove(name);
            }
        }
    }

    fn names(&self) -> [&str; 2] {
        match self {
            Self::Set(name, _) | Self::Remove(name) => [name, name],
            Self::Rename(from, to) => [from, to],
        }
    }

    fn shares_name(&self, other: &Self) -> bool {
        self.names().iter().any(|name| other.names().contains(name))
    }
}

impl Inode {
    pub(super) fn change(&mut self, kind: ChangeKind, is_done: bool) {
        if let ChangeKind::Write { at, data } = &kind
            && at + data.len() > self.live.len()
        {
            self.change(ChangeKind::SetLen(at + data.len()), is_done);
        }
        if is_done {
            kind.apply(Arc::make_mut(&mut self.live));
            self.heal(&kind);
        }
        self.pending.push(Change {
            kind,
            is_done,
            is_doomed: false,
        });
    }

    /// Blocks that were written whole can be read again.
    fn heal(&mut self, kind: &ChangeKind) {
        let ChangeKind::Write { at, data } = kind else {
            return;
        };
        let (start, end) = (*at as u64, (at + data.len()) as u64);
        let block = BLOCK_BYTES as u64;
        let is_whole = |number: &u64| number * block >= start && (number + 1) * block <= end;
        self.unreadable.retain(|number| !is_whole(number));
    }

    pub(super) fn can_read(&self, at: usize, bytes: usize) -> bool {
        let first = (at / BLOCK_BYTES) as u64;
        let end = (at + bytes).div_ceil(BLOCK_BYTES) as u64;
        self.unreadable.range(first..end).next().is_none()
    }

    pub(super) fn flush(&mut self) {
        let mut doomed: Vec<Change> = Vec::new();
        let durable = Arc::make_mut(&mut self.durable);
        for change in std::mem::take(&mut self.pending) {
            if change.is_doomed {
                doomed.push(change);
                continue;
            }
            change.kind.apply(durable);
            let older = doomed.into_iter();
            doomed = older.flat_map(|old| old.outside(&change.kind)).collect();
        }
        self.pending = doomed;
    }

    /// A flush failed and left everything in doubt.
    pub(super) fn doom(&mut self) {
        for change in &mut self.pending {
            change.is_doomed = !change.kind.is_resize();
        }
    }

    /// A flush failed and everything that it should have covered is gone.
    pub(super) fn lose(&mut self) {
        self.pending.retain(|change| change.kind.is_resize());
        self.live = Arc::clone(&self.durable);
        for change in &self.pending {
            change.kind.apply(Arc::make_mut(&mut self.live));
        }
    }

    fn crash(&mut self, file: u64, sector_bytes: usize, keep: &mut dyn FnMut(Unsettled) -> bool) {
        if self.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        let mut keeps_lengths = true;
        for (write, change) in self.pending.drain(..).enumerate() {
            match &change.kind {
                // Lengths are the file system's own, so they come back in order.
                ChangeKind::SetLen(_) => {
                    keeps_lengths = keeps_lengths && keep(Unsettled::Length { file });
                    if keeps_lengths {
                        change.kind.apply(durable);
                    }
                }
                ChangeKind::Write { at, data } => {
                    for sector in sectors(*at, data, sector_bytes) {
                        if sector.differs(durable) && keep(Unsettled::Sector { file, write }) {
                            sector.apply(durable);
                        }
                    }
                }
            }
        }
        self.live = Arc::clone(&self.durable);
    }
}

impl Change {
    /// The parts of a write that can still land once `newer` is durable: those that it did neither
    /// write over nor cut off.
    fn outside(self, newer: &ChangeKind) -> Vec<Self> {
        let ChangeKind::Write { at, data } = &self.kind else {
            return vec![self];
        };
        let (start, end) = (*at, at + data.len());
        let (from, to) = match newer {
            ChangeKind::Write { at, data } => (*at, at + data.len()),
            ChangeKind::SetLen(len) => (*len, usize::MAX),
        };
        let parts = [(start, end.min(from)), (start.max(to), end)];
        let kept = parts.into_iter().filter(|(from, to)| from < to);
        kept.map(|(from, to)| Self {
            kind: ChangeKind::Write {
                at: from,
                data: data.slice(from - start..to - start),
            },
            is_done: self.is_done,
            is_doomed: self.is_doomed,
        })
        .collect()
    }
}

impl ChangeKind {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, data } => overlay(content, *at, data),
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }

    fn is_resize(&self) -> bool {
        matches!(self, Self::SetLen(_))
    }

    fn differs(&self, content: &[u8]) -> bool {
        let Self::Write { at, data } = self else {
            return true;
        };
        let (from, to) = ((*at).min(content.len()), at + data.len());
        let there = &content[from..to.min(content.len())];
        *there != data[..there.len()]
    }
}

/// Puts `data` at byte `at`, as far as `content` goes.
pub(super) fn overlay(content: &mut [u8], at: usize, data: &[u8]) {
    let (from, to) = (at.min(content.len()), at + data.len());
    let to = to.min(content.len());
    content[from..to].copy_from_slice(&data[..to - from]);
}

/// A write cut into the parts that a crash keeps or loses as a whole.
fn sectors(at: usize, data: &Bytes, sector_bytes: usize) -> impl Iterator<Item = ChangeKind> {
    let end = at + data.len();
    let mut from = at;
    std::iter::from_fn(move || {
        let to = ((from / sector_bytes + 1) * sector_bytes).min(end);
        let part = (from < end).then(|| ChangeKind::Write {
            at: from,
            data: data.slice(from - at..to - at),
        });
        from = to;
        part
    })
}

pub(super) fn split(path: &Path) -> (PathBuf, String) {
    let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    (dir, name.to_string_lossy().into_owned())
}

pub(super) fn crashed() -> io::Error {
    io::Error::other("the simulated disk has crashed")
}

pub(super) fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

pub(super) fn failed_flush() -> io::Error {
    io::Error::other("the simulated disk failed to flush")
}

pub(super) fn unreadable() -> io::Error {
    io::Error::other("a block of the simulated disk is unreadable")
}
