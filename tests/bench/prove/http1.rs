//! HTTP/1.1 by hand: it takes nothing but what RFC 9112 has, and knows exactly which bytes came.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use crate::ask::Ask;
use crate::edge::Ended;
use crate::judge::{Judge, Next};

/// Longest line of a head.
const LINE_MAX: u64 = 16 << 10;
/// What is read ahead.
const BUFFER_BYTES: usize = 32 << 10;
/// Most is read at once.
const READ_MAX: u64 = 256 << 10;

/// What a connection runs on.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    authority: String,
    buffer: Vec<u8>,
    /// The server may end it after any answer.
    pub(crate) may_end: bool,
    /// It does so after this one.
    ends: bool,
}

/// A connection on which nothing is under way, in few bytes.
pub(crate) struct Resting {
    stream: Box<dyn Stream>,
    authority: String,
}

impl Resting {
    /// Ready for requests.
    pub(crate) fn wake(self) -> Connection {
        let stream = BufReader::with_capacity(BUFFER_BYTES, self.stream);
        let (authority, buffer) = (self.authority, Vec::new());
        Connection { stream, authority, buffer, may_end: false, ends: false }
    }
}

/// The head of an answer.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
}

impl Connection {
    /// On a stream to an edge.
    pub(crate) fn on(stream: Box<dyn Stream>, edge: SocketAddr) -> Self {
        Resting { stream, authority: edge.to_string() }.wake()
    }

    /// The bare connection, to be kept without a thought; nothing may be under way.
    pub(crate) fn rest(self) -> Resting {
        Resting { stream: self.stream.into_inner(), authority: self.authority }
    }

    /// Sends requests at once, one after the other.
    pub(crate) async fn send(&mut self, asks: &[Ask]) -> Result<()> {
        let requests = asks.iter().map(|ask| self.request(&ask.method, &ask.target, &ask.fields));
        let bytes: String = requests.collect();
        self.write(&bytes).await
    }

    /// Sends a request and takes its answer; how many bytes of body came.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<u64> {
        self.send(std::slice::from_ref(ask)).await?;
        Ok(self.take(ask).await?.0)
    }

    /// Sends a HEAD request and takes the answer.
    pub(crate) async fn look(&mut self, target: &str) -> Result<Head> {
        self.write(&self.request(&Method::HEAD, target, &[])).await?;
        self.head().await
    }

    fn request(&self, method: &Method, target: &str, fields: &[(HeaderName, String)]) -> String {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.authority);
        fields.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        text + "\r\n"
    }

    async fn write(&mut self, text: &str) -> Result<()> {
        self.stream.write_all(text.as_bytes()).await.context(Ended)?;
        self.stream.flush().await.context(Ended)
    }

    /// Takes the answer to one of them and says how many bytes of body came, and whether the client
    /// goes away.
    pub(crate) async fn take(&mut self, ask: &Ask) -> Result<(u64, Next)> {
        let mut judge = self.begin(ask).await?;
        while judge.taken() < judge.length() {
            if self.more(&mut judge, READ_MAX).await? == Next::Leave {
                return Ok((judge.taken(), Next::Leave));
            }
        }
        Ok((judge.end()?, if self.ends { Next::Leave } else { Next::More }))
    }

    /// Takes the head of an answer.
    pub(crate) async fn begin<'a>(&mut self, ask: &'a Ask) -> Result<Judge<'a>> {
        let head = self.head().await?;
        let judge = Judge::begin(ask, head.status, &head.fields)?;
        ensure!(!head.fields.contains_key(header::TRANSFER_ENCODING), "a length was known");
        let stays = head.fields.get(header::CONNECTION).is_none_or(|said| said == "keep-alive");
        ensure!(stays || self.may_end, "the connection was to stay");
        self.ends = !stays;
        Ok(judge)
    }

    /// Takes at most so many more bytes of its body, and at least one.
    pub(crate) async fn more(&mut self, judge: &mut Judge<'_>, most: u64) -> Result<Next> {
        self.buffer.clear();
        let left = judge.length() - judge.taken();
        let mut part = (&mut self.stream).take(most.min(left));
        let count = part.read_buf(&mut self.buffer).await.context("broken off")?;
        ensure!(count > 0, "closed after {} of {}", judge.taken(), judge.length());
        judge.take(&self.buffer)
    }

    /// Reads the head of an answer.
    ///
    /// # Errors
    /// [`Ended`] when nothing comes, or what is wrong with it.
    async fn head(&mut self) -> Result<Head> {
        ensure!(!self.stream.fill_buf().await.context(Ended)?.is_empty(), Ended);
        let status = self.line().await?;
        let status = status.strip_prefix("HTTP/1.1 ").context("not HTTP/1.1")?;
        let status = StatusCode::from_bytes(status.get(..3).context("no status")?.as_bytes())?;
        let mut fields = HeaderMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(Head { status, fields });
            }
            let Some((name, value)) = line.split_once(':') else { bail!("field {line:?}") };
            fields.append(
                HeaderName::from_bytes(name.as_bytes())?,
                HeaderValue::from_str(value.trim_matches([' ', '\t']))?,
            );
        }
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let mut limited = (&mut self.stream).take(LINE_MAX);
        limited.read_line(&mut line).await.context("broken off in a head")?;
        let end = line.strip_suffix("\r\n");
        Ok(end.with_context(|| format!("no line: {line:?}"))?.to_owned())
    }
}
