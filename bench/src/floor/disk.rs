//! The file a member writes: prepared like a log segment, so no flush allocates.

use quorate_ring::AlignedBuf;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What each member writes per commit, in bytes.
const BLOCK_BYTES: usize = 4096;

/// Blocks in the file; the writes go round.
const BLOCKS: u64 = 4096;

/// Opens an unnamed file in `dir` for direct I/O, filled with zeros and flushed.
pub(crate) fn prepare(dir: &Path) -> Result<File, Box<dyn Error>> {
    let file = fill(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(file)
}

fn fill(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!("quorate-floor-{}.tmp", std::process::id()));
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    let zeros = AlignedBuf::zeroed(1 << 20);
    for position in (0..BLOCKS * BLOCK_BYTES as u64).step_by(zeros.len()) {
        file.write_all_at(&zeros, position)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// The block that carries frame `number`.
pub(crate) fn block(number: u64) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

/// Where it goes.
pub(crate) fn position(number: u64) -> u64 {
    number % BLOCKS * BLOCK_BYTES as u64
}
