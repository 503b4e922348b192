//! The house rules that no compiler checks.
//!
//! Which package may use which, lines of at most 100 columns, nothing left unfinished, one title
//! per page. Each rule names the file and line that breaks it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Package directory, name, and the packages of the workspace that it may depend on.
const ARROWS: &[(&str, &str, &[&str])] = &[
    ("engine/raft", "quorate-raft", &[]),
    ("engine/ring", "quorate-ring", &[]),
    (
        "storage",
        "quorate-storage",
        &["quorate-raft", "quorate-ring"],
    ),
    ("net", "quorate-net", &["quorate-raft", "quorate-ring"]),
    (
        "engine/node",
        "quorate",
        &[
            "quorate-raft",
            "quorate-ring",
            "quorate-storage",
            "quorate-net",
        ],
    ),
    (
        "engine/sim",
        "quorate-sim",
        &[
            "quorate-raft",
            "quorate-ring",
            "quorate-storage",
            "quorate-net",
            "quorate",
        ],
    ),
    (
        "bench",
        "quorate-bench",
        &[
            "quorate-raft",
            "quorate-ring",
            "quorate-storage",
            "quorate-net",
            "quorate",
        ],
    ),
    (
        "fuzz/targets",
        "quorate-fuzz",
        &["quorate-raft", "quorate-storage", "quorate-net", "quorate"],
    ),
];

const COLUMNS_MAX: usize = 100;

/// Split so that this file does not break its own rule.
const UNFINISHED: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of the workspace with this extension and its text, by its path from the root.
fn files(extension: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "quorate-data") {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(root()).unwrap().to_owned(), text);
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} files found");
    found
}

/// The names under `[section]` of a manifest.
fn names(manifest: &str, section: &str) -> Vec<String> {
    let header = format!("[{section}]");
    let lines = manifest
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['=', '.', ' ']).next())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    for (dir, name, allowed) in ARROWS {
        let manifest = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{dir} is not {name}"
        );
        for dependency in names(&manifest, "dependencies") {
            let ours = ARROWS.iter().any(|(_, name, _)| *name == dependency);
            assert!(
                !ours || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn the_protocol_core_depends_on_nothing() {
    let manifest = fs::read_to_string(root().join("engine/raft/Cargo.toml")).unwrap();
    assert_eq!(names(&manifest, "dependencies"), Vec::<String>::new());
}

#[test]
fn lines_are_short_and_nothing_is_left_unfinished() {
    let mut faults = Vec::new();
    for (path, text) in files("rs") {
        for (number, line) in text.lines().enumerate() {
            let at = format!("{}:{}", path.display(), number + 1);
            if line.chars().count() > COLUMNS_MAX {
                faults.push(format!("{at}: more than {COLUMNS_MAX} columns"));
            }
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                faults.push(format!("{at}: {word}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn unsafe_code_lives_in_the_ring_alone() {
    for (dir, ..) in ARROWS.iter().filter(|(dir, ..)| *dir != "engine/ring") {
        for name in ["src/lib.rs", "src/main.rs"] {
            let Ok(text) = fs::read_to_string(root().join(dir).join(name)) else {
                continue;
            };
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{dir}/{name} allows unsafe code"
            );
        }
    }
}

#[test]
fn every_page_has_one_title() {
    for (path, text) in files("md") {
        let mut fenced = false;
        let mut titles = 0;
        for line in text.lines() {
            fenced ^= line.starts_with("```");
            titles += usize::from(!fenced && line.starts_with("# "));
        }
        assert_eq!(titles, 1, "{} has {titles} titles", path.display());
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for (path, text) in files("rs") {
        assert!(
            text.starts_with("//!"),
            "{} does not begin with //!",
            path.display()
        );
    }
}
