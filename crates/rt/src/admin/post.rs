//! The other end: asking an admin listener to do something.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use super::{AdminListen, JSON, Stream};
use crate::client::{self, GetError, Reply};

/// Largest answer that is read: `/status` of a node with many masters.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Where an admin listener is reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `http://HOST[:PORT]`, without the scheme and with the port.
    Tcp(String),
}

/// Not the address of an admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write http://HOST:PORT or unix:PATH")]
pub struct AddressError;

impl FromStr for AdminAddress {
    type Err = AddressError;
    fn from_str(s: &str) -> Result<Self, AddressError> {
        if let Some(path) = s.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let url: Uri = s.parse().map_err(|_| AddressError)?;
        let plain = url.scheme_str() == Some("http")
            && url.path_and_query().is_none_or(|path| path.as_str() == "/");
        let authority = url.authority().filter(|a| plain && !a.as_str().contains('@'));
        let authority = authority.ok_or(AddressError)?;
        Ok(Self::Tcp(format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80))))
    }
}

impl From<AdminListen> for AdminAddress {
    fn from(listen: AdminListen) -> Self {
        match listen {
            AdminListen::Unix(path) => Self::Unix(path),
            AdminListen::Tcp(address) => Self::Tcp(address.to_string()),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

/// Posts JSON and waits for the whole answer.
///
/// # Errors
/// Nothing came back in time, or nothing that is HTTP.
pub async fn post(
    to: &AdminAddress,
    path: &str,
    body: &Value,
    timeout: Duration,
) -> Result<Reply, GetError> {
    let body = Full::new(Bytes::from(body.to_string()));
    let request = Request::post(path).header(header::HOST, "localhost");
    let request = request.header(header::CONTENT_TYPE, JSON).body(body);
    ask(to, request.map_err(|_| GetError::Url(path.to_owned()))?, timeout).await
}

/// Gets what is at a path.
///
/// # Errors
/// As [`post`].
pub async fn get(from: &AdminAddress, path: &str, timeout: Duration) -> Result<Reply, GetError> {
    let request = Request::get(path).header(header::HOST, "localhost").body(Full::default());
    ask(from, request.map_err(|_| GetError::Url(path.to_owned()))?, timeout).await
}

async fn ask(
    to: &AdminAddress,
    request: Request<Full<Bytes>>,
    timeout: Duration,
) -> Result<Reply, GetError> {
    let exchange = async {
        let connecting = |source| GetError::Connect(to.to_string(), source);
        let stream: Box<dyn Stream> = match to {
            AdminAddress::Unix(path) => {
                Box::new(UnixStream::connect(path).await.map_err(connecting)?)
            }
            AdminAddress::Tcp(authority) => {
                Box::new(TcpStream::connect(authority).await.map_err(connecting)?)
            }
        };
        client::exchange(stream, request, ANSWER_BYTES_MAX).await
    };
    tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(GetError::Timeout(timeout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:9103", "http://127.0.0.1:9103"),
            ("http://[::1]:9103/", "http://[::1]:9103"),
            ("http://localhost", "http://localhost:80"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), shown);
        }
        for bad in ["", "unix:", "127.0.0.1:9103", "https://a:1", "http://a/b", "http://u@a:1"] {
            assert_eq!(bad.parse::<AdminAddress>(), Err(AddressError), "{bad}");
        }
    }
}
