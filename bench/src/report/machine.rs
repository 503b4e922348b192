//! Where something was measured: processor, kernel, disk.

use quorate::flush_probe::device_of;
use quorate_storage::check_data_dir;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a reader must know of the machine.
pub(super) struct Machine {
    cpus: usize,
    model: String,
    kernel: String,
    memory_gib: u64,
    file_system: String,
    write_cache: String,
    fua: String,
    scheduler: String,
}

impl Machine {
    /// This one, with the disk that `dir` is on.
    pub(super) fn of(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let device = device_of(dir)?;
        let queue = |name: &str| {
            let path = format!("/sys/dev/block/{device}/queue/{name}");
            // Of a partition the queue is its disk's.
            let of_disk = format!("/sys/dev/block/{device}/../queue/{name}");
            read(&path)
                .or_else(|| read(&of_disk))
                .unwrap_or("unknown".into())
        };
        Ok(Self {
            cpus: std::thread::available_parallelism()?.get(),
            model: field("/proc/cpuinfo", "model name").unwrap_or("unknown".into()),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or("unknown".into()),
            memory_gib: memory_gib().unwrap_or_default(),
            file_system: check_data_dir(dir)?.fs_kind.to_string(),
            write_cache: queue("write_cache"),
            fua: queue("fua"),
            scheduler: queue("scheduler"),
        })
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The first value of a key in a file of `key : value` lines.
fn field(path: &str, key: &str) -> Option<String> {
    let text = read(path)?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

fn memory_gib() -> Option<u64> {
    let total = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kib.div_ceil(1 << 20))
}

/// The commit that this was built from, if the source is around.
pub(super) fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let name = output.ok().filter(|output| output.status.success());
    let name = name.and_then(|output| String::from_utf8(output.stdout).ok());
    name.map_or("unknown".into(), |name| name.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "**Machine.** {} CPUs ({}), {} GiB, Linux {}; {}, write cache {}, FUA {}, scheduler \
             {}.",
            self.cpus,
            self.model,
            self.memory_gib,
            self.kernel,
            self.file_system,
            self.write_cache,
            self.fua,
            self.scheduler
        )
    }
}
