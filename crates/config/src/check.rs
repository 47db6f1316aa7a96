//! What must hold between sections: a role has what it needs, and no two want the same thing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use nodemap::toml_read::{Document, KeyPath, Table};
use rt::listen::Listen;
use rt::routes::RouteSource;

/// Sections that make a host do something.
const ROLES: [&str; 5] = ["edge", "dns", "health", "master", "bgp"];

/// Whether the sections that are there make a host.
pub(crate) fn sections(root: &Table<'_>) {
    let has = |key| root.get(key).is_some();
    if !ROLES.iter().any(|role| has(role)) {
        root.refuse("this host plays no role", "add [edge], [dns], [health], [master] or [bgp]");
    }
    if (has("edge") || has("dns")) && !has("follow") {
        // An edge and a DNS server know projects and nodes from the node map alone.
        root.need("follow", "{ node_map = [\"http://health1.example:8053/node-map\"] }");
    }
}

/// Two listeners on one address: the second would fail to start. Port 0 is a new one each time.
pub(crate) fn listeners(document: &Document<'_>, all: &[(KeyPath, SocketAddr)]) {
    let mut owners: BTreeMap<SocketAddr, &KeyPath> = BTreeMap::new();
    for (path, address) in all.iter().filter(|(_, address)| address.port() != 0) {
        if let Some(owner) = owners.insert(*address, path) {
            let problem = format!("{address} is already an address of {owner}");
            refuse(document, path, problem, "give every listener an address or port of its own");
        }
    }
}

/// Who speaks TLS has a certificate.
pub(crate) fn tls(document: &Document<'_>, all: &[(KeyPath, &Listen)], has_certificates: bool) {
    for (path, _) in all.iter().filter(|(_, listen)| listen.tls && !has_certificates) {
        let remedy = "add [[tls.certificate]] with chain and key, or take `tls` away";
        refuse(document, path, "speaks TLS, and there is no certificate".to_owned(), remedy);
    }
}

/// Certificates are fetched for the clients of an edge.
pub(crate) fn fetched(document: &Document<'_>, fetches: bool, has_edge: bool) {
    if fetches && !has_edge {
        let path = KeyPath::of(&["tls", "publisher"]);
        let problem = "this host is no edge, so there is nothing to fetch".to_owned();
        refuse(document, &path, problem, "add [edge], or take it out");
    }
}

/// Routes of this process need a role here that has any.
pub(crate) fn routes(document: &Document<'_>, source: Option<&RouteSource>, has_bgp: bool) {
    if source == Some(&RouteSource::Local) && !has_bgp {
        let path = KeyPath::of(&["location", "routes"]);
        let problem = "this host is no collector, so it has no routes of its own".to_owned();
        refuse(document, &path, problem, "add [bgp], or write http://HOST[:PORT]/routes");
    }
}

/// Two stores in one folder would take each other's files for damage, and the state of the host has
/// a lock of its own there.
pub(crate) fn stores(document: &Document<'_>, all: &[(KeyPath, &Path)], state_dir: Option<&Path>) {
    for (at, (path, folder)) in all.iter().enumerate() {
        if state_dir == Some(*folder) {
            let problem = format!("{} is the state_dir of the host", folder.display());
            refuse(document, path, problem, "give the store a folder of its own");
        }
        let earlier = all
            .iter()
            .take(at)
            .any(|(_, other)| other.starts_with(folder) || folder.starts_with(other));
        if earlier {
            let problem = format!("{} overlaps with another store", folder.display());
            refuse(document, path, problem, "give every store a folder of its own");
        }
    }
}

fn refuse(document: &Document<'_>, path: &KeyPath, problem: String, remedy: &str) {
    let line = document.line_of(path, 1).unwrap_or_default();
    document.report(line, path.to_string(), problem, remedy);
}
