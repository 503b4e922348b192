//! What tests of one machine must share out: ports, the CPUs, the disk.
//!
//! Locks are kernel locks on files, so a killed test leaves none behind, and two `cargo test` with
//! different target directories respect each other.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// First port given out. Below the range that Linux takes outgoing ports from (32768 and up).
const FIRST_PORT: u16 = 20_000;
/// Ports of one block: clients at 0.., peers at 100.., pages at 150.. (as `quorate dev` places
/// them).
const BLOCK_PORTS: u16 = 200;
/// How many blocks there are.
const BLOCKS: u16 = 60;
/// Most voters of a test's quorum.
const VOTERS_MAX: u16 = 15;

/// Held while a quorum runs: two at a time would starve each other, and disturb each other's times.
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits for all other quorums of this user's tests to end. (Test runners have the deadline.)
    pub fn acquire() -> Self {
        let file = lock_file("machine");
        file.lock().expect("a lock on a file");
        Self { _file: file }
    }
}

/// Ports that no other test uses as long as this lives.
pub struct PortBlock {
    base: u16,
    _file: File,
}

impl PortBlock {
    /// Takes the first block that no other test holds and no other program listens in. One after
    /// the other, so that clients that a failed test left behind do not talk to the next one's
    /// nodes.
    pub fn acquire() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed);
        let numbers = (0..u32::from(BLOCKS)).map(|n| ((start + n) % u32::from(BLOCKS)) as u16);
        let mut blocks = numbers.filter_map(Self::try_acquire);
        blocks
            .next()
            .expect("a range of free ports between 20000 and 32000")
    }

    fn try_acquire(number: u16) -> Option<Self> {
        let file = lock_file(&format!("ports-{number}"));
        file.try_lock().ok()?;
        let base = FIRST_PORT + number * BLOCK_PORTS;
        let starts = [base, base + 100, base + 150].into_iter();
        let mut ports = starts.flat_map(|start| start..start + VOTERS_MAX);
        let free = ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
        free.then_some(Self { base, _file: file })
    }

    /// The first port: what `--base-port` takes.
    pub fn base(&self) -> u16 {
        self.base
    }
}

fn lock_file(name: &str) -> File {
    let user = rustix::process::getuid().as_raw();
    let dir = std::env::temp_dir().join(format!("quorate-tests-{user}"));
    fs::create_dir_all(&dir).expect("a directory for locks");
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(dir.join(name)).expect("a lock file")
}

/// An own directory on the file system that holds the build, since a node refuses tmpfs.
/// `QUORATE_TEST_KEEP=1` leaves it behind when the test fails.
pub fn scratch_dir() -> TempDir {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(root).expect("a temporary directory")
}
