//! Which flush method a disk is best served by: tried out by `quorate format`, once, with the very
//! engine that will write the log, and stored beside the log for every start after.
//!
//! Each method is tried on an idle machine and with a busy thread on every CPU, since what wins in
//! the one case may lose by far in the other. The methods take turns in short blocks, so that
//! whatever else the machine does hits all alike. It decides nothing that is about safety: a group
//! is as durable by each method.

use crate::config::ServerConfig;
use crate::disk_io::FlushMethod;
use crate::lone_log::{LoneLog, LoneLogError};
use crate::meta_properties::write_durably;
use quorate_ring::{Engine, pin_to_cpu};
use quorate_storage::format::{BatchBuilder, NewRecord};
use quorate_storage::{LogConfig, ProducerLimits};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Name of the file in `log.dirs` that holds the result.
pub const FILE_NAME: &str = "flush-method";

/// Where the probe writes, in the data directory.
const SCRATCH_NAME: &str = "flush-probe.tmp";

/// How long `quorate format` measures, idle and again busy. With opening the logs it stays below
/// two seconds.
pub const MEASURED: Duration = Duration::from_millis(750);

/// Groups that a method writes before it is the next one's turn.
const BLOCK_GROUPS: usize = 8;

/// Another method than the default must be better by this factor: less is noise.
const BETTER_BY: f64 = 0.9;

/// Room for far more groups than can be written in the time: the log never rolls.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// What a method came to. Times in microseconds, of a group of one record of 256 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The method's name.
    pub method: String,
    /// Groups that were written, idle and busy together.
    pub groups: u64,
    /// Median, idle.
    pub idle_p50_us: f64,
    /// 99th percentile, idle.
    pub idle_p99_us: f64,
    /// Median, with a busy thread on each CPU.
    pub busy_p50_us: f64,
    /// 99th percentile, busy.
    pub busy_p99_us: f64,
}

/// The result for one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The method to use.
    pub method: String,
    /// The device it was measured on, `major:minor`.
    pub device: String,
    /// What was measured; empty if the method was given.
    #[serde(default)]
    pub rows: Vec<Row>,
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The engine did not work.
    #[error("cannot try out flush methods in {}: {source}", dir.display())]
    Log {
        /// The directory.
        dir: PathBuf,
        /// What went wrong.
        source: LoneLogError,
    },
    /// A file can't be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ProbeError {
    let path = path.to_path_buf();
    move |source| ProbeError::Io { what, path, source }
}

/// The method for a node: what its configuration says, else what is stored for this device, else
/// the default. Says in the log why a stored one is not used.
#[must_use]
pub fn choose(config: &ServerConfig) -> FlushMethod {
    if let Some(method) = config.flush_method {
        return method;
    }
    let path = config.log_dir.join(FILE_NAME);
    let not_used = |why: &str| {
        let (path, method) = (path.display(), FlushMethod::default());
        tracing::warn!("{path} is not used, and log.flush.method is {method}: {why}");
        method
    };
    let choice = match read(&config.log_dir) {
        Ok(Some(choice)) => choice,
        Ok(None) => return FlushMethod::default(),
        Err(error) => return not_used(&error.to_string()),
    };
    match device_of(&config.log_dir) {
        Ok(device) if device != choice.device => not_used(&format!(
            "it is of device {}, and the directory is on {device} now; `quorate format \
             --ignore-formatted` measures anew",
            choice.device
        )),
        _ => FlushMethod::from_name(&choice.method)
            .unwrap_or_else(|| not_used(&format!("there is no method {:?}", choice.method))),
    }
}

/// The result that is stored in `dir`, if there is one.
///
/// # Errors
/// If the file is there and can't be read as one.
pub fn read(dir: &Path) -> Result<Option<Choice>, ProbeError> {
    let path = dir.join(FILE_NAME);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let choice = serde_json::from_slice(&text).map_err(io::Error::from);
    choice.map(Some).map_err(failed("read", &path))
}

/// Stores the result in `dir`, durably.
///
/// # Errors
/// What the file system says.
pub fn write(dir: &Path, choice: &Choice) -> Result<(), ProbeError> {
    let mut text = serde_json::to_string_pretty(choice).expect("plain values");
    text.push('\n');
    write_durably(dir, FILE_NAME, text.as_bytes()).map_err(failed("write", &dir.join(FILE_NAME)))
}

/// The device that `dir` is on.
///
/// # Errors
/// What the file system says.
pub fn device_of(dir: &Path) -> Result<String, ProbeError> {
    let stat = fs::metadata(dir).map_err(failed("look at", dir))?;
    let device = stat.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Ok(format!("{major}:{minor}"))
}

/// Tries all methods in `dir` on `engine`, for `measured` idle and again busy, and chooses one.
/// Leaves nothing behind.
///
/// # Errors
/// If the engine does not work there.
pub fn probe(dir: &Path, engine: Engine, measured: Duration) -> Result<Choice, ProbeError> {
    let device = device_of(dir)?;
    let scratch = Scratch::in_dir(dir)?;
    let tried = scratch
        .measure(engine, measured)
        .map_err(|source| ProbeError::Log {
            dir: dir.to_path_buf(),
            source,
        })?;
    let rows: Vec<Row> = tried.iter().map(Tried::row).collect();
    Ok(Choice {
        method: best(&rows).to_string(),
        device,
        rows,
    })
}

/// The method with the best 99th percentiles, idle and busy weighing the same.
fn best(rows: &[Row]) -> FlushMethod {
    let score = |row: &Row| row.idle_p99_us * row.busy_p99_us;
    let score_of = |method: FlushMethod| {
        let row = rows.iter().find(|row| row.method == method.name());
        row.map_or(f64::INFINITY, score)
    };
    let usual = FlushMethod::default();
    // Both factors of the product must be better, on average.
    let to_beat = score_of(usual) * BETTER_BY * BETTER_BY;
    let others = FlushMethod::ALL
        .into_iter()
        .filter(|method| *method != usual);
    let better = others.filter(|method| score_of(*method) < to_beat);
    better
        .min_by(|a, b| score_of(*a).total_cmp(&score_of(*b)))
        .unwrap_or(usual)
}

/// The probe's own directory; gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn in_dir(dir: &Path) -> Result<Self, ProbeError> {
        let path = dir.join(SCRATCH_NAME);
        // Of a probe that was killed.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(error));
            }
            _ => {}
        }
        fs::create_dir(&path).map_err(failed("create", &path))?;
        Ok(Self(path))
    }

    fn measure(&self, engine: Engine, measured: Duration) -> Result<Vec<Tried>, LoneLogError> {
        let mut tried = Vec::new();
        for method in FlushMethod::ALL {
            tried.push(Tried::open(engine, method, self.0.join(method.name()))?);
        }
        run(&mut tried, measured, |tried| &mut tried.idle)?;
        let busy = Busy::start();
        let result = run(&mut tried, measured, |tried| &mut tried.busy);
        drop(busy);
        result.map(|()| tried)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One method's log and what it took.
struct Tried {
    method: FlushMethod,
    log: LoneLog,
    /// Nanoseconds of each group.
    idle: Vec<u64>,
    busy: Vec<u64>,
}

impl Tried {
    fn open(engine: Engine, method: FlushMethod, dir: PathBuf) -> Result<Self, LoneLogError> {
        let config = LogConfig {
            dir,
            topic_id: [1; 16],
            segment_bytes: SEGMENT_BYTES,
            group_bytes_max: 64 * 1024,
            index_interval_bytes: 4096,
            producers: ProducerLimits::default(),
        };
        let mut log = LoneLog::open(config, engine, method)?;
        log.prepare()?;
        Ok(Self {
            method,
            log,
            idle: Vec::new(),
            busy: Vec::new(),
        })
    }

    fn row(&self) -> Row {
        Row {
            method: self.method.to_string(),
            groups: (self.idle.len() + self.busy.len()) as u64,
            idle_p50_us: quantile_us(&self.idle, 0.5),
            idle_p99_us: quantile_us(&self.idle, 0.99),
            busy_p50_us: quantile_us(&self.busy, 0.5),
            busy_p99_us: quantile_us(&self.busy, 0.99),
        }
    }
}

/// The value that `fraction` of all stay within, in microseconds.
fn quantile_us(nanos: &[u64], fraction: f64) -> f64 {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() as f64 * fraction) as usize;
    let found = sorted.get(index).or(sorted.last());
    found.map_or(f64::INFINITY, |nanos| {
        (*nanos as f64 / 100.0).round() / 10.0
    })
}

/// Lets the methods take turns for the time there is.
#[allow(clippy::disallowed_methods)] // measures
fn run(
    tried: &mut [Tried],
    measured: Duration,
    times: impl Fn(&mut Tried) -> &mut Vec<u64>,
) -> Result<(), LoneLogError> {
    let batch = record();
    let start = Instant::now();
    while start.elapsed() < measured {
        for one in &mut *tried {
            for _ in 0..BLOCK_GROUPS {
                let begin = Instant::now();
                one.log.append(batch.clone());
                one.log.flush()?;
                let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                times(one).push(nanos);
            }
        }
    }
    Ok(())
}

fn record() -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    builder.push(NewRecord::value(0, &[b'x'; 256]));
    builder.build()
}

/// A thread on each CPU that does nothing, as fast as it can; until dropped.
struct Busy {
    stop: Arc<AtomicBool>,
}

impl Busy {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        for cpu in 0..cpus {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // If it can't be pinned the scheduler spreads them out by itself.
                let _ = pin_to_cpu(cpu);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self { stop }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl fmt::Display for Choice {
    /// A table for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "flush method {:<10} idle p50      p99      busy p50      p99   (us, device {})",
            "", self.device
        )?;
        for row in &self.rows {
            let chosen = if row.method == self.method { '*' } else { ' ' };
            writeln!(
                f,
                "{chosen} {:<22} {:>8.1} {:>8.1}      {:>8.1} {:>8.1}",
                row.method, row.idle_p50_us, row.idle_p99_us, row.busy_p50_us, row.busy_p99_us
            )?;
        }
        write!(f, "stored: log.flush.method=auto uses {}", self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: FlushMethod, idle: f64, busy: f64) -> Row {
        Row {
            method: method.to_string(),
            groups: 100,
            idle_p50_us: idle / 2.0,
            idle_p99_us: idle,
            busy_p50_us: busy / 2.0,
            busy_p99_us: busy,
        }
    }

    #[test]
    fn another_method_must_be_clearly_better() {
        use FlushMethod::{Dsync, Linked, Parallel, Thread};
        let usual = row(Parallel, 100.0, 1000.0);
        for (other, expected) in [
            (row(Linked, 95.0, 950.0), Parallel),
            (row(Linked, 80.0, 900.0), Linked),
            (row(Dsync, 50.0, 4000.0), Parallel),
            (row(Thread, 150.0, 300.0), Thread),
        ] {
            assert_eq!(best(&[usual.clone(), other.clone()]), expected, "{other:?}");
        }
        let two = [row(Linked, 50.0, 500.0), row(Dsync, 40.0, 500.0)];
        assert_eq!(best(&[usual, two[0].clone(), two[1].clone()]), Dsync);
    }

    #[test]
    fn a_result_comes_back_and_is_for_its_device() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let choice = Choice {
            method: "thread".into(),
            device: device_of(dir.path()).unwrap(),
            rows: vec![row(FlushMethod::Thread, 1.5, 2.5)],
        };
        write(dir.path(), &choice).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(choice));
        fs::write(dir.path().join(FILE_NAME), "{\"method\": 1}").unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("flush-method: invalid type"), "{error}");
    }
}
