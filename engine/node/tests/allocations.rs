//! From an append to the word that it is durable: no memory is asked for, and no more of the kernel
//! than two writes and a flush for a group, whatever its size.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use allocation_counter::measure;
use common::scratch_dir;
use quorate::disk_io::FlushMethod;
use quorate::lone_log::LoneLog;
use quorate_raft::{Epoch, Offset};
use quorate_ring::Engine;
use quorate_storage::LogConfig;
use quorate_storage::format::{BatchBuilder, NewRecord, stamp};

const WARM_UP: usize = 200;
const GROUPS: usize = 300;

/// Batches of one record, from `first` on.
fn batches(first: Offset, count: usize) -> Vec<bytes::Bytes> {
    let mut builder = BatchBuilder::produced();
    builder.push(NewRecord::value(1_000, &[7; 256]));
    let template = builder.build();
    let stamped = |index| {
        let mut batch = template.clone();
        stamp(&mut batch, Offset(first.0 + index as i64), Epoch(1));
        batch.into()
    };
    (0..count).map(stamped).collect()
}

/// Makes `groups` groups of so many batches durable, one after the other.
fn write(log: &mut LoneLog, batches: Vec<bytes::Bytes>, of: usize) -> u64 {
    let mut left = batches.into_iter();
    let allocated = measure(|| {
        while left.len() > 0 {
            for batch in left.by_ref().take(of) {
                log.append_stamped(batch);
            }
            log.flush().expect("a disk that works");
        }
    });
    allocated.count_total
}

#[test]
fn a_group_allocates_nothing_and_takes_three_operations() {
    for method in [
        FlushMethod::Parallel,
        FlushMethod::Linked,
        FlushMethod::Dsync,
    ] {
        for of in [1, 16] {
            let dir = scratch_dir();
            let mut config = LogConfig::new(dir.path().join("log-0"), [1; 16]);
            config.segment_bytes = 8 << 20;
            let mut log = LoneLog::open(config, Engine::Uring, method).expect("a log");
            log.prepare().expect("a spare");
            let warm_up = batches(log.appended_end(), WARM_UP * of);
            write(&mut log, warm_up, of);

            let measured = batches(log.appended_end(), GROUPS * of);
            let before = log.counters();
            let allocations = write(&mut log, measured, of);
            let after = log.counters();
            assert_eq!(allocations, 0, "{method}, groups of {of}");

            let operations = if method == FlushMethod::Dsync { 2 } else { 3 };
            let submissions = (after.submissions - before.submissions) as usize;
            assert_eq!(submissions, operations * GROUPS, "{method}, groups of {of}");
            // Each operation may end by itself and be noticed by a turn of its own.
            let enters = (after.enters - before.enters) as usize;
            assert!(
                enters <= operations * GROUPS,
                "{enters} system calls, {method}"
            );
            log.close().expect("a clean end");
        }
    }
}
