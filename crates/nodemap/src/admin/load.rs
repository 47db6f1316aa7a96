//! From TOML text to an [`AdminMap`]: reads every file, then checks the whole.
//!
//! One fault does not hide another: what can be read of a faulty entry is kept for the checks, and
//! an entry that cannot be kept still counts as defined ([`Draft::broken`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::{HostName, Name};

use super::read_project::read_project;
use super::schema::{self, limits};
use super::steering::{read_map, read_serve};
use super::{AdminMap, KeyDigest, Node, Site, Soa, Trust, Zone, check, master, sponsor};
use crate::Finding;
use crate::toml_read::{Document, KeyPath, Table, Value, Word, join};

/// Reads the given files (name and text) as one map. Names are for messages only.
///
/// # Errors
/// Everything that is wrong, in the order of file and line.
pub fn load(files: &[(PathBuf, String)]) -> Result<AdminMap, Vec<Finding>> {
    let folder = files.first().and_then(|(file, _)| file.parent()).unwrap_or(Path::new(""));
    load_as(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }, files)
}

/// [`load`]; `folder` is the name of the map as a whole.
pub(super) fn load_as(
    folder: &Path,
    files: &[(PathBuf, String)],
) -> Result<AdminMap, Vec<Finding>> {
    let documents: Vec<Document<'_>> =
        files.iter().map(|(path, text)| Document::parse(path, text)).collect();
    let mut draft = Draft::default();
    for document in documents.iter().filter(|document| document.is_sound()) {
        if is_host_config(document) {
            let remedy = "keep it in another folder, and check it by its own name";
            document.report(0, String::new(), "is the config of a host, not an admin map", remedy);
        } else {
            draft.read(document);
        }
    }
    let mut whole = Vec::new();
    // With a file missing, half of the map would look undefined.
    if documents.iter().all(Document::is_sound) {
        let not_maps = !documents.is_empty() && documents.iter().all(is_host_config);
        let holes = check::holes(&draft.map, &draft.broken).filter(|_| !not_maps);
        whole.extend(holes.map(|(problem, remedy)| Finding::whole(folder, problem, remedy)));
        for fault in check::check(&draft.map, &draft.broken) {
            let depth = check::ENTRY_DEPTH.min(fault.path.0.len());
            let place = documents.iter().find_map(|d| Some((d, d.line_of(&fault.path, depth)?)));
            if let Some((document, line)) = place {
                document.report(line, fault.path.to_string(), fault.problem, fault.remedy);
            }
        }
    }
    let mut findings: Vec<Finding> =
        documents.into_iter().flat_map(Document::into_findings).chain(whole).collect();
    if findings.is_empty() {
        return Ok(draft.map);
    }
    findings.sort();
    findings.dedup();
    Err(findings)
}

/// Whether it has nothing of an admin map, and the table that every host's config begins with.
fn is_host_config(document: &Document<'_>) -> bool {
    document.has("host") && !is_admin_map(document)
}

/// Whether some kind of entry of the admin maps stands in it.
pub fn is_admin_map(document: &Document<'_>) -> bool {
    schema::ROOT.keys.iter().any(|kind| document.has(kind.name))
}

/// A map while it is being read.
#[derive(Default)]
struct Draft {
    map: AdminMap,
    /// Where each entry is defined, by its dotted key.
    defined: BTreeMap<String, (PathBuf, usize)>,
    /// Entries that exist but could not be kept, by their dotted keys.
    broken: BTreeSet<String>,
}

impl Draft {
    fn read(&mut self, document: &Document<'_>) {
        let root = document.root(&schema::ROOT);
        let file = document.file();
        for (name, value) in self.claim::<Name>(file, &root, "site", "a name") {
            let read = value.table(&schema::SITE).map(|t| read_site(&t));
            self.keep("site", name, read, |map| &mut map.sites);
        }
        for (name, value) in self.claim::<Name>(file, &root, "node", "a name") {
            let read = value.table(&schema::NODE).and_then(|t| read_node(&t));
            self.keep("node", name, read, |map| &mut map.nodes);
        }
        for (name, value) in self.claim::<Name>(file, &root, "pool", "a name") {
            let read = value.table(&schema::POOL).map(|t| read_pool(&t));
            self.keep("pool", name, read, |map| &mut map.pools);
        }
        for (name, value) in self.claim::<Name>(file, &root, "map", "a name") {
            let read = value.table(&schema::MAP).map(|t| read_map(&t));
            self.keep("map", name, read, |map| &mut map.maps);
        }
        for (name, value) in self.claim::<HostName>(file, &root, "zone", "a DNS name") {
            let read = value.table(&schema::ZONE).and_then(|t| read_zone(&t));
            self.keep("zone", name, read, |map| &mut map.zones);
        }
        for (name, value) in self.claim::<Name>(file, &root, "project", "a name") {
            let read = value.table(&schema::PROJECT).and_then(|t| read_project(&t));
            self.keep("project", name, read, |map| &mut map.projects);
        }
    }

    /// The entries of `kind` whose names are valid and that nothing defined before.
    fn claim<'a, K: FromStr<Err: Display> + Display>(
        &mut self,
        file: &Path,
        root: &Table<'a>,
        kind: &'static str,
        what: &str,
    ) -> Vec<(K, Value<'a>)> {
        let Some(table) = root.get(kind).and_then(|v| v.table(&schema::ENTRIES)) else {
            return Vec::new();
        };
        let mut claimed = Vec::new();
        let misnamed = table.entries().any(|(word, _)| word.text().parse::<K>().is_err());
        for (word, value) in table.entries() {
            let Some(name) = word.parse::<K>(what) else {
                self.broken.insert(join(kind, word.text()));
                continue;
            };
            let key = join(kind, &name.to_string());
            // What stands only in the headers of tables below it (`[project.NAME.master.m1]`) is
            // the rest of an entry whose own header has the bad name.
            if misnamed && value.holds_only_tables() {
                self.broken.insert(key);
                continue;
            }
            match self.defined.get(&key) {
                Some((other, line)) => word.refuse(
                    format!("is defined a second time, first at {}:{line}", other.display()),
                    "keep one of the two, or give this one another name",
                ),
                None => {
                    self.defined.insert(key, (file.to_owned(), word.line()));
                    claimed.push((name, value));
                }
            }
        }
        claimed
    }

    fn keep<K: Ord + Display, V>(
        &mut self,
        kind: &str,
        name: K,
        read: Option<V>,
        place: impl Fn(&mut AdminMap) -> &mut BTreeMap<K, V>,
    ) {
        match read {
            Some(value) => {
                place(&mut self.map).insert(name, value);
            }
            None => {
                self.broken.insert(join(kind, &name.to_string()));
            }
        }
    }
}

fn read_site(table: &Table<'_>) -> Site {
    let capacity = table.get("capacity").and_then(|v| v.rate());
    let coordinates = table.get("coordinates").and_then(|v| read_coordinates(&v));
    Site { capacity, coordinates }
}

fn read_coordinates(value: &Value<'_>) -> Option<(f64, f64)> {
    let numbers =
        value.list_of(2, "numbers, latitude and longitude", |v| Some(v.f64_in(-180.0..=180.0)));
    match numbers.as_slice() {
        [Some(latitude), Some(longitude)] if latitude.abs() <= 90.0 => {
            return Some((to_micro_degrees(*latitude), to_micro_degrees(*longitude)));
        }
        // A number that is none was reported.
        numbers if numbers.contains(&None) => {}
        _ => value.refuse(
            "is not a place",
            "write latitude (-90 to 90) and longitude (-180 to 180) in degrees: [-31.95, 115.86]",
        ),
    }
    None
}

/// A tenth of a metre is near enough, and so few digits survive JSON exactly.
fn to_micro_degrees(degrees: f64) -> f64 {
    (degrees * 1e6).round() / 1e6
}

fn read_node(table: &Table<'_>) -> Option<Node> {
    let site = table.need("site", "\"SITE\"").and_then(|v| v.name());
    let example = "[\"192.0.2.10\", \"2001:db8::10\"]";
    let addresses = table
        .need("addresses", example)
        .map(|v| v.list_of(limits::NODE_ADDRESSES, "addresses", |v| v.ip()))
        .unwrap_or_default();
    let country = table.get("country").and_then(|v| v.country());
    let asn = table.get("asn").and_then(|v| v.asn());
    let port = table.get("port").and_then(|v| v.u32_in(limits::PORT));
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(schema::NODE_PORT);
    let admin = table.get("admin").and_then(|v| master::read_admin(&v));
    let capacity = table.get("capacity").and_then(|v| v.rate());
    let bill = sponsor::read_bill(table);
    let caps = table.get("cap").map(|v| v.tables_of(limits::CAPS, "caps", sponsor::read_cap));
    let caps = caps.unwrap_or_default();
    let serve = table.get("serve").and_then(|v| read_serve(&v));
    let sponsor = table.get("sponsor").and_then(|v| v.text()).map(str::to_owned);
    let identity = table.get("identity").and_then(|v| v.parsed::<KeyDigest>("an identity"));
    let trust = table.get("trust").and_then(|v| read_trust(&v));
    let drain = table.get("drain").and_then(|v| read_drain(&v));
    Some(Node {
        site: site?,
        country,
        asn,
        addresses,
        port,
        admin,
        capacity,
        bill,
        caps,
        serve,
        sponsor,
        identity,
        trust: trust.unwrap_or_default(),
        drain,
    })
}

fn read_trust(value: &Value<'_>) -> Option<Trust> {
    match value.text()? {
        "full" => Some(Trust::Full),
        "guest" => Some(Trust::Guest),
        _ => {
            value.refuse("says not how far it is trusted", "write \"full\" or \"guest\"");
            None
        }
    }
}

/// A drain without a reason is one that nobody dares to end.
fn read_drain(value: &Value<'_>) -> Option<String> {
    let remedy =
        "write why, for people: drain = \"new disks until Friday\"; to end it, take it out";
    let reason = value.text_or(remedy)?;
    if reason.trim().is_empty() {
        value.refuse("gives no reason", remedy);
        return None;
    }
    Some(reason.to_owned())
}

fn read_pool(table: &Table<'_>) -> BTreeMap<Name, u32> {
    if table.is_empty() {
        table.refuse("has no nodes", "name at least one: NODE = 100");
    }
    let member = |(word, value): (Word<'_>, Value<'_>)| {
        Some((word.parse("a name")?, value.u32_in(0..=limits::WEIGHT)?))
    };
    table.entries().filter_map(member).collect()
}

/// A table whose keys are `K`s, such as the rules by AS number.
pub(super) fn rules<'a, K: FromStr<Err: Display> + Ord, V>(
    value: Option<Value<'a>>,
    section: &'static crate::toml_read::Section,
    what: &str,
    read: impl Fn(&Value<'a>) -> V,
) -> BTreeMap<K, V> {
    let mut rules = BTreeMap::new();
    let Some(table) = value.and_then(|v| v.table(section)) else { return rules };
    for (word, value) in table.entries() {
        let Some(key) = word.parse::<K>(what) else { continue };
        // `7545` and `AS7545`, `a.example` and `A.example` are the same key to us, not to TOML.
        if rules.insert(key, read(&value)).is_some() {
            word.refuse("is there already, written differently", "keep one of the two");
        }
    }
    rules
}

fn read_zone(table: &Table<'_>) -> Option<Zone> {
    let ns = table
        .need("ns", "[\"ns1.cdn.example\", \"ns2.cdn.example\"]")
        .map(|v| v.list_of(limits::NAME_SERVERS, "name servers", |v| v.host_name()));
    let soa = table
        .need("soa", "{ contact = \"noc.cdn.example\" }")
        .and_then(|v| v.table(&schema::ZONE_SOA))
        .and_then(|t| read_soa(&t));
    let ttl_s = table.get("ttl_s").map(|v| v.u32_in(limits::TTL_S)).unwrap_or_default();
    let addresses = |v: &Value<'_>| v.list_of(limits::NODE_ADDRESSES, "addresses", |v| v.ip());
    let texts = |v: &Value<'_>| v.list_of(limits::TXT_RECORDS, "texts", txt);
    Some(Zone {
        ns: ns.unwrap_or_default(),
        soa: soa?,
        ttl_s: ttl_s.unwrap_or(schema::ZONE_TTL_S),
        hosts: rules(table.get("host"), &schema::ZONE_HOST, "a DNS name", addresses),
        txt: rules(table.get("txt"), &schema::ZONE_TXT, "a DNS name", texts),
    })
}

fn read_soa(table: &Table<'_>) -> Option<Soa> {
    let contact = table.need("contact", "\"noc.cdn.example\"")?;
    let negative = table.get("negative_ttl_s").and_then(|v| v.u32_in(0..=limits::NEGATIVE_TTL_S));
    let text = contact.text()?;
    if let Some((user, domain)) = text.split_once('@') {
        contact.refuse(
            "is a mail address, not a DNS name",
            format!("write the @ as a point (RFC 1035): \"{user}.{domain}\""),
        );
        return None;
    }
    let negative_ttl_s = negative.unwrap_or(schema::NEGATIVE_TTL_S);
    Some(Soa { contact: contact.host_name()?, negative_ttl_s })
}

fn txt(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.len() > limits::TXT_BYTES {
        value.refuse(
            format!("has {} bytes", text.len()),
            format!("write at most {}; each text is a record of its own", limits::TXT_BYTES),
        );
        return None;
    }
    Some(text.to_owned())
}

/// The path of an entry, for faults: `KeyPath::of(&["node", NAME])`.
pub(super) fn entry(kind: &str, name: impl Display) -> KeyPath {
    KeyPath::of(&[kind]).key(name)
}
