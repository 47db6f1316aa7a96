//! A master that counts what it is asked and sends, and misbehaves on order.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// One object.
#[derive(Clone, Debug, Default)]
pub struct Item {
    pub body: Arc<Vec<u8>>,
    pub etag: Option<String>,
    pub last_modified: Option<&'static str>,
    pub cache_control: Option<&'static str>,
    /// It varies by this field (in lower case): [`Item::variant`] says what each request gets.
    pub vary: Option<&'static str>,
    /// Further header lines, without their ends.
    pub fields: Vec<String>,
    /// `Range` is not understood.
    pub no_ranges: bool,
    /// Statuses answered instead, one a request.
    pub errors: VecDeque<u16>,
    /// The connection breaks when this byte would be sent, once for each entry.
    pub breaks: VecDeque<u64>,
    /// What is sent instead, byte for byte, one a request; then the connection ends.
    pub raw: VecDeque<Vec<u8>>,
    /// Nothing from this byte on is sent until the gate opens. 0: not even the head.
    pub gate: Option<(u64, Arc<Semaphore>)>,
}

impl Item {
    pub fn new(body: Vec<u8>, etag: &str) -> Self {
        Self {
            body: Arc::new(body),
            etag: Some(format!("\"{etag}\"")),
            cache_control: Some("max-age=3600"),
            ..Self::default()
        }
    }

    /// The one of its variants for a request that has this value in the varying field.
    pub fn variant(&self, value: Option<&str>) -> Self {
        let name = value.unwrap_or("none");
        Self {
            body: Arc::new([name.as_bytes(), b" ", &self.body].concat()),
            etag: self
                .etag
                .as_ref()
                .map(|etag| format!("\"{name} {}", etag.trim_start_matches('"'))),
            ..self.clone()
        }
    }
}

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    /// The content that came with it, without its chunks.
    pub content: Vec<u8>,
    pub status: u16,
    /// Body bytes written.
    pub sent: u64,
}

impl Asked {
    pub fn range(&self) -> Option<&str> {
        self.headers.get("range").map(String::as_str)
    }
}

#[derive(Debug, Default)]
struct State {
    items: HashMap<String, Item>,
    asked: Vec<Asked>,
}

/// A running master. Stops when dropped.
#[derive(Debug)]
pub struct Origin {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: Option<JoinHandle<()>>,
}

impl Origin {
    pub async fn start() -> Self {
        let mut origin =
            Self { address: ([127, 0, 0, 1], 0).into(), state: Arc::default(), task: None };
        origin.up().await;
        origin
    }

    /// Listens (again) on its address.
    pub async fn up(&mut self) {
        let listener = rt::listen::tcp(&Default::default(), self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        self.task = Some(tokio::spawn(accept(listener, Arc::clone(&self.state))));
    }

    /// Breaks every connection; further ones are refused.
    pub async fn down(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn put(&self, path: &str, item: Item) {
        self.lock().items.insert(path.to_owned(), item);
    }

    pub fn change(&self, path: &str, change: impl FnOnce(&mut Item)) {
        change(self.lock().items.get_mut(path).unwrap());
    }

    pub fn remove(&self, path: &str) {
        self.lock().items.remove(path);
    }

    /// Everything asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// Body bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.lock().asked.iter().map(|a| a.sent).sum()
    }

    /// Waits until `n` requests were received.
    pub async fn wait_asked(&self, n: usize) {
        while self.lock().asked.len() < n {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `n` body bytes were sent.
    pub async fn wait_sent(&self, n: u64) {
        while self.sent() < n {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    // Dropped with this task, and so are its connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        connections.spawn(connection(stream, Arc::clone(&state)));
    }
}

async fn connection(stream: TcpStream, state: Arc<Mutex<State>>) -> Option<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let (method, path, headers) = head(&mut read).await?;
        let content = content(&mut read, &headers).await?;
        let (index, plan) = {
            let mut state = state.lock().unwrap();
            let plan = plan(&mut state, &method, &path, &headers);
            let status = plan.status;
            let method = method.clone();
            state.asked.push(Asked { method, path, headers, content, status, sent: 0 });
            (state.asked.len() - 1, plan)
        };
        answer(&mut write, &state, index, &plan, method == "HEAD").await?;
    }
}

async fn head(
    read: &mut BufReader<OwnedReadHalf>,
) -> Option<(String, String, HashMap<String, String>)> {
    let mut line = String::new();
    (read.read_line(&mut line).await.ok()? > 0).then_some(())?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        (read.read_line(&mut line).await.ok()? > 0).then_some(())?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some((method, path, headers))
}

/// The content of a request, whole.
async fn content(
    read: &mut BufReader<OwnedReadHalf>,
    headers: &HashMap<String, String>,
) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let is_chunked = headers.get("transfer-encoding").is_some_and(|t| t == "chunked");
    let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    loop {
        let mut line = String::new();
        let n = if is_chunked {
            read.read_line(&mut line).await.ok()?;
            usize::from_str_radix(line.trim_end(), 16).ok()?
        } else {
            length
        };
        let from = content.len();
        content.resize(from + n, 0);
        read.read_exact(&mut content[from..]).await.ok()?;
        if !is_chunked {
            return Some(content);
        }
        read.read_line(&mut line).await.ok()?;
        if n == 0 {
            return Some(content);
        }
    }
}

/// An answer decided at the moment of the question.
struct Plan {
    status: u16,
    head: String,
    body: Arc<Vec<u8>>,
    part: Range<usize>,
    breaks_at: Option<u64>,
    gate: Option<(u64, Arc<Semaphore>)>,
    raw: Option<Vec<u8>>,
}

fn plan(state: &mut State, method: &str, path: &str, headers: &HashMap<String, String>) -> Plan {
    let error = |status: u16, gate| {
        let body = Arc::new(format!("error {status}\n").into_bytes());
        let part = 0..body.len();
        Plan { status, head: String::new(), body, part, breaks_at: None, gate, raw: None }
    };
    let Some(item) = state.items.get_mut(path) else { return error(404, None) };
    if let Some(raw) = item.raw.pop_front() {
        return Plan { raw: Some(raw), ..error(0, None) };
    }
    if let Some(status) = item.errors.pop_front() {
        return error(status, item.gate.clone());
    }
    let breaks_at = if method == "GET" { item.breaks.pop_front() } else { None };
    let item = &match item.vary {
        Some(field) => item.variant(headers.get(field).map(String::as_str)),
        None => item.clone(),
    };
    let accepts = if item.no_ranges { "none" } else { "bytes" };
    let mut head = format!("Accept-Ranges: {accepts}\r\n");
    head.push_str(&format!("Date: {}\r\n", "Mon, 30 Nov 2026 12:00:00 GMT"));
    for (name, value) in [
        ("ETag", item.etag.as_deref()),
        ("Last-Modified", item.last_modified),
        ("Cache-Control", item.cache_control),
        ("Vary", item.vary),
    ] {
        if let Some(value) = value {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for field in &item.fields {
        head.push_str(&format!("{field}\r\n"));
    }
    let (length, body) = (item.body.len(), Arc::clone(&item.body));
    let gate = item.gate.clone();
    let part = 0..length;
    let mut plan = Plan { status: 200, head, body, part, breaks_at: None, gate, raw: None };
    let etag = item.etag.as_deref();
    if headers.get("if-match").is_some_and(|m| Some(m.as_str()) != etag) {
        return Plan { status: 412, part: 0..0, ..plan };
    }
    let is_date = |name: &str| headers.get(name).map(|d| Some(d.as_str()) == item.last_modified);
    if is_date("if-unmodified-since") == Some(false) {
        return Plan { status: 412, part: 0..0, ..plan };
    }
    if !headers.contains_key("if-none-match") && is_date("if-modified-since") == Some(true) {
        return Plan { status: 304, part: 0..0, ..plan };
    }
    if headers.get("if-none-match").is_some_and(|m| Some(m.as_str()) == etag) {
        return Plan { status: 304, part: 0..0, ..plan };
    }
    let range = headers.get("range").filter(|_| !item.no_ranges);
    if let Some(range) = range.and_then(|r| resolve(r, length)) {
        if range.start >= range.end {
            plan.head.push_str(&format!("Content-Range: bytes */{length}\r\n"));
            return Plan { status: 416, part: 0..0, ..plan };
        }
        plan.status = 206;
        let (first, last) = (range.start, range.end - 1);
        plan.head.push_str(&format!("Content-Range: bytes {first}-{last}/{length}\r\n"));
        plan.part = range;
    }
    plan.breaks_at = breaks_at;
    plan
}

fn resolve(range: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some(match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => first..length.min(last + 1),
        (Ok(first), Err(_)) => first..length,
        (Err(_), Ok(suffix)) => length.saturating_sub(suffix)..length,
        _ => return None,
    })
}

async fn answer(
    write: &mut OwnedWriteHalf,
    state: &Mutex<State>,
    index: usize,
    plan: &Plan,
    head_only: bool,
) -> Option<()> {
    if let Some(raw) = &plan.raw {
        write.write_all(raw).await.ok()?;
        return None;
    }
    let gated = |at: usize| plan.gate.as_ref().filter(|(from, _)| *from == at as u64);
    if let Some((_, gate)) = gated(0) {
        gate.acquire().await.ok()?.forget();
    }
    let length = plan.part.len();
    let length =
        if plan.status == 304 { String::new() } else { format!("Content-Length: {length}\r\n") };
    let head = format!("HTTP/1.1 {} X\r\n{}{length}\r\n", plan.status, plan.head);
    write.write_all(head.as_bytes()).await.ok()?;
    if head_only {
        return Some(());
    }
    let mut at = plan.part.start;
    while at < plan.part.end {
        let stops = [plan.breaks_at, plan.gate.as_ref().map(|(from, _)| *from)];
        let next_stop = stops.into_iter().flatten().map(|s| s as usize).filter(|s| *s > at).min();
        let end = plan.part.end.min(at + 16_384).min(next_stop.unwrap_or(usize::MAX));
        write.write_all(plan.body.get(at..end)?).await.ok()?;
        state.lock().unwrap().asked[index].sent += (end - at) as u64;
        at = end;
        if plan.breaks_at == Some(at as u64) {
            return None;
        }
        if at < plan.part.end
            && let Some((_, gate)) = gated(at)
        {
            gate.acquire().await.ok()?.forget();
        }
    }
    Some(())
}
