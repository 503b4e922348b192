//! What the disk may answer: short, interrupted and failed operations of a group, one by one, on
//! either engine, and the order of a group's operations.
//!
//! The executor is the node's own, and so are ring and file; only the results that it hears are
//! changed on their way.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{batch, scratch_dir};
use quorate::disk_io::{DiskOps, FlushMethod, GroupExecutor};
use quorate_raft::{Epoch, Instant, Offset};
use quorate_ring::{Completion, CompletionKind, Engine, Ring, RingConfig, Wait};
use quorate_storage::{FileDisk, GroupIo, Io, LogConfig, ProducerLimits, StampedBatch, open_log};
use std::io;
use std::path::Path;
use std::time::Duration;

const OPS: DiskOps = DiskOps {
    data: 1,
    mark: 2,
    flush: 3,
};

/// No time is measured here.
const NOW: Instant = Instant(0);

/// A group of one record, as the log writer forms it.
fn group(dir: &Path) -> GroupIo<FileDisk> {
    let config = LogConfig {
        dir: dir.join("log-0"),
        topic_id: [1; 16],
        segment_bytes: 65_536,
        group_bytes_max: 65_536,
        index_interval_bytes: 4096,
        producers: ProducerLimits::default(),
    };
    let mut writer = open_log(FileDisk, config, Epoch(1)).expect("a log").writer;
    let mut bytes = batch(b"value");
    bytes[12..16].copy_from_slice(&1_i32.to_be_bytes());
    writer.append(StampedBatch {
        bytes: bytes.into(),
        base_offset: Offset(0),
        end_offset: Offset(1),
        epoch: Epoch(1),
    });
    for _ in 0..1000 {
        match writer.poll().expect("something to do") {
            Io::Group(group) => return group,
            Io::Job(job) => drop(writer.on_job_done(job.run()).expect("a job")),
        }
    }
    panic!("no group comes");
}

/// An executor with its group under way, and what was heard so far.
struct Bench {
    ring: Ring,
    executor: GroupExecutor,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn start(engine: Engine) -> Self {
        Self::by(engine, FlushMethod::Parallel)
    }

    fn by(engine: Engine, method: FlushMethod) -> Self {
        let dir = scratch_dir();
        let config = RingConfig {
            engine,
            entries: 8,
            disk_threads: method.needs_disk_threads(),
        };
        let mut ring = Ring::new(&config).expect("a ring");
        let mut executor = GroupExecutor::new(OPS, method);
        executor.start(&mut ring, NOW, group(dir.path()));
        Self {
            ring,
            executor,
            _dir: dir,
        }
    }

    /// The next completions of operations, at least one.
    fn turn(&mut self) -> Vec<Completion> {
        let mut out = Vec::new();
        while out.is_empty() {
            let timeout = Some(Duration::from_secs(20));
            let turned = self.ring.turn(Wait::Until { timeout }, &mut out);
            turned.expect("a turn");
        }
        out
    }

    /// Runs the group to its end. `change` may change the result of each operation; the operations
    /// in their order, and how it ended.
    fn run(
        &mut self,
        mut change: impl FnMut(&mut Completion),
    ) -> (Vec<u64>, Result<(), io::Error>) {
        let mut heard = Vec::new();
        for _ in 0..200 {
            for mut done in self.turn() {
                heard.push(done.user);
                change(&mut done);
                let Completion { user, kind } = done;
                let over = self.executor.on_completion(&mut self.ring, NOW, user, kind);
                if let Some((_, result, _)) = over {
                    return (heard, result);
                }
            }
        }
        panic!("the group never ends: {heard:?}");
    }
}

/// Replaces the result of a write or flush.
fn set(done: &mut Completion, to: io::Result<usize>) {
    match &mut done.kind {
        CompletionKind::Wrote { result, .. } => *result = to,
        CompletionKind::Flushed(result) => *result = to.map(drop),
        other => panic!("{other:?}"),
    }
}

fn errno(error: i32) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(error))
}

fn sorted(writes: &[u64]) -> Vec<u64> {
    let mut writes = writes.to_vec();
    writes.sort_unstable();
    writes
}

fn both(test: impl Fn(Engine)) {
    test(Engine::Uring);
    test(Engine::Threads);
}

#[test]
fn the_flush_is_submitted_when_both_writes_have_ended_and_not_before() {
    // No chain: a flush covers only writes that had completed when it began.
    both(|engine| {
        let mut bench = Bench::start(engine);
        let mut writes = Vec::new();
        while writes.len() < 2 {
            writes.extend(bench.turn());
        }
        assert!(writes.iter().all(|done| done.user != OPS.flush));
        let second = writes.pop().expect("two");
        let first = writes.pop().expect("two");

        let before = bench.ring.counters().submissions;
        let (ring, executor) = (&mut bench.ring, &mut bench.executor);
        assert!(
            executor
                .on_completion(ring, NOW, first.user, first.kind)
                .is_none()
        );
        let mut out = Vec::new();
        bench.ring.turn(Wait::No, &mut out).expect("a turn");
        assert!(out.is_empty());
        // The ring's own wake-up read may have been among them.
        let of_its_own = bench.ring.counters().submissions - before;
        assert!(of_its_own <= 1, "a flush went out after one write");

        let (ring, executor) = (&mut bench.ring, &mut bench.executor);
        assert!(
            executor
                .on_completion(ring, NOW, second.user, second.kind)
                .is_none()
        );
        let (heard, result) = bench.run(|_| ());
        assert_eq!(heard, [OPS.flush]);
        result.expect("a flush");
    });
}

#[test]
fn short_and_interrupted_writes_are_made_again_before_the_flush() {
    both(|engine| {
        for which in [OPS.data, OPS.mark] {
            for fault in [
                || Ok(0),
                || Ok(512),
                || errno(libc::EINTR),
                || errno(libc::EAGAIN),
            ] {
                let mut bench = Bench::start(engine);
                let mut faults = 3;
                let (heard, result) = bench.run(|done| {
                    if done.user == which && faults > 0 {
                        faults -= 1;
                        set(done, fault());
                    }
                });
                result.expect("a durable group");
                let (flush, writes) = heard.split_last().expect("operations");
                assert_eq!(*flush, OPS.flush);
                let four_times = [OPS.data; 4].into_iter().chain([OPS.mark; 4]);
                assert_eq!(sorted(writes), four_times.collect::<Vec<_>>());
            }
        }
    });
}

#[test]
fn a_write_that_never_gets_through_fails_its_group() {
    both(|engine| {
        let mut bench = Bench::start(engine);
        let (heard, result) = bench.run(|done| set(done, Ok(0)));
        let kind = result.expect_err("no success").kind();
        assert_eq!(kind, io::ErrorKind::WriteZero);
        assert!(!heard.contains(&OPS.flush));
    });
}

#[test]
fn any_other_failure_of_a_write_is_final_and_nothing_is_flushed() {
    both(|engine| {
        for error in [
            libc::EIO,
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EFBIG,
            libc::EINVAL,
            libc::ENOMEM,
            libc::ECANCELED,
        ] {
            for which in [OPS.data, OPS.mark] {
                let mut bench = Bench::start(engine);
                let (heard, result) = bench.run(|done| {
                    if done.user == which {
                        set(done, errno(error));
                    }
                });
                assert_eq!(result.expect_err("it").raw_os_error(), Some(error));
                assert_eq!(sorted(&heard), [OPS.data, OPS.mark]);
            }
        }
    });
}

#[test]
fn a_flush_that_does_not_succeed_is_final_whatever_it_says() {
    // EINTR too: nobody can tell what such a flush has reached, and a second one may say yes
    // without having written anything.
    both(|engine| {
        for error in [
            libc::EIO,
            libc::ENOSPC,
            libc::EINTR,
            libc::EAGAIN,
            libc::ECANCELED,
        ] {
            let mut bench = Bench::start(engine);
            let (heard, result) = bench.run(|done| {
                if done.user == OPS.flush {
                    set(done, errno(error));
                }
            });
            assert_eq!(result.expect_err("it").raw_os_error(), Some(error));
            assert_eq!(heard.len(), 3, "one flush, no second");
        }
    });
}

/// The operations of a group that nothing goes wrong with.
fn operations(method: FlushMethod) -> &'static [u64] {
    match method {
        FlushMethod::Dsync => &[OPS.data, OPS.mark],
        _ => &[OPS.data, OPS.mark, OPS.flush],
    }
}

#[test]
fn every_method_makes_a_group_durable_by_its_own_operations() {
    for method in FlushMethod::ALL {
        both(|engine| {
            let mut bench = Bench::by(engine, method);
            let (heard, result) = bench.run(|_| ());
            result.expect("a durable group");
            assert_eq!(sorted(&heard), operations(method), "{method}");
        });
    }
}

#[test]
fn a_broken_chain_is_written_again_whole_before_it_counts() {
    // What a kernel answers when the first write falls short: the rest is cancelled.
    for method in [FlushMethod::Linked, FlushMethod::Thread] {
        both(|engine| {
            for first in [|| Ok(512), || errno(libc::EINTR), || errno(libc::EAGAIN)] {
                let mut bench = Bench::by(engine, method);
                let mut left = 3;
                let (heard, result) = bench.run(|done| {
                    if left > 0 {
                        left -= 1;
                        let to = if done.user == OPS.data {
                            first()
                        } else {
                            errno(libc::ECANCELED)
                        };
                        set(done, to);
                    }
                });
                result.expect("a durable group");
                assert_eq!(heard.len(), 6, "a second chain, and no third: {heard:?}");
                assert_eq!(heard.last(), Some(&OPS.flush));
            }
        });
    }
}

#[test]
fn a_failure_anywhere_is_final_by_every_method() {
    for method in FlushMethod::ALL {
        for which in operations(method) {
            both(|engine| {
                let mut bench = Bench::by(engine, method);
                let (heard, result) = bench.run(|done| {
                    if done.user == *which {
                        set(done, errno(libc::EIO));
                    }
                });
                let error = result.expect_err("no success").raw_os_error();
                assert_eq!(error, Some(libc::EIO), "{method}");
                assert!(heard.len() <= 3, "nothing is tried again: {heard:?}");
            });
        }
    }
}

#[test]
fn an_operation_that_is_cancelled_for_no_reason_is_a_failure() {
    for method in [FlushMethod::Linked, FlushMethod::Thread] {
        both(|engine| {
            let mut bench = Bench::by(engine, method);
            let (_, result) = bench.run(|done| {
                if done.user == OPS.flush {
                    set(done, errno(libc::ECANCELED));
                }
            });
            let error = result.expect_err("no success").raw_os_error();
            assert_eq!(error, Some(libc::ECANCELED), "{method}");
        });
    }
}
