//! What the pages say is there: metrics, configuration keys, commands, files.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Cluster, get, quorate, s};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and everything in docs, by name.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md")];
    let mut dirs = vec![root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page");
        (path.display().to_string(), text)
    };
    paths.into_iter().map(read).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The words of `text` that consist of the letters of a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

#[test]
fn every_metric_that_a_page_names_is_there() {
    let cluster = Cluster::start(1);
    let node = &cluster.nodes()[0];
    quorate(
        &["append", "--bootstrap-server", &node.address],
        "one\n",
        s(20),
    )
    .expect_success();
    let answer = get(&node.admin, "/metrics").expect("an answer");
    let offered: BTreeSet<&str> = words(&answer.body).collect();
    let prefixes = ["quorate_", "kafka_server_"];
    let mut named = 0;
    for (page, text) in pages() {
        for code in quoted(&text).filter(|code| !code.contains(['/', '*', '-'])) {
            for word in words(code).filter(|word| prefixes.iter().any(|p| word.starts_with(p))) {
                named += 1;
                assert!(offered.contains(word), "{page} names {word}");
            }
        }
    }
    assert!(named > 10, "{named} metrics on all pages");
}

#[test]
fn every_file_that_a_page_names_is_there() {
    for (page, text) in pages() {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let local = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
        for link in local {
            let path = Path::new(&page).parent().expect("a directory").join(link);
            assert!(path.exists(), "{page} links to {link}");
        }
        let sources = ["engine/", "storage/", "net/", "bench/", "docs/", "fuzz/"];
        let is_path = |code: &&str| {
            sources.iter().any(|source| code.starts_with(source)) && !code.contains(['*', ' ', '<'])
        };
        for path in quoted(&text).filter(is_path) {
            assert!(root().join(path).exists(), "{page} names {path}");
        }
    }
}

/// All Rust sources of the workspace, as one text.
fn sources() -> String {
    let mut all = String::new();
    let mut dirs: Vec<PathBuf> = ["engine", "storage", "net", "bench", "fuzz"]
        .map(|dir| root().join(dir))
        .into();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("corpus") {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all += &fs::read_to_string(&path).expect("a source");
            }
        }
    }
    all
}

#[test]
fn every_test_that_the_page_of_cases_names_is_there() {
    let page = fs::read_to_string(root().join("docs/cases.md")).expect("a page");
    let sources = sources();
    let is_test = |code: &&str| {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        code.matches('_').count() >= 3 && code.chars().all(letters)
    };
    let mut named = 0;
    for name in quoted(&page).filter(is_test) {
        named += 1;
        assert!(sources.contains(&format!("fn {name}(")), "no test {name}");
    }
    assert!(named > 20, "{named} tests named");
}

#[test]
fn every_command_that_a_page_shows_is_known() {
    for (page, text) in pages() {
        for code in quoted(&text) {
            let mut parts = code.split_whitespace();
            if parts.next() != Some("quorate") {
                continue;
            }
            let is_word = |part: &&str| part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let command: Vec<&str> = parts.take_while(is_word).collect();
            let command: Vec<&str> = command
                .into_iter()
                .take_while(|part| !part.starts_with("--"))
                .collect();
            if command.is_empty() {
                continue;
            }
            let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
            let help = quorate(&arguments, "", s(10));
            assert!(help.status.success(), "{page} shows {code}: {help:?}");
        }
    }
}
