//! What a [`super::SimDisk`] holds: live and durable images, and what lies between them.

use crate::segment::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

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
    pub(super) crash_after: Option<u64>,
    pub(super) fail_flush: Option<u64>,
    pub(super) fail_write: Option<(u64, io::ErrorKind)>,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
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
    Write { at: usize, data: Vec<u8> },
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

/// How a crash treats the writes that were not flushed.
#[derive(Clone, Copy)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// Each write whole or not at all.
    WholeWrites,
    /// Each sector by itself.
    Sectors,
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

    pub(super) fn begin_flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        if !self.begin_change()? {
            return Err(crashed());
        }
        Ok(())
    }

    pub(super) fn flush_fails(&mut self) -> bool {
        let fails = self.fail_flush == Some(self.flushes);
        if fails {
            self.fail_flush = None;
        }
        fails
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

    pub(super) fn crash(&mut self, random: &mut dyn FnMut() -> u64) {
        for dir in self.dirs.values_mut() {
            dir.crash(random);
        }
        for inode in self.inodes.values_mut() {
            inode.crash(random);
        }
        let named: Vec<u64> = self
            .dirs
            .values()
            .flat_map(|dir| dir.live.values().copied())
            .collect();
        self.inodes.retain(|inode, _| named.contains(inode));
        self.life += 1;
        self.crash_after = None;
        self.fail_flush = None;
        self.fail_write = None;
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

    pub(super) fn crash(&mut self, random: &mut dyn FnMut() -> u64) {
        let kept = some_of(self.pending.len(), random);
        for change in self.pending.drain(..).take(kept) {
            change.apply(&mut self.durable);
        }
        self.live = self.durable.clone();
    }
}

impl DirChange {
    pub(super) fn apply(&self, entries: &mut BTreeMap<String, u64>) {
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
}

impl Inode {
    pub(super) fn change(&mut self, kind: ChangeKind, is_done: bool) {
        if is_done {
            kind.apply(&mut self.live);
        }
        self.pending.push(Change {
            kind,
            is_done,
            is_doomed: false,
        });
    }

    pub(super) fn flush(&mut self) {
        let mut doomed: Vec<Change> = Vec::new();
        for change in std::mem::take(&mut self.pending) {
            if change.is_doomed {
                doomed.push(change);
                continue;
            }
            change.kind.apply(&mut self.durable);
            let older = doomed.into_iter();
            doomed = older.flat_map(|old| old.outside(&change.kind)).collect();
        }
        self.pending = doomed;
    }

    pub(super) fn crash(&mut self, random: &mut dyn FnMut() -> u64) {
        let resizes = self
            .pending
            .iter()
            .filter(|change| change.kind.is_resize())
            .count();
        let mut resizes_kept = some_of(resizes, random);
        let sector_bytes = if random() & 1 == 0 { 512 } else { BLOCK_BYTES };
        let survival = match random() & 3 {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            2 => Survival::WholeWrites,
            _ => Survival::Sectors,
        };
        for change in self.pending.drain(..) {
            if change.kind.is_resize() {
                if resizes_kept > 0 {
                    resizes_kept -= 1;
                    change.kind.apply(&mut self.durable);
                }
            } else {
                change
                    .kind
                    .survive(&mut self.durable, sector_bytes, survival, random);
            }
        }
        self.live = self.durable.clone();
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
                data: data[from - start..to - start].to_vec(),
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
            Self::Write { at, data } => {
                let end = at + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*at..end].copy_from_slice(data);
            }
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }

    pub(super) fn is_resize(&self) -> bool {
        matches!(self, Self::SetLen(_))
    }

    pub(super) fn survive(
        &self,
        content: &mut Vec<u8>,
        sector_bytes: usize,
        survival: Survival,
        random: &mut dyn FnMut() -> u64,
    ) {
        let Self::Write { at, data } = self else {
            return;
        };
        let at = *at;
        let whole = random() & 1 == 0;
        let mut from = 0;
        while from < data.len() {
            let sector_end = ((at + from) / sector_bytes + 1) * sector_bytes - at;
            let to = sector_end.min(data.len());
            let survives = match survival {
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::WholeWrites => whole,
                Survival::Sectors => random() & 1 == 0,
            };
            if survives {
                let part = data[from..to].to_vec();
                Self::Write {
                    at: at + from,
                    data: part,
                }
                .apply(content);
            }
            from = to;
        }
    }
}

/// A number from 0 to `count`.
pub(super) fn some_of(count: usize, random: &mut dyn FnMut() -> u64) -> usize {
    if count == 0 {
        return 0;
    }
    (random() % (count as u64 + 1)) as usize
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
