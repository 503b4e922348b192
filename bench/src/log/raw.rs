//! A bare ring: the writes and flushes of the engine's groups, from buffers that are ready, with
//! nothing computed, copied or remembered.

use quorate::disk_io::FlushMethod;
use quorate_ring::{AlignedBuf, Completion, CompletionKind, Ring, RingConfig, Wait};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

const BLOCK: u64 = 4096;

/// A prepared file like a segment, and a ring. The writes go round.
pub(crate) struct Raw {
    ring: Ring,
    file: Arc<OwnedFd>,
    method: FlushMethod,
    data: Option<AlignedBuf>,
    mark: Option<AlignedBuf>,
    /// Where the last group ended.
    position: u64,
    groups: u64,
    data_bytes: u64,
    done: Vec<Completion>,
}

impl Raw {
    pub(crate) fn open(
        path: &Path,
        file_bytes: u64,
        group_bytes_max: u64,
        method: FlushMethod,
    ) -> Result<Self, Box<dyn Error>> {
        let mut ring = Ring::new(&RingConfig {
            engine: super::ENGINE,
            entries: 16,
            disk_threads: method.needs_disk_threads(),
        })?;
        let file: Arc<OwnedFd> = Arc::new(zeroed(path, file_bytes)?.into());
        let mut data = AlignedBuf::zeroed((group_bytes_max + BLOCK) as usize);
        data.fill(0x5a);
        ring.register_file(&file)?;
        ring.register_buffers(&mut [&mut data])?;
        Ok(Self {
            ring,
            file,
            method,
            data: Some(data),
            mark: Some(AlignedBuf::zeroed(BLOCK as usize)),
            position: 0,
            groups: 0,
            data_bytes: file_bytes - 2 * BLOCK,
            done: Vec::new(),
        })
    }

    /// Makes a group of so many bytes durable, behind the last.
    pub(crate) fn group(&mut self, bytes: u64) -> Result<(), Box<dyn Error>> {
        if self.position + bytes > self.data_bytes {
            self.position = 0;
        }
        let first = self.position / BLOCK * BLOCK;
        self.position += bytes;
        let mut data = self.data.take().ok_or("a group is under way")?;
        data.set_len((self.position.div_ceil(BLOCK) * BLOCK - first) as usize);
        let mark = self.mark.take().ok_or("a group is under way")?;
        let mark_at = self.data_bytes + self.groups % 2 * BLOCK;
        self.groups += 1;
        let is_chain = matches!(self.method, FlushMethod::Linked | FlushMethod::Thread);
        for (user, position, buf) in [(1, first, data), (2, mark_at, mark)] {
            match self.method {
                FlushMethod::Dsync => {
                    self.ring
                        .write_dsync(&self.file, position, buf, user, false);
                }
                _ => self.ring.write(&self.file, position, buf, user, is_chain),
            }
        }
        match self.method {
            FlushMethod::Dsync => self.wait_for(2),
            FlushMethod::Parallel => {
                self.wait_for(2)?;
                self.ring.fdatasync(&self.file, 3);
                self.wait_for(1)
            }
            FlushMethod::Linked | FlushMethod::Thread => {
                self.ring.fdatasync(&self.file, 3);
                self.wait_for(3)
            }
        }
    }

    fn wait_for(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        let mut ended = 0;
        while ended < count {
            let Self { ring, done, .. } = self;
            ring.turn(Wait::Until { timeout: None }, done)?;
            for Completion { user, kind } in done.drain(..) {
                ended += 1;
                match kind {
                    CompletionKind::Wrote { buf, result } => {
                        let is_whole = result? == buf.len();
                        let place = if user == 1 {
                            &mut self.data
                        } else {
                            &mut self.mark
                        };
                        *place = Some(buf);
                        if !is_whole {
                            return Err("a short write".into());
                        }
                    }
                    CompletionKind::Flushed(result) => result?,
                    other => return Err(format!("never asked for: {other:?}").into()),
                }
            }
        }
        Ok(())
    }
}

/// A file of zeros for direct I/O, without a name.
pub(super) fn zeroed(path: &Path, bytes: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = options.custom_flags(libc::O_DIRECT).open(path)?;
    std::fs::remove_file(path)?;
    let zeros = AlignedBuf::zeroed(1 << 20);
    let mut at = 0;
    while at < bytes {
        let count = (bytes - at).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..count], at)?;
        at += count as u64;
    }
    file.sync_all()?;
    Ok(file)
}
