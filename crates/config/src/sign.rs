//! `[[dns.sign]]`: zones whose answers are signed.

use std::collections::BTreeSet;

use dns::{Cds, Duty, KeyFile, SignParams};
use nodemap::toml_read::{Table, Value};

use crate::read::one_of;
use crate::schema::{self, limits};

pub(crate) fn read(value: &Value<'_>) -> Vec<SignParams> {
    let mut zones = BTreeSet::new();
    let signed = value.tables_of(limits::SIGNED_ZONES, "zones", read_zone);
    signed
        .into_iter()
        .filter(|params| {
            let is_new = zones.insert(params.zone.clone());
            if !is_new {
                let problem = format!("names {} twice", params.zone);
                value.refuse(problem, "write all keys of a zone into one table");
            }
            is_new
        })
        .collect()
}

fn read_zone(value: &Value<'_>) -> Option<SignParams> {
    let table = value.table(&schema::DNS_SIGN)?;
    let zone = table.need("zone", "\"cdn.example\"").and_then(|v| v.host_name());
    table.need("active", "[\"keys/cdn.example.pem\"]");
    let keys = Duty::ALL.into_iter().flat_map(|duty| read_keys(&table, duty)).collect();
    let words = [("off", Cds::Off), ("publish", Cds::Publish), ("delete", Cds::Delete)];
    let cds = table.get("cds").and_then(|v| one_of(&v, "thing to ask of the parent", words));
    let validity_s = table.get("validity_s").and_then(|v| v.u32_in(limits::VALIDITY_S));
    Some(SignParams {
        zone: zone?,
        keys,
        cds: cds.unwrap_or_default(),
        validity_s: validity_s.unwrap_or(dns::VALIDITY_S_DEFAULT),
    })
}

fn read_keys(table: &Table<'_>, duty: Duty) -> Vec<KeyFile> {
    let files = table.get(duty.word()).map(|v| v.list_of(limits::KEYS, "key files", |v| v.path()));
    files.into_iter().flatten().map(|path| KeyFile { path, duty }).collect()
}
