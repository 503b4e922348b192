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
