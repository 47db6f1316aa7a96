//! Exact bytes from the answered nodes, and each byte once from the masters.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use model::Dice;
use rt::client::Reply;
use sha2::{Digest, Sha256};

use super::steering::CLIENTS;
use super::{Figures, figures};
use crate::demo::content::Item;
use crate::demo::layout::{HOST, HOSTS, HTTP_PORT, Host, IPV6_EDGE, Role, host_named};
use crate::demo::network::get;

/// Files that the later steps keep for failed masters stay cold until then.
fn early(items: &[Item]) -> impl Iterator<Item = &Item> {
    items.iter().filter(|item| !item.path.starts_with("/vlc/later/"))
}

/// The file of the tree at `path`.
pub(super) fn item<'a>(items: &'a [Item], path: &str) -> Result<&'a Item> {
    items.iter().find(|item| item.path == path).with_context(|| format!("no {path} in the tree"))
}

/// GETs `path` of the project from `edge`, arriving by the project's own host name.
pub(super) async fn fetch(edge: SocketAddr, path: &str, range: Option<&str>) -> Result<Reply> {
    let mut headers = HeaderMap::new();
    if let Some(range) = range {
        headers.insert(header::RANGE, HeaderValue::from_str(range)?);
    }
    let url = format!("http://{HOST}:{HTTP_PORT}{path}");
    let reply = get(&url, Some(edge), Some(headers)).await;
    reply.with_context(|| format!("{path} from {edge}"))
}

/// Whole file with the right bytes, or an error that says what came instead.
pub(super) async fn fetch_whole(edge: SocketAddr, item: &Item) -> Result<Reply> {
    let reply = fetch(edge, &item.path, None).await?;
    ensure!(
        reply.status == StatusCode::OK,
        "{} from {edge}: {} ({})",
        item.path,
        reply.status,
        cache_status(&reply)
    );
    let digest: [u8; 32] = Sha256::digest(&reply.body).into();
    ensure!(
        digest == item.sha256,
        "{} from {edge}: {} bytes with the wrong SHA-256",
        item.path,
        reply.body.len()
    );
    Ok(reply)
}

/// `Cache-Status` of a reply (RFC 9211), empty without.
pub(super) fn cache_status(reply: &Reply) -> &str {
    let value = reply.headers.get(HeaderName::from_static("cache-status"));
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Whether the edge said that it answered from its cache.
pub(super) fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).split(';').any(|parameter| parameter.trim() == "hit")
}

/// Body bytes that a master has sent since it started, by its own counter.
async fn sent_by(master: &Host) -> Result<u64> {
    let url = format!("http://{}/metrics", master.admin());
    let reply = get(&url, None, None).await?;
    let text = std::str::from_utf8(&reply.body).context("metrics are text")?;
    let name = rt::metrics::master::SENT_BYTES.name;
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let family = series.split('{').next()?;
        (family == name).then(|| value.parse::<u64>().ok()).flatten()
    });
    values
        .reduce(|sum, value| sum + value)
        .with_context(|| format!("{} shows no {name}", master.name))
}

/// Body bytes that all masters have sent.
pub(super) async fn sent_by_masters() -> Result<u64> {
    let mut sum = 0;
    for master in HOSTS.iter().filter(|host| host.role == Role::Master) {
        sum += sent_by(master).await?;
    }
    Ok(sum)
}

/// The nodes that the clients of the table are sent to.
fn answered_nodes() -> BTreeSet<&'static str> {
    CLIENTS.iter().map(|client| client.node).collect()
}

/// The project's own host name is served, any other gets 421 (RFC 9110 section 15.5.20).
pub(super) async fn host(items: &[Item]) -> Result<Figures> {
    let edge = host_named("mirror1-us").address();
    let small = item(items, "/vlc/4.0.0/README.txt")?;
    fetch_whole(edge, small).await?;
    let url = format!("http://stranger.example{}", small.path);
    let reply = get(&url, Some(edge), None).await?;
    ensure!(
        reply.status == StatusCode::MISDIRECTED_REQUEST,
        "stranger.example got {} instead of 421",
        reply.status
    );
    Ok(figures([("host", HOST.into()), ("unknown_host", 421.into())]))
}

/// Every early file from every answered node; the masters sent each byte once per edge.
pub(super) async fn download(items: &[Item]) -> Result<Figures> {
    let before = sent_by_masters().await?;
    let begun = rt::clock::now();
    // The range step needs a file that no client has asked for.
    let files: Vec<_> = early(items).filter(|item| !item.path.ends_with(".exe")).collect();
    let mut bytes = 0;
    for node in answered_nodes() {
        for item in &files {
            let reply = fetch_whole(host_named(node).address(), item).await?;
            bytes += reply.body.len() as u64;
        }
    }
    let seconds = (rt::clock::now().mono_ns - begun.mono_ns) as f64 / 1e9;
    let sent = sent_by_masters().await? - before;
    // One small file came to one node in the step before.
    let held = item(items, "/vlc/4.0.0/README.txt")?.bytes;
    ensure!(
        sent == bytes - held,
        "the masters sent {sent} bytes for {} bytes that were missing",
        bytes - held
    );
    Ok(figures([
        ("nodes", answered_nodes().len().into()),
        ("files", files.len().into()),
        ("client_bytes", bytes.into()),
        ("master_bytes", sent.into()),
        ("MB_per_s", (bytes as f64 / 1e6 / seconds).round().into()),
    ]))
}

/// The second client of each node.
pub(super) async fn hit(items: &[Item]) -> Result<Figures> {
    let before = sent_by_masters().await?;
    let mut hits = 0;
    for node in answered_nodes() {
        for item in early(items).filter(|item| !item.path.ends_with(".exe")) {
            let reply = fetch_whole(host_named(node).address(), item).await?;
            ensure!(is_hit(&reply), "{} from {node}: {}", item.path, cache_status(&reply));
            hits += 1;
        }
    }
    let sent = sent_by_masters().await? - before;
    ensure!(sent == 0, "the masters sent {sent} bytes for files that are held");
    Ok(figures([("hits", hits.into()), ("master_bytes", sent.into())]))
}

/// A client that asks only for ranges, out of order and overlapping; then the whole file.
pub(super) async fn ranges(items: &[Item]) -> Result<Figures> {
    let (node, piece) = ("mirror1-au", 256 * 1024);
    let edge = host_named(node).address();
    let file =
        items.iter().find(|item| item.path.ends_with(".exe")).context("a file for ranges")?;
    let before = sent_by_masters().await?;
    let mut whole = vec![0; usize::try_from(file.bytes)?];
    let mut starts: Vec<u64> = (0..file.bytes).step_by(piece).collect();
    let mut dice = Dice::seeded(42);
    for i in (1..starts.len()).rev() {
        starts.swap(i, usize::try_from(dice.below(i as u64 + 1))?);
    }
    for start in &starts {
        // Each range laps a little over the next.
        let end = (start + piece as u64 + 99).min(file.bytes - 1);
        let reply = fetch(edge, &file.path, Some(&format!("bytes={start}-{end}"))).await?;
        let wanted = format!("bytes {start}-{end}/{}", file.bytes);
        ensure!(
            reply.status == StatusCode::PARTIAL_CONTENT
                && reply.headers.get(header::CONTENT_RANGE).is_some_and(|v| v == wanted.as_str()),
            "range {start}-{end}: {} {:?}",
            reply.status,
            reply.headers.get(header::CONTENT_RANGE)
        );
        let place = usize::try_from(*start)?..=usize::try_from(end)?;
        whole.get_mut(place).context("inside the file")?.copy_from_slice(&reply.body);
    }
    let digest: [u8; 32] = Sha256::digest(&whole).into();
    ensure!(digest == file.sha256, "the ranges put together have the wrong SHA-256");
    let sent = sent_by_masters().await? - before;
    ensure!(sent == file.bytes, "the masters sent {sent} bytes for a file of {}", file.bytes);
    let reply = fetch_whole(edge, file).await?;
    ensure!(is_hit(&reply), "whole file after the ranges: {}", cache_status(&reply));
    multi_range(edge, file, &whole).await?;
    ensure!(sent_by_masters().await? - before == sent, "held ranges cost the masters again");
    Ok(figures([
        ("ranges", starts.len().into()),
        ("file_bytes", file.bytes.into()),
        ("master_bytes", sent.into()),
    ]))
}

/// Suffix, past-the-end and multipart ranges of a held file.
async fn multi_range(edge: SocketAddr, file: &Item, whole: &[u8]) -> Result<()> {
    let tail = fetch(edge, &file.path, Some("bytes=-1000")).await?;
    let expected = whole.get(whole.len() - 1000..).context("a tail")?;
    ensure!(tail.body == expected, "the last 1000 bytes are wrong");
    let past = fetch(edge, &file.path, Some(&format!("bytes={}-", file.bytes))).await?;
    ensure!(past.status == StatusCode::RANGE_NOT_SATISFIABLE, "past the end: {}", past.status);
    let parts = fetch(edge, &file.path, Some("bytes=10-19,1000000-1000009")).await?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let Some(boundary) = kind.strip_prefix("multipart/byteranges; boundary=") else {
        bail!("two ranges came as {kind:?}");
    };
    for start in [10, 1_000_000] {
        let mut part = format!("bytes {start}-{}/{}\r\n\r\n", start + 9, file.bytes).into_bytes();
        part.extend_from_slice(whole.get(start..start + 10).context("a part")?);
        part.extend_from_slice(format!("\r\n--{}", boundary.trim_matches('"')).as_bytes());
        let found = parts.body.windows(part.len()).any(|window| window == part);
        ensure!(found, "the part at {start} is missing or wrong");
    }
    Ok(())
}

/// The IPv6 listener serves the same bytes.
pub(super) async fn ipv6(items: &[Item]) -> Result<Figures> {
    let edge = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), HTTP_PORT);
    let file = item(items, "/vlc/4.0.0/vlc-4.0.0.tar.xz")?;
    let reply = fetch_whole(edge, file).await?;
    ensure!(is_hit(&reply), "{IPV6_EDGE} holds it: {}", cache_status(&reply));
    Ok(figures([("node", IPV6_EDGE.into()), ("bytes", file.bytes.into())]))
}
