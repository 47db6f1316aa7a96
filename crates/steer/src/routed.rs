//! What live routes say to a map: which route it believes, and which of its rules matches.
//!
//! The compiler asks for sets of routes that are all alike, people ask for one route: both by the
//! functions here.

use std::collections::{HashMap, HashSet};

use locate::Routes;
use model::route::{Attributes, Hop};
use model::{Asn, Name};
use nodemap::SteeringMap;

use crate::rules::Rules;

/// Which views a map looks at, by their places among all views.
#[derive(Clone, Debug)]
pub(crate) struct Heeding {
    /// Those that it believes, in order.
    believed: Vec<usize>,
    /// By rule.
    rules: Vec<Place>,
}

/// Where a rule looks.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At the first believed view that has a route.
    Believed,
    /// At this view.
    View(usize),
    /// At a view that there is not.
    Nowhere,
}

impl Heeding {
    /// Of `map`, where there are these views.
    pub(crate) fn new(map: &SteeringMap, views: &[Name]) -> Self {
        let place = |view: &Option<Name>| match view {
            None => Place::Believed,
            Some(view) => views.binary_search(view).map_or(Place::Nowhere, Place::View),
        };
        let rules = map.rules.iter().map(|rule| place(&rule.view)).collect();
        Self { believed: map.believed(views), rules }
    }

    /// The route that the map believes: `routes` has that of each view.
    pub(crate) fn route<T: Copy>(&self, routes: &[Option<T>]) -> Option<T> {
        self.believed.iter().find_map(|view| routes.get(*view).copied().flatten())
    }

    /// The first rule that matches, by its place in the map; `matches` is asked of a rule and a route.
    pub(crate) fn rule<T: Copy>(
        &self,
        routes: &[Option<T>],
        matches: impl Fn(usize, T) -> bool,
    ) -> Option<usize> {
        let believed = self.route(routes);
        let mut rules = self.rules.iter().enumerate();
        let decides = |(at, place): (usize, &Place)| {
            let route = match place {
                Place::Believed => believed,
                Place::View(view) => routes.get(*view).copied().flatten(),
                Place::Nowhere => None,
            }?;
            matches(at, route).then_some(at)
        };
        rules.find_map(decides)
    }
}

/// The AS of a client by the route that is believed, else by the database.
pub(crate) fn asn_of(route: Option<&Attributes>, database: Option<Asn>) -> Option<Asn> {
    route.and_then(|route| route.as_path.origin()).or(database)
}

/// What the rules can tell of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Meaning {
    pub(crate) origin: Origin,
    /// The rules that match, of all maps: numbers, ascending.
    matches: Box<[u32]>,
}

/// The origin AS of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// It has none: the database says.
    Unknown,
    /// One that no map or node names.
    Other,
    /// This one.
    Named(Asn),
}

impl Origin {
    /// The AS of a client, as far as it makes a difference.
    pub(crate) fn or(self, database: Option<Asn>) -> Option<Asn> {
        match self {
            Self::Unknown => database,
            Self::Other => None,
            Self::Named(asn) => Some(asn),
        }
    }
}

impl Meaning {
    /// Whether this rule, by its number, matches.
    pub(crate) fn matches(&self, rule: u32) -> bool {
        self.matches.binary_search(&rule).is_ok()
    }
}

/// The meaning of every route of every view. Routes are many and different attributes fewer: each is
/// held against the rules once.
#[derive(Debug, Default)]
pub(crate) struct Meanings {
    distinct: Vec<Meaning>,
    /// By view and attributes: index into `distinct`.
    by_view: Vec<Vec<u32>>,
    number: HashMap<Meaning, u32>,
}

impl Meanings {
    /// Of all `routes` before `rules`, which are numbered through all maps, in the order of these.
    pub(crate) fn new(rules: &Rules, routes: &Routes) -> Self {
        let named = rules.named_asns();
        let mut meanings = Self::default();
        for view in 0..routes.views().len() {
            let attributes = routes.table(view).map_or(&[][..], |table| table.attributes());
            let of = |route| meanings.number(meaning(rules, &named, route));
            let of_view = attributes.iter().map(|route| route.as_ref()).map(of).collect();
            meanings.by_view.push(of_view);
        }
        meanings
    }

    fn number(&mut self, meaning: Meaning) -> u32 {
        if let Some(number) = self.number.get(&meaning) {
            return *number;
        }
        let next = u32::try_from(self.distinct.len()).unwrap_or(u32::MAX);
        self.distinct.push(meaning.clone());
        self.number.insert(meaning, next);
        next
    }

    /// Puts into `out` the number of the meaning of what was heard in each view.
    pub(crate) fn of(&self, heard: &[Option<u32>], out: &mut Vec<Option<u32>>) {
        out.clear();
        let number = |(view, at): (&Vec<u32>, &Option<u32>)| view.get((*at)? as usize).copied();
        out.extend(self.by_view.iter().zip(heard).map(number));
    }

    /// The meanings with these numbers.
    pub(crate) fn get(&self, numbers: &[Option<u32>]) -> Vec<Option<&Meaning>> {
        let get = |number: &Option<u32>| self.distinct.get((*number)? as usize);
        numbers.iter().map(get).collect()
    }
}

fn meaning(rules: &Rules, named: &HashSet<Asn>, route: &Attributes) -> Meaning {
    let origin = match route.as_path.origin() {
        None => Origin::Unknown,
        Some(asn) if named.contains(&asn) => Origin::Named(asn),
        Some(_) => Origin::Other,
    };
    let all = rules.maps().values().flat_map(|map| &map.rules);
    let mut hops: Option<Vec<Hop>> = None;
    let mut matches = Vec::new();
    for (number, rule) in (0u32..).zip(all) {
        let hops = match &rule.as_path {
            None => &[][..],
            Some(_) => hops.get_or_insert_with(|| route.as_path.hops().collect()),
        };
        if rule.matches(route, hops) {
            matches.push(number);
        }
    }
    Meaning { origin, matches: matches.into() }
}
