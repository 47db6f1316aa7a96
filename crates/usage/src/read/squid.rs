//! Squid's native format: `time elapsed client code/status bytes method URL rfc931 hierarchy/peer type`,
//! and after it, as the first Cacheboy logged it, the client's AS number. The code `NONE` is that of the
//! health page, and of what Squid answered without having been asked for anything.

use std::borrow::Cow;

use super::{Access, Fault, asn_digits, number};

/// Reads a line.
pub(super) fn line(line: &[u8]) -> Result<Access<'_>, Fault> {
    let mut fields = Fields(line);
    let ended_ms = fields.next().and_then(milliseconds).ok_or(Fault::Time)?;
    let mut field = || fields.next().ok_or(Fault::Fields);
    let (_elapsed, client, code) = (field()?, field()?, field()?);
    if !code.contains(&b'/') {
        return Err(Fault::Fields);
    }
    let bytes = number(field()?).ok_or(Fault::Bytes)?;
    let (_method, url) = (field()?, field()?);
    let (_user, _hierarchy, _media_type) = (field()?, field()?, field()?);
    // Of whatever others have put between, the AS is the last.
    let asn = fields.last().map_or(&[][..], asn_digits);
    Ok(Access {
        ended_ms,
        client: Cow::Borrowed(client),
        asn: Cow::Borrowed(asn),
        host: Cow::Borrowed(host_of(url)),
        bytes,
        is_health: code.starts_with(b"NONE/"),
        ..Access::default()
    })
}

/// What stands between runs of spaces.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return None;
        }
        // Most fields are shorter than what a vectorised search pays off for.
        let end = self.0.iter().position(|byte| *byte == b' ').unwrap_or(self.0.len());
        let (field, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        Some(field)
    }
}

/// `1244332800.123`, or whole seconds, in milliseconds.
fn milliseconds(time: &[u8]) -> Option<u64> {
    let (seconds, part) = match time.iter().position(|byte| *byte == b'.') {
        Some(point) => (time.get(..point)?, time.get(point.checked_add(1)?..)?),
        None => (time, &b"000"[..]),
    };
    if part.len() != 3 {
        return None;
    }
    number(seconds)?.checked_mul(1000)?.checked_add(number(part)?)
}

/// The host of an absolute URL; of `CONNECT host:443` that; nothing of a path.
fn host_of(url: &[u8]) -> &[u8] {
    let slash = url.iter().position(|byte| *byte == b'/').unwrap_or(url.len());
    let rest = match url.split_at_checked(slash) {
        Some(([.., b':'], [b'/', b'/', rest @ ..])) => rest,
        _ => url,
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_lines_are_read() {
        let common = "1244332800.123    211 203.0.113.0 TCP_HIT/200 45637 GET \
                      http://download.example/vlc/a.exe - NONE/- application/x-msdownload";
        for (more, asn) in [
            ("", ""),
            (" AS17746", "17746"),
            (" AS0", ""),
            (" -", ""),
            (" charset=utf-8 AS1", "1"),
            ("  AS1  ", "1"),
        ] {
            let text = format!("{common}{more}");
            let wanted = Access {
                ended_ms: 1_244_332_800_123,
                client: Cow::Borrowed(b"203.0.113.0"),
                asn: Cow::Borrowed(asn.as_bytes()),
                host: Cow::Borrowed(b"download.example"),
                bytes: 45_637,
                ..Access::default()
            };
            assert_eq!(line(text.as_bytes()), Ok(wanted), "{more}");
        }
    }

    #[test]
    fn what_asked_for_nothing_is_told_apart() {
        let common = "1244332800.123 1 203.0.113.0 NONE/200 3 GET http://a/.well-known/cacheboy/health - NONE/- a/b AS1";
        assert!(line(common.as_bytes()).unwrap().is_health);
        assert!(!line(common.replacen("NONE", "TCP_NONE", 1).as_bytes()).unwrap().is_health);
    }

    #[test]
    fn what_is_no_such_line_says_why() {
        for (text, fault) in [
            ("", Fault::Time),
            ("today 1 a b/200 1 GET u - - t", Fault::Time),
            ("1244332800.1 1 a b/200 1 GET u - - t", Fault::Time),
            ("1244332800.1234 1 a b/200 1 GET u - - t", Fault::Time),
            ("99999999999999999999.123 1 a b/200 1 GET u - - t", Fault::Time),
            ("1244332800.123 1 a b/200 -1 GET u - - t", Fault::Bytes),
            ("1244332800.123 1 a b/200 1e3 GET u - - t", Fault::Bytes),
            ("1244332800.123 1 a b 1 GET u - - t", Fault::Fields),
            ("1244332800.123 1 a b/200 1 GET u - -", Fault::Fields),
            ("1244332800.123", Fault::Fields),
        ] {
            assert_eq!(line(text.as_bytes()), Err(fault), "{text}");
        }
    }

    #[test]
    fn hosts_of_urls() {
        for (url, host) in [
            ("http://a.example/b", "a.example"),
            ("https://a.example:8443?b", "a.example:8443"),
            ("http://[2001:db8::1]:80/", "[2001:db8::1]:80"),
            ("a.example:443", "a.example:443"),
            ("/path?u=http://b/", ""),
            ("http://", ""),
        ] {
            assert_eq!(host_of(url.as_bytes()), host.as_bytes(), "{url}");
        }
    }
}
