//! What happens when machines die and people edit maps.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use ipnet::IpNet;
use tokio::time::sleep;

use super::content::{cache_status, fetch, fetch_whole, is_hit, item, sent_by_masters};
use super::{Figures, figures};
use crate::demo::content::Item;
use crate::demo::dig::{self, Question};
use crate::demo::layout::{DETECT_MS, NAME, host_named};
use crate::demo::network::{LOOK, Network};

/// How long a killed process may take until it serves again, milliseconds.
const RECOVER_MS: u64 = 10_000;
/// How long an edited weight may take until it is live, milliseconds.
const WEIGHT_MS: u64 = 3000;
/// How long a node that came back may take until it has its whole weight again, milliseconds.
const WHOLE_MS: u64 = 15_000;
/// Answers counted for a share.
const ANSWERS: u32 = 2000;

fn ms_since(begun: model::Now) -> u64 {
    (rt::clock::now().mono_ns - begun.mono_ns) / 1_000_000
}

/// kill -9 of the only node near a client: DNS leaves it in time, downloads go on elsewhere; after
/// a new start it is answered again and has lost nothing.
pub(super) async fn edge_killed(network: &mut Network, items: &[Item]) -> Result<Figures> {
    let edge = host_named("mirror1-au");
    let client: IpNet = "1.128.0.0/24".parse()?;
    let question = Question::for_client(NAME, client);
    ensure!(dig::ask_udp(&question).await?.address()? == edge.ip(), "the client is not sent to it");
    network.kill9(edge).await?;
    let killed = rt::clock::now();
    let next = loop {
        let address = dig::ask_udp(&question).await?.address()?;
        if address != edge.ip() {
            break address;
        }
        ensure!(
            ms_since(killed) <= DETECT_MS,
            "still answered {} ms after its death",
            ms_since(killed)
        );
        sleep(LOOK).await;
    };
    let gone_ms = ms_since(killed);
    ensure!(gone_ms <= DETECT_MS, "left the answers after {gone_ms} ms, promised were {DETECT_MS}");
    for _ in 0..50 {
        let address = dig::ask_udp(&question).await?.address()?;
        ensure!(address != edge.ip(), "the dead node was answered again");
    }
    let file = item(items, "/vlc/4.0.0/vlc-4.0.0.tar.xz")?;
    fetch_whole((next, edge.address().port()).into(), file).await?;

    network.start_host(edge)?;
    let started = rt::clock::now();
    while dig::ask_udp(&question).await?.address()? != edge.ip() {
        ensure!(
            ms_since(started) <= RECOVER_MS,
            "not answered again after {} ms",
            ms_since(started)
        );
        sleep(LOOK).await;
    }
    let back_ms = ms_since(started);
    let before = sent_by_masters().await?;
    let reply = fetch_whole(edge.address(), file).await?;
    ensure!(is_hit(&reply), "cold after the restart: {}", cache_status(&reply));
    let sent = sent_by_masters().await? - before;
    ensure!(sent == 0, "after the restart the masters sent {sent} bytes again");
    Ok(figures([
        ("gone_ms", gone_ms.into()),
        ("allowed_ms", DETECT_MS.into()),
        ("back_ms", back_ms.into()),
        ("master_bytes_after_restart", sent.into()),
    ]))
}

/// The first master dies: a file that nobody holds comes from the other.
pub(super) async fn master_killed(network: &mut Network, items: &[Item]) -> Result<Figures> {
    let edge = host_named("mirror1-us").address();
    network.kill9(host_named("master1")).await?;
    let begun = rt::clock::now();
    fetch_whole(edge, item(items, "/vlc/later/one-master.bin")?).await?;
    Ok(figures([("uncached_ms", ms_since(begun).into())]))
}

/// Both masters are dead: held files come, others get an honest error; then they come back.
pub(super) async fn masters_killed(network: &mut Network, items: &[Item]) -> Result<Figures> {
    let edge = host_named("mirror1-us").address();
    network.kill9(host_named("master2")).await?;
    let held = fetch_whole(edge, item(items, "/vlc/4.0.0/vlc-4.0.0.tar.xz")?).await?;
    ensure!(is_hit(&held), "a held file: {}", cache_status(&held));
    let missing = item(items, "/vlc/later/no-master.bin")?;
    let error = fetch(edge, &missing.path, None).await?;
    ensure!(
        [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT].contains(&error.status),
        "a file that nobody holds got {}",
        error.status
    );
    let proxy_status = error.headers.get("proxy-status").and_then(|v| v.to_str().ok());
    let proxy_status = proxy_status.context("the error has no Proxy-Status")?.to_owned();
    ensure!(!cache_status(&error).is_empty(), "the error has no Cache-Status");

    for master in ["master1", "master2"] {
        network.start_host(host_named(master))?;
    }
    let started = rt::clock::now();
    while fetch_whole(edge, missing).await.is_err() {
        ensure!(ms_since(started) <= RECOVER_MS, "not recovered after {} ms", ms_since(started));
        sleep(LOOK).await;
    }
    let recovered_ms = ms_since(started);
    fetch_whole(edge, item(items, "/vlc/later/again.bin")?).await?;
    Ok(figures([
        ("status", error.status.as_u16().into()),
        ("proxy_status", proxy_status.into()),
        ("recovered_ms", recovered_ms.into()),
    ]))
}

/// A person edits a weight: the answers of a client of that pool follow.
pub(super) async fn weight(network: &Network) -> Result<Figures> {
    let (node, client): (_, IpNet) = (host_named("mirror1-au"), "1.208.0.0/24".parse()?);
    let question = Question::for_client(NAME, client);
    // The node was killed in an earlier step: what came back gets its weight in steps.
    let begun = rt::clock::now();
    let mut share_before = share(&question, node.ip().into()).await?;
    while !near(share_before, 0.5) {
        let waited_ms = ms_since(begun);
        ensure!(
            waited_ms <= WHOLE_MS,
            "the share is {share_before:.3} instead of 0.5 after {waited_ms} ms"
        );
        sleep(LOOK).await;
        share_before = share(&question, node.ip().into()).await?;
    }
    let file = network.layout.maps().join("steering.toml");
    let text = fs::read_to_string(&file).context("cannot read the map")?;
    let (old, new) = ("mirror1-au = 50, mirror1-us = 50", "mirror1-au = 80, mirror1-us = 20");
    ensure!(text.contains(old), "{} has no {old:?}", file.display());
    rt::file::write_atomic(&file, text.replace(old, new).as_bytes())
        .context("cannot edit the map")?;
    let edited = rt::clock::now();
    loop {
        let begun_ms = ms_since(edited);
        let share_after = share(&question, node.ip().into()).await?;
        if near(share_after, 0.8) {
            return Ok(figures([
                ("answers", ANSWERS.into()),
                ("share_before", rounded(share_before).into()),
                ("share_after", rounded(share_after).into()),
                ("live_ms", begun_ms.into()),
                ("allowed_ms", WEIGHT_MS.into()),
            ]));
        }
        ensure!(
            begun_ms <= WEIGHT_MS,
            "the share is {share_after:.3} instead of 0.8 after {begun_ms} ms"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Three digits behind the point.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// Within four standard deviations of a share counted on [`ANSWERS`] answers.
fn near(share: f64, expected: f64) -> bool {
    let deviation = (expected * (1.0 - expected) / f64::from(ANSWERS)).sqrt();
    (share - expected).abs() <= 4.0 * deviation
}

/// The share of answers to `question` that name `address`, counted on [`ANSWERS`].
async fn share(question: &Question, address: std::net::IpAddr) -> Result<f64> {
    let socket = dig::socket().await?;
    let mut hits = 0u32;
    for id in 0..ANSWERS {
        let answer = dig::ask_on(&socket, question, u16::try_from(id)?).await?;
        hits += u32::from(answer.address()? == address);
    }
    Ok(f64::from(hits) / f64::from(ANSWERS))
}
