//! Which fields travel, and what we add to them.

use http::{HeaderMap, HeaderValue};
use model::Name;

/// How a node names itself in `Via`, `CDN-Loop`, `Cache-Status` and `Proxy-Status`.
#[derive(Clone, Debug)]
pub struct Identity {
    node: String,
    via: HeaderValue,
    cdn_id: HeaderValue,
}

impl Identity {
    /// The identity of a node.
    pub fn new(node: &Name) -> Self {
        let _ = node;
        todo!()
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Whether `CDN-Loop` of a request names us: answer 508 (RFC 8586).
    pub fn in_loop(&self, headers: &HeaderMap) -> bool {
        let _ = (headers, &self.cdn_id);
        todo!()
    }

    /// Appends our member to `Via` (of a request or response).
    pub fn add_via(&self, headers: &mut HeaderMap) {
        headers.append(http::header::VIA, self.via.clone());
    }
}

/// What may travel on: without hop-by-hop fields and those that `Connection` lists.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let _ = headers;
    todo!()
}

/// The head of a fill or revalidation, which nothing of a client shapes except the loop marks:
/// `Accept-Encoding: identity`, `User-Agent`, `Via`, `CDN-Loop`, and `extra` (preconditions,
/// `Range`). `Host` is the caller's.
pub fn fill_request(client: &HeaderMap, me: &Identity, extra: &HeaderMap) -> HeaderMap {
    let _ = (client, me, extra);
    todo!()
}

/// The head of a client's request that is passed on as it is, cleaned: no hop-by-hop fields, no
/// `X-Forwarded-*` and the like, `Via` and `CDN-Loop` added. `Host` is the caller's.
pub fn pass_request(client: &HeaderMap, me: &Identity) -> HeaderMap {
    let _ = (client, me);
    todo!()
}

/// The head of a reply that is passed on and not kept: end-to-end fields, `Via` and, by the
/// caller, `Cache-Status`.
pub fn pass_response(upstream: &HeaderMap, me: &Identity) -> HeaderMap {
    let _ = (upstream, me);
    todo!()
}
