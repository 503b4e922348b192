//! The real disk: files of the operating system. The log writer's groups go to the same file
//! descriptors through the ring; everything else comes through here, on a background thread.

use crate::disk::{Disk, DiskFile, OpenMode};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileDisk;

/// An open file. Cloning shares the descriptor.
#[derive(Clone, Debug)]
pub struct LogFile {
    fd: Arc<OwnedFd>,
}

impl LogFile {
    /// The descriptor, for whoever writes through a ring. It stays open as long as any clone of it.
    #[must_use]
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
}

impl Disk for FileDisk {
    type File = LogFile;

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        std::fs::create_dir_all(dir)?;
        // The new directory's own name is an entry of its parent.
        match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.sync_dir(parent),
            _ => self.sync_dir(Path::new(".")),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<LogFile> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Direct => {
                options.write(true);
            }
            OpenMode::Create | OpenMode::CreateDirect => {
                options.write(true).create(true).truncate(true);
            }
        }
        if mode.is_direct() {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(path)?;
        let fd = Arc::new(OwnedFd::from(file));
        Ok(LogFile { fd })
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn unique_id(&self) -> io::Result<[u8; 16]> {
        let mut id = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut id)?;
        Ok(id)
    }
}

impl DiskFile for LogFile {
    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&*self.fd)?;
        u64::try_from(stat.st_size).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&*self.fd, buf, pos)?)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&*self.fd, buf, pos)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&*self.fd, len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&*self.fd)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&*self.fd)?)
    }
}
