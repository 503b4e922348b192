//! Memory for direct I/O: whole 4 KiB blocks, aligned to 4 KiB.
//!
//! Never shared: an `AlignedBuf` has one owner, which may be an operation in flight.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of the memory of every [`AlignedBuf`] and unit of its length, in bytes. Covers the
/// direct-I/O alignment of all common disks (512 and 4096).
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Bytes fit for O_DIRECT: address and length are multiples of [`BUFFER_ALIGNMENT`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    /// Bytes in use; a multiple of the alignment, never 0, at most `capacity`.
    len: usize,
    /// Bytes allocated and initialised; a multiple of the alignment.
    capacity: usize,
    registration: Option<Registration>,
}

/// Where the kernel knows a buffer's pages, so that it need not look them up for each operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The ring that it is registered with.
    pub(crate) ring: u32,
    pub(crate) index: u16,
}

// SAFETY: the memory is owned by this value alone, like that of a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads, like that of a Box<[u8]>.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of at least `len` bytes, rounded up to whole blocks (one block for 0).
    ///
    /// # Panics
    /// If `len` does not fit into memory (above `isize::MAX` when rounded up).
    pub fn zeroed(len: usize) -> AlignedBuf {
        let layout = layout_of(len);
        // SAFETY: the layout's size is at least one block, so never zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuf {
                start,
                len: layout.size(),
                capacity: layout.size(),
                registration: None,
            },
            None => handle_alloc_error(layout),
        }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// The longest that it can be, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it `len` bytes long, rounded up to whole blocks (one block for 0). What it gains has
    /// the content that it last had there.
    ///
    /// # Panics
    /// If that is more than its capacity.
    pub fn set_len(&mut self, len: usize) {
        let size = layout_of(len).size();
        let capacity = self.capacity;
        assert!(size <= capacity, "a length of {len} in {capacity} bytes");
        self.len = size;
    }

    pub(crate) fn registration(&self) -> Option<Registration> {
        self.registration
    }

    pub(crate) fn set_registration(&mut self, registration: Registration) {
        self.registration = Some(registration);
    }
}

fn layout_of(len: usize) -> Layout {
    let blocks = len.div_ceil(BUFFER_ALIGNMENT).max(1);
    let size = blocks.checked_mul(BUFFER_ALIGNMENT);
    size.and_then(|size| Layout::from_size_align(size, BUFFER_ALIGNMENT).ok())
        .unwrap_or_else(|| panic!("a buffer of {len} bytes is more than memory can hold"))
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `capacity` initialised bytes, at least `len`, that live as long
        // as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let layout = layout_of(self.capacity);
        // SAFETY: allocated in `zeroed` with this same layout and freed only here.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_whole_aligned_zeroed_blocks() {
        for (asked, got) in [
            (0, 4096),
            (1, 4096),
            (4096, 4096),
            (4097, 8192),
            (1 << 20, 1 << 20),
        ] {
            let mut buf = AlignedBuf::zeroed(asked);
            assert_eq!(buf.len(), got);
            assert_eq!(buf.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf[got - 1] = 7;
            assert_eq!(buf[got - 1], 7);
        }
    }

    #[test]
    fn a_shorter_length_keeps_what_lies_behind_it() {
        let mut buf = AlignedBuf::zeroed(3 * BUFFER_ALIGNMENT);
        buf.fill(7);
        buf.set_len(1);
        assert_eq!((buf.len(), buf.capacity()), (4096, 12288));
        buf.fill(1);
        buf.set_len(4097);
        assert_eq!(buf.len(), 8192);
        assert!(buf[..4096].iter().all(|&byte| byte == 1));
        assert!(buf[4096..].iter().all(|&byte| byte == 7));
    }

    #[test]
    #[should_panic(expected = "a length of 8193 in 8192 bytes")]
    fn a_length_beyond_the_capacity_is_refused() {
        AlignedBuf::zeroed(8192).set_len(8193);
    }

    #[test]
    #[should_panic(expected = "more than memory can hold")]
    fn a_length_beyond_memory_is_refused_by_name() {
        AlignedBuf::zeroed(usize::MAX);
    }
}
