//! The admin listener: `/metrics` and `/status`, on a unix socket or on loopback.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, fs, io};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::listen::{self, ListenError};
use crate::{Metrics, Shutdown};

/// Admin connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send its request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

type StatusOf = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What `/status` shows: one entry a role, asked for when somebody looks.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Mutex<BTreeMap<&'static str, StatusOf>>>);

impl fmt::Debug for StatusBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusBoard")
    }
}

impl StatusBoard {
    /// Shows `status()` under `role`.
    pub fn set(
        &self,
        role: &'static str,
        status: impl Fn() -> serde_json::Value + Send + Sync + 'static,
    ) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.insert(role, Arc::new(status));
    }

    /// All entries as one JSON object with `format: 1`.
    pub fn show(&self) -> serde_json::Value {
        // Taken out of the lock first: an entry may itself take its time.
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = serde_json::Map::from_iter([("format".to_owned(), 1.into())]);
        all.extend(entries.iter().map(|(role, status)| ((*role).to_owned(), status())));
        all.into()
    }
}

/// `[admin] listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// `unix:PATH`; only its owner may connect.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

/// Why the admin listener could not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The TCP address could not be bound.
    #[error(transparent)]
    Tcp(#[from] ListenError),
    /// The unix socket could not be made.
    #[error("cannot make the admin socket {0}: is its folder there and writable?")]
    Unix(PathBuf, #[source] io::Error),
    /// Another process answers on the unix socket.
    #[error("the admin socket {0} is in use: stop the other process or choose another path")]
    UnixInUse(PathBuf),
}

/// Starts the listener; it ends with `shutdown`. Needs a tokio runtime.
pub async fn start(
    listen: AdminListen,
    metrics: Metrics,
    status: StatusBoard,
    shutdown: Shutdown,
) -> Result<(), AdminError> {
    let listener = match listen {
        AdminListen::Tcp(address) => Listener::Tcp(listen::tcp(address)?),
        AdminListen::Unix(path) => {
            if tokio::net::UnixStream::connect(&path).await.is_ok() {
                return Err(AdminError::UnixInUse(path));
            }
            // A socket file that nobody answers on was left by a process that was killed.
            let _ = fs::remove_file(&path);
            match bind_private(&path) {
                Ok(listener) => Listener::Unix(listener, path),
                Err(source) => return Err(AdminError::Unix(path, source)),
            }
        }
    };
    tokio::spawn(async move { serve(listener, metrics, status, shutdown).await });
    Ok(())
}

/// A byte stream of either kind of listener.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_private(path: &std::path::Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve(listener: Listener, metrics: Metrics, status: StatusBoard, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = shutdown.wait() => return,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "admin listener cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (metrics, status) = (metrics.clone(), status.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = respond(&request, &metrics, &status);
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that goes away in the middle is its own business.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(slot);
        });
    }
}

fn respond(
    request: &Request<Incoming>,
    metrics: &Metrics,
    status: &StatusBoard,
) -> Response<Full<Bytes>> {
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let (code, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, text, metrics.render()),
        (&Method::GET, "/status") => {
            (StatusCode::OK, "application/json", format!("{:#}\n", status.show()))
        }
        (_, "/metrics" | "/status") => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".into())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "there is /metrics and /status\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn the_unix_socket_is_private_taken_once_and_answers() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        std::fs::write(&path, "left by a killed process").unwrap();
        let status = StatusBoard::default();
        status.set("dns", || serde_json::json!({ "generation": 3 }));
        let shutdown = Shutdown::default();
        let listen = AdminListen::Unix(path.clone());
        let metrics = Metrics::new();
        metrics.gauge(&crate::metrics::host::NODE_MAP_GENERATION, &[]).set(1);
        start(listen.clone(), metrics, status.clone(), shutdown.clone()).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = start(listen, Metrics::new(), status, Shutdown::default()).await;
        assert!(matches!(second, Err(AdminError::UnixInUse(_))));

        for (line, wanted) in [
            ("GET /status", "\"generation\": 3"),
            ("GET /metrics", "cacheboy_host_node_map_generation"),
            ("GET /other", "HTTP/1.1 404"),
            ("POST /status", "HTTP/1.1 405"),
        ] {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let request = format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains(wanted), "{line}: {answer}");
        }
        shutdown.trigger();
    }
}
