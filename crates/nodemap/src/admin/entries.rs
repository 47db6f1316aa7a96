//! An admin map as entries of key and value, the form in which it is printed and compared.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use model::{Asn, Query};

use super::{
    AdminMap, Cap, MaxShare, Node, Override, PathPolicy, Project, RouteRule, Serve, Site,
    SteeringMap, Zone, schema,
};
use crate::toml_read::{bare_or_quoted, join};

/// The keys of one entry (dotted, without the entry's own) with their values as TOML.
type Fields = BTreeMap<String, String>;

impl AdminMap {
    /// The map as one TOML file, in a stable order; [`super::load`] reads it back to the same map.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (entry, fields) in self.entries() {
            let gap = if out.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{gap}[{}]", entry.header);
            for (key, value) in fields {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        out
    }

    /// All entries in the order in which people read a map: where, who, groups, rules, names,
    /// customers.
    fn entries(&self) -> BTreeMap<Entry, Fields> {
        fn all<'a, K: Display + 'a, V: 'a>(
            rank: u8,
            kind: &'static str,
            of: &'a BTreeMap<K, V>,
            fields: impl Fn(&V) -> Fields + 'a,
        ) -> impl Iterator<Item = (Entry, Fields)> + 'a {
            of.iter().map(move |(name, value)| {
                (Entry { rank, header: join(kind, &name.to_string()) }, fields(value))
            })
        }
        all(0, "site", &self.sites, site_fields)
            .chain(all(1, "node", &self.nodes, node_fields))
            .chain(all(2, "pool", &self.pools, |pool| {
                pool.iter().map(|(node, weight)| (node.to_string(), weight.to_string())).collect()
            }))
            .chain(all(3, "map", &self.maps, map_fields))
            .chain(all(4, "zone", &self.zones, zone_fields))
            .chain(all(5, "project", &self.projects, project_fields))
            .collect()
    }
}

/// What changed from `old` to `new`: one line a change, in the order of [`AdminMap::print`].
pub fn diff(old: &AdminMap, new: &AdminMap) -> Vec<String> {
    let (old, new) = (old.entries(), new.entries());
    let mut names: Vec<&Entry> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let mut lines = Vec::new();
    for entry in names {
        let header = &entry.header;
        match (old.get(entry), new.get(entry)) {
            (Some(old), Some(new)) => diff_fields(header, old, new, &mut lines),
            (None, Some(new)) => lines.push(format!("{header} added: {}", summary(new))),
            (Some(old), None) => lines.push(format!("{header} removed: it had {}", summary(old))),
            (None, None) => {}
        }
    }
    lines
}

fn diff_fields(header: &str, old: &Fields, new: &Fields, lines: &mut Vec<String>) {
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) if old != new => {
                lines.push(format!("{header}.{key} changed: {old} -> {new}"));
            }
            (None, Some(new)) => lines.push(format!("{header}.{key} added: {new}")),
            (Some(old), None) => lines.push(format!("{header}.{key} removed: it was {old}")),
            _ => {}
        }
    }
}

fn summary(fields: &Fields) -> String {
    let pairs: Vec<String> = fields.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    pairs.join(", ")
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: u8,
    header: String,
}

fn site_fields(site: &Site) -> Fields {
    let coordinates = site.coordinates.map(|(lat, lon)| format!("[{lat:?}, {lon:?}]"));
    optional([("capacity", site.capacity.map(quoted)), ("coordinates", coordinates)])
}

fn node_fields(node: &Node) -> Fields {
    optional([
        ("site", Some(quoted(&node.site))),
        ("country", node.country.map(quoted)),
        ("asn", node.asn.map(|asn| asn.get().to_string())),
        ("addresses", Some(array(&node.addresses))),
        ("port", (node.port != schema::NODE_PORT).then(|| node.port.to_string())),
        ("admin", node.admin.as_ref().map(quoted)),
        ("capacity", node.capacity.map(quoted)),
        ("billing", node.bill.map(|bill| quoted(bill.word()))),
        ("commit", node.bill.and_then(|bill| bill.commit()).map(quoted)),
        ("cap", changed(&node.caps).map(|caps| caps_array(caps))),
        ("serve", node.serve.as_ref().map(serve_table)),
        ("sponsor", node.sponsor.as_ref().map(quoted)),
        ("identity", node.identity.map(quoted)),
        ("trust", changed(&node.trust).map(|trust| quoted(trust.as_str()))),
        ("drain", node.drain.as_ref().map(quoted)),
    ])
}

fn caps_array(caps: &[Cap]) -> String {
    let tables: Vec<String> = caps.iter().map(|cap| inline(cap_fields(cap))).collect();
    format!("[{}]", tables.join(", "))
}

fn cap_fields(cap: &Cap) -> [(&'static str, Option<String>); 4] {
    [
        ("rate", Some(quoted(cap.rate))),
        ("projects", changed(&cap.projects).map(array)),
        ("asns", changed(&cap.asns).map(|asns| numbers(asns))),
        ("countries", changed(&cap.countries).map(array)),
    ]
}

fn serve_table(serve: &Serve) -> String {
    inline([
        ("asn", changed(&serve.asn).map(|asns| numbers(asns))),
        ("country", changed(&serve.country).map(array)),
    ])
}

/// A list of AS numbers.
fn numbers(asns: &[Asn]) -> String {
    let numbers: Vec<String> = asns.iter().map(|asn| asn.get().to_string()).collect();
    format!("[{}]", numbers.join(", "))
}

fn map_fields(map: &SteeringMap) -> Fields {
    let mut fields = Fields::from([("default".to_owned(), array(&map.default))]);
    fields.extend(map.continent.iter().map(|(c, pools)| (format!("continent.{c}"), array(pools))));
    fields.extend(map.country.iter().map(|(c, pools)| (format!("country.{c}"), array(pools))));
    fields.extend(map.asn.iter().map(|(asn, pools)| (format!("asn.{}", asn.get()), array(pools))));
    if !map.overrides.is_empty() {
        let tables: Vec<String> = map.overrides.iter().map(override_table).collect();
        fields.insert("override".to_owned(), format!("[{}]", tables.join(", ")));
    }
    if !map.views.is_empty() {
        fields.insert("views".to_owned(), array(&map.views));
    }
    if !map.rules.is_empty() {
        let tables: Vec<String> = map.rules.iter().map(rule_table).collect();
        fields.insert("rule".to_owned(), format!("[{}]", tables.join(", ")));
    }
    fields
}

fn override_table(rule: &Override) -> String {
    // TOML writes moments without quotes.
    let expires = rule.expires_ms.map(|ms| model::time::utc(ms).replace(' ', "T"));
    inline([
        ("prefix", Some(quoted(rule.prefix))),
        ("pools", Some(array(&rule.pools))),
        ("owner", Some(quoted(&rule.owner))),
        ("reason", Some(quoted(&rule.reason))),
        ("expires", expires),
    ])
}

fn rule_table(rule: &RouteRule) -> String {
    let asn = |asn: Option<Asn>| asn.map(|asn| asn.get().to_string());
    inline([
        ("view", rule.view.as_ref().map(quoted)),
        ("next_hop", rule.next_hop.map(quoted)),
        ("community", rule.community.map(quoted)),
        ("neighbour", asn(rule.neighbour)),
        ("origin", asn(rule.origin)),
        ("as_path", rule.as_path.as_ref().map(quoted)),
        ("pools", Some(array(&rule.pools))),
    ])
}

fn zone_fields(zone: &Zone) -> Fields {
    let mut fields = Fields::from([
        ("ns".to_owned(), array(&zone.ns)),
        ("soa.contact".to_owned(), quoted(&zone.soa.contact)),
        ("soa.negative_ttl_s".to_owned(), zone.soa.negative_ttl_s.to_string()),
        ("ttl_s".to_owned(), zone.ttl_s.to_string()),
    ]);
    fields.extend(zone.hosts.iter().map(|(name, v)| (join("host", name.as_str()), array(v))));
    fields.extend(zone.txt.iter().map(|(name, v)| (join("txt", name.as_str()), array(v))));
    fields
}

fn project_fields(project: &Project) -> Fields {
    let mut fields = Fields::from([
        ("name".to_owned(), quoted(&project.name)),
        ("hosts".to_owned(), array(project.hosts.iter().cloned().map(String::from))),
        ("map".to_owned(), quoted(&project.map)),
        ("ttl_s".to_owned(), project.ttl_s.to_string()),
        ("all_down".to_owned(), quoted(String::from(project.all_down.clone()))),
    ]);
    fields.extend(optional([
        ("answers", (project.answers != schema::ANSWERS).then(|| project.answers.to_string())),
        ("answers_elsewhere", changed(&project.answers_elsewhere).map(u32::to_string)),
        ("sticky", changed(&project.sticky).map(bool::to_string)),
        ("ecs", (!project.ecs).then(|| project.ecs.to_string())),
        ("tls", changed(&project.tls).map(|tls| quoted(tls.as_str()))),
        ("https_record", changed(&project.https_record).map(bool::to_string)),
        ("max_share", project.max_share.map(max_share_table)),
        ("completion", changed(&project.completion).map(quoted)),
        ("query", changed(&project.query).map(query)),
        (
            "stale_while_revalidate_s",
            changed(&project.stale_while_revalidate_s).map(u32::to_string),
        ),
        (
            "reload_min_age_s",
            (project.reload_min_age_s != schema::RELOAD_MIN_AGE_S)
                .then(|| project.reload_min_age_s.to_string()),
        ),
        ("request_fields", changed(&project.request_fields).map(array)),
        ("unsafe_methods", changed(&project.unsafe_methods).map(bool::to_string)),
        ("http3", changed(&project.http3).map(bool::to_string)),
        ("redirect", changed(&project.redirect).map(bool::to_string)),
        (
            "redirect_above",
            (project.redirect_above != schema::REDIRECT_ABOVE)
                .then(|| quoted(project.redirect_above)),
        ),
        ("alternates", changed(&project.alternates).map(bool::to_string)),
        ("parents", project.parents.as_ref().map(quoted)),
        ("path", changed(&project.paths).map(|paths| paths_array(paths))),
    ]));
    for (name, master) in &project.masters {
        let key = format!("master.{}", bare_or_quoted(name.as_str()));
        let of_master = optional([
            ("url", Some(quoted(&master.url))),
            ("host", master.host.as_ref().map(quoted)),
            ("requests_max", master.requests_max.map(|max| max.to_string())),
            ("rate", master.rate.map(quoted)),
        ]);
        fields
            .extend(of_master.into_iter().map(|(field, value)| (format!("{key}.{field}"), value)));
    }
    fields
}

fn max_share_table(share: MaxShare) -> String {
    inline([
        ("nodes", share.nodes.map(|percent| percent.to_string())),
        ("sites", share.sites.map(|percent| percent.to_string())),
        ("window_s", Some(share.window_s.to_string())),
    ])
}

/// The value, if it is not what holds without it.
fn changed<T: Default + PartialEq>(value: &T) -> Option<&T> {
    (*value != T::default()).then_some(value)
}

fn query(query: &Query) -> String {
    match query {
        Query::Keep => quoted("keep"),
        Query::Drop => quoted("drop"),
        Query::Only(names) => array(names),
    }
}

/// All on one line, since their order counts: `[{ glob = "**", ttl_s = 60 }, ...]`.
fn paths_array(paths: &[PathPolicy]) -> String {
    let tables: Vec<String> = paths.iter().map(path_table).collect();
    format!("[{}]", tables.join(", "))
}

fn path_table(path: &PathPolicy) -> String {
    let fields = [
        ("glob", Some(quoted(&path.glob))),
        ("ttl_s", path.ttl_s.map(|s| s.to_string())),
        ("negative_ttl_s", path.negative_ttl_s.map(|s| s.to_string())),
        ("completion", path.completion.map(quoted)),
        ("group", path.group.as_ref().map(quoted)),
    ];
    inline(fields)
}

/// One table on one line, of what is given.
fn inline<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let given = fields.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
    format!("{{ {} }}", given.collect::<Vec<_>>().join(", "))
}

fn optional<const N: usize>(fields: [(&str, Option<String>); N]) -> Fields {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn array<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(quoted).collect();
    format!("[{}]", values.join(", "))
}

/// A TOML basic string.
fn quoted(value: impl Display) -> String {
    let mut out = String::from("\"");
    for c in value.to_string().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
