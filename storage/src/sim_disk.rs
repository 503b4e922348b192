//! A disk in memory that loses, tears and fails, for the simulator and the crash tests. It runs the
//! same storage code as the real one; it has no say in what that code does.
//!
//! Every file has a live and a durable image. A flush makes the pending changes of one file
//! durable, a directory flush those of one directory. A crash keeps of what was not flushed:
//! - of writes, any sectors (the rest is as before), so that any can be there without any other;
//! - of changes of a file's length, the first few, in order: a write that makes its file longer is
//!   such a change and a write;
//! - of a directory's changes, the first few, in order, as a file system with a journal keeps them,
//!   or any that do not share a name with a lost one before ([`EntryOrder`]).
//!
//! A failed flush leaves its writes in doubt: no later flush makes them durable, and a crash may
//! keep them, unless something newer that was flushed stands in their place. Lengths of files are
//! the file system's own: a later flush covers them.
//!
//! Beside crashes there are the faults of [`WriteFault`] and [`FlushFault`], failing reads,
//! unreadable blocks, flipped bits and a disk that is full. A stall is no fault of the disk here:
//! whoever drives the storage code decides when a completion comes back.

mod faults;
mod state;
#[cfg(test)]
mod tests;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::segment::BLOCK_BYTES;
use bytes::Bytes;
use faults::take;
pub use faults::{FlushFault, WriteFault};
use state::{
    ChangeKind, DirChange, Inode, State, crashed, failed_flush, not_found, overlay, split,
    unreadable,
};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a crash leaves open of one change that was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// A creation, a renaming or a removal in a directory.
    Entry,
    /// The length of a file.
    Length {
        /// Tells files apart.
        file: u64,
    },
    /// A sector of a write, where it differs from what is there.
    Sector {
        /// Tells files apart.
        file: u64,
        /// Tells the writes to one file apart.
        write: usize,
    },
}

/// In which order a crash keeps the changes of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOrder {
    /// None without all before it.
    Journal,
    /// None without those before it that concern one of its names.
    Any,
}

/// What a crash may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashRules {
    /// What a disk writes as a whole, in bytes: 512 or 4096.
    pub sector_bytes: usize,
    /// How directories come back.
    pub entries: EntryOrder,
}

/// The disk. Cloning gives another handle of the same disk; [`SimDisk::duplicate`] a second disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`SimDisk`]. Useless after the crash of its disk.
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    is_direct: bool,
    /// Crashes of the disk when the file was opened.
    life: u64,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A second disk with the same content, pending changes and counters.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let state = self.state().clone();
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Operations so far that changed something, flushes included. Never goes back.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Stops the disk after operation number `operation` (counted as [`SimDisk::operations`] does):
    /// every later one fails. The first of them may still have an effect, as one that a crash
    /// interrupted. Lasts until [`SimDisk::crash`].
    pub fn crash_after(&self, operation: u64) {
        self.state().crash_after = Some(operation);
    }

    /// Whether operations fail because of [`SimDisk::crash_after`].
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.state().is_crashed()
    }

    /// Makes the `nth` flush from now on (1: the next) fail. Flushes of directories count.
    pub fn fail_flush(&self, nth: u64) {
        self.disturb_flush(nth, FlushFault::InDoubt);
    }

    /// Lets `fault` befall the `nth` flush from now on (1: the next). Flushes of directories count.
    pub fn disturb_flush(&self, nth: u64, fault: FlushFault) {
        let mut state = self.state();
        state.faults.flush = Some((state.flushes + nth, fault));
    }

    /// Makes the `nth` write from now on (1: the next) fail with `kind`, without an effect.
    pub fn fail_write(&self, nth: u64, kind: io::ErrorKind) {
        self.disturb_write(nth, WriteFault::Fails(kind));
    }

    /// Lets `fault` befall the `nth` write from now on (1: the next).
    pub fn disturb_write(&self, nth: u64, fault: WriteFault) {
        let mut state = self.state();
        state.faults.write = Some((state.writes + nth, fault));
    }

    /// Makes the `nth` read from now on (1: the next) fail with `kind`.
    pub fn fail_read(&self, nth: u64, kind: io::ErrorKind) {
        let mut state = self.state();
        state.faults.read = Some((state.reads + nth, kind));
    }

    /// Writes, flushes and reads so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state();
        (state.writes, state.flushes, state.reads)
    }

    /// Gives the disk room for so many bytes, in whole blocks; `None`: for as many as are asked
    /// for. What is there stays. Without room nothing is created and no write makes a file longer.
    pub fn limit_room(&self, bytes: Option<u64>) {
        self.state().faults.room = bytes;
    }

    /// Bytes of room that the files take, in whole blocks.
    #[must_use]
    pub fn used_room(&self) -> u64 {
        let state = self.state();
        let lens = state
            .named()
            .into_iter()
            .map(|file| state.inodes[&file].live.len());
        lens.map(|len| len.next_multiple_of(BLOCK_BYTES) as u64)
            .sum()
    }

    /// Changes bits of a byte in every image of a file: the disk's own fault, seen by nobody.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn flip(&self, path: &Path, position: usize, mask: u8) {
        let mut state = self.state();
        let inode = state.find(path).expect("the file to be changed");
        let inode = state.inodes.entry(inode).or_default();
        Arc::make_mut(&mut inode.live)[position] ^= mask;
        if position < inode.durable.len() {
            Arc::make_mut(&mut inode.durable)[position] ^= mask;
        }
    }

    /// Makes the block at `position` unreadable, until it is written as a whole.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn make_unreadable(&self, path: &Path, position: u64) {
        let mut state = self.state();
        let inode = state.find(path).expect("the file to be damaged");
        let inode = state.inodes.entry(inode).or_default();
        inode.unreadable.insert(position / BLOCK_BYTES as u64);
    }

    /// The power goes and comes back: what was not flushed is kept or lost by chance. Files that
    /// are open become useless. `random` gives numbers of which every bit counts; if it gives only
    /// zeros, nothing is kept.
    pub fn crash(&self, random: &mut dyn FnMut() -> u64) {
        let word = random();
        let rules = CrashRules {
            sector_bytes: if word & 1 == 0 { 512 } else { BLOCK_BYTES },
            entries: EntryOrder::Journal,
        };
        // Of 256: how likely each entry and each length is kept.
        let order = [0, 128, 250, 256][(word >> 1 & 3) as usize];
        let mut last = None;
        let mut mode = 0;
        let mut keeps_write = false;
        self.crash_keeping(rules, &mut |unsettled| {
            let Unsettled::Sector { file, write } = unsettled else {
                return (random() & 0xff) < order;
            };
            if last.is_none_or(|(before, _)| before != file) {
                mode = random() & 3;
            }
            if last != Some((file, write)) {
                keeps_write = random() & 1 == 1;
            }
            last = Some((file, write));
            match mode {
                0 => false,
                1 => true,
                2 => keeps_write,
                _ => random() & 1 == 1,
            }
        });
    }

    /// The power goes and comes back: `keep` says what is kept of what was not flushed. It is not
    /// asked about what `rules` rule out, nor about sectors that differ from nothing.
    pub fn crash_keeping(&self, rules: CrashRules, keep: &mut dyn FnMut(Unsettled) -> bool) {
        self.state().crash(rules, keep);
    }

    /// The process died and the disk did not: operations work again and nothing is lost, but what
    /// was not flushed still is not.
    pub fn revive(&self) {
        let mut state = self.state();
        state.crash_after = None;
        for inode in state.inodes.values_mut() {
            inode.pending.retain(|change| change.is_done);
        }
    }

    /// A second disk with only what is durable now.
    #[must_use]
    pub fn durable_only(&self) -> Self {
        let disk = self.duplicate();
        disk.crash(&mut || 0);
        disk
    }

    /// Content of a file as a reader sees it; `None` if there is none.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.find(path)?;
        Some(state.inodes[&inode].live.to_vec())
    }

    /// Changes a file behind the back of everybody, durably: bit rot, or a careless hand.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.find(path).expect("the file to be edited");
        let inode = state.inodes.entry(inode).or_default();
        edit(Arc::make_mut(&mut inode.live));
        inode.durable = Arc::clone(&inode.live);
        inode.pending.clear();
    }

    /// Puts a file there, durably.
    pub fn put(&self, path: &Path, content: &[u8]) {
        let mut state = self.state();
        let inode = state.make_inode();
        let (dir, name) = split(path);
        let dir = state.dirs.entry(dir).or_default();
        dir.live.insert(name.clone(), inode);
        dir.durable.insert(name, inode);
        let inode = state.inodes.entry(inode).or_default();
        inode.live = Arc::new(content.to_vec());
        inode.durable = Arc::clone(&inode.live);
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_alive()?;
        state.dirs.entry(dir.to_path_buf()).or_default();
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.check_alive()?;
        Ok(state.dir(dir)?.live.keys().cloned().collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<SimFile> {
        let mut state = self.state();
        state.check_alive()?;
        let (dir, name) = split(path);
        let found = state.dir(&dir)?.live.get(&name).copied();
        let creates = matches!(mode, OpenMode::Create | OpenMode::CreateDirect);
        let inode = match found {
            Some(inode) => {
                if creates {
                    let is_done = state.begin_change()?;
                    let file = state.inodes.entry(inode).or_default();
                    file.change(ChangeKind::SetLen(0), is_done);
                }
                inode
            }
            None if creates => {
                state.begin_change()?;
                state.check_room(BLOCK_BYTES)?;
                let inode = state.make_inode();
                state.dir(&dir)?.change(DirChange::Set(name, inode));
                inode
            }
            None => return Err(not_found()),
        };
        state.check_alive()?;
        Ok(SimFile {
            disk: self.clone(),
            inode,
            is_direct: mode.is_direct(),
            life: state.life,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let ((dir, from), (to_dir, to)) = (split(from), split(to));
        assert_eq!(dir, to_dir, "a rename stays in its directory");
        state.begin_change()?;
        let entries = state.dir(&dir)?;
        if !entries.live.contains_key(&from) {
            return Err(not_found());
        }
        entries.change(DirChange::Rename(from, to));
        state.check_alive()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let (dir, name) = split(path);
        state.check_alive()?;
        if !state.dir(&dir)?.live.contains_key(&name) {
            return Err(not_found());
        }
        state.begin_change()?;
        state.dir(&dir)?.change(DirChange::Remove(name));
        state.check_alive()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        match state.begin_flush()? {
            Some(FlushFault::InDoubt | FlushFault::Gone) => return Err(failed_flush()),
            Some(FlushFault::Lost) => return Ok(()),
            None => {}
        }
        // The root and parents that nobody created are always durable.
        if let Ok(dir) = state.dir(dir) {
            dir.flush();
        }
        Ok(())
    }

    /// Different for every call, the same in every run.
    fn unique_id(&self) -> io::Result<[u8; 16]> {
        let mut state = self.state();
        state.check_alive()?;
        state.ids_made += 1;
        let mut id = [0x5a; 16];
        id[..8].copy_from_slice(&state.ids_made.to_be_bytes());
        Ok(id)
    }
}

impl SimFile {
    /// The disk's state, if this file is still open after all crashes.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.life != self.life {
            return Err(crashed());
        }
        Ok(state)
    }

    fn check_aligned(&self, at: u64, bytes: usize) -> io::Result<()> {
        let block = BLOCK_BYTES as u64;
        if self.is_direct && !(at.is_multiple_of(block) && bytes.is_multiple_of(BLOCK_BYTES)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let fault = state.begin_flush()?;
        let inode = state.inodes.entry(self.inode).or_default();
        match fault {
            None => inode.flush(),
            Some(FlushFault::Lost) => {}
            Some(FlushFault::InDoubt) => inode.doom(),
            Some(FlushFault::Gone) => inode.lose(),
        }
        match fault {
            None | Some(FlushFault::Lost) => Ok(()),
            Some(_) => Err(failed_flush()),
        }
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.state()?;
        state.check_alive()?;
        Ok(state.inodes[&self.inode].live.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        self.check_aligned(pos, buf.len())?;
        let mut state = self.state()?;
        state.check_alive()?;
        state.reads += 1;
        let number = state.reads;
        if let Some(kind) = take(&mut state.faults.read, number) {
            return Err(io::Error::from(kind));
        }
        let inode = &state.inodes[&self.inode];
        let content = &inode.live;
        let start = usize::try_from(pos)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let count = buf.len().min(content.len() - start);
        if !inode.can_read(start, count) {
            return Err(unreadable());
        }
        buf[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        self.check_aligned(pos, buf.len())?;
        let mut state = self.state()?;
        let is_done = state.begin_change()?;
        state.writes += 1;
        let number = state.writes;
        let at = usize::try_from(pos).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut taken = buf.len();
        match take(&mut state.faults.write, number) {
            None => {}
            Some(WriteFault::Fails(kind)) => return Err(io::Error::from(kind)),
            Some(WriteFault::Short(bytes)) => taken = taken.min(bytes),
            Some(WriteFault::Lost) => return Ok(taken),
            Some(WriteFault::Misdirected { path, at }) => {
                let other = state.find(&path).expect("the file that a write strays to");
                let other = state.inodes.entry(other).or_default();
                overlay_all(other, at as usize, buf);
                return Ok(taken);
            }
        }
        let growth = (at + taken).saturating_sub(state.inodes[&self.inode].live.len());
        if growth > 0 {
            state.check_room(growth)?;
        }
        let data = Bytes::copy_from_slice(&buf[..taken]);
        let inode = state.inodes.entry(self.inode).or_default();
        inode.change(ChangeKind::Write { at, data }, is_done);
        if !is_done {
            return Err(crashed());
        }
        Ok(taken)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let is_done = state.begin_change()?;
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let inode = state.inodes.entry(self.inode).or_default();
        inode.change(ChangeKind::SetLen(len), is_done);
        state.check_alive()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.flush()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.flush()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({} operations)", self.operations())
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.inode)
    }
}

/// Puts `data` into every image of a file.
fn overlay_all(inode: &mut Inode, at: usize, data: &[u8]) {
    for image in [&mut inode.live, &mut inode.durable] {
        let image: &mut Vec<u8> = Arc::make_mut(image);
        overlay(image, at, data);
    }
}
