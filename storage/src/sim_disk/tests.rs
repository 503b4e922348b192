//! The simulated disk keeps what it must and loses what it may.

use super::*;

fn dir() -> &'static Path {
    Path::new("/d")
}

/// A disk with one durable file of two blocks of ones.
fn disk_with_file() -> (SimDisk, SimFile) {
    let disk = SimDisk::new();
    disk.create_dir_all(dir()).unwrap();
    let file = disk.open(&dir().join("f"), OpenMode::Create).unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(dir()).unwrap();
    (disk, file)
}

fn counter(start: u64) -> impl FnMut() -> u64 {
    let mut word = start.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

#[test]
fn what_was_flushed_survives_and_the_rest_is_old_or_new_by_sector() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = disk_with_file();
        file.write_at(&[2; 4096], 4096).unwrap();
        disk.crash(&mut counter(seed));
        let content = disk.content(&dir().join("f")).unwrap();
        assert_eq!(content[..4096], [1; 4096]);
        for sector in content.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
        }
        seen.insert(content);
    }
    assert!(seen.len() > 10, "{} images", seen.len());
}

#[test]
fn a_name_that_was_not_flushed_can_be_lost() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..50 {
        let (disk, _) = disk_with_file();
        disk.rename(&dir().join("f"), &dir().join("g")).unwrap();
        disk.crash(&mut counter(seed));
        let names = disk.list(dir()).unwrap();
        kept += i32::from(names == ["g"]);
        lost += i32::from(names == ["f"]);
    }
    assert_eq!(kept + lost, 50);
    assert!(kept > 5 && lost > 5);
}

#[test]
fn a_failed_flush_is_never_made_good_by_a_later_one() {
    let (disk, file) = disk_with_file();
    file.write_at(&[3; 4096], 0).unwrap();
    disk.fail_flush(1);
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
    let durable = disk.durable_only();
    assert_eq!(durable.content(&dir().join("f")).unwrap()[0], 1);
}

/// A node whose flush failed starts again on the same disk, writes the doubtful bytes once
/// more, cuts the file and flushes. What was in doubt must not come back over that.
#[test]
fn what_stands_over_a_failed_flush_or_was_cut_off_since_stays_as_it_is() {
    for seed in 0..50 {
        let (disk, file) = disk_with_file();
        file.write_at(&[3; 8192], 4096).unwrap();
        disk.fail_flush(1);
        assert!(file.sync_data().is_err());
        file.write_at(&[4; 4096], 4096).unwrap();
        file.set_len(10_000).unwrap();
        file.sync_data().unwrap();
        disk.crash(&mut counter(seed));
        let content = disk.content(&dir().join("f")).unwrap();
        assert_eq!(content.len(), 10_000);
        assert_eq!(content[4096..8192], [4; 4096]);
        assert!(content[8192..].iter().all(|byte| [0, 3].contains(byte)));
    }
}

#[test]
fn a_crashed_disk_answers_nothing_until_it_is_back() {
    let (disk, file) = disk_with_file();
    disk.crash_after(disk.operations());
    assert!(file.write_at(&[4; 4096], 0).is_err());
    assert!(disk.is_crashed());
    assert!(file.read_at(&mut [0; 16], 0).is_err());
    assert!(disk.list(dir()).is_err());
    disk.crash(&mut || 0);
    assert_eq!(disk.list(dir()).unwrap(), ["f"]);
    assert!(file.len().is_err(), "a file of an earlier life");
}

#[test]
fn direct_files_refuse_what_is_not_aligned() {
    let (disk, _) = disk_with_file();
    let file = disk.open(&dir().join("f"), OpenMode::Direct).unwrap();
    assert!(file.write_at(&[0; 100], 0).is_err());
    assert!(file.write_at(&[0; 4096], 512).is_err());
    assert!(file.write_at(&[0; 4096], 4096).is_ok());
}

#[test]
fn a_write_that_makes_its_file_longer_is_lost_with_the_new_length() {
    for keeps in [false, true] {
        let (disk, file) = disk_with_file();
        file.write_at(&[5; 4096], 8192).unwrap();
        let rules = CrashRules {
            sector_bytes: 512,
            entries: EntryOrder::Journal,
        };
        disk.crash_keeping(rules, &mut |unsettled| match unsettled {
            Unsettled::Length { .. } => keeps,
            _ => true,
        });
        let content = disk.content(&dir().join("f")).unwrap();
        assert_eq!(content.len(), if keeps { 12_288 } else { 8192 });
    }
}

/// Names in the directory after each answer to whether the first of two removals is kept.
fn names_after(entries: EntryOrder, keeps_first: bool) -> Vec<String> {
    let disk = SimDisk::new();
    disk.create_dir_all(dir()).unwrap();
    disk.put(&dir().join("a"), b"a");
    disk.put(&dir().join("b"), b"b");
    disk.remove(&dir().join("a")).unwrap();
    disk.remove(&dir().join("b")).unwrap();
    let rules = CrashRules {
        sector_bytes: 512,
        entries,
    };
    let mut asked = 0;
    disk.crash_keeping(rules, &mut |_| {
        asked += 1;
        asked > 1 || keeps_first
    });
    disk.list(dir()).unwrap()
}

#[test]
fn entries_come_back_in_order_or_one_by_one() {
    assert_eq!(names_after(EntryOrder::Journal, false), ["a", "b"]);
    assert_eq!(names_after(EntryOrder::Any, false), ["a"]);
    for order in [EntryOrder::Journal, EntryOrder::Any] {
        assert!(names_after(order, true).is_empty());
    }
}

#[test]
fn a_renaming_is_never_kept_without_the_creation_of_what_it_renames() {
    for entries in [EntryOrder::Journal, EntryOrder::Any] {
        for lost in 0..3 {
            let (disk, _) = disk_with_file();
            disk.open(&dir().join("f.tmp"), OpenMode::Create).unwrap();
            disk.rename(&dir().join("f.tmp"), &dir().join("f")).unwrap();
            let rules = CrashRules {
                sector_bytes: 4096,
                entries,
            };
            let mut asked = 0;
            disk.crash_keeping(rules, &mut |_| {
                asked += 1;
                asked != lost
            });
            let is_new = disk.content(&dir().join("f")).unwrap().is_empty();
            assert_eq!(is_new, lost == 0, "{entries:?} {lost}");
        }
    }
}

#[test]
fn sectors_that_differ_from_nothing_are_not_asked_about() {
    let (disk, file) = disk_with_file();
    let mut data = [1; 8192];
    data[600] = 2;
    data[5000] = 2;
    file.write_at(&data, 0).unwrap();
    let rules = CrashRules {
        sector_bytes: 512,
        entries: EntryOrder::Journal,
    };
    let mut asked = 0;
    disk.crash_keeping(rules, &mut |_| {
        asked += 1;
        asked == 2
    });
    assert_eq!(asked, 2);
    let content = disk.content(&dir().join("f")).unwrap();
    assert_eq!((content[600], content[5000]), (1, 2));
}

#[test]
fn a_flush_that_loses_or_lies_leaves_nothing_durable() {
    for fault in [FlushFault::Gone, FlushFault::Lost] {
        let (disk, file) = disk_with_file();
        file.write_at(&[3; 4096], 0).unwrap();
        disk.disturb_flush(1, fault);
        assert_eq!(file.sync_data().is_ok(), fault == FlushFault::Lost);
        let mut seen = [0; 1];
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!(
            seen[0] == 1,
            fault == FlushFault::Gone,
            "what a reader sees"
        );
        let durable = disk.durable_only();
        assert_eq!(durable.content(&dir().join("f")).unwrap()[0], 1);
    }
}

#[test]
fn writes_can_be_short_lost_or_land_elsewhere() {
    let (disk, file) = disk_with_file();
    disk.put(&dir().join("g"), &[7; 4096]);
    disk.disturb_write(1, WriteFault::Short(100));
    assert_eq!(file.write_at(&[2; 4096], 0).unwrap(), 100);
    disk.disturb_write(1, WriteFault::Lost);
    assert_eq!(file.write_at(&[3; 4096], 0).unwrap(), 4096);
    let stray = WriteFault::Misdirected {
        path: dir().join("g"),
        at: 2048,
    };
    disk.disturb_write(1, stray);
    assert_eq!(file.write_at(&[4; 4096], 0).unwrap(), 4096);
    let content = disk.content(&dir().join("f")).unwrap();
    assert_eq!((content[99], content[100]), (2, 1));
    let content = disk.durable_only().content(&dir().join("g")).unwrap();
    assert_eq!((content[2047], content[2048], content.len()), (7, 4, 4096));
}

#[test]
fn an_unreadable_block_fails_its_readers_until_it_is_written() {
    let (disk, file) = disk_with_file();
    disk.make_unreadable(&dir().join("f"), 5000);
    assert!(file.read_at(&mut [0; 4096], 0).is_ok());
    assert!(file.read_at(&mut [0; 8192], 0).is_err());
    assert!(file.read_at(&mut [0; 1], 4096).is_err());
    file.write_at(&[1; 100], 4096).unwrap();
    assert!(file.read_at(&mut [0; 1], 4096).is_err());
    file.write_at(&[1; 4096], 4096).unwrap();
    assert!(file.read_at(&mut [0; 1], 4096).is_ok());
    disk.fail_read(1, io::ErrorKind::Interrupted);
    assert!(file.read_at(&mut [0; 1], 0).is_err());
    assert!(file.read_at(&mut [0; 1], 0).is_ok());
}

#[test]
fn a_full_disk_takes_nothing_new_and_lets_what_is_there_be_written_over() {
    let (disk, file) = disk_with_file();
    assert_eq!(disk.used_room(), 8192);
    disk.limit_room(Some(8192));
    let full = |error: io::Error| error.kind() == io::ErrorKind::StorageFull;
    assert!(full(file.write_at(&[1; 4096], 8192).unwrap_err()));
    assert!(full(
        disk.open(&dir().join("g"), OpenMode::Create).unwrap_err()
    ));
    assert!(file.write_at(&[9; 8192], 0).is_ok());
    disk.limit_room(None);
    assert!(file.write_at(&[1; 4096], 8192).is_ok());
}

#[test]
fn a_flipped_bit_is_in_every_image() {
    let (disk, _) = disk_with_file();
    disk.flip(&dir().join("f"), 17, 0x10);
    for disk in [disk.durable_only(), disk] {
        assert_eq!(disk.content(&dir().join("f")).unwrap()[17], 0x11);
    }
}
