//! Before a directory is used: can its file system hold a log, and does nobody else use it? Real
//! files only; the simulator has no say here.

use crate::segment::BLOCK_BYTES;
use quorate_ring::AlignedBuf;
use rustix::fs::{AtFlags, FlockOperation, IFlags, StatxFlags};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PROBE_NAME: &str = ".quorate_probe";
const LOCK_NAME: &str = ".lock";

/// A directory that can hold a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir {
    /// What direct I/O must be aligned to, in bytes, as the kernel says; at most [`BLOCK_BYTES`].
    pub alignment: u32,
    /// Kind of file system.
    pub fs_kind: FsKind,
}

/// Kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// ext2, ext3 or ext4: they share a number.
    Ext4,
    /// XFS.
    Xfs,
    /// F2FS.
    F2fs,
    /// btrfs, durable for us only without copy-on-write.
    Btrfs,
    /// In memory.
    Tmpfs,
    /// In memory.
    Ramfs,
    /// A layer over another file system, as in a container.
    Overlay,
    /// Over the network.
    Nfs,
    /// In user space.
    Fuse,
    /// ZFS.
    Zfs,
    /// bcachefs.
    Bcachefs,
    /// Another, by the number that statfs gives.
    Other(u64),
}

impl FsKind {
    fn of(magic: u64) -> Self {
        match magic {
            0xef53 => Self::Ext4,
            0x5846_5342 => Self::Xfs,
            0xf2f5_2010 => Self::F2fs,
            0x9123_683e => Self::Btrfs,
            0x0102_1994 => Self::Tmpfs,
            0x8584_58f6 => Self::Ramfs,
            0x794c_7630 => Self::Overlay,
            0x6969 => Self::Nfs,
            0x6573_5546 => Self::Fuse,
            0x2fc1_2fc1 => Self::Zfs,
            0xca45_1a4e => Self::Bcachefs,
            other => Self::Other(other),
        }
    }

    /// Whether a completed flush there is durable, and an overwritten block torn at most by sector.
    fn is_durable(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::F2fs | Self::Btrfs)
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::F2fs => "f2fs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Ramfs => "ramfs",
            Self::Overlay => "overlayfs",
            Self::Nfs => "nfs",
            Self::Fuse => "fuse",
            Self::Zfs => "zfs",
            Self::Bcachefs => "bcachefs",
            Self::Other(magic) => return write!(f, "unknown (statfs says {magic:#x})"),
        })
    }
}

/// Why a directory can't hold a log. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The file system is not known to keep what it flushed.
    #[error(
        "{} is on a file system of kind {kind}, which is not known to keep what it has flushed; \
         use a directory on ext4, xfs or f2fs", dir.display()
    )]
    NotDurable {
        /// The directory.
        dir: PathBuf,
        /// Its file system.
        kind: FsKind,
    },
    /// btrfs with copy-on-write.
    #[error(
        "{} is on btrfs with copy-on-write; switch it off with `chattr +C` on the empty directory, \
         or use ext4, xfs or f2fs", dir.display()
    )]
    CopyOnWrite {
        /// The directory.
        dir: PathBuf,
    },
    /// Direct I/O is not possible.
    #[error("{} (on {kind}) does not offer direct I/O, which the log needs", dir.display())]
    NoDirectIo {
        /// The directory.
        dir: PathBuf,
        /// Its file system.
        kind: FsKind,
    },
    /// Direct I/O needs larger blocks than the log writes.
    #[error(
        "{} needs direct I/O aligned to {alignment} bytes; the log writes blocks of 4096",
        dir.display()
    )]
    Alignment {
        /// The directory.
        dir: PathBuf,
        /// What the kernel asks for.
        alignment: u32,
    },
    /// Something failed while trying.
    #[error("cannot {what} in {}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the file system said.
        source: io::Error,
    },
}

/// Checks that `dir` can hold a log: a durable kind of file system, direct I/O in blocks of at most
/// 4096 bytes, and a probe file that can be written and flushed that way. The probe is removed
/// again.
///
/// # Errors
/// The first thing that is missing, by name.
pub fn check_data_dir(dir: &Path) -> Result<DataDir, DataDirError> {
    let failed = |what| {
        move |source| DataDirError::Io {
            dir: dir.to_path_buf(),
            what,
            source,
        }
    };
    let stat = rustix::fs::statfs(dir).map_err(|e| failed("ask for the file system")(e.into()))?;
    // The number has 32 bits; the kernel's type for it is wider and signed.
    let fs_kind = FsKind::of((stat.f_type as u64) & 0xffff_ffff);
    if !fs_kind.is_durable() {
        return Err(DataDirError::NotDurable {
            dir: dir.to_path_buf(),
            kind: fs_kind,
        });
    }
    let path = dir.join(PROBE_NAME);
    let alignment = probe(dir, &path, fs_kind);
    let removed = std::fs::remove_file(&path);
    let alignment = alignment?;
    removed.map_err(failed("remove the probe file"))?;
    Ok(DataDir { alignment, fs_kind })
}

fn probe(dir: &Path, path: &Path, kind: FsKind) -> Result<u32, DataDirError> {
    let failed = |what| {
        move |source| DataDirError::Io {
            dir: dir.to_path_buf(),
            what,
            source,
        }
    };
    let no_direct_io = || DataDirError::NoDirectIo {
        dir: dir.to_path_buf(),
        kind,
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let opened = options.custom_flags(libc::O_DIRECT).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => no_direct_io(),
        _ => failed("create a probe file")(error),
    })?;
    if kind == FsKind::Btrfs && is_copy_on_write(&file) {
        return Err(DataDirError::CopyOnWrite {
            dir: dir.to_path_buf(),
        });
    }
    let alignment = direct_alignment(&file).map_err(failed("ask for the alignment"))?;
    if alignment == 0 {
        return Err(no_direct_io());
    }
    if alignment as usize > BLOCK_BYTES || !BLOCK_BYTES.is_multiple_of(alignment as usize) {
        return Err(DataDirError::Alignment {
            dir: dir.to_path_buf(),
            alignment,
        });
    }
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    file.write_all_at(&block, 0)
        .map_err(failed("write a block directly"))?;
    file.sync_all().map_err(failed("flush a file"))?;
    Ok(alignment)
}

/// The larger of what memory and positions must be aligned to; 0 without direct I/O.
fn direct_alignment(file: &File) -> io::Result<u32> {
    let wanted = StatxFlags::DIOALIGN;
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let is_known = stat.stx_mask & wanted.bits() != 0;
    if !is_known || stat.stx_dio_offset_align == 0 {
        return Ok(0);
    }
    Ok(stat.stx_dio_mem_align.max(stat.stx_dio_offset_align))
}

fn is_copy_on_write(file: &File) -> bool {
    match rustix::fs::ioctl_getflags(file) {
        Ok(flags) => !flags.contains(IFlags::NOCOW),
        Err(_) => true,
    }
}

/// The right to use a directory, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: OwnedFd,
}

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "{} is in use by another process (it holds {})",
        dir.display(), dir.join(LOCK_NAME).display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The lock file could not be opened or locked.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Locks `dir` for this process. The kernel holds the lock, so it is gone with its holder however
/// that ends; what is in the file `.lock` never matters.
///
/// # Errors
/// `InUse` at once if another process has it.
pub fn lock_dir(dir: &Path) -> Result<DirLock, LockError> {
    let path = dir.join(LOCK_NAME);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = match options.open(&path) {
        Ok(file) => OwnedFd::from(file),
        Err(source) => return Err(LockError::Io { path, source }),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(DirLock { _file: file }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::InUse {
            dir: dir.to_path_buf(),
        }),
        Err(error) => Err(LockError::Io {
            path,
            source: error.into(),
        }),
    }
}
