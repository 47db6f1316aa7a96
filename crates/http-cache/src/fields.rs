//! Small readers of field values, shared by the modules that know what the fields mean.

use std::time::{Duration, SystemTime};

use http::header::{AsHeaderName, HeaderName};
use http::{HeaderMap, HeaderValue};

/// Larger numbers of seconds are taken as this one (RFC 9111 section 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// The value of a field that stands exactly once.
pub(crate) fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// The elements of a comma-separated list over all lines of a field, trimmed, empty ones left out
/// (RFC 9110 section 5.6.1). Commas in quoted strings do not separate; a quote that is not closed
/// ends with its line.
pub fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> + use<'_> {
    headers.get_all(name).iter().flat_map(|line| Elements { rest: line.as_bytes() })
}

struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = comma_outside_quotes(self.rest);
            let (element, after) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
            self.rest = after.get(1..).unwrap_or(&[]);
            let element = element.trim_ascii();
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

fn comma_outside_quotes(line: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (i, byte) in line.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return i,
            _ => {}
        }
    }
    line.len()
}

/// Takes the quotes off a quoted string; other values stay as they are.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value)
}

/// delta-seconds: digits only, large values clamped.
pub(crate) fn seconds(value: &[u8]) -> Option<u64> {
    digits(value).map(|n| n.min(SECONDS_MAX))
}

/// A run of digits as a number; what is too large for 64 bits saturates.
pub(crate) fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        value.iter().fold(0u64, |n, d| {
            n.saturating_mul(10).saturating_add(u64::from(d.saturating_sub(b'0')))
        }),
    )
}

/// Adds a member to a list: in the place that is kept for it, which is an empty line, or behind the
/// others.
pub(crate) fn add_member(headers: &mut HeaderMap, name: HeaderName, member: HeaderValue) {
    match headers.get_mut(&name) {
        Some(place) if place.is_empty() => *place = member,
        _ => {
            headers.append(name, member);
        }
    }
}

/// A number as a field value.
pub(crate) fn number(n: u64) -> HeaderValue {
    let mut line = Line::default();
    line.push_number(n);
    line.value()
}

/// A short field value being written: on the stack, so that in the end it is one allocation.
pub(crate) struct Line {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; Self::BYTES_MAX], len: 0 }
    }
}

impl Line {
    /// Longest value; what is more is cut off.
    pub(crate) const BYTES_MAX: usize = 256;
    /// Digits of the largest number.
    const DIGITS_MAX: usize = 20;

    /// Appends text.
    pub(crate) fn push(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    fn push_bytes(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = text.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..len), text.get(..len)) {
            to.copy_from_slice(from);
        }
        self.len = self.len.saturating_add(len);
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, mut n: u64) {
        let mut digits = [b'0'; Self::DIGITS_MAX];
        let mut first = Self::DIGITS_MAX;
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.saturating_add(u8::try_from(n % 10).unwrap_or(0));
            first = first.saturating_sub(1);
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.push_bytes(digits.get(first..).unwrap_or_default());
    }

    /// The value; only printable ASCII is to be written, so this cannot fail.
    pub(crate) fn value(&self) -> HeaderValue {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        HeaderValue::from_bytes(bytes).unwrap_or(HeaderValue::from_static("cacheboy"))
    }
}

/// An HTTP date in any of its three forms, as unix time in seconds.
pub(crate) fn date_s(value: &HeaderValue) -> Option<u64> {
    let date = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    date.duration_since(SystemTime::UNIX_EPOCH).ok().map(|d| d.as_secs())
}

/// A unix time in seconds as a field value.
pub(crate) fn date_value(unix_s: u64) -> Option<HeaderValue> {
    // The calendar of the date printer ends with the year 9999.
    let unix_s = unix_s.min(253_402_300_799);
    let date = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(unix_s))?;
    HeaderValue::from_str(&httpdate::fmt_http_date(date)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{CACHE_CONTROL, DATE};

    #[test]
    fn lists_split_at_commas_outside_quotes() {
        let mut headers = HeaderMap::new();
        headers.append(CACHE_CONTROL, HeaderValue::from_static(r#" a ,, b="x,y\",z" ,c"#));
        headers.append(CACHE_CONTROL, HeaderValue::from_static(r#"d="open, e"#));
        headers.append(CACHE_CONTROL, HeaderValue::from_static("f"));
        let got: Vec<_> = elements(&headers, CACHE_CONTROL).collect();
        let want: [&[u8]; 5] = [b"a", br#"b="x,y\",z""#, b"c", br#"d="open, e"#, b"f"];
        assert_eq!(got, want);
    }

    #[test]
    fn numbers_are_digits_only_and_never_wrap() {
        for (text, want) in [
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("2147483648", Some(1 << 31)),
            ("99999999999999999999999999", Some(1 << 31)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("3600.0", None),
            (" 1", None),
            ("1a", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), want, "{text}");
        }
        assert_eq!(digits(b"18446744073709551616"), Some(u64::MAX));
    }

    #[test]
    fn numbers_are_printed() {
        for n in [0, 1, 9, 10, 99, 100, 18_446, u64::MAX] {
            assert_eq!(number(n), n.to_string().as_str());
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_off() {
        let mut line = Line::default();
        line.push(&"a".repeat(Line::BYTES_MAX - 1));
        line.push_number(42);
        line.push("b");
        let want = format!("{}4", "a".repeat(Line::BYTES_MAX - 1));
        assert_eq!(line.value(), want.as_str());
    }

    #[test]
    fn dates_read_in_three_forms_and_print_in_one() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(date_s(&HeaderValue::from_static(text)), Some(784_111_777), "{text}");
        }
        assert_eq!(date_value(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date_value(u64::MAX).unwrap(), "Fri, 31 Dec 9999 23:59:59 GMT");
        for text in ["0", "-1", "", "Sun, 06 Nov 1994 08:49:37 CET"] {
            assert_eq!(date_s(&HeaderValue::from_static(text)), None, "{text}");
        }
    }

    #[test]
    fn a_field_that_stands_twice_is_not_single() {
        let mut headers = HeaderMap::new();
        assert_eq!(single(&headers, DATE), None);
        headers.append(DATE, HeaderValue::from_static("x"));
        assert_eq!(single(&headers, DATE).unwrap(), "x");
        headers.append(DATE, HeaderValue::from_static("x"));
        assert_eq!(single(&headers, DATE), None);
    }
}
