//! Locators and routes for tests, made in memory from a list of networks.

#![allow(clippy::unwrap_used)] // what is written here parses

use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use model::route::{Attributes, Communities, Origin, RouteTable};

use crate::mmdb_write::{Value, Writer};
use crate::{Evidence, Locator, OpenError, Provides};

/// A locator that knows exactly `networks`; of nested ones the longest prefix counts. It goes
/// through the bytes of a real database, so tests see what a file would give.
///
/// # Errors
/// As [`Locator::from_bytes`]; none is expected of what this writes.
pub fn locator(networks: &[(IpNet, Evidence)]) -> Result<Locator, OpenError> {
    let mut writer = Writer::new("Test", "networks of a test", 0);
    let provides = Provides {
        country: networks.iter().any(|(_, e)| e.country.is_some() || e.continent.is_some()),
        asn: networks.iter().any(|(_, e)| e.asn.is_some()),
    };
    for (network, evidence) in networks {
        writer.insert(*network, &record(*evidence, None));
    }
    Locator::from_bytes(Path::new("test.mmdb"), writer.finish(), provides)
}

/// The table of these routes, by prefix and AS path; of several of a prefix the last. Their next hop is
/// 192.0.2.1.
pub fn routes<'a>(routes: impl IntoIterator<Item = (IpNet, &'a str)>) -> RouteTable {
    let attributes = |path: &str| {
        Arc::new(Attributes {
            next_hop: "192.0.2.1".parse().unwrap(),
            origin: Origin::Igp,
            as_path: path.parse().unwrap(),
            med: None,
            local_pref: None,
            communities: Communities::default(),
        })
    };
    let routes = routes.into_iter().map(|(prefix, path)| (prefix, Some(attributes(path))));
    RouteTable::default().with_changes(routes)
}

/// A record in the nested schema of GeoLite2, country and ASN together.
pub fn record(evidence: Evidence, as_name: Option<&str>) -> Value {
    let mut fields = Vec::new();
    let code = |key, text: &str| Value::Map(vec![(key, Value::Text(text.to_owned()))]);
    if let Some(country) = evidence.country {
        fields.push(("country", code("iso_code", country.as_str())));
    }
    if let Some(continent) = evidence.continent {
        fields.push(("continent", code("code", continent.as_str())));
    }
    if let Some(asn) = evidence.asn {
        fields.push(("autonomous_system_number", Value::U32(asn.get())));
    }
    if let Some(name) = as_name {
        fields.push(("autonomous_system_organization", Value::Text(name.to_owned())));
    }
    Value::Map(fields)
}
