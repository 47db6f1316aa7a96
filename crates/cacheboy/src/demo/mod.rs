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
use model::Family;
use nodemap::NodeMap;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::DemoArgs;
use crate::out::say;
use layout::{HOST, HOSTS, Layout, NAME, Role, host_named};
use network::Network;

/// Runs the demo until Ctrl-C, or the check to its end.
pub(crate) async fn run(args: DemoArgs) -> Result<ExitCode> {
    // A temporary folder lives as long as this value.
    let temporary = match &args.dir {
        Some(dir) => {
            if is_foreign(dir) {
                bail!(
                    "--dir {}: holds other files, and the demo writes its own there: name an empty \
                     folder, a new one, or that of an earlier demo",
                    dir.display()
                );
            }
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
    // Before anything is written: the folder may be that of the demo that holds the addresses.
    network::free_addresses()?;
    let items = prepare(&layout, args.content.as_deref())?;
    let begun = rt::clock::now();
    let mut network = Network::start(layout)?;
    let outcome = until_done(&mut network, &args, &items, begun).await;
    network.stop().await;
    if !matches!(outcome, Ok(ExitCode::SUCCESS)) {
        keep_logs(temporary);
    }
    outcome
}

/// Whether a folder holds something that no demo made.
fn is_foreign(dir: &Path) -> bool {
    let holds_something = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    let of_a_demo = HOSTS.iter().all(|host| dir.join(host.name).is_dir());
    holds_something && !of_a_demo
}

/// Writes every file the network starts from; gives the content when it is ours.
fn prepare(layout: &Layout, content: Option<&Path>) -> Result<Vec<content::Item>> {
    let place = || format!("cannot write the demo's files to {}", layout.dir.display());
    let own = match content {
        None => None,
        Some(path) => {
            let path = std::path::absolute(path).context("cannot find the current folder")?;
            if !path.is_dir() {
                bail!("--content {}: there is no such folder", path.display());
            }
            if !path.join(mirror::TREE_MARKER).exists() {
                bail!(
                    "{} has no tree marker: a master serves only a folder that says it is whole: \
                     touch {}",
                    path.display(),
                    path.join(mirror::TREE_MARKER).display()
                );
            }
            if path.to_str().is_none() {
                bail!("--content {}: config files are UTF-8, and this path is not", path.display());
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
        let path = items.iter().find(|item| item.path.ends_with("README.txt"));
        // The files of a folder of one's own are one's own business: show the form.
        let path = path.map_or("/PATH/OF/A/FILE", |item| &item.path);
        show(network, path, ready_ms, args.json).await?;
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

/// States of a process in words: of an edge by address family.
fn state(map: &NodeMap, host: &layout::Host) -> String {
    let Some(states) = map.states.get(host.name) else { return "serving".to_owned() };
    let families = Family::ALL
        .into_iter()
        .filter_map(|family| states.get(family).map(|state| format!("{family} {}", state.state)));
    families.collect::<Vec<_>>().join(", ")
}

/// The running network, and lines to paste.
async fn show(network: &Network, path: &str, ready_ms: u64, json: bool) -> Result<()> {
    let map = network::node_map().await?;
    let dir = &network.layout.dir;
    if json {
        let hosts: Vec<_> = HOSTS
            .iter()
            .map(|host| {
                serde_json::json!({
                    "name": host.name, "role": host.role.word(), "state": state(&map, host),
                    "address": host.address(), "admin": host.admin(),
                })
            })
            .collect();
        let document = serde_json::json!({
            "format": 1, "dir": dir, "ready_ms": ready_ms, "hosts": hosts,
        });
        say!("{document:#}")?;
        return Ok(());
    }
    let seconds = ready_ms as f64 / 1e3;
    say!("The network is up after {seconds:.1} s, in {}\n", dir.display())?;
    say!("{:<12} {:<8} {:<18} {:<18} STATE", "NAME", "ROLE", "ADDRESS", "ADMIN")?;
    for host in &HOSTS {
        let (address, admin) = (host.address().to_string(), host.admin().to_string());
        let (role, state) = (host.role.word(), state(&map, host));
        say!("{:<12} {role:<8} {address:<18} {admin:<18} {state}", host.name)?;
    }
    say!("{}", lines_to_paste(&network.layout, path).trim_end())?;
    Ok(())
}

fn lines_to_paste(layout: &Layout, path: &str) -> String {
    let (dns, edge) = (host_named("ns1"), host_named("mirror1-de"));
    let (port, node) = (layout::HTTP_PORT, edge.ip());
    let dig = format!("dig @{} -p {} {NAME}", dns.ip(), dns.address().port());
    let program = std::env::current_exe().map_or_else(|_| "cacheboy".into(), |path| shell(&path));
    let config = shell(&layout.config(dns));
    let map = layout.maps().join("steering.toml");
    format!(
        "
Who is sent where (Germany, Australia, Korea by the weights of two nodes, Germany over IPv6):
  {dig} +subnet=87.128.0.0/24
  {dig} +subnet=1.128.0.0/24
  {dig} +subnet=1.208.0.0/24
  {dig} AAAA +subnet=2003:40::/48

Download from the node that the first one got (twice: the second is a hit):
  curl -sS -D - -o /dev/null --resolve {HOST}:{port}:{node} http://{HOST}:{port}{path}

Why that node:
  {program} explain --config {config} 87.128.0.1 {NAME}

Change the weights of pool `asia` in {} and ask for Korea again.
What a process knows of itself: curl http://{}/status (or /metrics)

Ctrl-C stops everything.
",
        map.display(),
        edge.admin()
    )
}

/// A path as one word of a shell.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
