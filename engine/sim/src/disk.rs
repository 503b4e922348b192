//! The simulated disk as faults use it: power cuts in the middle of an operation, failing writes
//! and flushes.

use crate::rng::Rng;
use quorate_storage::sim_disk::SimDisk;
use std::io;

/// Power fails before the `operations`-th operation from now is done.
pub(crate) fn arm_crash(disk: &SimDisk, operations: u64) {
    disk.crash_after(disk.operations() + operations - 1);
}

/// A write or a flush among the next `operations` fails.
pub(crate) fn arm_failure(disk: &SimDisk, operations: u64, rng: &mut Rng) {
    if rng.chance(500) {
        disk.fail_flush(operations);
    } else {
        disk.fail_write(operations, io::ErrorKind::Other);
    }
}

/// Nothing that was armed happens any more.
pub(crate) fn disarm(disk: &SimDisk) {
    const NEVER: u64 = u64::MAX / 2;
    if !disk.is_crashed() {
        disk.crash_after(NEVER);
    }
    // Counted from now on, so far away that it never comes.
    disk.fail_flush(NEVER);
    disk.fail_write(NEVER, io::ErrorKind::Other);
}

/// Power fails and comes back.
pub(crate) fn cut_power(disk: &SimDisk, rng: &mut Rng) {
    disk.crash(&mut || rng.next_u64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::{Disk, DiskFile, OpenMode};
    use std::path::Path;

    #[test]
    fn armed_crash_lets_exactly_the_operations_before_it_through() {
        let disk = SimDisk::new();
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("f"), OpenMode::Create).unwrap();
        arm_crash(&disk, 2);
        assert!(file.write_at(b"a", 0).is_ok());
        assert!(file.write_at(b"b", 1).is_err());
        assert!(disk.is_crashed());
        cut_power(&disk, &mut Rng::new(1));
        assert!(!disk.is_crashed());
    }

    #[test]
    fn disarmed_disk_works_on() {
        let disk = SimDisk::new();
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("f"), OpenMode::Create).unwrap();
        arm_crash(&disk, 1);
        arm_failure(&disk, 1, &mut Rng::new(1));
        disarm(&disk);
        assert!(file.write_at(b"a", 0).is_ok());
        assert!(file.sync_data().is_ok());
    }
}
