//! `cacheboy`: one program, a subcommand a role, and the commands that people use beside them.
//!
//! Reading order: [`cli`] (what can be asked), [`roles`] (playing roles), [`check`], [`explain`],
//! [`lookup`], [`demo`] (the whole network on one machine).

mod check;
mod cli;
mod demo;
mod explain;
mod geo;
mod lookup;
mod out;
mod roles;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use cli::{Cli, Command};
use out::OutError;
use roles::Play;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            if !error.downcast_ref::<OutError>().is_some_and(OutError::is_closed_pipe) {
                eprintln!("cacheboy: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().build().context("cannot start the runtime")
    };
    match command {
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Run(args) => runtime()?.block_on(roles::run(&args, Play::All)),
        Command::Edge(args) => runtime()?.block_on(roles::run(&args, Play::Edge)),
        Command::Dns(args) => runtime()?.block_on(roles::run(&args, Play::Dns)),
        Command::Health(args) => runtime()?.block_on(roles::run(&args, Play::Health)),
        Command::Master(args) => runtime()?.block_on(roles::run(&args, Play::Master)),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lookup(args) => lookup::run(&args),
    }
}
