//! A master on a loopback socket and a plain client that hides nothing of what comes back.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use master::{Master, Params};
use rt::admin::StatusBoard;
use rt::metrics::Metric;
use rt::{Context, Metrics, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A master that serves until it is stopped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) status: StatusBoard,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

/// Starts a master over `tree` that keeps its index in `state`.
pub(crate) fn start(tree: &Path, state: &Path) -> Running {
    let context = Context::new("m1".parse().unwrap(), state.to_owned());
    let Context { metrics, status, shutdown, .. } = context.clone();
    let params = Params {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        tree: tree.to_owned(),
    };
    let master = Master::bind(params, context).unwrap();
    let address = master.addresses()[0];
    Running { address, metrics, status, shutdown, task: tokio::spawn(master.serve()) }
}

impl Running {
    /// Stops it; returns when it has written its index down.
    pub(crate) async fn stop(self) {
        self.shutdown.end_soon();
        self.task.await.unwrap();
    }

    /// Returns when every file of the tree was hashed.
    pub(crate) async fn scanned(&self) {
        while self.status.show()["master"]["index_complete"] != true {
            assert!(!self.task.is_finished());
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn counter(&self, metric: &Metric) -> u64 {
        self.metrics.counter(metric, &[]).get()
    }

    /// One request on a connection of its own; `fields` are whole header lines.
    pub(crate) async fn ask(&self, method: &str, path: &str, fields: &[&str]) -> Answer {
        self.begin(method, path, fields).await.finish().await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[]).await
    }

    /// Sends a request and reads the head of the answer only.
    pub(crate) async fn begin(&self, method: &str, path: &str, fields: &[&str]) -> Begun {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: m.example\r\n");
        for field in fields {
            request += &format!("{field}\r\n");
        }
        request += "connection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Begun { stream, answer: Answer { status, fields, body: Vec::new(), broken: false } }
    }
}

/// An answer whose body is still to be read.
pub(crate) struct Begun {
    stream: TcpStream,
    pub(crate) answer: Answer,
}

impl Begun {
    /// Reads until the server closes.
    pub(crate) async fn finish(mut self) -> Answer {
        let ended = self.stream.read_to_end(&mut self.answer.body).await;
        let length = self.answer.fields.get("content-length").map(|l| l.parse().unwrap());
        let whole = length.is_none_or(|l: usize| l == self.answer.body.len());
        self.answer.broken = ended.is_err() || !whole;
        self.answer
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The connection ended before the announced length.
    pub(crate) broken: bool,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Bytes that repeat nowhere soon and differ by `seed`.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = model::Dice::seeded(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&dice.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A fresh tree with its marker and these files, and a state directory.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        Self::at(tempfile::tempdir().unwrap(), files)
    }

    pub(crate) fn at(dir: tempfile::TempDir, files: &[(&str, &[u8])]) -> Self {
        let place = Self { dir };
        fs::create_dir_all(place.tree()).unwrap();
        fs::create_dir_all(place.state()).unwrap();
        fs::write(place.tree().join(mirror::TREE_MARKER), "").unwrap();
        for (name, content) in files {
            let path = place.tree().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        place
    }

    pub(crate) fn tree(&self) -> std::path::PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn start(&self) -> Running {
        start(&self.tree(), &self.state())
    }
}
