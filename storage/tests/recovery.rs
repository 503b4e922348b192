//! What recovery makes of damaged, torn and foreign directories: a torn group is cut, corruption is
//! refused by name and nothing is changed.

mod common;

use common::{TOPIC, all_files, batch, bytes_of, config, dir, log_path, open, stamped};
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::BatchBuilder;
use quorate_storage::format::NewRecord;
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{Disk, RecoveryError, StampedBatch, open_log};
use std::io;

const SEGMENT: u64 = 64 * 1024;

/// A disk whose process died with `batches` in its first, active segment.
fn crashed_with(sizes: &[usize]) -> (SimDisk, Vec<StampedBatch>) {
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    let mut batches = Vec::new();
    for (tag, size) in sizes.iter().enumerate() {
        batches.push(driver.append(1, *size, tag as u64));
        driver.settle().unwrap();
    }
    (disk, batches)
}

fn assert_corrupt(disk: &SimDisk, what: &str) -> u64 {
    let before = all_files(disk, &dir());
    let error = open(disk, config(SEGMENT)).map(|_| ()).unwrap_err();
    let RecoveryError::Corrupt { position, .. } = error else {
        panic!("{what}: {error}");
    };
    assert_eq!(
        all_files(disk, &dir()),
        before,
        "{what}: something was changed"
    );
    position
}

/// Opens, checks the batches, appends one and opens again with the same result.
fn assert_opens_with(disk: &SimDisk, batches: &[StampedBatch], what: &str) {
    let mut driver = open(disk, config(SEGMENT)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same(&driver.read_all(), batches, what);
    let next = driver.append(2, 300, 77);
    driver.settle().unwrap();
    let again = open(disk, config(SEGMENT)).unwrap();
    let expected = [batches, &[next]].concat();
    assert_eq!(
        again.read_all(),
        bytes_of(&expected),
        "{what}: at the second start"
    );
}

/// Without printing kilobytes of records.
fn assert_same(found: &[Vec<u8>], expected: &[StampedBatch], what: &str) {
    let same = found == bytes_of(expected);
    assert!(
        same,
        "{what}: {} batches instead of {}",
        found.len(),
        expected.len()
    );
}

#[test]
fn a_new_directory_becomes_an_empty_log() {
    let disk = SimDisk::new();
    let driver = open(&disk, config(SEGMENT)).unwrap();
    assert!(driver.opened.report.is_new);
    assert_eq!(driver.opened.log_end, Offset(0));
    assert!(driver.read_all().is_empty());
    assert_opens_with(&disk, &[], "empty");
}

/// The last batch zeroed from any byte on, which is how a write that did not finish looks.
#[test]
fn a_last_batch_that_is_zero_from_any_byte_on_is_cut_off() {
    let (disk, batches) = crashed_with(&[700, 900, 5000]);
    let start = 1600;
    for length in (0..5000).step_by(7).chain(4990..4999) {
        let image = disk.duplicate();
        image.edit(&log_path(0), |bytes| {
            bytes[start + length..start + 5000].fill(0)
        });
        let what = format!("zero from byte {length} of the last batch on");
        assert_opens_with(&image, &batches[..2], &what);
    }
    assert_opens_with(&disk, &batches, "untouched");
}

/// Bytes that nobody wrote in the place of the last batch are no torn write: it may have been
/// acknowledged.
#[test]
fn garbage_in_the_last_batch_is_refused() {
    let (disk, _) = crashed_with(&[700, 900, 5000]);
    for length in (0..5000).step_by(61) {
        let image = disk.duplicate();
        image.edit(&log_path(0), |bytes| {
            for byte in &mut bytes[1600 + length..6600] {
                *byte ^= 0x5a;
            }
        });
        assert_corrupt(&image, &format!("garbage from {length}"));
    }
}

/// Where no mark vouches for it, garbage was acknowledged by nobody: behind the newest group, and
/// in the place of a group whose mark did not land.
#[test]
fn garbage_that_no_mark_vouches_for_is_cut_off() {
    let (disk, mut batches) = crashed_with(&[700, 900]);
    let old = disk.content(&log_path(0)).unwrap();
    let mut driver = open(&disk.duplicate(), config(SEGMENT)).unwrap();
    batches.push(driver.append(1, 5000, 2));
    for length in (0..5000).step_by(61) {
        let image = disk.duplicate();
        let garbage = |byte: usize| (byte % 251) as u8 | 1;
        image.edit(&log_path(0), |bytes| {
            bytes[1600..1600 + length].copy_from_slice(&batches[2].bytes[..length]);
            (1600 + length..8192).for_each(|at| bytes[at] = garbage(at));
            assert!(
                bytes[SEGMENT as usize..] == old[SEGMENT as usize..],
                "the marks"
            );
        });
        let found = open(&image.duplicate(), config(SEGMENT)).unwrap();
        assert!(found.opened.report.torn.is_some());
        let what = format!("garbage from {length} in the place of the third batch");
        assert_opens_with(&image, &batches[..2], &what);
    }
}

/// A file that is shorter than it was made is not the work of a crash, as its marks were
/// flushed with its full length.
#[test]
fn a_file_cut_inside_its_last_batch_is_refused_and_one_cut_at_its_end_is_whole() {
    let (disk, batches) = crashed_with(&[700, 900, 5000]);
    for length in (1..5000).step_by(61) {
        let image = disk.duplicate();
        image.edit(&log_path(0), |bytes| bytes.truncate(1600 + length));
        assert_corrupt(&image, &format!("cut to {length}"));
    }
    let image = disk.duplicate();
    image.edit(&log_path(0), |bytes| bytes.truncate(6600));
    assert_opens_with(&image, &batches, "cut exactly behind the last batch");
}

#[test]
fn a_segment_that_is_full_to_the_last_byte_is_no_empty_one() {
    for missing in [0, 1, 61, 4096] {
        let sizes = [20_000, 20_000, SEGMENT as usize - 40_000 - missing];
        let (disk, mut batches) = crashed_with(&sizes);
        let image = disk.duplicate();
        assert_opens_with(&image, &batches, "killed with a full segment");
        let mut driver = open(&disk, config(SEGMENT)).unwrap();
        for tag in 0..10 {
            batches.push(driver.append(1, 700, tag));
        }
        driver.settle().unwrap();
        driver.close();
        assert_opens_with(&disk, &batches, "closed and appended to");
    }
}

/// One group of sixteen batches, an inner block of the third missing.
#[test]
fn batches_behind_a_missing_block_of_the_same_group_are_dropped() {
    let disk = SimDisk::new();
    let big = quorate_storage::LogConfig {
        group_bytes_max: 1 << 20,
        ..config(1 << 20)
    };
    let mut driver = open(&disk, big.clone()).unwrap();
    let batches: Vec<_> = (0..16)
        .map(|tag| driver.append(1, 16 * 1024, tag))
        .collect();
    driver.settle().unwrap();
    assert_eq!(driver.writer.stats().groups, 1);
    for filler in [0, 1] {
        let image = disk.duplicate();
        let inner = 2 * 16 * 1024 + 4096;
        image.edit(&log_path(0), |bytes| {
            bytes[inner..inner + 4096].fill(filler)
        });
        let result = open(&image, big.clone());
        if filler == 0 {
            let found = result.unwrap();
            assert_same(&found.read_all(), &batches[..2], "missing block");
            assert!(found.opened.report.torn.is_some());
        } else {
            assert!(matches!(
                result.map(|_| ()),
                Err(RecoveryError::Corrupt { .. })
            ));
        }
    }
}

/// Every subset of the sectors of an unflushed group and its mark.
#[test]
fn any_part_of_an_unflushed_group_leaves_a_prefix_of_it() {
    let (disk, before) = crashed_with(&[700]);
    let mut driver = open(&disk.duplicate(), config(SEGMENT)).unwrap();
    // A directory of its own per image, from the same start.
    let flushed: Vec<_> = [&before[..], &driver.fill(1, 1, 900)].concat();
    let old = driver.disk.content(&log_path(1)).unwrap();
    let group = [driver.append(1, 600, 1), driver.append(1, 2500, 2)];
    driver.settle().unwrap();
    let new = driver.disk.content(&log_path(1)).unwrap();
    let changed: Vec<usize> = (0..old.len() / 512)
        .filter(|sector| old[sector * 512..][..512] != new[sector * 512..][..512])
        .collect();
    assert!(
        (9..12).contains(&changed.len()),
        "{} sectors",
        changed.len()
    );
    for subset in 0..1_u32 << changed.len() {
        let image = driver.disk.duplicate();
        image.edit(&log_path(1), |bytes| {
            for (bit, sector) in changed.iter().enumerate() {
                if subset & 1 << bit == 0 {
                    bytes[sector * 512..][..512].copy_from_slice(&old[sector * 512..][..512]);
                }
            }
        });
        let found = open(&image, config(SEGMENT)).unwrap_or_else(|e| panic!("{subset:b}: {e}"));
        let all = bytes_of(&[&flushed[..], &group].concat());
        let found = found.read_all();
        assert!(found.len() >= flushed.len(), "{subset:b}");
        assert!(found == all[..found.len()], "{subset:b}");
    }
}

/// A flipped bit anywhere in what was flushed is found, named, and nothing is touched.
#[test]
fn a_flipped_bit_in_flushed_bytes_is_refused() {
    let (disk, _) = crashed_with(&[700, 900, 800, 600]);
    // Not the magic-to-CRC part alone: offsets and epochs lie outside the CRC.
    for position in (0..3000).step_by(11) {
        let image = disk.duplicate();
        image.edit(&log_path(0), |bytes| bytes[position] ^= 0x10);
        let at = assert_corrupt(&image, &format!("bit at {position}"));
        assert!(at <= position as u64, "named {at} for {position}");
    }
}

/// Batches with a valid CRC in the wrong place.
#[test]
fn misplaced_batches_are_refused() {
    let (disk, _) = crashed_with(&[700, 700, 700, 700]);
    disk.edit(&log_path(0), |bytes| {
        let (first, second) = bytes.split_at_mut(1400);
        first[700..].swap_with_slice(&mut second[..700]);
    });
    assert_eq!(assert_corrupt(&disk, "swapped"), 700);

    let disk = SimDisk::new();
    let mut driver = open(&disk, config(8192)).unwrap();
    driver.fill(1, 30, 700);
    drop(driver);
    let first = disk.content(&log_path(0)).unwrap();
    disk.edit(&log_path(11), |bytes| *bytes = first);
    assert!(matches!(
        open(&disk, config(8192)).map(|_| ()),
        Err(RecoveryError::Corrupt { position: 0, .. })
    ));
}

#[test]
fn a_cleanly_closed_log_must_be_whole_and_end_where_it_was_closed() {
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(8192)).unwrap();
    let batches = driver.fill(1, 30, 700);
    driver.close();
    let names = disk.list(&dir()).unwrap();
    let last: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(
        disk.content(&log_path(22)).unwrap().len(),
        8 * 700,
        "cut to its exact end"
    );
    assert_eq!(last.len(), 3, "{last:?}");

    let flipped = disk.duplicate();
    flipped.edit(&log_path(22), |bytes| bytes[5599] ^= 1);
    assert!(matches!(
        open(&flipped, config(8192)).map(|_| ()),
        Err(RecoveryError::Corrupt { position: 4900, .. })
    ));
    let lost = disk.duplicate();
    lost.remove(&log_path(22)).unwrap();
    assert!(matches!(
        open(&lost, config(8192)).map(|_| ()),
        Err(RecoveryError::EndMismatch { .. })
    ));
    let hole = disk.duplicate();
    hole.remove(&log_path(11)).unwrap();
    assert!(matches!(
        open(&hole, config(8192)).map(|_| ()),
        Err(RecoveryError::MissingSegment {
            from: Offset(11),
            to: Offset(22),
            ..
        })
    ));
    for path in [log_path(0), log_path(11), log_path(22)] {
        hole.remove(&path).ok();
    }
    assert!(matches!(
        open(&hole, config(8192)).map(|_| ()),
        Err(RecoveryError::NoSegments { .. })
    ));
    let found = open(&disk, config(8192)).unwrap();
    assert!(found.opened.report.is_clean);
    assert_same(&found.read_all(), &batches, "closed cleanly");
    let after = open(&disk, config(8192)).unwrap();
    assert!(!after.opened.report.is_clean, "the marker is consumed");
}

#[test]
fn an_epoch_that_quorum_state_does_not_know_is_refused() {
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    driver.fill(3, 1, 700);
    let error = open_log(disk.clone(), config(SEGMENT), Epoch(2))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(
        error,
        RecoveryError::EpochAhead {
            log_epoch: Epoch(3),
            quorum_epoch: Epoch(2),
            ..
        }
    ));
    assert!(open_log(disk, config(SEGMENT), Epoch(3)).is_ok());
}

#[test]
fn an_epoch_outside_the_crc_must_be_what_the_checkpoint_says() {
    let (disk, _) = crashed_with(&[700, 700, 700]);
    disk.edit(&log_path(0), |bytes| bytes[1400 + 15] = 2);
    // The last batch's group: its block is neither old nor new.
    assert_corrupt(&disk, "epoch changed");
}

#[test]
fn a_directory_of_another_topic_is_refused() {
    let (disk, _) = crashed_with(&[700]);
    let other = quorate_storage::LogConfig {
        topic_id: [8; 16],
        ..config(SEGMENT)
    };
    assert!(matches!(
        open(&disk, other).map(|_| ()),
        Err(RecoveryError::TopicIdMismatch { .. })
    ));
    let metadata = disk.content(&dir().join("partition.metadata")).unwrap();
    let topic = quorate_storage::format::decode_partition_metadata(&metadata).unwrap();
    assert_eq!(topic, TOPIC);
}

#[test]
fn state_files_that_are_not_whole_are_refused_by_name() {
    for name in [
        "leader-epoch-checkpoint",
        "quorate-log",
        "partition.metadata",
    ] {
        let (disk, _) = crashed_with(&[700]);
        disk.edit(&dir().join(name), |bytes| bytes.truncate(4));
        let error = open(&disk, config(SEGMENT)).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, RecoveryError::StateFile(_)),
            "{name}: {error}"
        );
        assert!(error.to_string().contains(name), "{error}");
    }
    let (disk, _) = crashed_with(&[700]);
    disk.remove(&dir().join("leader-epoch-checkpoint")).unwrap();
    assert!(matches!(
        open(&disk, config(SEGMENT)).map(|_| ()),
        Err(RecoveryError::StateFile(_))
    ));
}

#[test]
fn a_log_that_lost_its_identity_is_not_taken_for_kafkas() {
    let (disk, _) = crashed_with(&[700]);
    disk.remove(&dir().join("quorate-log")).unwrap();
    let error = open(&disk, config(SEGMENT)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("quorate-log"), "{error}");
}

const GOLDEN_LOG: &[u8] = include_bytes!("../testdata/testraftserver-single-node.log");

fn kafkas_directory() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    disk.put(&log_path(0), GOLDEN_LOG);
    let put = |name: &str, content: &[u8]| disk.put(&dir().join(name), content);
    put("00000000000000000000.index", &[0; 10_485_760]);
    put("00000000000000000000.timeindex", &[0; 10_485_756]);
    put(
        "leader-epoch-checkpoint",
        include_bytes!("../testdata/leader-epoch-checkpoint"),
    );
    put("quorum-state", include_bytes!("../testdata/quorum-state"));
    disk
}

#[test]
fn a_directory_written_by_kafka_is_taken_over() {
    let disk = kafkas_directory();
    let driver = open(&disk, config(SEGMENT)).unwrap();
    assert!(driver.opened.report.is_foreign);
    assert_eq!(driver.opened.epochs, [(1, 0)]);
    assert!(driver.read_all().concat() == GOLDEN_LOG);
    let index = disk
        .content(&dir().join("00000000000000000000.index"))
        .unwrap();
    assert!(
        (64..200).contains(&index.len()),
        "{} bytes of index",
        index.len()
    );
    let end = driver.opened.log_end;
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    assert!(!driver.opened.report.is_foreign);
    driver.append(2, 700, 1);
    driver.settle().unwrap();
    assert_eq!(driver.index.flushed_end(), Offset(end.0 + 1));
}

/// Kafka does not flush before it answers and cuts its last segment at the first bad batch; there,
/// and only there, so do we.
#[test]
fn kafkas_last_segment_is_cut_at_its_first_bad_batch() {
    let disk = kafkas_directory();
    disk.edit(&log_path(0), |bytes| bytes[40_000] ^= 1);
    let driver = open(&disk, config(SEGMENT)).unwrap();
    let found = driver.read_all().concat();
    assert!(found == GOLDEN_LOG[..found.len()]);
    assert!((39_000..40_001).contains(&found.len()));
    assert!(driver.opened.report.torn.is_some());
    assert!(disk.content(&log_path(0)).unwrap() == found);
}

#[test]
fn a_log_that_begins_later_needs_a_snapshot() {
    let disk = SimDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    let mut builder = BatchBuilder::new(Offset(50), Epoch(1));
    builder.push(NewRecord::value(1, b"x"));
    disk.put(&log_path(50), &stamped(builder.build()).bytes);
    let error = open(&disk, config(SEGMENT)).map(|_| ()).unwrap_err();
    assert!(matches!(
        error,
        RecoveryError::MissingSnapshot {
            log_start: Offset(50),
            ..
        }
    ));
    disk.put(
        &dir().join("00000000000000000050-0000000001.checkpoint"),
        b"",
    );
    let driver = open(&disk, config(SEGMENT)).unwrap();
    assert_eq!(
        (driver.opened.log_start, driver.opened.log_end),
        (Offset(50), Offset(51))
    );
}

/// A client's record that looks like a mark, at the end of a sealed segment, is a record: it cannot
/// know the log's identity.
#[test]
fn a_record_that_looks_like_a_mark_makes_no_segment_active() {
    use quorate_storage::format::{LogIdentity, Mark};
    let disk = SimDisk::new();
    let mut driver = open(&disk, config(SEGMENT)).unwrap();
    let mut mark = vec![0; 4096];
    Mark::of_spare().encode(LogIdentity([1; 16]), &mut mark);
    let mut base = batch(Offset(0), Epoch(1), 16_384, 5).bytes.to_vec();
    base[8192..12_288].copy_from_slice(&mark);
    let crc = quorate_storage::format::crc32c(&base[21..]);
    base[17..21].copy_from_slice(&crc.to_be_bytes());
    let poison = stamped(base);
    driver.writer.append(poison.clone());
    driver.settle().unwrap();
    driver.close();
    assert_eq!(disk.content(&log_path(0)).unwrap().len(), 16_384);
    assert_opens_with(&disk, &[poison], "a record like a mark");
}

#[test]
fn a_start_that_cannot_write_says_where_and_works_again_later() {
    let (disk, batches) = crashed_with(&[700, 900]);
    let full = disk.duplicate();
    full.fail_write(2, io::ErrorKind::StorageFull);
    let error = open(&full, config(SEGMENT)).map(|_| ()).unwrap_err();
    assert!(matches!(error, RecoveryError::Storage(_)));
    assert!(error.to_string().contains("/log/topic-0/"), "{error}");
    assert_opens_with(&full, &batches, "after space was made");
}
