//! Usage by project, country, AS and family -> demand by group.
//!
//! What logs tell apart is not what steering does: overrides are by prefix, classes by all maps. The clients
//! of one country and AS are taken to be spread evenly over its addresses: so much of a row is of a class as
//! the addresses are.

use std::collections::HashMap;

use locate::Locator;
use model::{Asn, CountryCode, Family};
use nodemap::AdminMap;
use usage::demand::{self, Row};

use super::Demand;
use crate::diff::joined;
use crate::table::{ClassId, ClassTable};

type Place = (Option<CountryCode>, Option<Asn>);
/// Addresses by class.
type Classes = HashMap<ClassId, u128>;

impl Demand {
    /// The demand of `usage` under the steering maps of `map`, of which `table` was compiled with `locator`.
    /// A network that is not in its country any more counts as its country does, and as what nobody
    /// knows if that is gone too.
    pub fn of(
        usage: &demand::Demand,
        map: &AdminMap,
        table: &ClassTable,
        locator: &Locator,
    ) -> Self {
        let places = Family::ALL.map(|family| Places::new(family, table, locator));
        let [v4, v6] = &places;
        let mut demand = Self::default();
        for row in &usage.rows {
            let rate = usage.rate(row);
            let places = if row.family == Family::V4 { v4 } else { v6 };
            if demand.add_row(row, rate, map, table, places).is_none() {
                demand.unplaced_bits_per_s += rate;
            }
        }
        demand
    }

    fn add_row(
        &mut self,
        row: &Row,
        rate: f64,
        map: &AdminMap,
        table: &ClassTable,
        places: &Places,
    ) -> Option<()> {
        let audiences = table.audiences_of(&map.projects.get(&row.project)?.map)?;
        let classes = places.find(row.country, row.asn)?;
        let total: u128 = classes.values().sum();
        for (class, addresses) in classes {
            let part = *addresses as f64 / total as f64;
            self.add(audiences.get(*class)?, row.family, rate * part);
        }
        Some(())
    }
}

/// Which classes the addresses of a place are of.
struct Places {
    exact: HashMap<Place, Classes>,
    countries: HashMap<Option<CountryCode>, Classes>,
}

impl Places {
    fn new(family: Family, table: &ClassTable, locator: &Locator) -> Self {
        let groups = match family {
            Family::V4 => joined(table.ranges_v4(), table.ranges_v4(), locator.ranges_v4()),
            Family::V6 => joined(table.ranges_v6(), table.ranges_v6(), locator.ranges_v6()),
        };
        let (mut exact, mut countries) =
            (HashMap::<_, Classes>::new(), HashMap::<_, Classes>::new());
        for ((class, _, evidence), addresses) in groups {
            // Stands for the IPv4-mapped block: nobody comes from there over IPv6.
            if usize::from(class.get()) >= table.classes() {
                continue;
            }
            let place = exact.entry((evidence.country, evidence.asn)).or_default();
            let country = countries.entry(evidence.country).or_default();
            for classes in [place, country] {
                let sum = classes.entry(class).or_default();
                *sum = sum.saturating_add(addresses);
            }
        }
        Self { exact, countries }
    }

    fn find(&self, country: Option<CountryCode>, asn: Option<Asn>) -> Option<&Classes> {
        let exact = self.exact.get(&(country, asn));
        exact.or_else(|| self.countries.get(&country)).or_else(|| self.countries.get(&None))
    }
}
