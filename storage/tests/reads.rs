//! Reads below the flushed end, on the simulated and the real disk.

mod common;

use common::{Driver, batch, bytes_of, config, config_in, dir, log_path, open, stamped};
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::{BatchBuilder, NewRecord, batches};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{
    FileDisk, ReadError, StampedBatch, dump, read_quorum_state, verify_dir, write_quorum_state,
};

fn three_segments() -> (Driver<SimDisk>, Vec<StampedBatch>) {
    let mut driver = open(&SimDisk::new(), config(8192)).unwrap();
    let written = driver.fill(1, 25, 700);
    (driver, written)
}

fn read(driver: &Driver<SimDisk>, from: i64, max_bytes: usize, below: i64) -> Vec<i64> {
    let Some(plan) = driver.index.plan(Offset(from), max_bytes, Offset(below)) else {
        return Vec::new();
    };
    let bytes = plan.run(&driver.disk).unwrap();
    batches(&bytes)
        .map(|batch| batch.unwrap().0.base_offset.0)
        .collect()
}

#[test]
fn a_read_gives_whole_batches_from_the_offset_on() {
    let (driver, _) = three_segments();
    assert_eq!(read(&driver, 3, 2100, 100), [3, 4, 5]);
    assert_eq!(read(&driver, 3, 2099, 100), [3, 4]);
    assert_eq!(read(&driver, 3, 0, 100), [3], "at least one");
    assert_eq!(read(&driver, 3, 10_000, 5), [3, 4], "below the bound");
    assert_eq!(
        read(&driver, 9, 10_000, 100),
        [9, 10],
        "to the end of the segment"
    );
    assert_eq!(read(&driver, 24, 10_000, 100), [24]);
    assert!(read(&driver, 25, 10_000, 100).is_empty());
    assert!(read(&driver, 5, 10_000, 5).is_empty());
}

#[test]
fn a_read_from_inside_a_batch_gives_that_batch() {
    let mut driver = open(&SimDisk::new(), config(8192)).unwrap();
    let mut builder = BatchBuilder::new(Offset(0), Epoch(1));
    (0..5).for_each(|index| builder.push(NewRecord::value(index, b"x")));
    driver.writer.append(stamped(builder.build()));
    driver.writer.append(batch(Offset(5), Epoch(1), 700, 1));
    driver.settle().unwrap();
    assert_eq!(read(&driver, 3, 0, 100), [0]);
    assert!(
        read(&driver, 3, 0, 4).is_empty(),
        "the batch ends above the bound"
    );
}

#[test]
fn a_read_that_was_planned_before_a_truncation_never_gives_other_records() {
    for end in [5, 13] {
        let (mut driver, written) = three_segments();
        let plans: Vec<_> = (0..25)
            .map(|from| driver.index.plan(Offset(from), 1400, Offset(25)).unwrap())
            .collect();
        driver.truncate(end, 1);
        let new: Vec<_> = (0..4).map(|tag| driver.append(2, 700, 100 + tag)).collect();
        driver.settle().unwrap();
        assert_ne!(plans[0].generation(), driver.index.generation());
        for (from, plan) in plans.iter().enumerate() {
            match plan.run(&driver.disk) {
                Ok(bytes) => {
                    let known = bytes_of(&written[from..]).concat();
                    let now = bytes_of(&new).concat();
                    assert!(
                        known.starts_with(&bytes) || now.starts_with(&bytes),
                        "{from}"
                    );
                }
                Err(error) => assert!(matches!(error, ReadError::Gone { .. }), "{from}: {error}"),
            }
        }
        assert_eq!(driver.read_all().len(), end as usize + 4);
    }
}

#[test]
fn a_damaged_batch_is_named_and_not_given_out() {
    let (driver, _) = three_segments();
    driver.disk.edit(&log_path(0), |bytes| bytes[2150] ^= 1);
    assert_eq!(read(&driver, 0, 2100, 100), [0, 1, 2]);
    let plan = driver.index.plan(Offset(3), 700, Offset(100)).unwrap();
    let error = plan.run(&driver.disk).unwrap_err();
    assert!(
        matches!(error, ReadError::Corrupt { position: 2100, .. }),
        "{error}"
    );
}

#[test]
fn the_index_stays_sparse_and_finds_every_batch() {
    let mut driver = open(&SimDisk::new(), config(1 << 20)).unwrap();
    let written = driver.fill(1, 400, 1000);
    for from in (0..400).step_by(7) {
        assert_eq!(read(&driver, from, 1000, 400), [from]);
    }
    assert!(driver.read_all() == bytes_of(&written));
    let again = open(&driver.disk, config(1 << 20)).unwrap();
    assert!(again.read_all() == bytes_of(&written));
}

/// The same code on real files with O_DIRECT, through a stop, a kill and the offline tools.
#[test]
fn a_log_on_real_files_is_written_read_verified_and_dumped() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("topic-0");
    let config = config_in(path.clone(), 64 * 1024);
    let mut driver = open(&FileDisk, config.clone()).unwrap();
    let mut written = driver.fill(1, 150, 1000);
    written.extend(driver.fill(2, 10, 1000));
    assert!(driver.read_all() == bytes_of(&written));
    drop(driver);

    let mut driver = open(&FileDisk, config.clone()).unwrap();
    assert!(!driver.opened.report.is_clean);
    assert_eq!(driver.opened.epochs, [(1, 0), (2, 150)]);
    assert!(driver.read_all() == bytes_of(&written));
    driver.truncate(100, 1);
    driver.settle().unwrap();
    written.truncate(100);
    written.extend(driver.fill(3, 5, 1000));
    let mut checked = 0;
    let report = verify_dir(&path, &mut |_, bytes| checked = bytes).unwrap();
    assert_eq!(
        (report.log_end, report.batches, checked),
        (Offset(105), 105, 105_000)
    );
    driver.close();

    let listed: Vec<_> = dump(&path, false).unwrap().map(Result::unwrap).collect();
    assert_eq!(listed.len(), 105);
    assert!(verify_dir(&path, &mut |_, _| {}).unwrap().is_clean);
    let first = path.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[40_500] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let fault = verify_dir(&path, &mut |_, _| {}).unwrap_err();
    assert_eq!((fault.position, fault.segment), (40_000, first));
}

#[test]
fn quorum_state_is_replaced_as_a_whole_and_never_guessed_at() {
    use quorate_raft::{ElectionState, ReplicaKey};
    use quorate_storage::Disk;
    let disk = SimDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    assert!(read_quorum_state(&disk, &dir()).unwrap().is_none());
    let state = |epoch| ElectionState {
        epoch: Epoch(epoch),
        leader_id: None,
        voted: Some(ReplicaKey::of(2)),
    };
    write_quorum_state(&disk, &dir(), &state(1), &[1, 2, 3]).unwrap();
    let before = disk.operations();
    let whole = disk.duplicate();
    write_quorum_state(&whole, &dir(), &state(2), &[1, 2, 3]).unwrap();
    let mut rng = common::Rng(1);
    for operation in before..whole.operations() {
        for _ in 0..20 {
            let cut = disk.duplicate();
            cut.crash_after(operation);
            assert!(write_quorum_state(&cut, &dir(), &state(2), &[1, 2, 3]).is_err());
            cut.crash(&mut || rng.next());
            let found = read_quorum_state(&cut, &dir()).unwrap().unwrap();
            assert!(found == state(1) || found == state(2));
        }
    }
    assert_eq!(
        read_quorum_state(&whole.durable_only(), &dir()).unwrap(),
        Some(state(2))
    );
    for content in [&b""[..], b"{", b"garbage", b"{\"leaderId\":1}"] {
        disk.put(&dir().join("quorum-state"), content);
        let error = read_quorum_state(&disk, &dir()).unwrap_err();
        assert!(error.to_string().contains("/quorum-state"), "{error}");
    }
}
