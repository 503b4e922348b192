//! A disk that fails and says so: writes, flushes, reads and room. Whatever the log makes of it, it
//! starts again afterwards with everything that was flushed.

use crate::common::dir;
use crate::disk::TestDisk;
use crate::host::start;
use crate::images::{JOURNAL, any_order, check_image};
use crate::model::rng;
use crate::script::{Script, run, run_on, small};
use quorate_storage::sim_disk::{FlushFault, WriteFault};
use std::io::ErrorKind;

/// The workloads that the faults befall.
fn scripts() -> [Script; 3] {
    let seed = crate::seed();
    [
        Script::rolls(seed),
        Script::overtaken(seed),
        Script::equal_sizes(seed, 1024),
    ]
}

/// Runs the script with what `arm` makes of the disk, then lets the process or the machine die and
/// checks what the next start finds. Whether the run came to its end.
fn survives(script: &Script, what: &str, arm: impl Fn(&TestDisk)) -> bool {
    let disk = TestDisk::new(None);
    arm(&disk);
    let (model, stopped) = run_on(script, &disk);
    disk.sim.limit_room(None);
    let mut rng = rng(script.seed, 4);
    for death in 0..3 {
        let image = disk.duplicate();
        match death {
            0 => image.sim.revive(),
            1 => image.sim.crash_keeping(JOURNAL, &mut |_| false),
            _ => image
                .sim
                .crash_keeping(any_order(), &mut |_| rng.chance(50)),
        }
        if let Err(violation) = check_image(&model, image, &mut rng) {
            let name = &script.name;
            panic!("{name}: {what}, death {death}: {violation} (stopped: {stopped:?})");
        }
    }
    stopped.is_none()
}

/// A part of all faults, another for each seed; all of them take minutes.
fn sample(last: u64) -> impl Iterator<Item = u64> {
    const STEP: u64 = 7;
    (1 + crate::seed() % STEP..=last).step_by(STEP as usize)
}

#[test]
fn nothing_flushed_is_lost_by_a_write_or_a_flush_that_fails() {
    for script in scripts() {
        let (writes, flushes, _) = run(&script, None, None).unwrap().disk.sim.counts();
        for nth in sample(writes) {
            for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
                let what = format!("write {nth} fails: {kind:?}");
                survives(&script, &what, |disk| disk.sim.fail_write(nth, kind));
            }
        }
        for nth in sample(flushes) {
            for fault in [FlushFault::InDoubt, FlushFault::Gone] {
                let what = format!("flush {nth} fails: {fault:?}");
                let ended = survives(&script, &what, |disk| disk.sim.disturb_flush(nth, fault));
                assert!(!ended, "{}: {what}, and nobody minds", script.name);
            }
        }
    }
}

#[test]
fn short_and_interrupted_writes_are_made_again() {
    for script in scripts() {
        let (writes, _, _) = run(&script, None, None).unwrap().disk.sim.counts();
        for nth in sample(writes) {
            for fault in [
                WriteFault::Short(512),
                WriteFault::Short(0),
                WriteFault::Fails(ErrorKind::Interrupted),
            ] {
                let what = format!("write {nth}: {fault:?}");
                let arm = |disk: &TestDisk| disk.sim.disturb_write(nth, fault.clone());
                assert!(survives(&script, &what, arm), "{}: {what}", script.name);
            }
        }
    }
}

#[test]
fn nothing_flushed_is_lost_on_a_disk_that_fills_up() {
    for script in scripts() {
        let needed = run(&script, None, None).unwrap().disk.sim.used_room() + 262_144;
        let mut ended = 0;
        for blocks in sample(needed / 4096) {
            let what = format!("room for {blocks} blocks");
            let arm = |disk: &TestDisk| disk.sim.limit_room(Some(blocks * 4096));
            ended += u32::from(survives(&script, &what, arm));
        }
        assert!(ended > 0, "{}: never enough room", script.name);
    }
}

/// Recovery on a full disk starts, or says where it has no room and starts later.
#[test]
fn a_start_on_a_full_disk_says_where_and_harms_nothing() {
    let mut started = 0;
    for script in scripts() {
        let ran = run(&script, None, None).unwrap();
        for spare in 0..14 {
            let disk = ran.disk.duplicate();
            disk.sim
                .limit_room(Some(disk.sim.used_room() + spare * 4096));
            match start(&disk, &small()) {
                Ok(_) => started += u32::from(spare == 0),
                Err(text) => {
                    assert!(text.contains(&*dir().to_string_lossy()), "{text}");
                }
            }
            disk.sim.limit_room(None);
            check_image(&ran.model, disk, &mut rng(spare, 5)).unwrap();
        }
    }
    assert!(started > 0, "a start with a spare and no room");
}

#[test]
fn a_start_that_cannot_read_says_what_and_changes_nothing_that_matters() {
    for script in scripts() {
        let ran = run(&script, None, None).unwrap();
        let whole = ran.disk.duplicate();
        let (_, _, before) = whole.sim.counts();
        start(&whole, &small()).unwrap();
        let (_, _, after) = whole.sim.counts();
        assert!(after > before);
        for nth in 1..=after - before {
            let disk = ran.disk.duplicate();
            disk.sim.fail_read(nth, ErrorKind::Other);
            if let Err(text) = start(&disk, &small()) {
                assert!(text.contains(&*dir().to_string_lossy()), "{text}");
            }
            check_image(&ran.model, disk, &mut rng(nth, 6)).unwrap();
            let disk = ran.disk.duplicate();
            disk.sim.fail_read(nth, ErrorKind::Interrupted);
            assert!(start(&disk, &small()).is_ok(), "read {nth} interrupted");
        }
    }
}
