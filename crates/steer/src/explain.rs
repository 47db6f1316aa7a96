//! Why a client is sent where it is: every step, for people and as JSON.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use locate::{Heard, Locator};
use model::route::{Attributes, Hop};
use model::{Asn, Continent, CountryCode, Family, HostName, Location, Name};
use nodemap::{MaxShare, Override, RouteRule, SteeringMap};
use serde::Serialize;

use crate::redirect::AtNode;
use crate::routed::{Heeding, asn_of};
use crate::steering::Steering;
use crate::walk::{NodeStep, PoolStep, Walk, walk};

/// Version of the JSON document.
const FORMAT: u32 = 1;

/// The map entry that gave the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The override of this prefix.
    Override(IpNet),
    /// The rule at this place among those of the map, from 1.
    Rule(usize),
    /// The list for this AS.
    Asn(Asn),
    /// The list for this country.
    Country(CountryCode),
    /// The list for this continent.
    Continent(Continent),
    /// The default list.
    Default,
}

impl DecidedBy {
    /// The words of the kinds, stable for logs and metrics, in the order of [`DecidedBy::number`].
    pub const WORDS: [&'static str; 6] =
        ["override", "rule", "asn", "country", "continent", "default"];

    /// Which kind of entry it is: its place in [`DecidedBy::WORDS`].
    pub fn number(&self) -> usize {
        match self {
            Self::Override(_) => 0,
            Self::Rule(_) => 1,
            Self::Asn(_) => 2,
            Self::Country(_) => 3,
            Self::Continent(_) => 4,
            Self::Default => 5,
        }
    }

    /// The entry of the steering map `map` that decides for `address`, which is at `location` by
    /// `locator`.
    pub(crate) fn find(
        steering: &Steering,
        map: &Name,
        address: IpAddr,
        (location, locator): (&Location, &Locator),
    ) -> Option<Self> {
        let rule = steering.table().override_at(map.as_str(), address);
        let map = steering.map().map.maps.get(map)?;
        Some(Self::by(map, rule, address, (location, locator)))
    }

    /// The entry of `map` that decides for `address`, where `rule` is the override that holds.
    pub(crate) fn by(
        map: &SteeringMap,
        rule: Option<&Override>,
        address: IpAddr,
        (location, locator): (&Location, &Locator),
    ) -> Self {
        if let Some(rule) = rule {
            return Self::Override(rule.prefix);
        }
        let (views, routes) = (locator.routes().views(), locator.routes().find(address));
        let of_view = |view: &Name| routes.iter().find(|heard| heard.view == *view);
        let by_view: Vec<Option<&Attributes>> =
            views.iter().map(|view| of_view(view).map(|heard| heard.attributes.as_ref())).collect();
        let heeding = Heeding::new(map, views);
        let asn = asn_of(heeding.route(&by_view), locator.database_asn(address));
        Self::of(map, &heeding, &by_view, &Location { asn, ..location.clone() })
    }

    /// The entry of `map` that decides for a client at `location` with these routes, by view, where no
    /// override holds: rule before ASN before country before continent before default, as in the class
    /// table.
    fn of(
        map: &SteeringMap,
        heeding: &Heeding,
        routes: &[Option<&Attributes>],
        location: &Location,
    ) -> Self {
        let matches = |at: usize, route: &Attributes| {
            let hops: Vec<Hop> = route.as_path.hops().collect();
            map.rules.get(at).is_some_and(|rule| rule.matches(route, &hops))
        };
        if let Some(at) = heeding.rule(routes, matches) {
            return Self::Rule(at.saturating_add(1));
        }
        let asn = location.asn.filter(|asn| map.asn.contains_key(asn));
        let country = || location.country.filter(|country| map.country.contains_key(country));
        let continent =
            || location.continent.filter(|continent| map.continent.contains_key(continent));
        asn.map(Self::Asn)
            .or_else(|| country().map(Self::Country))
            .or_else(|| continent().map(Self::Continent))
            .unwrap_or(Self::Default)
    }
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Override(prefix) => write!(f, "override {prefix}"),
            Self::Rule(at) => write!(f, "rule {at}"),
            Self::Asn(asn) => write!(f, "asn {}", asn.get()),
            Self::Country(country) => write!(f, "country {country}"),
            Self::Continent(continent) => write!(f, "continent {continent}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Every step of steering one client for one project. Prints as text for people; serialises as a
/// JSON document for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Version of this document.
    pub format: u32,
    /// Generation of the node map that answered.
    pub generation: u64,
    /// The client.
    pub address: IpAddr,
    /// The project.
    pub project: Name,
    /// Its steered name.
    pub name: HostName,
    /// What is known of the client.
    pub location: Location,
    /// Name of the client's AS.
    pub as_name: Option<String>,
    /// The project's steering map.
    pub map: Name,
    /// Its entry that decided.
    pub decided_by: DecidedBy,
    /// The override, when that is the entry.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub rule: Option<Override>,
    /// The rule by a live route, when that is the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_rule: Option<RouteRule>,
    /// The client's route in each view that has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Heard>,
    /// The pools of that entry, in order.
    pub pools: Vec<Name>,
    /// The client's class: a number of this table only.
    pub class: u16,
    /// The network that the answer holds for, as announced to the resolver.
    pub scope: IpNet,
    /// TTL of the project's answers, seconds.
    pub ttl_s: u32,
    /// TTL of answers as the walks went, in their order.
    pub answer_ttls_s: [u32; 2],
    /// Nodes of the pool that answers in one answer.
    pub answers: u32,
    /// Nodes of further pools behind them.
    pub answers_elsewhere: u32,
    /// Whether all clients of the scope get the same.
    pub sticky: bool,
    /// The largest share of its answers that a node or site gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_share: Option<MaxShare>,
    /// The walk through the pools for IPv4 and IPv6.
    pub walks: [Walk; 2],
    /// What the edge of a node does with the client, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<AtNode>,
}

impl Explanation {
    pub(crate) fn new(
        steering: &Steering,
        name: &Name,
        address: IpAddr,
        locator: &Locator,
    ) -> Option<Self> {
        let map = steering.map();
        let project = map.map.projects.get(name)?;
        let location = locator.locate(address);
        let table = steering.table();
        let rule = table.override_at(project.map.as_str(), address).cloned();
        let decided_by = DecidedBy::find(steering, &project.map, address, (&location, locator))?;
        let route_rule = match decided_by {
            DecidedBy::Rule(at) => {
                map.map.maps.get(&project.map)?.rules.get(at.saturating_sub(1)).cloned()
            }
            _ => None,
        };
        let hit = table.lookup(address);
        let audience = table.audience(project.map.as_str(), hit.class)?;
        let walks = Family::ALL.map(|family| walk(map, name, audience, family, &project.all_down));
        Some(Self {
            format: FORMAT,
            generation: map.generation,
            address,
            project: name.clone(),
            name: project.name.clone(),
            as_name: location.asn.and_then(|asn| locator.as_name(asn)).map(str::to_owned),
            location,
            map: project.map.clone(),
            decided_by,
            rule,
            route_rule,
            routes: locator.routes().find(address),
            pools: audience.pools.clone(),
            class: hit.class.get(),
            scope: IpNet::new(address, hit.scope).unwrap_or(address.into()).trunc(),
            ttl_s: project.ttl_s,
            answer_ttls_s: walks.each_ref().map(|walk| walk.verdict.ttl_s(project.ttl_s)),
            answers: project.answers,
            answers_elsewhere: project.answers_elsewhere,
            sticky: project.sticky,
            max_share: project.max_share,
            walks,
            at: None,
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "client    {}", self.address)?;
        writeln!(f, "project   {} ({}), answers live {} s", self.project, self.name, self.ttl_s)?;
        write!(f, "location  {}:", self.location.prefix)?;
        match (self.location.asn, &self.as_name) {
            (Some(asn), Some(name)) => write!(f, " {asn} ({name})")?,
            (Some(asn), None) => write!(f, " {asn}")?,
            (None, _) => write!(f, " AS unknown")?,
        }
        match self.location.country {
            Some(country) => write!(f, ", country {country}")?,
            None => write!(f, ", country unknown")?,
        }
        match self.location.continent {
            Some(continent) => writeln!(f, ", continent {continent}")?,
            None => writeln!(f, ", continent unknown")?,
        }
        self.routes.iter().try_for_each(|heard| writeln!(f, "route     {heard}"))?;
        let pools: Vec<&str> = self.pools.iter().map(Name::as_str).collect();
        writeln!(f, "map       {}: {} -> {}", self.map, self.decided_by, pools.join(", "))?;
        if let Some(rule) = &self.rule {
            write!(f, "override  by {}: {}", rule.owner, rule.reason)?;
            match rule.expires_ms {
                Some(ms) => writeln!(f, "; until {}", model::time::utc(ms))?,
                None => writeln!(f, "; until somebody takes it out")?,
            }
        }
        if let Some(rule) = &self.route_rule {
            writeln!(f, "rule      {rule}")?;
        }
        writeln!(f, "class     {}, the same for all of {}", self.class, self.scope)?;
        self.write_places(f)?;
        if let Some(MaxShare { nodes, sites, window_s }) = self.max_share {
            let of =
                |what, percent: Option<u32>| percent.map(|n| format!("{what} at most {n} %, "));
            let (nodes, sites) = (of("a node", nodes), of("a site", sites));
            let (nodes, sites) = (nodes.unwrap_or_default(), sites.unwrap_or_default());
            writeln!(f, "guard     {nodes}{sites}of {window_s} s")?;
        }
        match self.generation {
            0 => writeln!(f, "node map  none: the maps as they are written, no node probed yet")?,
            generation => writeln!(f, "node map  generation {generation}")?,
        }
        let walks = self.walks.iter().zip(self.answer_ttls_s);
        walks
            .map(|(walk, ttl_s)| (walk, Some(ttl_s).filter(|ttl_s| *ttl_s != self.ttl_s)))
            .try_for_each(|(walk, ttl_s)| write_walk(f, walk, ttl_s))?;
        self.at.iter().try_for_each(|at| write!(f, "\n{at}"))
    }
}

impl Explanation {
    /// How many nodes an answer has, where that is not one by chance.
    fn write_places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.sticky {
            true => "the same for all of the scope",
            false => "by chance",
        };
        match (self.answers, self.answers_elsewhere, self.sticky) {
            (1, 0, false) => Ok(()),
            (n, 0, _) => writeln!(f, "nodes     {n} of the pool that answers, {how}"),
            (n, m, _) => {
                writeln!(f, "nodes     {n} of the pool that answers, {m} of further ones, {how}")
            }
        }
    }
}

/// `ttl_s`: where it is another than the project's.
fn write_walk(f: &mut fmt::Formatter<'_>, walk: &Walk, ttl_s: Option<u32>) -> fmt::Result {
    let kind = match walk.family {
        Family::V4 => "A (IPv4)",
        Family::V6 => "AAAA (IPv6)",
    };
    writeln!(f)?;
    write!(f, "{kind}: {}", walk.verdict)?;
    match &walk.pool {
        Some(pool) => write!(f, " {pool}")?,
        None if walk.is_planned() => f.write_str(" by plan")?,
        None => {}
    }
    match ttl_s {
        Some(ttl_s) => writeln!(f, ", answers live {ttl_s} s")?,
        None => writeln!(f)?,
    }
    walk.pools.iter().try_for_each(|step| write_pool(f, step))
}

fn write_pool(f: &mut fmt::Formatter<'_>, step: &PoolStep) -> fmt::Result {
    write!(f, "  pool {}: {}", step.pool, step.outcome)?;
    match step.planned_ppm {
        Some(ppm) => writeln!(f, ", {:.1} % by plan", f64::from(ppm) / 1e4)?,
        None => writeln!(f)?,
    }
    let width = step.nodes.iter().map(|node| node.node.as_str().len()).max().unwrap_or(0);
    step.nodes.iter().try_for_each(|node| write_node(f, node, width))
}

fn write_node(f: &mut fmt::Formatter<'_>, node: &NodeStep, width: usize) -> fmt::Result {
    write!(f, "    {:width$}  weight {:<5}", node.node, node.weight)?;
    match node.excluded {
        None => write!(f, "  {:5.1} %", node.share * 100.0)?,
        Some(excluded) => write!(f, "  excluded: {excluded}")?,
    }
    if let Some(state) = node.state.as_ref().filter(|state| state.permille != model::PERMILLE) {
        write!(f, "  at {} permille of its weight", state.permille)?;
    }
    for address in &node.addresses {
        write!(f, "  {address}")?;
    }
    match &node.state {
        // Of maps that were never published.
        Some(state) if state.since_ms == 0 => writeln!(f, "  ({}: {})", state.state, state.reason),
        Some(state) => {
            writeln!(
                f,
                "  ({} since {}: {})",
                state.state,
                model::time::utc(state.since_ms),
                state.reason
            )
        }
        None => writeln!(f),
    }
}
