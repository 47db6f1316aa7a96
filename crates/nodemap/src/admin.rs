//! The admin map: what people edit in `maps/*.toml`.
//!
//! [`load_dir`] (in `folder`) or [`load`] (text in, no I/O) read a folder of files into one [`AdminMap`], or give
//! all that is wrong with it; [`AdminMap::print`] writes one back; [`diff`] says what changed.
//! `schema` has the keys, `check` the rules that hold between entries. What a map means for a
//! client is none of this room's business: see `steer`.

mod check;
mod entries;
mod folder;
mod load;
mod master;
pub mod schema;

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Asn, Continent, CountryCode, Family, HostName, Name, Rate};
use serde::{Deserialize, Serialize};

pub(crate) use check::{references, zone_of};
pub use entries::diff;
pub use folder::{FILE_BYTES_MAX, load_dir};
pub use load::{is_admin_map, load};

/// All files of a map folder merged and validated: every name that is used is defined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdminMap {
    /// Where nodes stand.
    pub sites: BTreeMap<Name, Site>,
    /// The machines that serve clients.
    pub nodes: BTreeMap<Name, Node>,
    /// Pool -> node -> weight. Weight 0 means never.
    pub pools: BTreeMap<Name, BTreeMap<Name, u32>>,
    /// Steering maps by name.
    pub maps: BTreeMap<Name, SteeringMap>,
    /// DNS zones we answer for.
    pub zones: BTreeMap<HostName, Zone>,
    /// The customers.
    pub projects: BTreeMap<Name, Project>,
}

/// `[site.NAME]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// What the site's uplink carries in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Rate>,
    /// Latitude and longitude in degrees, at most six digits after the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinates: Option<(f64, f64)>,
}

/// `[node.NAME]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its site.
    pub site: Name,
    /// Country it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<CountryCode>,
    /// AS it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asn: Option<Asn>,
    /// Addresses that clients get, at least one.
    pub addresses: Vec<IpAddr>,
    /// What the node can send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Rate>,
    /// Who gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sponsor: Option<String>,
    /// Why a person took it out: it gets no clients, whatever probes say. Never empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
}

impl Node {
    /// The addresses of one family.
    pub fn addresses_of(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied().filter(move |a| Family::of(*a) == family)
    }
}

/// `[map.NAME]`: evidence -> ordered pools. Each list is non-empty; order of evidence is ASN,
/// country, continent, default.
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
}

/// `[zone."NAME"]`: a DNS zone that we are authoritative for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Name servers, at least one.
    pub ns: Vec<HostName>,
    /// Start of authority.
    pub soa: Soa,
    /// TTL of the zone's own records (SOA, NS, hosts, TXT), seconds.
    pub ttl_s: u32,
    /// Fixed addresses of names in the zone (`[zone."NAME".host]`), such as its name servers.
    #[serde(default)]
    pub hosts: BTreeMap<HostName, Vec<IpAddr>>,
    /// TXT records of names in the zone (`[zone."NAME".txt]`): each text is a record of its own.
    #[serde(default)]
    pub txt: BTreeMap<HostName, Vec<String>>,
}

/// What of the SOA record a person chooses; the serial is the generation in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Soa {
    /// Mailbox as a DNS name (RFC 1035 section 3.3.13): `noc.cdn.example` for noc@cdn.example.
    pub contact: HostName,
    /// TTL of negative answers (RFC 2308), seconds.
    pub negative_ttl_s: u32,
}

/// `[project.NAME]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// The steered DNS name; lies in one of the zones.
    pub name: HostName,
    /// Every `Host` the project accepts.
    pub hosts: Vec<HostPattern>,
    /// Its steering map.
    pub map: Name,
    /// TTL of steered answers, seconds, at least 5.
    pub ttl_s: u32,
    /// What to answer when no node of any pool is up.
    pub all_down: AllDown,
    /// Origins by name, at least one, tried in the order of their names.
    pub masters: BTreeMap<Name, Master>,
}

/// A `Host` that a project accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// This name.
    Exact(HostName),
    /// `*`: any name no other project accepts. At most one project may have it.
    Any,
}

impl TryFrom<String> for HostPattern {
    type Error = model::name::NameError;
    fn try_from(s: String) -> Result<Self, Self::Error> {
        if s == "*" { Ok(Self::Any) } else { s.parse().map(Self::Exact) }
    }
}

impl From<HostPattern> for String {
    fn from(p: HostPattern) -> Self {
        match p {
            HostPattern::Exact(name) => name.into(),
            HostPattern::Any => "*".into(),
        }
    }
}

/// What a project wants answered when no node of any of its pools is up (invariant S1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AllDown {
    /// The nodes that went down last.
    #[default]
    LastGood,
    /// Every node that is not drained, as if all were up.
    All,
    /// The nodes of this pool that are not drained.
    Pool(Name),
    /// No data: NOERROR with an empty answer.
    NoData,
    /// SERVFAIL.
    ServFail,
}

impl TryFrom<String> for AllDown {
    type Error = String;
    fn try_from(s: String) -> Result<Self, String> {
        let refused = || format!("{s:?} is not last-good, all, pool:NAME, nodata or servfail");
        match s.as_str() {
            "last-good" => Ok(Self::LastGood),
            "all" => Ok(Self::All),
            "nodata" => Ok(Self::NoData),
            "servfail" => Ok(Self::ServFail),
            other => {
                let pool = other.strip_prefix("pool:").and_then(|p| p.parse().ok());
                pool.map(Self::Pool).ok_or_else(refused)
            }
        }
    }
}

impl From<AllDown> for String {
    fn from(a: AllDown) -> Self {
        match a {
            AllDown::LastGood => "last-good".into(),
            AllDown::All => "all".into(),
            AllDown::NoData => "nodata".into(),
            AllDown::ServFail => "servfail".into(),
            AllDown::Pool(name) => format!("pool:{name}"),
        }
    }
}

/// `[project.NAME.master.NAME]`: an origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Master {
    /// `http://host[:port][/prefix]`; the prefix is put before every path.
    pub url: String,
    /// `Host` sent upstream, when it is not the one in the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}
