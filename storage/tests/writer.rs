//! The log writer: what becomes a group, in which order things reach the disk, and what is
//! reported.

mod common;

use common::{QUORUM_EPOCH, bytes_of, config, dir, is_prepare, log_path, open};
use quorate_raft::{Generation, Offset};
use quorate_storage::format::{BATCH_BYTES_LIMIT, decode_epoch_checkpoint};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{Disk, Io, LogConfig, LogEvent, open_log};
use std::io;

const SEGMENT: u64 = 64 * 1024;

fn new_log() -> common::Driver<SimDisk> {
    open(&SimDisk::new(), config(SEGMENT)).unwrap()
}

fn flushed_ends(events: &[LogEvent]) -> Vec<i64> {
    let end = |event: &LogEvent| match event {
        LogEvent::Flushed(flushed) => Some(flushed.end_offset.0),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

/// Puts one group in flight and leaves it there.
fn with_group_in_flight() -> common::Driver<SimDisk> {
    let mut driver = new_log();
    driver.fill(1, 1, 700);
    driver.append(1, 700, 50);
    driver.start();
    let groups = driver
        .in_flight
        .iter()
        .filter(|io| matches!(io, Io::Group(_)));
    assert_eq!(groups.count(), 1);
    driver
}

#[test]
fn what_is_appended_while_a_group_is_in_flight_becomes_one_group() {
    let mut driver = with_group_in_flight();
    for tag in 0..8 {
        driver.append(1, 700, tag);
    }
    assert_eq!(driver.writer.unflushed_bytes(), 9 * 700);
    assert_eq!(driver.writer.appended_end(), Offset(10));
    let events = driver.settle().unwrap();
    assert_eq!(flushed_ends(&events), [2, 10]);
    let stats = *driver.writer.stats();
    assert_eq!((stats.groups, stats.flushes, stats.batches), (3, 3, 10));
    assert_eq!((stats.bytes, driver.writer.unflushed_bytes()), (7000, 0));
}

#[test]
fn a_group_is_bounded_and_a_larger_batch_goes_alone() {
    let mut driver = with_group_in_flight();
    for size in [3000, 3000, 3000, 20_000, 700] {
        driver.append(1, size, 1);
    }
    let events = driver.settle().unwrap();
    // 8 KiB to a group: two of 3000 bytes, the third alone, the large one alone.
    assert_eq!(flushed_ends(&events), [2, 4, 5, 6, 7]);
}

#[test]
fn what_was_copied_ahead_and_then_cut_off_is_never_written() {
    for end in 2..6 {
        let mut driver = with_group_in_flight();
        let copied: Vec<_> = (0..4).map(|tag| driver.append(1, 700, 10 + tag)).collect();
        // Copies them behind the group in flight.
        driver.start();
        driver.truncate(end, 1);
        let kept = &copied[..(end - 2) as usize];
        let after: Vec<_> = (0..3).map(|tag| driver.append(2, 700, 20 + tag)).collect();
        driver.start();
        driver.settle().unwrap();
        let content = driver.disk.content(&log_path(0)).unwrap();
        let expected = bytes_of(&[kept, &after].concat()).concat();
        assert!(
            content[1400..1400 + expected.len()] == expected,
            "cut to {end}"
        );
        assert_eq!(driver.writer.flushed_end(), Offset(end + 3));
    }
}

#[test]
fn the_durable_part_of_the_tail_block_is_written_again_unchanged() {
    let mut driver = new_log();
    let mut expected = Vec::new();
    for tag in 0..40 {
        expected.extend_from_slice(&driver.append(1, 333, tag).bytes);
        driver.start();
        let image = driver.disk.content(&log_path(0)).unwrap();
        driver.settle().unwrap();
        let after = driver.disk.content(&log_path(0)).unwrap();
        let before = expected.len() - 333;
        assert!(image[..before] == after[..before], "batch {tag}");
        assert!(after[..expected.len()] == expected);
        assert!(
            after[expected.len()..SEGMENT as usize]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn a_new_epoch_is_in_the_checkpoint_before_its_first_batch_is_written() {
    let mut driver = new_log();
    driver.append(3, 700, 1);
    driver.append(4, 700, 2);
    for epochs in [vec![(3, 0)], vec![(3, 0), (4, 1)]] {
        driver.start();
        let job = driver
            .in_flight
            .iter()
            .position(|io| !is_prepare(io))
            .unwrap();
        assert!(matches!(&driver.in_flight[job], Io::Job(job) if job.name().contains("epoch")));
        driver.complete(job).unwrap();
        let checkpoint = driver.disk.durable_only();
        let content = checkpoint
            .content(&dir().join("leader-epoch-checkpoint"))
            .unwrap();
        let entries = decode_epoch_checkpoint(&content).unwrap();
        let entries: Vec<_> = entries
            .iter()
            .map(|e| (e.epoch.0, e.start_offset.0))
            .collect();
        assert_eq!(entries, epochs);
        driver.start();
        let group = driver
            .in_flight
            .iter()
            .position(|io| matches!(io, Io::Group(_)))
            .unwrap();
        driver.complete(group).unwrap();
    }
    assert_eq!(driver.index.flushed_end(), Offset(2));
}

/// A later flush would succeed and say nothing about what the failed one lost.
#[test]
fn a_failed_flush_is_final() {
    let mut driver = with_group_in_flight();
    driver.disk.fail_flush(1);
    let group = driver
        .in_flight
        .iter()
        .position(|io| matches!(io, Io::Group(_)))
        .unwrap();
    let error = driver.complete(group).unwrap_err();
    assert_eq!(error.path, log_path(0));
    driver.append(1, 700, 3);
    assert!(
        driver.writer.poll().is_none(),
        "nothing is written after a failed flush"
    );
    let disk = driver.disk.durable_only();
    let found = open(&disk, config(SEGMENT)).unwrap();
    assert_eq!(
        found.opened.log_end,
        Offset(1),
        "what was acknowledged, and no more"
    );
}

#[test]
fn an_interrupted_write_is_done_again_and_another_failure_is_final() {
    for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock] {
        let mut driver = with_group_in_flight();
        driver.disk.fail_write(1, kind);
        let events = driver.settle().unwrap();
        assert_eq!(flushed_ends(&events), [2]);
        assert_eq!(driver.read_all().len(), 2);
    }
    let mut driver = with_group_in_flight();
    let group = driver
        .in_flight
        .iter()
        .position(|io| matches!(io, Io::Group(_)))
        .unwrap();
    driver.disk.fail_write(2, io::ErrorKind::StorageFull);
    let error = driver.complete(group).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    assert!(driver.writer.poll().is_none());
}

#[test]
fn a_full_segment_is_sealed_and_the_next_begins_at_its_end() {
    let mut driver = open(&SimDisk::new(), config(8192)).unwrap();
    let batches = driver.fill(1, 25, 700);
    assert_eq!(driver.writer.stats().rolls, 2);
    let sealed = driver.disk.content(&log_path(0)).unwrap();
    assert!(
        sealed == bytes_of(&batches[..11]).concat(),
        "Kafka would have written the same"
    );
    let index = driver
        .disk
        .content(&dir().join("00000000000000000000.index"))
        .unwrap();
    // More than 4096 bytes lie before the seventh batch (offset 6, byte 4200).
    assert_eq!(index, [0, 0, 0, 6, 0, 0, 0x10, 0x68]);
    let times = driver
        .disk
        .content(&dir().join("00000000000000000000.timeindex"))
        .unwrap();
    assert_eq!(times.len(), 24);
    assert_eq!(driver.read_all(), bytes_of(&batches));
    driver.close();
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let mut driver = open(&SimDisk::new(), config(8192)).unwrap();
    let mut expected = Vec::new();
    for (tag, size) in [700, 30_000, 700, 50_000, 8192, 700]
        .into_iter()
        .enumerate()
    {
        expected.push(driver.append(1, size, tag as u64));
        driver.settle().unwrap();
    }
    let disk = driver.disk.clone();
    assert!(driver.read_all() == bytes_of(&expected));
    let found = open(&disk, config(8192)).unwrap();
    assert!(found.read_all() == bytes_of(&expected));
}

#[test]
fn the_largest_batch_is_written_flushed_and_recovered() {
    let usual = LogConfig {
        group_bytes_max: 1 << 20,
        ..config(1 << 20)
    };
    let disk = SimDisk::new();
    let mut driver = open(&disk, usual.clone()).unwrap();
    let batches = [
        driver.append(1, 700, 1),
        driver.append(1, BATCH_BYTES_LIMIT, 2),
    ];
    driver.settle().unwrap();
    let torn = disk.duplicate();
    assert!(open(&disk, usual.clone()).unwrap().read_all() == bytes_of(&batches));
    torn.edit(&log_path(1), |bytes| {
        bytes[5 << 20..(5 << 20) + 512].fill(0)
    });
    let found = open(&torn, usual).unwrap();
    assert_eq!(found.opened.log_end, Offset(1));
}

#[test]
fn a_truncation_waits_for_the_group_in_flight_and_drops_what_waits_behind_it() {
    let mut driver = with_group_in_flight();
    let dropped = driver.append(1, 700, 60);
    driver.truncate(1, 7);
    assert_eq!(driver.writer.appended_end(), Offset(1));
    let new = driver.append(1, 700, 61);
    let events = driver.settle().unwrap();
    let [LogEvent::Flushed(first), truncated, LogEvent::Flushed(last)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (first.generation, first.end_offset),
        (Generation(0), Offset(2))
    );
    let expected = LogEvent::Truncated {
        generation: Generation(7),
        end_offset: Offset(1),
    };
    assert_eq!(*truncated, expected);
    assert_eq!(
        (last.generation, last.end_offset),
        (Generation(7), Offset(2))
    );
    let found = driver.read_all();
    assert_eq!(found[1], new.bytes);
    assert_ne!(found[1], dropped.bytes);
    let disk = driver.disk.durable_only();
    assert_eq!(open(&disk, config(SEGMENT)).unwrap().read_all(), found);
}

#[test]
fn a_truncation_of_what_was_never_written_cuts_nothing_and_is_reported() {
    let mut driver = with_group_in_flight();
    driver.append(1, 700, 60);
    driver.append(2, 700, 61);
    driver.truncate(3, 1);
    driver.truncate(2, 2);
    let segments = |driver: &common::Driver<SimDisk>| {
        let names = driver.disk.list(&dir()).unwrap();
        names.iter().filter(|name| name.ends_with(".log")).count()
    };
    let before = segments(&driver);
    let events = driver.settle().unwrap();
    let truncated = LogEvent::Truncated {
        generation: Generation(2),
        end_offset: Offset(2),
    };
    assert_eq!(events.last(), Some(&truncated));
    assert_eq!(segments(&driver), before);
    driver.fill(1, 2, 700);
    let disk = driver.disk.durable_only();
    assert_eq!(
        open(&disk, config(SEGMENT)).unwrap().opened.log_end,
        Offset(4)
    );
}

#[test]
fn a_truncation_across_segments_keeps_what_is_before_it() {
    for end in [0, 1, 10, 11, 12, 21, 22, 24] {
        let mut driver = open(&SimDisk::new(), config(8192)).unwrap();
        let mut batches = driver.fill(1, 20, 700);
        batches.extend(driver.fill(2, 5, 700));
        driver.truncate(end, 1);
        let events = driver.settle().unwrap();
        assert_eq!(events.len(), 1, "{end}: {events:?}");
        batches.truncate(end as usize);
        batches.extend(driver.fill(1 + i32::from(end > 20), 3, 700));
        assert!(driver.read_all() == bytes_of(&batches), "{end}");
        let disk = driver.disk.durable_only();
        let found = open(&disk, config(8192)).unwrap();
        assert!(found.read_all() == bytes_of(&batches), "{end}");
        assert!(found.opened.epochs.len() <= 2);
    }
}

#[test]
fn a_truncation_to_no_batch_boundary_is_an_error_and_changes_nothing() {
    use common::stamped;
    use quorate_raft::Epoch;
    use quorate_storage::format::{BatchBuilder, NewRecord};
    let mut driver = new_log();
    let mut builder = BatchBuilder::new(Offset(0), Epoch(1));
    (0..3).for_each(|index| builder.push(NewRecord::value(index, b"x")));
    driver.writer.append(stamped(builder.build()));
    driver.settle().unwrap();
    driver.truncate(2, 1);
    let error = driver.settle().unwrap_err();
    assert!(
        error.to_string().contains("no batch ends at offset 2"),
        "{error}"
    );
    let disk = driver.disk.durable_only();
    assert_eq!(
        open(&disk, config(SEGMENT)).unwrap().opened.log_end,
        Offset(3)
    );
}

#[test]
fn a_closed_log_is_what_kafka_would_have_written() {
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    let batches = driver.fill(1, 5, 700);
    driver.append(1, 700, 9);
    driver.close();
    let durable = disk.durable_only();
    let content = durable.content(&log_path(0)).unwrap();
    assert_eq!(content.len(), 6 * 700);
    assert!(content.starts_with(&bytes_of(&batches).concat()));
    let marker = durable
        .content(&dir().join(".quorate_cleanshutdown"))
        .unwrap();
    let start = br#"{"version":1,"log_end_offset":6,"epoch":1,"manifest":"#;
    assert!(marker.starts_with(start) && marker.ends_with(b"}\n"));
}

#[test]
fn preparation_goes_on_beside_groups_in_steps() {
    let large = config(4 << 20);
    let disk = SimDisk::new();
    let mut driver = open(&disk, large).unwrap();
    let mut steps = 0;
    for tag in 0..12 {
        driver.append(1, 700, tag);
        driver.start();
        let step = driver.in_flight.iter().position(is_prepare);
        if let Some(step) = step {
            driver.complete(step).unwrap();
            steps += 1;
        }
        driver.start();
        while let Some(main) = driver.in_flight.iter().position(|io| !is_prepare(io)) {
            driver.complete(main).unwrap();
            driver.start();
        }
    }
    assert_eq!(driver.index.flushed_end(), Offset(12));
    assert!(steps >= 5, "{steps} steps");
    assert!(disk.content(&dir().join("segment.spare")).is_some());
}

/// A write that makes its file longer, or goes to blocks that were never written, makes each flush
/// a commit of the file system's journal. So an active segment has its full length from the start.
#[test]
fn no_group_makes_its_file_longer_in_any_segment() {
    let active_bytes = |disk: &SimDisk| {
        let names = disk.list(&dir()).unwrap();
        let last = names.iter().rfind(|name| name.ends_with(".log")).unwrap();
        disk.content(&dir().join(last)).unwrap().len()
    };
    let mut driver = new_log();
    let prepared = active_bytes(&driver.disk);
    assert!(prepared as u64 >= SEGMENT);
    for round in 0..4 {
        match round {
            1 => driver = open(&driver.disk, config(SEGMENT)).unwrap(),
            2 => driver.truncate(3, 1),
            3 => drop(driver.fill(2, 100, 700)),
            _ => {}
        }
        driver.settle().unwrap();
        for tag in 0..8 {
            driver.append(2, 3000, tag);
            assert_eq!(active_bytes(&driver.disk), prepared, "round {round}");
            driver.settle().unwrap();
        }
    }
    assert!(driver.writer.stats().rolls > 0);
}

#[test]
#[should_panic(expected = "base offset of an append")]
fn a_gap_between_appends_is_our_own_mistake() {
    let mut driver = new_log();
    let batch = common::batch(Offset(5), quorate_raft::Epoch(1), 700, 1);
    driver.writer.append(batch);
}

#[test]
fn opening_needs_no_more_than_the_disk() {
    let opened = open_log(SimDisk::new(), config(SEGMENT), QUORUM_EPOCH).unwrap();
    assert_eq!(
        opened.report.to_string(),
        "/log/topic-0: created an empty log"
    );
}
