//! What a sponsor gives: how the traffic of a node is billed (`commit`, `billing`), and its caps
//! (`[[node.NAME.cap]]`).

use std::collections::BTreeSet;

use model::{Asn, ByteCount, CountryCode, Name, Rate};
use serde::{Deserialize, Serialize};

use super::check::{Fault, push};
use super::load::entry;
use super::read_project::word_of;
use super::schema::{self, limits};
use super::{AdminMap, Node};
use crate::toml_read::{Table, Value};

/// How the traffic of a node is billed, and what of it is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bill {
    /// By the 95th percentile of the month's 5-minute rates, of the larger direction.
    P95(Rate),
    /// By the bytes of the month, both directions together.
    Monthly(ByteCount),
    /// Not by traffic.
    Flat,
}

impl Bill {
    /// Its word in maps.
    pub fn word(self) -> &'static str {
        match self {
            Self::P95(_) => "p95",
            Self::Monthly(_) => "monthly",
            Self::Flat => "flat",
        }
    }

    /// The commit as it is written in maps.
    pub fn commit(self) -> Option<String> {
        match self {
            Self::P95(rate) => Some(rate.to_string()),
            Self::Monthly(bytes) => Some(bytes.to_string()),
            Self::Flat => None,
        }
    }
}

/// `[[node.NAME.cap]]`: what the node sends at most to some of its clients. All that is given must
/// match; an empty list matches everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// Of content, shared by all it holds for.
    pub rate: Rate,
    /// Content of these projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<Name>,
    /// To clients in these ASes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asns: Vec<Asn>,
    /// To clients in these countries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<CountryCode>,
}

impl Cap {
    /// Whether it holds for content of a project to a client of whom this is known.
    pub fn holds_for(
        &self,
        project: &Name,
        asn: Option<Asn>,
        country: Option<CountryCode>,
    ) -> bool {
        let is_in = |list: &[Asn]| asn.is_some_and(|asn| list.contains(&asn));
        (self.projects.is_empty() || self.projects.contains(project))
            && (self.asns.is_empty() || is_in(&self.asns))
            && (self.countries.is_empty() || country.is_some_and(|c| self.countries.contains(&c)))
    }

    /// Whether it holds for the same clients as another.
    pub fn is_for_same(&self, other: &Self) -> bool {
        (&self.projects, &self.asns, &self.countries)
            == (&other.projects, &other.asns, &other.countries)
    }

    /// For whom it holds, in a few words: `videolan AS7545 AU`, or `all`.
    pub fn name(&self) -> String {
        let projects = self.projects.iter().map(ToString::to_string);
        let asns = self.asns.iter().map(|asn| format!("AS{}", asn.get()));
        let countries = self.countries.iter().map(ToString::to_string);
        let words: Vec<String> = projects.chain(asns).chain(countries).collect();
        if words.is_empty() { "all".to_owned() } else { words.join(" ") }
    }
}

/// `billing` and `commit`: one says how to read the other.
pub(super) fn read_bill(table: &Table<'_>) -> Option<Bill> {
    let words = ["p95", "monthly", "flat"].map(str::to_owned);
    let (billing, commit) = (table.get("billing"), table.get("commit"));
    let Some(billing) = billing else {
        if let Some(commit) = commit {
            let remedy = "add billing = \"p95\" or \"monthly\": what the sponsor's bill goes by";
            commit.refuse("has no billing beside it", remedy);
        }
        return None;
    };
    let word: Word = word_of(&billing, "way to bill", &words)?;
    match (word, commit) {
        (Word::Flat, None) => Some(Bill::Flat),
        (Word::Flat, Some(commit)) => {
            let remedy = "take it out: nothing is held to it where traffic costs nothing";
            commit.refuse("stands beside billing = \"flat\"", remedy);
            None
        }
        (Word::P95, Some(commit)) => {
            let remedy = format!("write \"{}\" or more", Rate(limits::CAP_RATE_BITS_S));
            let rate = commit.rate()?;
            if rate.0 < limits::CAP_RATE_BITS_S {
                commit.refuse(format!("{rate} is too little to serve anybody"), remedy);
                return None;
            }
            Some(Bill::P95(rate))
        }
        (Word::Monthly, Some(commit)) => {
            let remedy = format!("write \"{}\" or more", ByteCount(limits::COMMIT_BYTES));
            let bytes = commit.bytes()?;
            if bytes.0 < limits::COMMIT_BYTES {
                commit.refuse(format!("{bytes} is too little for a month"), remedy);
                return None;
            }
            Some(Bill::Monthly(bytes))
        }
        (Word::P95 | Word::Monthly, None) => {
            let remedy = "add commit = \"300 Mbit/s\" for p95, commit = \"20 TB\" for monthly";
            billing.refuse("has no commit beside it", remedy);
            None
        }
    }
}

/// What `billing` says.
enum Word {
    P95,
    Monthly,
    Flat,
}

impl std::str::FromStr for Word {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "p95" => Ok(Self::P95),
            "monthly" => Ok(Self::Monthly),
            "flat" => Ok(Self::Flat),
            _ => Err(()),
        }
    }
}

pub(super) fn read_cap(value: &Value<'_>) -> Option<Cap> {
    let table = value.table(&schema::CAP)?;
    let rate = table.need("rate", "\"100 Mbit/s\"").and_then(|v| read_rate(&v));
    let names = |v: Value<'_>| v.list_of(limits::CAP_PROJECTS, "projects", |v| v.name());
    let asns = |v: Value<'_>| v.list_of(limits::CAP_ASNS, "AS numbers", |v| v.asn());
    let countries = |v: Value<'_>| v.list_of(limits::CAP_COUNTRIES, "countries", |v| v.country());
    let cap = Cap {
        rate: rate.unwrap_or_default(),
        projects: table.get("projects").map(names).unwrap_or_default(),
        asns: table.get("asns").map(asns).unwrap_or_default(),
        countries: table.get("countries").map(countries).unwrap_or_default(),
    };
    rate.is_some().then_some(cap)
}

fn read_rate(value: &Value<'_>) -> Option<Rate> {
    let rate = value.rate()?;
    if rate.0 < limits::CAP_RATE_BITS_S {
        let remedy = format!("write \"{}\" or more", Rate(limits::CAP_RATE_BITS_S));
        value.refuse(format!("{rate} is too little to serve anybody"), remedy);
        return None;
    }
    Some(rate)
}

/// Caps and commits that can never take effect, or say something twice.
pub(super) fn check(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, node) in &map.nodes {
        let path = || entry("node", name);
        let above = |rate: Rate| node.capacity.filter(|capacity| rate > *capacity);
        if let Some(Bill::P95(commit)) = node.bill
            && let Some(capacity) = above(commit)
        {
            let problem = format!("{commit} is more than the node can send ({capacity})");
            let remedy = "write what is paid for, or the right capacity";
            push(faults, path().key("commit"), problem, remedy);
        }
        for (at, cap) in node.caps.iter().enumerate() {
            let path = || path().key("cap").index(at);
            if let Some(capacity) = above(cap.rate) {
                let problem = format!("{} is more than the node can send ({capacity})", cap.rate);
                push(faults, path().key("rate"), problem, "write less, or take the cap out");
            }
            if node.caps.iter().take(at).any(|earlier| earlier.is_for_same(cap)) {
                let problem = "a cap for the same clients stands before it".to_owned();
                push(faults, path(), problem, "keep the lower of the two");
            }
            twice(&cap.projects, "projects", path, faults);
            twice(&cap.asns, "asns", path, faults);
            twice(&cap.countries, "countries", path, faults);
        }
    }
}

fn twice<T: Ord + ToString>(
    list: &[T],
    key: &str,
    path: impl Fn() -> crate::toml_read::KeyPath,
    faults: &mut Vec<Fault>,
) {
    let mut seen = BTreeSet::new();
    for (at, element) in list.iter().enumerate() {
        if !seen.insert(element) {
            let problem = format!("{} is there twice", element.to_string());
            push(faults, path().key(key).index(at), problem, "take one out");
        }
    }
}

/// A commit or cap that no person could have written, in a published map.
pub(crate) fn out_of_range(node: &Node) -> Option<&'static str> {
    let is_low = |rate: Rate| rate.0 < limits::CAP_RATE_BITS_S;
    match node.bill {
        Some(Bill::P95(commit)) if is_low(commit) => return Some("commit"),
        Some(Bill::Monthly(commit)) if commit.0 < limits::COMMIT_BYTES => return Some("commit"),
        _ => {}
    }
    let caps = &node.caps;
    (caps.len() > limits::CAPS || caps.iter().any(|cap| is_low(cap.rate))).then_some("cap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_holds_for_whom_all_of_it_matches() {
        let cap = Cap {
            rate: Rate(1),
            projects: vec!["videolan".parse().unwrap(), "vlc".parse().unwrap()],
            asns: vec!["AS7545".parse().unwrap()],
            countries: vec!["AU".parse().unwrap()],
        };
        let holds = |cap: &Cap, project: &str, asn: &str, country: &str| {
            cap.holds_for(&project.parse().unwrap(), asn.parse().ok(), country.parse().ok())
        };
        assert!(holds(&cap, "vlc", "7545", "AU"));
        for (project, asn, country) in
            [("x", "7545", "AU"), ("vlc", "1", "AU"), ("vlc", "", "AU"), ("vlc", "7545", "")]
        {
            assert!(!holds(&cap, project, asn, country), "{project} {asn} {country}");
        }
        assert_eq!(cap.name(), "videolan vlc AS7545 AU");
        let all = Cap { projects: vec![], asns: vec![], countries: vec![], ..cap };
        assert!(holds(&all, "x", "", ""));
        assert_eq!(all.name(), "all");
    }
}
