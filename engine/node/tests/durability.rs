//! A commit means stable storage: files are open for direct I/O on an io_uring, and one flush of
//! the device serves many commits.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, Node, PROBE_VALUE, RawClient, batch, read_all};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Clients at once, each with one record on its way.
const CLIENTS: usize = 128;
/// They share this many connections.
const CONNECTIONS: usize = 16;
const LOAD_TIME: Duration = Duration::from_secs(4);
/// Commits per flush of the device, at least. The device serves three voters.
const COMMITS_PER_FLUSH: u64 = 8;
/// Other programs flush the same device: the quietest of these counts.
const ROUNDS: usize = 3;

/// A file that a process has open.
struct OpenFile {
    path: PathBuf,
    flags: i32,
}

fn open_files(pid: i32) -> Vec<OpenFile> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the files of our own process");
    let numbers = entries.map(|entry| entry.expect("an entry").file_name());
    let file = |number: std::ffi::OsString| {
        let number = number.to_string_lossy();
        // It may be closed by now.
        let path = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(flags.trim(), 8).expect("octal flags");
        Some(OpenFile { path, flags })
    };
    numbers.filter_map(file).collect()
}

/// # Panics
/// Unless the node writes its segment with O_DIRECT only, and has an io_uring.
fn assert_writes_directly(node: &Node) {
    let files = open_files(node.process.pid());
    let ring = Path::new("anon_inode:[io_uring]");
    assert!(
        files.iter().any(|file| file.path == ring),
        "voter {} has no io_uring",
        node.id
    );

    let is_segment = |file: &&OpenFile| {
        file.path
            .starts_with(node.log_dir().canonicalize().expect("a log directory"))
            && file
                .path
                .extension()
                .is_some_and(|extension| extension == "log")
    };
    let segments: Vec<&OpenFile> = files.iter().filter(is_segment).collect();
    let is_written = |file: &&&OpenFile| file.flags & libc::O_ACCMODE != libc::O_RDONLY;
    let written: Vec<_> = segments.iter().filter(is_written).collect();
    assert!(
        !written.is_empty(),
        "voter {} has no segment open for writing",
        node.id
    );
    for file in written {
        let direct = file.flags & libc::O_DIRECT != 0;
        assert!(
            direct,
            "voter {} writes {} through the page cache",
            node.id,
            file.path.display()
        );
    }
}

/// A block device's counters in /proc/diskstats.
struct Device {
    major: u64,
    minor: u64,
}

impl Device {
    /// The one that holds `path`.
    fn of(path: &Path) -> Self {
        let device = fs::metadata(path).expect("a directory").dev();
        let (major, minor) = (libc::major(device).into(), libc::minor(device).into());
        Self { major, minor }
    }

    /// What it completed since boot. For a file system without a device of its own (overlay,
    /// btrfs): what all devices did, which can only be more.
    fn counters(&self) -> Counters {
        let stats = fs::read_to_string("/proc/diskstats").expect("the disks' counters");
        let all: Vec<((u64, u64), Counters)> = stats.lines().map(Counters::of_line).collect();
        let own = all
            .iter()
            .find(|(number, _)| *number == (self.major, self.minor));
        let sum = |sum: Counters, (_, one): &(_, Counters)| Counters {
            flushes: sum.flushes + one.flushes,
            writes: sum.writes + one.writes,
        };
        own.map_or_else(
            || all.iter().fold(Counters::default(), sum),
            |(_, counters)| *counters,
        )
    }
}

#[derive(Clone, Copy, Default)]
struct Counters {
    flushes: u64,
    writes: u64,
}

impl Counters {
    /// Number of the device, and its counters: Documentation/admin-guide/iostats.rst. Behind
    /// major, minor and name, writes are the 5th and flushes (since Linux 5.5) the 16th.
    fn of_line(line: &str) -> ((u64, u64), Self) {
        let fields: Vec<u64> = line
            .split_whitespace()
            .map(|f| f.parse().unwrap_or(0))
            .collect();
        let flushes = *fields.get(18).expect("Linux 5.5 counts flushes");
        (
            (fields[0], fields[1]),
            Self {
                flushes,
                writes: fields[7],
            },
        )
    }

    /// Flushes since `before`. A device without a cache gets none from the kernel; each group of
    /// appends is two writes then (the batches and their mark), so their half is taken.
    fn flushes_since(self, before: Self) -> u64 {
        match self.flushes - before.flushes {
            0 => (self.writes - before.writes).div_ceil(2),
            flushes => flushes,
        }
    }
}

/// Keeps `CLIENTS` records on their way for a while. How many were committed.
fn load(address: &str) -> u64 {
    let share = |_| {
        let address = address.to_owned();
        thread::spawn(move || load_connection(&address))
    };
    let connections: Vec<_> = (0..CONNECTIONS).map(share).collect();
    connections
        .into_iter()
        .map(|thread| thread.join().expect("a connection"))
        .sum()
}

/// The part of one connection: each client sends its next record when its last one is committed.
fn load_connection(address: &str) -> u64 {
    let record = batch(PROBE_VALUE);
    let mut client = RawClient::connect(address).expect("the leader");
    let clients = CLIENTS / CONNECTIONS;
    for _ in 0..clients {
        client.send_produce(&record).expect("a request sent");
    }
    let end = Instant::now() + LOAD_TIME;
    let (mut committed, mut waiting) = (0, clients);
    while waiting > 0 {
        let produced = client.receive_produce().expect("an answer");
        assert_eq!(produced.error, 0);
        committed += 1;
        waiting -= 1;
        if Instant::now() < end {
            client.send_produce(&record).expect("a request sent");
            waiting += 1;
        }
    }
    committed
}

#[test]
fn segments_are_written_directly_and_one_flush_serves_many_commits() {
    let cluster = Cluster::start(3);
    for node in cluster.nodes() {
        assert_writes_directly(node);
    }
    let leader = cluster.node(cluster.leader()).clone();
    let device = Device::of(&leader.dir);
    let mut committed = 0;
    let mut rounds: Vec<(u64, u64)> = Vec::new();
    for _ in 0..ROUNDS {
        let before = device.counters();
        let commits = load(&leader.address);
        rounds.push((commits, device.counters().flushes_since(before)));
        committed += commits;
    }
    for (commits, flushes) in &rounds {
        println!(
            "{CLIENTS} clients, {LOAD_TIME:?}: {commits} commits, {flushes} flushes of the device \
             by three voters"
        );
    }
    for node in cluster.nodes() {
        assert_writes_directly(node);
    }
    assert_eq!(read_all(&cluster.bootstrap()).len() as u64, committed);

    let none = rounds.iter().any(|(_, flushes)| *flushes == 0);
    assert!(!none, "the device neither flushed nor wrote: {rounds:?}");
    let few = rounds
        .iter()
        .any(|(commits, flushes)| flushes * COMMITS_PER_FLUSH <= *commits);
    assert!(few, "commits and flushes: {rounds:?}");
}
