//! Names that are the same for everybody: of the zones of the maps, and of zone files.

use std::fmt::Write as _;

use config::HostConfig;
use model::HostName;
use nodemap::AdminMap;
use serde::Serialize;
use serde_json::json;

/// What a name has, and where that is from.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Record {
    #[serde(rename = "type")]
    rtype: String,
    /// Its data, where the maps have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    from: String,
}

/// What `name` has; `None` when it is no such name. Zone files are those of `config`, as far as they can
/// be read: `cacheboy check` says what is wrong with others.
pub(super) fn find(map: &AdminMap, config: Option<&HostConfig>, name: &str) -> Option<Vec<Record>> {
    let name: HostName = name.parse().ok()?;
    let mut records = Vec::new();
    for (apex, zone) in &map.zones {
        let mut add = |rtype: &str, data: Option<String>, table: &str| {
            let from = format!("[zone.\"{apex}\"{table}]");
            records.push(Record { rtype: rtype.to_owned(), data, from });
        };
        if *apex == name {
            add("SOA", None, "");
            zone.ns.iter().for_each(|server| add("NS", Some(server.to_string()), ""));
        }
        for address in zone.hosts.get(&name).into_iter().flatten() {
            let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
            add(rtype, Some(address.to_string()), ".host");
        }
        for text in zone.txt.get(&name).into_iter().flatten() {
            add("TXT", Some(format!("{text:?}")), ".txt");
        }
    }
    let folder = config.and_then(|config| config.dns.as_ref()?.zone_files.as_deref());
    let files = folder.and_then(|folder| dns::ZoneFolder::open(folder).ok());
    for file in files.iter().flat_map(|files| files.files().to_vec()) {
        let from = file.path().display().to_string();
        let record = |rtype| Record { rtype, data: None, from: from.clone() };
        records.extend(file.types_at(&name).into_iter().map(record));
    }
    (!records.is_empty()).then_some(records)
}

/// The records for people, or as JSON.
pub(super) fn shown(name: &str, records: &[Record], as_json: bool) -> String {
    if as_json {
        return format!("{:#}\n", json!({ "format": 1, "name": name, "records": records }));
    }
    let mut out = format!("{name} is a fixed name: every client gets the same\n\n");
    for Record { rtype, data, from } in records {
        let data = data.as_deref().unwrap_or("");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{rtype:<6} {data:<24} from {from}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_zones_and_of_their_files_are_found_with_where_they_are_from() {
        let dir = tempfile::tempdir().unwrap();
        let map = "[site.s]\n[node.n]\nsite = \"s\"\naddresses = [\"192.0.2.1\"]\n[pool]\np = { n = 1 }\n\
                   [map.m]\ndefault = [\"p\"]\n[project.v]\nname = \"v.cdn.example\"\n\
                   hosts = [\"v.example\"]\nmap = \"m\"\n[project.v.master.m]\nurl = \"http://192.0.2.9\"\n\
                   [zone.\"cdn.example\"]\nns = [\"ns1.cdn.example\"]\n\
                   soa = { contact = \"noc.cdn.example\", negative_ttl_s = 60 }\n\
                   [zone.\"cdn.example\".host]\n\"ns1.cdn.example\" = [\"192.0.2.53\"]\n\
                   [zone.\"cdn.example\".txt]\n\"ns1.cdn.example\" = [\"a b\"]\n";
        let map = nodemap::admin::load(&[("all.toml".into(), map.to_owned())]).unwrap();
        let zones = dir.path().join("zones");
        std::fs::create_dir(&zones).unwrap();
        std::fs::write(zones.join("cdn.example.zone"), "mail MX 10 ns1\nns1 CAA 0 issue \";\"\n")
            .unwrap();
        let config = dir.path().join("dns.toml");
        let text = "[host]\nname = \"n\"\nstate_dir = \"s\"\n[follow]\nnode_map = [\"file:m\"]\n\
                    [dns]\nlisten = [\"127.0.0.1:53\"]\nzone_files = \"zones\"\n";
        std::fs::write(&config, text).unwrap();
        let config = crate::roles::load(&config).unwrap();
        let found = find(&map, Some(&config), "NS1.cdn.example.").unwrap();
        let file = zones.join("cdn.example.zone").display().to_string();
        assert_eq!(
            shown("ns1", &found, false),
            format!(
                "ns1 is a fixed name: every client gets the same\n\n\
                 A      192.0.2.53               from [zone.\"cdn.example\".host]\n\
                 TXT    \"a b\"                    from [zone.\"cdn.example\".txt]\n\
                 CAA                             from {file}\n"
            )
        );
        assert_eq!(find(&map, Some(&config), "mail.cdn.example").unwrap()[0].rtype, "MX");
        assert_eq!(find(&map, None, "mail.cdn.example"), None);
        assert_eq!(find(&map, None, "cdn.example").unwrap().len(), 2);
    }
}
