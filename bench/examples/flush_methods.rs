//! What a commit's flush costs, by method: 4 KiB of data and a 4 KiB mark at the end of the same
//! prepared file, made durable together. Prints a table; run it on the disk that is meant:
//!
//!     cargo run --release -p quorate-bench --example flush_methods -- DIRECTORY
//!
//! The methods take turns in short blocks, so that whatever else the machine does hits all alike.

#![allow(clippy::disallowed_methods)] // measures time

use hdrhistogram::Histogram;
use quorate_ring::{AlignedBuf, CompletionKind, Ring, RingConfig, Wait};
use std::error::Error;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const BLOCK: u64 = 4096;
const FILE_BLOCKS: u64 = 16_384;
const COMMITS_PER_BLOCK: u64 = 200;
const ROUNDS: u64 = 15;

#[derive(Clone, Copy)]
enum Method {
    ParallelThenFlush,
    ChainMarkDataFlush,
    DataFlushMarkBeside,
    DataFlushNoMark,
    ParallelDsync,
    DataDsyncNoMark,
}

const METHODS: [(Method, &str); 6] = [
    (
        Method::ParallelThenFlush,
        "a  data, mark in parallel; then fdatasync",
    ),
    (
        Method::ChainMarkDataFlush,
        "b  chain mark -> data -> fdatasync",
    ),
    (
        Method::DataFlushMarkBeside,
        "c  chain data -> fdatasync, mark beside (unsafe)",
    ),
    (
        Method::DataFlushNoMark,
        "d  chain data -> fdatasync, no mark",
    ),
    (
        Method::ParallelDsync,
        "e  data, mark in parallel, each RWF_DSYNC",
    ),
    (Method::DataDsyncNoMark, "f  data RWF_DSYNC, no mark"),
];

struct Disk {
    ring: Ring,
    file: Arc<OwnedFd>,
    spare: Vec<AlignedBuf>,
    commits: u64,
}

impl Disk {
    fn open(directory: &Path) -> Result<Disk, Box<dyn Error>> {
        let path = directory.join("flush-methods.tmp");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.custom_flags(libc::O_DIRECT).open(&path)?;
        std::fs::remove_file(&path)?;
        let zeros = AlignedBuf::zeroed(1 << 20);
        for at in (0..FILE_BLOCKS * BLOCK).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        let spare = vec![AlignedBuf::zeroed(4096), AlignedBuf::zeroed(4096)];
        let ring = Ring::new(&RingConfig {
            entries: 8,
            ..RingConfig::default()
        })?;
        Ok(Disk {
            ring,
            file: Arc::new(file.into()),
            spare,
            commits: 0,
        })
    }

    fn commit(&mut self, method: Method) {
        self.commits += 1;
        let data_at = self.commits % (FILE_BLOCKS - 2) * BLOCK;
        let mark_at = (FILE_BLOCKS - 2 + self.commits % 2) * BLOCK;
        match method {
            Method::ParallelThenFlush => {
                self.write(data_at, false);
                self.write(mark_at, false);
                self.finish(2);
                self.ring.fdatasync(&self.file, 0);
                self.finish(1);
            }
            Method::ChainMarkDataFlush => {
                self.write(mark_at, true);
                self.write(data_at, true);
                self.ring.fdatasync(&self.file, 0);
                self.finish(3);
            }
            Method::DataFlushMarkBeside => {
                self.write(mark_at, false);
                self.write(data_at, true);
                self.ring.fdatasync(&self.file, 0);
                self.finish(3);
            }
            Method::DataFlushNoMark => {
                self.write(data_at, true);
                self.ring.fdatasync(&self.file, 0);
                self.finish(2);
            }
            Method::ParallelDsync => {
                self.write_dsync(data_at);
                self.write_dsync(mark_at);
                self.finish(2);
            }
            Method::DataDsyncNoMark => {
                self.write_dsync(data_at);
                self.finish(1);
            }
        }
    }

    fn buffer(&mut self) -> AlignedBuf {
        let mut buf = self.spare.pop().expect("two buffers, two writes");
        buf[..8].copy_from_slice(&self.commits.to_ne_bytes());
        buf
    }

    fn write(&mut self, position: u64, link: bool) {
        let buf = self.buffer();
        self.ring.write(&self.file, position, buf, 0, link);
    }

    fn write_dsync(&mut self, position: u64) {
        let buf = self.buffer();
        self.ring.write_dsync(&self.file, position, buf, 0, false);
    }

    fn finish(&mut self, count: usize) {
        let mut done = Vec::with_capacity(count);
        while done.len() < count {
            self.ring
                .turn(Wait::Until { timeout: None }, &mut done)
                .expect("the ring works");
        }
        for completion in done {
            match completion.kind {
                CompletionKind::Wrote { buf, result } => {
                    assert_eq!(result.expect("the write succeeds"), buf.len());
                    self.spare.push(buf);
                }
                CompletionKind::Flushed(result) => result.expect("the flush succeeds"),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut disk = Disk::open(&directory)?;
    let mut times = vec![Histogram::<u64>::new(3)?; METHODS.len()];
    for _round in 0..ROUNDS {
        for ((method, _), times) in METHODS.iter().zip(&mut times) {
            for _ in 0..COMMITS_PER_BLOCK {
                let start = Instant::now();
                disk.commit(*method);
                times.record(start.elapsed().as_nanos() as u64)?;
            }
        }
    }
    let base = times[0].value_at_quantile(0.5) as f64;
    println!(
        "{:50} {:>8} {:>8} {:>8}",
        "method", "p50 us", "p99 us", "p50 : a"
    );
    for ((_, name), times) in METHODS.iter().zip(&times) {
        let (p50, p99) = (
            times.value_at_quantile(0.5) as f64,
            times.value_at_quantile(0.99) as f64,
        );
        println!(
            "{name:50} {:8.1} {:8.1} {:8.2}",
            p50 / 1e3,
            p99 / 1e3,
            p50 / base
        );
    }
    Ok(())
}
