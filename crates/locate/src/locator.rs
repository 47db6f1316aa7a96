//! [`Locator`]: country and ASN database joined, and the live routing table over them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use model::{Asn, Continent, CountryCode, Location};

use crate::database::{Database, DatabaseInfo, Naming, Networks, OpenError, Provides, Walk};
use crate::routes::{Routes, View};
use crate::runs::{Bits, Runs, prefix_len};
use crate::sweep::Sweep;

/// What is known of an address; each piece may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Evidence {
    /// Origin AS.
    pub asn: Option<Asn>,
    /// Country.
    pub country: Option<CountryCode>,
    /// Continent: the database's, else the one the country lies in.
    pub continent: Option<Continent>,
}

/// Finds the location of any address. Made whole, then only read; cheap to clone.
#[derive(Clone, Debug)]
pub struct Locator {
    databases: Arc<Databases>,
    routes: Arc<Routes>,
}

/// What files say.
#[derive(Debug)]
pub(crate) struct Databases {
    v4: Runs<u32, u32>,
    v6: Runs<u128, u32>,
    /// What the values of the runs stand for.
    evidence: Vec<Evidence>,
    as_names: AsNames,
    files: Vec<DatabaseInfo>,
}

impl Locator {
    /// Reads the databases for country and AS number. Either may be missing: then that is unknown
    /// everywhere. Both may be the same file, which is then read once.
    ///
    /// # Errors
    /// A file that cannot be read, is not a whole MaxMind-format database, or holds nothing of
    /// what it was named for.
    pub fn open(country: Option<&Path>, asn: Option<&Path>) -> Result<Self, OpenError> {
        Self::read(country, asn, Naming::Kept)
    }

    /// The same without the names of ASes, which take as much memory as a tenth of the rest, for those
    /// who steer.
    ///
    /// # Errors
    /// As for [`Locator::open`].
    pub fn without_names(country: Option<&Path>, asn: Option<&Path>) -> Result<Self, OpenError> {
        Self::read(country, asn, Naming::Dropped)
    }

    fn read(country: Option<&Path>, asn: Option<&Path>, names: Naming) -> Result<Self, OpenError> {
        let same = country.is_some() && country == asn;
        let mut databases = Vec::new();
        if let Some(path) = country {
            databases.push(Database::open(path, Provides { country: true, asn: same }, names)?);
        }
        if let Some(path) = asn.filter(|_| !same) {
            databases.push(Database::open(path, Provides { country: false, asn: true }, names)?);
        }
        Self::join(databases)
    }

    /// Like [`Locator::open`], from the bytes of one database that is in memory. `name` stands for
    /// the file in messages.
    ///
    /// # Errors
    /// As for [`Locator::open`], but for reading.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, provides: Provides) -> Result<Self, OpenError> {
        Self::join(vec![Database::read(name, bytes, provides, Naming::Kept)?])
    }

    /// The same databases with these routes over them.
    pub fn with_routes(&self, routes: Arc<Routes>) -> Self {
        Self { databases: Arc::clone(&self.databases), routes }
    }

    /// The routes that are over the databases.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Where `address` is. The prefix is the widest around it inside which neither a database nor a
    /// route says anything else; an IPv4-mapped address gets the IPv4 prefix. The AS number is the
    /// origin of its route in the first view that has one; where there is no route, or its path ends in
    /// no single AS, it is that of the database.
    pub fn locate(&self, address: IpAddr) -> Location {
        let address = address.to_canonical();
        let (Evidence { asn, country, continent }, length) = match address {
            IpAddr::V4(v4) => {
                let views = self.routes.all().iter().map(|view| (view, view.v4()));
                self.look_up(&self.databases.v4, views, v4.to_bits())
            }
            IpAddr::V6(v6) => {
                let views = self.routes.all().iter().map(|view| (view, view.v6()));
                self.look_up(&self.databases.v6, views, v6.to_bits())
            }
        };
        // The length is at most that of the address.
        let prefix = IpNet::new(address, length).unwrap_or(address.into()).trunc();
        Location { prefix, asn, country, continent }
    }

    fn look_up<'a, K: Bits + 'a>(
        &self,
        runs: &Runs<K, u32>,
        views: impl Iterator<Item = (&'a View, (&'a Runs<K, u32>, &'a [u32]))>,
        address: K,
    ) -> (Evidence, u8) {
        let Some(run) = runs.find(address) else { return (Evidence::default(), 0) };
        let mut evidence = self.databases.evidence_of(run.value);
        let (mut first, mut last) = (run.first, run.last);
        let mut has_route = false;
        for (view, (runs, attributes)) in views {
            let Some(run) = runs.find(address) else { continue };
            (first, last) = (first.max(run.first), last.min(run.last));
            if let Some(attributes) = attributes.get(run.value as usize).filter(|_| !has_route) {
                has_route = true;
                evidence.asn = view.origin(*attributes).or(evidence.asn);
            }
        }
        (evidence, prefix_len(address, first, last))
    }

    /// The AS number of an address as the database has it, whatever routes say.
    pub fn database_asn(&self, address: IpAddr) -> Option<Asn> {
        let id = match address.to_canonical() {
            IpAddr::V4(v4) => self.databases.v4.find(v4.to_bits())?.value,
            IpAddr::V6(v6) => self.databases.v6.find(v6.to_bits())?.value,
        };
        self.databases.evidence_of(id).asn
    }

    /// The name of an AS as the ASN database has it, for people.
    pub fn as_name(&self, asn: Asn) -> Option<&str> {
        self.databases.as_names.get(asn)
    }

    /// The whole IPv4 space as `(first, last, evidence)`, routes and all: disjoint, ascending, without
    /// gaps.
    pub fn ranges_v4(&self) -> impl Iterator<Item = (u32, u32, Evidence)> + '_ {
        self.sweep_v4().ranges()
    }

    /// The whole IPv6 space as `(first, last, evidence)`: disjoint, ascending, without gaps. What
    /// it says of IPv4-mapped addresses does not count: [`Locator::locate`] looks those up as IPv4.
    pub fn ranges_v6(&self) -> impl Iterator<Item = (u128, u128, Evidence)> + '_ {
        self.sweep_v6().ranges()
    }

    /// A walk through the whole IPv4 space.
    pub fn sweep_v4(&self) -> Sweep<'_, u32> {
        let views = self.routes.all().iter().map(|view| (view, view.v4()));
        Sweep::new(&self.databases, &self.databases.v4, views)
    }

    /// A walk through the whole IPv6 space.
    pub fn sweep_v6(&self) -> Sweep<'_, u128> {
        let views = self.routes.all().iter().map(|view| (view, view.v6()));
        Sweep::new(&self.databases, &self.databases.v6, views)
    }

    /// The databases this was made from, for status pages.
    pub fn describe(&self) -> &[DatabaseInfo] {
        &self.databases.files
    }

    /// Bytes of memory held by ranges, evidence, names and routes, attributes left out.
    pub fn memory_bytes(&self) -> usize {
        self.databases.memory_bytes().saturating_add(self.routes.memory_bytes())
    }

    fn join(databases: Vec<Database>) -> Result<Self, OpenError> {
        let databases = Arc::new(Databases::join(databases)?);
        Ok(Self { databases, routes: Arc::default() })
    }
}

impl Databases {
    pub(crate) fn evidence_of(&self, id: u32) -> Evidence {
        self.evidence.get(id as usize).copied().unwrap_or_default()
    }

    fn memory_bytes(&self) -> usize {
        self.v4
            .memory_bytes()
            .saturating_add(self.v6.memory_bytes())
            .saturating_add(self.evidence.capacity().saturating_mul(size_of::<Evidence>()))
            .saturating_add(self.as_names.memory_bytes())
    }

    /// Walks through both databases at once, once for each family.
    fn join(mut databases: Vec<Database>) -> Result<Self, OpenError> {
        let mut interner = Interner::default();
        let v4 = databases.iter_mut().map(|database| Ok((database.info.provides, database.v4()?)));
        let v4 = sweep(v4.collect::<Result<_, OpenError>>()?, &mut interner)?;
        let v6 = databases.iter_mut().map(|database| Ok((database.info.provides, database.v6()?)));
        let v6 = sweep(v6.collect::<Result<_, OpenError>>()?, &mut interner)?;
        databases.iter().try_for_each(Database::check_provides)?;
        let evidence = interner.finish();
        let of_asn = databases.iter_mut().find(|database| database.info.provides.asn);
        let as_names = of_asn.and_then(|database| database.records.names.take());
        let as_names = AsNames::collect(as_names.unwrap_or_default());
        let files = databases.into_iter().map(|database| database.info).collect();
        Ok(Self { v4, v6, evidence, as_names, files })
    }
}

/// The identifier of evidence that is unknown throughout.
const UNKNOWN: u32 = 0;

/// Gives equal evidence one identifier.
struct Interner {
    evidence: Vec<Evidence>,
    by_evidence: HashMap<Evidence, u32>,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            evidence: vec![Evidence::default()],
            by_evidence: HashMap::from([(Evidence::default(), UNKNOWN)]),
        }
    }
}

impl Interner {
    fn id(&mut self, evidence: Evidence) -> u32 {
        *self.by_evidence.entry(evidence).or_insert_with(|| {
            let id = u32::try_from(self.evidence.len()).unwrap_or(UNKNOWN);
            self.evidence.push(evidence);
            id
        })
    }

    fn finish(mut self) -> Vec<Evidence> {
        self.evidence.shrink_to_fit();
        self.evidence
    }
}

impl Evidence {
    /// Adds what the record of a database says of what it is asked for.
    fn add(&mut self, provides: Provides, record: &Self) {
        if provides.country {
            (self.country, self.continent) = (record.country, record.continent);
        }
        if provides.asn {
            self.asn = record.asn;
        }
    }
}

/// Joins what the databases say: walks from address zero up, each step to the nearest border of any.
fn sweep<K: Networks>(
    mut walks: Vec<(Provides, Walk<'_, K>)>,
    interner: &mut Interner,
) -> Result<Runs<K, u32>, OpenError> {
    let mut from = Some(K::ZERO);
    let mut failed = None;
    let runs = Runs::from_ascending(std::iter::from_fn(|| {
        let (first, mut evidence, mut until) = (from?, Evidence::default(), K::MAX);
        for (provides, walk) in &mut walks {
            match walk.step(first) {
                Ok((place, last)) => {
                    until = until.min(last);
                    if let Some(record) = place.and_then(|place| walk.record(place)) {
                        evidence.add(*provides, record);
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    return None;
                }
            }
        }
        from = until.after();
        Some((first, interner.id(evidence)))
    }));
    failed.map_or(Ok(runs), Err)
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
    fn collect(mut names: Vec<(Asn, Box<str>)>) -> Self {
        // Stable, so the first of equal numbers stays first.
        names.sort_by_key(|(asn, _)| *asn);
        names.dedup_by_key(|(asn, _)| *asn);
        let mut packed = Self::default();
        for (asn, name) in names {
            packed.text.push_str(&name);
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
