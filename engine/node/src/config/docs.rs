//! The table of keys as a page: docs/configuration.md is what [`markdown`] says, held by a test.

use super::keys::{self, Absent, Key};
use std::fmt::Write as _;

const HEAD: &str = "\
# Configuration

A node reads one file in Java's `.properties` form (UTF-8): `quorate server --config FILE`. Keys
that Kafka's KRaft has mean what they mean there; keys that begin with `quorate.`, `log.` (other
than `log.dirs`) or `quorum.` are Quorate's own. A key or value that is not in this table stops the
start with its line and the nearest right key: nothing is ignored. An empty value counts as absent.

The smallest file for voter 1 of three:

    node.id=1
    process.roles=controller
    controller.quorum.voters=1@one.example:9093,2@two.example:9093,3@three.example:9093
    listeners=CLIENT://:9092,CONTROLLER://:9093
    controller.listener.names=CONTROLLER
    log.dirs=/var/lib/quorate

The older names are those of KIP-595's drafts. A key may be given under both names if the values are
the same.

| key | default | allowed | meaning |
|---|---|---|---|
";

/// The whole page.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for key in keys::ALL {
        write_row(key, &mut page);
    }
    page
}

fn write_row(key: &Key, page: &mut String) {
    let aliases: Vec<_> = key.aliases.iter().map(|name| format!("`{name}`")).collect();
    let aliases = if aliases.is_empty() {
        String::new()
    } else {
        format!("; older name {}", aliases.join(", "))
    };
    let default = match key.default {
        Absent::Required => "none, required".to_owned(),
        Absent::Value(value) => format!("`{value}`"),
        Absent::Derived(words) => words.to_owned(),
    };
    let row = writeln!(
        page,
        "| `{}`{aliases} | {default} | {} | {} |",
        key.name, key.kind, key.doc
    );
    row.expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// `REWRITE=1 cargo test -p quorate configuration_page` writes the page anew.
    #[test]
    fn configuration_page_is_the_table_of_keys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page == markdown(), "docs/configuration.md is out of date");
    }

    #[test]
    fn nothing_in_the_table_breaks_the_table() {
        for key in keys::ALL {
            assert!(!key.doc.contains(['|', '\n']), "{}", key.name);
        }
    }
}
