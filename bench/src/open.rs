//! What it costs to open a log: closed cleanly, and after a crash against a bare sequential read of
//! the same files.
//!
//! Each log is written by the engine itself and removed at the end. Opens, recoveries and bare
//! reads take turns, and medians are reported. Where the caches of the file system can be dropped
//! (as root), a clean open begins without them.

use quorate::disk_io::FlushMethod;
use quorate::lone_log::LoneLog;
use quorate_raft::{Epoch, Offset};
use quorate_ring::{AlignedBuf, Engine};
use quorate_storage::format::{BatchBuilder, NewRecord};
use quorate_storage::{Disk, DiskFile, FileDisk, LogConfig, OpenMode};
use serde::Serialize;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: u64 = 1024 * 1024;

/// As recovery reads.
const READ_BYTES: usize = 1024 * 1024;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the logs are written; must be on the disk that is meant
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Sizes of the logs, in MiB
    #[arg(long, value_delimiter = ',', default_value = "1024,10240")]
    mib: Vec<u64>,
    /// Bytes of batches in a segment, in MiB
    #[arg(long, default_value_t = 64)]
    segment_mib: u64,
    /// Bytes of a batch, about
    #[arg(long, default_value_t = 4096)]
    batch_bytes: usize,
    /// Times that each thing is done
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One log, opened in both ways.
#[derive(Serialize)]
struct Row {
    log_bytes: u64,
    segments: usize,
    /// Median and longest.
    clean_open_ms: [f64; 2],
    /// Whether the file system's caches were dropped before each clean open.
    is_cold: bool,
    /// Memory that an open log takes, in bytes.
    resident_bytes: i64,
    recovery_bytes_per_second: f64,
    raw_bytes_per_second: f64,
    /// Recovery over a bare sequential read, median of pairs.
    scan_ratio_to_raw: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for mib in &arguments.mib {
        let dir = arguments.dir.join(format!("quorate-bench-open-{mib}"));
        let row = measure(arguments, &dir, mib * MIB);
        fs::remove_dir_all(&dir)?;
        let row = row?;
        if !arguments.json {
            print_row(&row);
        }
        rows.push(row);
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
    }
    Ok(())
}

fn print_row(row: &Row) {
    let [median, longest] = row.clean_open_ms;
    let cold = if row.is_cold { "cold" } else { "warm" };
    println!(
        "{} MiB in {} segments: clean open {median:.1} ms (at most {longest:.1}, {cold}), \
         {} KiB more resident; recovery {:.0} MiB/s, bare read {:.0} MiB/s, ratio {:.2}",
        row.log_bytes / MIB,
        row.segments,
        row.resident_bytes / 1024,
        row.recovery_bytes_per_second / MIB as f64,
        row.raw_bytes_per_second / MIB as f64,
        row.scan_ratio_to_raw,
    );
}

fn measure(arguments: &Arguments, dir: &Path, bytes: u64) -> Result<Row, Box<dyn Error>> {
    let config = LogConfig {
        segment_bytes: arguments.segment_mib * MIB,
        ..LogConfig::new(dir.to_path_buf(), [7; 16])
    };
    let open = || LoneLog::open(config.clone(), Engine::Uring, FlushMethod::Parallel);
    eprintln!("writing {} MiB to {}", bytes / MIB, dir.display());
    write(open()?, bytes, arguments.batch_bytes)?;
    let (mut clean, mut resident, mut segments) = (Vec::new(), Vec::new(), 0);
    let mut is_cold = true;
    for _ in 0..arguments.rounds {
        is_cold &= fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
        let before = resident_bytes()?;
        let started = Instant::now();
        let log = open()?;
        clean.push(started.elapsed().as_secs_f64() * 1e3);
        resident.push((resident_bytes()? - before) as f64);
        if !log.report().is_clean || log.report().batches.is_some() {
            return Err("the log was not opened as one that was closed cleanly".into());
        }
        segments = log.report().segments;
        log.close()?;
    }
    let (mut scans, mut raws, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let raw = bytes as f64 / read_all(dir)?;
        fs::remove_file(dir.join(".quorate_cleanshutdown"))?;
        let started = Instant::now();
        let log = open()?;
        let scan = log.report().bytes as f64 / started.elapsed().as_secs_f64();
        log.close()?;
        scans.push(scan);
        raws.push(raw);
        ratios.push(scan / raw);
    }
    Ok(Row {
        log_bytes: bytes,
        segments,
        clean_open_ms: [median(&clean), clean.iter().copied().fold(0.0, f64::max)],
        is_cold,
        resident_bytes: median(&resident) as i64,
        recovery_bytes_per_second: median(&scans),
        raw_bytes_per_second: median(&raws),
        scan_ratio_to_raw: median(&ratios),
    })
}

/// Fills the log with batches of one record each and closes it.
fn write(mut log: LoneLog, bytes: u64, batch_bytes: usize) -> Result<(), Box<dyn Error>> {
    let value: Vec<u8> = (0..batch_bytes).map(|at| (at * 31 % 251) as u8).collect();
    let mut builder = BatchBuilder::new(Offset(0), Epoch(1));
    builder.push(NewRecord::value(0, &value));
    let batch = builder.build();
    let (count, per_flush) = (bytes / batch.len() as u64, MIB / batch.len() as u64);
    for number in 0..count {
        log.append(batch.clone());
        if number % per_flush.max(1) == 0 {
            log.flush()?;
        }
    }
    log.flush()?;
    log.prepare()?;
    Ok(log.close()?)
}

/// Reads all segments as fast as one thread can, past the page cache. Gives the seconds.
fn read_all(dir: &Path) -> Result<f64, Box<dyn Error>> {
    let mut buf = AlignedBuf::zeroed(READ_BYTES);
    let started = Instant::now();
    for name in FileDisk.list(dir)? {
        if !name.ends_with(".log") {
            continue;
        }
        let file = FileDisk.open(&dir.join(name), OpenMode::Direct)?;
        let mut at = 0;
        loop {
            let count = file.read_at(&mut buf, at)? as u64;
            at += count;
            if count < READ_BYTES as u64 {
                break;
            }
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn resident_bytes() -> Result<i64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: i64 = kib.ok_or("no VmRSS")?.parse()?;
    Ok(kib * 1024)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
