//! What is wrong with text that is no TOML, at the place where a person has to mend it.
//!
//! A parser notices an open bracket only where the next thing does not fit any more, often lines
//! below; then the bracket is what is reported.

use std::ops::Range;

/// How the parser's message on a second definition of a key begins; its span is the key.
const DUPLICATE: &str = "duplicate key";

/// A syntax error.
#[derive(Debug)]
pub(super) struct Fault {
    /// Byte offset of what is to be mended.
    pub(super) at: usize,
    /// The key that is there twice; empty for every other fault.
    pub(super) key: String,
    /// Where the table ends that is there twice: its keys are so too, which says nothing new.
    pub(super) hides_to: Option<usize>,
    pub(super) problem: String,
    pub(super) remedy: String,
}

/// The fault that the parser found at `span` of `text` and calls `message`.
pub(super) fn fault(text: &str, span: Range<usize>, message: &str) -> Fault {
    if message.starts_with(DUPLICATE) {
        let key = text.get(span.clone()).unwrap_or_default().to_owned();
        let table = table_from(text, span.start);
        let remedy = match table {
            Some(_) => "keep one of the two, or write [[ ]] around each if they are of a list",
            None => "keep one of the two",
        };
        let (problem, remedy) = (message.to_owned(), remedy.to_owned());
        return Fault { at: span.start, key, hides_to: table, problem, remedy };
    }
    let before = text.get(..span.start).unwrap_or(text);
    if let Some(open) = open_bracket(before)
        && was_meant_to_end(text, &open, span.start, message)
    {
        let (this, that) = if open.is_list { ('[', ']') } else { ('{', '}') };
        let problem = format!("the {this} here is not closed");
        let remedy = format!("add the {that} that belongs to it");
        return Fault { at: open.at, key: String::new(), hides_to: None, problem, remedy };
    }
    // A comma is missing behind what is there, not before what comes next.
    let at =
        if message.starts_with("missing comma") { before.trim_end().len() } else { span.start };
    let remedy = "correct the TOML here: key = value, one a line; text in \"quotes\"; lists in [ ]";
    let (problem, remedy) = (message.to_owned(), remedy.to_owned());
    Fault { at, key: String::new(), hides_to: None, problem, remedy }
}

/// Where the table ends whose header has a key at `at`; none where the key is in no header.
fn table_from(text: &str, at: usize) -> Option<usize> {
    let line = text.get(..at)?.rfind('\n').map_or(0, |end| end.saturating_add(1));
    if !text.get(line..)?.trim_start().starts_with('[') {
        return None;
    }
    let next = text.get(at..)?.find("\n[");
    Some(next.map_or(text.len(), |next| at.saturating_add(next)))
}

/// A bracket of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    at: usize,
    is_list: bool,
}

/// Whether the fault at `fault` comes of `open` not being closed: the text ends, or a new statement
/// begins that cannot be meant as a part of the value.
fn was_meant_to_end(text: &str, open: &Open, fault: usize, message: &str) -> bool {
    if message.starts_with("unclosed") {
        return true;
    }
    let between = text.get(open.at..fault).unwrap_or_default();
    let Some(line_start) = between.rfind('\n') else { return false };
    let line_start = open.at.saturating_add(line_start).saturating_add(1);
    let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
    // A table over several lines has keys of its own, one a line; one that begins beside its
    // bracket was meant to end there.
    let beside = between.lines().next().unwrap_or_default().trim_start_matches(['{', '[']);
    let over_lines = beside.trim().is_empty() || beside.trim_start().starts_with('#');
    is_header(line) || (is_assignment(line) && (open.is_list || !over_lines))
}

/// Whether a line is `[header]` or `[[header]]`, and not an element of a list.
fn is_header(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default().trim();
    let inner = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| {
        let bare = |c: char| c.is_ascii_alphabetic() || c == '[';
        inner.starts_with(bare) && !inner.contains(',')
    })
}

/// Whether a line begins with `key =`.
fn is_assignment(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let part = |c: char| c.is_ascii_alphanumeric() || "-_.\" '".contains(c);
    !key.trim().is_empty() && key.trim().chars().all(part)
}

/// The innermost bracket of a value that is open at the end of `text`.
fn open_bracket(text: &str) -> Option<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut line_is_empty = true;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let at = text.len().saturating_sub(rest.len());
        let length = match c {
            '"' | '\'' => string_bytes(rest, c),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            // A header: its brackets are not those of a value.
            '[' if open.is_empty() && line_is_empty => rest.find('\n').unwrap_or(rest.len()),
            '[' | '{' => {
                open.push(Open { at, is_list: c == '[' });
                1
            }
            ']' | '}' => {
                open.pop();
                1
            }
            c => c.len_utf8(),
        };
        line_is_empty = c == '\n' || (line_is_empty && c.is_whitespace());
        rest = rest.get(length.max(1)..).unwrap_or_default();
    }
    open.pop()
}

/// Length of the string that `text` begins with, quotes included; of one that does not end, up to
/// the end of the line, or of the text when it may have several lines.
fn string_bytes(text: &str, quote: char) -> usize {
    let long = match quote {
        '"' => "\"\"\"",
        _ => "'''",
    };
    let is_long = text.starts_with(long);
    let (end, skip) = if is_long { (long, 3) } else { (long.get(..1).unwrap_or(long), 1) };
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(skip) {
        let left = text.get(at..).unwrap_or_default();
        if !is_long && c == '\n' {
            return at;
        }
        if !escaped && left.starts_with(end) {
            return at.saturating_add(end.len());
        }
        escaped = quote == '"' && c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::toml_read::Document;

    /// The findings of `text`, as `LINE problem`.
    fn findings(text: &str) -> Vec<String> {
        let findings = Document::parse(Path::new("f.toml"), text).into_findings();
        findings.iter().map(|f| format!("{} {}", f.line, f.problem)).collect()
    }

    #[test]
    fn an_open_bracket_is_one_finding_where_it_stands() {
        const BRACE: &str = "the { here is not closed";
        const BRACKET: &str = "the [ here is not closed";
        for (text, line, problem) in [
            ("[pool]\np = { n = 1, m = 2\nq = { n = 3 }\n\n[map.a]\ndefault = [\"p\"]\n", 2, BRACE),
            ("[pool]\np = { n = 1, m = 2\n\n[map.a]\ndefault = [\"p\"]\n", 2, BRACE),
            ("[pool]\np = { n = 1, m = { o = 1 }\n", 2, BRACE),
            (
                "a = { # comment {\n  m = { u = \"}\" },\n  n = { u = '{' }\n\n[b]\nc = 1\n",
                1,
                BRACE,
            ),
            ("[n]\na = [\"1\",\n  \"2\"\n\n[pool]\np = { n = 1 }\n", 2, BRACKET),
            ("[n]\na = [\"1\", \"2\"\nb = 1\nc = 2\n", 2, BRACKET),
            ("[n]\na = [\n  [1, 2],\n  [3, 4]\n\n[[edge.store]] # [\nb = 1\n", 2, BRACKET),
            ("a = \"\"\"\n[ { \\\"\"\" \n\"\"\"\nb = [ 1\n", 4, BRACKET),
            ("a = '''\n[ {\n'''\nb = [ 1\n", 4, BRACKET),
        ] {
            assert_eq!(findings(text), [format!("{line} {problem}")], "{text}");
        }
    }

    #[test]
    fn every_other_break_is_one_finding_too() {
        for (text, expected) in [
            ("[n]\na = [\n  \"1\"\n\n  \"2\",\n]\nb = [ 1 2 ]\n", "3 missing comma between array"),
            ("a = {\n  b = 1\n  c = 2\n}\n", "2 missing comma between key-value pairs"),
            ("[n]\na = \"1\nb = [ 1\n", "2 invalid basic string"),
            ("[n\na = \"1\"\n", "1 unclosed table"),
            ("a = \"1\"]\nb = s\n", "1 unexpected key or value"),
            ("a = s\n[b]\nc = [ 1\n", "1 string values must be quoted"),
            ("a = [ { b = ä } ]\n", "1 "),
        ] {
            let found = findings(text);
            let is_it = matches!(found.as_slice(), [one] if one.starts_with(expected));
            assert!(is_it, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_list_written_as_tables_is_one_finding_a_header() {
        let text = "[[p.l]]\na = 1\n\n[p.t]\na = 1\n[p.t]\na = 2\nb = 1\nb = 2\n[q]\na = 1\na = 2\n\
                    [p.t]\na = 3\n";
        let found = findings(text);
        let lines: Vec<&str> = found.iter().map(|f| &f[..4]).collect();
        assert_eq!(lines, ["6 du", "12 d", "13 d"], "{found:?}");
        let findings = Document::parse(Path::new("f.toml"), text).into_findings();
        let remedies: Vec<bool> = findings.iter().map(|f| f.remedy.contains("[[ ]]")).collect();
        assert_eq!(remedies, [true, false, true], "{findings:?}");
    }

    #[test]
    fn keys_given_twice_are_told_up_to_the_break() {
        let text = "a = 1\na = 2\nb = 1\nb = 2\nc = \nd = 1\nd = 2\n";
        let lines: Vec<String> = findings(text).iter().map(|f| f[..3].to_owned()).collect();
        assert_eq!(lines, ["2 d", "4 d", "5 s"], "{:?}", findings(text));
    }
}
