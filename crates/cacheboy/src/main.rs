//! `cacheboy`: one program, a subcommand a role, and the commands that people use beside them.
//!
//! Reading order: [`cli`] (what can be asked), [`roles`] (playing roles), [`check`], [`explain`],
//! [`lookup`], [`map`], [`purge`], [`node`], [`report`], [`dnssec`], [`handbook`] (pages and completions made
//! of the first), [`demo`] (the whole network on one machine).

mod cert;
mod check;
mod cli;
mod demo;
mod dnssec;
mod explain;
mod geo;
mod geoip;
mod handbook;
mod lookup;
mod map;
mod node;
mod nodes;
mod out;
mod purge;
mod report;
mod roles;
mod status;

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

/// Threads for work that waits for a disk. Each keeps some hundred KiB of what it allocated, so their
/// number bounds memory; disks are busy with far fewer.
const BLOCKING_THREADS_MAX: usize = 64;
/// How long such a thread waits for more work; what it kept is free afterwards.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_millis(300);
/// How often freed memory is given back to the system.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            if !error.downcast_ref::<OutError>().is_some_and(OutError::is_closed_pipe) {
                eprintln!("cacheboy: {}", out::harmless(format_args!("{error:#}")));
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
        Command::Bgp(args) => play(&args, Play::Bgp),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lookup(args) => lookup::run(&args),
        Command::Geoip(args) => on_runtime(geoip::run(args)),
        Command::Map(args) => map::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Node(args) => on_runtime(node::run(args)),
        Command::Status(args) => on_runtime(async move { status::run(&args).await }),
        Command::Cert(args) => on_runtime(cert::run(args)),
        Command::Dnssec(args) => dnssec::run(&args),
        Command::Purge(args) => on_runtime(purge::run(args)),
        Command::Man(args) => handbook::man(&args),
        Command::Completions { shell } => handbook::completions(shell),
    }
}

/// Runs to the end of `work`. Reads that hang in a dead file system do not keep the process.
fn on_runtime(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    give_memory_back()?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.max_blocking_threads(BLOCKING_THREADS_MAX).thread_keep_alive(BLOCKING_THREAD_IDLE);
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Keeps a burst of clients or misses from leaving its memory with an idle process. By a thread of its
/// own: what this looks through is the memory of the thread that does it.
fn give_memory_back() -> Result<()> {
    // A kernel without this has no huge pages.
    let _ = sys::memory::use_small_pages();
    sys::memory::keep_briefly();
    let work = || {
        loop {
            std::thread::sleep(GIVE_BACK_EVERY);
            sys::memory::give_back();
        }
    };
    let thread = std::thread::Builder::new().name("memory".to_owned());
    thread.spawn(work).map(drop).context("cannot start a thread")
}
