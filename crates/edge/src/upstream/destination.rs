//! Where a source of content is and how it is spoken to: from its URL in the node map.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A name that is looked up for each connection.
    Name(String, u16),
    /// These, in this order.
    Addresses(Vec<SocketAddr>),
}

/// A source of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// For people.
    pub(crate) url: String,
    pub(crate) place: Place,
    /// `Host` of requests.
    pub(crate) host: HeaderValue,
    /// The name that its certificate must have; `None`: plain HTTP.
    pub(crate) tls: Option<ServerName<'static>>,
    /// Put before each target; empty, or with a slash before and none behind.
    pub(crate) prefix: String,
}

impl Destination {
    /// From the URL of a master, and the host that it is to be asked for instead of the URL's.
    /// `None` when it cannot be asked.
    pub(crate) fn of_url(url: &str, host: Option<&str>) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        let name = bare(authority.host());
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = host.unwrap_or(authority.as_str());
        let tls = if is_tls { Some(server_name(host)?) } else { None };
        let place = match name.parse::<IpAddr>() {
            Ok(address) => Place::Addresses(vec![SocketAddr::new(address, port)]),
            Err(_) => Place::Name(name.to_owned(), port),
        };
        Some(Self {
            url: url.trim_end_matches('/').to_owned(),
            place,
            host: HeaderValue::from_str(host).ok()?,
            tls,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The path and query to ask for.
    pub(crate) fn path_of(&self, target: &str) -> Option<Uri> {
        if self.prefix.is_empty() {
            return target.parse().ok();
        }
        format!("{}{target}", self.prefix).parse().ok()
    }
}

/// A host of a URL without the brackets of IPv6.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

/// The name of a `Host` value that a certificate must have.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let authority: http::uri::Authority = host.parse().ok()?;
    ServerName::try_from(bare(authority.host()).to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_to_connect_and_whom_to_ask_for() {
        let name = |n: &str, port| Place::Name(n.to_owned(), port);
        let address = |a: &str| Place::Addresses(vec![a.parse().unwrap()]);
        for (url, host, place, asked, tls, path) in [
            ("http://m.example", None, name("m.example", 80), "m.example", None, "/a?b"),
            (
                "http://m.example:81/x/y/",
                None,
                name("m.example", 81),
                "m.example:81",
                None,
                "/x/y/a?b",
            ),
            (
                "http://192.0.2.1:8/",
                Some("d.example"),
                address("192.0.2.1:8"),
                "d.example",
                None,
                "/a?b",
            ),
            (
                "https://m.example/v",
                None,
                name("m.example", 443),
                "m.example",
                Some("m.example"),
                "/v/a?b",
            ),
            (
                "https://m.example:8443",
                Some("d.example:1"),
                name("m.example", 8443),
                "d.example:1",
                Some("d.example"),
                "/a?b",
            ),
            (
                "https://[2001:db8::1]",
                None,
                address("[2001:db8::1]:443"),
                "[2001:db8::1]",
                Some("2001:db8::1"),
                "/a?b",
            ),
        ] {
            let found = Destination::of_url(url, host).unwrap();
            assert_eq!(found.place, place, "{url}");
            assert_eq!(found.host, asked, "{url}");
            let name = tls.map(|t| ServerName::try_from(t).unwrap());
            assert_eq!(found.tls, name, "{url}");
            assert_eq!(found.path_of("/a?b").unwrap(), path, "{url}");
        }
        for url in ["ftp://m.example", "m.example", "", "https://"] {
            assert_eq!(Destination::of_url(url, None), None, "{url}");
        }
    }
}
