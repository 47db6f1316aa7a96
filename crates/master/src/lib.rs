//! The master role: a static tree over HTTP, with validators that every master of the tree shares.
//!
//! # A tour in flow order
//! 1. [`Master::bind`] opens the listeners and reads the content index; [`Master::serve`] runs.
//! 2. `answer`: request -> path -> file -> digest -> `http-cache`'s answer.
//! 3. `tree`: the look-up beneath the root, with the marker beside it.
//! 4. `catalogue`: digests, computed once and written to the state directory.
//! 5. `source`: the bytes, checked against the digest's stamp while they go out.
//! 6. `watch` and `scan`: whether the tree is there; hashing ahead when it comes up.
//!
//! # Invariants
//! - A tree whose root or marker (`mirror::TREE_MARKER`) is not there answers 503 for everything. A
//!   404 is only said of a tree that was seen to be there, by the same look-up.
//! - `ETag` and `Repr-Digest` come from content alone: equal on all masters.
//! - No byte goes out under a digest that the file may no longer have.
//! - What leads out of the tree, dotfiles and anything but regular files is not served.
//!
//! Does not know who asks, nor under which host name: who may reach a master is the network's
//! business.
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rt::Context;
use rt::listen::Listen;
use rt::metrics::master as metric;
use serve::{BindError, Files, Limits, Listener};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

mod answer;
mod catalogue;
mod scan;
mod source;
mod tree;
mod watch;

use answer::Answerer;
use catalogue::Catalogue;
use tree::Tree;
use watch::{Presence, Watch};

/// Name of the content index in the state directory.
const INDEX_FILE: &str = "content-index";

/// `[master]` of a host's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where edges are served.
    pub listen: Vec<Listen>,
    /// Root of the tree; must hold the marker file.
    pub tree: PathBuf,
}

/// Why a master could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// A bound listener does not say its address.
    #[error("cannot learn the address of a listener")]
    Address(#[source] io::Error),
}

/// A master whose listeners are open.
#[derive(Debug)]
pub struct Master {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    answerer: Arc<Answerer>,
    context: Context,
}

impl Master {
    /// Opens the listeners and reads the content index. A tree that is not there is no error: it may
    /// be mounted later. Needs a tokio runtime.
    pub fn bind(params: Params, context: Context) -> Result<Self, Error> {
        let limits = Limits::default();
        let bind = |listen| Listener::bind(listen, &context, &limits);
        let listeners = params.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners
            .iter()
            .map(Listener::address)
            .collect::<Result<_, _>>()
            .map_err(Error::Address)?;
        let metrics = &context.metrics;
        let index = context.state_dir.join(INDEX_FILE);
        let catalogue = Arc::new(Catalogue::load(index, metrics, context.shutdown.clone()));
        let answerer = Arc::new(Answerer {
            tree: Arc::new(Tree::new(params.tree)),
            catalogue,
            watch: Arc::new(Watch::new(metrics)),
            metrics: metrics.clone(),
            sent_bytes: metrics.counter(&metric::SENT_BYTES, &[]),
            broken_off: metrics.counter(&metric::BROKEN_OFF, &[]),
        });
        let shown = Arc::clone(&answerer);
        context.status.set("master", move || status(&shown));
        Ok(Self { listeners, addresses, answerer, context })
    }

    /// The addresses listened on, with the ports that port 0 was given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until shutdown; running answers are finished for a while, the index is written down.
    pub async fn serve(self) {
        let Self { listeners, addresses, answerer, context } = self;
        let shutdown = context.shutdown.clone();
        let Answerer { tree, catalogue, watch, .. } = &*answerer;
        tracing::info!(?addresses, tree = %tree.root().display(), "master serves");
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(watch).look(Arc::clone(tree), shutdown.clone()));
        tasks.spawn(Arc::clone(watch).scan_when_up(
            Arc::clone(tree),
            Arc::clone(catalogue),
            shutdown.clone(),
        ));
        let (kept, keeping) = (Arc::clone(catalogue), Arc::clone(catalogue));
        let (ended, has_ended) = oneshot::channel::<()>();
        tasks.spawn(async move {
            keeping.keep().await;
            drop(ended);
        });
        context.on_yield("content index", async move {
            // Two writers of one file are one too many.
            let _ = has_ended.await;
            scan::off_worker(move || kept.flush()).await;
        });
        let (handler, limits) = (Arc::clone(&answerer), limits());
        tasks.spawn(serve::http(listeners, handler, limits, Arc::default(), shutdown.clone()));
        while let Some(ended) = tasks.join_next().await {
            // A role that lost one of its tasks must not look alive.
            if let Err(Ok(panic)) = ended.map_err(tokio::task::JoinError::try_into_panic) {
                std::panic::resume_unwind(panic);
            }
        }
        if !shutdown.has_yielded() {
            let catalogue = Arc::clone(catalogue);
            scan::off_worker(move || catalogue.flush()).await;
        }
    }
}

/// Each transfer has a file open beside its connection.
fn limits() -> Limits {
    let connections_max = Files::of_process().connections.div_ceil(2);
    Limits { connections_max, ..Limits::default() }
}

/// What `/status` shows of the role.
fn status(answerer: &Answerer) -> serde_json::Value {
    let (files, hashed) = answerer.catalogue.figures();
    let (state, reason) = match answerer.watch.presence() {
        Presence::Unknown => ("unknown", None),
        Presence::Up => ("up", None),
        Presence::Lost(why) => ("lost", Some(why)),
    };
    serde_json::json!({
        "tree": answerer.tree.root().display().to_string(),
        "tree_state": state,
        "tree_lost_reason": reason,
        "index_complete": answerer.watch.scanned(),
        "index_files": files,
        "hashed_files": hashed,
    })
}

/// An error with all its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
