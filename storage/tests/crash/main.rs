//! Crashes and lying disks. A workload of appends, rolls, truncations, epochs, votes, kills and
//! clean stops is cut after every operation of the disk, what was not flushed survives in many
//! ways, and the log is recovered, with crashes during recovery as well. Every flushed batch must
//! be there, and what is there must be a prefix of what was written: no hole, and no batch of a
//! history that was cut off.
//!
//! A part of it runs with all tests. All of it:
//! `cargo test --release -p quorate-storage --test crash -- --ignored --nocapture`
//! `QUORATE_CRASH_SEED=<number>` gives another seed, or the one of a failure.

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod failing;
mod host;
mod images;
mod lying;
mod model;
mod script;

use disk::Mistake;
use images::{Budget, Tally, explore};
use script::Script;

fn seed() -> u64 {
    let given = std::env::var("QUORATE_CRASH_SEED").ok();
    let parse = |text: String| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    given.map_or(0, |text| {
        parse(text).expect("QUORATE_CRASH_SEED is a number")
    })
}

/// `chances` is how many workloads by chance there are beside the written ones.
fn scripts(chances: u64) -> Vec<Script> {
    let seed = seed();
    let mut scripts: Vec<_> = [512, 1024, 4096]
        .into_iter()
        .map(|size| Script::equal_sizes(seed, size))
        .collect();
    scripts.push(Script::rolls(seed));
    scripts.push(Script::overtaken(seed));
    scripts.extend((0..chances).map(|index| Script::chance(seed + index)));
    scripts
}

fn explore_all(scripts: &[Script], budget: &Budget) -> Tally {
    let mut tally = Tally::default();
    for script in scripts {
        if let Err(violation) = explore(script, None, budget, &mut tally) {
            panic!("{violation}");
        }
    }
    println!("seed {:#x}: {tally:?}", seed());
    tally
}

#[test]
fn a_crash_after_any_operation_loses_nothing_flushed_and_brings_nothing_back() {
    let tally = explore_all(&scripts(2), &Budget::SAMPLE);
    assert!(tally.images + tally.of_recovery > 1000, "{tally:?}");
}

#[test]
#[ignore = "takes minutes; the module says how to run it"]
fn every_crash_point_and_a_hundred_thousand_images() {
    let tally = explore_all(&scripts(12), &Budget::FULL);
    assert!(tally.images + tally.of_recovery >= 100_000, "{tally:?}");
}

fn is_found(mistake: Mistake) {
    let mut tally = Tally::default();
    let found = scripts(2)
        .iter()
        .find_map(|script| explore(script, Some(mistake), &Budget::SAMPLE, &mut tally).err());
    let found = found.unwrap_or_else(|| panic!("{mistake:?} is not found in {tally:?}"));
    println!("{mistake:?} found in {tally:?}: {found}");
}

#[test]
fn a_truncation_that_does_not_cut_is_found() {
    is_found(Mistake::NothingIsCut);
}

#[test]
fn a_prepared_segment_that_is_not_zeroed_is_found() {
    is_found(Mistake::NothingIsZeroed);
}

#[test]
fn a_directory_that_is_not_flushed_is_found() {
    is_found(Mistake::DirectoriesAreNotFlushed);
}

#[test]
fn recovery_that_reports_what_is_not_durable_is_found() {
    is_found(Mistake::RecoveryDoesNotFlush);
}

#[test]
fn a_tail_block_in_flight_twice_is_found() {
    is_found(Mistake::TailIsWrittenTwice);
}

#[test]
fn a_flush_that_overtakes_its_write_is_found() {
    is_found(Mistake::FlushOvertakesWrite);
}

#[test]
fn a_flush_of_an_old_generation_that_counts_is_found() {
    is_found(Mistake::OldGenerationCounts);
}
