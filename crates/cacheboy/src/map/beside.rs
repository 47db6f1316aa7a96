//! What two maps say differently of zones and projects: names, records, TTLs, masters. Nobody moves by
//! it, but it changes what clients get.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use nodemap::AdminMap;
use serde::Serialize;
use serde_json::{Value, json};

/// Changes that are shown to people, and letters of each value.
const SHOWN_MAX: usize = 50;
const LETTERS_MAX: usize = 60;

/// One key whose value is another one. What is not there has no value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// Dotted, as in the maps.
    key: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    before: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    after: Value,
}

/// All changes, in the order of their keys.
pub(super) fn changes(old: &AdminMap, new: &AdminMap) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let of = |map: &AdminMap| -> Result<Value> {
        Ok(
            json!({ "project": serde_json::to_value(&map.projects)?, "zone": serde_json::to_value(&map.zones)? }),
        )
    };
    compare(String::new(), &of(old)?, &of(new)?, &mut changes);
    Ok(changes)
}

fn compare(key: String, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let of = |values: &serde_json::Map<String, Value>| {
                    values.get(name).cloned().unwrap_or_default()
                };
                let point = if key.is_empty() { "" } else { "." };
                // A name with points in it is quoted in the maps.
                let quote = if name.contains('.') { "\"" } else { "" };
                let key = format!("{key}{point}{quote}{name}{quote}");
                compare(key, &of(before), &of(after), changes);
            }
        }
        _ => changes.push(Change { key, before: old.clone(), after: new.clone() }),
    }
}

/// The changes for people.
pub(super) fn shown(changes: &[Change]) -> String {
    let mut out = String::new();
    if !changes.is_empty() {
        out.push_str("beside steering\n");
    }
    for Change { key, before, after } in changes.iter().take(SHOWN_MAX) {
        let (before, after) = (short(before), short(after));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {key}: {before} -> {after}");
    }
    if let Some(more) = changes.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "  and {more} more, with --json");
    }
    out
}

fn short(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_whose_values_differ_are_named_with_both() {
        let map = |ttl_s: u32, more: &str| {
            let text = format!(
                "[site.s]\n[node.n]\nsite = \"s\"\naddresses = [\"192.0.2.1\"]\n[pool]\np = {{ n = 1 }}\n\
                 [map.m]\ndefault = [\"p\"]\n[zone.\"cdn.example\"]\nns = [\"ns1.cdn.example\"]\n\
                 soa = {{ contact = \"noc.cdn.example\", negative_ttl_s = 60 }}\nttl_s = {ttl_s}\n\
                 [zone.\"cdn.example\".host]\n\"ns1.cdn.example\" = [\"192.0.2.53\"]\n{more}\
                 [project.v]\nname = \"v.cdn.example\"\nhosts = [\"v.example\"]\nmap = \"m\"\n\
                 ttl_s = {ttl_s}\n[project.v.master.m]\nurl = \"http://192.0.2.9\"\n"
            );
            nodemap::admin::load(&[("all.toml".into(), text)]).unwrap()
        };
        let (old, new) = (map(60, ""), map(300, "\"ns2.cdn.example\" = [\"192.0.2.54\"]\n"));
        assert_eq!(shown(&changes(&old, &old).unwrap()), "");
        let found = changes(&old, &new).unwrap();
        assert_eq!(
            shown(&found),
            "beside steering\n  project.v.ttl_s: 60 -> 300\n  \
             zone.\"cdn.example\".hosts.\"ns2.cdn.example\": nothing -> [\"192.0.2.54\"]\n  \
             zone.\"cdn.example\".ttl_s: 60 -> 300\n"
        );
        let many = vec![found[0].clone(); SHOWN_MAX + 3];
        assert!(shown(&many).ends_with("  and 3 more, with --json\n"));
    }
}
