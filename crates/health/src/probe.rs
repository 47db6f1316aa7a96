//! One probe: asks what it is told to, over a connection of its own, and says what came.
//!
//! A probe must see whether a new client could be served, so nothing is kept from one to the next. The
//! timeout covers the whole: the name, the connection, TLS, the last byte. What was sent and what had
//! come by then is the evidence of a failure.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use health_proto::probe::{Evidence, Place, Scheme, Seen};
use health_proto::{Failed, Failure, Passed, Probe, ProbeResult, Question};
use http::HeaderValue;
use rt::clock;
use tokio::net::TcpStream;

use crate::ProbeParams;

mod dns;
mod http1;
mod tls;

#[cfg(test)]
pub(crate) use http1::PAGE_BYTES_MAX;
pub use tls::CaError;
pub(crate) use tls::Tls;

/// What a probe calls itself in the nodes' logs, without a contact.
const USER_AGENT: &str = concat!("cacheboy-health/", env!("CARGO_PKG_VERSION"));

/// Makes probes.
#[derive(Debug)]
pub(crate) struct Prober {
    params: ProbeParams,
    user_agent: HeaderValue,
    tls: Tls,
}

/// Why there can be no probes.
#[derive(Debug, thiserror::Error)]
pub enum ProberError {
    /// The path cannot be asked for.
    #[error("path: {0:?} is no URL path: write one that begins with /")]
    Path(String),
    /// The contact cannot stand in a header.
    #[error("contact: {0:?} cannot be sent: write a URL or an address of mail")]
    Contact(String),
    /// The authorities cannot be used.
    #[error("ca: {0}")]
    Ca(CaError),
}

/// What has passed over the wire so far.
#[derive(Debug, Default)]
struct Trail {
    request: Vec<u8>,
    response: Vec<u8>,
    seen: Seen,
}

impl Prober {
    /// Reads the file of authorities, if there is one.
    pub(crate) fn new(params: ProbeParams) -> Result<Self, ProberError> {
        let path = &params.path;
        if !path.starts_with('/') || path.parse::<http::uri::PathAndQuery>().is_err() {
            return Err(ProberError::Path(path.clone()));
        }
        let text = match &params.contact {
            Some(contact) => format!("{USER_AGENT} (+{contact})"),
            None => USER_AGENT.to_owned(),
        };
        let contact = || ProberError::Contact(params.contact.clone().unwrap_or_default());
        let user_agent = HeaderValue::from_str(&text).map_err(|_| contact())?;
        let tls = Tls::new(params.ca.as_deref()).map_err(ProberError::Ca)?;
        Ok(Self { user_agent, tls, params })
    }

    /// Asks what `probe` asks.
    pub(crate) async fn probe(&self, probe: &Probe) -> ProbeResult {
        let start = clock::now();
        let mut trail = Trail::default();
        let timeout = Duration::from_millis(probe.timeout_ms);
        let asked = tokio::time::timeout(timeout, self.ask(probe, &mut trail)).await;
        let late = || Failure::NoAnswer { timeout_ms: probe.timeout_ms };
        let took_ns = clock::now().mono_ns.saturating_sub(start.mono_ns);
        match asked.unwrap_or_else(|_| Err(late())) {
            Ok(()) => Ok(Passed { took_ms: took_ns / 1_000_000, seen: trail.seen }),
            Err(failure) => {
                let evidence = Evidence::new(&trail.request, &trail.response);
                Err(Failed { failure, evidence })
            }
        }
    }

    async fn ask(&self, probe: &Probe, trail: &mut Trail) -> Result<(), Failure> {
        let at = self.address(&probe.place).await?;
        if let Question::Dns { name, kind } = &probe.question {
            return dns::ask(at, name, *kind, trail).await;
        }
        let stream = TcpStream::connect(at).await.map_err(|error| unreachable(&error))?;
        // A request is one small write; waiting to merge it with another helps nobody.
        let _ = stream.set_nodelay(true);
        match &probe.question {
            Question::Http(question) => {
                let page = matches!(probe.target, health_proto::Target::Node { .. });
                let bytes_max = http1::bytes_max(question, page);
                let request = http1::request(question, &self.user_agent, trail)?;
                match question.scheme {
                    Scheme::Http => {
                        http1::exchange(stream, request, question, bytes_max, trail).await
                    }
                    Scheme::Https => {
                        let name = question.sni.as_ref().map(|name| name.as_str());
                        let name = name.unwrap_or_else(|| http1::bare_host(&question.host));
                        let stream = self.tls.connect(stream, name, trail).await?;
                        http1::exchange(stream, request, question, bytes_max, trail).await
                    }
                }
            }
            Question::Tls { name, .. } => {
                self.tls.connect(stream, name.as_str(), trail).await.map(drop)
            }
            Question::Tcp | Question::Dns { .. } => Ok(()),
        }
    }

    /// Where to connect: `connect_to` goes before the address of a node.
    async fn address(&self, place: &Place) -> Result<SocketAddr, Failure> {
        match place {
            Place::Address(at) => Ok(self.params.connect_to.get(&at.ip()).copied().unwrap_or(*at)),
            Place::Name { host, port } => {
                let found = tokio::net::lookup_host((host.as_str(), *port)).await;
                let unknown = |why: String| Failure::Unreachable(format!("{host}: {why}"));
                let first = found.map_err(|error| unknown(error.to_string()))?.next();
                first.ok_or_else(|| unknown("has no address".into()))
            }
        }
    }
}

fn unreachable(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        kind => Failure::Unreachable(kind.to_string()),
    }
}
