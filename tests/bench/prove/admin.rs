//! What the edge says of itself, over its admin socket.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// A page with its head.
async fn get(admin: &Path, path: &str) -> Result<String> {
    let mut socket = UnixStream::connect(admin).await.context("the admin socket")?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await?;
    Ok(text)
}

/// The process that answers there.
pub(crate) async fn pid(admin: &Path) -> Result<u64> {
    let answer = get(admin, "/status").await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status: Value = serde_json::from_str(body).context("/status")?;
    status["process"]["pid"].as_u64().context("no process in /status")
}

/// All its metrics at one time.
pub(crate) struct Metrics(String);

impl Metrics {
    /// Asks for them.
    pub(crate) async fn of(admin: &Path) -> Result<Self> {
        Ok(Self(get(admin, "/metrics").await?))
    }

    /// The sum of all samples of this name, or the one of this name and labels (`NAME{a="b"}`).
    pub(crate) fn total(&self, name: &str) -> u64 {
        let named =
            |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let samples = self.0.lines().filter(|line| named(line));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}
