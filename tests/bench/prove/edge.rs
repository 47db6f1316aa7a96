//! The edge that is asked, and the ways to ask it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use http::{HeaderName, StatusCode, header};
use tokio::net::{TcpSocket, TcpStream};

use crate::ask::{Ask, Known};
use crate::objects::Object;
use crate::{http1, http2, http3, tls};

/// What a slow reader has room for.
const NARROW_BYTES: u32 = 4 << 10;

/// The edge that is asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Edge {
    /// Where it serves plain HTTP
    #[arg(long)]
    pub(crate) http: SocketAddr,
    /// Where it serves HTTPS and HTTP/3
    #[arg(long)]
    pub(crate) https: Option<SocketAddr>,
    /// Its certificate
    #[arg(long)]
    pub(crate) certificate: Option<PathBuf>,
    /// Its process
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// The folder that its master serves: objects are put there
    #[arg(long)]
    pub(crate) tree: PathBuf,
    /// Where its clients come from; wherever the system likes when there is nothing.
    #[arg(skip)]
    pub(crate) from: Option<IpAddr>,
}

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// HTTP/1.1, one request after the other
    H1,
    /// HTTP/1.1, many requests sent before the first answer is read
    H1Pipelined,
    /// HTTP/1.1 over TLS
    Https,
    /// HTTP/2 by prior knowledge
    H2c,
    /// HTTP/2 over TLS
    H2,
    /// HTTP/3
    H3,
}

impl Way {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A connection that many requests share; clones are the same connection.
#[derive(Clone)]
pub(crate) enum Shared {
    Http2(http2::Connection),
    Http3(http3::Connection),
}

/// A connection takes no more requests: nothing came of this one, and it may be asked on another.
#[derive(Debug)]
pub(crate) struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection ended")
    }
}

impl std::error::Error for Ended {}

impl Shared {
    /// Sends a request and has its answer judged; how many bytes of body came.
    ///
    /// # Errors
    /// [`Ended`], or what is wrong with the answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<u64> {
        match self {
            Self::Http2(connection) => connection.ask(ask).await,
            Self::Http3(connection) => connection.ask(ask).await,
        }
    }
}

/// A client in any way.
pub(crate) enum Client {
    /// On a connection of its own.
    Alone(http1::Connection),
    Sharing(Shared),
}

impl Client {
    /// Sends a request and has its answer judged; how many bytes of body came.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<u64> {
        match self {
            Self::Alone(connection) => connection.ask(ask).await,
            Self::Sharing(connection) => connection.ask(ask).await,
        }
    }
}

impl Edge {
    /// A client on a new connection.
    pub(crate) async fn client(&self, way: Way) -> Result<Client> {
        self.client_on(self.share(way).await?.as_ref(), way).await
    }

    /// A client on this connection; on a new one in a way whose connections are not shared.
    pub(crate) async fn client_on(&self, shared: Option<&Shared>, way: Way) -> Result<Client> {
        Ok(match shared {
            Some(shared) => Client::Sharing(shared.clone()),
            None => Client::Alone(self.http1(way).await?),
        })
    }

    /// A TCP connection to one of its addresses.
    pub(crate) async fn tcp(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = self.from {
            socket.bind((from, 0).into())?;
        }
        let stream = socket.connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Connects in a way whose connections are shared; nothing for HTTP/1.1.
    pub(crate) async fn share(&self, way: Way) -> Result<Option<Shared>> {
        Ok(match way {
            Way::H1 | Way::H1Pipelined | Way::Https => None,
            Way::H2c | Way::H2 => Some(Shared::Http2(self.http2(way).await?)),
            Way::H3 => {
                let (edge, config) = self.tls(b"h3")?;
                let from = self.from.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
                Some(Shared::Http3(http3::Connection::connect(from, edge, config).await?))
            }
        })
    }

    /// Connects by HTTP/1.1, over TLS when the way says so.
    pub(crate) async fn http1(&self, way: Way) -> Result<http1::Connection> {
        if way != Way::Https {
            let stream = self.tcp(self.http).await?;
            return Ok(http1::Connection::on(Box::new(stream), self.http));
        }
        let (edge, config) = self.tls(b"http/1.1")?;
        let stream = tls::over(self.tcp(edge).await?, edge, Arc::new(config)).await?;
        Ok(http1::Connection::on(Box::new(stream), edge))
    }

    /// Connects by HTTP/1.1 with a small buffer for what comes.
    pub(crate) async fn narrow(&self) -> Result<http1::Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(NARROW_BYTES)?;
        let stream = socket.connect(self.http).await.context("cannot connect")?;
        Ok(http1::Connection::on(Box::new(stream), self.http))
    }

    async fn http2(&self, way: Way) -> Result<http2::Connection> {
        if way == Way::H2c {
            let stream = self.tcp(self.http).await?;
            return http2::Connection::on(stream, format!("http://{}", self.http)).await;
        }
        let (edge, config) = self.tls(b"h2")?;
        let stream = tls::over(self.tcp(edge).await?, edge, Arc::new(config)).await?;
        http2::Connection::on(stream, format!("https://{edge}")).await
    }

    fn tls(&self, alpn: &[u8]) -> Result<(SocketAddr, rustls::ClientConfig)> {
        let (Some(edge), Some(certificate)) = (self.https, &self.certificate) else {
            bail!("--https and --certificate are needed")
        };
        Ok((edge, tls::client(certificate, alpn)?))
    }

    /// Puts objects into the tree and notes what the edge says of each.
    pub(crate) async fn know(&self, objects: Vec<Object>) -> Result<Vec<Arc<Known>>> {
        let mut connection = self.http1(Way::H1).await?;
        let mut known = Vec::new();
        for object in objects {
            object.write(&self.tree)?;
            let head = connection.look(&format!("/{}", object.name)).await?;
            ensure!(head.status == StatusCode::OK, "{}: {}", object.name, head.status);
            let field = |name: HeaderName| -> Result<String> {
                let value = head.fields.get(&name).with_context(|| format!("no {name}"))?;
                Ok(value.to_str()?.to_owned())
            };
            let (etag, modified) = (field(header::ETAG)?, field(header::LAST_MODIFIED)?);
            known.push(Arc::new(Known { object, etag, modified }));
        }
        Ok(known)
    }

    /// Resident memory of its process in KiB, when that is known.
    pub(crate) fn rss_kib(&self) -> Result<Option<u64>> {
        let Some(pid) = self.pid else { return Ok(None) };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).context("no VmRSS")?;
        Ok(Some(kib.parse()?))
    }
}
