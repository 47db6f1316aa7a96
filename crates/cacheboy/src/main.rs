//! `cacheboy`: one program, a subcommand a role, and the commands that people use beside them.
//!
//! Reading order: [`cli`] (what can be asked), [`roles`] (playing roles), [`check`], [`explain`],
//! [`lookup`], [`purge`], [`demo`] (the whole network on one machine).

mod check;
mod cli;
mod demo;
mod explain;
mod geo;
mod lookup;
mod out;
mod purge;
mod roles;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use rt::handover::Handed;

use cli::{Cli, Command, RoleArgs};
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
    let play = |args: &RoleArgs, play| {
        // Before the runtime opens files of its own.
        let handed = Handed::take();
        on_runtime(roles::run(args, play, handed))
    };
    match command {
        Command::Demo(args) => on_runtime(demo::run(args)),
        Command::Run(args) => play(&args, Play::All),
        Command::Edge(args) => play(&args, Play::Edge),
        Command::Dns(args) => play(&args, Play::Dns),
        Command::Health(args) => play(&args, Play::Health),
        Command::Master(args) => play(&args, Play::Master),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lookup(args) => lookup::run(&args),
        Command::Purge(args) => on_runtime(purge::run(args)),
    }
}

/// Runs to the end of `work`. Reads that hang in a dead file system do not keep the process.
fn on_runtime(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
