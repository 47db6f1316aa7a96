//! Standard zone files (RFC 1035 section 5, RFC 3597) -> record sets.
//!
//! A file is read whole or not at all: [`parse`] gives everything that is wrong with it. `check`
//! holds the records of one file against each other; whether they fit the node map and the other
//! zones is found when names are made of both (see `names::left_out`).
//!
//! TTLs are seconds; 3600 where a file gives none. `$INCLUDE` is refused: a file that is complete by
//! itself can be replaced in one step.

mod check;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use domain::base::ToName;
use domain::base::iana::Class;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};
use model::HostName;
use nodemap::Finding;

use crate::records::RecordSet;
use crate::wire::{rtype, text_of, wire_name};

/// Findings of one file that are told.
const FINDINGS_MAX: usize = 100;
/// Largest TTL (RFC 2181 section 8), seconds.
const TTL_S_MAX: u32 = i32::MAX as u32;
/// TTL of records where a file gives none, seconds.
pub const TTL_S: u32 = 3600;

/// The records of one zone file, by name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFile {
    path: PathBuf,
    apex: HostName,
    sets: Vec<FileSet>,
}

/// All records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSet {
    /// In wire form, lower case.
    pub(crate) owner: Box<[u8]>,
    pub(crate) set: RecordSet,
    /// Where its first record ends.
    pub(crate) line: usize,
}

impl ZoneFile {
    /// The file, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its zone.
    pub fn apex(&self) -> &HostName {
        &self.apex
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        self.sets.iter().map(|set| set.set.data().len()).sum()
    }

    /// The types of the records that the file has for `name`, in words.
    pub fn types_at(&self, name: &HostName) -> Vec<String> {
        let wire = wire_name(name);
        let sets = self.sets.iter().filter(|set| *set.owner == *wire);
        sets.map(|set| rtype::word(set.set.rtype)).collect()
    }

    pub(crate) fn sets(&self) -> &[FileSet] {
        &self.sets
    }

    /// The SOA set, if the file has one.
    pub(crate) fn soa(&self) -> Option<&RecordSet> {
        self.sets.iter().map(|set| &set.set).find(|set| set.rtype == rtype::SOA)
    }
}

/// Reads the zone file `text` of the zone `apex`; `path` names it in messages.
///
/// # Errors
/// Everything that is wrong with it, in the order of the lines; behind a fault of syntax nothing
/// more is found.
pub fn parse(path: &Path, apex: &HostName, text: &[u8]) -> Result<ZoneFile, Vec<Finding>> {
    let mut reading = Reading { path, apex, groups: BTreeMap::new(), findings: Vec::new() };
    let apex_name = wire_name(apex);
    reading.read(text, &apex_name);
    let Reading { groups, mut findings, .. } = reading;
    let sets: Vec<FileSet> = groups
        .into_iter()
        .map(|((owner, rtype), group)| FileSet {
            owner,
            set: RecordSet::new(rtype, group.ttl_s, group.data),
            line: group.line,
        })
        .collect();
    if findings.is_empty() {
        check::check(path, &apex_name, &sets, &mut findings);
    }
    if findings.is_empty() {
        return Ok(ZoneFile { path: path.to_owned(), apex: apex.clone(), sets });
    }
    findings.sort();
    findings.truncate(FINDINGS_MAX);
    Err(findings)
}

/// The records of one name and type while they are read.
struct Group {
    ttl_s: u32,
    line: usize,
    data: Vec<Vec<u8>>,
}

struct Reading<'a> {
    path: &'a Path,
    apex: &'a HostName,
    groups: BTreeMap<(Box<[u8]>, u16), Group>,
    findings: Vec<Finding>,
}

impl Reading<'_> {
    fn read(&mut self, text: &[u8], apex: &[u8]) {
        let mut scanner = Zonefile::from(text);
        // A last line without its end is a line, too.
        scanner.extend_from_slice(b"\n");
        if let Ok(origin) = self.apex.as_str().parse() {
            scanner.set_origin(origin);
        }
        scanner.set_default_class(Class::IN);
        let mut lines = Lines { text, at: 0, line: 1 };
        // A large file of which nothing is right says no more than a small one.
        while self.findings.len() < FINDINGS_MAX {
            // The scanner steps over its own end in some damaged files.
            let Ok(entry) = catch_unwind(AssertUnwindSafe(|| scanner.next_entry())) else {
                let remedy = "look for a quote or parenthesis that is not closed behind this line";
                let problem = "something behind cannot be read";
                let found = finding(self.path, lines.line, "", problem, remedy.to_owned());
                self.findings.push(unclosed(self.path, text).unwrap_or(found));
                return;
            };
            match entry {
                Ok(None) => return,
                Ok(Some(Entry::Record(record))) => {
                    let line = lines.of(scanner.current_offset());
                    self.add(&record, line, apex);
                }
                Ok(Some(Entry::Include { path, .. })) => {
                    let line = lines.of(scanner.current_offset());
                    let problem = "is not read: a zone file stands by itself";
                    let remedy = format!("put the records of {path} into this file");
                    self.findings.push(finding(self.path, line, "$INCLUDE", problem, remedy));
                }
                Err(error) => {
                    let found = || syntax(self.path, text, &error.to_string());
                    self.findings.push(unclosed(self.path, text).unwrap_or_else(found));
                    return;
                }
            }
        }
    }

    fn add(&mut self, record: &ScannedRecord, line: usize, apex: &[u8]) {
        let owner: Box<[u8]> = record.owner().to_canonical_name::<Vec<u8>>().as_slice().into();
        let (rtype, ttl_s) = (record.rtype().to_int(), record.ttl().as_secs());
        let mut data = Vec::new();
        // A vector takes all that is written to it.
        let _ = record.data().compose_canonical_rdata(&mut data);
        let key = || format!("{} {}", text_of(&owner), rtype::word(rtype));
        let mut refuse = |problem: &str, remedy: String| {
            self.findings.push(finding(self.path, line, &key(), problem, remedy));
        };
        if record.class() != Class::IN {
            return refuse("has another class than IN", "take it out, or write IN".to_owned());
        }
        if let Some(remedy) = not_for_files(rtype) {
            return refuse("cannot stand in a zone file here", remedy.to_owned());
        }
        if !owner.ends_with(apex) || !crate::wire::ancestry(&owner).any(|name| name == apex) {
            let remedy =
                format!("write names of {}, relative or with a point at the end", self.apex);
            return refuse("does not lie in the zone of this file", remedy);
        }
        if ttl_s > TTL_S_MAX {
            return refuse("has a TTL that counts as 0", format!("write at most {TTL_S_MAX}"));
        }
        if data.len() > usize::from(u16::MAX) {
            return refuse("has more than 65,535 bytes of data", "shorten it".to_owned());
        }
        let group = self.groups.entry((owner.clone(), rtype));
        let group = group.or_insert_with(|| Group { ttl_s, line, data: Vec::new() });
        if group.ttl_s != ttl_s {
            let remedy = format!("write {}, or the same in all (RFC 2181)", group.ttl_s);
            return refuse("has another TTL than the record of this type before it", remedy);
        }
        group.data.push(data);
    }
}

/// Why a type cannot stand in a file.
fn not_for_files(rtype: u16) -> Option<&'static str> {
    use rtype::{CDNSKEY, CDS, DNAME, DNSKEY, NSEC, NSEC3, NSEC3PARAM, OPT, RRSIG};
    match rtype {
        DNAME => Some("write the names below it one by one, or a wildcard CNAME"),
        DNSKEY | RRSIG | NSEC | NSEC3 | NSEC3PARAM | CDS | CDNSKEY => {
            Some("take it out: answers are signed as they are given, with the keys of the config")
        }
        0 | OPT | 128..=255 => Some("take it out: the type has a meaning in messages only"),
        _ => None,
    }
}

/// The library says `LINE:COLUMN: WHAT`.
fn syntax(path: &Path, text: &[u8], message: &str) -> Finding {
    let (place, what) = message.split_once(": ").unwrap_or(("", message));
    let mut numbers = place.split(':').map(|number| number.parse::<usize>().unwrap_or(0));
    let (line, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // What ends a line is found at the beginning of the next one.
    let line = if column <= 1 { line.saturating_sub(1) } else { line };
    let remedy = if what.starts_with("expected rtype") {
        "write NAME [TTL] [IN] TYPE DATA; TTLs in seconds, unknown types as TYPE1234 \\# LENGTH HEX"
    } else if what.starts_with("unknown control") {
        "only $ORIGIN and $TTL may begin with a dollar"
    } else if what.starts_with("missing last owner") {
        "begin the line with a name; only lines behind a record may leave it out"
    } else if what.starts_with("expected decimal number") {
        "write a number; times are in seconds: 3600, not 1h"
    } else if what.starts_with("bad symbol") || what.starts_with("bad charstr") {
        "close each quote, and write bytes that are not plain ASCII as \\DDD"
    } else if what.starts_with("trailing tokens") {
        "take out what is too much, or quote what has spaces"
    } else {
        "write the data as the RFC of the type shows it"
    };
    let word = text.split(|byte| *byte == b'\n').nth(line.saturating_sub(1));
    let word = word.and_then(|text| word_at(text, column));
    let word = word.filter(|_| what.starts_with("expected"));
    let what = word.map_or(what.to_owned(), |word| format!("{what}, not {word:?}"));
    finding(path, line, "", &what, remedy.to_owned())
}

/// The word that ends at a column of a line, or holds it.
fn word_at(line: &[u8], column: usize) -> Option<String> {
    let (before, behind) = line.split_at_checked(column.saturating_sub(1))?;
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let before = before.trim_ascii_end();
    let begin = before.iter().rposition(is_space).map_or(0, |at| at.saturating_add(1));
    let rest = match line.get(before.len()..) {
        // It goes on.
        Some(rest) if rest.len() == behind.len() => behind.split(is_space).next(),
        _ => None,
    };
    let word = [before.get(begin..)?, rest.unwrap_or_default()].concat();
    let word = String::from_utf8_lossy(&word).into_owned();
    (!word.is_empty()).then_some(word)
}

/// The parenthesis or quote that is never closed, where it was opened: in a file that cannot be read,
/// which the scanner finds out at its end, if at all.
fn unclosed(path: &Path, text: &[u8]) -> Option<Finding> {
    let (mut line, mut open, mut quote, mut is_remark) = (1usize, None, None, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => {
                line = line.saturating_add(1);
                is_remark = false;
            }
            _ if is_remark => {}
            b'\\' => {
                bytes.next();
            }
            b'"' => quote = if quote.is_some() { None } else { Some(line) },
            _ if quote.is_some() => {}
            b';' => is_remark = true,
            b'(' => open = open.or(Some(line)),
            b')' => open = None,
            _ => {}
        }
    }
    let quote = quote.map(|line| (line, "a quote is opened here and never closed"));
    let open = open.map(|line| (line, "a parenthesis is opened here and never closed"));
    let (line, problem) = quote.or(open)?;
    let remedy = "close it; behind a semicolon is a remark, in which nothing is closed";
    Some(finding(path, line, "", problem, remedy.to_owned()))
}

fn finding(path: &Path, line: usize, key: &str, problem: &str, remedy: String) -> Finding {
    let (key, problem) = (key.to_owned(), problem.to_owned());
    Finding { file: path.to_owned(), line, key, problem, remedy }
}

/// Places in a text -> lines, in one pass.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line of what the scanner, now at `offset`, has read last; offsets only grow. It counts
    /// from a byte that it puts before the text.
    fn of(&mut self, offset: usize) -> usize {
        let to = offset.saturating_sub(1).min(self.text.len()).max(self.at);
        let passed = self.text.get(self.at..to).unwrap_or_default();
        self.at = to;
        self.line = self.line.saturating_add(passed.iter().filter(|byte| **byte == b'\n').count());
        self.line
    }
}

#[cfg(test)]
mod tests;
