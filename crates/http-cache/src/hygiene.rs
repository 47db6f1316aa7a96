//! Which fields travel, and what we add to them (RFC 9110 sections 7.6.1 and 7.6.3, RFC 8586).
//!
//! A fill is asked for with fields of our own only: what a client sends beside the target is in no
//! key, so it must not shape what others get. Two kinds of fields are exceptions ([`Selecting`]):
//! those that the held answers vary by, which are in the key then, and those that the project names.
//! A request that is passed on for one client alone keeps its fields, except those that belong to the
//! connection and those by which a client could pretend to be somebody else.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST,
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderValue};
use model::Name;

use crate::fields::{add_member, elements};
use crate::status::item;
use crate::vary::Selecting;

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

/// Fields of a request that a fill has of its own or never has.
const OUR_OWN: [HeaderName; 12] = [
    HOST,
    EXPECT,
    CONTENT_LENGTH,
    RANGE,
    IF_RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    VIA,
    CDN_LOOP,
    TRAILER,
];

/// Fields that every client sends and that ask for nothing in particular.
const USUAL: [HeaderName; 4] = [USER_AGENT, ACCEPT_ENCODING, CACHE_CONTROL, PRAGMA];

/// Whether a fill may take the field from its client.
pub(crate) fn is_carried(name: &HeaderName) -> bool {
    !(OUR_OWN.contains(name) || HOP_BY_HOP.contains(name) || is_claim(name))
}

fn is_claim(name: &HeaderName) -> bool {
    CLAIMS.contains(name) || name.as_str().starts_with("x-forwarded-")
}

/// Whether a client's request says nothing that a fill which carries `selecting` does not say: the
/// answer to the fill is the answer to the client then, even if it is for one client alone.
pub fn asks_nothing_else(client: &HeaderMap, selecting: &Selecting) -> bool {
    client.iter().all(|(name, value)| {
        !is_carried(name)
            || selecting.has(name)
            || USUAL.contains(name)
            || (*name == ACCEPT && value == "*/*")
    })
}

/// How a node names itself in `Via`, `CDN-Loop`, `Cache-Status` and `Proxy-Status`.
#[derive(Clone, Debug)]
pub struct Identity {
    node: Name,
    item: String,
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
            item: item(node.as_str()),
            via: value(format!("1.1 {node}")),
            cdn_id: value(format!("cacheboy-{node}")),
        }
    }

    /// The node's name.
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// The name as an item of structured fields.
    pub(crate) fn item(&self) -> &str {
        &self.item
    }

    /// Whether `CDN-Loop` of a request names us, or cannot be ours: answer 508 (RFC 8586
    /// section 2). Parents are other nodes, so no right way leads through one node twice.
    pub fn in_loop(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(CDN_LOOP) {
            return false;
        }
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
        add_member(headers, VIA, self.via.clone());
    }
}

/// What may travel on: without hop-by-hop fields and those that `Connection` lists. The loop marks
/// stay even then (RFC 8586 section 2.1): who lists them wants a loop.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut out = headers.clone();
    for listed in elements(headers, CONNECTION) {
        match HeaderName::from_bytes(listed) {
            Ok(name) if name != CDN_LOOP => {
                out.remove(name);
            }
            _ => {}
        }
    }
    for name in &HOP_BY_HOP {
        out.remove(name);
    }
    out
}

/// The head of a fill or revalidation: the fields `selecting`; `Accept-Encoding: identity` and
/// `User-Agent` where it has none; `Via`, `CDN-Loop`, and `extra` (preconditions, `Range`). Of the
/// client only the loop marks are taken besides. `Host` is the caller's.
pub fn fill_request(
    client: &HeaderMap,
    me: &Identity,
    selecting: &Selecting,
    extra: &HeaderMap,
) -> HeaderMap {
    let mut out = selecting.values().clone();
    for (name, value) in extra {
        out.append(name, value.clone());
    }
    for (name, value) in [(ACCEPT_ENCODING, "identity"), (USER_AGENT, "cacheboy")] {
        if !selecting.has(&name) {
            out.insert(name, HeaderValue::from_static(value));
        }
    }
    for mark in client.get_all(CDN_LOOP) {
        out.append(CDN_LOOP, mark.clone());
    }
    out.append(CDN_LOOP, me.cdn_id.clone());
    me.add_via(&mut out);
    out
}

/// The head of a client's request that is passed on for it alone: no hop-by-hop fields, no
/// `X-Forwarded-*` and the like, no trailers, `Via` and `CDN-Loop` added. `Host`, and the length of
/// its content if it has any, are the caller's.
pub fn pass_request(client: &HeaderMap, me: &Identity) -> HeaderMap {
    let mut out = end_to_end(client);
    let claims: Vec<HeaderName> = out.keys().filter(|name| is_claim(name)).cloned().collect();
    for name in claims.iter().chain(&[HOST, EXPECT, CONTENT_LENGTH, TRAILER]) {
        out.remove(name);
    }
    out.append(CDN_LOOP, me.cdn_id.clone());
    me.add_via(&mut out);
    out
}

/// The head of a reply that is passed on and not kept: end-to-end fields and `Via`; the caller adds
/// `Cache-Status`. Trailers are not passed on, so none are announced (RFC 9110 section 6.5).
pub fn pass_response(upstream: &HeaderMap, me: &Identity) -> HeaderMap {
    let mut out = end_to_end(upstream);
    out.remove(TRAILER);
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
        let extra = fields(&[("if-match", "\"a\"")]);
        let got = fill_request(&fields(CLIENT), &me(), &Selecting::default(), &extra);
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
    fn a_fill_carries_what_selects_in_the_place_of_our_own() {
        let names = ["cookie", "accept-encoding", "user-agent", "range", "x-forwarded-for", "te"];
        let names: Vec<HeaderName> = names.iter().map(|n| n.parse().unwrap()).collect();
        let mut client = fields(CLIENT);
        client.remove(USER_AGENT);
        let selecting = Selecting::of(&names, &client);
        let got = fill_request(&client, &me(), &selecting, &fields(&[("range", "bytes=5-")]));
        let want = fields(&[
            ("cookie", "a=b"),
            ("accept-encoding", "gzip"),
            ("range", "bytes=5-"),
            ("cdn-loop", "other.example; v=1"),
            ("cdn-loop", "cacheboy-edge1"),
            ("via", "1.1 edge1"),
        ]);
        assert_eq!(got, want);
    }

    #[test]
    fn who_asks_nothing_that_a_fill_does_not_ask() {
        let carried = Selecting::of(&["x-mine".parse().unwrap()], &HeaderMap::new());
        for (list, want) in [
            (&[][..], true),
            (&[("host", "a"), ("user-agent", "curl"), ("accept", "*/*")][..], true),
            (&[("accept-encoding", "gzip"), ("range", "bytes=0-"), ("if-none-match", "*")], true),
            (&[("x-forwarded-for", "192.0.2.1"), ("connection", "close"), ("x-mine", "1")], true),
            (&[("accept", "image/png")], false),
            (&[("accept-language", "de")], false),
            (&[("cookie", "a=b")], false),
            (&[("x-other", "1")], false),
        ] {
            assert_eq!(asks_nothing_else(&fields(list), &carried), want, "{list:?}");
        }
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
        let reply = fields(&[
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("etag", "\"a\""),
            ("trailer", "x-checksum"),
        ]);
        let want = fields(&[("etag", "\"a\""), ("via", "1.1 edge1")]);
        assert_eq!(pass_response(&reply, &me()), want);
    }

    #[test]
    fn connection_does_not_take_loop_marks_off() {
        let client =
            fields(&[("connection", "cdn-loop, x-a, via"), ("cdn-loop", "a"), ("x-a", "1")]);
        let want = [("cdn-loop", "a"), ("cdn-loop", "cacheboy-edge1"), ("via", "1.1 edge1")];
        assert_eq!(pass_request(&client, &me()), fields(&want));
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
        let none = HeaderMap::new();
        assert!(me().in_loop(&fill_request(&none, &me(), &Selecting::default(), &none)));
    }
}
