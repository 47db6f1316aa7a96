//! The admin map: what people edit in `maps/*.toml`.
//!
//! [`load_dir`] (in `folder`) or [`load`] (text in, no I/O) read a folder of files into one [`AdminMap`], or give
//! all that is wrong with it; [`AdminMap::print`] writes one back; [`diff`] says what changed.
//! `schema` has the keys, `check` the rules that hold between entries. What a map means for a
//! client is none of this room's business: see `steer`.

mod check;
mod entries;
mod fields;
mod folder;
mod glob;
mod identity;
mod load;
mod master;
mod project;
mod read_project;
mod routing;
pub mod schema;
mod sponsor;
mod steering;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Asn, CountryCode, Family, HostName, Name, Rate};
use serde::{Deserialize, Serialize};

pub(crate) use check::{references, zone_of};
pub use entries::diff;
pub(crate) use fields::check as check_request_field;
pub use folder::{FILE_BYTES_MAX, load_dir};
pub use glob::{Glob, GlobError};
pub use identity::{KeyDigest, KeyDigestError, Trust};
pub use load::{is_admin_map, load};
pub use project::{AllDown, HostPattern, Master, MaxShare, PathPolicy, Project, ProjectTls};
pub use routing::RouteRule;
pub(crate) use routing::wrong_rule;
pub(crate) use sponsor::out_of_range as sponsor_out_of_range;
pub use sponsor::{Bill, Cap};
pub(crate) use steering::wrong_override;
pub use steering::{Override, Serve, SteeringMap, expired};

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
    /// Where it serves HTTP to clients, and to edges that fill from it.
    #[serde(default = "node_port", skip_serializing_if = "is_node_port")]
    pub port: u16,
    /// `http://HOST[:PORT]` where the command line reaches its admin listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// What the node can send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Rate>,
    /// How its traffic is billed; `None`: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
    /// What it sends at most to some.
    #[serde(default, rename = "cap", skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<Cap>,
    /// Whom it serves; `None`: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Serve>,
    /// Who gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sponsor: Option<String>,
    /// The key by which the publisher knows it, if it may fetch certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<KeyDigest>,
    /// Whether it gets the keys of certificates.
    #[serde(default, skip_serializing_if = "Trust::is_full")]
    pub trust: Trust,
    /// Why a person took it out: it gets no clients, whatever probes say. Never empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
}

impl AdminMap {
    /// Every node that clients of `project` may ever be sent to.
    pub fn nodes_of(&self, project: &Project) -> BTreeSet<&Name> {
        let pools = self.maps.get(&project.map).into_iter().flat_map(SteeringMap::lists).flatten();
        let last = match &project.all_down {
            AllDown::Pool(pool) => Some(pool),
            _ => None,
        };
        let members = pools.chain(last).filter_map(|pool| self.pools.get(pool));
        members.flat_map(BTreeMap::keys).collect()
    }
}

impl Node {
    /// The addresses of one family.
    pub fn addresses_of(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied().filter(move |a| Family::of(*a) == family)
    }
}

fn node_port() -> u16 {
    schema::NODE_PORT
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_node_port(port: &u16) -> bool {
    *port == schema::NODE_PORT
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
