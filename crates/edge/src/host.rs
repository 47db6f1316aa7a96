//! The host that a request names (RFC 9112 section 3.2).

use std::net::Ipv6Addr;

use http::uri::Scheme;
use http::{HeaderMap, Uri, Version, header};

/// The host asked for, with its port if it names one: of the target in absolute form, else of the
/// `Host` field. `None` when the request is to be refused (400): a request has exactly one `Host`,
/// even where the target names the host, and both are right. HTTP/1.0 may have none, the host is then
/// empty; from HTTP/2 on the target is enough.
pub(crate) fn host_of<'a>(
    version: Version,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Option<&'a str> {
    let mut fields = headers.get_all(header::HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(field), None) => field.to_str().ok().filter(|host| is_host(host))?,
        (None, None) if version < Version::HTTP_11 => "",
        // HTTP/2 and HTTP/3 name it as a part of the target (RFC 9113 section 8.3.1).
        (None, None) if version > Version::HTTP_11 && uri.authority().is_some() => "",
        _ => return None,
    };
    if uri.scheme().is_some_and(|s| *s != Scheme::HTTP && *s != Scheme::HTTPS) {
        return None;
    }
    match uri.authority() {
        Some(authority) => Some(authority.as_str()).filter(|host| is_host(host)),
        None => Some(field),
    }
}

/// The port of a host asked for, with its colon; empty when it names none.
pub(crate) fn port_of(host: &str) -> &str {
    let name = without_port(host);
    host.get(name.len()..).filter(|port| port.len() > 1).unwrap_or_default()
}

/// A host asked for without its port.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

/// Whether a text is `host [":" port]` (RFC 3986 section 3.2.2) and not empty.
fn is_host(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
        return address.parse::<Ipv6Addr>().is_ok() && port.is_some_and(is_port);
    }
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    !name.is_empty() && is_name(name) && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && (text.is_empty() || text.parse::<u16>().is_ok())
}

fn is_name(name: &str) -> bool {
    // Nearly all; without a way out in the middle many bytes are looked at together.
    let is_plain = |b: u8| b.is_ascii_alphanumeric() | (b == b'-') | (b == b'.');
    if name.bytes().fold(true, |all, b| all & is_plain(b)) {
        return true;
    }
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        let good = match byte {
            b'%' => [bytes.next(), bytes.next()]
                .iter()
                .all(|b| b.is_some_and(|b| b.is_ascii_hexdigit())),
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&'..=b',' | b';' | b'=' => true,
            b => b.is_ascii_alphanumeric(),
        };
        if !good {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn ports_are_not_part_of_a_name() {
        for (host, name, port) in [
            ("a.example", "a.example", ""),
            ("a.example:8080", "a.example", ":8080"),
            ("a.example:", "a.example", ""),
            ("[2001:db8::1]:80", "[2001:db8::1]", ":80"),
            ("127.0.0.1:1", "127.0.0.1", ":1"),
            (":80", ":80", ""),
        ] {
            assert_eq!((without_port(host), port_of(host)), (name, port));
        }
    }

    #[test]
    fn one_good_host_however_the_target_is_written() {
        let (v2, v11, v10) = (Version::HTTP_2, Version::HTTP_11, Version::HTTP_10);
        for (version, target, fields, want) in [
            (v11, "/a", &["a.example"][..], Some("a.example")),
            (v11, "/a", &["A.example:8080"], Some("A.example:8080")),
            (v11, "/a", &["a.example:"], Some("a.example:")),
            (v11, "/a", &["192.0.2.1:80"], Some("192.0.2.1:80")),
            (v11, "/a", &["[2001:db8::1]"], Some("[2001:db8::1]")),
            (v11, "/a", &["[2001:db8::1]:80"], Some("[2001:db8::1]:80")),
            (v11, "/a", &["a_b.example"], Some("a_b.example")),
            (v11, "/a", &["a%2db.example"], Some("a%2db.example")),
            (v11, "/a", &[], None),
            (v10, "/a", &[], Some("")),
            (v11, "/a", &["a.example", "a.example"], None),
            (v10, "/a", &["a.example", "b.example"], None),
            (v11, "/a", &[""], None),
            (v10, "/a", &[""], None),
            (v11, "/a", &["a b"], None),
            (v11, "/a", &["u@h"], None),
            (v11, "/a", &["[::1"], None),
            (v11, "/a", &["[::g]"], None),
            (v11, "/a", &["[::1]x"], None),
            (v11, "/a", &["[::1]:x"], None),
            (v11, "/a", &["h:x"], None),
            (v11, "/a", &["h:1:2"], None),
            (v11, "/a", &["h:65536"], None),
            (v11, "/a", &[":80"], None),
            (v11, "/a", &["h/../"], None),
            (v11, "/a", &["h?"], None),
            (v11, "/a", &["a%2"], None),
            (v11, "/a", &["a.example, b.example"], None),
            (v11, "http://a.example/a", &["b.example"], Some("a.example")),
            (v11, "https://a.example:1/a", &["b.example"], Some("a.example:1")),
            (v10, "http://a.example/a", &[], Some("a.example")),
            (v11, "http://a.example/a", &[], None),
            (v11, "http://a.example/a", &["a.example", "a.example"], None),
            (v11, "http://a.example/a", &["a b"], None),
            (v2, "https://a.example/a", &[], Some("a.example")),
            (v2, "/a", &["a.example"], Some("a.example")),
            (v2, "/a", &[], None),
            (v11, "http://u@a.example/a", &["a.example"], None),
            (v11, "ftp://a.example/a", &["a.example"], None),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(header::HOST, HeaderValue::from_static(field));
            }
            let uri: Uri = target.parse().unwrap();
            assert_eq!(host_of(version, &uri, &headers), want, "{target} {fields:?}");
        }
    }
}
