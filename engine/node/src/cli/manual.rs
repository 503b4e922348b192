//! What a system has about a program beside the program: completions and manual pages. Both are
//! made from the help texts, so they never say anything else.

use super::CliError;
use super::args::{Cli, CompletionsArgs, ManArgs};
use clap::CommandFactory;
use std::io::{self, Write as _};

const NAME: &str = "quorate";

/// Prints a shell's script.
pub(super) fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    print(&script)
}

/// Prints the page of the program, or writes all pages into a directory.
pub(super) fn man(args: &ManArgs) -> Result<(), CliError> {
    match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            Ok(clap_mangen::generate_to(Cli::command(), dir)?)
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            print(&page)
        }
    }
}

fn print(text: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("man1");
        man(&ManArgs {
            dir: Some(path.clone()),
        })
        .unwrap();
        fn check(command: &clap::Command, name: &str, dir: &std::path::Path) {
            let page = fs::read_to_string(dir.join(format!("{name}.1"))).expect(name);
            if let Some(help) = command.get_after_help() {
                // The page escapes hyphens and quotes: the first word of each line is enough.
                let first = help.to_string().lines().next().unwrap().replace('-', "\\-");
                let word = first.split(' ').next().unwrap().to_owned();
                assert!(page.contains(&word), "{name}: {word}");
            }
            for sub in command.get_subcommands() {
                check(sub, &format!("{name}-{}", sub.get_name()), dir);
            }
        }
        check(&Cli::command(), NAME, &path);
    }

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), NAME, &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("bootstrap-controller"), "{shell}");
        }
    }
}
