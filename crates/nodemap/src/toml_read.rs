//! Reading TOML that people write: every fault is found in one run, each with file, line, key,
//! what is wrong and what to do. Used by the admin maps here and by the host config.
//!
//! Order of use: [`Document::parse`] -> [`Document::root`] -> [`Table::get`] / [`Table::need`] /
//! [`Table::entries`] -> the typed getters of [`Value`] -> [`Document::into_findings`].
//! A getter that gives `None` or leaves an element out has reported why.
//!
//! A [`Section`] is the one list of the keys that a table may have: the reader refuses all others,
//! and the reference pages in `docs/` are held against the same list by tests.

mod path;
mod section;
mod syntax;
mod value;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::Asn;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::path::{KeyPath, Step};
pub(crate) use self::path::{bare_or_quoted, join};
pub use self::section::{Key, Section, key};
use self::syntax::Fault;
pub use self::value::Value;
use crate::Finding;
use crate::words::{clip, guess, list};

/// Findings kept of one file; a file with more of them is of the wrong kind, not wrong in detail.
const FINDINGS_MAX: usize = 500;

/// One file being read.
#[derive(Debug)]
pub struct Document<'i> {
    file: PathBuf,
    /// Byte offsets of the line feeds.
    line_ends: Vec<usize>,
    root: DeTable<'i>,
    sound: bool,
    findings: RefCell<Vec<Finding>>,
    /// Of lists from which elements were left out, the positions of those that were kept.
    kept: RefCell<BTreeMap<String, Vec<usize>>>,
}

impl<'i> Document<'i> {
    /// Parses `text`; `file` is only a name for messages. Of syntax errors the first is a finding,
    /// since the others may only follow from it; keys given twice before it are, too.
    pub fn parse(file: &Path, text: &'i str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let line_ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at);
        let document = Self {
            file: file.to_owned(),
            line_ends: line_ends.collect(),
            root: root.into_inner(),
            sound: errors.is_empty(),
            findings: RefCell::default(),
            kept: RefCell::default(),
        };
        let mut faults: Vec<Fault> = errors
            .iter()
            .map(|error| syntax::fault(text, error.span().unwrap_or_default(), error.message()))
            .collect();
        faults.sort_by_key(|fault| fault.at);
        // A key that is there twice hides nothing; what stands behind a break is a guess.
        let breaks = faults.iter().position(|fault| fault.key.is_empty());
        faults.truncate(breaks.map_or(usize::MAX, |at| at.saturating_add(1)));
        let mut hidden_to = 0;
        for Fault { at, key, hides_to, problem, remedy } in faults {
            if at < hidden_to && !key.is_empty() {
                continue;
            }
            hidden_to = hides_to.unwrap_or(hidden_to);
            document.report(document.line_at(at), clip(&key), problem, remedy);
        }
        document
    }

    /// Whether the file is TOML at all. If not, missing things may be missing only to the parser.
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    /// Whether `key` stands at the top.
    pub fn has(&self, key: &str) -> bool {
        self.root.contains_key(key)
    }

    /// The file as it was named.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The whole file as a table of `section`.
    pub fn root(&self, section: &'static Section) -> Table<'_> {
        Table::open(self, String::new(), 0, &self.root, section)
    }

    /// The line of what `path` names, or of the nearest table around it that exists; `None` when
    /// not even the first `depth` steps exist here. List positions are those of the list as it was
    /// read, elements that were left out not counted.
    pub fn line_of(&self, path: &KeyPath, depth: usize) -> Option<usize> {
        let mut line = 0;
        let mut written = String::new();
        let mut table = Some(&self.root);
        let mut array: Option<&toml::de::DeArray<'i>> = None;
        for (at, step) in path.0.iter().enumerate() {
            let found = match step {
                Step::Key(key) => table.and_then(|t| find(t, key)).map(|(word, value)| {
                    written = join(&written, word.get_ref());
                    (word.span(), value)
                }),
                Step::Index(index) => {
                    let index = self.position(&written, *index);
                    array.and_then(|a| a.get(index)).map(|value| (value.span(), value))
                }
            };
            let Some((span, value)) = found else {
                return (at >= depth).then_some(line);
            };
            line = self.line_at(span.start);
            table = value.get_ref().as_table();
            array = value.get_ref().as_array();
        }
        Some(line)
    }

    /// Where the element stands in the file that was read as number `index` of the list `path`.
    fn position(&self, path: &str, index: usize) -> usize {
        self.kept.borrow().get(path).and_then(|kept| kept.get(index).copied()).unwrap_or(index)
    }

    /// Adds a finding of this file.
    pub fn report(
        &self,
        line: usize,
        key: String,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let mut findings = self.findings.borrow_mut();
        if findings.len() < FINDINGS_MAX {
            let (problem, remedy) = (problem.into(), remedy.into());
            findings.push(Finding { file: self.file.clone(), line, key, problem, remedy });
        }
    }

    /// Everything that was found wrong, in no order.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings.into_inner()
    }

    fn line_at(&self, offset: usize) -> usize {
        self.line_ends.partition_point(|end| *end < offset).saturating_add(1)
    }
}

/// The entry of `key`, which may stand there in another case or as `AS` number.
fn find<'a, 'i>(
    table: &'a DeTable<'i>,
    key: &str,
) -> Option<(&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>)> {
    let same = |k: &str| {
        k.trim_end_matches('.').eq_ignore_ascii_case(key)
            || k.parse::<Asn>().is_ok_and(|asn| asn.get().to_string() == key)
    };
    table.get_key_value(key).or_else(|| table.iter().find(|(k, _)| same(k.get_ref())))
}

/// A table being read.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    document: &'a Document<'a>,
    path: String,
    line: usize,
    entries: &'a DeTable<'a>,
    section: &'static Section,
}

impl<'a> Table<'a> {
    fn open(
        document: &'a Document<'_>,
        path: String,
        line: usize,
        entries: &'a DeTable<'_>,
        section: &'static Section,
    ) -> Self {
        let table = Self { document, path, line, entries, section };
        table.refuse_unknown_keys();
        table
    }

    fn refuse_unknown_keys(&self) {
        if self.section.keys.iter().any(Key::is_placeholder) {
            return;
        }
        let known: Vec<&str> = self.section.keys.iter().map(|k| k.name).collect();
        for (word, _) in self.entries() {
            if !known.contains(&word.text) {
                word.refuse(
                    format!("there is no key {:?} here", clip(word.text)),
                    format!("{}known keys: {}", guess(word.text, &known), list(&known)),
                );
            }
        }
    }

    /// The value of `key`, if it is there.
    pub fn get(&self, key: &'static str) -> Option<Value<'a>> {
        debug_assert!(
            self.section.keys.iter().any(|k| k.name == key),
            "{key} is not in the section"
        );
        let (word, value) = self.entries.get_key_value(key)?;
        Some(self.value(word, value))
    }

    /// The value of `key`; its absence is a finding, whose remedy shows `example`.
    pub fn need(&self, key: &'static str, example: &str) -> Option<Value<'a>> {
        let value = self.get(key);
        if value.is_none() {
            let path = join(&self.path, key);
            self.document.report(self.line, path, "is missing", format!("add {key} = {example}"));
        }
        value
    }

    /// All keys with their values, in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (Word<'a>, Value<'a>)> + '_ {
        self.entries.iter().map(|(word, value)| {
            let value = self.value(word, value);
            (Word { text: word.get_ref(), place: value.clone() }, value)
        })
    }

    /// Reports something about the table as a whole.
    pub fn refuse(&self, problem: impl Into<String>, remedy: impl Into<String>) {
        self.document.report(self.line, self.path.clone(), problem, remedy);
    }

    /// Whether nothing stands in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn value(
        &self,
        word: &Spanned<std::borrow::Cow<'_, str>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Value<'a> {
        Value {
            document: self.document,
            path: join(&self.path, word.get_ref()),
            line: self.document.line_at(word.span().start),
            value: value.get_ref(),
        }
    }
}

/// A key that people choose themselves (a node's name, an AS number).
#[derive(Clone, Debug)]
pub struct Word<'a> {
    text: &'a str,
    place: Value<'a>,
}

impl<'a> Word<'a> {
    /// As it is written.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Its line, from 1.
    pub fn line(&self) -> usize {
        self.place.line
    }

    /// The key as a `T`; `what` says what that is ("a name").
    pub fn parse<T: FromStr<Err: Display>>(&self, what: &str) -> Option<T> {
        self.place.parse_text(self.text, what)
    }

    /// Reports something about the key.
    pub fn refuse(&self, problem: impl Into<String>, remedy: impl Into<String>) {
        self.place.refuse(problem, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: Section = Section {
        header: "[thing]",
        keys: &[
            Key { name: "count", kind: "", default: "", meaning: "" },
            Key { name: "size", kind: "", default: "", meaning: "" },
            Key { name: "at", kind: "", default: "", meaning: "" },
            Key { name: "where", kind: "", default: "", meaning: "" },
        ],
    };
    const ANY: Section = Section {
        header: "[any]",
        keys: &[Key { name: "NAME", kind: "", default: "", meaning: "" }],
    };

    fn findings(text: &str, read: impl Fn(&Table<'_>)) -> Vec<String> {
        let document = Document::parse(Path::new("dir/f.toml"), text);
        read(&document.root(&SECTION));
        document.into_findings().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn getters_give_the_value_or_one_finding() {
        let number = |t: &Table<'_>| {
            let _ = t.get("count").and_then(|v| v.u32_in(1..=10));
        };
        let size = |t: &Table<'_>| {
            let _ = t.get("size").and_then(|v| v.bytes());
        };
        let at = |t: &Table<'_>| {
            let _ = t.get("at").and_then(|v| v.socket_addr());
        };
        let list = |t: &Table<'_>| {
            let _ = t.get("at").map(|v| v.list_of(2, "addresses", |v| v.ip()));
        };
        let need = |t: &Table<'_>| {
            let _ = t.need("count", "3");
        };
        let table = |t: &Table<'_>| {
            let _ = t.get("count").and_then(|v| v.table(&ANY));
        };
        type Read<'a> = &'a dyn Fn(&Table<'_>);
        let cases: [(&str, Read<'_>, &[&str]); 13] = [
            ("count = 10", &number, &[]),
            ("count = 0xA", &number, &[]),
            (
                "\ncount = 11",
                &number,
                &["dir/f.toml:2: count: 11 is out of range: write a whole number from 1 to 10"],
            ),
            (
                "count = \"1\"",
                &number,
                &[
                    "dir/f.toml:1: count: is text, not a whole number: write a whole number from 1 to 10",
                ],
            ),
            ("size = \"1 MiB\"", &size, &[]),
            (
                "size = \"1MiB\"",
                &size,
                &[
                    "dir/f.toml:1: size: \"1MiB\" is not a size: write a size as a number and B, kB, MB, GB, \
                   TB, KiB, MiB, GiB or TiB: \"64 MiB\"",
                ],
            ),
            ("at = \"[::1]:80\"", &at, &[]),
            (
                "at = \"::1:80\"",
                &at,
                &[
                    "dir/f.toml:1: at: \"::1:80\" is not an address and port: write ADDRESS:PORT, IPv6 in \
                   brackets: \"192.0.2.10:80\" or \"[2001:db8::10]:80\"",
                ],
            ),
            (
                "at = [\n\"192.0.2.1\",\n\"192.0.2.1/24\"]",
                &list,
                &[
                    "dir/f.toml:3: at: \"192.0.2.1/24\" is not an IP address: write it without port or prefix \
                   length: \"192.0.2.10\" or \"2001:db8::10\"",
                ],
            ),
            ("at = []", &list, &["dir/f.toml:1: at: is an empty list: give 1 to 2 addresses"]),
            ("", &need, &["dir/f.toml: count: is missing: add count = 3"]),
            (
                "cuont = 1",
                &|_| (),
                &[
                    "dir/f.toml:1: cuont: there is no key \"cuont\" here: did you mean count? known keys: \
                   count, size, at, where",
                ],
            ),
            (
                "count = 1",
                &table,
                &[
                    "dir/f.toml:1: count: is a whole number, not a table: write it as [any] with its keys below",
                ],
            ),
        ];
        for (text, read, expected) in cases {
            assert_eq!(findings(text, read), expected, "{text}");
        }
    }

    #[test]
    fn relative_paths_are_taken_from_the_folder_of_the_file() {
        for (text, expected) in [("a/b", "dir/a/b"), ("/a", "/a"), ("../a", "dir/../a")] {
            let text = format!("where = {text:?}");
            let document = Document::parse(Path::new("dir/f.toml"), &text);
            let path = document.root(&SECTION).get("where").and_then(|v| v.path());
            assert_eq!(path.as_deref(), Some(Path::new(expected)));
        }
    }

    #[test]
    fn lines_are_found_by_path_and_fall_back_to_what_is_around() {
        let text = "[a.\"B.example\"]\nlist = [\n  1,\n  2,\n]\n[a.x]\nAS7 = 1\n";
        let document = Document::parse(Path::new("f.toml"), text);
        let path = |keys: &[&str]| KeyPath::of(keys);
        for (path, line) in [
            (path(&["a", "b.example", "list"]).index(1), Some(4)),
            (path(&["a", "b.example", "list"]).index(7), Some(2)),
            (path(&["a", "b.example", "gone", "more"]), Some(1)),
            (path(&["a", "x", "7"]), Some(7)),
            (path(&["a", "gone"]), None),
        ] {
            assert_eq!(document.line_of(&path, 2), line, "{path}");
        }
        assert_eq!(path(&["a", "b.example", "list"]).index(1).to_string(), "a.\"b.example\".list");
    }

    #[test]
    fn syntax_errors_are_findings_with_a_line() {
        let document = Document::parse(Path::new("f.toml"), "count = 1\ncount = 2\nsize = \n");
        assert!(!document.is_sound());
        let lines: Vec<usize> = document.into_findings().iter().map(|f| f.line).collect();
        assert_eq!(lines, [2, 3]);
    }
}
