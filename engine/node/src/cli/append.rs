//! `quorate append`: lines of standard input become committed records.
//!
//! A thread reads lines into a bounded channel; what has come in meanwhile is sent at once, a batch
//! per line. A line is printed only after its commit.

use super::CliError;
use super::args::{Addresses, AppendArgs};
use super::connect::{connect, options, unix_ms};
use super::output::Output;
use bytes::Bytes;
use quorate_net::ListenerKind;
use quorate_net::client::{self, Client, ClientOptions};
use quorate_raft::Offset;
use quorate_storage::format::{BATCH_BYTES_MAX, BatchBuilder, NewRecord};
use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines on their way at once. More would only wait at the leader.
const LINES_IN_FLIGHT_MAX: usize = 32;

/// Appends until standard input ends.
pub(super) fn run(args: AppendArgs) -> Result<(), CliError> {
    let lines = read_lines()?;
    client::run(append(&args, &lines))?
}

async fn append(args: &AppendArgs, lines: &Receiver<io::Result<Vec<u8>>>) -> Result<(), CliError> {
    let Addresses(bootstrap) = &args.bootstrap_server;
    let options = ClientOptions {
        batches_in_flight_max: LINES_IN_FLIGHT_MAX,
        ..options(&args.topic)
    };
    let client = connect(bootstrap, ListenerKind::Client, options).await?;
    let mut appender = Appender {
        client,
        key: args.key.as_deref().map(str::as_bytes),
        out: Output::new(),
    };
    if args.atomic {
        return appender.append_all(lines).await;
    }
    let mut line = 1;
    loop {
        let burst = next_burst(lines)?;
        if burst.is_empty() {
            return Ok(());
        }
        appender.append_each(&burst, line).await?;
        line += burst.len();
    }
}

struct Appender<'a> {
    client: Client,
    key: Option<&'a [u8]>,
    out: Output,
}

impl Appender<'_> {
    /// Commits the lines, each as a batch, several in flight. `first` numbers them for messages.
    async fn append_each(&mut self, lines: &[Vec<u8>], first: usize) -> Result<(), CliError> {
        let now_ms = unix_ms();
        let mut batches = Vec::with_capacity(lines.len());
        for (line, number) in lines.iter().zip(first..) {
            batches.push(batch(self.key, std::slice::from_ref(line), now_ms, number)?);
        }
        let sent = now();
        let mut printed = Ok(());
        let out = &mut self.out;
        let on_ack = |_, ack: client::ProduceAck| {
            if printed.is_ok() {
                printed = print(out, ack.base_offset, sent.elapsed());
            }
        };
        self.client.produce_many(&batches, on_ack).await?;
        Ok(printed?)
    }

    /// Commits all lines as one batch.
    async fn append_all(&mut self, lines: &Receiver<io::Result<Vec<u8>>>) -> Result<(), CliError> {
        let mut all = Vec::new();
        let mut size = 0;
        while let Ok(line) = lines.recv() {
            let line = line?;
            size += line.len();
            if size > BATCH_BYTES_MAX {
                return Err(CliError::BatchTooLarge);
            }
            all.push(line);
        }
        if all.is_empty() {
            return Ok(());
        }
        let batch = batch(self.key, &all, unix_ms(), 1)?;
        let sent = now();
        let Offset(base) = self.client.produce(batch).await?.base_offset;
        let elapsed = sent.elapsed();
        for (_, offset) in all.iter().zip(base..) {
            print(&mut self.out, Offset(offset), elapsed)?;
        }
        Ok(())
    }
}

/// One batch with a record for each of `lines`, of which the first is line `number` of the input.
fn batch(
    key: Option<&[u8]>,
    lines: &[Vec<u8>],
    now_ms: i64,
    number: usize,
) -> Result<Bytes, CliError> {
    let mut builder = BatchBuilder::produced();
    for line in lines {
        builder.push(NewRecord {
            key,
            ..NewRecord::value(now_ms, line)
        });
        if builder.size() > BATCH_BYTES_MAX {
            return Err(match lines {
                [_] => CliError::LineTooLong { number },
                _ => CliError::BatchTooLarge,
            });
        }
    }
    Ok(builder.build().into())
}

fn print(out: &mut Output, offset: Offset, elapsed: Duration) -> io::Result<()> {
    let ms = elapsed.as_secs_f64() * 1000.0;
    out.line(format_args!("offset {offset} committed in {ms:.3} ms"))?;
    out.flush()
}

/// Waits for a line, then takes those that are there already. Empty: the input has ended.
fn next_burst(lines: &Receiver<io::Result<Vec<u8>>>) -> io::Result<Vec<Vec<u8>>> {
    let Ok(first) = lines.recv() else {
        return Ok(Vec::new());
    };
    let rest = lines.try_iter().take(LINES_IN_FLIGHT_MAX - 1);
    std::iter::once(first).chain(rest).collect()
}

/// The lines of standard input, from a thread that ends with the input.
fn read_lines() -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (sender, lines) = sync_channel(LINES_IN_FLIGHT_MAX);
    let read = move || send_lines(&mut io::stdin().lock(), &sender);
    thread::Builder::new()
        .name("append-input".into())
        .spawn(read)?;
    Ok(lines)
}

fn send_lines(input: &mut impl BufRead, lines: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let line = next_line(input).transpose();
        let Some(line) = line else { return };
        let failed = line.is_err();
        if lines.send(line).is_err() || failed {
            return;
        }
    }
}

/// The next line without its end; `None` at the end of the input. One that is too long for a batch
/// comes cut, and is refused as such later.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = BATCH_BYTES_MAX as u64 + 1;
    if input.take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

#[allow(clippy::disallowed_methods)] // the command line is where time comes in
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::format::{check_produced, records};

    fn lines_of(mut input: &[u8]) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| next_line(&mut input).unwrap()).collect()
    }

    #[test]
    fn lines_end_with_newlines_or_with_the_input() {
        assert_eq!(lines_of(b"a\n\nb\r\nc"), [&b"a"[..], b"", b"b\r", b"c"]);
        assert_eq!(lines_of(b"a\n"), [b"a"]);
        assert!(lines_of(b"").is_empty());
    }

    #[test]
    fn a_batch_has_a_record_per_line_with_the_key() {
        let lines = [b"one".to_vec(), b"".to_vec()];
        let batch = batch(Some(b"k"), &lines, 1234, 1).unwrap();
        assert_eq!(check_produced(&batch).unwrap().count, 2);
        let read: Vec<_> = records(&batch).unwrap().map(Result::unwrap).collect();
        assert_eq!(read[0].value, Some(&b"one"[..]));
        assert_eq!(read[1].value, Some(&b""[..]));
        assert!(
            read.iter()
                .all(|r| r.key == Some(b"k") && r.timestamp == 1234)
        );
    }

    #[test]
    fn what_does_not_fit_into_a_batch_is_refused_by_its_line() {
        let long = vec![b'x'; BATCH_BYTES_MAX + 1];
        assert_eq!(lines_of(&long), [&long[..]], "cut above the limit only");
        let fault = batch(None, std::slice::from_ref(&long), 0, 7).unwrap_err();
        assert!(fault.to_string().starts_with("line 7 "), "{fault}");
        let halves = [
            vec![b'x'; BATCH_BYTES_MAX / 2],
            vec![b'x'; BATCH_BYTES_MAX / 2],
        ];
        let fault = batch(None, &halves, 0, 1).unwrap_err();
        assert!(matches!(fault, CliError::BatchTooLarge));
    }

    #[test]
    fn a_burst_is_what_is_there() {
        let (sender, lines) = sync_channel(100);
        send_lines(&mut &b"1\n2\n3\n"[..], &sender);
        assert_eq!(next_burst(&lines).unwrap().len(), 3);
        for _ in 0..LINES_IN_FLIGHT_MAX + 1 {
            sender.send(Ok(Vec::new())).unwrap();
        }
        assert_eq!(next_burst(&lines).unwrap().len(), LINES_IN_FLIGHT_MAX);
        assert_eq!(next_burst(&lines).unwrap().len(), 1);
        drop(sender);
        assert!(next_burst(&lines).unwrap().is_empty());
    }
}
