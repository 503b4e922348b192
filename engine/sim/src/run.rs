//! One seed from beginning to end.

use crate::checkers::Violation;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first broken promise, if any.
    pub violation: Option<Violation>,
    /// What happened.
    pub stats: Stats,
    /// Hash of the whole story.
    pub trace_hash: u64,
}

/// Runs a scenario; `tell` prints its story.
///
/// A failed assertion in the code under test is a violation like any other.
#[must_use]
pub fn run(scenario: Scenario, tell: bool) -> Outcome {
    let seed = scenario.seed;
    let mut world = World::new(scenario, tell);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let violation = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(Violation::Panicked(message_of(&*panic))),
    };
    if let Some(violation) = &violation {
        world
            .trace
            .say(world.now, 0, format_args!("== {violation}"));
    }
    Outcome {
        seed,
        violation,
        stats: world.stats,
        trace_hash: world.trace.hash(),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
        .to_owned()
}
