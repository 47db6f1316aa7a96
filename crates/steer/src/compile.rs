//! Rules and locations -> classes.
//!
//! Goes through each address space once, from border to border of what is known of locations, of live
//! routes and of the overrides of every map. What the maps say at an address is a tuple: for each map an audience
//! (its list of pools, and the nodes that do not serve there). Equal tuples are one class.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use locate::runs::Bits;
use locate::{Evidence, Locator, Routes, Sweep};
use model::{Asn, Continent, CountryCode, Name};
use nodemap::SteeringMap;

use crate::overlay::{Cursor, Overlay, overlays};
use crate::routed::{Heeding, Meaning, Meanings, Origin};
use crate::rules::Rules;
use crate::table::{Audience, ClassId, CompileError, MapAudiences};

/// Most classes that can be told apart; the highest number stands for none.
pub(crate) const CLASSES_MAX: usize = u16::MAX as usize;

/// One map, ready to be asked for any evidence: entry -> index of its pool list.
struct MapIndex<'a> {
    name: &'a Name,
    lists: Vec<&'a [Name]>,
    default: u32,
    continent: HashMap<Continent, u32>,
    country: HashMap<CountryCode, u32>,
    asn: HashMap<Asn, u32>,
    /// By override.
    overrides: Vec<u32>,
    heeding: Heeding,
    /// By rule: its number among those of all maps, and its list.
    rules: Vec<(u32, u32)>,
    /// (List, refusal) -> audience.
    numbers: HashMap<(u32, u32), u32>,
    by_audience: HashMap<(u32, BTreeSet<Name>), u32>,
    audiences: Vec<Audience>,
}

impl<'a> MapIndex<'a> {
    /// Of one map; its rules have numbers from `first_rule` on, and look at `views`.
    fn new(name: &'a Name, map: &'a SteeringMap, views: &[Name], first_rule: u32) -> Self {
        let mut lists: Vec<&[Name]> = Vec::new();
        let mut numbers: HashMap<&'a [Name], u32> = HashMap::new();
        let mut number = |list: &'a Vec<Name>| {
            *numbers.entry(list).or_insert_with(|| {
                lists.push(list);
                u32::try_from(lists.len().saturating_sub(1)).unwrap_or(u32::MAX)
            })
        };
        let default = number(&map.default);
        let continent = map.continent.iter().map(|(k, list)| (*k, number(list))).collect();
        let country = map.country.iter().map(|(k, list)| (*k, number(list))).collect();
        let asn = map.asn.iter().map(|(k, list)| (*k, number(list))).collect();
        let overrides = map.overrides.iter().map(|rule| number(&rule.pools)).collect();
        let rules = map.rules.iter().map(|rule| number(&rule.pools));
        let rules = (first_rule..).zip(rules).collect();
        Self {
            name,
            heeding: Heeding::new(map, views),
            rules,
            lists,
            default,
            continent,
            country,
            asn,
            overrides,
            numbers: HashMap::new(),
            by_audience: HashMap::new(),
            audiences: Vec::new(),
        }
    }

    /// The list for `evidence` of databases and routes with these meanings: rule before ASN before
    /// country before continent before default.
    fn list_for(&self, evidence: Evidence, routes: &[Option<&Meaning>]) -> u32 {
        let number = |at: usize| self.rules.get(at).map(|(number, _)| *number);
        let matches = |at, route: &Meaning| number(at).is_some_and(|rule| route.matches(rule));
        let rule = self.heeding.rule(routes, matches).and_then(|at| self.rules.get(at));
        if let Some((_, list)) = rule {
            return *list;
        }
        let origin = self.heeding.route(routes).map_or(Origin::Unknown, |route| route.origin);
        let asn = origin.or(evidence.asn).and_then(|asn| self.asn.get(&asn));
        let country = || evidence.country.and_then(|country| self.country.get(&country));
        let continent = || evidence.continent.and_then(|continent| self.continent.get(&continent));
        asn.or_else(country).or_else(continent).copied().unwrap_or(self.default)
    }

    /// The number of the audience of a list where the nodes of `refusal` do not serve.
    fn audience(&mut self, list: u32, refusal: (u32, &[usize]), rules: &Rules) -> u32 {
        if let Some(number) = self.numbers.get(&(list, refusal.0)) {
            return *number;
        }
        let pools = self.lists.get(list as usize).copied().unwrap_or_default();
        let refused = rules.reached(self.name, pools, refusal.1);
        let next = u32::try_from(self.audiences.len()).unwrap_or(u32::MAX);
        let number = *self.by_audience.entry((list, refused.clone())).or_insert(next);
        if number == next {
            self.audiences.push(Audience { pools: pools.to_vec(), refused });
        }
        self.numbers.insert((list, refusal.0), number);
        number
    }
}

/// What the maps say of some evidence and routes where no override holds. There is a lot of evidence.
#[derive(Clone, Copy, Debug)]
struct Plain {
    class: ClassId,
    /// Number of the list of nodes that do not serve such clients.
    refusal: u32,
}

pub(crate) struct Compiler<'a> {
    rules: &'a Rules,
    maps: Vec<MapIndex<'a>>,
    overlays: Vec<(Overlay<u32>, Overlay<u128>)>,
    /// By class: by map the audience.
    tuples: Vec<Rc<[u32]>>,
    by_tuple: HashMap<Rc<[u32]>, ClassId>,
    meanings: Meanings,
    /// Numbers of what is heard in all views together; 0 where nothing is.
    by_heard: HashMap<Vec<Option<u32>>, u32>,
    by_evidence: HashMap<(Evidence, u32), Plain>,
    refusals: Vec<Vec<usize>>,
    /// Addresses of whom anything is known, IPv4 and IPv6.
    known: [f64; 2],
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(rules: &'a Rules, routes: &Routes, wall_ms: u64) -> Self {
        let maps = rules.maps().iter();
        let mut first_rule = 0u32;
        let index = |(name, map): (&'a Name, &'a SteeringMap)| {
            let index = MapIndex::new(name, map, routes.views(), first_rule);
            first_rule = first_rule.saturating_add(u32::try_from(map.rules.len()).unwrap_or(0));
            index
        };
        Self {
            rules,
            maps: maps.clone().map(index).collect(),
            overlays: maps.map(|(_, map)| overlays(&map.overrides, wall_ms)).collect(),
            tuples: Vec::new(),
            by_tuple: HashMap::new(),
            meanings: Meanings::new(rules, routes),
            by_heard: HashMap::new(),
            by_evidence: HashMap::new(),
            refusals: Vec::new(),
            known: [0.0; 2],
        }
    }

    /// How many addresses there are of which a database or a route says anything, IPv4 and IPv6.
    pub(crate) fn known(&self) -> [f64; 2] {
        self.known
    }

    /// Ascending from address zero: where each class begins.
    pub(crate) fn v4(&mut self, locator: &Locator) -> Result<Vec<(u32, ClassId)>, CompileError> {
        let overlays: Vec<Overlay<u32>> =
            self.overlays.iter_mut().map(|(v4, _)| std::mem::take(v4)).collect();
        self.sweep(locator.sweep_v4(), &overlays)
    }

    /// The same of IPv6.
    pub(crate) fn v6(&mut self, locator: &Locator) -> Result<Vec<(u128, ClassId)>, CompileError> {
        let overlays: Vec<Overlay<u128>> =
            self.overlays.iter_mut().map(|(_, v6)| std::mem::take(v6)).collect();
        self.sweep(locator.sweep_v6(), &overlays)
    }

    fn sweep<K: Bits>(
        &mut self,
        mut ranges: Sweep<'_, K>,
        overlays: &[Overlay<K>],
    ) -> Result<Vec<(K, ClassId)>, CompileError> {
        let mut cursors: Vec<Cursor<'_, K>> = overlays.iter().map(Cursor::new).collect();
        let mut ruled: Vec<Option<u32>> = vec![None; cursors.len()];
        // Room that is not needed costs nothing: the system gives memory when it is written to.
        let mut runs = Vec::with_capacity(ranges.at_most());
        let mut meanings = Vec::new();
        let mut known = 0.0;
        while let Some((first, last, evidence)) = ranges.step() {
            if evidence != Evidence::default() || ranges.heard().iter().any(Option::is_some) {
                known += last.float() - first.float() + 1.0;
            }
            self.meanings.of(ranges.heard(), &mut meanings);
            let heard = self.heard(&meanings);
            let mut next = Some(first);
            while let Some(at) = next.filter(|at| *at <= last) {
                let mut until = last;
                for (cursor, ruled) in cursors.iter_mut().zip(&mut ruled) {
                    let (rule, end) = cursor.at(at);
                    *ruled = rule;
                    until = until.min(end);
                }
                let class = self.class_of(evidence, heard, &meanings, &ruled)?;
                if runs.last().is_none_or(|(_, last): &(K, ClassId)| *last != class) {
                    runs.push((at, class));
                }
                next = until.after();
            }
        }
        let [v4, v6] = &mut self.known;
        *(if K::BITS == u32::BITS as u8 { v4 } else { v6 }) = known;
        Ok(runs)
    }

    /// The number of what is heard.
    fn heard(&mut self, meanings: &[Option<u32>]) -> u32 {
        if meanings.iter().all(Option::is_none) {
            return 0;
        }
        if let Some(number) = self.by_heard.get(meanings) {
            return *number;
        }
        let number = u32::try_from(self.by_heard.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.by_heard.insert(meanings.to_vec(), number);
        number
    }

    /// The class for `evidence` and what is heard where these overrides hold, one place a map.
    fn class_of(
        &mut self,
        evidence: Evidence,
        heard: u32,
        meanings: &[Option<u32>],
        ruled: &[Option<u32>],
    ) -> Result<ClassId, CompileError> {
        let key = (evidence, heard);
        let plain = match self.by_evidence.get(&key) {
            Some(plain) => *plain,
            None => {
                let plain = self.plain(evidence, meanings)?;
                self.by_evidence.insert(key, plain);
                plain
            }
        };
        if ruled.iter().all(Option::is_none) {
            return Ok(plain.class);
        }
        let number = plain.refusal;
        let mut tuple =
            self.tuples.get(usize::from(plain.class.get())).map_or(vec![], |t| t.to_vec());
        let refused = self.refusals.get(number as usize).map_or(&[][..], Vec::as_slice);
        for ((map, rule), audience) in self.maps.iter_mut().zip(ruled).zip(&mut tuple) {
            let list = rule.and_then(|rule| map.overrides.get(rule as usize).copied());
            if let Some(list) = list {
                *audience = map.audience(list, (number, refused), self.rules);
            }
        }
        self.number(&tuple)
    }

    fn plain(
        &mut self,
        evidence: Evidence,
        meanings: &[Option<u32>],
    ) -> Result<Plain, CompileError> {
        let routes = self.meanings.get(meanings);
        let Evidence { asn, country, .. } = evidence;
        // Whom nodes serve does not depend on a map: the location's own AS number decides.
        let route = routes.iter().find_map(|route| *route);
        let asn = route.map_or(Origin::Unknown, |route| route.origin).or(asn);
        let limited = self.rules.limited().iter().enumerate();
        let refused = limited.filter(|(_, node)| !node.serve.holds(asn, country));
        let refused: Vec<usize> = refused.map(|(at, _)| at).collect();
        let known = self.refusals.iter().position(|known| *known == refused);
        let at = known.unwrap_or_else(|| {
            self.refusals.push(refused.clone());
            self.refusals.len().saturating_sub(1)
        });
        let refusal = u32::try_from(at).unwrap_or(u32::MAX);
        let audience = |map: &mut MapIndex<'_>| {
            map.audience(map.list_for(evidence, &routes), (refusal, &refused), self.rules)
        };
        let audiences: Vec<u32> = self.maps.iter_mut().map(audience).collect();
        Ok(Plain { class: self.number(&audiences)?, refusal })
    }

    /// The class of a tuple of audiences.
    fn number(&mut self, tuple: &[u32]) -> Result<ClassId, CompileError> {
        let next = self.tuples.len();
        if let Some(class) = self.by_tuple.get(tuple) {
            return Ok(*class);
        }
        let class = u16::try_from(next).ok().filter(|_| next < CLASSES_MAX);
        let class = ClassId::of(class.ok_or(CompileError::TooManyClasses)?);
        let tuple: Rc<[u32]> = tuple.into();
        self.tuples.push(Rc::clone(&tuple));
        self.by_tuple.insert(tuple, class);
        Ok(class)
    }

    /// Number of classes, and by map what they mean.
    pub(crate) fn finish(self) -> (usize, BTreeMap<Name, MapAudiences>) {
        let tuples = self.tuples;
        let of_map =
            |i: usize| tuples.iter().map(|tuple| tuple.get(i).copied().unwrap_or(0)).collect();
        let maps = self.maps.into_iter().enumerate().map(|(i, map)| {
            (map.name.clone(), MapAudiences { distinct: map.audiences, of_class: of_map(i) })
        });
        let maps = maps.collect();
        (tuples.len(), maps)
    }
}
