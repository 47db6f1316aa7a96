//! Which fields travel, and what we add to them (RFC 9110 sections 7.6.1 and 7.6.3, RFC 8586).
//!
//! A fill is asked for with fields of our own only: what a client sends beside the target is in no
//! key, so it must not shape what others get. A request that is passed on for one client alone
//! keeps its fields, except those that belong to the connection and those by which a client could
//! pretend to be somebody else.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderName,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderValue};
use model::Name;

use crate::fields::elements;

/// `CDN-Loop`.
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// A `CDN-Loop` longer than this has been through more hops than there are, or was made up.
const CDN_LOOP_BYTES_MAX: usize = 1024;

/// Fields of a connection, whether `Connection` lists them or not.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authentication-info"),
];

/// Fields by which a client could tell a master where a request comes from or goes to.
const CLAIMS: [HeaderName; 9] = [
    FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-cluster-client-ip"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-host"),
];

/// How a node names itself in `Via`, `CDN-Loop`, `Cache-Status` and `Proxy-Status`.
#[derive(Clone, Debug)]
pub struct Identity {
    node: Name,
    via: HeaderValue,
    cdn_id: HeaderValue,
}

impl Identity {
    /// The identity of a node.
    pub fn new(node: &Name) -> Self {
        // A name has only letters, digits and hyphens, so these cannot fail.
        let value = |text: String| {
            HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("cacheboy"))
        };
        Self {
            node: node.clone(),
            via: value(format!("1.1 {node}")),
            cdn_id: value(format!("cacheboy-{node}")),
        }
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        self.node.as_str()
    }

    /// Whether `CDN-Loop` of a request names us, or cannot be ours: answer 508 (RFC 8586
    /// section 2). Parents are other nodes, so no right way leads through one node twice.
    pub fn in_loop(&self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(CDN_LOOP);
        let length = lines.iter().map(HeaderValue::len).fold(0, usize::saturating_add);
        length > CDN_LOOP_BYTES_MAX
            || elements(headers, CDN_LOOP).any(|member| {
                let id = member.split(|b| *b == b';').next().unwrap_or(member);
                id.trim_ascii().eq_ignore_ascii_case(self.cdn_id.as_bytes())
            })
    }

    /// Appends our member to `Via` (of a request or response).
    pub fn add_via(&self, headers: &mut HeaderMap) {
        headers.append(VIA, self.via.clone());
    }
}

/// What may travel on: without hop-by-hop fields and those that `Connection` lists.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut out = headers.clone();
    for listed in elements(headers, CONNECTION) {
        if let Ok(name) = HeaderName::from_bytes(listed) {
            out.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        out.remove(name);
    }
    out
}

/// The head of a fill or revalidation: `Accept-Encoding: identity`, `User-Agent`, `Via`,
/// `CDN-Loop`, and `extra` (preconditions, `Range`). Of the client only the loop marks are taken.
/// `Host` is the caller's.
pub fn fill_request(client: &HeaderMap, me: &Identity, extra: &HeaderMap) -> HeaderMap {
    let mut out = extra.clone();
    out.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    out.insert(USER_AGENT, HeaderValue::from_static("cacheboy"));
    for mark in client.get_all(CDN_LOOP) {
        out.append(CDN_LOOP, mark.clone());
    }
    out.append(CDN_LOOP, me.cdn_id.clone());
    me.add_via(&mut out);
    out
}

/// The head of a client's request that is passed on for it alone: no hop-by-hop fields, no
/// `X-Forwarded-*` and the like, `Via` and `CDN-Loop` added. The request is a GET or HEAD without
/// content. `Host` is the caller's.
pub fn pass_request(client: &HeaderMap, me: &Identity) -> HeaderMap {
    let mut out = end_to_end(client);
    for name in CLAIMS.iter().chain(&[HOST, EXPECT, CONTENT_LENGTH]) {
        out.remove(name);
    }
    let forwarded: Vec<HeaderName> =
        out.keys().filter(|n| n.as_str().starts_with("x-forwarded-")).cloned().collect();
    for name in forwarded {
        out.remove(name);
    }
    out.append(CDN_LOOP, me.cdn_id.clone());
    me.add_via(&mut out);
    out
}

/// The head of a reply that is passed on and not kept: end-to-end fields and `Via`; the caller adds
/// `Cache-Status`.
pub fn pass_response(upstream: &HeaderMap, me: &Identity) -> HeaderMap {
    let mut out = end_to_end(upstream);
    me.add_via(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    fn me() -> Identity {
        Identity::new(&"edge1".parse().unwrap())
    }

    const CLIENT: &[(&str, &str)] = &[
        ("host", "download.example"),
        ("connection", "close, X-Secret"),
        ("x-secret", "1"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("user-agent", "curl"),
        ("accept-encoding", "gzip"),
        ("cookie", "a=b"),
        ("x-forwarded-for", "192.0.2.1"),
        ("X-Forwarded-Host", "evil.example"),
        ("forwarded", "for=192.0.2.1"),
        ("x-original-url", "/admin"),
        ("expect", "100-continue"),
        ("content-length", "0"),
        ("range", "bytes=0-1"),
        ("cdn-loop", "other.example; v=1"),
        ("via", "1.0 proxy"),
    ];

    #[test]
    fn nothing_of_a_client_shapes_a_fill() {
        let got = fill_request(&fields(CLIENT), &me(), &fields(&[("if-match", "\"a\"")]));
        let want = fields(&[
            ("if-match", "\"a\""),
            ("accept-encoding", "identity"),
            ("user-agent", "cacheboy"),
            ("cdn-loop", "other.example; v=1"),
            ("cdn-loop", "cacheboy-edge1"),
            ("via", "1.1 edge1"),
        ]);
        assert_eq!(got, want);
    }

    #[test]
    fn what_is_passed_on_is_cleaned() {
        let got = pass_request(&fields(CLIENT), &me());
        let want = fields(&[
            ("user-agent", "curl"),
            ("accept-encoding", "gzip"),
            ("cookie", "a=b"),
            ("range", "bytes=0-1"),
            ("cdn-loop", "other.example; v=1"),
            ("cdn-loop", "cacheboy-edge1"),
            ("via", "1.0 proxy"),
            ("via", "1.1 edge1"),
        ]);
        assert_eq!(got, want);
        let reply = fields(&[("connection", "x-hop"), ("x-hop", "1"), ("etag", "\"a\"")]);
        let want = fields(&[("etag", "\"a\""), ("via", "1.1 edge1")]);
        assert_eq!(pass_response(&reply, &me()), want);
    }

    #[test]
    fn loops_are_seen() {
        for (value, want) in [
            ("cacheboy-edge1", true),
            ("CacheBoy-Edge1;x=1", true),
            ("other.example, cacheboy-edge1", true),
            ("cacheboy-edge2", false),
            ("other.example; id=\"cacheboy-edge1\"", false),
            ("", false),
        ] {
            assert_eq!(me().in_loop(&fields(&[("cdn-loop", value)])), want, "{value}");
        }
        assert!(me().in_loop(&fields(&[("cdn-loop", &"a".repeat(1025))])));
        assert!(!me().in_loop(&HeaderMap::new()));
        // Our own fill would be recognised.
        assert!(me().in_loop(&fill_request(&HeaderMap::new(), &me(), &HeaderMap::new())));
    }
}
