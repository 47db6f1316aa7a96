//! One HTTP request to one address, and what it means.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use health_proto::{Failure, Passed, ProbeResult};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use rt::client::{self, Get, GetError};
use rt::clock;

use crate::ProbeParams;

/// Most bytes of a health page that are read; more is a failure.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a probe calls itself in the nodes' logs.
const USER_AGENT: &str = concat!("cacheboy-health/", env!("CARGO_PKG_VERSION"));

/// Makes probes.
#[derive(Debug)]
pub(crate) struct Prober {
    params: ProbeParams,
}

impl Prober {
    /// # Errors
    /// The path, if it is none.
    pub(crate) fn new(params: ProbeParams) -> Result<Self, String> {
        let prober = Self { params };
        let sound =
            prober.params.path.starts_with('/') && prober.url([127, 0, 0, 1].into()).is_some();
        if sound { Ok(prober) } else { Err(prober.params.path) }
    }

    /// `Host` is what stands here: the address as it is in the map, since the health page is the
    /// node's own and belongs to no project.
    fn url(&self, address: IpAddr) -> Option<Uri> {
        let ProbeParams { port, path, .. } = &self.params;
        let host = match (address, port) {
            (IpAddr::V4(a), 80) => a.to_string(),
            (IpAddr::V6(a), 80) => format!("[{a}]"),
            (_, port) => SocketAddr::new(address, *port).to_string(),
        };
        format!("http://{host}{path}").parse().ok()
    }

    /// Asks `address` for the health page over a new connection. The timeout covers the whole.
    pub(crate) async fn probe(&self, address: IpAddr) -> ProbeResult {
        let Some(url) = self.url(address) else {
            return Err(Failure::Unreachable("no URL".into()));
        };
        let start = clock::now();
        let ask = Get {
            url,
            connect_to: self.params.connect_to.get(&address).copied(),
            headers: HeaderMap::from_iter([(
                header::USER_AGENT,
                HeaderValue::from_static(USER_AGENT),
            )]),
            timeout: Duration::from_millis(self.params.timing.timeout_ms),
            body_bytes_max: BODY_BYTES_MAX,
        };
        let reply = client::get(ask).await.map_err(|error| self.failure(&error))?;
        if reply.status != StatusCode::OK {
            return Err(Failure::Status(reply.status.as_u16()));
        }
        let took_ns = clock::now().mono_ns.saturating_sub(start.mono_ns);
        Ok(Passed { took_ms: took_ns / 1_000_000 })
    }

    fn failure(&self, error: &GetError) -> Failure {
        match error {
            GetError::Timeout(_) => Failure::NoAnswer { timeout_ms: self.params.timing.timeout_ms },
            GetError::Connect(_, source) if source.kind() == io::ErrorKind::ConnectionRefused => {
                Failure::Refused
            }
            GetError::Connect(_, source) => Failure::Unreachable(source.kind().to_string()),
            GetError::TooLarge(bytes_max) => Failure::TooLarge { bytes_max: *bytes_max },
            GetError::Protocol(error) if error.is_parse() => Failure::NotHttp,
            GetError::Protocol(_) => Failure::Closed,
            GetError::Body(error) if is_nonsense(error.as_ref()) => Failure::NotHttp,
            GetError::Body(_) => Failure::Closed,
            GetError::Url(url) => Failure::Unreachable(format!("{url} is no URL")),
        }
    }
}

/// Whether a body broke because of what was in it, not because it ended.
fn is_nonsense(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_names_the_address_as_the_map_has_it() {
        for (address, port, url) in [
            ("192.0.2.1", 80, "http://192.0.2.1/.well-known/cacheboy/health"),
            ("192.0.2.1", 8080, "http://192.0.2.1:8080/.well-known/cacheboy/health"),
            ("2001:db8::1", 80, "http://[2001:db8::1]/.well-known/cacheboy/health"),
            ("2001:db8::1", 8080, "http://[2001:db8::1]:8080/.well-known/cacheboy/health"),
        ] {
            let prober = Prober::new(ProbeParams { port, ..ProbeParams::default() }).unwrap();
            assert_eq!(prober.url(address.parse().unwrap()).unwrap().to_string(), url);
        }
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        for path in ["", "health", "@evil.example/", "/a b"] {
            let params = ProbeParams { path: path.into(), ..ProbeParams::default() };
            assert_eq!(Prober::new(params).unwrap_err(), path);
        }
    }
}
