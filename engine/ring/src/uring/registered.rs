//! Buffers and a file that the kernel keeps ready for a ring, so that it need not look up pages and
//! descriptors for each operation.
//!
//! Only ever a shortcut: an operation on anything else works the same. The kernel holds the pages
//! of a registered buffer and the registered file until the ring is gone or they are replaced.

use crate::buffer::{AlignedBuf, Registration};
use crate::op::{Known, Op};
use io_uring::Submitter;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The next ring's number.
static RINGS: AtomicU32 = AtomicU32::new(1);

/// What one ring was told of.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// Number of the ring, once it has buffers: a buffer may meet another ring later.
    ring: Option<u32>,
    file: Option<Arc<OwnedFd>>,
    /// Whether the kernel has a table of files for the ring.
    has_table: bool,
}

impl Registered {
    /// By what numbers the kernel knows what `op` works on.
    pub(super) fn known(&self, op: &Op) -> Known {
        let buffer = op.written_buffer().and_then(AlignedBuf::registration);
        let ours = buffer.filter(|buffer| Some(buffer.ring) == self.ring);
        let is_known = |file| self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file));
        Known {
            buffer: ours.map(|buffer| buffer.index),
            file: op.file().is_some_and(is_known).then_some(0),
        }
    }

    pub(super) fn add_buffers(
        &mut self,
        submitter: &Submitter<'_>,
        bufs: &mut [&mut AlignedBuf],
    ) -> io::Result<()> {
        assert_eq!(self.ring, None, "a ring registers its buffers once");
        let pages = |buf: &mut &mut AlignedBuf| libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.capacity(),
        };
        let ranges: Vec<libc::iovec> = bufs.iter_mut().map(pages).collect();
        // SAFETY: the ranges are allocated and initialised. The kernel pins their pages, so what it
        // later writes from them is memory even if a buffer were freed before; and it reads or
        // writes there only for an operation, which owns its buffer.
        unsafe { submitter.register_buffers(&ranges) }?;
        let ring = RINGS.fetch_add(1, Ordering::Relaxed);
        self.ring = Some(ring);
        for (index, buf) in bufs.iter_mut().enumerate() {
            let index = u16::try_from(index).expect("the kernel takes fewer than 65536");
            buf.set_registration(Registration { ring, index });
        }
        Ok(())
    }

    pub(super) fn set_file(
        &mut self,
        submitter: &Submitter<'_>,
        file: &Arc<OwnedFd>,
        idle: bool,
    ) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file)) {
            return Ok(());
        }
        // Nothing goes by the number any more; what still does must not meet another file.
        self.file = None;
        if !idle {
            return Ok(());
        }
        if !self.has_table {
            submitter.register_files_sparse(1)?;
            self.has_table = true;
        }
        submitter.register_files_update(0, &[file.as_raw_fd()])?;
        self.file = Some(Arc::clone(file));
        Ok(())
    }
}
