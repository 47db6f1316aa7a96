//! `cacheboy check`: everything that can be known to be wrong before it is live.
//!
//! Each path is looked at by itself; then what the paths say of each other: an edge is a node of
//! the maps that are checked with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use config::{ConfigFile, HostConfig};
use locate::Locator;
use model::{HostName, Name};
use nodemap::{AdminMap, Finding, HostPattern, NodeMap, ProjectTls};
use rt::tls::Certificate;

use crate::cli::CheckArgs;
use crate::out::say;

mod certificates;
mod keys;
mod logs;
mod zones;

/// Nodes that a finding names at most.
const NODES_SHOWN: usize = 12;

/// Checks each path, prints all findings, and exits 1 when there is one. What only might be meant
/// otherwise is a warning, and changes nothing.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let mut clean = true;
    let (outcomes, warnings) = check_all(&args.paths);
    for (path, outcome) in args.paths.iter().zip(outcomes) {
        match outcome {
            Ok(summary) => say!("{}: ok: {summary}", path.display())?,
            Err(findings) => {
                clean = false;
                for finding in findings {
                    say!("{finding}")?;
                }
            }
        }
    }
    for warning in warnings {
        say!("warning: {warning}")?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A summary or all findings, for each path.
type Outcome = Result<String, Vec<Finding>>;

/// What came of each path, and all warnings.
fn check_all(paths: &[PathBuf]) -> (Vec<Outcome>, Vec<Finding>) {
    let mut across = Across::default();
    let mut outcomes: Vec<Outcome> = paths.iter().map(|path| check(path, &mut across)).collect();
    for (path, outcome) in paths.iter().zip(&mut outcomes) {
        let strangers = contradictions(&across, path);
        if !strangers.is_empty() {
            let findings = outcome.as_mut().err().map(std::mem::take).unwrap_or_default();
            *outcome = Err(findings.into_iter().chain(strangers).collect());
        }
        if let (Ok(summary), Some(note)) = (outcome, across.without_http3(path)) {
            summary.push_str(&note);
        }
    }
    (outcomes, across.warnings)
}

/// What is checked across paths.
#[derive(Default)]
struct Across {
    /// The nodes of all maps; `None` before the first.
    nodes: Option<BTreeSet<Name>>,
    /// Some maps could not be read, so that a node may be in those.
    unsure: bool,
    /// The hosts of the projects of all maps whose certificates are files.
    hosts: BTreeSet<HostName>,
    /// The projects that offer HTTP/3.
    http3: BTreeSet<Name>,
    /// Hosts with an edge.
    edges: Vec<Edge>,
    /// The maps; `None` before the first.
    map: Option<AdminMap>,
    /// Zone files, by the config that names them.
    zones: Vec<(PathBuf, zones::Files)>,
    /// Signed zones, by the config that names them.
    signed: Vec<(PathBuf, keys::Signed)>,
    warnings: Vec<Finding>,
}

/// A host with an edge.
struct Edge {
    /// The file it was read from.
    path: PathBuf,
    file: ConfigFile,
    name: Name,
    /// Its certificates, when it speaks TLS and all can be used.
    shown: Option<Vec<Certificate>>,
    /// It speaks HTTP/3.
    http3: bool,
}

impl Across {
    fn note(&mut self, map: &AdminMap) {
        self.map.get_or_insert_with(|| map.clone());
        self.nodes.get_or_insert_default().extend(map.nodes.keys().cloned());
        let offers = map.projects.iter().filter(|(_, project)| project.http3);
        self.http3.extend(offers.map(|(name, _)| name.clone()));
        // Those of other projects are fetched.
        let by_files = map.projects.values().filter(|project| project.tls == ProjectTls::Files);
        let hosts = by_files.flat_map(|project| &project.hosts);
        self.hosts.extend(hosts.filter_map(|host| match host {
            HostPattern::Exact(name) => Some(name.clone()),
            HostPattern::Any => None,
        }));
    }

    /// The admin maps in `dir`.
    fn maps(&mut self, dir: &Path) -> Result<AdminMap, Vec<Finding>> {
        let map = nodemap::admin::load_dir(dir);
        match &map {
            Ok(map) => self.note(map),
            Err(_) => self.unsure = true,
        }
        let map = map?;
        self.warnings.extend(nodemap::admin::expired(&map, dir, rt::clock::now().wall_ms));
        Ok(map)
    }

    /// That the edge in the config `path` speaks TLS, and not HTTP/3 for projects that offer it. No
    /// finding: where UDP does not get through, it is meant so.
    fn without_http3(&self, path: &Path) -> Option<String> {
        let mut here = self.edges.iter().filter(|edge| edge.path == path);
        let lacks = here.any(|edge| edge.shown.is_some() && !edge.http3);
        let mut names: Vec<&str> = self.http3.iter().take(NODES_SHOWN).map(Name::as_str).collect();
        if self.http3.len() > NODES_SHOWN {
            names.push("...");
        }
        (lacks && !names.is_empty()).then(|| {
            format!("; no listener has http3, which these projects offer: {}", names.join(", "))
        })
    }

    /// The edge in the config `path` that no map knows.
    fn strangers<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = Finding> + 'a {
        let nodes = self.nodes.as_ref().filter(|_| !self.unsure);
        let edges = self.edges.iter().filter(move |edge| edge.path == path);
        edges.filter_map(move |Edge { file, name, .. }| {
            let nodes = nodes.filter(|nodes| !nodes.contains(name))?;
            let mut known: Vec<&str> = nodes.iter().take(NODES_SHOWN).map(Name::as_str).collect();
            if nodes.len() > NODES_SHOWN {
                known.push("...");
            }
            Some(file.finding(
                &["host", "name"],
                format!("this edge is called {name}, which is no node of the maps"),
                format!("call it as its node ({}), or add [node.{name}]", known.join(", ")),
            ))
        })
    }
}

/// Everything that the maps say against what stands in `path`.
fn contradictions(across: &Across, path: &Path) -> Vec<Finding> {
    let edges = across.edges.iter().filter(|edge| edge.path == path);
    let uncovered = edges.filter_map(|edge| {
        certificates::uncovered(&edge.file, edge.shown.as_deref()?, &across.hosts)
    });
    let zones = across.zones.iter().filter(|(of, _)| of == path);
    let left_out = zones.flat_map(|(_, files)| zones::left_out(across.map.as_ref(), files));
    across.strangers(path).chain(uncovered).chain(left_out).chain(unsigned(across, path)).collect()
}

/// The signed zones of the config `path` that do not exist, when the maps are known.
fn unsigned(across: &Across, path: &Path) -> Vec<Finding> {
    let Some(map) = across.map.as_ref().filter(|_| !across.unsure) else { return Vec::new() };
    let files = across.zones.iter().filter(|(of, _)| of == path);
    let files: Vec<&zones::Files> = files.map(|(_, files)| files).collect();
    let signed = across.signed.iter().filter(|(of, _)| of == path);
    signed.flat_map(|(_, signed)| signed.not_there(map, &files).collect::<Vec<_>>()).collect()
}

fn check(path: &Path, across: &mut Across) -> Outcome {
    const KINDS: &str = "name a map folder, a host's config file, a node map or a database";
    if path.is_dir() {
        return across.maps(path).map(|map| summary(&map));
    }
    if !path.exists() {
        return Err(vec![whole(path, "does not exist", KINDS)]);
    }
    let unusable =
        |error: anyhow::Error| vec![whole(path, "cannot be used", &format!("{error:#}"))];
    match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => check_config(path, across),
        Some("json") => match read_node_map(path) {
            Ok(map) => {
                across.note(&map.map);
                let (generation, publisher) = (map.generation, &map.publisher);
                Ok(format!("generation {generation} by {publisher}, {}", summary(&map.map)))
            }
            Err(error) => {
                across.unsure = true;
                Err(unusable(error))
            }
        },
        Some("mmdb") => check_database(path).map_err(unusable),
        _ => Err(vec![whole(path, "not a folder and none of *.toml, *.json, *.mmdb", KINDS)]),
    }
}

/// A config file, and what it points to.
fn check_config(path: &Path, across: &mut Across) -> Outcome {
    let file = ConfigFile::open(path)?;
    let config = file.config()?;
    let mut findings = databases(&file, &config);
    let shown = certificates::read(&file, &config.certificates, rt::clock::now(), &mut findings);
    findings.extend(certificates::idle(&file, &config));
    findings.extend(logs::unwritable(&file, &config));
    findings.extend(keys::unusable(&file, &config));
    findings.extend(keys::not_to_copy(&file, &config));
    across.signed.extend(keys::Signed::of(&file, &config).map(|signed| (path.to_owned(), signed)));
    if let Some(health) = &config.health
        && let Err(in_maps) = across.maps(&health.maps)
    {
        // What is wrong with the folder is wrong with the key that names it.
        findings.extend(in_maps.into_iter().map(|finding| {
            if finding.file != health.maps {
                return finding;
            }
            let problem = format!("{}: {}", health.maps.display(), finding.problem);
            file.finding(&["health", "maps"], problem, finding.remedy)
        }));
    }
    if let Some(folder) = config.dns.as_ref().and_then(|dns| dns.zone_files.as_deref()) {
        match zones::read(&file, folder) {
            Ok(files) => {
                across.warnings.extend(zones::ignored(folder));
                across.zones.push((path.to_owned(), files));
            }
            Err(in_files) => findings.extend(in_files),
        }
    }
    if let Some(master) = &config.master {
        findings.extend(tree(&file, &master.tree));
    }
    let roles = [
        ("edge", config.edge.is_some()),
        ("dns", config.dns.is_some()),
        ("health", config.health.is_some()),
        ("master", config.master.is_some()),
        ("bgp", config.bgp.is_some()),
    ];
    let roles: Vec<_> = roles.iter().filter(|(_, has)| *has).map(|(role, _)| *role).collect();
    let signed = keys::shown(&config);
    let summary = format!("host {} with {}{signed}", config.host.name, roles.join(", "));
    if let Some(edge) = config.edge {
        let shown = shown.filter(|_| edge.listen.iter().any(|listen| listen.tls));
        let http3 = edge.listen.iter().any(|listen| listen.http3);
        across.edges.push(Edge {
            path: path.to_owned(),
            file,
            name: config.host.name,
            shown,
            http3,
        });
    }
    if findings.is_empty() { Ok(summary) } else { Err(findings) }
}

/// Each database of `[location]`, as the redirector would open it.
fn databases(file: &ConfigFile, config: &HostConfig) -> Vec<Finding> {
    let (country, asn) = (config.location.country.as_deref(), config.location.asn.as_deref());
    let opened = [
        ("country", country.and_then(|path| Locator::open(Some(path), None).err())),
        ("asn", asn.and_then(|path| Locator::open(None, Some(path)).err())),
    ];
    let failed = opened.into_iter().filter_map(|(key, error)| Some((key, error?)));
    failed
        .map(|(key, error)| {
            let text = format!("{:#}", anyhow::Error::new(error));
            let (problem, remedy) = text.split_once(": ").unwrap_or((&text, "name another file"));
            file.finding(&["location", key], problem.to_owned(), remedy.to_owned())
        })
        .collect()
}

/// What keeps a master from serving `tree`.
fn tree(file: &ConfigFile, tree: &Path) -> Option<Finding> {
    let marker = tree.join(mirror::TREE_MARKER);
    let (tree, touch) = (tree.display(), format!("touch {}", marker.display()));
    let (problem, remedy) = if !marker.parent().is_some_and(Path::is_dir) {
        (format!("{tree} is no folder"), format!("mount or make it, then {touch}"))
    } else if !marker.exists() {
        (
            format!("{tree} has no {}, so everything would be answered 503", mirror::TREE_MARKER),
            format!("see that its disk is mounted, then {touch}"),
        )
    } else {
        return None;
    };
    Some(file.finding(&["master", "tree"], problem, remedy))
}

fn read_node_map(path: &Path) -> Result<NodeMap> {
    let bytes = rt::file::read_bounded(path, rt::follow::NODE_MAP_BYTES_MAX as u64)?;
    Ok(NodeMap::parse(&bytes)?)
}

fn check_database(path: &Path) -> Result<String> {
    let both = Locator::open(Some(path), Some(path));
    let opened = match both {
        Ok(locator) => locator,
        Err(_) => match Locator::open(Some(path), None) {
            Ok(locator) => locator,
            Err(_) => Locator::open(None, Some(path))?,
        },
    };
    match opened.describe() {
        [] => bail!("nothing in it"),
        [info, ..] => {
            Ok(format!("{}, {} networks: {}", info.kind, info.networks, info.description))
        }
    }
}

fn whole(path: &Path, problem: &str, remedy: &str) -> Finding {
    let (file, key) = (path.to_owned(), String::new());
    Finding { file, line: 0, key, problem: problem.to_owned(), remedy: remedy.to_owned() }
}

fn summary(map: &AdminMap) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    [
        count(map.sites.len(), "site"),
        count(map.nodes.len(), "node"),
        count(map.pools.len(), "pool"),
        count(map.maps.len(), "map"),
        count(map.zones.len(), "zone"),
        count(map.projects.len(), "project"),
    ]
    .join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with these files; paths in it, and lines of findings without its name.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = folder.at(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            folder
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn check(&self, names: &[&str]) -> Vec<String> {
            let paths: Vec<PathBuf> = names.iter().map(|name| self.at(name)).collect();
            let (outcomes, _) = check_all(&paths);
            let findings = outcomes.into_iter().filter_map(Result::err).flatten();
            let folder = format!("{}/", self.0.path().display());
            findings.map(|finding| finding.to_string().replace(&folder, "")).collect()
        }

        /// A certificate for `hosts` in `e.pem`, its key in `e.key`.
        fn certify(&self, hosts: &[&str]) {
            let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(hosts).unwrap();
            fs::write(self.at("e.pem"), made.cert.pem()).unwrap();
            fs::write(self.at("e.key"), made.signing_key.serialize_pem()).unwrap();
            fs::set_permissions(self.at("e.key"), fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    /// RFC 8080 section 6.1.
    const KEY: &str = "Private-key-format: v1.2\nAlgorithm: 15 (ED25519)\n\
        PrivateKey: ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=\n";

    const MAP: &str = include_str!("../demo/maps/nodes.toml");
    const STEERING: &str = include_str!("../demo/maps/steering.toml");
    const PROJECTS: &str = include_str!("../demo/maps/projects.toml");
    const MAPS: [(&str, &str); 3] =
        [("maps/n.toml", MAP), ("maps/s.toml", STEERING), ("maps/p.toml", PROJECTS)];

    const EDGE: &str = "[host]\nname = \"mirror9\"\nstate_dir = \"s\"\n\n[follow]\n\
        node_map = [\"file:m\"]\n[edge]\nlisten = [\"127.0.0.1:80\"]\n[[edge.store]]\npath = \"c\"\n\
        size = \"1 GiB\"\n";

    #[test]
    fn what_is_not_there_or_of_another_kind_says_so() {
        let folder = Folder::new(&[MAPS[0], ("notes.txt", "")]);
        const KINDS: &str = "name a map folder, a host's config file, a node map or a database";
        assert_eq!(
            folder.check(&["gone.toml", "gone", "notes.txt", "maps/n.toml"]),
            [
                format!("gone.toml: does not exist: {KINDS}"),
                format!("gone: does not exist: {KINDS}"),
                format!("notes.txt: not a folder and none of *.toml, *.json, *.mmdb: {KINDS}"),
                "maps/n.toml: is an admin map, not the config of a host: check its folder, whose \
                 files are one map: maps"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn a_master_needs_its_tree_and_the_marker() {
        let config = "[host]\nname = \"m\"\nstate_dir = \"s\"\n[master]\n\
                      listen = [\"127.0.0.1:80\"]\ntree = \"tree\"\n";
        let folder = Folder::new(&[("m.toml", config)]);
        assert_eq!(
            folder.check(&["m.toml"]),
            ["m.toml:6: master.tree: tree is no folder: mount or make it, then touch \
                 tree/.cacheboy-tree"]
        );
        fs::create_dir(folder.at("tree")).unwrap();
        assert_eq!(
            folder.check(&["m.toml"]),
            ["m.toml:6: master.tree: tree has no .cacheboy-tree, so everything would be answered \
                 503: see that its disk is mounted, then touch tree/.cacheboy-tree"]
        );
        fs::write(folder.at("tree/.cacheboy-tree"), "").unwrap();
        assert_eq!(folder.check(&["m.toml"]), Vec::<String>::new());
    }

    #[test]
    fn what_may_be_meant_is_a_warning_and_keys_are_named_with_their_zones() {
        const OWN: &str = "@ SOA ns noc 1 2 3 4 5\n NS ns.example.\n";
        let config = "[host]\nname = \"n\"\nstate_dir = \"s\"\n[follow]\nnode_map = [\"file:m\"]\n\
                      [dns]\nlisten = [\"127.0.0.1:53\"]\nzone_files = \"zones\"\n\
                      [[dns.sign]]\nzone = \"own.example\"\nactive = [\"key\"]\n\
                      [[dns.transfer]]\nzone = \"own.example\"\nkeys = [\"gone.tsig\"]\n";
        let files = [
            ("n.toml", config),
            ("key", KEY),
            ("zones/own.example.zone", OWN),
            ("zones/README", ""),
            ("zones/own.example.zone~", ""),
            ("zones/other.example", ""),
        ];
        let folder = Folder::new(&files);
        fs::set_permissions(folder.at("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let (outcomes, warnings) = check_all(&[folder.at("n.toml")]);
        let shown = |findings: &[Finding]| -> Vec<String> {
            let folder = format!("{}/", folder.0.path().display());
            findings.iter().map(|finding| finding.to_string().replace(&folder, "")).collect()
        };
        assert_eq!(
            shown(&warnings),
            [
                "zones: README, other.example are not read: call a zone file after its zone, NAME.zone, \
              and keep other files elsewhere"
            ]
        );
        assert_eq!(
            shown(outcomes[0].as_ref().unwrap_err()),
            [
                "n.toml:12: dns.transfer: there is no key file gone.tsig: make it with `tsig-keygen -a \
                 hmac-sha256 NAME > gone.tsig`",
                "n.toml:12: dns.transfer: own.example is signed as it is answered: a copy would have no \
                 signatures: serve it from hosts with the same files and keys instead",
            ]
        );
        let alone = config.split("[[dns.transfer]]").next().unwrap();
        fs::write(folder.at("n.toml"), alone).unwrap();
        let (outcomes, _) = check_all(&[folder.at("n.toml")]);
        let ok = outcomes[0].as_ref().unwrap();
        assert_eq!(ok, "host n with dns; own.example signed by 3613 (active)");
    }

    #[test]
    fn a_signed_zone_is_one_of_the_maps_or_of_a_zone_file() {
        const OWN: &str = "@ SOA ns1 noc 1 7200 1800 1209600 60\n@ NS ns1\nns1 A 192.0.2.1\n";
        let sign = |zone: &str| format!("[[dns.sign]]\nzone = \"{zone}\"\nactive = [\"key\"]\n");
        let config = format!(
            "[host]\nname = \"n\"\nstate_dir = \"s\"\n[follow]\nnode_map = [\"file:m\"]\n\
             [dns]\nlisten = [\"127.0.0.1:53\"]\nzone_files = \"zones\"\n{}{}{}",
            sign("cdn.example"),
            sign("own.example"),
            sign("cdm.example"),
        );
        let files = [("n.toml", config.as_str()), ("key", KEY), ("zones/own.example.zone", OWN)];
        let folder = Folder::new(&[&MAPS[..], &files[..]].concat());
        fs::set_permissions(folder.at("key"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            folder.check(&["n.toml", "maps"]),
            [
                "n.toml:15: dns.sign: cdm.example is no zone of the maps or of a zone file: nothing is \
              signed by its keys: name the zone as it is called there (the maps have cdn.example)"
            ]
        );
        // Without the maps it cannot be known.
        assert_eq!(folder.check(&["n.toml"]), Vec::<String>::new());
    }

    #[test]
    fn wrong_paths_name_file_line_and_key() {
        let config = "[host]\nname = \"h\"\nstate_dir = \"s\"\n[location]\ncountry = \"c.mmdb\"\n\
                      asn = \"n.mmdb\"\n[health]\nlisten = [\"127.0.0.1:80\"]\nmaps = \"map\"\n";
        let folder = Folder::new(&[("h.toml", config), ("n.mmdb", "no database")]);
        let findings = folder.check(&["h.toml"]);
        let starts = [
            "h.toml:5: location.country: cannot read c.mmdb: check ",
            "h.toml:6: location.asn: n.mmdb is not a MaxMind-format database (*.mmdb): fetch ",
            "h.toml:9: health.maps: map: cannot be read (No such file or directory (os error 2)): \
             check ",
        ];
        assert_eq!(findings.len(), starts.len(), "{findings:#?}");
        for (finding, start) in findings.iter().zip(starts) {
            assert!(finding.starts_with(start), "{finding}");
        }
        fs::create_dir(folder.at("map")).unwrap();
        fs::write(folder.at("map/n.toml"), MAP).unwrap();
        let findings = folder.check(&["h.toml"]);
        assert!(findings[2].starts_with("h.toml:9: health.maps: map: no file here has a "));
    }

    #[test]
    fn an_edge_is_a_node_of_the_maps_that_are_checked_with_it() {
        let health = "[host]\nname = \"h\"\nstate_dir = \"s\"\n[health]\n\
                      listen = [\"127.0.0.1:81\"]\nmaps = \"maps\"\n";
        let good = EDGE.replace("mirror9", "mirror1-au");
        let all = format!("{EDGE}[health]\nlisten = [\"127.0.0.1:81\"]\nmaps = \"maps\"\n");
        let files = [
            MAPS[0],
            MAPS[1],
            MAPS[2],
            ("edge.toml", EDGE),
            ("good.toml", &good),
            ("all.toml", &all),
            ("health.toml", health),
            ("bad/map.toml", "[site.s]\n"),
        ];
        let folder = Folder::new(&files);
        let stranger = |file: &str| {
            format!(
                "{file}:2: host.name: this edge is called mirror9, which is no node of the maps: call \
                 it as its node (mirror1-au, mirror1-de, mirror1-us), or add [node.mirror9]"
            )
        };
        for names in [&["maps", "edge.toml"][..], &["edge.toml", "health.toml"]] {
            assert_eq!(folder.check(names), [stranger("edge.toml")], "{names:?}");
        }
        assert_eq!(folder.check(&["all.toml"]), [stranger("all.toml")]);
        for names in [&["edge.toml"][..], &["maps", "good.toml"]] {
            assert_eq!(folder.check(names), Vec::<String>::new(), "{names:?}");
        }
        // Of maps that cannot be read nobody knows.
        let unsure = folder.check(&["maps", "bad", "edge.toml"]);
        assert!(unsure.iter().all(|finding| finding.starts_with("bad")), "{unsure:?}");
    }

    #[test]
    fn certificates_that_nobody_is_shown_and_http3_that_nobody_is_offered_are_said() {
        let edge = EDGE.replace("mirror9", "mirror1-au");
        let with = |listen: &str| {
            let certificate = "[[tls.certificate]]\nchain = \"e.pem\"\nkey = \"e.key\"\n";
            format!("{}{certificate}", edge.replace("\"127.0.0.1:80\"", listen))
        };
        let offers = PROJECTS.replace("[project.videolan]\n", "[project.videolan]\nhttp3 = true\n");
        let files = [
            MAPS[0],
            MAPS[1],
            ("maps/p.toml", &offers),
            ("idle.toml", &with("\"127.0.0.1:443\"")),
            ("tls.toml", &with("{ address = \"127.0.0.1:443\", tls = true }")),
            ("h3.toml", &with("{ address = \"127.0.0.1:443\", tls = true, http3 = true }")),
        ];
        let folder = Folder::new(&files);
        folder.certify(&["download.videolan.example", "videolan.cdn.example"]);
        assert_eq!(
            folder.check(&["idle.toml"]),
            [
                "idle.toml:12: tls.certificate: no listener of this host speaks TLS, so that nobody is \
              shown it: write the listener as { address = \"0.0.0.0:443\", tls = true }, or take it away"
            ]
        );
        let summary = |config: &str| {
            check_all(&[folder.at(config), folder.at("maps")]).0.swap_remove(0).unwrap()
        };
        assert_eq!(summary("h3.toml"), "host mirror1-au with edge");
        assert_eq!(
            summary("tls.toml"),
            "host mirror1-au with edge; no listener has http3, which these projects offer: videolan"
        );
    }
}
