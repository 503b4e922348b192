//! Seeds that must pass, and lies of the world that must not.

use quorate_sim::{Mutant, Scenario, Stats, run};

/// Bounds the time of a test run; more seeds: `cargo run -p quorate-sim -- --seeds N`.
const SEEDS: u64 = 200;

#[test]
fn two_hundred_seeds_break_no_promise() {
    let mut totals = Stats::default();
    for seed in 0..SEEDS {
        let outcome = run(Scenario::of(seed), false);
        if let Some(violation) = outcome.violation {
            panic!("cargo run -p quorate-sim -- --seed {seed} --trace: {violation}");
        }
        totals += outcome.stats;
    }
    println!("{totals}");
    assert!(totals.leader_changes >= 2 * SEEDS, "too quiet: {totals}");
    assert!(totals.crashes >= 2 * SEEDS, "too quiet: {totals}");
    assert!(
        totals.acknowledged >= 100 * SEEDS,
        "too little work: {totals}"
    );
    for (what, count) in [
        ("shutdowns", totals.shutdowns),
        ("partitions", totals.partitions),
        ("pauses", totals.pauses),
        ("disk failures", totals.disk_failures),
        ("truncations", totals.truncations),
        ("rolls", totals.rolls),
        ("duplicates", totals.duplicates),
        ("batches out of order", totals.out_of_order),
        ("disk reads", totals.disk_reads),
        ("images", totals.images_opened),
        ("batches shown", totals.shown),
    ] {
        assert!(count >= SEEDS / 4, "hardly any {what}: {totals}");
    }
}

#[test]
fn same_seed_twice_tells_the_same_story() {
    for seed in [1, 2, 3, 5, 8] {
        let hash = || run(Scenario::of(seed), false).trace_hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
    let other = run(Scenario::of(9), false).trace_hash;
    assert_ne!(run(Scenario::of(8), false).trace_hash, other);
}

/// Runs seeds until the lie is found; how many it took.
fn seeds_until_found(mutant: Mutant) -> u64 {
    let found = (0..300).find(|&seed| {
        let scenario = Scenario {
            mutant: Some(mutant),
            ..Scenario::of(seed)
        };
        run(scenario, false)
            .violation
            .is_some_and(|violation| !violation.is_liveness())
    });
    found.unwrap_or_else(|| panic!("{mutant:?} was not found")) + 1
}

#[test]
fn disk_that_does_not_flush_is_found() {
    println!("{}", seeds_until_found(Mutant::FlushSkipped));
}

#[test]
fn election_that_is_not_written_is_found() {
    println!("{}", seeds_until_found(Mutant::ElectionNotWritten));
}

#[test]
fn acknowledgement_before_the_commit_is_found() {
    println!("{}", seeds_until_found(Mutant::AcknowledgedTooEarly));
}

#[test]
fn reader_that_is_shown_uncommitted_records_is_found() {
    println!("{}", seeds_until_found(Mutant::UncommittedShown));
}

#[test]
fn leader_that_appends_what_is_sent_again_is_found() {
    println!("{}", seeds_until_found(Mutant::SequencesIgnored));
}
