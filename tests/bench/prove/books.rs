//! Whether the books of the edge agree with what came to its clients: its access log and its metrics.
//! Each request has a name of its own (its `User-Agent`), by which its line is found.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::admin::Metrics;

/// An answer has its line a tenth of a second after its end; one whose client has gone ends when the
/// edge finds out.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// Where its books are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Books {
    /// Its access log, in JSON, with every line since it started: each request is looked for there
    #[arg(long, requires = "admin")]
    pub(crate) log: Option<PathBuf>,
    /// Its admin socket
    #[arg(long, requires = "log")]
    pub(crate) admin: Option<PathBuf>,
}

/// What came to a client.
pub(crate) struct Came {
    /// Bytes of the body.
    pub(crate) bytes: u64,
    /// It went away before the end: more may have left the edge.
    pub(crate) left: bool,
    /// It may have been asked for more than once, and answered in part.
    pub(crate) again: bool,
}

/// What came, by the names of the requests.
pub(crate) type AllCame = HashMap<String, Came>;

impl Books {
    /// An error unless the books have each request once with the bytes that came, and, where one process
    /// kept them (`by_one`), agree with each other to the byte.
    pub(crate) async fn compare(&self, came: &AllCame, by_one: bool) -> Result<()> {
        let (Some(path), Some(admin)) = (&self.log, &self.admin) else { return Ok(()) };
        let mut log = Log::open(path)?;
        let wait = async {
            loop {
                log.read_on()?;
                let has_all = || came.keys().all(|name| log.by_name.contains_key(name));
                let agrees = !by_one || metrics(admin).await? == (log.lines, log.bytes);
                if agrees && has_all() {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        if let Ok(agreed) = tokio::time::timeout(PATIENCE, wait).await {
            agreed?;
        }
        let counted = metrics(admin).await?;
        log.read_on()?;
        let logged = (log.lines, log.bytes);
        let agrees = !by_one || logged == counted;
        ensure!(agrees, "lines and bytes are {logged:?}, in metrics {counted:?}");
        for (name, came) in came {
            let lines = log.by_name.get(name).with_context(|| format!("no line of {name}"))?;
            let is_it = |bytes: &u64| *bytes == came.bytes || came.left && *bytes > came.bytes;
            let once = came.again || lines.len() == 1;
            ensure!(
                once && lines.iter().any(is_it),
                "{name}: {lines:?} bytes, {} came",
                came.bytes
            );
        }
        println!(
            "log: {} lines, {} bytes: as {}came to {} requests",
            log.lines,
            log.bytes,
            if by_one { "in metrics, and as " } else { "" },
            came.len()
        );
        Ok(())
    }
}

/// A log and what was read of it.
struct Log {
    file: BufReader<File>,
    /// What was read of a line whose end was not there.
    begun: String,
    /// Of answers.
    lines: u64,
    bytes: u64,
    by_name: HashMap<String, Vec<u64>>,
}

impl Log {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let (file, by_name) = (BufReader::new(file), HashMap::new());
        Ok(Self { file, begun: String::new(), lines: 0, bytes: 0, by_name })
    }

    /// Reads what has been written since.
    fn read_on(&mut self) -> Result<()> {
        while self.file.read_line(&mut self.begun)? > 0 && self.begun.ends_with('\n') {
            let line: Value = serde_json::from_str(&self.begun).context("a line")?;
            self.begun.clear();
            // Others are of connections.
            if line.get("kind").is_none() {
                let name = line["user_agent"].as_str().unwrap_or_default().to_owned();
                let bytes = line["bytes"].as_u64().context("a line without bytes")?;
                self.lines += 1;
                self.bytes += bytes;
                self.by_name.entry(name).or_default().push(bytes);
            }
        }
        Ok(())
    }
}

/// Answers and bytes of content, as the edge counts them.
async fn metrics(admin: &Path) -> Result<(u64, u64)> {
    let metrics = Metrics::of(admin).await?;
    let totals = ["cacheboy_edge_requests_total", "cacheboy_edge_sent_bytes_total"];
    let [requests, bytes] = totals.map(|name| metrics.total(name));
    Ok((requests, bytes))
}
