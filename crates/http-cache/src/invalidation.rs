//! What an answer to an unsafe method makes doubtful (RFC 9111 section 4.4): the target, and what
//! `Location` and `Content-Location` name on the same host. A fixed number of keys, whatever is held.

use http::header::{CONTENT_LOCATION, HeaderName, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::directives::ResponseDirectives;
use crate::fields::single;
use crate::reply::Reply;
use crate::storable::is_explicit;
use crate::target::Target;

/// The targets whose stored answers must not be used any more once a master answered `method` with
/// this head. None for a safe method or an error. `host`: what the request named, its port included.
pub fn invalidated(
    method: &Method,
    target: &Target,
    host: &str,
    status: StatusCode,
    headers: &HeaderMap,
) -> Vec<Target> {
    if method.is_safe() || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let named = |name: HeaderName| reference(target, host, single(headers, name)?.to_str().ok()?);
    let mut targets = vec![target.clone()];
    targets.extend([LOCATION, CONTENT_LOCATION].into_iter().filter_map(named));
    targets
}

/// Whether the answer to a POST is what a GET of its target would bring: it says so in
/// `Content-Location`, and says how long that holds (RFC 9110 section 9.3.3).
pub fn answers_get(method: &Method, target: &Target, host: &str, reply: &Reply<'_>) -> bool {
    let named = || single(reply.headers, CONTENT_LOCATION)?.to_str().ok();
    *method == Method::POST
        && reply.status == StatusCode::OK
        && is_explicit(reply.headers, &ResponseDirectives::of(reply.headers))
        && named().and_then(|named| reference(target, host, named)).as_ref() == Some(target)
}

/// The target that a URI reference names, if it is one of this host (RFC 3986 section 5.2).
fn reference(base: &Target, host: &str, text: &str) -> Option<Target> {
    let text = text.split('#').next()?;
    let has_scheme = text.split(['/', '?']).next()?.contains(':');
    if has_scheme || text.starts_with("//") {
        let absolute = if has_scheme { text.to_owned() } else { format!("http:{text}") };
        let uri: Uri = absolute.parse().ok()?;
        let named = uri.authority()?.as_str();
        return if is_same(named, host) { Target::of(&uri).ok() } else { None };
    }
    let path = base.path();
    let merged = match text.as_bytes().first() {
        None => return Some(base.clone()),
        Some(b'/') => text.to_owned(),
        Some(b'?') => format!("{path}{text}"),
        Some(_) => format!("{}/{text}", path.rsplit_once('/')?.0),
    };
    Target::parse(merged.as_bytes()).ok()
}

/// Whether two authorities are one host; the port that a scheme has anyway says nothing.
fn is_same(a: &str, b: &str) -> bool {
    let bare = |host: &str| {
        let end = host.strip_suffix(":80").or_else(|| host.strip_suffix(":443"));
        end.unwrap_or(host).to_ascii_lowercase()
    };
    bare(a) == bare(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fields, reply};

    fn got(method: &str, status: u16, list: &[(&str, &str)]) -> Vec<String> {
        let target = Target::parse(b"/d/a?q").unwrap();
        let method: Method = method.parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        let targets = invalidated(&method, &target, "h.example", status, &fields(list));
        targets.iter().map(|t| t.as_str().to_owned()).collect()
    }

    #[test]
    fn unsafe_methods_that_succeed_invalidate_their_target() {
        for (method, status, hits) in [
            ("POST", 200, true),
            ("PUT", 201, true),
            ("DELETE", 204, true),
            ("PATCH", 303, true),
            ("M-SEARCH", 200, true),
            ("POST", 400, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("OPTIONS", 200, false),
        ] {
            let want: &[&str] = if hits { &["/d/a?q"] } else { &[] };
            assert_eq!(got(method, status, &[]), want, "{method} {status}");
        }
    }

    #[test]
    fn an_answer_to_post_that_says_it_is_the_target() {
        let target = Target::parse(b"/d/a?q").unwrap();
        let of = |method: &str, status: u16, list: &[(&str, &str)]| {
            let headers = fields(list);
            answers_get(&method.parse().unwrap(), &target, "h.example", &reply(status, &headers))
        };
        let (here, fresh) = (("content-location", "a?q"), ("cache-control", "max-age=60"));
        assert!(of("POST", 200, &[here, fresh]));
        assert!(of("POST", 200, &[("content-location", "http://h.example/d/a?q"), fresh]));
        assert!(!of("POST", 200, &[here]));
        assert!(!of("POST", 200, &[fresh]));
        assert!(!of("POST", 200, &[("content-location", "/b"), fresh]));
        assert!(!of("POST", 201, &[here, fresh]));
        assert!(!of("PUT", 200, &[here, fresh]));
    }

    #[test]
    fn what_is_named_on_the_same_host_goes_too() {
        for (named, want) in [
            ("/b", Some("/b")),
            ("b?x", Some("/d/b?x")),
            ("../b#c", Some("/b")),
            ("?y", Some("/d/a?y")),
            ("", Some("/d/a?q")),
            ("http://h.example/b", Some("/b")),
            ("https://H.example:443/b", Some("/b")),
            ("//h.example/b", Some("/b")),
            ("http://other.example/b", None),
            ("//other.example/b", None),
            ("http://h.example:8080/b", None),
            ("http://h.example@other.example/b", None),
            ("mailto:a@h.example", None),
            ("/%zz", None),
        ] {
            let found = got("POST", 201, &[("location", named)]);
            assert_eq!(found.get(1).map(String::as_str), want, "{named}");
        }
        let both = [("location", "/b"), ("content-location", "/c")];
        assert_eq!(got("POST", 201, &both), ["/d/a?q", "/b", "/c"]);
        assert_eq!(got("POST", 201, &[("location", "/b"), ("location", "/c")]), ["/d/a?q"]);
    }
}
