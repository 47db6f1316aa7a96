//! Steering by live routes: `[[map.NAME.rule]]`, and which views a map believes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use model::route::{Attributes, Hop, PathPattern, Tag};
use model::{Asn, Name};
use serde::{Deserialize, Serialize};

use super::AdminMap;
use super::check::{Fault, push};
use super::load::entry;
use super::schema::{self, limits};
use super::steering::{SteeringMap, pools};
use crate::toml_read::Value;

/// `[[map.NAME.rule]]`: pools for clients whose route is such. All that is given must match, and
/// something is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRule {
    /// Looks at the route of this view; `None`: at the one of the first view of the map that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Name>,
    /// The route's next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// A community that it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub community: Option<Tag>,
    /// The AS that passed it to the collector's peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<Asn>,
    /// The AS that the prefix is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Asn>,
    /// Its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_path: Option<PathPattern>,
    /// The pools of such clients, in order.
    pub pools: Vec<Name>,
}

impl RouteRule {
    /// Whether a route with these attributes matches; `hops` are those of its path.
    pub fn matches(&self, route: &Attributes, hops: &[Hop]) -> bool {
        self.next_hop.is_none_or(|next_hop| next_hop == route.next_hop)
            && self.community.is_none_or(|tag| route.communities.has(tag))
            && self.neighbour.is_none_or(|asn| route.as_path.neighbour() == Some(asn))
            && self.origin.is_none_or(|asn| route.as_path.origin() == Some(asn))
            && self.as_path.as_ref().is_none_or(|pattern| pattern.matches(hops))
    }

    /// Whether it says nothing of the route that it is for.
    fn is_blank(&self) -> bool {
        Self { pools: self.pools.clone(), ..Self::default() } == *self
    }
}

impl fmt::Display for RouteRule {
    /// Its conditions, as they are written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asn = |asn: Option<Asn>| asn.map(|asn| asn.get().to_string());
        let given = [
            ("view", self.view.as_ref().map(Name::to_string)),
            ("next_hop", self.next_hop.map(|address| address.to_string())),
            ("community", self.community.map(|tag| tag.to_string())),
            ("neighbour", asn(self.neighbour)),
            ("origin", asn(self.origin)),
            ("as_path", self.as_path.as_ref().map(|pattern| format!("\"{pattern}\""))),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let words: Vec<String> = given.map(|(key, value)| format!("{key} {value}")).collect();
        f.write_str(&words.join(", "))
    }
}

impl SteeringMap {
    /// Whether its rules look at this view.
    pub fn believes(&self, view: &Name) -> bool {
        self.views.is_empty() || self.views.contains(view)
    }

    /// Of views that are in the order of their names, the places of those it believes, in its order.
    pub fn believed(&self, views: &[Name]) -> Vec<usize> {
        match self.views.as_slice() {
            [] => (0..views.len()).collect(),
            own => own.iter().filter_map(|view| views.binary_search(view).ok()).collect(),
        }
    }
}

pub(super) fn read_rules(value: &Value<'_>) -> Vec<RouteRule> {
    value.tables_of(limits::ROUTE_RULES, "rules", read_rule)
}

pub(super) fn read_views(value: &Value<'_>) -> Vec<Name> {
    value.list_of(limits::VIEWS, "views", |v| v.name())
}

fn read_rule(value: &Value<'_>) -> Option<RouteRule> {
    let table = value.table(&schema::ROUTE_RULE)?;
    let pools = table.need("pools", "[\"POOL\"]").map(|v| pools(&v))?;
    // A condition that cannot be read must not become none at all, which would match more.
    let mut whole = true;
    let mut keep = |given: bool, read: bool| whole &= given == read;
    let (view, next_hop) = (table.get("view"), table.get("next_hop"));
    let (community, neighbour) = (table.get("community"), table.get("neighbour"));
    let (origin, as_path) = (table.get("origin"), table.get("as_path"));
    let rule = RouteRule {
        view: view.as_ref().and_then(Value::name),
        next_hop: next_hop.as_ref().and_then(Value::ip),
        community: community.as_ref().and_then(|v| v.parsed("a community")),
        neighbour: neighbour.as_ref().and_then(Value::asn),
        origin: origin.as_ref().and_then(Value::asn),
        as_path: as_path.as_ref().and_then(|v| v.parsed("a pattern of AS paths")),
        pools,
    };
    keep(view.is_some(), rule.view.is_some());
    keep(next_hop.is_some(), rule.next_hop.is_some());
    keep(community.is_some(), rule.community.is_some());
    keep(neighbour.is_some(), rule.neighbour.is_some());
    keep(origin.is_some(), rule.origin.is_some());
    keep(as_path.is_some(), rule.as_path.is_some());
    whole.then_some(rule)
}

/// Rules that say nothing or never decide, and views that are named twice.
pub(super) fn check(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, map) in &map.maps {
        for (at, view) in map.views.iter().enumerate() {
            if map.views.iter().take(at).any(|earlier| earlier == view) {
                let path = entry("map", name).key("views").index(at);
                push(faults, path, format!("view {view} is in this list already"), "take it out");
            }
        }
        for (at, rule) in map.rules.iter().enumerate() {
            let path = || entry("map", name).key("rule").index(at);
            if rule.is_blank() {
                let remedy = "say next_hop, community, neighbour, origin, as_path or view; pools of \
                              everybody are `default` of the map";
                push(faults, path(), "says nothing of the route".to_owned(), remedy);
            }
            if let Some(view) = rule.view.as_ref().filter(|view| !map.believes(view)) {
                let problem =
                    format!("view {view} is not in the map's views, so this never decides");
                let remedy = format!("add {view} to map.{name}.views, or take the rule out");
                push(faults, path().key("view"), problem, &remedy);
            }
            let same = |earlier: &&RouteRule| {
                RouteRule { pools: rule.pools.clone(), ..(*earlier).clone() } == *rule
            };
            if map.rules.iter().take(at).any(|earlier| same(&earlier)) {
                let problem = "an earlier rule matches the same routes, so this never decides";
                push(faults, path(), problem.to_owned(), "keep one of the two");
            }
        }
    }
}

/// What a published map may not say: a rule for any route, a rule that can never decide because of its
/// view, a view twice.
pub(crate) fn wrong_rule(map: &AdminMap) -> Option<String> {
    map.maps.iter().find_map(|(name, map)| {
        let mut seen = BTreeSet::new();
        let odd = |rule: &RouteRule| {
            rule.is_blank() || rule.view.as_ref().is_some_and(|view| !map.believes(view))
        };
        let wrong = !map.views.iter().all(|view| seen.insert(view)) || map.rules.iter().any(odd);
        wrong.then(|| format!("map.{name}.rule or views is not what a person could have written"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn map(views: &[&str], rules: &[RouteRule]) -> AdminMap {
        let mut map = crate::testing::admin_map(&[("n", &["192.0.2.1"])]);
        let steering = map.maps.values_mut().next().unwrap();
        steering.views = views.iter().map(|view| name(view)).collect();
        steering.rules = rules.to_vec();
        map
    }

    fn rule(view: Option<&str>, origin: Option<u32>) -> RouteRule {
        let (view, origin) = (view.map(name), origin.and_then(Asn::new));
        RouteRule { view, origin, pools: vec![name("all")], ..RouteRule::default() }
    }

    #[test]
    fn every_condition_that_is_given_must_match() {
        let route = Attributes {
            next_hop: "198.51.100.1".parse().unwrap(),
            origin: model::route::Origin::Igp,
            as_path: "7545 4826".parse().unwrap(),
            med: None,
            local_pref: None,
            communities: model::route::Communities::new(["65000:1".parse().unwrap()], [], []),
        };
        let hops: Vec<Hop> = route.as_path.hops().collect();
        let whole = RouteRule {
            view: None,
            next_hop: Some(route.next_hop),
            community: Some("65000:1".parse().unwrap()),
            neighbour: Asn::new(7545),
            origin: Asn::new(4826),
            as_path: Some("^ 7545 4826 $".parse().unwrap()),
            pools: Vec::new(),
        };
        assert!(whole.matches(&route, &hops) && RouteRule::default().matches(&route, &hops));
        let one_wrong = [
            RouteRule { next_hop: Some("198.51.100.2".parse().unwrap()), ..whole.clone() },
            RouteRule { community: Some("65000:2".parse().unwrap()), ..whole.clone() },
            RouteRule { community: Some("65000:1:1".parse().unwrap()), ..whole.clone() },
            RouteRule { neighbour: Asn::new(4826), ..whole.clone() },
            RouteRule { origin: Asn::new(7545), ..whole.clone() },
            RouteRule { as_path: Some("^ 4826".parse().unwrap()), ..whole },
        ];
        assert!(one_wrong.iter().all(|rule| !rule.matches(&route, &hops)));
    }

    #[test]
    fn believed_views_are_in_the_order_of_the_map() {
        let have = [name("a"), name("b"), name("c")];
        let of = |views: &[&str]| map(views, &[]).maps.values().next().unwrap().believed(&have);
        assert_eq!(of(&[]), [0, 1, 2]);
        assert_eq!(of(&["c", "x", "a"]), [2, 0]);
    }

    #[test]
    fn what_can_never_decide_is_found_and_never_published() {
        for (views, rules, key) in [
            (&["a", "a"][..], vec![], Some("map.default.views")),
            (&[], vec![rule(None, None)], Some("map.default.rule")),
            (&["a"], vec![rule(Some("b"), None)], Some("map.default.rule.view")),
            (&["a"], vec![rule(Some("a"), None)], None),
            (&[], vec![rule(Some("b"), None)], None),
        ] {
            let map = map(views, &rules);
            let mut faults = Vec::new();
            check(&map, &mut faults);
            let found = faults.first().map(|fault| fault.path.to_string());
            assert_eq!(found.as_deref(), key);
            assert_eq!(wrong_rule(&map).is_some(), key.is_some());
        }
        let twice = map(&[], &[rule(None, Some(1)), rule(None, Some(2)), rule(None, Some(1))]);
        let mut faults = Vec::new();
        check(&twice, &mut faults);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].path.to_string(), "map.default.rule");
    }
}
