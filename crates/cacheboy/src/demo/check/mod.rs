//! `demo --check`: plays clients through the running network, one step after another, and says of
//! each whether what was promised held, with its figures.
//!
//! Steps: [`steering`] (who is sent where), [`content`] (exact bytes, once from the masters),
//! [`failure`] (killed edges and masters, edited weights). A failed step does not end the run: the
//! next ones say more.

mod content;
mod failure;
mod steering;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::content::Item;
use super::network::Network;
use crate::out::say;

/// Figures of a step: name -> value, in the order they were put in.
type Figures = Map<String, Value>;

/// What a step found.
struct Step {
    name: &'static str,
    /// What must hold, in words.
    claim: &'static str,
    ms: u64,
    outcome: Result<Figures>,
}

/// Runs every step, prints the table (or JSON), and gives exit code 0 only if all of it held.
pub(super) async fn run(
    network: &mut Network,
    items: &[Item],
    ready_ms: u64,
    json: bool,
) -> Result<ExitCode> {
    if !json {
        say!("network ready after {:.2} s\n", ready_ms as f64 / 1e3)?;
        say!("{:<4} {:<16} {:>6}  WHAT HELD", "", "STEP", "SECONDS")?;
    }
    let mut steps = Vec::new();
    macro_rules! step {
        ($name:literal, $claim:literal, $run:expr) => {{
            let begun = rt::clock::now();
            let outcome = $run.await;
            let ms = (rt::clock::now().mono_ns - begun.mono_ns) / 1_000_000;
            let step = Step { name: $name, claim: $claim, ms, outcome };
            if !json {
                print(&step)?;
            }
            steps.push(step);
        }};
    }
    step!(
        "resolve",
        "eight clients and more, by UDP and TCP, get the node that the maps name",
        steering::resolve()
    );
    step!(
        "resolve-ipv6",
        "IPv6 clients get the AAAA of the node that the maps name",
        steering::resolve_ipv6()
    );
    step!(
        "host",
        "clients arrive by the project's own host name; an unknown Host gets 421",
        content::host(items)
    );
    step!(
        "download",
        "whole files, SHA-256 right, from each answered node; masters send each byte once an edge",
        content::download(items)
    );
    step!(
        "hit",
        "the second client of a node is a hit and costs the masters nothing",
        content::hit(items)
    );
    step!(
        "ranges",
        "a client that asks only for ranges fills the cache; every kind of range is exact",
        content::ranges(items)
    );
    step!("download-ipv6", "a download over IPv6 is exact", content::ipv6(items));
    step!(
        "edge-killed",
        "a killed edge leaves the answers in time and comes back with its cache warm",
        failure::edge_killed(network, items)
    );
    step!(
        "master-killed",
        "with one master gone uncached files still come",
        failure::master_killed(network, items)
    );
    step!(
        "masters-killed",
        "no master: held files come, others get a clear 502 or 504; it recovers by itself",
        failure::masters_killed(network, items)
    );
    step!(
        "weight",
        "an edited weight is live within 3 s, counted on 2,000 answers",
        failure::weight(network)
    );
    let failed = steps.iter().filter(|step| step.outcome.is_err()).count();
    if json {
        say!("{:#}", document(&steps, ready_ms, failed == 0))?;
    } else if failed == 0 {
        say!("\nall {} steps held", steps.len())?;
    } else {
        say!("\n{failed} of {} steps FAILED", steps.len())?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(step: &Step) -> Result<()> {
    let seconds = step.ms as f64 / 1e3;
    match &step.outcome {
        Ok(figures) => {
            say!("ok   {:<16} {seconds:>6.2}  {}", step.name, step.claim)?;
            let figures: Vec<_> = figures
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => format!("{name} {text}"),
                    other => format!("{name} {other}"),
                })
                .collect();
            say!("{:<29}{}", "", figures.join(", "))?;
        }
        Err(error) => {
            say!("FAIL {:<16} {seconds:>6.2}  {}", step.name, step.claim)?;
            say!("{:<29}{error:#}", "")?;
        }
    }
    Ok(())
}

fn document(steps: &[Step], ready_ms: u64, ok: bool) -> Value {
    let steps: Vec<_> = steps
        .iter()
        .map(|step| {
            let (figures, error) = match &step.outcome {
                Ok(figures) => (Value::Object(figures.clone()), Value::Null),
                Err(error) => (Value::Null, format!("{error:#}").into()),
            };
            json!({
                "name": step.name, "claim": step.claim, "ok": step.outcome.is_ok(),
                "ms": step.ms, "figures": figures, "error": error,
            })
        })
        .collect();
    json!({ "format": 1, "ok": ok, "ready_ms": ready_ms, "steps": steps })
}

/// Makes figures from pairs.
fn figures<const N: usize>(pairs: [(&str, Value); N]) -> Figures {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
