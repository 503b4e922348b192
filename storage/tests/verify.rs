//! What `verify` says of each kind of damage, on real files: which file, where, and in which words.

mod common;

use common::{config_in, open};
use quorate_raft::{ElectionState, Epoch};
use quorate_storage::{FileDisk, VerifyFault, verify_dir, write_quorum_state};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A log of five segments and two epochs with all its small files, closed cleanly or not.
fn log(is_clean: bool) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = home.path().join("topic-0");
    let mut driver = open(&FileDisk, config_in(dir.clone(), 64 * 1024)).unwrap();
    for number in 0..300 {
        driver.append(1 + number / 150, 1000, number as u64);
    }
    driver.settle().unwrap();
    let state = ElectionState {
        epoch: Epoch(2),
        leader_id: None,
        voted: None,
    };
    write_quorum_state(&FileDisk, &dir, &state, &[1]).unwrap();
    let snapshot = fs::read(dir.join("00000000000000000000.log")).unwrap();
    fs::write(
        dir.join("00000000000000000065-0000000001.checkpoint"),
        &snapshot[..20_000],
    )
    .unwrap();
    if is_clean {
        driver.close();
    }
    (home, dir)
}

fn verify(dir: &Path) -> Result<quorate_storage::VerifyReport, VerifyFault> {
    verify_dir(dir, &mut |_, _| {})
}

#[test]
fn a_sound_log_is_sound_closed_cleanly_or_not() {
    for is_clean in [true, false] {
        let (_home, dir) = log(is_clean);
        let report = verify(&dir).unwrap();
        assert_eq!((report.batches, report.is_clean), (300, is_clean));
    }
}

/// One kind of damage: the file, what is done to it, where the fault is, and words of the message.
type Damage = (&'static str, fn(&mut Vec<u8>), u64, &'static [&'static str]);

const SEGMENT: &str = "00000000000000000065.log";

const DAMAGE: &[Damage] = &[
    (
        SEGMENT,
        |b| b[30_500] ^= 1,
        30_000,
        &["a batch at offset 95", "CRC"],
    ),
    (
        SEGMENT,
        |b| b[30_007] ^= 1,
        30_000,
        &["a batch at offset 95", "offset 94"],
    ),
    (
        SEGMENT,
        |b| b[30_015] ^= 1,
        30_000,
        &["epoch 1 at offset 95", "epoch 0"],
    ),
    (
        SEGMENT,
        |b| b.truncate(30_500),
        30_000,
        &["a batch at offset 95"],
    ),
    (
        SEGMENT,
        |b| b.truncate(30_000),
        0,
        &["no segment holds offsets 95 to 130"],
    ),
    (SEGMENT, |b| b.push(0), 65_000, &["a batch at offset 130"]),
    (
        "00000000000000000065.index",
        |b| b[83] ^= 1,
        83,
        &["another entry"],
    ),
    (
        "00000000000000000065.index",
        |b| b.truncate(80),
        80,
        &["80 bytes"],
    ),
    (
        "00000000000000000065.timeindex",
        |b| b[7] ^= 1,
        7,
        &["another entry"],
    ),
    (
        "00000000000000000065-0000000001.checkpoint",
        |b| b[4500] ^= 1,
        4000,
        &["a batch of the snapshot", "CRC"],
    ),
    (
        "quorate-producers",
        |b| b[9] ^= 1,
        0,
        &["producer states at offset 300"],
    ),
    (
        "quorum-state",
        |b| b.truncate(20),
        0,
        &["quorum-state is malformed"],
    ),
    (
        "quorum-state",
        |b| *b = replaced(b, "\"leaderEpoch\":2", "\"leaderEpoch\":1"),
        0,
        &["records of epoch 2", "knows only epoch 1"],
    ),
    (
        "partition.metadata",
        |b| b.truncate(20),
        0,
        &["partition.metadata is malformed"],
    ),
    (
        "quorate-log",
        |b| b.truncate(20),
        0,
        &["quorate-log is malformed"],
    ),
    (
        "leader-epoch-checkpoint",
        |b| b.truncate(4),
        0,
        &["leader-epoch-checkpoint is malformed"],
    ),
    (
        "leader-epoch-checkpoint",
        |b| *b = replaced(b, "2 150", "2 151"),
        20_000,
        &["epoch 1 at offset 150", "epoch 2"],
    ),
    (
        "leader-epoch-checkpoint",
        |b| *b = b"0\n3\n1 0\n2 150\n3 300\n".to_vec(),
        0,
        &["2 epochs, as the batches have", "3 epochs"],
    ),
    (
        ".quorate_cleanshutdown",
        |b| b.truncate(20),
        0,
        &[".quorate_cleanshutdown is malformed"],
    ),
    (
        ".quorate_cleanshutdown",
        |b| *b = replaced(b, "300", "301"),
        0,
        &["closed cleanly at offset 301", "end at 300"],
    ),
    (
        ".quorate_cleanshutdown",
        |b| *b = replaced(b, "\"epoch\":2", "\"epoch\":1"),
        0,
        &["the last batch's epoch 2", "epoch 1"],
    ),
    (
        ".quorate_cleanshutdown",
        |b| *b = with_another_manifest(b),
        0,
        &["what was there at the clean stop"],
    ),
];

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    text.replacen(from, to, 1).into_bytes()
}

fn with_another_manifest(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let (before, _) = text.split_once("\"manifest\":").unwrap();
    format!("{before}\"manifest\":1}}\n").into_bytes()
}

#[test]
fn each_kind_of_damage_is_named_with_file_and_place() {
    let (_home, dir) = log(true);
    let mut wrong = Vec::new();
    for (name, damage, position, words) in DAMAGE {
        let path = dir.join(name);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damage(&mut damaged);
        fs::write(&path, &damaged).unwrap();
        let fault = verify(&dir).expect_err(name);
        fs::write(&path, &whole).unwrap();
        let message = fault.to_string();
        let is_named = fault.position == *position
            && message.contains("topic-0")
            && words.iter().all(|word| message.contains(word));
        if !is_named {
            wrong.push(format!("{name}, {position}, {words:?}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(verify(&dir).is_ok(), "all of it is undone");
}

#[test]
fn files_that_are_gone_are_missed() {
    for name in [
        SEGMENT,
        "00000000000000000000.index",
        "00000000000000000260.timeindex",
        "leader-epoch-checkpoint",
        "quorate-producers",
    ] {
        let (_home, dir) = log(true);
        fs::remove_file(dir.join(name)).unwrap();
        let fault = verify(&dir).expect_err(name);
        assert!(fault.to_string().contains("topic-0"), "{fault}");
    }
}

/// After a crash the newest indexes may be missing: the next start writes them.
#[test]
fn indexes_that_a_crash_cut_off_are_no_fault_and_older_ones_are() {
    let (_home, dir) = log(false);
    fs::remove_file(dir.join("00000000000000000195.index")).unwrap();
    assert!(verify(&dir).is_ok());
    fs::remove_file(dir.join("00000000000000000065.index")).unwrap();
    let fault = verify(&dir).unwrap_err();
    assert!(
        fault.segment.ends_with("00000000000000000065.index"),
        "{fault}"
    );
}

#[test]
fn progress_is_told_and_ends_at_the_end() {
    let (_home, dir) = log(true);
    let mut told = Vec::new();
    verify_dir(&dir, &mut |_, bytes| told.push(bytes)).unwrap();
    assert!(
        told.is_sorted() && told.last() == Some(&300_000),
        "{told:?}"
    );
}
