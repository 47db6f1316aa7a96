//! Which certificates are wanted, and when each is ordered.
//!
//! One for every name, so that one that cannot be had keeps no other from its own. A certificate is
//! renewed when a third of its lifetime is left, a little earlier by lot so that many do not come due
//! together. A refusal is followed by ever longer pauses: authorities count failures by name and hour.
//!
//! World: [`Orders::set`], [`Orders::hold`], [`Orders::failed`], [`Orders::order_now`]. What is next:
//! [`Orders::due`], [`Orders::next_ms`]. Getters: [`Orders::iter`], [`Orders::get`].

use std::collections::BTreeMap;

use model::{Dice, HostName, Name};
use nodemap::{AdminMap, HostPattern, Project, ProjectTls};

/// Pauses after the first, second, ... refusal in a row, milliseconds: at most four an hour.
const PAUSES_MS: [u64; 6] = [60_000, 300_000, 1_500_000, 7_200_000, 36_000_000, 86_400_000];

/// From when and until when a certificate holds, Unix time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when.
    pub from_ms: u64,
    /// Until when.
    pub until_ms: u64,
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose it is.
    pub project: Name,
    /// The certificate that is there.
    pub held: Option<Validity>,
    /// When it is ordered next, Unix time in milliseconds.
    pub next_ms: u64,
    /// Refusals since the last certificate.
    pub refusals: u32,
    /// Why the last order brought none; empty when it did.
    pub why: String,
}

/// All names that certificates are ordered for.
#[derive(Clone, Debug, Default)]
pub struct Orders(BTreeMap<String, Order>);

impl Orders {
    /// Takes over which names are wanted. Who is new is due at once.
    pub fn set(&mut self, wanted: BTreeMap<String, Name>) {
        self.0.retain(|name, _| wanted.contains_key(name));
        for (name, project) in wanted {
            let new = |project| Order {
                project,
                held: None,
                next_ms: 0,
                refusals: 0,
                why: String::new(),
            };
            let order = self.0.entry(name).or_insert_with(|| new(project.clone()));
            order.project = project;
        }
    }

    /// A certificate of `name` is there.
    pub fn hold(&mut self, name: &str, held: Validity, dice: &mut Dice) {
        let Some(order) = self.0.get_mut(name) else { return };
        let lifetime_ms = held.until_ms.saturating_sub(held.from_ms);
        let early_ms = (lifetime_ms / 3).saturating_add(dice.below((lifetime_ms / 30).max(1)));
        order.next_ms = held.until_ms.saturating_sub(early_ms);
        order.held = Some(held);
        order.refusals = 0;
        order.why.clear();
    }

    /// An order of `name` brought nothing.
    pub fn failed(&mut self, name: &str, why: String, wall_ms: u64, dice: &mut Dice) {
        let Some(order) = self.0.get_mut(name) else { return };
        let [.., longest_ms] = PAUSES_MS;
        let nth = usize::try_from(order.refusals).unwrap_or(usize::MAX);
        let pause_ms = PAUSES_MS.get(nth).copied().unwrap_or(longest_ms);
        let lot_ms = dice.below((pause_ms / 10).max(1));
        order.next_ms = wall_ms.saturating_add(pause_ms).saturating_add(lot_ms);
        order.refusals = order.refusals.saturating_add(1);
        order.why = why;
    }

    /// Has `name` ordered as soon as may be; says whether there is such a name.
    pub fn order_now(&mut self, name: &str) -> bool {
        self.0.get_mut(name).map(|order| order.next_ms = 0).is_some()
    }

    /// The name to order now: the one that is due longest.
    pub fn due(&self, wall_ms: u64) -> Option<&str> {
        let due = self.0.iter().filter(|(_, order)| order.next_ms <= wall_ms);
        due.min_by_key(|(_, order)| order.next_ms).map(|(name, _)| name.as_str())
    }

    /// When the next is due, Unix time in milliseconds.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.values().map(|order| order.next_ms).min()
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Order)> {
        self.0.iter().map(|(name, order)| (name.as_str(), order))
    }

    /// What is known of `name`.
    pub fn get(&self, name: &str) -> Option<&Order> {
        self.0.get(name)
    }
}

/// The names of the hosts of projects with `tls = "acme"`, and whose each is. With `wildcards`, which
/// authorities check by DNS alone, also all below the steered names of projects whose clients are sent
/// on to nodes by name.
pub fn wanted(map: &AdminMap, wildcards: bool) -> BTreeMap<String, Name> {
    let projects = map.projects.iter().filter(|(_, project)| project.tls == ProjectTls::Acme);
    let names = projects.flat_map(|(name, project)| {
        let by_node = wildcards && (project.redirect || project.alternates);
        let below = by_node.then(|| format!("*.{}", project.name));
        let hosts = project.hosts.iter().filter_map(|host| match host {
            HostPattern::Exact(host) => Some(host.to_string()),
            HostPattern::Any => None,
        });
        hosts.chain(below).map(move |host| (host, name.clone()))
    });
    names.collect()
}

/// Where the text of a challenge over DNS for `name` is looked for, as far as that is ours: below the
/// name itself, or below the steered name, to which projects outside our zones alias theirs.
pub fn challenge_names(map: &AdminMap, project: &Project, name: &str) -> Vec<HostName> {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let places = [name, project.name.as_str()].map(|place| format!("_acme-challenge.{place}"));
    let mut names: Vec<HostName> = places.iter().filter_map(|place| place.parse().ok()).collect();
    names.retain(|name| map.zones.keys().any(|apex| name.is_in(apex)));
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn orders(names: &[&str]) -> Orders {
        let mut orders = Orders::default();
        let project: Name = "p".parse().unwrap();
        orders.set(names.iter().map(|&name| (name.to_owned(), project.clone())).collect());
        orders
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_it_is_left() {
        let (mut orders, mut dice) = (orders(&["a", "b"]), Dice::seeded(1));
        assert_eq!(orders.due(0), Some("a"));
        let held = Validity { from_ms: 0, until_ms: 90 * DAY_MS };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            orders.hold("a", held, &mut dice);
            let next_ms = orders.get("a").unwrap().next_ms;
            assert!((57 * DAY_MS..=60 * DAY_MS).contains(&next_ms), "{next_ms}");
            seen.insert(next_ms);
        }
        assert!(seen.len() > 90, "they do not come due together");
        assert_eq!((orders.due(56 * DAY_MS), orders.next_ms()), (Some("b"), Some(0)));
        orders.hold("b", held, &mut dice);
        assert_eq!(orders.due(56 * DAY_MS), None);
        assert!(orders.order_now("b") && !orders.order_now("c"));
        assert_eq!(orders.due(56 * DAY_MS), Some("b"));
    }

    #[test]
    fn refusals_are_followed_by_ever_longer_pauses() {
        let (mut orders, mut dice) = (orders(&["a"]), Dice::seeded(1));
        let (mut now_ms, mut first_hour) = (0, 0);
        for nth in 0..10u32 {
            orders.failed("a", "no".into(), now_ms, &mut dice);
            let order = orders.get("a").unwrap();
            let pause_ms = PAUSES_MS[usize::try_from(nth).unwrap().min(5)];
            assert!((pause_ms..=pause_ms * 11 / 10).contains(&(order.next_ms - now_ms)));
            assert_eq!((order.refusals, orders.due(order.next_ms - 1)), (nth + 1, None));
            now_ms = order.next_ms;
            first_hour += u32::from(now_ms < 3_600_000);
        }
        assert!(first_hour <= 4, "{first_hour}");
        orders.hold("a", Validity { from_ms: 0, until_ms: DAY_MS }, &mut dice);
        let order = orders.get("a").unwrap();
        assert_eq!((order.refusals, &*order.why), (0, ""));
    }

    #[test]
    fn names_come_from_projects_and_their_challenges_are_answered_where_we_can() {
        let mut map = AdminMap::default();
        let mut project = nodemap::testing::project();
        project.hosts.push("y.cdn.example".parse().map(HostPattern::Exact).unwrap());
        project.hosts.push(HostPattern::Any);
        project.redirect = true;
        map.projects.insert("p".parse().unwrap(), project.clone());
        assert!(wanted(&map, true).is_empty(), "its certificates are files");
        project.tls = ProjectTls::Acme;
        map.projects.insert("p".parse().unwrap(), project.clone());
        let names = |wildcards| wanted(&map, wildcards).into_keys().collect::<Vec<_>>();
        assert_eq!(names(false), ["x.example", "y.cdn.example"]);
        assert_eq!(names(true), ["*.x.cdn.example", "x.example", "y.cdn.example"]);
        map.zones = nodemap::testing::node_map(1).map.zones;
        let places = |name: &str| {
            let names = challenge_names(&map, &project, name);
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(places("x.example"), ["_acme-challenge.x.cdn.example"]);
        assert_eq!(places("*.x.cdn.example"), ["_acme-challenge.x.cdn.example"]);
        assert_eq!(
            places("y.cdn.example"),
            ["_acme-challenge.y.cdn.example", "_acme-challenge.x.cdn.example"]
        );
    }
}
