//! The disk under test: a simulated one, and deliberate mistakes between it and the storage code
//! that the harness must find.

use quorate_storage::sim_disk::{SimDisk, SimFile};
use quorate_storage::{BLOCK_BYTES, Disk, DiskFile, OpenMode};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A mistake that storage code, or whoever drives it, could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A truncation leaves the file as long as it was.
    NothingIsCut,
    /// A prepared segment has the bytes of one that was removed instead of zeros.
    NothingIsZeroed,
    /// The marks are not looked at: recovery cuts at the first bad batch, as Kafka does.
    MarksAreIgnored,
    /// Directories are never flushed.
    DirectoriesAreNotFlushed,
    /// Recovery reports what can be read, without making it durable.
    RecoveryDoesNotFlush,
    /// The write of the group before, with the same tail block, is still on its way and lands last.
    TailIsWrittenTwice,
    /// A group is flushed before its data is written.
    FlushOvertakesWrite,
    /// What is flushed counts, whichever truncation came in between.
    OldGenerationCounts,
}

/// A simulated disk, or one with a mistake. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct TestDisk {
    pub sim: SimDisk,
    pub mistake: Option<Mistake>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    is_recovering: bool,
    /// The last log file that lost its name.
    removed: Vec<u8>,
}

#[derive(Debug)]
pub struct TestFile {
    file: SimFile,
    disk: TestDisk,
    is_spare: bool,
    is_log: bool,
}

impl TestDisk {
    pub fn new(mistake: Option<Mistake>) -> Self {
        Self::around(SimDisk::new(), mistake)
    }

    fn around(sim: SimDisk, mistake: Option<Mistake>) -> Self {
        Self {
            sim,
            mistake,
            shared: Arc::default(),
        }
    }

    pub fn duplicate(&self) -> Self {
        Self::around(self.sim.duplicate(), self.mistake)
    }

    pub fn set_recovering(&self, is_recovering: bool) {
        self.shared.lock().unwrap().is_recovering = is_recovering;
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Keeps what is about to lose its name.
    fn keep_removed(&self, path: &Path) {
        if let Some(content) = self.sim.content(path) {
            self.shared.lock().unwrap().removed = content;
        }
    }
}

impl std::fmt::Debug for TestDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.sim, self.mistake)
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

impl Disk for TestDisk {
    type File = TestFile;

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.sim.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.sim.list(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<TestFile> {
        // Without its identity a log is taken for Kafka's.
        if self.has(Mistake::MarksAreIgnored)
            && mode == OpenMode::Read
            && path.ends_with("quorate-log")
        {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(TestFile {
            file: self.sim.open(path, mode)?,
            disk: self.clone(),
            is_spare: path.ends_with("segment.spare.tmp"),
            is_log: is_log(path),
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if is_log(to) {
            self.keep_removed(to);
        }
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if is_log(path) {
            self.keep_removed(path);
        }
        self.sim.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.has(Mistake::DirectoriesAreNotFlushed) {
            return Ok(());
        }
        self.sim.sync_dir(dir)
    }

    fn unique_id(&self) -> io::Result<[u8; 16]> {
        self.sim.unique_id()
    }
}

impl TestFile {
    /// Whether a flush of the file is left out.
    fn is_not_flushed(&self) -> bool {
        self.disk.has(Mistake::RecoveryDoesNotFlush)
            && self.is_log
            && self.disk.shared.lock().unwrap().is_recovering
    }

    /// `buf` with old batches where it is zero; marks are as they should be.
    fn recycled(&self, buf: &[u8], pos: u64) -> Vec<u8> {
        let mut old = self.disk.shared.lock().unwrap().removed.clone();
        old.resize(pos as usize + buf.len(), 0);
        let mut out = buf.to_vec();
        let blocks = out.chunks_exact_mut(BLOCK_BYTES);
        for (block, old) in blocks.zip(old[pos as usize..].chunks_exact(BLOCK_BYTES)) {
            if block.iter().all(|byte| *byte == 0) && !old.starts_with(b"QRTMARK") {
                block.copy_from_slice(old);
            }
        }
        out
    }

    /// A block of a mark, for the mistake that does not look at it.
    fn blank_marks(&self, buf: &mut [u8]) {
        for block in buf.chunks_exact_mut(BLOCK_BYTES) {
            if block.starts_with(b"QRTMARK") {
                block.fill(0);
            }
        }
    }
}

impl DiskFile for TestFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let count = self.file.read_at(buf, pos)?;
        if self.disk.has(Mistake::MarksAreIgnored) {
            self.blank_marks(&mut buf[..count]);
        }
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        if self.is_spare && self.disk.has(Mistake::NothingIsZeroed) {
            return self.file.write_at(&self.recycled(buf, pos), pos);
        }
        self.file.write_at(buf, pos)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.disk.has(Mistake::NothingIsCut) {
            return Ok(());
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.is_not_flushed() {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        if self.is_not_flushed() {
            return Ok(());
        }
        self.file.sync_all()
    }
}
