//! `POST /purge` on the admin listener: what is asked, and the receipt.

use std::error::Error;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use http_cache::{Target, TargetError};
use model::time::utc;
use model::{Name, Query};
use rt::clock;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Key;

use super::{Mode, PurgeError, Scope};
use crate::project::Project;
use crate::state::Edge;

/// The body: `url`, or `project` with or without `path`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)] // a misspelt `dry_run` would purge
struct Asked {
    url: Option<String>,
    project: Option<Name>,
    path: Option<String>,
    #[serde(default)]
    soft: bool,
    #[serde(default)]
    dry_run: bool,
}

/// Why nothing was purged: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the body is not a purge")]
    Body(#[source] serde_json::Error),
    #[error("write either url, or project with or without path")]
    Form,
    #[error("{0:?} is no URL: write http://HOST/PATH, a prefix with a * at its end")]
    Url(String),
    #[error("{0:?} is no target")]
    Target(String, #[source] TargetError),
    #[error(
        "{0:?} ends in a dot segment before its *, which would be the whole folder: write more of \
         the name"
    )]
    DotPrefix(String),
    #[error(
        "{0:?} ends inside a query, of which only some parameters count in this project: write \
         PATH?* for all of them"
    )]
    QueryPrefix(String),
    #[error("no project here has the host {host}: {known}")]
    Host { host: String, known: String },
    #[error("there is no project {name}: {known}")]
    Project { name: Name, known: String },
    #[error("this edge has no node map yet, so it knows no project: see /status")]
    NoNodeMap,
    #[error(transparent)]
    Purge(#[from] PurgeError),
    #[error("the purge was interrupted: try again")]
    Interrupted,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Host { .. } | Self::Project { .. } => StatusCode::NOT_FOUND,
            Self::NoNodeMap | Self::Purge(PurgeError::HandedOver) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Purge(PurgeError::Full) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Purge(PurgeError::Unwritten(_)) | Self::Interrupted => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The whole chain of reasons in one line.
    fn words(&self) -> String {
        let mut words = self.to_string();
        let mut why = self.source();
        while let Some(error) = why {
            words.push_str(&format!(": {error}"));
            why = error.source();
        }
        words
    }
}

/// Answers a purge.
pub(crate) async fn answer(edge: &Arc<Edge>, body: &[u8]) -> (StatusCode, Value) {
    match purge(edge, body).await {
        Ok(receipt) => (StatusCode::OK, receipt),
        Err(refusal) => {
            let error = refusal.words();
            tracing::warn!(error, "a purge was refused");
            let node = edge.me.node();
            (refusal.status(), json!({ "format": 1, "node": node, "error": error }))
        }
    }
}

async fn purge(edge: &Arc<Edge>, body: &[u8]) -> Result<Value, Refusal> {
    let asked: Asked = serde_json::from_slice(body).map_err(Refusal::Body)?;
    let (project, scope) = what(edge, &asked)?;
    let mode = if asked.soft { Mode::Soft } else { Mode::Hard };
    // Looked at before it may be gone.
    let held = match &scope {
        Scope::Url(target) => Some(held(edge, &project, target).await),
        Scope::Prefix(_) | Scope::Project => None,
    };
    let mut at_ms = clock::now().wall_ms;
    if !asked.dry_run {
        let (edge, name, scope) = (Arc::clone(edge), project.name.clone(), scope.clone());
        let seq = edge.memos.next_purge();
        let adding =
            tokio::task::spawn_blocking(move || edge.purges.add(&name, &scope, mode, seq)).await;
        at_ms = adding.map_err(|_| Refusal::Interrupted)??.at_ms;
    }
    let (name, kind, target) = (project.name.as_str(), scope.as_str(), scope.target());
    if !asked.dry_run {
        tracing::info!(project = name, scope = kind, target, mode = mode.as_str(), "purged");
    }
    Ok(json!({
        "format": 1, "node": edge.me.node(), "project": name, "scope": kind, "target": target,
        "mode": mode.as_str(), "dry_run": asked.dry_run, "at": utc(at_ms), "at_ms": at_ms,
        "held": held, "purges_active": edge.purges.count(),
    }))
}

/// Which project, and what of it.
fn what(edge: &Edge, asked: &Asked) -> Result<(Arc<Project>, Scope), Refusal> {
    let projects = edge.projects.load();
    if projects.generation == 0 {
        return Err(Refusal::NoNodeMap);
    }
    let known = || {
        let mut names: Vec<&str> = projects.by_name.keys().map(Name::as_str).collect();
        names.sort_unstable();
        format!("its projects are {}", names.join(", "))
    };
    let (project, path) = match (&asked.url, &asked.project, &asked.path) {
        (Some(url), None, None) => {
            let (host, path) = split(url).ok_or_else(|| Refusal::Url(url.clone()))?;
            let missing = || Refusal::Host { host: host.to_owned(), known: known() };
            (projects.of_host(host).ok_or_else(missing)?, Some(path))
        }
        (None, Some(name), path) => {
            let missing = || Refusal::Project { name: name.clone(), known: known() };
            (projects.by_name.get(name).ok_or_else(missing)?, path.as_deref())
        }
        _ => return Err(Refusal::Form),
    };
    let scope = path.map_or(Ok(Scope::Project), |path| scope_of(path, project.query()))?;
    Ok((Arc::clone(project), scope))
}

/// Host and target of `http://HOST/TARGET`.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let (host, _) = rest.split_once('/')?;
    if host.is_empty() || host.contains(['?', '#', '@', '*']) {
        return None;
    }
    // A fragment is never sent (RFC 9110 section 4.2.5).
    let target = rest.get(host.len()..)?;
    Some((host, target.split('#').next().unwrap_or(target)))
}

/// A target, or with a `*` at its end all that begin with it; reduced to what counts of a query.
fn scope_of(path: &str, query: &Query) -> Result<Scope, Refusal> {
    let parsed = |text: &str| {
        let target = Target::parse(text.as_bytes());
        target.map_err(|error| Refusal::Target(path.to_owned(), error))
    };
    let url = |target: Target| Scope::Url(target.reduced(query).as_str().to_owned());
    let Some(prefix) = path.strip_suffix('*') else {
        return Ok(url(parsed(path)?));
    };
    if matches!(prefix.rsplit('/').next(), Some("." | "..")) {
        return Err(Refusal::DotPrefix(path.to_owned()));
    }
    let target = parsed(prefix)?;
    match (target.query(), query) {
        // All queries are one object.
        (Some(_), Query::Drop) => Ok(url(target)),
        (Some(begun), Query::Only(_)) if !begun.is_empty() => {
            Err(Refusal::QueryPrefix(path.to_owned()))
        }
        _ => Ok(Scope::Prefix(target.as_str().to_owned())),
    }
}

/// What is held under a target for a request without fields: `null`, or its size, how long ago it was
/// confirmed, and whether all of it is there.
async fn held(edge: &Edge, project: &Arc<Project>, target: &str) -> Value {
    let Ok(target) = Target::parse(target.as_bytes()) else { return Value::Null };
    let base = Key(http_cache::key(&project.name, &target));
    let found = edge.find(project, &target, base, &HeaderMap::new()).await;
    let Some(object) = found.object else { return Value::Null };
    let age_ms = clock::now().wall_ms.saturating_sub(object.head.response_ms);
    json!({
        "status": object.head.status.as_u16(), "bytes": object.rep.length(),
        "complete": object.rep.is_complete(), "confirmed_s_ago": age_ms / 1000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_prefixes_are_normalised_as_requests_are() {
        let url = |target: &str| Scope::Url(target.to_owned());
        let prefix = |target: &str| Scope::Prefix(target.to_owned());
        let only = Query::Only(vec!["id".to_owned()]);
        for (text, query, scope) in [
            ("/a/../b", &Query::Keep, url("/b")),
            ("/%7euser/a%2fb", &Query::Keep, url("/~user/a%2Fb")),
            ("/a?x=%41", &Query::Keep, url("/a?x=A")),
            ("/a?x=%41", &Query::Drop, url("/a")),
            ("/a?x=1&id=7", &only, url("/a?id=7")),
            ("/", &Query::Keep, url("/")),
            ("/*", &Query::Keep, prefix("/")),
            ("/*", &Query::Drop, prefix("/")),
            ("/vlc/3.*", &Query::Keep, prefix("/vlc/3.")),
            ("/a?*", &Query::Keep, prefix("/a?")),
            ("/a?*", &Query::Drop, url("/a")),
            ("/a?*", &only, prefix("/a?")),
            ("/a*/b", &Query::Keep, url("/a*/b")),
        ] {
            assert_eq!(scope_of(text, query).unwrap(), scope, "{text} {query:?}");
        }
        for bad in ["", "*", "a", "/%", "/%4*", "/a/.*", "/a/..*", "/a b", "/a?i*"] {
            assert!(scope_of(bad, &only).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_url_is_host_and_target() {
        for (url, parts) in [
            ("http://a.example/b?c", Some(("a.example", "/b?c"))),
            ("https://a.example:8443/b#c", Some(("a.example:8443", "/b"))),
            ("http://a.example/*", Some(("a.example", "/*"))),
            ("http://a.example", None),
            ("http://a.example*", None),
            ("http://noc@a.example/", None),
            ("http://a.example?b/c", None),
            ("http:///b", None),
            ("a.example/b", None),
            ("ftp://a.example/b", None),
        ] {
            assert_eq!(split(url), parts, "{url}");
        }
    }
}
