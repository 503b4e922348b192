//! What the kernel knows of this process, and what its log takes on disk.
//!
//! Read when somebody asks. Whatever cannot be read is left out.

use std::fs;
use std::path::Path;

/// This process, as `/proc` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Processor time used, in seconds.
    pub cpu_s: f64,
    /// Memory in use (resident set), in bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub open_fds: u64,
}

/// The log's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogFiles {
    /// Segments, the active one included.
    pub segments: u64,
    /// Their bytes on disk; the active one counts as a whole, since it is made ahead.
    pub bytes: u64,
}

impl Process {
    pub(super) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count();
        let ticks = rustix::param::clock_ticks_per_second();
        let page_bytes = rustix::param::page_size();
        Self::of(&stat, ticks, page_bytes as u64, open_fds as u64)
    }

    /// From the text of `/proc/self/stat` (proc_pid_stat(5)): fields 14 and 15 are user and system
    /// time in ticks, 24 the resident set in pages. Field 2 may hold anything, in parentheses.
    #[allow(clippy::cast_precision_loss)] // for people
    fn of(stat: &str, ticks: u64, page_bytes: u64, open_fds: u64) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_s: (field(14)? + field(15)?) as f64 / ticks as f64,
            resident_bytes: field(24)?.saturating_mul(page_bytes),
            open_fds,
        })
    }
}

impl LogFiles {
    /// Counts the segments in `dir`.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(dir).ok()? {
            let entry = entry.ok()?;
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "log")
            {
                files.segments += 1;
                // It may have been removed since.
                files.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        Some(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_are_found_behind_any_name() {
        let mut fields = vec!["0"; 50];
        (fields[11], fields[12], fields[21]) = ("150", "50", "10");
        let stat = format!("77 (a) b) c) {}", fields.join(" "));
        let read = Process::of(&stat, 100, 4096, 9);
        let expected = Process {
            cpu_s: 2.0,
            resident_bytes: 40_960,
            open_fds: 9,
        };
        assert_eq!(read, Some(expected));
        assert_eq!(Process::of("77 (x) S 1 2", 100, 4096, 9), None);
        assert!(Process::read().unwrap().resident_bytes > 0);
    }

    #[test]
    fn segments_are_counted_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("00000000000000000000.log"), [0; 10]).unwrap();
        fs::write(dir.path().join("00000000000000000005.log"), [0; 20]).unwrap();
        fs::write(dir.path().join("00000000000000000000.index"), [0; 40]).unwrap();
        let files = LogFiles::read(dir.path());
        let expected = LogFiles {
            segments: 2,
            bytes: 30,
        };
        assert_eq!(files, Some(expected));
        assert_eq!(LogFiles::read(&dir.path().join("none")), None);
    }
}
