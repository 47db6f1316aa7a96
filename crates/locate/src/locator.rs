//! [`Locator`]: country and ASN database joined.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use model::{Asn, Continent, CountryCode, Location};

use crate::database::{Database, DatabaseInfo, OpenError, Provides, Span};
use crate::record::Record;
use crate::runs::{Bits, Runs, prefix_len};

/// What the databases say of an address; each piece may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Evidence {
    /// Origin AS.
    pub asn: Option<Asn>,
    /// Country.
    pub country: Option<CountryCode>,
    /// Continent: the database's, else the one the country lies in.
    pub continent: Option<Continent>,
}

/// Finds the location of any address. Made whole, then only read; share it behind an `Arc`.
#[derive(Debug)]
pub struct Locator {
    v4: Runs<u32, u32>,
    v6: Runs<u128, u32>,
    /// What the values of the runs stand for.
    evidence: Vec<Evidence>,
    as_names: AsNames,
    databases: Vec<DatabaseInfo>,
}

impl Locator {
    /// Reads the databases for country and AS number. Either may be missing: then that is unknown
    /// everywhere. Both may be the same file, which is then read once.
    ///
    /// # Errors
    /// A file that cannot be read, is not a whole MaxMind-format database, or holds nothing of
    /// what it was named for.
    pub fn open(country: Option<&Path>, asn: Option<&Path>) -> Result<Self, OpenError> {
        let same = country.is_some() && country == asn;
        let mut databases = Vec::new();
        if let Some(path) = country {
            databases.push(Database::open(path, Provides { country: true, asn: same })?);
        }
        if let Some(path) = asn.filter(|_| !same) {
            databases.push(Database::open(path, Provides { country: false, asn: true })?);
        }
        Ok(Self::join(databases))
    }

    /// Like [`Locator::open`], from the bytes of one database that is in memory. `name` stands for
    /// the file in messages.
    ///
    /// # Errors
    /// As for [`Locator::open`], but for reading.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, provides: Provides) -> Result<Self, OpenError> {
        Ok(Self::join(vec![Database::read(name, bytes, provides)?]))
    }

    /// Where `address` is. The prefix is the widest around it inside which everything is the same;
    /// an IPv4-mapped address gets the IPv4 prefix.
    pub fn locate(&self, address: IpAddr) -> Location {
        let address = address.to_canonical();
        let (id, length) = match address {
            IpAddr::V4(v4) => look_up(&self.v4, v4.to_bits()),
            IpAddr::V6(v6) => look_up(&self.v6, v6.to_bits()),
        };
        // The length is at most that of the address.
        let prefix = IpNet::new(address, length).unwrap_or(address.into()).trunc();
        let Evidence { asn, country, continent } = self.evidence_of(id);
        Location { prefix, asn, country, continent }
    }

    /// The name of an AS as the ASN database has it, for people.
    pub fn as_name(&self, asn: Asn) -> Option<&str> {
        self.as_names.get(asn)
    }

    /// The whole IPv4 space as `(first, last, evidence)`: disjoint, ascending, without gaps.
    pub fn ranges_v4(&self) -> impl Iterator<Item = (u32, u32, Evidence)> + '_ {
        self.v4.iter().map(|run| (run.first, run.last, self.evidence_of(run.value)))
    }

    /// The whole IPv6 space as `(first, last, evidence)`: disjoint, ascending, without gaps. What
    /// it says of IPv4-mapped addresses does not count: [`Locator::locate`] looks those up as IPv4.
    pub fn ranges_v6(&self) -> impl Iterator<Item = (u128, u128, Evidence)> + '_ {
        self.v6.iter().map(|run| (run.first, run.last, self.evidence_of(run.value)))
    }

    /// The databases this was made from, for status pages.
    pub fn describe(&self) -> &[DatabaseInfo] {
        &self.databases
    }

    /// Bytes of memory held by ranges, evidence and names.
    pub fn memory_bytes(&self) -> usize {
        self.v4
            .memory_bytes()
            .saturating_add(self.v6.memory_bytes())
            .saturating_add(self.evidence.capacity().saturating_mul(size_of::<Evidence>()))
            .saturating_add(self.as_names.memory_bytes())
    }

    fn evidence_of(&self, id: u32) -> Evidence {
        self.evidence.get(id as usize).copied().unwrap_or_default()
    }

    fn join(mut databases: Vec<Database>) -> Self {
        let country = databases.iter().find(|d| d.info.provides.country);
        let asn = databases.iter().find(|d| d.info.provides.asn);
        let mut interner = Interner::new(country, asn);
        let v4 = sweep(spans_v4(country), spans_v4(asn), &mut interner);
        let v6 = sweep(spans_v6(country), spans_v6(asn), &mut interner);
        let evidence = interner.evidence;
        let as_names = AsNames::collect(asn);
        let databases = databases.drain(..).map(|d| d.info).collect();
        Self { v4, v6, evidence, as_names, databases }
    }
}

fn look_up<K: Bits>(runs: &Runs<K, u32>, address: K) -> (u32, u8) {
    match runs.find(address) {
        Some(run) => (run.value, prefix_len(address, run.first, run.last)),
        None => (UNKNOWN, 0),
    }
}

fn spans_v4(database: Option<&Database>) -> &[Span<u32>] {
    database.map_or(&[], |d| &d.v4)
}

fn spans_v6(database: Option<&Database>) -> &[Span<u128>] {
    database.map_or(&[], |d| &d.v6)
}

/// The identifier of evidence that is unknown throughout.
const UNKNOWN: u32 = 0;

/// Gives equal evidence one identifier.
struct Interner<'a> {
    country: &'a [Record],
    asn: &'a [Record],
    evidence: Vec<Evidence>,
    by_evidence: HashMap<Evidence, u32>,
}

impl<'a> Interner<'a> {
    fn new(country: Option<&'a Database>, asn: Option<&'a Database>) -> Self {
        let records = |database: Option<&'a Database>| database.map_or(&[][..], |d| &d.records);
        Self {
            country: records(country),
            asn: records(asn),
            evidence: vec![Evidence::default()],
            by_evidence: HashMap::from([(Evidence::default(), UNKNOWN)]),
        }
    }

    /// The identifier of what one record of each database says together.
    fn id(&mut self, country: Option<u32>, asn: Option<u32>) -> u32 {
        let country = country.and_then(|id| self.country.get(id as usize));
        let asn = asn.and_then(|id| self.asn.get(id as usize));
        let code = country.and_then(|record| record.country);
        let evidence = Evidence {
            asn: asn.and_then(|record| record.asn),
            country: code,
            continent: country
                .and_then(|record| record.continent)
                .or_else(|| code.and_then(CountryCode::continent)),
        };
        *self.by_evidence.entry(evidence).or_insert_with(|| {
            let id = u32::try_from(self.evidence.len()).unwrap_or(UNKNOWN);
            self.evidence.push(evidence);
            id
        })
    }
}

/// Joins two ascending lists of spans: walks from address zero up, each step to the nearest border
/// of either list.
fn sweep<K: Bits>(
    mut country: &[Span<K>],
    mut asn: &[Span<K>],
    interner: &mut Interner<'_>,
) -> Runs<K, u32> {
    let mut from = Some(K::ZERO);
    Runs::from_ascending(std::iter::from_fn(move || {
        let first = from?;
        let (in_country, country_until) = step(&mut country, first);
        let (in_asn, asn_until) = step(&mut asn, first);
        from = country_until.min(asn_until).after();
        Some((first, interner.id(in_country, in_asn)))
    }))
}

/// What `spans` says of `at`, and the last address for which it says the same. Drops the spans
/// that lie before.
fn step<K: Bits>(spans: &mut &[Span<K>], at: K) -> (Option<u32>, K) {
    while let Some((span, rest)) = spans.split_first() {
        if at > span.last {
            *spans = rest;
        } else if at >= span.first {
            return (Some(span.record), span.last);
        } else {
            return (None, span.first.before().unwrap_or(K::MAX));
        }
    }
    (None, K::MAX)
}

/// Names by AS number, packed: some hundred thousand small strings.
#[derive(Debug, Default)]
struct AsNames {
    /// Ascending by number, with the end of the name in `text`; it begins where the one before ends.
    ends: Vec<(Asn, u32)>,
    text: String,
}

impl AsNames {
    /// When a number has several names the first in address order stands.
    fn collect(database: Option<&Database>) -> Self {
        let mut names: Vec<(Asn, &str)> = database
            .iter()
            .flat_map(|d| &d.records)
            .filter_map(|record| Some((record.asn?, record.as_name.as_deref()?)))
            .collect();
        // Stable, so the first of equal numbers stays first.
        names.sort_by_key(|(asn, _)| *asn);
        names.dedup_by_key(|(asn, _)| *asn);
        let mut packed = Self::default();
        for (asn, name) in names {
            packed.text.push_str(name);
            packed.ends.push((asn, u32::try_from(packed.text.len()).unwrap_or(u32::MAX)));
        }
        packed
    }

    fn get(&self, asn: Asn) -> Option<&str> {
        let i = self.ends.binary_search_by_key(&asn, |(asn, _)| *asn).ok()?;
        let (_, end) = self.ends.get(i)?;
        let before = i.checked_sub(1).and_then(|i| self.ends.get(i));
        let start = before.map_or(0, |(_, end)| *end);
        self.text.get(start as usize..*end as usize)
    }

    fn memory_bytes(&self) -> usize {
        self.ends
            .capacity()
            .saturating_mul(size_of::<(Asn, u32)>())
            .saturating_add(self.text.capacity())
    }
}
