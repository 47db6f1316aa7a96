//! Programs that prove what is said of an edge, for long runs by hand: `tests/bench/prove.sh` starts
//! one and calls this. The end-to-end tests run the same in short.
//!
//! Reading order: [`mixed`] (every byte of mixed requests): its [`objects`], [`ask`] (what is asked and
//! must come), [`judge`] (whether it came), [`books`]
//! (whether the edge has it in its log and metrics), [`edge`] (whom and how), the protocols [`http1`], [`http2`],
//! [`http3`], [`tls`]. Then [`crowd`] (many that do nothing) and [`abuse`] (many that do worse, by
//! [`attack`]), both beside a [`load`]; [`latency`] (small requests beside large ones) over a [`link`], [`cap`] (what a cap of the node lets through).

mod abuse;
mod admin;
mod ask;
mod attack;
mod books;
mod cap;
mod crowd;
mod edge;
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "of the tests of `serve`")]
#[path = "../../../crates/serve/tests/support/frames.rs"]
mod frames;
mod http1;
mod http2;
mod http3;
mod judge;
mod latency;
mod link;
mod load;
mod mixed;
mod objects;
mod restart;
mod tls;

use std::process::ExitCode;

use clap::Parser;

/// What is proved.
#[derive(Parser)]
enum Proof {
    /// Mixed requests over every protocol, each byte of the answers looked at
    Mixed(mixed::Mixed),
    /// Idle connections and slow readers beside a steady small load
    CrowdIdle(crowd::Crowd),
    /// A small request a second beside downloads over a slow link
    LoadLatency(latency::Latency),
    /// Ordinary clients beside others that mean harm
    Abuse(abuse::Abused),
    /// How exactly a cap of the node holds, and how evenly it is shared
    Cap(cap::Cap),
    /// Writes the database of networks that `cap` needs
    Networks(cap::Networks),
}

#[tokio::main]
async fn main() -> ExitCode {
    let proved = match Proof::parse() {
        Proof::Mixed(mixed) => mixed::run(&mixed).await,
        Proof::CrowdIdle(crowd) => crowd::run(&crowd).await,
        Proof::LoadLatency(latency) => latency::run(&latency).await,
        Proof::Abuse(abused) => abuse::run(&abused).await,
        Proof::Cap(cap) => cap::run(&cap).await,
        Proof::Networks(networks) => cap::write_networks(&networks),
    };
    match proved {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("prove: {fault:#}");
            ExitCode::FAILURE
        }
    }
}
