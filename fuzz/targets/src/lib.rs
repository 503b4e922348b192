//! What the fuzz targets do: each takes bytes and panics only if the code under test has a fault.
//!
//! Plain functions, so that `cargo test` replays the corpus with the stable compiler; the binaries
//! that libFuzzer drives are one line each. Besides "no panic" every target states what must hold
//! of whatever is accepted: it comes back the same, it is what a second way of reading it says.
#![forbid(unsafe_code)]

mod admin;
mod batches;
pub mod corpus;
mod frames;
mod messages;
mod node;
mod recovery;
mod settings;
mod source;
mod state_files;

pub use admin::admin;
pub use batches::{batches, marks};
pub use frames::frames;
pub use messages::{addressee, requests, responses};
pub use node::{node, storm};
pub use recovery::recovery;
pub use settings::settings;
pub use state_files::state_files;

/// A target: no bytes, whatever they are, make it panic.
pub type Target = fn(&[u8]);

/// All targets, by the name of their binary and of their directory in the corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("requests", requests),
    ("responses", responses),
    ("frames", frames),
    ("node", node),
    ("batches", batches),
    ("marks", marks),
    ("recovery", recovery),
    ("state_files", state_files),
    ("settings", settings),
    ("admin", admin),
];
