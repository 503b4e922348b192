//! Replays the committed corpus: inputs that reach much of the code, and in `fuzz/regressions`
//! every input that ever found a fault.

use quorate_fuzz::{TARGETS, Target, corpus};
use std::fs;
use std::path::PathBuf;

/// Tells which input it was that panicked.
struct Replayed<'a>(&'a str, &'a [u8]);

impl Drop for Replayed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} did not withstand {:02x?}", self.0, self.1);
        }
    }
}

fn replay(name: &str, target: Target, input: &[u8]) {
    let _told = Replayed(name, input);
    target(input);
}

#[test]
fn every_input_of_the_corpus_is_withstood() {
    for (name, target) in TARGETS {
        let inputs = corpus::read(name).expect("a corpus");
        assert!(inputs.len() > 4, "the corpus of {name} is as good as empty");
        for input in &inputs {
            replay(name, *target, input);
        }
    }
}

/// Named `<target>-<what was wrong>`.
#[test]
fn every_input_that_found_a_fault_is_withstood() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../regressions");
    for entry in fs::read_dir(dir).expect("regressions") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            continue;
        }
        let name = path.file_name().expect("a file").to_string_lossy();
        let target = TARGETS.iter().find(|(target, _)| name.starts_with(*target));
        let (_, target) = target.expect("a regression of a target");
        replay(&name, *target, &fs::read(&path).expect("an input"));
    }
}

/// The binaries are a workspace of their own, which nothing else here looks at.
#[test]
fn every_target_has_its_binary_and_no_binary_is_left_over() {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("a manifest");
    let mut found: Vec<String> = fs::read_dir(fuzz.join("fuzz_targets"))
        .expect("the binaries")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort_unstable();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(found, names);
    for name in names {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "no binary {name}"
        );
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            source.contains(&format!("quorate_fuzz::{name}")),
            "{source}"
        );
    }
}
