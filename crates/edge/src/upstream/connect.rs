//! Making a connection: all addresses of a host, the next one when the first is slow (RFC 8305).
//!
//! Each attempt is a task of its own. One that comes too late, or whose request went another way,
//! leaves its connection in the pool: the next request has it at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fill::Failure;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rt::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::destination::{Destination, Place};
use super::endpoint::Endpoint;
use super::pool::{Connection, Outgoing};
use super::tls::Tls;

/// How long an attempt is alone before the next begins (RFC 8305 section 5).
pub(crate) const HEDGE_AFTER: Duration = Duration::from_millis(250);
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

type Attempt = Result<Connection, Failure>;

/// A new connection within `patience`.
pub(crate) async fn connect(
    endpoint: &Arc<Endpoint>,
    tls: &Arc<Tls>,
    patience: Duration,
) -> Result<Connection, Failure> {
    let connecting = race(endpoint, tls, patience);
    tokio::time::timeout(patience, connecting).await.unwrap_or(Err(Failure::ConnectTimeout))
}

async fn race(
    endpoint: &Arc<Endpoint>,
    tls: &Arc<Tls>,
    patience: Duration,
) -> Result<Connection, Failure> {
    let destination = endpoint.definition.destination.as_ref().ok_or(Failure::Connect)?;
    let mut addresses = resolve(endpoint, &destination.place).await?.into_iter();
    let (sender, mut results) = mpsc::channel(ADDRESSES_MAX);
    let mut running: usize = 0;
    let mut worst = Failure::Connect;
    loop {
        if let Some(address) = addresses.next() {
            let (endpoint, tls, sender) = (Arc::clone(endpoint), Arc::clone(tls), sender.clone());
            tokio::spawn(async move {
                let tried = tokio::time::timeout(patience, attempt(&endpoint, &tls, address)).await;
                let result = tried.unwrap_or(Err(Failure::ConnectTimeout));
                if let Err(mpsc::error::SendError(Ok(late))) = sender.send(result).await {
                    endpoint.pool.put(late, clock::now());
                }
            });
            running = running.saturating_add(1);
        } else if running == 0 {
            return Err(worst);
        }
        let is_last = addresses.len() == 0;
        let result = tokio::select! {
            result = results.recv() => result,
            () = tokio::time::sleep(HEDGE_AFTER), if !is_last => continue,
        };
        running = running.saturating_sub(1);
        match result {
            Some(Ok(connection)) => {
                results.close();
                while let Ok(late) = results.try_recv() {
                    late.into_iter().for_each(|c| endpoint.pool.put(c, clock::now()));
                }
                return Ok(connection);
            }
            // What is wrong with TLS says more than an address that does not answer.
            Some(Err(why)) if !matches!(worst, Failure::Tls | Failure::TlsCertificate) => {
                worst = why
            }
            Some(Err(_)) | None => {}
        }
    }
}

/// One address to the end of its handshakes.
async fn attempt(endpoint: &Endpoint, tls: &Tls, address: SocketAddr) -> Attempt {
    let Destination { tls: name, .. } =
        endpoint.definition.destination.as_ref().ok_or(Failure::Connect)?;
    let failed = |why, error: &dyn std::fmt::Display| {
        endpoint.handle_attempt(Some(format!("{address}: {error}")));
        why
    };
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| failed(Failure::Connect, &error))?;
    // Not vital: it delays small requests only.
    let _ = stream.set_nodelay(true);
    let connection = match name {
        None => begin(stream).await,
        Some(name) => {
            let stream = tls.connect(stream, name.clone()).await;
            begin(stream.map_err(|(why, error)| failed(why, &error))?).await
        }
    }?;
    endpoint.handle_attempt(None);
    endpoint.opened.inc();
    Ok(connection)
}

/// HTTP/1.1 over a stream.
async fn begin(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Attempt {
    let handshake = http1::handshake::<_, Outgoing>(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|_| Failure::Connect)?;
    // Its errors reach the request that is under way; without one nobody misses it.
    tokio::spawn(connection);
    Ok(Connection { sender, burst: 0 })
}

/// The addresses of a place, the families alternating (RFC 8305 section 4).
async fn resolve(endpoint: &Endpoint, place: &Place) -> Result<Vec<SocketAddr>, Failure> {
    let found: Vec<_> = match place {
        Place::Addresses(addresses) => addresses.clone(),
        Place::Name(name, port) => {
            let found = tokio::net::lookup_host((name.as_str(), *port)).await;
            let failed = |error| {
                endpoint.handle_attempt(Some(format!("{name} has no address: {error}")));
                Failure::Connect
            };
            found.map_err(failed)?.collect()
        }
    };
    Ok(interleave(found))
}

/// Alternates the families, the first address staying the first.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv4) else { return addresses };
    let (mut these, mut those): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|a| a.is_ipv4() == first);
    these.reverse();
    those.reverse();
    let mut out = Vec::new();
    while out.len() < ADDRESSES_MAX && !(these.is_empty() && those.is_empty()) {
        out.extend(these.pop());
        out.extend(those.pop());
    }
    out.truncate(ADDRESSES_MAX);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|t| t.parse().unwrap()).collect()
        };
        for (found, order) in [
            (&[][..], &[][..]),
            (&["192.0.2.1:1"], &["192.0.2.1:1"]),
            (
                &["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "192.0.2.2:1"],
                &["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1"],
            ),
            (
                &["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "[2001:db8::1]:1"],
                &["192.0.2.1:1", "[2001:db8::1]:1", "192.0.2.2:1", "192.0.2.3:1"],
            ),
        ] {
            assert_eq!(interleave(addresses(found)), addresses(order));
        }
        let many: Vec<_> = (1..20).map(|n| SocketAddr::from(([192, 0, 2, n], 1))).collect();
        assert_eq!(Some(interleave(many.clone()).as_slice()), many.get(..ADDRESSES_MAX));
    }
}
