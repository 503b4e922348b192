//! The command line: flags to what the rest of the program understands, and errors to one line.
//!
//! Every command ends with exit code 0, or with another one ([`CliError::exit_code`]) and exactly
//! one line on standard error that begins with `quorate: `. Results go to standard output, logging
//! to standard error. No logic lives here.

mod append;
mod args;
mod connect;
mod describe;
mod error;
mod log;
mod manual;
mod node;
mod output;
mod tail;

pub use error::CliError;

use crate::dev::VoterLogging;
use crate::logging;
use args::{Cli, Command, LogCommand, LogFormat, LogLevel, QuorumCommand};
use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Runs the command that the process's arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    start_logging(&cli);
    let logging = VoterLogging {
        level: cli.log_level.map(LogLevel::as_str),
        format: Some(cli.log_format.as_str()),
    };
    let code = end(run(cli.command, logging));
    logging::flush(logging::EXIT_PATIENCE);
    code
}

fn end(outcome: Result<(), CliError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has enough (`quorate tail | head`): not a failure.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command, logging: VoterLogging) -> Result<(), CliError> {
    match command {
        Command::Dev(args) => node::dev(args, logging),
        Command::Format(args) => node::format(&args),
        Command::RandomUuid => node::random_uuid(),
        Command::Server(args) => node::server(&args),
        Command::Quorum(QuorumCommand::Describe(args)) => describe::run(&args),
        Command::Append(args) => append::run(args),
        Command::Tail(args) => tail::run(args),
        Command::Log(LogCommand::Dump(args)) => log::dump(&args),
        Command::Log(LogCommand::Verify(args)) => log::verify(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    }
}

/// Help and version as clap has them; a wrong command line in one line.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody reads it: nothing to do about that.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::FAILURE
        }
        _ => {
            complain(&one_line(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// The message of clap without its usage part, in one line.
fn one_line(message: &str) -> String {
    let words = message.strip_prefix("error: ").unwrap_or(message);
    let told = words
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    let told: Vec<_> = told.collect();
    format!(
        "{} (--help explains)",
        told.join(" ").replace(" tip: ", "; ")
    )
}

/// The line on standard error that each failure gets.
fn complain(message: &str) {
    logging::say(&format!("quorate: {}\n", message.replace('\n', " ")));
}

/// `--log-level` wins over RUST_LOG; servers say what they do, other commands only what is wrong.
fn start_logging(cli: &Cli) {
    let default = if cli.command.runs_a_node() {
        "info"
    } else {
        "warn"
    };
    let filter = match cli.log_level {
        Some(level) => EnvFilter::new(level.as_str()),
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default)),
    };
    let format = match cli.log_format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    };
    logging::start(filter, format, cli.command.runs_a_node());
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn fault(arguments: &[&str]) -> String {
        let arguments = std::iter::once(&"quorate").chain(arguments);
        one_line(&Cli::try_parse_from(arguments).unwrap_err().to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn check(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path}");
                if sub.has_subcommands() {
                    check(sub, &path);
                } else {
                    let after = sub.get_after_help().expect(&path).to_string();
                    assert!(after.contains(&path), "no example in {path} --help");
                }
                for argument in sub.get_arguments() {
                    assert!(
                        argument.get_help().is_some(),
                        "{path} {}",
                        argument.get_id()
                    );
                }
            }
        }
        check(&Cli::command(), "quorate");
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one_line() {
        for (arguments, says) in [
            (&["server"][..], "--config <FILE>"),
            (&["servr"], "; a similar subcommand exists: 'server'"),
            (&["dev", "--voter", "3"], "'--voters'"),
            (&["dev", "--voters", "0"], "0 is not in 1..=15"),
            (
                &["append", "--bootstrap-server", "h"],
                "does not end in a port",
            ),
            (&["quorum", "describe"], "--bootstrap-server"),
        ] {
            let line = fault(arguments);
            assert!(line.contains(says), "{says}: {line}");
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
        }
    }
}
