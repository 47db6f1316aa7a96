//! The admin listener: `/metrics`, `/status` and what roles do on request, on a unix socket or on
//! loopback; and [`get`] and [`post`], which ask one ([`AdminAddress`] says where).
//!
//! Who may connect may ask: the permissions of the socket, or of the machine, are the only ones.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, fs, io};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::handover::sockets::{self, Sockets};
use crate::listen::{self, ListenError};
use crate::{Context, Metrics, Phase, Shutdown};

mod post;

pub use post::{AddressError, AdminAddress, get, post};

const JSON: &str = "application/json";
/// Admin connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send its request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the body of a request, and of the answer to one of ours.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long a client may take to send its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

type StatusOf = Arc<dyn Fn() -> Value + Send + Sync>;
type Acting = Pin<Box<dyn Future<Output = (StatusCode, Value)> + Send>>;
type Question = Arc<dyn Fn(&str) -> (StatusCode, Value) + Send + Sync>;
type Action = Arc<dyn Fn(Bytes) -> Acting + Send + Sync>;

/// What `/status` shows, one entry a role, asked for when somebody looks; and what roles do when
/// something is posted.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Mutex<Board>>);

#[derive(Clone, Default)]
struct Board {
    shown: BTreeMap<&'static str, StatusOf>,
    questions: BTreeMap<&'static str, Question>,
    actions: BTreeMap<&'static str, Action>,
}

impl fmt::Debug for StatusBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusBoard")
    }
}

impl StatusBoard {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `status()` under `role`.
    pub fn set(&self, role: &'static str, status: impl Fn() -> Value + Send + Sync + 'static) {
        self.lock().shown.insert(role, Arc::new(status));
    }

    /// Answers a `GET` of `path` (with its slash) by `answer`, which gets the query.
    pub fn on_get(
        &self,
        path: &'static str,
        answer: impl Fn(&str) -> (StatusCode, Value) + Send + Sync + 'static,
    ) {
        self.lock().questions.insert(path, Arc::new(answer));
    }

    /// Answers a `POST` to `path` (with its slash) by `act`, which gets the body, JSON to be.
    pub fn on_post<F>(&self, path: &'static str, act: impl Fn(Bytes) -> F + Send + Sync + 'static)
    where
        F: Future<Output = (StatusCode, Value)> + Send + 'static,
    {
        self.lock().actions.insert(path, Arc::new(move |body| Box::pin(act(body))));
    }

    /// All entries as one JSON object with `format: 1`.
    pub fn show(&self) -> Value {
        // Taken out of the lock first: an entry may itself take its time.
        let entries = self.lock().shown.clone();
        let mut all = serde_json::Map::from_iter([("format".to_owned(), 1.into())]);
        all.extend(entries.iter().map(|(role, status)| ((*role).to_owned(), status())));
        all.into()
    }

    /// The answer to a question; `None` when nobody is asked there.
    fn ask(&self, path: &str, query: &str) -> Option<(StatusCode, Value)> {
        let question = self.lock().questions.get(path).cloned()?;
        Some(question(query))
    }

    /// The paths that can be asked.
    fn questions(&self) -> Vec<&'static str> {
        self.lock().questions.keys().copied().collect()
    }

    /// Does what is posted to `path`; `None` when nobody does anything there.
    pub async fn act(&self, path: &str, body: Bytes) -> Option<(StatusCode, Value)> {
        let action = self.lock().actions.get(path).cloned()?;
        Some(action(body).await)
    }

    /// The paths that can be posted to.
    fn actions(&self) -> Vec<&'static str> {
        self.lock().actions.keys().copied().collect()
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

/// Starts the listener; it ends with the process, or once a successor has it. Needs a tokio runtime.
///
/// # Errors
/// When the address cannot be had.
pub fn start(listen: AdminListen, context: &Context) -> Result<(), AdminError> {
    let Context { metrics, status, shutdown, sockets, .. } = context.clone();
    let listener = match listen {
        AdminListen::Tcp(address) => Listener::Tcp(listen::tcp(&sockets, address)?),
        AdminListen::Unix(path) => {
            let listener = unix(&sockets, &path)?;
            Listener::Unix(listener, path, shutdown.clone())
        }
    };
    tokio::spawn(async move { serve(listener, metrics, status, shutdown).await });
    Ok(())
}

/// Binds the address in `sockets`, to be taken from there. Needs a tokio runtime.
///
/// # Errors
/// When it cannot be had.
pub fn bind(listen: &AdminListen, sockets: &Sockets) -> Result<(), AdminError> {
    match listen {
        AdminListen::Tcp(address) => drop(listen::tcp(sockets, *address)?),
        AdminListen::Unix(path) => drop(unix(sockets, path)?),
    }
    Ok(())
}

/// A byte stream of either kind of listener.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf, Shutdown),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener, ..) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path, shutdown) = self
            && !shutdown.has_yielded()
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// The listener of `sockets`, or a new one that only its owner may connect to.
fn unix(sockets: &Sockets, path: &Path) -> Result<UnixListener, AdminError> {
    use std::os::unix::fs::PermissionsExt;
    let bind = || {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // A socket file that nobody answers on was left by a process that was killed.
        let _ = fs::remove_file(path);
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(vec![listener])
    };
    let listen = || {
        let mut all = sockets.take_or(&sockets::unix(path), bind)?;
        let listener = all.pop().ok_or(io::ErrorKind::NotFound)?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    };
    listen().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => AdminError::UnixInUse(path.to_owned()),
        _ => AdminError::Unix(path.to_owned(), error),
    })
}

/// Returns when this process has no use for the listener: a successor has it, or all ends.
async fn no_longer_ours(shutdown: &Shutdown) {
    shutdown.reached(Phase::Draining).await;
    if !shutdown.has_yielded() {
        shutdown.reached(Phase::Cut).await;
    }
}

async fn serve(listener: Listener, metrics: Metrics, status: StatusBoard, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = no_longer_ours(&shutdown) => return,
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
            let answer = service_fn(|request| async {
                Ok::<_, Infallible>(respond(request, &metrics, &status).await)
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

async fn respond(
    request: Request<Incoming>,
    metrics: &Metrics,
    status: &StatusBoard,
) -> Response<Full<Bytes>> {
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (code, kind, body) = match (&method, path.as_str()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, text, metrics.render()),
        (&Method::GET, "/status") => (StatusCode::OK, JSON, format!("{:#}\n", status.show())),
        (_, "/metrics" | "/status") => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".into())
        }
        (&Method::GET, path) if status.questions().contains(&path) => {
            let answer = status.ask(path, request.uri().query().unwrap_or_default());
            let (code, answer) = answer.unwrap_or((StatusCode::NOT_FOUND, Value::Null));
            (code, JSON, format!("{answer:#}\n"))
        }
        (_, path) if status.questions().contains(&path) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".into())
        }
        (&Method::POST, path) if status.actions().contains(&path) => {
            let (code, answer) = act(request, path, status).await;
            (code, JSON, format!("{answer:#}\n"))
        }
        (_, path) if status.actions().contains(&path) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use POST\n".into())
        }
        _ => {
            let actions: String = status.actions().iter().map(|a| format!(", POST {a}")).collect();
            let more: String = status.questions().iter().map(|q| format!(", GET {q}")).collect();
            let words = format!("here are: GET /metrics, GET /status{more}{actions}\n");
            (StatusCode::NOT_FOUND, "text/plain", words)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// Reads what is posted and has it done. Only JSON that says so is taken: a page in a browser on
/// this host cannot send that anywhere without asking first (Fetch Standard, CORS-preflight).
async fn act(request: Request<Incoming>, path: &str, status: &StatusBoard) -> (StatusCode, Value) {
    let refuse = |code, words: &str| (code, json!({ "format": 1, "error": words }));
    if request.headers().contains_key(header::ORIGIN) {
        // The check below does not stop a page whose own name was made to point here.
        return refuse(StatusCode::FORBIDDEN, "not from a web page: use cacheboy or curl");
    }
    if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != JSON) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send content-type: application/json");
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 256 KiB");
        }
        Ok(Err(_)) => return refuse(StatusCode::BAD_REQUEST, "the body ended early"),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    match status.act(path, body).await {
        Some(answer) => answer,
        None => refuse(StatusCode::NOT_FOUND, "nobody does this here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};

    fn context(dir: &Path) -> Context {
        Context::new("edge1".parse().unwrap(), dir.to_owned())
    }

    #[tokio::test]
    async fn the_unix_socket_is_private_taken_once_and_answers() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        std::fs::write(&path, "left by a killed process").unwrap();
        let context = context(dir.path());
        let Context { status, shutdown, metrics, .. } = context.clone();
        status.set("dns", || serde_json::json!({ "generation": 3 }));
        status.on_get("/asked", |query| (StatusCode::OK, json!({ "query": query })));
        let listen = AdminListen::Unix(path.clone());
        metrics.gauge(&crate::metrics::host::NODE_MAP_GENERATION, &[]).set(1);
        start(listen.clone(), &context).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = start(listen, &self::context(dir.path()));
        assert!(matches!(second, Err(AdminError::UnixInUse(_))));

        for (line, wanted) in [
            ("GET /status", "\"generation\": 3"),
            ("GET /metrics", "cacheboy_host_node_map_generation"),
            ("GET /other", "HTTP/1.1 404"),
            ("GET /other", "GET /status, GET /asked\n"),
            ("GET /asked?a=1", "\"query\": \"a=1\""),
            ("POST /asked", "HTTP/1.1 405"),
            ("POST /status", "HTTP/1.1 405"),
        ] {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let request = format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains(wanted), "{line}: {answer}");
        }
        shutdown.cut();
    }

    #[tokio::test]
    async fn what_is_posted_is_done_and_nothing_else_is() {
        let context = context(Path::new("unused"));
        let Context { status, shutdown, .. } = context.clone();
        status.on_post("/echo", |body: Bytes| async move {
            (StatusCode::CREATED, json!({ "bytes": body.len() }))
        });
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let to: AdminAddress = format!("http://localhost:{}/", free.port()).parse().unwrap();
        start(AdminListen::Tcp(free), &context).unwrap();
        let five = Duration::from_secs(5);
        let reply = post(&to, "/echo", &json!("abc"), five).await.unwrap();
        assert_eq!(reply.status, StatusCode::CREATED);
        assert_eq!(serde_json::from_slice::<Value>(&reply.body).unwrap(), json!({ "bytes": 5 }));
        let large = json!("a".repeat(BODY_BYTES_MAX));
        let reply = post(&to, "/echo", &large, five).await.unwrap();
        assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(post(&to, "/other", &json!(1), five).await.unwrap().status, 404);
        for (head, code) in [
            ("GET /echo HTTP/1.1\r\nhost: a\r\n", 405),
            ("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\n", 415),
            (
                "POST /echo HTTP/1.1\r\nhost: a\r\norigin: http://a\r\ncontent-type: application/json\r\n",
                403,
            ),
        ] {
            let mut stream = TcpStream::connect(free).await.unwrap();
            let request = format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
        }
        shutdown.cut();
    }
}
