//! `[project.NAME]` and what stands below it.

use std::collections::BTreeMap;

use model::{ByteCount, Completion, HostName, Name, Query, Rate};
use serde::{Deserialize, Serialize};

use super::{Glob, schema};

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
    /// Nodes in one answer of the pool that answers, 1 to 8.
    #[serde(default = "answers", skip_serializing_if = "is_answers")]
    pub answers: u32,
    /// Nodes behind those, of pools further on in the list; with `answers` at most 8.
    #[serde(default, skip_serializing_if = "is_default")]
    pub answers_elsewhere: u32,
    /// Whether all addresses inside the scope of an answer get the same nodes, as long as these serve.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sticky: bool,
    /// Whether the client's network that a resolver tells decides (RFC 7871); else the resolver's own
    /// address does.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub ecs: bool,
    /// Where the certificates of its hosts come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: ProjectTls,
    /// Whether the name has an HTTPS record (RFC 9460): its nodes serve HTTPS on port 443.
    #[serde(default, skip_serializing_if = "is_default")]
    pub https_record: bool,
    /// The largest share of its answers that one node or site gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<MaxShare>,
    /// Origins by name, at least one, tried in the order of their names.
    pub masters: BTreeMap<Name, Master>,
    /// How much of an object is fetched beyond what clients ask for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub completion: Completion,
    /// What of a query counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub query: Query,
    /// How long beyond its lifetime an object is served while it is confirmed behind (RFC 5861),
    /// seconds, where the master says nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stale_while_revalidate_s: u32,
    /// A client that reloads gets what was confirmed less than so many seconds ago.
    #[serde(default = "reload_min_age_s")]
    pub reload_min_age_s: u32,
    /// Request fields of clients, lower case, that fills carry too; nothing is keyed on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_fields: Vec<String>,
    /// Whether methods other than GET, HEAD, TRACE and CONNECT are passed to a master; else they are
    /// refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unsafe_methods: bool,
    /// Whether clients that come over HTTPS are told that they may come over HTTP/3 (`Alt-Svc`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub http3: bool,
    /// Whether edges send clients that belong elsewhere, or cannot use them, to other nodes (302).
    #[serde(default, skip_serializing_if = "is_default")]
    pub redirect: bool,
    /// Those that belong elsewhere only for objects of at least this size.
    #[serde(default = "redirect_above", skip_serializing_if = "is_redirect_above")]
    pub redirect_above: ByteCount,
    /// Whether edges name other nodes beside content (`Link: rel=duplicate`, RFC 6249).
    #[serde(default, skip_serializing_if = "is_default")]
    pub alternates: bool,
    /// The pool whose nodes the edges outside it fill from, before masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<Name>,
    /// `[[project.NAME.path]]` in their order; see [`Self::policy`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPolicy>,
}

impl Project {
    /// The policy of a path, with or without its leading slash: the first whose glob matches.
    pub fn policy(&self, path: &str) -> Option<&PathPolicy> {
        self.paths.iter().find(|policy| policy.glob.is_match(path))
    }
}

/// Where certificates come from: `tls` of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProjectTls {
    /// People put them on edges (`[[tls.certificate]]`), or the project has none.
    #[default]
    Files,
    /// The publisher of node maps orders them, and edges fetch them there.
    Acme,
}

impl ProjectTls {
    /// The word of the maps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Acme => "acme",
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_yes(value: &bool) -> bool {
    *value
}

fn answers() -> u32 {
    schema::ANSWERS
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_answers(answers: &u32) -> bool {
    *answers == schema::ANSWERS
}

fn redirect_above() -> ByteCount {
    schema::REDIRECT_ABOVE
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_redirect_above(bytes: &ByteCount) -> bool {
    *bytes == schema::REDIRECT_ABOVE
}

fn reload_min_age_s() -> u32 {
    schema::RELOAD_MIN_AGE_S
}

/// `[project.NAME.max_share]`: how much of a project's answers one node, or one site, gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxShare {
    /// One node, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The nodes of one site together, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<u32>,
    /// How far back answers are counted, seconds.
    pub window_s: u32,
}

/// `[[project.NAME.path]]`: what holds for some paths of a project, beside what masters say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPolicy {
    /// The paths.
    pub glob: Glob,
    /// How long what is held counts as fresh, seconds, whatever masters say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u32>,
    /// How long a 404 or 410 is remembered, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negative_ttl_s: Option<u32>,
    /// Instead of the project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// All objects of a group are confirmed together, every `ttl_s` by the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
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
    /// `http://host[:port][/prefix]`, or with `https://`; the prefix is put before every path.
    pub url: String,
    /// `Host` sent upstream, when it is not the one in the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Requests of one edge to it at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u32>,
    /// What one edge may fetch from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}
