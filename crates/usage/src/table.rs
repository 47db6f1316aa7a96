//! A report as a table: what was sent to whom, the largest first.
//!
//! As the first Cacheboy published them: rank, MBytes, requests, % of overall, AS name; the sums of
//! what is shown and of all. One MByte is 1,000,000 bytes. The same figures as text for people, as CSV
//! and as JSON; [`print`](self) rounds half up, in whole numbers.

mod print;

use std::fmt;
use std::str::FromStr;

use model::Asn;

use crate::sums::{Count, Sum, Sums};

/// By what a report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Networks of clients.
    Asn,
    /// Countries of clients.
    Country,
    /// Projects.
    Project,
    /// Nodes that answered.
    Node,
    /// Nodes that answered clients who belong to a pool they are not in, with that pool.
    Missteered,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Asn, Self::Country, Self::Project, Self::Node, Self::Missteered];

    /// Its stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Asn => "asn",
            Self::Country => "country",
            Self::Project => "project",
            Self::Node => "node",
            Self::Missteered => "missteered",
        }
    }

    /// Title of the column with the key.
    fn key_title(self) -> &'static str {
        match self {
            Self::Missteered => Self::Node.word(),
            other => other.word(),
        }
    }

    /// Title of the column with what is said of a key, if there is one.
    fn about_title(self) -> Option<&'static str> {
        match self {
            Self::Asn => Some("name"),
            Self::Missteered => Some("pool"),
            Self::Country | Self::Project | Self::Node => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// No subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reports are by asn, country, project, node or missteered")]
pub struct NoSubject;

impl FromStr for Subject {
    type Err = NoSubject;
    fn from_str(s: &str) -> Result<Self, NoSubject> {
        Self::ALL.into_iter().find(|subject| subject.word() == s).ok_or(NoSubject)
    }
}

/// Stands between node and pool in the keys of [`Subject::Missteered`]: no name has it.
pub const BETWEEN: u8 = b'\0';

/// A line of a table.
#[derive(Clone, Debug)]
struct Row {
    /// For people; empty: nobody knows.
    key: String,
    /// More of it: the name of an AS, a pool.
    about: String,
    sum: Sum,
}

/// What a report shows.
#[derive(Clone, Debug)]
pub struct Table {
    subject: Subject,
    rows: Vec<Row>,
    /// How many keys there are, shown or not.
    keys: usize,
    shown: Count,
    others: Count,
    unknown: Count,
    all: Count,
    limits: Vec<(String, Count)>,
    period_ms: Option<(u64, u64)>,
}

impl Table {
    /// The `top` largest of `sums` by bytes.
    pub fn new(subject: Subject, sums: &Sums, top: usize) -> Self {
        let mut keys: Vec<_> = sums.by_key().collect();
        // Connections alone are no traffic.
        keys.retain(|(_, sum)| sum.count != Count::default());
        keys.sort_unstable_by(|(a, one), (b, two)| two.count.cmp(&one.count).then(a.cmp(b)));
        let number = keys.len();
        let row = |(key, sum): (&[u8], &Sum)| {
            let (key, about) = match key.iter().position(|byte| *byte == BETWEEN) {
                Some(at) => (key.get(..at), key.get(at.saturating_add(1)..)),
                None => (Some(key), None),
            };
            let key = text(key.unwrap_or_default());
            let (key, about) = match subject {
                Subject::Asn if !key.is_empty() => (format!("AS{key}"), String::new()),
                _ => (key, text(about.unwrap_or_default())),
            };
            Row { key, about: clean(&about), sum: sum.clone() }
        };
        let rows: Vec<Row> = keys.into_iter().take(top).map(row).collect();
        let mut shown = Count::default();
        rows.iter().for_each(|row| shown.add(row.sum.count));
        Self {
            subject,
            rows,
            keys: number,
            shown,
            others: sums.others.count,
            unknown: sums.unknown,
            all: sums.all,
            limits: sums.limits().map(|(word, count)| (text(word), count)).collect(),
            period_ms: sums.period_ms,
        }
    }

    /// The networks that it shows, where it is by these.
    pub fn networks(&self) -> impl Iterator<Item = Asn> {
        let rows = self.rows.iter().filter(|_| self.subject == Subject::Asn);
        rows.filter_map(|row| row.key.parse().ok())
    }

    /// Puts their names beside them.
    pub fn name_networks(&mut self, name_of: impl Fn(Asn) -> Option<String>) {
        let rows = self.rows.iter_mut().filter(|_| self.subject == Subject::Asn);
        for row in rows {
            let name = row.key.parse().ok().and_then(&name_of);
            row.about = clean(&name.unwrap_or_default());
        }
    }
}

/// Bytes of a log for people.
fn text(bytes: &[u8]) -> String {
    clean(&String::from_utf8_lossy(bytes))
}

/// Without what would move the cursor of a terminal.
fn clean(text: &str) -> String {
    text.replace(char::is_control, "?")
}
