//! `quorate-bench`: what the machine can do at best, and what Quorate does on it.
//!
//! Figures go to standard output (one JSON value with `--json`); how they came about goes to
//! standard error. Nothing here is part of a node.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // a bench reads clocks

mod commit;
mod floor;
mod latency;
mod log;
mod open;
mod report;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "quorate-bench",
    version,
    about = "Measures Quorate and the machine under it"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What this machine can do at best with no protocol: one client, a leader, two followers
    ///
    /// Four processes over loopback TCP. The client sends a frame to the leader; the leader
    /// forwards it to both followers before its own write; each of the three writes 4 KiB with
    /// O_DIRECT and flushes; the leader answers after any two flushes. Several ways of waiting and
    /// of placing the processes are tried, and the one with the lowest median is reported.
    Floor(floor::Arguments),
    /// How long a commit takes and how many a second there are, by number of clients
    ///
    /// A client is one outstanding Produce (acks=all) with one record; clients share at most 16
    /// connections. Starts three voters of its own unless told where a quorum is.
    Commit(commit::Arguments),
    /// What the storage engine adds to the writes and flushes that it is made of
    ///
    /// The engine alone, without a quorum, against a bare ring that does the same writes and
    /// flushes, by size of group; and what the end of a segment costs. Ratios are engine to ring,
    /// in one run, block by block in turn.
    Log(log::Arguments),
    /// What it costs to open a log: closed cleanly, and after a crash against a bare read
    ///
    /// Writes logs of 1 and 10 GiB, opens each as it was closed and again as after a crash, and
    /// reads the same files past the page cache with nothing done to the bytes, in turn. Removes
    /// the logs.
    Open(open::Arguments),
    /// Measure one topic anew and write its report: text, raw data, plots, a flamegraph
    ///
    /// The machine should have nothing else to do meanwhile.
    Report(report::Arguments),
    /// One of the floor's three members (started by `floor`)
    #[command(hide = true)]
    FloorMember(floor::MemberArguments),
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Commit(arguments) => commit::run(&arguments),
        Command::Floor(arguments) => floor::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Open(arguments) => open::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::FloorMember(arguments) => floor::run_member(&arguments),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
