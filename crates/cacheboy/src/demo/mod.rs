//! `cacheboy demo`: the whole network on loopback as real processes, and `--check`, which plays
//! clients through it.
//!
//! Reading order: [`layout`] (who is where), [`content`], [`network`] (processes), [`dig`] (the
//! DNS client), [`check`] (the clients' day, failures included).

mod check;
mod content;
mod dig;
mod layout;
mod network;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::DemoArgs;
use layout::{HOST, HOSTS, Layout, NAME, Role, host_named};
use network::Network;

/// Runs the demo until Ctrl-C, or the check to its end.
pub(crate) async fn run(args: DemoArgs) -> Result<ExitCode> {
    // A temporary folder lives as long as this value.
    let temporary = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
            None
        }
        None => Some(tempfile::tempdir().context("cannot make a temporary folder")?),
    };
    let dir = match (&args.dir, &temporary) {
        (Some(dir), _) => std::path::absolute(dir).context("cannot find the current folder")?,
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => bail!("no folder"),
    };
    let layout = Layout { dir };
    let items = prepare(&layout, args.content.as_deref())?;
    let begun = rt::clock::now();
    let mut network = Network::start(layout).await?;
    let outcome = until_done(&mut network, &args, &items, begun).await;
    network.stop().await;
    if outcome.is_err() || matches!(outcome, Ok(code) if code != ExitCode::SUCCESS) {
        keep_logs(temporary);
    }
    outcome
}

/// Writes every file the network starts from; gives the content when it is ours.
fn prepare(layout: &Layout, content: Option<&Path>) -> Result<Vec<content::Item>> {
    let place = || format!("cannot write the demo's files to {}", layout.dir.display());
    let own = match content {
        None => None,
        Some(path) => {
            let path = std::path::absolute(path).context("cannot find the current folder")?;
            if !path.join(mirror::TREE_MARKER).exists() {
                bail!(
                    "{} has no tree marker: a master serves only a folder that says it is whole: \
                     touch {}",
                    path.display(),
                    path.join(mirror::TREE_MARKER).display()
                );
            }
            Some(path)
        }
    };
    layout.write(own.as_deref()).with_context(place)?;
    if own.is_some() {
        return Ok(Vec::new());
    }
    let trees: Vec<PathBuf> =
        HOSTS.iter().filter(|h| h.role == Role::Master).map(|h| layout.tree(h)).collect();
    content::write(&trees.iter().map(PathBuf::as_path).collect::<Vec<_>>()).with_context(place)
}

/// A failed run leaves its folder for reading.
fn keep_logs(temporary: Option<tempfile::TempDir>) {
    if let Some(dir) = temporary {
        eprintln!("logs and configs are kept in {}", dir.keep().display());
    }
}

async fn until_done(
    network: &mut Network,
    args: &DemoArgs,
    items: &[content::Item],
    begun: model::Now,
) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let work = async {
        network.ready().await?;
        let ready_ms = (rt::clock::now().mono_ns - begun.mono_ns) / 1_000_000;
        if args.check {
            return check::run(network, items, ready_ms, args.json).await;
        }
        show(network, ready_ms, args.json).await?;
        loop {
            network.all_alive()?;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        result = work => result,
        _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
    }
}

/// The table of the running network and lines to paste.
async fn show(network: &Network, ready_ms: u64, json: bool) -> Result<()> {
    let map = network::node_map().await?;
    let state = |host: &layout::Host| match map.states.get(host.name) {
        Some(states) => [("", &states.v4), (", v6 ", &states.v6)]
            .into_iter()
            .filter_map(|(label, state)| state.as_ref().map(|s| format!("{label}{}", s.state)))
            .collect::<String>(),
        None => "serving".to_owned(),
    };
    if json {
        let hosts: Vec<_> = HOSTS
            .iter()
            .map(|host| {
                serde_json::json!({
                    "name": host.name, "role": host.role.word(), "state": state(host),
                    "address": host.address(), "admin": host.admin(),
                })
            })
            .collect();
        let document = serde_json::json!({
            "format": 1, "dir": network.layout.dir, "ready_ms": ready_ms, "hosts": hosts,
        });
        println!("{document:#}");
        return Ok(());
    }
    println!(
        "The network is up after {:.1} s, in {}\n",
        ready_ms as f64 / 1e3,
        network.layout.dir.display()
    );
    println!("{:<12} {:<8} {:<18} {:<18} STATE", "NAME", "ROLE", "ADDRESS", "ADMIN");
    for host in &HOSTS {
        println!(
            "{:<12} {:<8} {:<18} {:<18} {}",
            host.name,
            host.role.word(),
            host.address().to_string(),
            host.admin().to_string(),
            state(host)
        );
    }
    let (dns, edge) = (host_named("ns1"), host_named("mirror1-de"));
    let path = "/vlc/4.0.0/README.txt";
    let port = layout::HTTP_PORT;
    println!(
        "\nWho is sent where (a client in Germany, one in Australia, one over IPv6):\n  \
         dig @{} -p {} {NAME} +subnet=87.128.0.0/24\n  \
         dig @{} -p {} {NAME} +subnet=1.128.0.0/24\n  \
         dig @{} -p {} {NAME} AAAA +subnet=2003:40::/48",
        dns.ip(),
        dns.address().port(),
        dns.ip(),
        dns.address().port(),
        dns.ip(),
        dns.address().port()
    );
    println!(
        "\nDownload from the node that the first one got (twice: the second is a hit):\n  \
         curl -sS -D - -o /dev/null --resolve {HOST}:{port}:{} http://{HOST}:{port}{path}",
        edge.ip()
    );
    println!(
        "\nWhy:\n  cacheboy explain --config {} 87.128.0.1 {NAME}",
        network.layout.config(dns).display()
    );
    println!(
        "\nChange a weight in {} and ask again.\nWhat a process sees of itself: curl http://{}/status (or /metrics)\n\nCtrl-C stops everything.",
        network.layout.maps().join("steering.toml").display(),
        edge.admin()
    );
    Ok(())
}
