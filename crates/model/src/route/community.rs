//! Communities: tags that operators put on routes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

/// A community (RFC 1997). Prints as `65000:120`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Community(pub u32);

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// A large community (RFC 8092). Prints as `4200000000:1:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LargeCommunity {
    /// Global administrator: the AS that says what the rest means.
    pub global: u32,
    /// The local data parts.
    pub local: [u32; 2],
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.local;
        write!(f, "{}:{first}:{second}", self.global)
    }
}

/// Not a community.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a community is two numbers up to 65535, for example 65000:120, a large one three up to 4294967295, for example 65000:1:2"
)]
pub struct ParseCommunityError;

impl FromStr for Community {
    type Err = ParseCommunityError;
    fn from_str(text: &str) -> Result<Self, ParseCommunityError> {
        let number = |part: &str| part.parse::<u16>().map_err(|_| ParseCommunityError);
        let (high, low) = text.split_once(':').ok_or(ParseCommunityError)?;
        Ok(Self(u32::from(number(high)?) << 16 | u32::from(number(low)?)))
    }
}

impl FromStr for LargeCommunity {
    type Err = ParseCommunityError;
    fn from_str(text: &str) -> Result<Self, ParseCommunityError> {
        let number = |part: &str| part.parse::<u32>().map_err(|_| ParseCommunityError);
        let (global, rest) = text.split_once(':').ok_or(ParseCommunityError)?;
        let (first, second) = rest.split_once(':').ok_or(ParseCommunityError)?;
        Ok(Self { global: number(global)?, local: [number(first)?, number(second)?] })
    }
}

/// One community of either kind, as a rule names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tag {
    /// A standard one.
    Standard(Community),
    /// A large one.
    Large(LargeCommunity),
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(community) => community.fmt(f),
            Self::Large(community) => community.fmt(f),
        }
    }
}

impl FromStr for Tag {
    type Err = ParseCommunityError;
    fn from_str(text: &str) -> Result<Self, ParseCommunityError> {
        text.parse().map(Self::Standard).or_else(|_| text.parse().map(Self::Large))
    }
}

impl TryFrom<String> for Tag {
    type Error = ParseCommunityError;
    fn try_from(text: String) -> Result<Self, ParseCommunityError> {
        text.parse()
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.to_string()
    }
}

/// The communities of a route: each kind in ascending order and each once, so that equal sets are
/// equal values. Extended ones (RFC 4360) are kept as they came; nothing is made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Communities {
    /// How many are standard, and how many large; the rest is extended.
    counts: [u16; 2],
    /// One word a standard one, three a large one, two an extended one.
    words: Box<[u32]>,
}

const LARGE_WORDS: usize = 3;
const EXTENDED_WORDS: usize = 2;

impl Communities {
    /// These, in any order. Of more than 65535 of a kind, which no message can hold, the highest are
    /// left out.
    pub fn new(
        standard: impl IntoIterator<Item = Community>,
        large: impl IntoIterator<Item = LargeCommunity>,
        extended: impl IntoIterator<Item = [u8; 8]>,
    ) -> Self {
        let (standard, large) = (sorted(standard), sorted(large));
        let extended = sorted(extended.into_iter().map(u64::from_be_bytes));
        let mut words: Vec<u32> = standard.iter().map(|community| community.0).collect();
        for LargeCommunity { global, local: [first, second] } in &large {
            words.extend([*global, *first, *second]);
        }
        for community in extended {
            words.extend([(community >> 32) as u32, community as u32]);
        }
        let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        Self { counts: [count(standard.len()), count(large.len())], words: words.into() }
    }

    /// The standard ones, ascending.
    pub fn standard(&self) -> impl Iterator<Item = Community> + '_ {
        self.parts().0.iter().map(|word| Community(*word))
    }

    /// The large ones, ascending.
    pub fn large(&self) -> impl Iterator<Item = LargeCommunity> + '_ {
        let (parts, _) = self.parts().1.as_chunks::<LARGE_WORDS>();
        parts.iter().map(|[global, first, second]| LargeCommunity {
            global: *global,
            local: [*first, *second],
        })
    }

    /// The extended ones, ascending.
    pub fn extended(&self) -> impl Iterator<Item = [u8; 8]> + '_ {
        let (parts, _) = self.parts().2.as_chunks::<EXTENDED_WORDS>();
        parts.iter().map(|[high, low]| (u64::from(*high) << 32 | u64::from(*low)).to_be_bytes())
    }

    /// Whether this one is among them.
    pub fn has(&self, tag: Tag) -> bool {
        match tag {
            Tag::Standard(community) => self.parts().0.binary_search(&community.0).is_ok(),
            Tag::Large(community) => self.large().any(|other| other == community),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Words of the standard, large and extended ones.
    fn parts(&self) -> (&[u32], &[u32], &[u32]) {
        let [standard, large] = self.counts.map(usize::from);
        let (standard, rest) = self.words.split_at_checked(standard).unwrap_or_default();
        let large = large.saturating_mul(LARGE_WORDS);
        let (large, extended) = rest.split_at_checked(large).unwrap_or_default();
        (standard, large, extended)
    }
}

fn sorted<T: Ord>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(usize::from(u16::MAX));
    all
}

impl fmt::Display for Communities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for community in self.printed() {
            write!(f, "{gap}{community}")?;
            gap = " ";
        }
        Ok(())
    }
}

impl Communities {
    fn printed(&self) -> impl Iterator<Item = String> + '_ {
        let standard = self.standard().map(|community| community.to_string());
        let large = self.large().map(|community| community.to_string());
        let extended = self.extended().map(|b| format!("{:#018x}", u64::from_be_bytes(b)));
        standard.chain(large).chain(extended)
    }
}

impl Serialize for Communities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.printed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_are_read_and_printed() {
        assert_eq!("65000:120".parse(), Ok(Community(65000 << 16 | 120)));
        assert_eq!(Community(u32::MAX).to_string(), "65535:65535");
        let large = LargeCommunity { global: u32::MAX, local: [0, 7] };
        assert_eq!("4294967295:0:7".parse(), Ok(large));
        assert_eq!(large.to_string(), "4294967295:0:7");
        for bad in ["", "1", "65536:1", "1:65536", "1:2:3", "1:", "a:b", "1: 2"] {
            assert_eq!(bad.parse::<Community>(), Err(ParseCommunityError), "{bad}");
        }
        for bad in ["1:2", "1:2:3:4", "1:2:4294967296", "1::3"] {
            assert_eq!(bad.parse::<LargeCommunity>(), Err(ParseCommunityError), "{bad}");
        }
    }

    #[test]
    fn equal_sets_are_equal_values_whatever_their_order() {
        let large = |global| LargeCommunity { global, local: [1, 2] };
        let one = Communities::new(
            [Community(3), Community(1), Community(3)],
            [large(9), large(8)],
            [[9; 8], [8; 8]],
        );
        let other = Communities::new(
            [Community(1), Community(3)],
            [large(8), large(9), large(8)],
            [[8; 8], [9; 8], [9; 8]],
        );
        assert_eq!(one, other);
        assert!(one.standard().eq([Community(1), Community(3)]));
        assert!(one.large().eq([large(8), large(9)]));
        assert!(one.extended().eq([[8; 8], [9; 8]]));
        let has = |tag: &str| one.has(tag.parse().unwrap());
        assert!(has("0:3") && !has("0:2") && has("9:1:2") && !has("1:1:2"));
        let none = Communities::default();
        assert!(none.is_empty() && !one.is_empty() && !none.has(Tag::Standard(Community(0))));
        assert_eq!(one.to_string(), "0:1 0:3 8:1:2 9:1:2 0x0808080808080808 0x0909090909090909");
    }
}
