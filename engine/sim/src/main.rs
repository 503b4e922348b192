//! `quorate-sim`: runs seeds and says which one broke what. Exit code 2: a promise was broken
//! (safety); 3: the quorum got stuck in good conditions (liveness).

#![forbid(unsafe_code)]

use clap::Parser;
use quorate_sim::{Outcome, Scenario, Stats, run};
use std::process::ExitCode;

const SAFETY: u8 = 2;
const LIVENESS: u8 = 3;

/// Runs a quorum in a simulated world that one number decides.
#[derive(Parser)]
#[command(name = "quorate-sim")]
struct Args {
    /// Run this seed alone
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// How many seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Print the story of each run
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    std::panic::set_hook(Box::new(|_| {}));
    let seeds = match args.seed {
        Some(seed) => seed..=seed,
        None => args.first_seed..=args.first_seed.saturating_add(args.seeds.max(1) - 1),
    };
    let mut totals = Stats::default();
    for seed in seeds {
        let outcome = run(Scenario::of(seed), args.trace);
        totals += outcome.stats;
        if let Some(code) = report(&outcome) {
            return ExitCode::from(code);
        }
        if totals.seeds.is_multiple_of(100) {
            println!("{totals}");
        }
    }
    println!("no failure in {totals}");
    ExitCode::SUCCESS
}

/// Says what failed and how to see it again; the exit code.
fn report(outcome: &Outcome) -> Option<u8> {
    let violation = outcome.violation.as_ref()?;
    let seed = outcome.seed;
    println!("seed {seed} failed: {violation}");
    println!("reproduce it: cargo run -p quorate-sim -- --seed {seed} --trace");
    Some(if violation.is_liveness() {
        LIVENESS
    } else {
        SAFETY
    })
}
