//! What steers clients: `[map.NAME]` with its overrides, and for whom a node serves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{Asn, Continent, CountryCode, Name};
use serde::{Deserialize, Serialize};

use super::AdminMap;
use super::check::{Fault, push};
use super::load::{entry, rules};
use super::routing::{RouteRule, read_rules, read_views};
use super::schema::{self, limits};
use crate::Finding;
use crate::toml_read::{Table, Value};
use crate::words::clip;

/// `[map.NAME]`: evidence -> ordered pools. Each list is non-empty; order of evidence is override,
/// rule, ASN, country, continent, default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeringMap {
    /// For everyone else.
    pub default: Vec<Name>,
    /// By continent.
    #[serde(default)]
    pub continent: BTreeMap<Continent, Vec<Name>>,
    /// By country.
    #[serde(default)]
    pub country: BTreeMap<CountryCode, Vec<Name>>,
    /// By AS number.
    #[serde(default)]
    pub asn: BTreeMap<Asn, Vec<Name>>,
    /// By prefix, whatever is known of its clients; of several the longest decides.
    #[serde(default, rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// The views of the routing table that it believes: of several that have a route the first. Empty:
    /// all, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<Name>,
    /// By live routes: the first that matches.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RouteRule>,
}

/// `[[map.NAME.override]]`: a person's word on one prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The clients; without host bits, and never inside the IPv4-mapped block.
    pub prefix: IpNet,
    /// Their pools, in order.
    pub pools: Vec<Name>,
    /// Whom to ask.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// From when on it is ignored, unix milliseconds; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl Override {
    /// Whether it holds at a moment, unix milliseconds.
    pub fn holds_at(&self, wall_ms: u64) -> bool {
        self.expires_ms.is_none_or(|expires_ms| wall_ms < expires_ms)
    }
}

impl SteeringMap {
    /// The override that decides for an address at a moment, unix milliseconds.
    pub fn override_at(&self, address: IpAddr, wall_ms: u64) -> Option<&Override> {
        let address = address.to_canonical();
        let rules = self.overrides.iter();
        let holding = rules.filter(|r| r.holds_at(wall_ms) && r.prefix.contains(&address));
        holding.max_by_key(|rule| rule.prefix.prefix_len())
    }

    /// Every list of pools.
    pub fn lists(&self) -> impl Iterator<Item = &Vec<Name>> {
        let by_place = self.continent.values().chain(self.country.values());
        let by_network = self.asn.values().chain(self.overrides.iter().map(|o| &o.pools));
        let by_network = by_network.chain(self.rules.iter().map(|rule| &rule.pools));
        std::iter::once(&self.default).chain(by_place).chain(by_network)
    }
}

/// `serve` of a node: it serves only clients in one of these networks or countries.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Serve {
    /// In these ASes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asn: Vec<Asn>,
    /// In these countries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub country: Vec<CountryCode>,
}

impl Serve {
    /// Whether it holds a client of whom this is known. Who is unknown is nowhere.
    pub fn holds(&self, asn: Option<Asn>, country: Option<CountryCode>) -> bool {
        asn.is_some_and(|asn| self.asn.contains(&asn))
            || country.is_some_and(|country| self.country.contains(&country))
    }
}

pub(super) fn read_map(table: &Table<'_>) -> SteeringMap {
    let default = table.need("default", "[\"POOL\"]");
    let overrides = table.get("override");
    let overrides = overrides.map(|v| v.tables_of(limits::OVERRIDES, "overrides", read_override));
    SteeringMap {
        default: default.map(|v| pools(&v)).unwrap_or_default(),
        continent: rules(table.get("continent"), &schema::MAP_CONTINENT, "a continent", pools),
        country: rules(table.get("country"), &schema::MAP_COUNTRY, "a country", pools),
        asn: rules(table.get("asn"), &schema::MAP_ASN, "an AS number", pools),
        overrides: overrides.unwrap_or_default(),
        views: table.get("views").map(|v| read_views(&v)).unwrap_or_default(),
        rules: table.get("rule").map(|v| read_rules(&v)).unwrap_or_default(),
    }
}

pub(super) fn pools(value: &Value<'_>) -> Vec<Name> {
    value.list_of(limits::POOLS, "pools", |v| v.name())
}

fn read_override(value: &Value<'_>) -> Option<Override> {
    let table = value.table(&schema::OVERRIDE)?;
    let prefix = table.need("prefix", "\"192.0.2.0/24\"").and_then(|v| read_prefix(&v));
    let pools = table.need("pools", "[\"POOL\"]").map(|v| pools(&v));
    let owner = table.need("owner", "\"noc\"").and_then(|v| read_word(&v, "say whom to ask"));
    let reason =
        table.need("reason", "\"cable cut\"").and_then(|v| read_word(&v, "say why, for people"));
    let expires = table.get("expires");
    let expires_ms = expires.as_ref().and_then(Value::moment);
    if expires.is_some() && expires_ms.is_none() {
        return None;
    }
    let (pools, owner, reason) = (pools?, owner?, reason?);
    Some(Override { prefix: prefix?, pools, owner, reason, expires_ms })
}

/// An override that says nothing of who and why is one that nobody dares to end.
fn read_word(value: &Value<'_>, remedy: &str) -> Option<String> {
    let text = value.text()?;
    if text.trim().is_empty() {
        value.refuse("is empty", remedy);
        return None;
    }
    Some(text.to_owned())
}

fn read_prefix(value: &Value<'_>) -> Option<IpNet> {
    let text = value.text()?;
    let Ok(prefix) = text.parse::<IpNet>() else {
        let problem = format!("{:?} is not a prefix", clip(text));
        value.refuse(problem, "write \"192.0.2.0/24\" or \"2001:db8::/32\"");
        return None;
    };
    if prefix != prefix.trunc() {
        let problem = format!("{prefix} has bits behind its length");
        value.refuse(problem, format!("write \"{}\"", prefix.trunc()));
        return None;
    }
    if let IpNet::V6(v6) = prefix
        && v6.prefix_len() >= 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
    {
        let problem = format!("{prefix} is an IPv4 prefix in the clothes of IPv6");
        value.refuse(problem, format!("write \"{v4}/{}\"", v6.prefix_len().saturating_sub(96)));
        return None;
    }
    Some(prefix)
}

pub(super) fn read_serve(value: &Value<'_>) -> Option<Serve> {
    let table = value.table(&schema::SERVE)?;
    if table.is_empty() {
        table.refuse("names nobody", "write asn = [7545], country = [\"AU\"], or take it out");
        return None;
    }
    let asns = |v: Value<'_>| v.list_of(limits::SERVE_ASNS, "AS numbers", |v| v.asn());
    let countries = |v: Value<'_>| v.list_of(limits::SERVE_COUNTRIES, "countries", |v| v.country());
    Some(Serve {
        asn: table.get("asn").map(asns).unwrap_or_default(),
        country: table.get("country").map(countries).unwrap_or_default(),
    })
}

/// Overrides of one map that can never decide.
pub(super) fn check(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, rules) in &map.maps {
        let mut seen = BTreeMap::new();
        for (at, rule) in rules.overrides.iter().enumerate() {
            if seen.insert(rule.prefix, at).is_some() {
                let path = entry("map", name).key("override").index(at).key("prefix");
                let problem = format!("{} has an override already", rule.prefix);
                push(faults, path, problem, "keep one of the two");
            }
        }
    }
}

/// What a published map may not say: an override in the IPv4-mapped block or with host bits, two of
/// one prefix.
pub(crate) fn wrong_override(map: &AdminMap) -> Option<String> {
    map.maps.iter().find_map(|(name, rules)| {
        let mut seen = std::collections::BTreeSet::new();
        let wrong = rules.overrides.iter().find(|rule| {
            let mapped = match rule.prefix {
                IpNet::V4(_) => false,
                IpNet::V6(v6) => v6.prefix_len() >= 96 && v6.addr().to_ipv4_mapped().is_some(),
            };
            mapped || rule.prefix != rule.prefix.trunc() || !seen.insert(rule.prefix)
        })?;
        Some(format!(
            "map.{name}.override {} is not what a person could have written",
            wrong.prefix
        ))
    })
}

/// Overrides that have expired by `wall_ms`: they are ignored, and only fill the file. `folder` is
/// the name of the map as a whole.
pub fn expired(map: &AdminMap, folder: &std::path::Path, wall_ms: u64) -> Vec<Finding> {
    let all =
        map.maps.iter().flat_map(|(name, rules)| rules.overrides.iter().map(move |o| (name, o)));
    let over = all.filter(|(_, rule)| !rule.holds_at(wall_ms));
    let finding = |(name, rule): (&Name, &Override)| {
        let since = model::time::utc(rule.expires_ms.unwrap_or_default());
        let problem = format!(
            "{} of {} ({}) has expired at {since} and is ignored",
            rule.prefix, rule.owner, rule.reason
        );
        let remedy = "take it out, or give it another expires";
        Finding { key: format!("map.{name}.override"), ..Finding::whole(folder, problem, remedy) }
    };
    over.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn map(prefixes: &[(&str, Option<u64>)]) -> AdminMap {
        let mut map = crate::testing::admin_map(&[("n", &["192.0.2.1"])]);
        let rule = |(prefix, expires_ms): &(&str, Option<u64>)| Override {
            prefix: prefix.parse().unwrap(),
            pools: vec!["all".parse().unwrap()],
            owner: "noc".to_owned(),
            reason: "cable cut".to_owned(),
            expires_ms: *expires_ms,
        };
        let rules = map.maps.values_mut().next().unwrap();
        rules.overrides = prefixes.iter().map(rule).collect();
        map
    }

    #[test]
    fn what_has_expired_is_named_with_who_and_why() {
        let map = map(&[("10.0.0.0/8", Some(5000)), ("11.0.0.0/8", Some(5001)), ("::/0", None)]);
        let said = |wall_ms| -> Vec<String> {
            expired(&map, Path::new("maps"), wall_ms).iter().map(ToString::to_string).collect()
        };
        assert!(said(4999).is_empty());
        assert_eq!(
            said(5000),
            [
                "maps: map.default.override: 10.0.0.0/8 of noc (cable cut) has expired at 1970-01-01 \
              00:00:05Z and is ignored: take it out, or give it another expires"
            ]
        );
        assert_eq!(said(5001).len(), 2);
    }

    #[test]
    fn a_published_map_has_no_override_that_nobody_could_have_written() {
        assert_eq!(wrong_override(&map(&[("10.0.0.0/8", None), ("10.0.0.0/9", None)])), None);
        for prefixes in [
            &[("10.0.0.1/8", None)][..],
            &[("::ffff:10.0.0.0/104", None)],
            &[("10.0.0.0/8", None), ("10.0.0.0/8", Some(1))],
        ] {
            let wrong = wrong_override(&map(prefixes)).unwrap();
            assert!(wrong.starts_with("map.default.override "), "{wrong}");
        }
    }
}
