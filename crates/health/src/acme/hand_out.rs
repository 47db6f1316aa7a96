//! Certificates with their keys, for the nodes that need them: over TLS in which both ends prove who they
//! are by keys of their own (`rt::identity`).
//!
//! `GET /certificates` is answered with those of the projects that the node serves by the maps now; a
//! guest gets none, and a stranger nothing. What a node has got is written down before it goes out, so
//! that it can be made worthless later.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::Name;
use nodemap::{AdminMap, HandOut, KeyDigest, Trust};
use rt::identity::{Identity, digest_of};
use rt::listen;
use rt::metrics::{Counter, health as metric};
use rt::tls::fetch::{Document, One};
use rt::{Context, Phase, Shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{AcmeError, Book};
use crate::aside::aside;
use crate::desk::Desk;

/// Connections at once; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long one may last.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// How long is waited after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// `[health.acme.hand_out]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOutParams {
    /// Where nodes fetch certificates.
    pub listen: Vec<SocketAddr>,
    /// `HOST:PORT` by which they reach that.
    pub address: String,
}

/// Gives certificates to nodes.
pub(super) struct Giver {
    desk: Arc<Desk>,
    book: Arc<Book>,
    listeners: Vec<TcpListener>,
    acceptor: TlsAcceptor,
    identity: KeyDigest,
    address: String,
    results: [Counter; 3],
    shutdown: Shutdown,
}

impl Giver {
    /// Opens the listeners.
    ///
    /// # Errors
    /// What stands in the way.
    pub(super) fn bind(
        params: HandOutParams,
        identity: &Identity,
        desk: &Arc<Desk>,
        book: &Arc<Book>,
        context: &Context,
    ) -> Result<Self, AcmeError> {
        let config = identity.server_config().map_err(AcmeError::Tls)?;
        let mut listeners = Vec::new();
        for address in params.listen {
            listeners.push(listen::tcp(&context.sockets, address)?);
        }
        let results = ["given", "guest", "stranger"]
            .map(|word| context.metrics.counter(&metric::ACME_HANDED_OUT, &[word]));
        Ok(Self {
            desk: Arc::clone(desk),
            book: Arc::clone(book),
            listeners,
            acceptor: TlsAcceptor::from(config),
            identity: identity.digest(),
            address: params.address,
            results,
            shutdown: context.shutdown.clone(),
        })
    }

    /// What nodes are told of it.
    pub(super) fn hand_out(&self, issued_ms: u64) -> HandOut {
        HandOut { address: self.address.clone(), identity: self.identity, issued_ms }
    }

    /// Serves until nothing is published any more.
    pub(super) fn start(&mut self) -> JoinSet<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let desk = Answers {
            desk: Arc::clone(&self.desk),
            book: Arc::clone(&self.book),
            results: self.results.clone(),
        };
        let desk = Arc::new(desk);
        let mut tasks = JoinSet::new();
        for listener in std::mem::take(&mut self.listeners) {
            let (desk, acceptor, places) =
                (Arc::clone(&desk), self.acceptor.clone(), Arc::clone(&places));
            tasks.spawn(accept(listener, acceptor, desk, places, self.shutdown.clone()));
        }
        tasks
    }
}

/// Takes connections.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    desk: Arc<Answers>,
    places: Arc<Semaphore>,
    shutdown: Shutdown,
) {
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection for certificates could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = shutdown.reached(Phase::Yielded) => return,
        };
        let (desk, acceptor) = (Arc::clone(&desk), acceptor.clone());
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CONNECTION_TIME, desk.exchange(acceptor, stream)).await;
            drop(place);
        });
    }
}

/// What answers come from.
struct Answers {
    desk: Arc<Desk>,
    book: Arc<Book>,
    results: [Counter; 3],
}

impl Answers {
    async fn exchange(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream) {
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "no handshake for certificates");
                return;
            }
        };
        let shown = stream.get_ref().1.peer_certificates();
        let digest = shown.and_then(<[_]>::first).and_then(digest_of);
        let node = digest.and_then(|digest| {
            let checker = self.desk.checker();
            let mut nodes = checker.map().nodes.iter();
            let (name, _) = nodes.find(|(_, node)| node.identity == Some(digest))?;
            Some(name.clone())
        });
        let answer = service_fn(move |request: Request<Incoming>| {
            let (this, node) = (Arc::clone(&self), node.clone());
            async move { Ok::<_, Infallible>(this.answer(&request, node).await) }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(TokioTimer::new()).keep_alive(false);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!(%error, "a connection for certificates broke off");
        }
    }

    async fn answer(
        &self,
        request: &Request<Incoming>,
        node: Option<Name>,
    ) -> Response<Full<Bytes>> {
        let [given, guest, stranger] = &self.results;
        let Some(node) = node else {
            stranger.inc();
            return text(StatusCode::FORBIDDEN, "no node of the maps has this identity\n");
        };
        if request.method() != Method::GET || request.uri().path() != "/certificates" {
            return text(StatusCode::NOT_FOUND, "there is GET /certificates\n");
        }
        let names = {
            let checker = self.desk.checker();
            let map = checker.map();
            let is_guest = map.nodes.get(&node).is_none_or(|node| node.trust == Trust::Guest);
            if is_guest {
                guest.inc();
            }
            if is_guest { BTreeSet::new() } else { names_of(&node, map, &self.book) }
        };
        let (keep, of) = (self.book.keep.clone(), node.clone());
        let read = aside(move || keep.give(&of, &names)).await;
        let found = match read {
            Ok(Ok(found)) => found,
            Ok(Err(error)) | Err(error) => {
                tracing::error!(%node, %error, "certificates are not handed out");
                return text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the disk of the publisher fails\n",
                );
            }
        };
        given.inc();
        tracing::info!(%node, certificates = found.len(), "certificates were handed out");
        let certificates = found.into_iter().map(|(name, pem)| One { name, pem }).collect();
        let document = serde_json::to_vec(&Document { format: 1, certificates });
        let mut response = Response::new(Full::from(document.unwrap_or_default()));
        let kind = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// The names whose certificates `node` needs: of the projects that it serves.
fn names_of(node: &Name, map: &AdminMap, book: &Book) -> BTreeSet<String> {
    let projects: BTreeMap<&Name, bool> = map
        .projects
        .iter()
        .map(|(name, project)| (name, map.nodes_of(project).contains(node)))
        .collect();
    let orders = book.orders();
    let served = orders.iter().filter(|(_, order)| {
        order.held.is_some() && projects.get(&order.project).copied().unwrap_or_default()
    });
    served.map(|(name, _)| name.to_owned()).collect()
}

fn text(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(words));
    *response.status_mut() = status;
    response
}
