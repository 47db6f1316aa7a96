//! [`PathPattern`]: what a map asks of an AS path.
//!
//! A pattern is words with spaces between them. Each word but `*`, `^` and `$` stands for one hop:
//!
//! | word | stands for |
//! |---|---|
//! | `7545` | this AS |
//! | `7545,4826` | any of these |
//! | `64512-65534` | any of this range, both ends included; ranges may stand among alternatives |
//! | `?` | one hop, whichever |
//! | `*` | any number of hops, none too |
//! | `^` | first only: the path begins here, with the AS that passed the route to us |
//! | `$` | last only: the path ends here, with the origin |
//!
//! Without `^` or `$` anything may stand before or behind. An AS several times in a row is one hop, so
//! prepending never matters; a set of several ASes is one hop that only `?` and `*` match.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Hop;
use crate::Asn;

/// Longest pattern, in bytes.
const BYTES_MAX: usize = 256;

/// A pattern over the hops of an AS path; see the module for its language.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    /// As it was written, with single spaces.
    text: String,
    /// Begins and ends with [`Word::Any`] where the pattern does not say how the path does.
    words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Word {
    /// One of these.
    As(Vec<(u32, u32)>),
    /// One hop.
    One,
    /// Any number of hops.
    Any,
}

impl Word {
    fn matches(&self, hop: Hop) -> bool {
        match self {
            Self::As(ranges) => hop.is_some_and(|asn| {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&asn.get()))
            }),
            Self::One => true,
            Self::Any => false,
        }
    }
}

impl PathPattern {
    /// Whether a path with these hops (see [`AsPath::hops`](super::AsPath::hops)) matches. Takes at most
    /// as many steps as there are hops times words.
    pub fn matches(&self, hops: &[Hop]) -> bool {
        let (mut hop, mut word) = (0usize, 0usize);
        // Where to go on when a word does not match: one hop further behind the last `*`.
        let mut retry: Option<(usize, usize)> = None;
        while let Some(at) = hops.get(hop) {
            match self.words.get(word) {
                Some(Word::Any) => {
                    word = word.saturating_add(1);
                    retry = Some((hop, word));
                }
                Some(one) if one.matches(*at) => {
                    hop = hop.saturating_add(1);
                    word = word.saturating_add(1);
                }
                _ => {
                    let Some((from, behind)) = retry else { return false };
                    hop = from.saturating_add(1);
                    word = behind;
                    retry = Some((hop, word));
                }
            }
        }
        self.words.iter().skip(word).all(|word| *word == Word::Any)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePatternError {
    /// It names no AS, so that it would say nothing.
    #[error("a pattern names an AS at least, or `?`, for example \"^ 7545 * 4826 $\"")]
    Empty,
    /// It is too long.
    #[error("a pattern has at most 256 bytes")]
    Long,
    /// `^` or `$` stands inside.
    #[error("`^` stands at the beginning only and `$` at the end only, with spaces beside them")]
    Anchor,
    /// A word that is none.
    #[error(
        "`{0}` is neither an AS number (7545), nor alternatives (7545,4826) or a range (64512-65534), nor `?` for one AS or `*` for any number of them; words are parted by spaces"
    )]
    Word(String),
}

impl FromStr for PathPattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, ParsePatternError> {
        if text.len() > BYTES_MAX {
            return Err(ParsePatternError::Long);
        }
        let written: Vec<&str> = text.split_whitespace().collect();
        let mut inner = written.as_slice();
        let (mut begins, mut ends) = (false, false);
        if let [first, rest @ ..] = inner
            && *first == "^"
        {
            (begins, inner) = (true, rest);
        }
        if let [rest @ .., last] = inner
            && *last == "$"
        {
            (ends, inner) = (true, rest);
        }
        let mut words: Vec<Word> =
            inner.iter().map(|word| read_word(word)).collect::<Result<_, _>>()?;
        if words.iter().all(|word| *word == Word::Any) {
            return Err(ParsePatternError::Empty);
        }
        if !begins {
            words.insert(0, Word::Any);
        }
        if !ends {
            words.push(Word::Any);
        }
        words.dedup_by(|a, b| *a == Word::Any && *b == Word::Any);
        Ok(Self { text: written.join(" "), words })
    }
}

fn read_word(word: &str) -> Result<Word, ParsePatternError> {
    match word {
        "*" => Ok(Word::Any),
        "?" => Ok(Word::One),
        _ if word.contains(['^', '$']) => Err(ParsePatternError::Anchor),
        _ => {
            let ranges = word.split(',').map(read_range).collect::<Option<Vec<_>>>();
            ranges.map(Word::As).ok_or_else(|| ParsePatternError::Word(word.to_owned()))
        }
    }
}

/// `7545` or `64512-65534`.
fn read_range(text: &str) -> Option<(u32, u32)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high): (Asn, Asn) = (low.parse().ok()?, high.parse().ok()?);
    let range: RangeInclusive<u32> = low.get()..=high.get();
    (!range.is_empty()).then_some((low.get(), high.get()))
}

impl TryFrom<String> for PathPattern {
    type Error = ParsePatternError;
    fn try_from(text: String) -> Result<Self, ParsePatternError> {
        text.parse()
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::AsPath;
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let hops: Vec<Hop> = path.parse::<AsPath>().unwrap().hops().collect();
        pattern.parse::<PathPattern>().unwrap().matches(&hops)
    }

    #[test]
    fn the_language() {
        for (pattern, yes, no) in [
            (
                "7545",
                &["7545", "1 7545", "7545 1", "1 7545 7545 2"][..],
                &["", "1", "75 45", "17545"][..],
            ),
            ("^ 7545", &["7545", "7545 1", "7545 7545 1"], &["1 7545", ""]),
            ("7545 $", &["7545", "1 7545", "1 7545 7545"], &["7545 1"]),
            ("^ 7545 $", &["7545", "7545 7545"], &["7545 1", "1 7545", ""]),
            (
                "^ 7545 * 4826 $",
                &["7545 4826", "7545 1 2 3 4826", "7545 4826 4826"],
                &["7545", "4826 7545", "7545 4826 1"],
            ),
            ("1 2", &["1 2", "9 1 1 2 2 9", "1 3 1 2"], &["1 3 2", "2 1"]),
            ("^ ? 4826 $", &["1 4826", "1 1 4826", "{1 2} 4826"], &["4826", "1 2 4826"]),
            ("? ? ?", &["1 2 3", "1 2 3 4"], &["1 2", "1 1 1"]),
            ("^ 1,5-7,9 $", &["1", "5", "6", "7", "9"], &["2", "4", "8", "10"]),
            // A pattern that has to be tried at several places.
            ("1 2 * 1 3 $", &["1 2 1 2 1 3", "1 2 1 3"], &["1 3", "1 2 1 3 4", "1 2 3"]),
            // Of a set of several nobody can say which AS is meant.
            ("2", &["1 {2}", "1 {2 2}"], &["1 {2 3}", "(2) 1"]),
            ("AS4294967295", &["4294967295"], &["1"]),
            // AS 0 is nobody.
            ("1-4294967295", &["1"], &["0", "{1 2}"]),
        ] {
            yes.iter().for_each(|path| assert!(matches(pattern, path), "{pattern}: {path}"));
            no.iter().for_each(|path| assert!(!matches(pattern, path), "{pattern}: {path}"));
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let parse = |text: &str| text.parse::<PathPattern>().unwrap_err();
        for text in ["", " ", "^", "$", "^ $", "*", "^ * $"] {
            assert_eq!(parse(text), ParsePatternError::Empty, "{text}");
        }
        for text in ["1 ^ 2", "1 $ 2", "^7545", "7545$", "$ 1", "1 ^", "^ ^ 1"] {
            assert_eq!(parse(text), ParsePatternError::Anchor, "{text}");
        }
        for text in
            ["x", "0", "1,", ",1", "7-5", "1-2-3", "4294967296", "1.2", "**", "_7545_", "{1}"]
        {
            assert_eq!(parse(text), ParsePatternError::Word(text.to_owned()), "{text}");
        }
        assert_eq!(parse(&"1 ".repeat(129)), ParsePatternError::Long);
        assert_eq!("  ^  1   * 2 ".parse::<PathPattern>().unwrap().as_str(), "^ 1 * 2");
    }

    #[test]
    fn long_paths_take_no_longer_than_hops_times_words() {
        // Exponential matchers never come back from this one.
        let hops: Vec<Hop> = (0..20_000).map(|n| Asn::new(1 + n % 2)).collect();
        let pattern =
            "1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 3 $".parse::<PathPattern>().unwrap();
        assert!(!pattern.matches(&hops));
    }
}
