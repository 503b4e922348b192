//! Crash images: a workload is cut at its operations, each cut survived in many ways, each image
//! recovered, and recovery itself cut and survived.

use crate::common::{Rng, all_files, batch, dir};
use crate::disk::{Mistake, TestDisk};
use crate::host::{Host, VOTERS, start};
use crate::model::{Model, Violation, rng};
use crate::script::{Script, check_found, run, small};
use quorate_raft::{ElectionState, Epoch, Offset};
use quorate_storage::sim_disk::{CrashRules, EntryOrder};
use quorate_storage::write_quorum_state;

/// How thoroughly a script is explored.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Every how many operations the workload is cut.
    pub cut_every: u64,
    /// Images by chance for each cut, beside nothing, everything and the process alone.
    pub by_chance: usize,
    /// Single parts kept, and single parts lost, at most.
    pub singles: usize,
    /// Images of each cut whose recovery is cut as well.
    pub recoveries: usize,
    /// Every how many operations recovery is cut.
    pub recovery_cut_every: u64,
}

impl Budget {
    /// Everything, in minutes.
    pub const FULL: Self = Self {
        cut_every: 1,
        by_chance: 6,
        singles: 12,
        recoveries: 2,
        recovery_cut_every: 1,
    };
    /// A sample, in seconds.
    pub const SAMPLE: Self = Self {
        cut_every: 7,
        by_chance: 3,
        singles: 2,
        recoveries: 1,
        recovery_cut_every: 7,
    };
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub cuts: u64,
    pub images: u64,
    pub of_recovery: u64,
}

/// What a crash keeps.
#[derive(Clone, Copy, Debug)]
enum Survival {
    /// The process dies, the disk goes on.
    ProcessDies,
    Nothing,
    Everything,
    /// Only the one part with this number, or all but it.
    Only(usize),
    AllBut(usize),
    ByChance {
        seed: u64,
    },
}

pub const JOURNAL: CrashRules = CrashRules {
    sector_bytes: 512,
    entries: EntryOrder::Journal,
};

/// How many parts a crash can keep or lose, and whether single ones are worth trying.
fn parts(disk: &TestDisk) -> usize {
    let disk = disk.duplicate();
    let mut count = 0;
    disk.sim.crash_keeping(any_order(), &mut |_| {
        count += 1;
        true
    });
    count
}

pub fn any_order() -> CrashRules {
    CrashRules {
        entries: EntryOrder::Any,
        ..JOURNAL
    }
}

impl Survival {
    fn befall(self, disk: &TestDisk) {
        let mut asked = 0;
        let mut count = || {
            asked += 1;
            asked - 1
        };
        let sim = &disk.sim;
        match self {
            Self::ProcessDies => sim.revive(),
            Self::Nothing => sim.crash_keeping(JOURNAL, &mut |_| false),
            Self::Everything => sim.crash_keeping(JOURNAL, &mut |_| true),
            Self::Only(kept) => sim.crash_keeping(any_order(), &mut |_| count() == kept),
            Self::AllBut(lost) => sim.crash_keeping(any_order(), &mut |_| count() != lost),
            Self::ByChance { seed } => {
                let mut rng = Rng(seed);
                let rules = CrashRules {
                    sector_bytes: if rng.chance(50) { 512 } else { 4096 },
                    entries: if rng.chance(50) {
                        EntryOrder::Journal
                    } else {
                        EntryOrder::Any
                    },
                };
                let percent = [10, 50, 50, 90][rng.below(4)];
                sim.crash_keeping(rules, &mut |_| rng.chance(percent));
            }
        }
    }
}

fn survivals(disk: &TestDisk, budget: &Budget, rng: &mut Rng) -> Vec<Survival> {
    let mut all = vec![
        Survival::ProcessDies,
        Survival::Nothing,
        Survival::Everything,
    ];
    all.extend((0..budget.by_chance).map(|_| Survival::ByChance { seed: rng.next() }));
    let parts = parts(disk);
    let chosen = |rng: &mut Rng| -> Vec<usize> {
        if parts <= budget.singles {
            return (0..parts).collect();
        }
        (0..budget.singles).map(|_| rng.below(parts)).collect()
    };
    all.extend(chosen(rng).into_iter().map(Survival::Only));
    all.extend(chosen(rng).into_iter().map(Survival::AllBut));
    all
}

/// Cuts `script` at its operations. The first thing that is wrong ends it.
pub fn explore(
    script: &Script,
    mistake: Option<Mistake>,
    budget: &Budget,
    tally: &mut Tally,
) -> Result<(), Violation> {
    let operations = run(script, mistake, None)?.disk.sim.operations();
    let mut rng = rng(script.seed, 3);
    let mut at = rng.next() % budget.cut_every;
    while at < operations {
        let ran = run(script, mistake, Some(at))?;
        tally.cuts += 1;
        let cut = Cut {
            model: &ran.model,
            budget,
        };
        for (index, survival) in survivals(&ran.disk, budget, &mut rng)
            .into_iter()
            .enumerate()
        {
            let image = ran.disk.duplicate();
            survival.befall(&image);
            let told = |error| format!("{}: cut at {at}, {survival:?}: {error}", script.name);
            if index < budget.recoveries || rng.chance(budget.recoveries) {
                cut.check_cut_recoveries(&image, &mut rng, tally)
                    .map_err(told)?;
            }
            check_image(&ran.model, image, &mut rng).map_err(told)?;
            tally.images += 1;
        }
        at += budget.cut_every;
    }
    Ok(())
}

/// What holds for all images of one cut.
struct Cut<'a> {
    model: &'a Model,
    budget: &'a Budget,
}

/// Recovers, and recovers again: what was reported stays.
pub fn check_image(model: &Model, image: TestDisk, rng: &mut Rng) -> Result<(), Violation> {
    let host = start(&image, &small()).map_err(|text| refused(&image, &text))?;
    let mut found = check_found(&host, model)?;
    let mut again = Model::new(false);
    again.candidates = vec![history_of(&found)];
    again.floor = host.log_end;
    again.elections = vec![host.election];
    if rng.chance(30) {
        let (added, election) = append_one(host, rng)?;
        found.push(added);
        again.elections = vec![election];
        again.candidates = vec![history_of(&found)];
        again.floor += 1;
    }
    let (sim, survival) = (&image.sim, rng.below(3));
    match survival {
        0 => sim.crash_keeping(JOURNAL, &mut |_| false),
        1 => sim.crash_keeping(any_order(), &mut |_| rng.chance(50)),
        _ => {}
    }
    let host = start(&image, &small()).map_err(|text| format!("at the second start: {text}"))?;
    check_found(&host, &again).map_err(|error| format!("at the second start: {error}"))?;
    Ok(())
}

impl Cut<'_> {
    /// Cuts recovery itself.
    fn check_cut_recoveries(
        &self,
        image: &TestDisk,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let before = image.sim.operations();
        let whole = image.duplicate();
        start(&whole, &small()).map_err(|text| refused(&whole, &text))?;
        let operations = whole.sim.operations();
        let mut at = before + rng.next() % self.budget.recovery_cut_every;
        while at < operations {
            let cut = image.duplicate();
            cut.sim.crash_after(at);
            if start(&cut, &small()).is_ok() {
                return Err(format!("recovery did not notice operation {at} fail"));
            }
            let parts = parts(&cut).max(1);
            let survivals = [
                Survival::Nothing,
                Survival::Everything,
                Survival::AllBut(rng.below(parts)),
                Survival::ByChance { seed: rng.next() },
            ];
            for survival in survivals {
                let image = cut.duplicate();
                survival.befall(&image);
                tally.of_recovery += 1;
                check_image(self.model, image, rng)
                    .map_err(|error| format!("recovery cut at {at}, {survival:?}: {error}"))?;
            }
            at += self.budget.recovery_cut_every;
        }
        Ok(())
    }
}

fn history_of(found: &[Vec<u8>]) -> Vec<(i64, i32, Vec<u8>)> {
    let mut end = 0;
    let entries = found.iter().map(|bytes| {
        end += 1;
        (end, 0, bytes.clone())
    });
    entries.collect()
}

/// Appends a batch at the end, flushes, and closes or not. Gives the batch and the vote file's
/// state.
fn append_one(mut host: Host, rng: &mut Rng) -> Result<(Vec<u8>, ElectionState), Violation> {
    let end = Offset(host.log_end);
    let epoch = host.election.epoch.max(Epoch(1));
    let election = ElectionState {
        epoch,
        ..host.election
    };
    write_quorum_state(&host.disk, &dir(), &election, &VOTERS).map_err(|e| e.to_string())?;
    let added = batch(end, epoch, 700, rng.next());
    host.writer.append(added.clone());
    let failed = |error: quorate_storage::StorageError| error.to_string();
    host.settle(rng).map_err(failed)?;
    if rng.chance(50) {
        host.close();
        host.settle(rng).map_err(failed)?;
    }
    Ok((added.bytes.to_vec(), election))
}

fn refused(image: &TestDisk, text: &str) -> Violation {
    let files = all_files(&image.sim, &dir());
    let files: Vec<String> = files
        .iter()
        .map(|(name, content)| format!("{name}: {}", content.len()))
        .collect();
    format!("refused: {text} (files: {})", files.join(", "))
}
