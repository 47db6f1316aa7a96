//! Lines of access logs, read for reports: Squid's native format and our JSON, mixed as they come.
//!
//! Order of use: [`Lines`] cuts what was read from files into lines -> [`line`] says what is in one.
//! Texts point into the line. What is not a line of a log is a [`Fault`], never more.
//!
//! Of Squid's both kinds are read, with the AS as last field and
//! without; of JSON any order of keys, and keys that nobody here knows.

mod json;
mod lines;
mod squid;

use std::borrow::Cow;

use crate::Way;

pub use lines::{LINE_BYTES_MAX, Lines};

/// What a line of a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Of an answer that has ended.
    Access(Access<'a>),
    /// Of a connection that has ended.
    Connection(Connection<'a>),
}

/// What reports want of an answer. Texts are as the log has them, bytes of any kind; empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access<'a> {
    /// When it ended, milliseconds since 1970 UTC.
    pub ended_ms: u64,
    /// Address of the client, usually truncated.
    pub client: Cow<'a, [u8]>,
    /// Digits of its AS number.
    pub asn: Cow<'a, [u8]>,
    /// Code of its country; Squid's lines have none.
    pub country: Cow<'a, [u8]>,
    /// The project; empty when the request named none of ours. Squid's lines do not say: `None`.
    pub project: Option<Cow<'a, [u8]>>,
    /// The host that was named, with its port if it named one.
    pub host: Cow<'a, [u8]>,
    /// The node that answered; Squid's lines have none.
    pub node: Cow<'a, [u8]>,
    /// Bytes of content.
    pub bytes: u64,
    /// The pool to which the client belongs when the node is not in it; empty when it is, `None` when
    /// the line does not say.
    pub missteered: Option<Cow<'a, [u8]>>,
    /// The word of the limit that held it back or refused it.
    pub limit: Cow<'a, [u8]>,
    /// Whether it was the health page: no traffic of a project.
    pub is_health: bool,
}

/// What reports want of a connection. Texts as in [`Access`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection<'a> {
    /// When it ended, milliseconds since 1970 UTC.
    pub ended_ms: u64,
    /// Digits of the client's AS number.
    pub asn: Cow<'a, [u8]>,
    /// Code of its country.
    pub country: Cow<'a, [u8]>,
    /// The node.
    pub node: Cow<'a, [u8]>,
    /// What was measured.
    pub way: Way,
}

/// Why a line was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It goes on and on.
    #[error("longer than 1 MiB")]
    TooLong,
    /// Something is missing.
    #[error("not the fields of Squid's native format")]
    Fields,
    /// No time at its start.
    #[error("does not begin with a time, seconds.milliseconds")]
    Time,
    /// No number of bytes.
    #[error("its fifth field is no number of bytes")]
    Bytes,
    /// Not JSON, or not one object.
    #[error("not one JSON object")]
    Json,
    /// JSON, but not of an access or a connection.
    #[error("JSON without the keys of an access or a connection")]
    Keys,
}

/// What a line says; `bytes` without its end.
///
/// # Errors
/// It is no line of an access log.
pub fn line(bytes: &[u8]) -> Result<Line<'_>, Fault> {
    match bytes.first() {
        Some(b'{') => json::line(bytes),
        _ => squid::line(bytes).map(Line::Access),
    }
}

/// A whole number in decimal digits, at least one, and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The digits of `AS7545` or `7545`; nothing for AS 0, which means unknown, and for what is none.
fn asn_digits(text: &[u8]) -> &[u8] {
    let digits = text.strip_prefix(b"AS").unwrap_or(text);
    match number(digits) {
        Some(1..=0xffff_ffff) if digits.first() != Some(&b'0') => digits,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_that_fit() {
        for (text, value) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("1 ", None),
            ("1.0", None),
        ] {
            assert_eq!(number(text.as_bytes()), value, "{text}");
        }
        for (text, digits) in [
            ("AS7545", "7545"),
            ("7545", "7545"),
            ("AS4294967295", "4294967295"),
            ("AS4294967296", ""),
            ("AS0", ""),
            ("AS007", ""),
            ("AS", ""),
            ("-", ""),
            ("text/plain", ""),
        ] {
            assert_eq!(asn_digits(text.as_bytes()), digits.as_bytes(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_line_or_a_fault(bytes: Vec<u8>) {
            let _ = line(&bytes);
            let _ = line(&[b"{".as_slice(), &bytes].concat());
        }
    }
}
