//! A disk in memory that loses, tears and fails, for the simulator and the crash tests. It runs the
//! same storage code as the real one; it has no say in what that code does.
//!
//! Every file has a live and a durable image. A flush makes the pending changes of one file
//! durable, a directory flush those of one directory. A crash keeps of what was not flushed:
//! - of writes, any sectors (the rest is as before), so that any can be there without any other;
//! - of changes of a file's length, the first few, in order;
//! - of a directory's changes, the first few, in order.
//!
//! A failed flush leaves its writes in doubt: no later flush makes them durable, and a crash may
//! keep them, unless something newer that was flushed stands in their place. Lengths of files are
//! the file system's own: a later flush covers them.

mod state;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::segment::BLOCK_BYTES;
use state::{ChangeKind, DirChange, State, crashed, failed_flush, not_found, split};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        let mut state = self.state();
        state.fail_flush = Some(state.flushes + nth);
    }

    /// Makes the `nth` write from now on (1: the next) fail with `kind`, without an effect.
    pub fn fail_write(&self, nth: u64, kind: io::ErrorKind) {
        let mut state = self.state();
        state.fail_write = Some((state.writes + nth, kind));
    }

    /// The power goes and comes back: what was not flushed is kept or lost by chance. Files that
    /// are open become useless. `random` gives numbers of which every bit counts.
    pub fn crash(&self, random: &mut dyn FnMut() -> u64) {
        self.state().crash(random);
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
        disk.state().crash(&mut || 0);
        disk
    }

    /// Content of a file as a reader sees it; `None` if there is none.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.find(path)?;
        Some(state.inodes[&inode].live.clone())
    }

    /// Changes a file behind the back of everybody, durably: bit rot, or a careless hand.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.find(path).expect("the file to be edited");
        let inode = state.inodes.entry(inode).or_default();
        edit(&mut inode.live);
        inode.durable = inode.live.clone();
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
        inode.live = content.to_vec();
        inode.durable = content.to_vec();
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
        state.begin_flush()?;
        if state.flush_fails() {
            return Err(failed_flush());
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
        state.begin_flush()?;
        let fails = state.flush_fails();
        let inode = state.inodes.entry(self.inode).or_default();
        if fails {
            for change in &mut inode.pending {
                change.is_doomed = !change.kind.is_resize();
            }
            return Err(failed_flush());
        }
        inode.flush();
        Ok(())
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
        let state = self.state()?;
        state.check_alive()?;
        let content = &state.inodes[&self.inode].live;
        let start = usize::try_from(pos)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let count = buf.len().min(content.len() - start);
        buf[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        self.check_aligned(pos, buf.len())?;
        let mut state = self.state()?;
        let is_done = state.begin_change()?;
        state.writes += 1;
        let number = state.writes;
        if let Some((_, kind)) = state.fail_write.take_if(|(nth, _)| *nth == number) {
            return Err(io::Error::from(kind));
        }
        let kind = ChangeKind::Write {
            at: usize::try_from(pos).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?,
            data: buf.to_vec(),
        };
        state
            .inodes
            .entry(self.inode)
            .or_default()
            .change(kind, is_done);
        if !is_done {
            return Err(crashed());
        }
        Ok(buf.len())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> &'static Path {
        Path::new("/d")
    }

    /// A disk with one durable file of two blocks of ones.
    fn disk_with_file() -> (SimDisk, SimFile) {
        let disk = SimDisk::new();
        disk.create_dir_all(dir()).unwrap();
        let file = disk.open(&dir().join("f"), OpenMode::Create).unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(dir()).unwrap();
        (disk, file)
    }

    fn counter(start: u64) -> impl FnMut() -> u64 {
        let mut word = start.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        move || {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed ^ (mixed >> 29)
        }
    }

    #[test]
    fn what_was_flushed_survives_and_the_rest_is_old_or_new_by_sector() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (disk, file) = disk_with_file();
            file.write_at(&[2; 4096], 4096).unwrap();
            disk.crash(&mut counter(seed));
            let content = disk.content(&dir().join("f")).unwrap();
            assert_eq!(content[..4096], [1; 4096]);
            for sector in content.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
            }
            seen.insert(content);
        }
        assert!(seen.len() > 10, "{} images", seen.len());
    }

    #[test]
    fn a_name_that_was_not_flushed_can_be_lost() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..50 {
            let (disk, _) = disk_with_file();
            disk.rename(&dir().join("f"), &dir().join("g")).unwrap();
            disk.crash(&mut counter(seed));
            let names = disk.list(dir()).unwrap();
            kept += i32::from(names == ["g"]);
            lost += i32::from(names == ["f"]);
        }
        assert_eq!(kept + lost, 50);
        assert!(kept > 5 && lost > 5);
    }

    #[test]
    fn a_failed_flush_is_never_made_good_by_a_later_one() {
        let (disk, file) = disk_with_file();
        file.write_at(&[3; 4096], 0).unwrap();
        disk.fail_flush(1);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
        let durable = disk.durable_only();
        assert_eq!(durable.content(&dir().join("f")).unwrap()[0], 1);
    }

    /// A node whose flush failed starts again on the same disk, writes the doubtful bytes once
    /// more, cuts the file and flushes. What was in doubt must not come back over that.
    #[test]
    fn what_stands_over_a_failed_flush_or_was_cut_off_since_stays_as_it_is() {
        for seed in 0..50 {
            let (disk, file) = disk_with_file();
            file.write_at(&[3; 8192], 4096).unwrap();
            disk.fail_flush(1);
            assert!(file.sync_data().is_err());
            file.write_at(&[4; 4096], 4096).unwrap();
            file.set_len(10_000).unwrap();
            file.sync_data().unwrap();
            disk.crash(&mut counter(seed));
            let content = disk.content(&dir().join("f")).unwrap();
            assert_eq!(content.len(), 10_000);
            assert_eq!(content[4096..8192], [4; 4096]);
            assert!(content[8192..].iter().all(|byte| [0, 3].contains(byte)));
        }
    }

    #[test]
    fn a_crashed_disk_answers_nothing_until_it_is_back() {
        let (disk, file) = disk_with_file();
        disk.crash_after(disk.operations());
        assert!(file.write_at(&[4; 4096], 0).is_err());
        assert!(disk.is_crashed());
        assert!(file.read_at(&mut [0; 16], 0).is_err());
        assert!(disk.list(dir()).is_err());
        disk.crash(&mut || 0);
        assert_eq!(disk.list(dir()).unwrap(), ["f"]);
        assert!(file.len().is_err(), "a file of an earlier life");
    }

    #[test]
    fn direct_files_refuse_what_is_not_aligned() {
        let (disk, _) = disk_with_file();
        let file = disk.open(&dir().join("f"), OpenMode::Direct).unwrap();
        assert!(file.write_at(&[0; 100], 0).is_err());
        assert!(file.write_at(&[0; 4096], 512).is_err());
        assert!(file.write_at(&[0; 4096], 4096).is_ok());
    }
}
