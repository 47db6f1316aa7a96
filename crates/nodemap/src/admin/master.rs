//! The URL and `Host` of a master, and where a node's admin listener is.

use std::net::{Ipv4Addr, Ipv6Addr};

use model::HostName;

use crate::toml_read::Value;
use crate::words::clip;

/// How the URL of a master is written.
const URL: &str = "write http://HOST[:PORT][/PREFIX], or with https://";

/// `http://host[:port][/prefix]` or the same with `https://`, final slashes dropped (the prefix is put before paths that begin
/// with one).
pub(super) fn read_url(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let refuse = |why: &str, remedy: &str| {
        value.refuse(format!("{:?} {why}", clip(text)), remedy);
        None
    };
    let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
        return refuse("begins with neither http:// nor https://", URL);
    };
    let (authority, prefix) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    if authority.contains('@') {
        // What stands there may be a password: it is not repeated.
        value.refuse("carries a user name", "take out all between the // and the @");
        return None;
    }
    if !is_host_and_port(authority) {
        return refuse(
            "has no valid host and port",
            "write http://HOST[:PORT][/PREFIX] or https://..., the host as a name, an IPv4 address or an IPv6 \
             address in [brackets], the port from 1 to 65535",
        );
    }
    if !is_path(prefix) {
        return refuse(
            "has a prefix that is no plain path",
            "leave out ? and #, and write other characters than letters, digits and -._~!$&'()*+,;=:@ \
             as %XX",
        );
    }
    if prefix.split('/').any(|segment| segment == "." || segment == "..") {
        return refuse("has . or .. in its prefix", "write the path that is meant");
    }
    Some(format!("{scheme}://{authority}{}", prefix.trim_end_matches('/')))
}

/// `http://host[:port]`: where the admin listener of a node is reached, a final slash dropped.
pub(super) fn read_admin(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let address = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    if let Some(address) = address
        && is_host_and_port(address)
    {
        return Some(format!("http://{address}"));
    }
    let remedy = "write http://HOST[:PORT], for example \"http://127.0.0.1:9103\": admin listeners \
                  stand on loopback, so reach other hosts by a tunnel";
    // What stands before an @ may be a password: it is not repeated.
    let problem = match text.contains('@') {
        true => "carries a user name".to_owned(),
        false => format!("{:?} is not the address of an admin listener", clip(text)),
    };
    value.refuse(problem, remedy);
    None
}

/// A `Host` header: name or address, with or without port.
pub(super) fn read_host(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if is_host_and_port(text) {
        return Some(text.to_owned());
    }
    let remedy = "write HOST or HOST:PORT, for example \"download.videolan.example\"";
    value.refuse(format!("{:?} is not a Host", clip(text)), remedy);
    None
}

/// RFC 3986 `path-abempty`.
fn is_path(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&b);
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default();
    let escaped = |part: &str| {
        let hex = part.as_bytes().first_chunk::<2>();
        hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) && part.bytes().all(plain)
    };
    first.bytes().all(plain) && parts.all(escaped)
}

/// RFC 3986 `host [":" port]` without user and without empty port.
fn is_host_and_port(text: &str) -> bool {
    let (host_ok, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_host(host), port)
        }
    };
    let port_ok = match port.strip_prefix(':') {
        Some(digits) => {
            digits.bytes().all(|b| b.is_ascii_digit())
                && digits.parse::<u16>().is_ok_and(|port| port != 0)
        }
        None => port.is_empty(),
    };
    host_ok && port_ok
}

/// A DNS name, or an IPv4 address: what ends in a number must be one (RFC 1123 section 2.1).
fn is_host(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    !host.ends_with('.') && host.parse::<HostName>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for good in
            ["a", "m1.example", "m1.example:8080", "192.0.2.1:1", "[2001:db8::1]", "[::1]:65535"]
        {
            assert!(is_host_and_port(good), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a b",
            "[::1",
            "[::1]80",
            "::1",
            "192.0.2.256",
            "1.2",
            "a.",
            "a,b",
            "[a]:1",
        ] {
            assert!(!is_host_and_port(bad), "{bad}");
        }
    }

    #[test]
    fn paths() {
        for good in ["", "/", "/vlc", "/a%20b/c", "/a:@!$&'()*+,;=~"] {
            assert!(is_path(good), "{good}");
        }
        for bad in ["/a b", "/a?b", "/a#b", "/%", "/%2", "/%2g", "/a%zz", "/ä", "/\n"] {
            assert!(!is_path(bad), "{bad}");
        }
    }
}
