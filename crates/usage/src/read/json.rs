//! Our JSON lines: one flat object a line, whose keys are the fields of [`crate::Record`], or with
//! `"kind":"connection"` those of [`crate::Way`].
//!
//! Two readers of one meaning: a scanner that goes over a flat object once and copies nothing, and for
//! whatever is not plain (escapes in a text that is wanted, nested values) `serde_json`. Keys may come
//! in any order.

use std::borrow::Cow;

use serde_json::Value;

use super::{Access, Connection, Fault, Line, asn_digits, number};
use crate::{Outcome, Way};

/// The values that reports want.
#[derive(Default)]
struct Values<'a> {
    is_connection: bool,
    is_health: bool,
    ended_ms: Option<u64>,
    bytes: Option<u64>,
    client: Cow<'a, [u8]>,
    asn: Cow<'a, [u8]>,
    country: Cow<'a, [u8]>,
    project: Cow<'a, [u8]>,
    host: Cow<'a, [u8]>,
    node: Cow<'a, [u8]>,
    missteered: Option<Cow<'a, [u8]>>,
    limit: Cow<'a, [u8]>,
    acked_bytes: Option<u64>,
    sent_segments: Option<u64>,
    retransmitted_segments: Option<u64>,
    min_rtt_us: Option<u64>,
    delivery_rate: Option<u64>,
}

/// Reads a line.
pub(super) fn line(line: &[u8]) -> Result<Line<'_>, Fault> {
    let values = match scan(line) {
        Some(values) => values,
        None => parse(line)?,
    };
    values.line().ok_or(Fault::Keys)
}

impl<'a> Values<'a> {
    fn line(self) -> Option<Line<'a>> {
        let ended_ms = self.ended_ms?;
        Some(if self.is_connection {
            let way = Way {
                acked_bytes: self.acked_bytes?,
                sent_segments: self.sent_segments?,
                retransmitted_segments: self.retransmitted_segments?,
                min_rtt_us: self.min_rtt_us?,
                delivery_rate: self.delivery_rate?,
            };
            let Self { country, node, .. } = self;
            let asn = digits(self.asn);
            Line::Connection(Connection { ended_ms, asn, country, node, way })
        } else {
            Line::Access(Access {
                ended_ms,
                client: self.client,
                asn: digits(self.asn),
                country: self.country,
                project: Some(self.project),
                host: self.host,
                node: self.node,
                bytes: self.bytes?,
                missteered: self.missteered,
                limit: self.limit,
                is_health: self.is_health,
            })
        })
    }

    /// Takes note of what the line is about, if this key tells that.
    fn note_kind(&mut self, key: &[u8], text: &[u8]) {
        match key {
            b"kind" => self.is_connection = text == b"connection",
            b"outcome" => self.is_health = text == Outcome::Health.word().as_bytes(),
            _ => {}
        }
    }

    /// Where the number of this key is kept, if anybody wants it.
    fn number(&mut self, key: &[u8]) -> Option<&mut Option<u64>> {
        Some(match key {
            b"ended_ms" => &mut self.ended_ms,
            b"bytes" => &mut self.bytes,
            b"acked_bytes" => &mut self.acked_bytes,
            b"sent_segments" => &mut self.sent_segments,
            b"retransmitted_segments" => &mut self.retransmitted_segments,
            b"min_rtt_us" => &mut self.min_rtt_us,
            b"delivery_rate" => &mut self.delivery_rate,
            _ => return None,
        })
    }

    /// Where the text of this key is kept, if anybody wants it.
    fn text(&mut self, key: &[u8]) -> Option<&mut Cow<'a, [u8]>> {
        Some(match key {
            b"client" => &mut self.client,
            b"asn" => &mut self.asn,
            b"country" => &mut self.country,
            b"project" => &mut self.project,
            b"host" => &mut self.host,
            b"node" => &mut self.node,
            b"missteered" => self.missteered.get_or_insert_default(),
            b"limit" => &mut self.limit,
            _ => return None,
        })
    }
}

/// Goes over a flat object; nothing when it is not plain.
fn scan(line: &[u8]) -> Option<Values<'_>> {
    let mut values = Values::default();
    let mut rest = space(line.strip_prefix(b"{")?);
    loop {
        let quoted = rest.strip_prefix(b"\"")?;
        let (key, after) = quoted.split_at_checked(find(quoted, |byte| byte == b'"')?)?;
        if key.contains(&b'\\') {
            return None;
        }
        let value = space(space(after.get(1..)?).strip_prefix(b":")?);
        rest = match value.first()? {
            b'"' => {
                let value = value.get(1..)?;
                let (end, is_escaped) = end_of_text(value)?;
                let (text, after) = value.split_at_checked(end)?;
                values.note_kind(key, text);
                if let Some(place) = values.text(key) {
                    if is_escaped {
                        return None;
                    }
                    *place = Cow::Borrowed(text);
                }
                after.get(1..)?
            }
            b'{' | b'[' => return None,
            _ => {
                let (word, after) =
                    value.split_at_checked(find(value, |byte| matches!(byte, b',' | b'}'))?)?;
                let word = word.trim_ascii_end();
                if is_number(word) {
                    if key == b"asn" {
                        values.asn = Cow::Borrowed(word);
                    } else if let Some(place) = values.number(key) {
                        *place = number(word);
                    }
                } else if ![&b"null"[..], b"true", b"false"].contains(&word) {
                    return None;
                }
                after
            }
        };
        rest = space(rest);
        match rest.split_first()? {
            (b',', more) => rest = space(more),
            (b'}', more) => return more.trim_ascii().is_empty().then_some(values),
            _ => return None,
        }
    }
}

/// Where the first such byte is: near, mostly, so that a vectorised search does not pay off.
fn find(text: &[u8], is_meant: impl Fn(u8) -> bool) -> Option<usize> {
    text.iter().position(|byte| is_meant(*byte))
}

/// Without the white space at its start, of which our own lines have none.
fn space(text: &[u8]) -> &[u8] {
    match text.first() {
        Some(b' ' | b'\t') => text.trim_ascii_start(),
        _ => text,
    }
}

/// A whole number as JSON has it; others are rare enough for `serde_json`.
fn is_number(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_digit) && matches!(word, [b'1'..=b'9', ..] | b"0")
}

/// Where the text ends that began just before, and whether a part of it is escaped.
fn end_of_text(text: &[u8]) -> Option<(usize, bool)> {
    let (mut at, mut is_escaped) = (0usize, false);
    loop {
        let more = find(text.get(at..)?, |byte| matches!(byte, b'"' | b'\\'))?;
        let found = at.checked_add(more)?;
        if text.get(found) == Some(&b'"') {
            return Some((found, is_escaped));
        }
        is_escaped = true;
        at = found.checked_add(2)?;
    }
}

/// The same by `serde_json`.
fn parse(line: &[u8]) -> Result<Values<'static>, Fault> {
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return Err(Fault::Json) };
    let mut values = Values::default();
    for (key, value) in object {
        let key = key.as_bytes();
        match value {
            Value::String(text) => {
                values.note_kind(key, text.as_bytes());
                if let Some(place) = values.text(key) {
                    *place = Cow::Owned(text.into_bytes());
                }
            }
            Value::Number(n) if key == b"asn" => {
                values.asn = Cow::Owned(n.to_string().into_bytes());
            }
            Value::Number(n) => {
                if let Some(place) = values.number(key) {
                    *place = n.as_u64();
                }
            }
            _ => {}
        }
    }
    Ok(values)
}

/// The digits of an AS number.
fn digits(asn: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match asn {
        Cow::Borrowed(text) => Cow::Borrowed(asn_digits(text)),
        Cow::Owned(text) => Cow::Owned(asn_digits(&text).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: &str = r#"{"ended_ms":1796040000123,"elapsed_ms":7,"client":"192.0.2.0","asn":7545,"country":"AU","node":"mirror1-au","project":"videolan","method":"GET","scheme":"http","protocol":"HTTP/1.1","host":"download.example:80","target":"/a\"b\u0041?c","status":200,"bytes":45637,"is_aborted":false,"outcome":"hit","upstream":"","content_type":"text/plain","range":"","user_agent":"x \\","missteered":"asia","limit":"paced"}"#;
    const CONNECTION: &str = r#"{"kind":"connection","ended_ms":5,"asn":7545,"country":"AU","node":"n","acked_bytes":1,"sent_segments":2,"retransmitted_segments":3,"min_rtt_us":4,"delivery_rate":6}"#;

    fn access() -> Access<'static> {
        let text = |text: &'static str| Cow::Borrowed(text.as_bytes());
        Access {
            ended_ms: 1_796_040_000_123,
            client: text("192.0.2.0"),
            asn: text("7545"),
            country: text("AU"),
            project: Some(text("videolan")),
            host: text("download.example:80"),
            node: text("mirror1-au"),
            bytes: 45_637,
            missteered: Some(text("asia")),
            limit: text("paced"),
            is_health: false,
        }
    }

    #[test]
    fn both_readers_say_the_same_of_our_lines() {
        for text in [ACCESS, CONNECTION] {
            let scanned = scan(text.as_bytes()).expect("a plain line").line();
            assert_eq!(scanned, parse(text.as_bytes()).unwrap().line(), "{text}");
            assert_eq!(scanned, Some(line(text.as_bytes()).unwrap()));
        }
        assert_eq!(line(ACCESS.as_bytes()), Ok(Line::Access(access())));
        let Ok(Line::Connection(connection)) = line(CONNECTION.as_bytes()) else {
            panic!("a connection")
        };
        let way = Way {
            acked_bytes: 1,
            sent_segments: 2,
            retransmitted_segments: 3,
            min_rtt_us: 4,
            delivery_rate: 6,
        };
        assert_eq!((connection.way, &*connection.node), (way, &b"n"[..]));
    }

    #[test]
    fn order_space_escapes_and_strangers_make_no_difference() {
        for text in [
            r#"{ "bytes" : 1 , "ended_ms":2, "asn":"AS3" }  "#,
            r#"{"ended_ms":2,"asn":3,"other":null,"b":true,"c":-1.5e3,"bytes":1}"#,
            r#"{"ended_ms":2,"asn":3,"nested":{"bytes":[7]},"bytes":1}"#,
            r#"{"ended_ms":2,"asn":3,"by\u0074es":1,"limit":""}"#,
            r#"{"ended_ms":2,"asn":"\u0033","bytes":1}"#,
        ] {
            let Ok(Line::Access(found)) = line(text.as_bytes()) else { panic!("{text}") };
            let (asn, project) = (Cow::Borrowed(&b"3"[..]), Some(Cow::default()));
            let wanted = Access { ended_ms: 2, bytes: 1, asn, project, ..Access::default() };
            assert_eq!(found, wanted, "{text}");
        }
        let text = r#"{"ended_ms":2,"bytes":1,"host":"a\u002eb","asn":0,"missteered":null}"#;
        let Ok(Line::Access(found)) = line(text.as_bytes()) else { panic!("{text}") };
        assert_eq!((&*found.host, &*found.asn), (&b"a.b"[..], &b""[..]));
        assert_eq!((found.missteered, found.is_health), (None, false));
        for text in [
            r#"{"ended_ms":2,"bytes":1,"outcome":"health"}"#,
            r#"{"ended_ms":2,"bytes":1,"outcome":"health","host":"\u0041"}"#,
        ] {
            let Ok(Line::Access(found)) = line(text.as_bytes()) else { panic!("{text}") };
            assert!(found.is_health, "{text}");
        }
    }

    #[test]
    fn what_is_no_such_line_says_why() {
        for (text, fault) in [
            ("{", Fault::Json),
            ("{}", Fault::Keys),
            (r#"{"ended_ms":1,"bytes":2"#, Fault::Json),
            (r#"{"ended_ms":1,"bytes":2}}"#, Fault::Json),
            (r#"{"ended_ms":1,"bytes":2},"#, Fault::Json),
            (r#"{"ended_ms":1 "bytes":2}"#, Fault::Json),
            (r#"{"ended_ms":1,"bytes":}"#, Fault::Json),
            (r#"{"ended_ms":1,"bytes":nul}"#, Fault::Json),
            (r#"{"ended_ms":1,"host":"a}"#, Fault::Json),
            (r#"{"ended_ms":1,"bytes":-2}"#, Fault::Keys),
            (r#"{"ended_ms":1,"bytes":99999999999999999999}"#, Fault::Keys),
            (r#"{"ended_ms":1,"bytes":"2"}"#, Fault::Keys),
            (r#"{"kind":"connection","ended_ms":1,"bytes":2}"#, Fault::Keys),
        ] {
            assert_eq!(line(text.as_bytes()), Err(fault), "{text}");
        }
    }
}
