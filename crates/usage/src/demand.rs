//! Demand: what was sent to whom, told apart as steering tells clients apart, for planning.
//!
//! [`Gathered`] counts answers by project, country, AS and family, and by five-minute bins of each project
//! and country -> [`Gathered::demand`] -> [`Demand`], the document that `cacheboy report demand --format
//! json` prints and planning reads.
//!
//! Memory is bounded by [`CELLS_MAX`], [`PROJECTS_MAX`] and [`BINS_MAX`]. What has no cell is counted
//! together as others; where bins run out no peak is told rather than one that is too low.

mod document;

use std::collections::HashMap;

use model::{Asn, CountryCode, Family, Name};

use crate::sums::Count;

pub use document::{Demand, FORMAT, ReadError, Row};

/// Most cells that are told apart: 70,000 networks, many of them in two families.
pub const CELLS_MAX: usize = 200_000;
/// Most projects that are told apart.
pub const PROJECTS_MAX: usize = 1_000;
/// Most five-minute bins in all: a month of 230 countries, or a week of 1,000.
pub const BINS_MAX: usize = 1 << 21;
/// Length of a bin, milliseconds: what the 95th percentile of bills is made of.
pub const BIN_MS: u64 = 300_000;

/// Whom something was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// Country, if known.
    pub country: Option<CountryCode>,
    /// Network, if known.
    pub asn: Option<Asn>,
    /// The family that it came by.
    pub family: Family,
}

/// A project by its number here, and a client.
type Cell = (u16, Client);
/// A project, a country and the number of a bin.
type Bin = (u16, Option<CountryCode>, u64);

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    projects: HashMap<Name, u16>,
    cells: HashMap<Cell, Count>,
    bins: HashMap<Bin, u64>,
    /// Some bytes are in no bin.
    has_lost_bins: bool,
    others: Count,
    total: Count,
    period_ms: Option<(u64, u64)>,
}

impl Gathered {
    /// Counts an answer to a client that ended at `ended_ms` (unix time); without a project, or of a client
    /// without an address, it is among the others.
    pub fn add(
        &mut self,
        project: Option<&Name>,
        client: Option<Client>,
        bytes: u64,
        ended_ms: u64,
    ) {
        let one = Count { bytes, requests: 1 };
        self.total.add(one);
        let (first, last) = self.period_ms.unwrap_or((ended_ms, ended_ms));
        self.period_ms = Some((first.min(ended_ms), last.max(ended_ms)));
        let number = project.and_then(|project| self.number(project));
        let cell = number.zip(client).filter(|cell| self.count(*cell, one));
        match cell {
            Some((number, client)) => {
                let bin = ended_ms.checked_div(BIN_MS).unwrap_or_default();
                self.bin((number, client.country, bin), bytes);
            }
            None => self.others.add(one),
        }
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, more: Self) {
        let mut names: HashMap<u16, u16> = HashMap::new();
        for (name, theirs) in more.projects {
            if let Some(ours) = self.number(&name) {
                names.insert(theirs, ours);
            }
        }
        for ((project, client), count) in more.cells {
            let ours = names.get(&project).map(|ours| (*ours, client));
            if !ours.is_some_and(|cell| self.count(cell, count)) {
                self.others.add(count);
            }
        }
        for ((project, country, bin), bytes) in more.bins {
            if let Some(ours) = names.get(&project) {
                self.bin((*ours, country, bin), bytes);
            }
        }
        self.has_lost_bins |= more.has_lost_bins;
        self.others.add(more.others);
        self.total.add(more.total);
        self.period_ms = match (self.period_ms, more.period_ms) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }

    /// The document: the largest rows first.
    pub fn demand(&self) -> Demand {
        let mut names: Vec<(&Name, u16)> = self.projects.iter().map(|(n, at)| (n, *at)).collect();
        names.sort_unstable_by_key(|(_, at)| *at);
        let peaks = self.peaks();
        let mut sums: HashMap<(u16, Option<CountryCode>), u64> = HashMap::new();
        for ((project, client), count) in &self.cells {
            let sum = sums.entry((*project, client.country)).or_default();
            *sum = sum.saturating_add(count.bytes);
        }
        let row = |((project, client), count): (&Cell, &Count)| {
            let series = (*project, client.country);
            let peak = peaks.get(&series).zip(sums.get(&series));
            Some(Row {
                project: names.get(usize::from(*project))?.0.clone(),
                country: client.country,
                asn: client.asn,
                family: client.family,
                bytes: count.bytes,
                requests: count.requests,
                peak_bits_per_s: peak.map(|(peak, sum)| peak_of(*peak, count.bytes, *sum)),
            })
        };
        let mut rows: Vec<Row> = self.cells.iter().filter_map(row).collect();
        let key = |row: &Row| (row.project.clone(), row.country, row.asn, row.family);
        rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| key(a).cmp(&key(b))));
        let (first_ms, last_ms) = self.period_ms.unwrap_or_default();
        Demand { first_ms, last_ms, rows, others: self.others, total: self.total }
    }

    /// Bytes of the busiest bin of each project and country.
    fn peaks(&self) -> HashMap<(u16, Option<CountryCode>), u64> {
        let mut peaks = HashMap::new();
        for ((project, country, _), bytes) in self.bins.iter().filter(|_| !self.has_lost_bins) {
            let peak = peaks.entry((*project, *country)).or_default();
            *peak = (*bytes).max(*peak);
        }
        peaks
    }

    /// The number of a project; `None` when there are too many.
    fn number(&mut self, project: &Name) -> Option<u16> {
        if let Some(number) = self.projects.get(project) {
            return Some(*number);
        }
        let next = self.projects.len();
        let number = u16::try_from(next).ok().filter(|_| next < PROJECTS_MAX)?;
        self.projects.insert(project.clone(), number);
        Some(number)
    }

    /// Whether there was a cell for it.
    fn count(&mut self, cell: Cell, count: Count) -> bool {
        if self.cells.len() >= CELLS_MAX && !self.cells.contains_key(&cell) {
            return false;
        }
        self.cells.entry(cell).or_default().add(count);
        true
    }

    fn bin(&mut self, bin: Bin, bytes: u64) {
        if self.bins.len() >= BINS_MAX && !self.bins.contains_key(&bin) {
            self.has_lost_bins = true;
            return;
        }
        let sum = self.bins.entry(bin).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

/// The part that `bytes` of `sum` have of the busiest bin, bits per second.
fn peak_of(peak: u64, bytes: u64, sum: u64) -> u64 {
    let part = u128::from(peak).saturating_mul(u128::from(bytes));
    let part = part.checked_div(u128::from(sum)).unwrap_or_default();
    let bits = part.saturating_mul(8 * 1000).checked_div(u128::from(BIN_MS)).unwrap_or_default();
    u64::try_from(bits).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn client(country: &str, asn: u32, family: Family) -> Client {
        Client { country: country.parse().ok(), asn: Asn::new(asn), family }
    }

    fn filled(parts: &[(&str, Client, u64, u64)]) -> Gathered {
        let mut all = Gathered::default();
        for (project, client, bytes, ended_ms) in parts {
            all.add(Some(&name(project)), Some(*client), *bytes, *ended_ms);
        }
        all
    }

    /// AU had its busiest five minutes with 3 + 6 MB: 240 kbit/s, of which AS1 has 4/10 of all bytes.
    #[test]
    fn rows_have_their_part_of_the_busiest_minutes_of_their_country() {
        let (one, two) = (client("AU", 1, Family::V4), client("AU", 2, Family::V6));
        let german = client("DE", 1, Family::V4);
        let parts = [
            ("p", one, 3_000_000, BIN_MS),
            ("p", two, 6_000_000, 2 * BIN_MS - 1),
            ("p", one, 1_000_000, 2 * BIN_MS),
            ("p", german, 750_000, 0),
            ("q", german, 1, 5),
        ];
        let whole = filled(&parts).demand();
        let mut merged = Gathered::default();
        // The projects have other numbers in the part that comes first.
        parts.iter().rev().for_each(|part| merged.merge(filled(&[*part])));
        assert_eq!(merged.demand(), whole);
        let rows: Vec<_> = whole
            .rows
            .iter()
            .map(|row| {
                (row.project.as_str(), row.asn.unwrap().get(), row.bytes, row.peak_bits_per_s)
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("p", 2, 6_000_000, Some(144_000)),
                ("p", 1, 4_000_000, Some(96_000)),
                ("p", 1, 750_000, Some(20_000)),
                ("q", 1, 1, Some(0)),
            ]
        );
        assert_eq!((whole.first_ms, whole.last_ms), (0, 2 * BIN_MS));
        assert_eq!(whole.total, Count { bytes: 10_750_001, requests: 5 });
    }

    #[test]
    fn what_nobody_can_place_is_among_the_others() {
        let mut all = Gathered::default();
        all.add(None, Some(client("AU", 1, Family::V4)), 5, 0);
        all.add(Some(&name("p")), None, 7, 0);
        let demand = all.demand();
        assert_eq!((demand.rows.len(), demand.others), (0, Count { bytes: 12, requests: 2 }));
    }

    #[test]
    fn cells_and_projects_without_end_take_no_more_memory() {
        let mut all = Gathered::default();
        for asn in 0..u32::try_from(CELLS_MAX).unwrap() + 10 {
            all.add(Some(&name("p")), Some(client("AU", asn + 1, Family::V4)), 1, 0);
        }
        for project in 0..PROJECTS_MAX + 10 {
            all.add(Some(&name(&format!("p{project}"))), Some(client("AU", 1, Family::V4)), 1, 0);
        }
        assert_eq!((all.cells.len(), all.projects.len()), (CELLS_MAX, PROJECTS_MAX));
        let demand = all.demand();
        assert_eq!(demand.rows.len(), CELLS_MAX);
        assert_eq!(demand.others.requests as usize, 10 + PROJECTS_MAX + 10);
    }

    /// Half of a peak would be taken for the whole.
    #[test]
    fn without_all_bins_there_is_no_peak() {
        let mut all = filled(&[("p", client("AU", 1, Family::V4), 1_000_000, 0)]);
        assert!(all.demand().rows[0].peak_bits_per_s.is_some());
        for bin in 0..BINS_MAX as u64 {
            all.add(Some(&name("p")), Some(client("DE", 1, Family::V4)), 1, bin * BIN_MS);
        }
        assert_eq!(all.bins.len(), BINS_MAX);
        assert!(all.demand().rows.iter().all(|row| row.peak_bits_per_s.is_none()));
    }
}
