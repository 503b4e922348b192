//! Real directories: which are taken, which are refused, and who may use them.

use quorate_storage::{DataDirError, FsKind, LockError, check_data_dir, lock_dir};
use std::path::Path;

/// In the target directory: `/tmp` may be in memory.
fn real_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_directory_on_a_durable_file_system_is_taken_and_left_as_it_was() {
    let dir = real_dir();
    let checked = check_data_dir(dir.path()).unwrap();
    assert!(checked.alignment.is_power_of_two() && checked.alignment <= 4096);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_in_memory_is_refused_by_name() {
    let error = check_data_dir(Path::new("/dev/shm")).unwrap_err();
    let named = matches!(
        &error,
        DataDirError::NotDurable {
            kind: FsKind::Tmpfs,
            ..
        }
    );
    assert!(named && error.to_string().contains("tmpfs"), "{error}");
    assert!(!Path::new("/dev/shm/.quorate_probe").exists());
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let error = check_data_dir(Path::new("/no/such/dir")).unwrap_err();
    assert!(error.to_string().contains("/no/such/dir"), "{error}");
}

#[test]
fn a_second_lock_is_refused_and_the_content_of_the_file_never_matters() {
    let dir = real_dir();
    std::fs::write(dir.path().join(".lock"), "garbage of another process").unwrap();
    let lock = lock_dir(dir.path()).unwrap();
    assert!(matches!(lock_dir(dir.path()), Err(LockError::InUse { .. })));
    drop(lock);
    lock_dir(dir.path()).unwrap();
}
