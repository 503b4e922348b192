//! The file operations that storage needs, as a trait, so that the simulator can run the same code
//! on a disk that tears, loses and fails. Never decides what is written or when.
//!
//! What is asked of every disk: D1, what a completed flush covers is durable. D2, after a crash
//! each sector of an unflushed write is old or new, and all other sectors are untouched.

use std::fmt;
use std::io;
use std::path::Path;

/// How [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Buffered, to read; the file must exist.
    Read,
    /// Buffered, to write and read; created, or emptied if it exists.
    Create,
    /// O_DIRECT, to write and read; the file must exist.
    Direct,
    /// O_DIRECT, to write and read; created, or emptied if it exists.
    CreateDirect,
}

impl OpenMode {
    /// Whether the file bypasses the page cache: positions, lengths and memory must be aligned.
    #[must_use]
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::CreateDirect)
    }
}

/// A file system, as far as storage uses one. Cloning gives another handle of the same one.
///
/// Every operation blocks; none belongs on a loop that answers peers.
pub trait Disk: Clone + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// Creates `dir` and its parents; no error if it exists.
    ///
    /// # Errors
    /// What the file system says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Names of the files in `dir`, sorted. Directories are left out.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a file.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if the mode asks for an existing file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Self::File>;

    /// Length of a file in bytes, without opening it where that is possible.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if there is no such file.
    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        self.open(path, OpenMode::Read)?.len()
    }

    /// Gives `from` the name `to` in the same directory, replacing a file of that name. Atomic;
    /// durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the file system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in `dir` durable.
    ///
    /// # Errors
    /// What the file system says. Final: a failed flush is never tried again.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Sixteen bytes that no other log has and that no client can know.
    ///
    /// # Errors
    /// What the source of randomness says.
    fn unique_id(&self) -> io::Result<[u8; 16]>;
}

/// An open file of a [`Disk`]. Positions and lengths in bytes.
pub trait DiskFile: Send + Sync + fmt::Debug + 'static {
    /// Length of the file.
    ///
    /// # Errors
    /// What the file system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads at `pos`; may give fewer bytes than asked, 0 only at the end of the file.
    ///
    /// # Errors
    /// What the file system says; `Interrupted` may be tried again.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize>;

    /// Writes at `pos`; may take fewer bytes than given.
    ///
    /// # Errors
    /// What the file system says; `Interrupted` may be tried again.
    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize>;

    /// Cuts or extends (with zeros) the file to `len`.
    ///
    /// # Errors
    /// What the file system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the content durable, and of the metadata what reading it needs (fdatasync).
    ///
    /// # Errors
    /// What the file system says. Final: a failed flush is never tried again.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes content and metadata durable (fsync).
    ///
    /// # Errors
    /// As [`DiskFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
}

/// How often a write or read that was interrupted or cut short is tried again before it counts as
/// failed. Named so that no loop is endless; real interruptions come once or twice.
const ATTEMPTS_MAX: usize = 64;

/// Whether a failed read or write (never a flush) may simply be done again.
pub(crate) fn is_retriable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

/// Writes all of `buf`, aligned to whole blocks, at `pos`. A short or interrupted write is done
/// again from the start: continuing in the middle of a block is not possible with O_DIRECT.
///
/// # Errors
/// The first error that is not an interruption; `WriteZero` if the file takes only a part each
/// time.
pub(crate) fn write_blocks(file: &impl DiskFile, buf: &[u8], pos: u64) -> io::Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        match file.write_at(buf, pos) {
            Ok(written) if written == buf.len() => return Ok(()),
            Ok(_) => {}
            Err(error) if is_retriable(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::WriteZero))
}

/// Writes all of `buf` at `pos` to a buffered file, continuing after short writes.
///
/// # Errors
/// As [`write_blocks`].
pub(crate) fn write_all(file: &impl DiskFile, mut buf: &[u8], mut pos: u64) -> io::Result<()> {
    let mut idle = 0;
    while !buf.is_empty() {
        let written = match file.write_at(buf, pos) {
            Ok(written) => written,
            Err(error) if is_retriable(&error) => 0,
            Err(error) => return Err(error),
        };
        idle = if written == 0 { idle + 1 } else { 0 };
        if idle == ATTEMPTS_MAX {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
        buf = &buf[written..];
        pos += written as u64;
    }
    Ok(())
}

/// Fills `buf` from `pos` on as far as the file goes and returns how far that was. A short read is
/// never taken for the end of the file: only a read of nothing is.
///
/// # Errors
/// The first error that is not an interruption.
pub(crate) fn read_full(file: &impl DiskFile, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    let mut filled = 0;
    let mut idle = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], pos + filled as u64) {
            Ok(0) => break,
            Ok(count) => {
                filled += count;
                idle = 0;
            }
            Err(error) if is_retriable(&error) && idle < ATTEMPTS_MAX => idle += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The whole content of a small file, at most `max` bytes of it.
///
/// # Errors
/// What the file system says; `FileTooLarge` if the file is longer than `max`.
pub(crate) fn read_file<D: Disk>(disk: &D, path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    if len > max {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut content = vec![0; len];
    let filled = read_full(&file, &mut content, 0)?;
    content.truncate(filled);
    Ok(content)
}

/// Replaces the file `name` in `dir` by `content`, so that after a crash the old or the new content
/// is there and never a mixture: temporary name, fsync, rename, fsync of the directory.
///
/// # Errors
/// What the file system says. The old file is untouched unless the rename was done.
pub(crate) fn write_file_atomically<D: Disk>(
    disk: &D,
    dir: &Path,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let file = disk.open(&temporary, OpenMode::Create)?;
    write_all(&file, content, 0)?;
    file.sync_all()?;
    drop(file);
    disk.rename(&temporary, &dir.join(name))?;
    disk.sync_dir(dir)
}

/// `path` as a file of `disk`, or `None` if there is none.
///
/// # Errors
/// Everything but `NotFound`.
pub(crate) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
