//! `cacheboy man` and `cacheboy completions`: what the command line says of itself, for `man` and shells.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::{Cli, ManArgs};
use crate::out;

/// Prints the page of the program, or writes those of all commands.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    // There are pages in place of it.
    let command = Cli::command().disable_help_subcommand(true);
    match &args.dir {
        Some(dir) => clap_mangen::generate_to(command, dir)
            .with_context(|| format!("cannot write manual pages to {}", dir.display()))?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).context("cannot make the page")?;
            out::bytes(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cacheboy", &mut script);
    out::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
