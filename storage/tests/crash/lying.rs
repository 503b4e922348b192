//! A disk that lies: what was flushed is not there, is something else, or stands elsewhere. It is
//! noticed at the start or when it is read, or it does no harm. docs/log.md lists what cannot be
//! told from a write that a crash interrupted; here it is checked to be no more than that.

use crate::common::{Rng, all_files, dir};
use crate::disk::{Mistake, TestDisk};
use crate::host::start;
use crate::model::{Model, end_of, rng};
use crate::script::{Script, run, run_on, small};
use quorate_storage::sim_disk::{FlushFault, WriteFault};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The start is refused and says why; the disk is as it was.
    Refused,
    /// The log is opened, and a read is refused.
    RefusedOnRead,
    /// Everything is there.
    Harmless,
    /// What was flushed ends here, and nobody is told.
    CutAt(i64),
    /// Something was changed, and nobody is told.
    Wrong,
}

/// Opens the log and reads it.
fn outcome(disk: &TestDisk, model: &Model) -> Outcome {
    let before = all_files(&disk.sim, &dir());
    let host = match start(disk, &small()) {
        Ok(host) => host,
        Err(text) => {
            assert!(text.contains("/log/topic-0"), "no file is named: {text}");
            // Where reading fails, recovery may have begun to write: it can be done again.
            let is_same = all_files(&disk.sim, &dir()) == before;
            assert!(is_same || text.starts_with("cannot "), "changed: {text}");
            return Outcome::Refused;
        }
    };
    let Ok(found) = host.read_all() else {
        return Outcome::RefusedOnRead;
    };
    let history = model.candidates.last().unwrap();
    let pairs = found.iter().zip(history);
    let is_prefix = found.len() <= history.len() && pairs.into_iter().all(|(a, b)| *a == b.2);
    if !is_prefix || model.check_election(&host.election).is_err() {
        return Outcome::Wrong;
    }
    match end_of(&history[..found.len()]).0 {
        end if end < model.floor => Outcome::CutAt(end),
        _ => Outcome::Harmless,
    }
}

/// A log to be damaged.
struct Log {
    is_closed: bool,
    disk: TestDisk,
    model: Model,
}

/// Logs whose process died when all was flushed, and others that were closed.
fn logs(mistake: Option<Mistake>) -> Vec<Log> {
    let mut logs = Vec::new();
    for script in [Script::rolls(1), Script::equal_sizes(1, 700)] {
        for is_closed in [false, true] {
            let script = if is_closed {
                script.closed()
            } else {
                script.settled()
            };
            let ran = run(&script, mistake, None).unwrap();
            logs.push(Log {
                is_closed,
                disk: ran.disk,
                model: ran.model,
            });
        }
    }
    logs
}

/// What is done to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Bit {
        position: usize,
        mask: u8,
    },
    Unreadable {
        position: usize,
    },
    /// As if it had never been written.
    ZeroedSector {
        position: usize,
    },
    /// A write of another block went here.
    CopiedBlock {
        from: usize,
        to: usize,
    },
}

impl Damage {
    fn name(self) -> &'static str {
        match self {
            Self::Bit { .. } => "flipped bit",
            Self::Unreadable { .. } => "unreadable block",
            Self::ZeroedSector { .. } => "zeroed sector",
            Self::CopiedBlock { .. } => "copied block",
        }
    }

    fn befall(self, disk: &TestDisk, path: &Path) {
        match self {
            Self::Bit { position, mask } => disk.sim.flip(path, position, mask),
            Self::Unreadable { position } => disk.sim.make_unreadable(path, position as u64),
            Self::ZeroedSector { position } => disk.sim.edit(path, |bytes| {
                let end = (position + 512).min(bytes.len());
                bytes[position..end].fill(0);
            }),
            Self::CopiedBlock { from, to } => {
                disk.sim
                    .edit(path, |bytes| bytes.copy_within(from..from + 4096, to));
            }
        }
    }

    /// Everything that can befall a file of `len` bytes; every `step`th byte of a large one.
    fn all(len: usize, step: usize, rng: &mut Rng) -> Vec<Self> {
        let step = if len < 2000 { step.min(3) } else { step };
        let mut all = Vec::new();
        let first = rng.below(step).min(len.saturating_sub(1));
        for position in (first..len).step_by(step) {
            let mask = 1 << rng.below(8);
            all.push(Self::Bit { position, mask });
        }
        let blocks = (0..len).step_by(4096);
        all.extend(blocks.map(|position| Self::Unreadable { position }));
        let sectors = (0..len).step_by(512);
        all.extend(sectors.map(|position| Self::ZeroedSector { position }));
        for from in (0..len / 4096 * 4096).step_by(4096) {
            for to in (0..len / 4096 * 4096).step_by(4096) {
                all.push(Self::CopiedBlock { from, to });
            }
        }
        all
    }
}

/// Which kind of file it is.
fn kind(path: &Path, last_log: &Path) -> &'static str {
    let is_last = path == last_log;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("log") if is_last => "last segment",
        Some("log") => "other segment",
        Some("index" | "timeindex") => "index",
        Some("spare") => "spare",
        _ if path.ends_with("quorum-state") => "quorum-state",
        _ => "state file",
    }
}

/// How often each outcome came of each damage to each kind of file.
type Table = BTreeMap<(bool, &'static str, &'static str), BTreeMap<String, u64>>;

/// Damages each file in each way, and checks that nothing is served or cut silently but what cannot
/// be told. Gives what is against that.
fn damage_all(logs: &[Log], step: usize, table: &mut Table) -> Vec<String> {
    let mut rng = rng(crate::seed(), 7);
    let mut silent = Vec::new();
    for log in logs {
        let files: Vec<(PathBuf, usize)> = all_files(&log.disk.sim, &dir())
            .into_iter()
            .map(|(name, content)| (dir().join(name), content.len()))
            .collect();
        let is_log = |(path, _): &&(PathBuf, usize)| path.extension().is_some_and(|e| e == "log");
        let last_log = files.iter().rfind(is_log).unwrap().0.clone();
        for (path, len) in &files {
            let kind = kind(path, &last_log);
            for damage in Damage::all(*len, step, &mut rng) {
                let image = log.disk.duplicate();
                damage.befall(&image, path);
                let outcome = outcome(&image, &log.model);
                let key = (log.is_closed, kind, damage.name());
                let name = match outcome {
                    Outcome::CutAt(_) => "cut".to_owned(),
                    outcome => format!("{outcome:?}"),
                };
                *table.entry(key).or_default().entry(name).or_default() += 1;
                if !log.may_be(outcome, kind, damage) {
                    let path = path.display();
                    silent.push(format!("{path}: {damage:?} gives {outcome:?}"));
                }
            }
        }
    }
    silent
}

impl Log {
    /// The rule of docs/log.md.
    fn may_be(&self, outcome: Outcome, kind: &str, damage: Damage) -> bool {
        match outcome {
            Outcome::Refused | Outcome::RefusedOnRead | Outcome::Harmless => true,
            // The newest group, where a sector of it is as it was before.
            Outcome::CutAt(end) => {
                !self.is_closed
                    && kind == "last segment"
                    && end == self.model.before_newest
                    && matches!(
                        damage,
                        Damage::ZeroedSector { .. } | Damage::CopiedBlock { .. }
                    )
            }
            // Another digit, in a file without a checksum.
            Outcome::Wrong => kind == "quorum-state" && matches!(damage, Damage::Bit { .. }),
        }
    }
}

fn check_damage(step: usize) {
    let mut table = Table::new();
    let silent = damage_all(&logs(None), step, &mut table);
    for ((is_closed, kind, damage), outcomes) in &table {
        let log = if *is_closed { "closed" } else { "killed" };
        println!("{log:6} {kind:13} {damage:16} {outcomes:?}");
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
    let count = |is_closed, damage, outcome: &str| {
        let outcomes = &table[&(is_closed, "other segment", damage)];
        outcomes.get(outcome).copied().unwrap_or(0)
    };
    for damage in ["flipped bit", "unreadable block", "zeroed sector"] {
        assert!(count(false, damage, "Refused") >= 10, "{damage}");
        assert!(count(true, damage, "RefusedOnRead") >= 10, "{damage}");
    }
    assert!(table[&(false, "last segment", "zeroed sector")]["cut"] > 0);
}

#[test]
fn damage_is_refused_or_harmless_or_to_the_newest_group() {
    check_damage(311);
}

#[test]
#[ignore = "takes minutes; main.rs says how to run it"]
fn damage_to_any_byte_is_refused_or_harmless_or_to_the_newest_group() {
    check_damage(1);
}

#[test]
fn marks_that_are_ignored_are_found() {
    let mut logs = logs(Some(Mistake::MarksAreIgnored));
    logs.retain(|log| !log.is_closed);
    let silent = damage_all(&logs, 311, &mut Table::new());
    let cuts = silent.iter().filter(|text| text.contains("CutAt"));
    assert!(cuts.count() > 10, "{}", silent.join("\n"));
}

/// A whole segment in the place of another, with the right name and valid checksums.
#[test]
fn a_segment_in_the_place_of_another_is_refused() {
    for log in logs(None) {
        let files = all_files(&log.disk.sim, &dir());
        let segments: Vec<_> = files
            .iter()
            .filter(|(name, _)| name.ends_with(".log"))
            .collect();
        assert!(segments.len() > 3);
        for (from, content) in &segments {
            for (to, _) in segments.iter().filter(|(to, _)| to != from) {
                let image = log.disk.duplicate();
                image
                    .sim
                    .edit(&dir().join(to), |bytes| bytes.clone_from(content));
                let outcome = outcome(&image, &log.model);
                let is_refused = matches!(outcome, Outcome::Refused | Outcome::RefusedOnRead);
                assert!(is_refused, "{from} over {to}: {outcome:?}");
            }
        }
    }
}

/// Runs a workload of which one operation goes wrong unnoticed, and looks at what is left when the
/// process dies, and when the power fails. Gives the end of what is found, if it is not refused.
fn left_by(script: &Script, what: &str, arm: impl Fn(&TestDisk)) {
    let disk = TestDisk::new(None);
    arm(&disk);
    let (model, stopped) = run_on(script, &disk);
    // Found by itself, at one of the starts inside of the workload or by a truncation.
    if stopped.is_some() {
        return;
    }
    for power_fails in [false, true] {
        let image = disk.duplicate();
        if power_fails {
            image.sim.crash(&mut || 0);
        }
        match outcome(&image, &model) {
            Outcome::Refused | Outcome::RefusedOnRead | Outcome::Harmless => {}
            Outcome::CutAt(end) if end == model.before_newest => {}
            outcome => {
                let name = &script.name;
                panic!("{name}: {what}, power fails: {power_fails}: {outcome:?}");
            }
        }
    }
}

/// Without kills inside, after which a run would know of less than was flushed.
fn scripts() -> [Script; 2] {
    let seed = crate::seed();
    [
        Script::overtaken(seed).settled(),
        Script::rolls(seed).without_starts().settled(),
    ]
}

#[test]
fn a_write_that_is_lost_or_strays_costs_no_more_than_the_newest_group() {
    for script in scripts() {
        let whole = run(&script, None, None).unwrap().disk.sim;
        let mut rng = rng(script.seed, 8);
        for nth in 1..=whole.counts().0 {
            left_by(&script, &format!("write {nth} is lost"), |disk| {
                disk.sim.disturb_write(nth, WriteFault::Lost);
            });
            // To the first segment, which is there from the start.
            let at = 4096 * rng.below(6) as u64;
            let stray = WriteFault::Misdirected {
                path: crate::common::log_path(0),
                at,
            };
            if nth > 12 {
                left_by(&script, &format!("write {nth} goes to byte {at}"), |disk| {
                    disk.sim.disturb_write(nth, stray.clone());
                });
            }
        }
    }
}

/// What D1 forbids. Nothing wrong is served; what is missing is the newest group.
#[test]
fn a_flush_that_lies_costs_no_more_than_the_newest_group() {
    for script in scripts() {
        let whole = run(&script, None, None).unwrap().disk.sim;
        for nth in 1..=whole.counts().1 {
            left_by(&script, &format!("flush {nth} lies"), |disk| {
                disk.sim.disturb_flush(nth, FlushFault::Lost);
            });
        }
    }
}
