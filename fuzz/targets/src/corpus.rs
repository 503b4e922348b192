//! The corpus in the repository: one file per target, since thousands of tiny ones are no pleasure.
//!
//! A file is a row of inputs, each behind its length (uint32, big-endian). libFuzzer wants
//! directories: `cargo run -p quorate-fuzz --example corpus -- unpack DIR` makes them, `pack DIR`
//! goes the other way.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file of `target`.
#[must_use]
pub fn path(target: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    dir.join(format!("{target}.inputs"))
}

/// All inputs of `target`.
///
/// # Errors
/// What the file system says; `InvalidData` for a file that is cut off.
pub fn read(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let bytes = fs::read(path(target))?;
    let mut rest = &bytes[..];
    let mut inputs = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        let length = u32::from_be_bytes(*length) as usize;
        let cut = behind
            .split_at_checked(length)
            .ok_or(io::ErrorKind::InvalidData)?;
        inputs.push(cut.0.to_vec());
        rest = cut.1;
    }
    Ok(inputs)
}

/// Replaces the inputs of `target`; sorted, so that a change shows as one.
///
/// # Errors
/// What the file system says.
pub fn write(target: &str, mut inputs: Vec<Vec<u8>>) -> io::Result<()> {
    inputs.sort();
    inputs.dedup();
    let mut bytes = Vec::new();
    for input in inputs {
        let length = u32::try_from(input.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&input);
    }
    let path = path(target);
    fs::create_dir_all(path.parent().expect("it has one"))?;
    fs::write(path, bytes)
}
