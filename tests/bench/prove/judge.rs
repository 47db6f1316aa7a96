//! Whether an answer is what it must be: status, fields and every byte.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, Result, bail, ensure};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};

use crate::ask::{Ask, Must};

/// Longest content of an answer that has none of the object.
const WORDS_MAX: u64 = 64 << 10;

/// Whether the client goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    More,
    /// It has all it wanted, and goes away.
    Leave,
}

/// Looks at one answer as it comes.
pub(crate) struct Judge<'a> {
    ask: &'a Ask,
    must: Must,
    body: Body,
    /// Bytes of the body that came.
    taken: u64,
    length: u64,
}

/// What the body must be.
enum Body {
    /// These bytes of the object.
    Part(Range<u64>),
    /// Parts with heads of their own.
    Multipart { boundary: String, got: Vec<u8> },
    /// Words for people.
    Any,
}

impl<'a> Judge<'a> {
    /// Judges the head.
    pub(crate) fn begin(ask: &'a Ask, status: StatusCode, fields: &HeaderMap) -> Result<Self> {
        let known = &ask.object;
        let whole = known.object.length();
        let is_whole = ask.may_be_whole && status == StatusCode::OK;
        let must = match &ask.must {
            Must::Parts(_) | Must::NotModified if is_whole => Must::Whole,
            must => must.clone(),
        };
        let wanted = match must {
            Must::Whole => StatusCode::OK,
            Must::Parts(_) => StatusCode::PARTIAL_CONTENT,
            Must::Unsatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Must::NotModified => StatusCode::NOT_MODIFIED,
            Must::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Must::Missing => StatusCode::NOT_FOUND,
        };
        ensure!(status == wanted, "{status} came, {wanted} was due: {fields:?}");
        if matches!(must, Must::Whole | Must::Parts(_) | Must::NotModified) {
            let etag = text(fields, header::ETAG)?;
            ensure!(etag == known.etag, "ETag {etag}, it was {}", known.etag);
        }
        let announced = match fields.get(header::CONTENT_LENGTH) {
            Some(value) => Some(value.to_str()?.parse::<u64>().context("Content-Length")?),
            None => None,
        };
        let body = match &must {
            Must::Whole => Body::Part(0..whole),
            Must::Parts(parts) => Body::of_parts(&joined(parts), whole, fields)?,
            Must::Unsatisfiable => {
                let range = text(fields, header::CONTENT_RANGE)?;
                ensure!(range == format!("bytes */{whole}"), "Content-Range {range}");
                Body::Any
            }
            _ => Body::Any,
        };
        let length = match &body {
            Body::Part(part) => {
                let due = part.end - part.start;
                ensure!(announced == Some(due), "length {announced:?}, {due} is due");
                due
            }
            Body::Multipart { .. } => announced.context("no Content-Length")?,
            Body::Any => announced.unwrap_or_default(),
        };
        let has_none = ask.method == Method::HEAD || must == Must::NotModified;
        let (body, length) = if has_none { (Body::Any, 0) } else { (body, length) };
        ensure!(!matches!(body, Body::Any) || length <= WORDS_MAX, "{length} bytes of words");
        Ok(Self { ask, must, body, taken: 0, length })
    }

    /// How long the body is, as announced.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Judges bytes of the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Next> {
        let count = bytes.len() as u64;
        let after = self.taken + count;
        ensure!(after <= self.length, "{after} bytes came, {} were announced", self.length);
        match &mut self.body {
            Body::Part(part) => {
                let from = part.start + self.taken;
                same(self.ask, from..from + count, bytes)?;
            }
            Body::Multipart { got, .. } => got.extend_from_slice(bytes),
            Body::Any => {}
        }
        self.taken = after;
        self.ask.came.fetch_add(count, Relaxed);
        let leaves = self.ask.leave_after.is_some_and(|most| self.taken >= most);
        Ok(if leaves { Next::Leave } else { Next::More })
    }

    /// Judges the end of the body.
    pub(crate) fn end(self) -> Result<u64> {
        ensure!(self.taken == self.length, "ended after {} of {}", self.taken, self.length);
        if let (Body::Multipart { boundary, got }, Must::Parts(parts)) = (&self.body, &self.must) {
            multipart(self.ask, boundary, got, &joined(parts))?;
        }
        Ok(self.taken)
    }

    /// Bytes of the body that came.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

impl Body {
    fn of_parts(parts: &[Range<u64>], whole: u64, fields: &HeaderMap) -> Result<Self> {
        if let [part] = parts {
            let range = text(fields, header::CONTENT_RANGE)?;
            let due = content_range(part, whole);
            ensure!(range == due, "Content-Range {range}, {due} is due");
            return Ok(Self::Part(part.clone()));
        }
        let kind = text(fields, header::CONTENT_TYPE)?;
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=");
        let boundary = boundary.with_context(|| format!("Content-Type {kind}"))?;
        let boundary = boundary.trim_matches('"').to_owned();
        Ok(Self::Multipart { boundary, got: Vec::new() })
    }
}

fn content_range(part: &Range<u64>, whole: u64) -> String {
    format!("bytes {}-{}/{whole}", part.start, part.end - 1)
}

fn text(fields: &HeaderMap, name: HeaderName) -> Result<&str> {
    let mut values = fields.get_all(&name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.to_str()?),
        (None, _) => bail!("no {name}"),
        _ => bail!("more than one {name}"),
    }
}

/// The ranges in order, those that touch the same bytes as one.
fn joined(parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|part| part.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for part in sorted {
        match joined.last_mut() {
            Some(last) if part.start < last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    joined
}

/// Whether these are the bytes of this range of the object.
fn same(ask: &Ask, range: Range<u64>, bytes: &[u8]) -> Result<()> {
    let (from, to) = (usize::try_from(range.start)?, usize::try_from(range.end)?);
    let due = ask.object.object.bytes.get(from..to).context("more bytes than there are")?;
    if due != bytes {
        let at = due.iter().zip(bytes).position(|(due, came)| due != came).unwrap_or_default();
        bail!("a wrong byte at {}", range.start + at as u64);
    }
    Ok(())
}

/// Takes a whole multipart body apart: exactly these parts in any order, each with its range and bytes.
fn multipart(ask: &Ask, boundary: &str, body: &[u8], parts: &[Range<u64>]) -> Result<()> {
    let whole = ask.object.object.length();
    let mut rest = body;
    let mut found = Vec::new();
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        rest = rest.strip_prefix(format!("--{boundary}").as_bytes()).context("no boundary")?;
        if let Some(after) = rest.strip_prefix(b"--") {
            ensure!(matches!(after, b"" | b"\r\n"), "bytes after the last part");
            break;
        }
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
        let head = std::str::from_utf8(&rest[..end])?.to_ascii_lowercase();
        let range = head.lines().find_map(|line| line.strip_prefix("content-range: "));
        let range = range.context("a part without Content-Range")?;
        let part = parts.iter().find(|part| content_range(part, whole) == range);
        let part = part.with_context(|| format!("part {range}: nobody asked for it"))?;
        let count = usize::try_from(part.end - part.start)?;
        let bytes = rest.get(end + 4..end + 4 + count).context("a short part")?;
        same(ask, part.clone(), bytes)?;
        rest = &rest[end + 4 + count..];
        found.push(part.clone());
    }
    found.sort_by_key(|part| part.start);
    ensure!(found == parts, "parts {found:?}, {parts:?} are due");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;

    use super::*;
    use crate::ask::Known;
    use crate::objects::Object;

    const CONTENT: &[u8] = b"0123456789";

    fn ask(must: Must, leave_after: Option<u64>) -> Ask {
        let object = Object { name: "o".to_owned(), bytes: CONTENT.to_vec(), share: 1 };
        let known = Known { object, etag: "\"e\"".to_owned(), modified: String::new() };
        Ask { must, leave_after, ..Ask::whole(&Arc::new(known)) }
    }

    /// What is said of a whole answer: the bytes that came, or the fault.
    fn judged(ask: &Ask, status: u16, fields: &[(HeaderName, &str)], body: &[u8]) -> String {
        let told = |fault: anyhow::Error| fault.to_string();
        let judge = || -> Result<u64, String> {
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.append(name, HeaderValue::from_str(value).unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            let mut judge = Judge::begin(ask, status, &map).map_err(told)?;
            // In two pieces: places are counted over all of them.
            let (one, other) = body.split_at(body.len() / 2);
            for piece in [one, other] {
                if judge.take(piece).map_err(told)? == Next::Leave {
                    return Ok(judge.taken());
                }
            }
            judge.end().map_err(told)
        };
        judge().map_or_else(|fault| fault, |bytes| bytes.to_string())
    }

    #[test]
    fn a_right_whole_passes_and_any_fault_is_seen() {
        let whole = ask(Must::Whole, None);
        let fields = [(header::ETAG, "\"e\""), (header::CONTENT_LENGTH, "10")];
        let say = |status, fields: &[_], body: &[u8]| judged(&whole, status, fields, body);
        assert_eq!(say(200, &fields, CONTENT), "10");
        assert_eq!(say(200, &fields, b"0123456780"), "a wrong byte at 9");
        assert_eq!(say(200, &fields, b"012345678"), "ended after 9 of 10");
        assert_eq!(say(200, &fields, b"0123456789a"), "11 bytes came, 10 were announced");
        assert!(say(206, &fields, CONTENT).starts_with("206 Partial Content came"));
        assert_eq!(say(200, &fields[1..], CONTENT), "no etag");
        let other = [(header::ETAG, "\"f\""), (header::CONTENT_LENGTH, "10")];
        assert_eq!(say(200, &other, CONTENT), "ETag \"f\", it was \"e\"");
        let short = [(header::ETAG, "\"e\""), (header::CONTENT_LENGTH, "9")];
        assert_eq!(say(200, &short, b"012345678"), "length Some(9), 10 is due");
        assert_eq!(judged(&ask(Must::Whole, Some(4)), 200, &fields, b"01234"), "5");
    }

    #[test]
    fn a_part_is_that_part() {
        let part = ask(Must::Parts(vec![2..5, 4..6]), None);
        let fields = |range| {
            let length = (header::CONTENT_LENGTH, "4");
            [(header::ETAG, "\"e\""), length, (header::CONTENT_RANGE, range)]
        };
        assert_eq!(judged(&part, 206, &fields("bytes 2-5/10"), b"2345"), "4");
        assert_eq!(judged(&part, 206, &fields("bytes 2-5/10"), b"3456"), "a wrong byte at 2");
        let due = "Content-Range bytes 2-5/11, bytes 2-5/10 is due";
        assert_eq!(judged(&part, 206, &fields("bytes 2-5/11"), b"2345"), due);
        let behind = ask(Must::Unsatisfiable, None);
        assert_eq!(judged(&behind, 416, &[(header::CONTENT_RANGE, "bytes */10")], b""), "0");
        assert_eq!(
            judged(&behind, 416, &[(header::CONTENT_RANGE, "bytes */9")], b""),
            "Content-Range bytes */9"
        );
    }

    #[test]
    fn all_parts_come_and_no_others() {
        let parts = ask(Must::Parts(vec![0..2, 7..10]), None);
        let say = |body: &str| {
            let kind = (header::CONTENT_TYPE, "multipart/byteranges; boundary=b");
            let length = body.len().to_string();
            let fields = [(header::ETAG, "\"e\""), kind, (header::CONTENT_LENGTH, length.as_str())];
            judged(&parts, 206, &fields, body.as_bytes())
        };
        let one = "--b\r\nContent-Range: bytes 0-1/10\r\n\r\n01";
        let two = "--b\r\nContent-Range: bytes 7-9/10\r\n\r\n789";
        let right = format!("{one}\r\n{two}\r\n--b--\r\n");
        assert_eq!(say(&right), right.len().to_string());
        assert_eq!(say(&right.replace("789", "780")), "a wrong byte at 9");
        assert_eq!(say(&format!("{one}\r\n{}", two.trim_end_matches('9'))), "a short part");
        assert_eq!(say(&format!("{one}\r\n--b--")), "parts [0..2], [0..2, 7..10] are due");
        let odd = "part bytes 0-2/10: nobody asked for it";
        assert_eq!(say(&right.replace("0-1/", "0-2/")), odd);
        assert_eq!(say(&right.replace("--b--", "")), "no boundary");
    }
}
