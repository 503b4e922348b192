//! Takes the corpus apart for libFuzzer, and puts it together again:
//! `cargo run -p quorate-fuzz --example corpus -- unpack DIR` (or `pack DIR`), a directory for each
//! target in DIR.

use quorate_fuzz::{TARGETS, corpus};
use std::path::Path;
use std::{fs, io};

/// Larger inputs are left out of the repository: they find nothing that small ones do not.
const INPUT_BYTES_MAX: u64 = 400;

/// Except that a mark is a block.
const MARK_BYTES_MAX: u64 = 4200;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir] = &arguments[..] else {
        return Err(io::Error::other("usage: pack DIR or unpack DIR"));
    };
    for (target, _) in TARGETS {
        let dir = Path::new(dir).join(target);
        match &what[..] {
            "pack" => pack(target, &dir)?,
            _ => unpack(target, &dir)?,
        }
    }
    Ok(())
}

fn pack(target: &str, dir: &Path) -> io::Result<()> {
    let bytes_max = match target {
        "marks" => MARK_BYTES_MAX,
        _ => INPUT_BYTES_MAX,
    };
    let mut inputs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.len() <= bytes_max {
            inputs.push(fs::read(entry.path())?);
        }
    }
    println!("{target}: {} inputs", inputs.len());
    corpus::write(target, inputs)
}

fn unpack(target: &str, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (number, input) in corpus::read(target)?.iter().enumerate() {
        fs::write(dir.join(format!("{number:05}")), input)?;
    }
    Ok(())
}
