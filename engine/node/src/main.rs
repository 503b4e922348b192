//! The program `quorate`. All of it is in the library; see `cli`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate::cli::main()
}
