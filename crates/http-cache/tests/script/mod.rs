//! The text of a conversation: lines of verbs, each with indented fields below it.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_cache::ProxyError;
use model::Now;

/// Fri, 01 Jan 2027 00:00:00 GMT: every conversation begins here.
pub(crate) const START: Now = Now { mono_ns: 1_000_000_000, wall_ms: 1_798_761_600_000 };

pub(crate) struct Conversation {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) verb: Verb,
    /// `Name: value`, or `no Name`.
    fields: Vec<String>,
}

pub(crate) enum Verb {
    Policy(String, u64),
    Client(String, String),
    Decides(String),
    Asks,
    AsksPart,
    Upstream(u16, Option<u64>),
    UpstreamFails(ProxyError),
    Part(u16),
    Then(String),
    Answer(u16, Option<String>),
    TimePasses(u64),
    ClockGoesBack(u64),
}

impl Verb {
    /// Whether it can fail because of what the rules say.
    pub(crate) fn expects(&self) -> bool {
        matches!(
            self,
            Self::Decides(_) | Self::Asks | Self::AsksPart | Self::Then(_) | Self::Answer(..)
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |s: &str| s.parse::<u64>().map_err(|_| format!("{s} is no number"));
        let status = |s: &str| s.parse::<u16>().map_err(|_| format!("{s} is no status"));
        Ok(match words.as_slice() {
            ["policy", name, n] => Self::Policy((*name).to_owned(), number(n)?),
            ["client", method, target] => Self::Client((*method).into(), (*target).into()),
            ["decides", rest @ ..] => Self::Decides(rest.join(" ")),
            ["asks"] => Self::Asks,
            ["asks", "part"] => Self::AsksPart,
            ["upstream", "fails", error] => Self::UpstreamFails(
                ProxyError::ALL
                    .into_iter()
                    .find(|e| e.as_str() == *error)
                    .ok_or_else(|| format!("{error} is no error of RFC 9209"))?,
            ),
            ["upstream", s] => Self::Upstream(status(s)?, None),
            ["upstream", s, length] => Self::Upstream(status(s)?, Some(number(length)?)),
            ["part", s] => Self::Part(status(s)?),
            ["then", rest @ ..] => Self::Then(rest.join(" ")),
            ["answer", s] => Self::Answer(status(s)?, None),
            ["answer", s, content] => Self::Answer(status(s)?, Some((*content).to_owned())),
            ["time", "passes", n, "s"] => Self::TimePasses(number(n)?),
            ["clock", "goes", "back", n, "s"] => Self::ClockGoesBack(number(n)?),
            _ => return Err(format!("`{text}` is not understood")),
        })
    }
}

impl Line {
    /// The fields, with dates filled in.
    pub(crate) fn fields(&self, now: Now) -> Result<Fields, String> {
        let read = |field: &String| Field::parse(&fill_in(field, now)?);
        self.fields.iter().map(read).collect::<Result<_, _>>().map(Fields)
    }
}

/// Replaces `{now}`, `{now+N}` and `{now-N}` (seconds) by HTTP dates.
fn fill_in(text: &str, now: Now) -> Result<String, String> {
    let Some((before, rest)) = text.split_once("{now") else { return Ok(text.to_owned()) };
    let wrong = || format!("`{text}`: write {{now}}, {{now+N}} or {{now-N}}");
    let (shift, after) = rest.split_once('}').ok_or_else(wrong)?;
    let shift = if shift.is_empty() { 0 } else { shift.parse().map_err(|_| wrong())? };
    let unix_s = now.wall_s().saturating_add_signed(shift);
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s));
    Ok(format!("{before}{date}{}", fill_in(after, now)?))
}

enum Field {
    Is(HeaderName, String),
    IsNot(HeaderName),
}

impl Field {
    fn parse(text: &str) -> Result<Self, String> {
        let name = |n: &str| HeaderName::from_bytes(n.as_bytes()).map_err(|e| format!("{n}: {e}"));
        if let Some(absent) = text.strip_prefix("no ") {
            return Ok(Self::IsNot(name(absent)?));
        }
        let (left, right) = text.split_once(':').ok_or_else(|| format!("`{text}` is no field"))?;
        Ok(Self::Is(name(left)?, right.trim().to_owned()))
    }
}

pub(crate) struct Fields(Vec<Field>);

impl Fields {
    /// As a head to send.
    pub(crate) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for field in &self.0 {
            let Field::Is(name, value) = field else {
                return Err("only what is expected can be absent".into());
            };
            let value = HeaderValue::from_str(value).map_err(|e| format!("{name}: {e}"))?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    /// As expectations: `Name: value` is one of the lines of that field, `Name: ~text` is part of
    /// one, `no Name` is absent.
    pub(crate) fn check(&self, head: &HeaderMap) -> Result<(), String> {
        for field in &self.0 {
            match field {
                Field::IsNot(name) => {
                    if let Some(value) = head.get(name) {
                        return Err(format!("{name}: {value:?} should not be there"));
                    }
                }
                Field::Is(name, want) => {
                    let lines: Vec<&HeaderValue> = head.get_all(name).iter().collect();
                    let found = lines.iter().any(|line| {
                        let line = line.to_str().unwrap_or("");
                        want.strip_prefix('~').map_or(line == want, |part| line.contains(part))
                    });
                    if !found {
                        return Err(format!("{name}: got {lines:?}, want {want:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Conversations begin with `== title`; `#` begins a comment.
pub(crate) fn parse(text: &str) -> Result<Vec<Conversation>, String> {
    let mut all: Vec<Conversation> = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let number = i + 1;
        let line = raw.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            all.push(Conversation { title: title.to_owned(), lines: Vec::new() });
            continue;
        }
        let here = all.last_mut().ok_or_else(|| format!("{number}: before the first =="))?;
        let lines = &mut here.lines;
        if raw.starts_with(' ') {
            let verb = lines.last_mut().ok_or_else(|| format!("{number}: a field of nothing"))?;
            verb.fields.push(line.to_owned());
        } else {
            let verb = Verb::parse(line).map_err(|e| format!("{number}: {e}"))?;
            lines.push(Line { number, verb, fields: Vec::new() });
        }
    }
    Ok(all)
}
