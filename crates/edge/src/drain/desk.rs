//! `POST /drain` and `POST /undrain` on the admin listener.

use std::error::Error;
use std::sync::Arc;

use http::StatusCode;
use rt::clock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::DrainError;
use crate::state::Edge;

/// Longest reason, characters.
const REASON_MAX: usize = 200;

/// The body of `/drain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)] // a misspelt `for_s` would drain without end
struct Asked {
    #[serde(default)]
    reason: String,
    /// After how many seconds it ends by itself.
    for_s: Option<u64>,
}

/// The body of `/undrain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Why nothing was done: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the body is not what this takes")]
    Body(#[source] serde_json::Error),
    #[error("the reason is longer than {REASON_MAX} characters, or has control characters")]
    Reason,
    #[error("for_s is 0: leave it out to drain until it is undrained")]
    NoTime,
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error("it was interrupted: try again")]
    Interrupted,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Body(_) | Self::Reason | Self::NoTime => StatusCode::BAD_REQUEST,
            Self::Drain(DrainError::HandedOver) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Drain(DrainError::Unwritten(..)) | Self::Interrupted => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

/// Drains this node.
pub(crate) async fn answer_drain(edge: &Arc<Edge>, body: &[u8]) -> (StatusCode, Value) {
    answer(edge, drain(edge, body).await)
}

/// Ends that.
pub(crate) async fn answer_undrain(edge: &Arc<Edge>, body: &[u8]) -> (StatusCode, Value) {
    answer(edge, undrain(edge, body).await)
}

fn answer(edge: &Edge, done: Result<Value, Refusal>) -> (StatusCode, Value) {
    let node = edge.me.node();
    match done {
        Ok(drain) => {
            let state = if drain.is_null() { "up" } else { "drained" };
            (StatusCode::OK, json!({ "format": 1, "node": node, "state": state, "drain": drain }))
        }
        Err(refusal) => {
            let source = refusal.source().map(|why| format!(": {why}")).unwrap_or_default();
            let error = format!("{refusal}{source}");
            tracing::warn!(error, "not drained or undrained as was asked");
            (refusal.status(), json!({ "format": 1, "node": node, "error": error }))
        }
    }
}

async fn drain(edge: &Arc<Edge>, body: &[u8]) -> Result<Value, Refusal> {
    let Asked { reason, for_s } = serde_json::from_slice(body).map_err(Refusal::Body)?;
    if reason.chars().count() > REASON_MAX || reason.contains(char::is_control) {
        return Err(Refusal::Reason);
    }
    if for_s == Some(0) {
        return Err(Refusal::NoTime);
    }
    tracing::warn!(reason, for_s, "this node is drained");
    let for_ms = for_s.map(|s| s.saturating_mul(1000));
    let edge = Arc::clone(edge);
    let work = move || edge.drain.drain(clock::now(), for_ms, reason);
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Interrupted)??;
    Ok(done.shown())
}

async fn undrain(edge: &Arc<Edge>, body: &[u8]) -> Result<Value, Refusal> {
    let Nothing {} = serde_json::from_slice(body).map_err(Refusal::Body)?;
    let edge = Arc::clone(edge);
    let work = move || edge.drain.undrain();
    let was = tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Interrupted)??;
    if was.is_some() {
        tracing::info!("this node is no longer drained");
    }
    Ok(Value::Null)
}
