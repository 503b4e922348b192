//! The storage engine alone against a bare ring that does the same writes and flushes.
//!
//! Engine and ring take turns in short blocks on the same thread, so that whatever else the machine
//! does hits both; each pair of blocks gives one ratio, and the median of all pairs is reported
//! with the interval that holds the true median in 95 of 100 runs. `shape` says what is written,
//! `pairs` runs and compares, `raw` is the bare ring, `rolls` looks at the engine where segments
//! end.

mod overlap;
mod pairs;
mod raw;
mod rolls;
mod shape;

use overlap::Overlap;
use pairs::Comparison;
use quorate::disk_io::FlushMethod;
use quorate_ring::{Engine, pin_to_cpu};
use rolls::Rolls;
use serde::Serialize;
use shape::Shape;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the logs are written; must be on the disk that is meant
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Pairs of blocks for each row; the median needs 30 to be worth something
    #[arg(long, default_value_t = 30)]
    pairs: usize,
    /// Groups in a block
    #[arg(long, default_value_t = 200)]
    block: usize,
    /// By which operations groups are flushed, by both
    #[arg(long, default_value = "parallel", value_parser = method)]
    flush_method: FlushMethod,
    /// CPU for both
    #[arg(long)]
    cpu: Option<usize>,
    /// Only rows whose name contains this, such as "1 x 256"
    #[arg(long, default_value = "", value_name = "TEXT")]
    row: String,
    /// Times that a segment ends, for the row about that; 0: none
    #[arg(long, default_value_t = 12)]
    rolls: u64,
    /// Pairs of blocks for each size of group, with and without the write of a group overlapping
    /// the flush of the one before; 0: none
    #[arg(long, default_value_t = 0)]
    overlap: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn method(name: &str) -> Result<FlushMethod, String> {
    FlushMethod::from_name(name).ok_or_else(|| {
        let names = FlushMethod::ALL.map(FlushMethod::name).join(", ");
        format!("one of {names}")
    })
}

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    flush_method: &'static str,
    /// One record of 256 bytes at a time: latency of engine over ring.
    latency_ratio_to_raw: Option<f64>,
    /// Groups of 1 MiB without a pause: bytes per second of engine over ring.
    bandwidth_ratio_to_raw: Option<f64>,
    rows: Vec<Comparison>,
    rolls: Option<Rolls>,
    /// Empty unless asked for.
    overlap: Vec<Overlap>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(cpu) = arguments.cpu {
        pin_to_cpu(cpu)?;
    }
    let scratch = Scratch::below(&arguments.dir)?;
    let mut rows = Vec::new();
    for shape in shape::all() {
        if !shape.to_string().contains(&arguments.row) {
            continue;
        }
        let row = pairs::compare(&shape, arguments, &scratch.0)?;
        eprintln!("{row}");
        rows.push(row);
    }
    let rolls = match arguments.rolls {
        0 => None,
        count => Some(rolls::measure(count, arguments.flush_method, &scratch.0)?),
    };
    let overlap = match arguments.overlap {
        0 => Vec::new(),
        blocks => overlap::measure(blocks, arguments.block, &scratch.0)?,
    };
    overlap.iter().for_each(|row| eprintln!("{row}"));
    let ratio_of = |shape: Shape| {
        let row = rows.iter().find(|row| row.shape == shape.to_string());
        row.map(|row| row.ratio)
    };
    let report = Report {
        flush_method: arguments.flush_method.name(),
        latency_ratio_to_raw: ratio_of(shape::ONE_RECORD),
        bandwidth_ratio_to_raw: ratio_of(shape::FULL_GROUPS),
        rows,
        rolls,
        overlap,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

fn print(report: &Report) {
    if let Some(rolls) = &report.rolls {
        println!("{rolls}");
    }
    if let Some(ratio) = report.latency_ratio_to_raw {
        println!("latency_ratio_to_raw {ratio:.3} (one append in flight; goal: at most 1.10)");
    }
    if let Some(ratio) = report.bandwidth_ratio_to_raw {
        println!("bandwidth_ratio_to_raw {ratio:.3} (full groups; goal: at least 0.90)");
    }
}

/// A directory of this run, gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn below(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let path = dir.join(format!("quorate-bench-log-{}.tmp", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The engine of a row.
const ENGINE: Engine = Engine::Uring;
