//! The log: lines go through a bounded queue to a thread that writes them to standard error.
//!
//! Whoever logs never waits for whoever reads: if the reader stops (a full pipe, a slow terminal, a
//! stalled disk), the queue fills, further lines are dropped, and their number stands where they
//! are missing. Only a node has this thread; other commands write directly. What strangers can
//! cause is held back by a [`Throttle`].

use crossbeam_queue::ArrayQueue;
use quorate_raft::Instant;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer as FormatWriter;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Lines that may wait for the reader of the log.
const LINES_MAX: usize = 4096;
/// Bytes of a line that are kept; with [`LINES_MAX`] this bounds the memory to 16 MiB.
const LINE_BYTES_MAX: usize = 4096;

/// How long a process that ends waits for the reader of its last lines.
pub const EXIT_PATIENCE: Duration = Duration::from_secs(1);
/// The same after a panic: other threads are still at work, so this is short.
const PANIC_PATIENCE: Duration = Duration::from_millis(200);

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The queue, once a node has started logging.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// A line, and how many were dropped before it.
struct Line {
    dropped: u64,
    bytes: Vec<u8>,
}

struct Queue {
    lines: ArrayQueue<Line>,
    /// Dropped since the last line that found room.
    dropped: AtomicU64,
    dropped_total: AtomicU64,
    queued: AtomicU64,
    written: AtomicU64,
    writer: OnceLock<Thread>,
}

impl Queue {
    fn new() -> Self {
        Self {
            lines: ArrayQueue::new(LINES_MAX),
            dropped: AtomicU64::new(0),
            dropped_total: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            written: AtomicU64::new(0),
            writer: OnceLock::new(),
        }
    }

    /// Takes a line, or drops it if there is no room. Never waits.
    fn push(&self, bytes: &[u8]) {
        let dropped = self.dropped.swap(0, Ordering::AcqRel);
        let line = Line {
            dropped,
            bytes: cut(bytes),
        };
        match self.lines.push(line) {
            Ok(()) => {
                self.queued.fetch_add(1, Ordering::AcqRel);
            }
            Err(_) => {
                self.dropped.fetch_add(dropped + 1, Ordering::AcqRel);
                self.dropped_total.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Writes all that waits.
    fn write_out(&self, out: &mut impl Write, format: Format) {
        while let Some(line) = self.lines.pop() {
            if line.dropped > 0 {
                // Nobody is there to be told that this failed.
                let _ = out.write_all(notice(line.dropped, format).as_bytes());
            }
            let _ = out.write_all(&line.bytes);
            self.written.fetch_add(1, Ordering::AcqRel);
        }
        let dropped = self.dropped.swap(0, Ordering::AcqRel);
        if dropped > 0 {
            let _ = out.write_all(notice(dropped, format).as_bytes());
        }
        let _ = out.flush();
    }

    /// Writes for as long as the process lives.
    fn run(&self, format: Format) {
        let _ = self.writer.set(thread::current());
        let mut out = io::stderr();
        loop {
            self.write_out(&mut out, format);
            if self.lines.is_empty() {
                thread::park();
            }
        }
    }

    fn flush(&self, patience: Duration) {
        const STEP: Duration = Duration::from_millis(2);
        let mut waited = Duration::ZERO;
        while self.written.load(Ordering::Acquire) < self.queued.load(Ordering::Acquire)
            && waited < patience
        {
            if let Some(writer) = self.writer.get() {
                writer.unpark();
            }
            thread::park_timeout(STEP);
            waited += STEP;
        }
    }
}

/// The line as it is kept: at most so many bytes, and ended.
fn cut(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() <= LINE_BYTES_MAX {
        return bytes.to_vec();
    }
    let mut line = bytes[..LINE_BYTES_MAX].to_vec();
    line.extend_from_slice(b"... (cut)\n");
    line
}

/// The line that stands for dropped ones.
fn notice(dropped: u64, format: Format) -> String {
    let mut at = String::new();
    // A clock that cannot be read leaves the time out.
    let _ = SystemTime.format_time(&mut FormatWriter::new(&mut at));
    let words = format!("{dropped} lines dropped here: the reader of this log is too slow");
    match format {
        Format::Text => format!("{at}  WARN quorate::logging: {words}\n"),
        Format::Json => format!(
            "{{\"timestamp\":\"{at}\",\"level\":\"WARN\",\"fields\":{{\"message\":\"{words}\",\
             \"dropped\":{dropped}}},\"target\":\"quorate::logging\"}}\n"
        ),
    }
}

/// What tracing writes its lines to.
struct ToQueue;

impl<'a> MakeWriter<'a> for ToQueue {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter
    }
}

/// Takes whole lines: tracing formats each into memory and writes it at once.
struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => queue.push(bytes),
            None => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging. `through_queue` for a node: its loops must not wait for the reader of the log.
///
/// # Panics
/// If the thread cannot be started, or logging has been started already.
pub fn start(filter: EnvFilter, format: Format, through_queue: bool) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(format == Format::Text && io::stderr().is_terminal())
        .with_writer(ToQueue);
    match format {
        Format::Text => subscriber.init(),
        Format::Json => subscriber.json().flatten_event(false).init(),
    }
    if through_queue {
        let queue = QUEUE.get_or_init(Queue::new);
        let thread = thread::Builder::new().name("logging".into());
        let spawned = thread.spawn(move || queue.run(format));
        spawned.expect("a process can start its first thread");
    }
}

/// A line of our own making, such as the last words of a process. It ends with a line feed.
pub fn say(line: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push(line.as_bytes()),
        // Nobody reads it: nothing to do about that.
        None => {
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Waits until all lines are written, for `patience` at most.
pub fn flush(patience: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.flush(patience);
    }
}

/// Lines dropped since the start.
#[must_use]
pub fn dropped_lines() -> u64 {
    let dropped = |queue: &Queue| queue.dropped_total.load(Ordering::Relaxed);
    QUEUE.get().map_or(0, dropped)
}

/// Lines that wait for the reader of the log.
#[must_use]
pub fn waiting_lines() -> i64 {
    let waiting = |queue: &Queue| i64::try_from(queue.lines.len()).unwrap_or(i64::MAX);
    QUEUE.get().map_or(0, waiting)
}

/// Writes what a panic says, as Rust's own hook does, without waiting for a reader that is not
/// there.
pub fn tell_panic(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let mut text = format!("\nthread '{name}' {info}\n");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = writeln!(text, "stack backtrace:\n{backtrace}");
    }
    // Line by line, since a line is cut when it is long.
    text.lines().for_each(|line| say(&format!("{line}\n")));
    flush(PANIC_PATIENCE);
}

/// Lets so many lines of one kind through in an interval, and counts the others.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    interval_ms: u64,
    lines_max: u32,
    begun: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Throttle {
    /// At most `lines_max` lines in `interval_ms`.
    #[must_use]
    pub const fn new(lines_max: u32, interval_ms: u64) -> Self {
        Self {
            interval_ms,
            lines_max,
            begun: None,
            told: 0,
            untold: 0,
        }
    }

    /// Whether a line may be written now, and how many were not since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self
            .begun
            .is_none_or(|begun| now.ms_since(begun) >= self.interval_ms)
        {
            self.begun = Some(now);
            self.told = 0;
        }
        if self.told < self.lines_max {
            self.told += 1;
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(queue: &Queue) -> String {
        let mut out = Vec::new();
        queue.write_out(&mut out, Format::Text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_come_out_in_order() {
        let queue = Queue::new();
        queue.push(b"one\n");
        queue.push(b"two\n");
        assert_eq!(written(&queue), "one\ntwo\n");
        assert_eq!(written(&queue), "");
    }

    #[test]
    fn dropped_lines_are_told_where_they_are_missing() {
        let queue = Queue::new();
        for number in 0..LINES_MAX + 7 {
            queue.push(format!("{number}\n").as_bytes());
        }
        // The reader takes one line, so that there is room for another.
        assert!(queue.lines.pop().is_some());
        queue.push(b"later\n");
        queue.push(b"dropped as well\n");
        let text = written(&queue);
        let lines: Vec<_> = text.lines().collect();
        let end = lines.len();
        assert_eq!(lines[end - 4], (LINES_MAX - 1).to_string());
        assert!(lines[end - 3].contains("WARN quorate::logging: 7 lines dropped here"));
        assert_eq!(lines[end - 2], "later");
        assert!(lines[end - 1].contains("1 lines dropped here"));
        assert_eq!(queue.dropped_total.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_notice_in_json_is_json() {
        let value: serde_json::Value = serde_json::from_str(&notice(3, Format::Json)).unwrap();
        assert_eq!(value["fields"]["dropped"], 3);
        assert_eq!(value["level"], "WARN");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = cut(&[b'x'; 100_000]);
        assert!(line.len() < LINE_BYTES_MAX + 20);
        assert!(line.ends_with(b"(cut)\n"));
    }

    #[test]
    fn a_throttle_lets_some_through_and_counts_the_rest() {
        let mut throttle = Throttle::new(2, 1000);
        let at = |ms| Instant(0).plus_ms(ms);
        let admitted: Vec<_> = (0..5).map(|ms| throttle.admit(at(ms))).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!(throttle.admit(at(1000)), Some(3));
        assert_eq!(throttle.admit(at(1001)), Some(0));
        assert_eq!(throttle.admit(at(1002)), None);
    }
}
