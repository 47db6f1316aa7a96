//! One function a section: table -> parameters, or findings.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use edge::params::{Addresses, Format};
use model::{ByteCount, Rate};
use nodemap::signature::{PublicKey, TrustedKeys};
use nodemap::toml_read::{Document, KeyPath, Section, Table, Value};
use rt::admin::AdminListen;
use rt::follow::{FollowParams, Source};
use rt::listen::Listen;
use rt::routes::{RouteSource, RoutesParams};
use rt::steering::LocationParams;
use rt::tls::CertificateFiles;

use crate::schema::{self, limits};
use crate::{Host, HostConfig, check};

mod bgp;
mod dns;
mod health;

/// The whole file; `None` when what would be missing is more than a default can stand for.
pub(crate) fn host_config(document: &Document<'_>) -> Option<HostConfig> {
    let root = document.root(&schema::ROOT);
    check::sections(&root);
    let section = |key: &'static str, section: &'static Section| {
        root.get(key).and_then(|value| value.table(section))
    };
    let host = root.need("host", "{ name = \"edge1\", state_dir = \"/var/lib/cacheboy\" }");
    let host = host.and_then(|value| value.table(&schema::HOST)).and_then(|t| read_host(&t));
    let follow = section("follow", &schema::FOLLOW).map(|t| read_follow(&t));
    let location = section("location", &schema::LOCATION).map(|t| read_location(&t));
    let admin = section("admin", &schema::ADMIN).and_then(|t| read_admin(&t));
    let tls = section("tls", &schema::TLS).map(|t| read_tls(&t));
    let (certificates, fetches_certificates) = tls.unwrap_or_default();
    let edge = section("edge", &schema::EDGE).map(|t| read_edge(&t));
    let dns = section("dns", &schema::DNS).map(|t| dns::read(&t));
    let health = section("health", &schema::HEALTH).and_then(|t| health::read(&t));
    let master = section("master", &schema::MASTER).and_then(|t| read_master(&t));
    let bgp = section("bgp", &schema::BGP).and_then(|t| bgp::read(&t));
    let mut roles = Roles { edge, dns, health, master, bgp };
    if let (Some(health), Some(location)) = (&mut roles.health, &location) {
        health.location.clone_from(location);
    }
    check::listeners(document, &roles.listeners(admin.as_ref()));
    check::tls(document, &roles.http_listeners(), root.get("tls").is_some());
    check::fetched(document, fetches_certificates, roles.edge.is_some());
    let routes = location.as_ref().and_then(|location| location.routes.as_ref());
    check::routes(document, routes.map(|routes| &routes.source), roles.bgp.is_some());
    let state_dir = host.as_ref().map(|host| host.state_dir.as_path());
    check::stores(document, &roles.stores(), state_dir);
    Some(HostConfig {
        host: host?,
        follow,
        location: location.unwrap_or_default(),
        admin,
        certificates,
        fetches_certificates,
        edge: roles.edge,
        dns: roles.dns,
        health: roles.health,
        master: roles.master,
        bgp: roles.bgp,
    })
}

struct Roles {
    edge: Option<edge::Params>,
    dns: Option<::dns::Params>,
    health: Option<::health::Params>,
    master: Option<master::Params>,
    bgp: Option<::bgp::Params>,
}

impl Roles {
    /// Every listener that may speak TLS, with its key.
    fn http_listeners(&self) -> Vec<(KeyPath, &Listen)> {
        let edge = self.edge.iter().flat_map(|p| keyed("edge", &p.listen));
        edge.chain(self.master.iter().flat_map(|p| keyed("master", &p.listen))).collect()
    }

    /// Every TCP address with its key.
    fn listeners(&self, admin: Option<&AdminListen>) -> Vec<(KeyPath, SocketAddr)> {
        let http = self.http_listeners().into_iter();
        let mut all: Vec<_> = http.map(|(path, listen)| (path, listen.address)).collect();
        let dns = self.dns.iter().flat_map(|p| keyed("dns", &p.listen));
        let plain = dns.chain(self.health.iter().flat_map(|p| keyed("health", &p.listen)));
        all.extend(plain.map(|(path, address)| (path, *address)));
        let acme = self.health.iter().filter_map(|health| health.acme.as_ref());
        for hand_out in acme.filter_map(|acme| acme.hand_out.as_ref()) {
            let path = KeyPath::of(&["health", "acme", "listen"]);
            let listen = hand_out.listen.iter().enumerate();
            all.extend(listen.map(|(at, address)| (path.clone().index(at), *address)));
        }
        if let Some(bgp) = &self.bgp {
            let publish = KeyPath::of(&["bgp", "publish"]);
            let published = bgp.publish.iter().enumerate();
            let published = published.map(|(at, address)| (publish.clone().index(at), *address));
            all.extend(keyed("bgp", &bgp.listen).map(|(path, address)| (path, *address)));
            all.extend(published);
        }
        if let Some(AdminListen::Tcp(address)) = admin {
            all.push((KeyPath::of(&["admin", "listen"]), *address));
        }
        all
    }

    /// The folder of every store with its key.
    fn stores(&self) -> Vec<(KeyPath, &Path)> {
        let stores = self.edge.iter().flat_map(|edge| &edge.stores).enumerate();
        let path = |at| KeyPath::of(&["edge", "store"]).index(at).key("path");
        stores.map(|(at, store)| (path(at), store.path.as_path())).collect()
    }
}

/// The entries of a role's `listen` with their keys.
fn keyed<'a, T>(role: &str, listen: &'a [T]) -> impl Iterator<Item = (KeyPath, &'a T)> {
    let path = KeyPath::of(&[role, "listen"]);
    listen.iter().enumerate().map(move |(at, entry)| (path.clone().index(at), entry))
}

fn read_host(table: &Table<'_>) -> Option<Host> {
    let name = table.need("name", "\"edge1\"").and_then(|v| v.name());
    let state_dir = table.need("state_dir", "\"/var/lib/cacheboy\"").and_then(|v| v.path());
    Some(Host { name: name?, state_dir: state_dir? })
}

fn read_follow(table: &Table<'_>) -> FollowParams {
    let sources = table.need("node_map", "[\"http://health1.example:8053/node-map\"]");
    let read = |v: Value<'_>| v.list_of(limits::SOURCES, "sources", read_source);
    let keys = |v: Value<'_>| {
        v.list_of(limits::TRUSTED_KEYS, "keys", |key| key.parsed::<PublicKey>("a public key"))
    };
    FollowParams {
        node_map: sources.map(read).unwrap_or_default(),
        keys: TrustedKeys(table.get("keys").map(keys).unwrap_or_default()),
    }
}

fn read_source(value: &Value<'_>) -> Option<Source> {
    let text = value.text()?;
    if let Some(path) = text.strip_prefix("file:") {
        return value.path_of(path).map(Source::File);
    }
    let remedy = if text.starts_with("https://") {
        "write http://HOST[:PORT]/node-map; https:// comes with a later version"
    } else {
        "write http://HOST[:PORT]/node-map, or file:PATH"
    };
    let uri = text.parse::<http::Uri>().ok().filter(|uri| {
        let user = uri.authority().is_some_and(|a| a.as_str().contains('@'));
        uri.scheme_str() == Some("http") && !user
    });
    if uri.is_none() {
        // It may carry a password, so it is not repeated.
        value.refuse("is no source of a node map", remedy);
    }
    uri.map(Source::Http)
}

fn read_location(table: &Table<'_>) -> LocationParams {
    let file = |key| table.get(key).and_then(|value| value.path());
    let percent = table.get("databases_move_percent");
    LocationParams {
        country: file("country"),
        asn: file("asn"),
        move_percent: percent.and_then(|v| v.u32_in(limits::DATABASES_MOVE_PERCENT)),
        routes: read_routes(table),
    }
}

fn read_routes(table: &Table<'_>) -> Option<RoutesParams> {
    let hold_s = table.get("routes_hold_s").map(|v| v.u32_in(limits::ROUTES_HOLD_S));
    let percent = table.get("routes_move_percent").map(|v| v.u32_in(limits::ROUTES_MOVE_PERCENT));
    let Some(value) = table.get("routes") else {
        if hold_s.is_some() || percent.is_some() {
            let remedy =
                "add routes = \"http://HOST:PORT/routes\" or \"local\", or take the others out";
            table.refuse("says how routes are used, but not where they come from", remedy);
        }
        return None;
    };
    let source = match value.text()? {
        "local" => Some(RouteSource::Local),
        text => text.parse::<http::Uri>().ok().and_then(|uri| {
            let user = uri.authority().is_none_or(|a| a.as_str().contains('@'));
            (uri.scheme_str() == Some("http") && !user).then_some(RouteSource::Http(uri))
        }),
    };
    if source.is_none() {
        // It may carry a password, so it is not repeated.
        let remedy =
            "write http://HOST[:PORT]/routes, of a bgp role, or local, with [bgp] in this file";
        value.refuse("is no source of routes", remedy);
    }
    Some(RoutesParams {
        source: source?,
        hold_s: hold_s.flatten().map_or(rt::routes::HOLD_S, u64::from),
        move_percent: percent.flatten().unwrap_or(rt::routes::MOVE_PERCENT),
    })
}

fn read_admin(table: &Table<'_>) -> Option<AdminListen> {
    let value = table.need("listen", "\"unix:/run/cacheboy/admin.sock\"")?;
    if let Some(path) = value.text()?.strip_prefix("unix:") {
        return value.path_of(path).map(AdminListen::Unix);
    }
    let address = value.socket_addr()?;
    if !address.ip().is_loopback() {
        value.refuse(
            format!("{address} can be reached from outside, and there is no password yet"),
            "write unix:PATH, or an address of loopback such as 127.0.0.1:9090",
        );
        return None;
    }
    Some(AdminListen::Tcp(address))
}

/// The files, and whether certificates are fetched besides.
fn read_tls(table: &Table<'_>) -> (Vec<CertificateFiles>, bool) {
    const EXAMPLE: &str = "[{ chain = \"tls/cdn.pem\", key = \"tls/cdn.key\" }]";
    let fetches = table.get("publisher").and_then(|v| v.bool()).unwrap_or_default();
    let certificates = match fetches {
        true => table.get("certificate"),
        false => table.need("certificate", EXAMPLE),
    };
    let read = |v: Value<'_>| v.tables_of(limits::CERTIFICATES, "certificates", read_certificate);
    (certificates.map(read).unwrap_or_default(), fetches)
}

fn read_certificate(value: &Value<'_>) -> Option<CertificateFiles> {
    let table = value.table(&schema::TLS_CERTIFICATE)?;
    let chain = table.need("chain", "\"tls/cdn.pem\"").and_then(|v| v.path());
    let key = table.need("key", "\"tls/cdn.key\"").and_then(|v| v.path());
    Some(CertificateFiles { chain: chain?, key: key? })
}

/// Listeners that may speak TLS: each an address, or a table with the keys of `section`.
fn read_http_listen(table: &Table<'_>, section: &'static Section, example: &str) -> Vec<Listen> {
    let value = table.need("listen", example);
    let read = |v: &Value<'_>| match v.is_table() {
        true => v.table(section).and_then(|t| read_listener(&t, section)),
        false => v.socket_addr().map(Listen::from),
    };
    value.map(|v| v.list_of(limits::LISTEN, "addresses", read)).unwrap_or_default()
}

fn read_listener(table: &Table<'_>, section: &'static Section) -> Option<Listen> {
    let is_set = |key: &'static str| table.get(key).and_then(|v| v.bool()).unwrap_or(false);
    let address = table.need("address", "\"0.0.0.0:443\"").and_then(|v| v.socket_addr());
    let has_http3 = section.keys.iter().any(|key| key.name == "http3");
    let (tls, http3) = (is_set("tls"), has_http3 && is_set("http3"));
    if http3 && !tls {
        table.refuse("HTTP/3 is always encrypted, and this listener is not", "add tls = true");
    }
    let congestion = table.get("congestion").and_then(|v| read_congestion(&v));
    let rate = table.get("rate").and_then(|v| read_rate(&v));
    Some(Listen { address: address?, tls, http3, congestion, rate })
}

/// A name as Linux takes it: `TCP_CA_NAME_MAX` is 16 with its end. Whether the kernel has it is found
/// out at the start.
fn read_congestion(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let is_of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    if text.is_empty() || text.len() > 15 || !text.bytes().all(is_of_name) {
        let remedy = "write a name of /proc/sys/net/ipv4/tcp_available_congestion_control";
        value.refuse("is no name of a congestion control", remedy);
        return None;
    }
    Some(text.to_owned())
}

fn read_rate(value: &Value<'_>) -> Option<Rate> {
    let (rate, least) = (value.rate()?, Rate(limits::RATE_MIN));
    if rate < least {
        value.refuse(format!("{rate} is too little to serve by"), format!("write {least} or more"));
        return None;
    }
    Some(rate)
}

fn read_listen(table: &Table<'_>, example: &str) -> Vec<SocketAddr> {
    let value = table.need("listen", example);
    value.map(|v| v.list_of(limits::LISTEN, "addresses", |v| v.socket_addr())).unwrap_or_default()
}

fn read_edge(table: &Table<'_>) -> edge::Params {
    let example = "[\"0.0.0.0:80\", \"[::]:80\"]";
    let listen = read_http_listen(table, &schema::EDGE_LISTEN, example);
    let stores = table.need("store", "[{ path = \"/srv/cacheboy\", size = \"900 GiB\" }]");
    let stores = stores.map(|v| v.tables_of(limits::STORES, "stores", read_store));
    let mut params = edge::Params::new(listen, stores.unwrap_or_default());
    let timeout = |key: &'static str, default: Duration| {
        let given = table.get(key).and_then(|v| v.u32_in(limits::TIMEOUT_MS));
        given.map_or(default, |ms| Duration::from_millis(ms.into()))
    };
    params.timeouts = edge::Timeouts {
        connect: timeout("connect_timeout_ms", params.timeouts.connect),
        first_byte: timeout("first_byte_timeout_ms", params.timeouts.first_byte),
        between_bytes: timeout("between_bytes_timeout_ms", params.timeouts.between_bytes),
    };
    let seconds = |key: &'static str, range, default: Duration| {
        let given = table.get(key).and_then(|v| v.u32_in(range));
        given.map_or(default, |s| Duration::from_secs(s.into()))
    };
    params.pace.notice = seconds("drain_notice_s", limits::NOTICE_S, params.pace.notice);
    params.pace.deadline = seconds("drain_deadline_s", limits::DEADLINE_S, params.pace.deadline);
    params.upstream_ca = table.get("upstream_ca").and_then(|v| v.path());
    let logs = table.get("log").map(|v| v.tables_of(limits::LOGS, "access logs", read_log));
    params.logs = logs.unwrap_or_default();
    if let Some((value, size)) =
        table.get("fill_memory").and_then(|v| Some((v.clone(), v.bytes()?)))
    {
        let blocks = params.stores.iter().map(|store| store.block_bytes).max();
        at_least(
            &value,
            size,
            limits::FILL_BLOCKS_MIN,
            blocks.unwrap_or(edge::params::BLOCK_BYTES_DEFAULT),
        );
        params.fill_memory = size;
    }
    if let Some(bill) = table.get("bill").and_then(|v| v.table(&schema::EDGE_BILL)) {
        params.bill_interface = bill.get("interface").and_then(|v| read_interface(&v));
    }
    if let Some(size) = table.get("store_memory").and_then(|v| v.bytes()) {
        params.store_memory = size;
    }
    if let Some(table) = table.get("limits").and_then(|v| v.table(&schema::EDGE_LIMITS)) {
        params.limits = read_limits(&table);
    }
    params
}

fn read_limits(table: &Table<'_>) -> edge::LimitParams {
    let default = edge::LimitParams::default();
    let seconds = table.get("head_timeout_s").and_then(|v| v.u32_in(limits::HEAD_TIMEOUT_S));
    let head_bytes = table.get("head_bytes").and_then(|v| read_head_bytes(&v));
    let per_client = |key: &'static str| table.get(key).and_then(|v| v.u32_in(limits::PER_CLIENT));
    let prefix = |v: &Value<'_>| v.parsed("a prefix such as 192.0.2.0/24");
    let exempt = table.get("exempt").map(|v| v.list_of(limits::EXEMPT, "prefixes", prefix));
    need_beside(table, "exempt", &["requests_per_client", "copies_per_day"]);
    need_beside(table, "copies_rate", &["copies_per_day"]);
    edge::LimitParams {
        connections: table.get("connections").and_then(|v| v.u32_in(limits::CONNECTIONS)),
        head_bytes: head_bytes.unwrap_or(default.head_bytes),
        head_timeout: seconds.map_or(default.head_timeout, |s| Duration::from_secs(s.into())),
        requests_per_client: per_client("requests_per_client"),
        exempt: exempt.unwrap_or_default(),
        copies_per_day: per_client("copies_per_day"),
        copies_rate: table
            .get("copies_rate")
            .and_then(|v| read_rate(&v))
            .unwrap_or(default.copies_rate),
    }
}

/// A key that means nothing without one of others: whoever wrote it believes in a limit that is not there.
fn need_beside(table: &Table<'_>, key: &'static str, others: &[&'static str]) {
    if let Some(value) = table.get(key)
        && others.iter().all(|other| table.get(other).is_none())
    {
        let others = others.join(" or ");
        let remedy = format!("add {others}, or take {key} away");
        value.refuse(format!("means nothing without {others}"), remedy);
    }
}

fn read_head_bytes(value: &Value<'_>) -> Option<ByteCount> {
    let given = value.bytes()?;
    if !limits::HEAD_BYTES.contains(&given.0) {
        let (least, most) = (*limits::HEAD_BYTES.start(), *limits::HEAD_BYTES.end());
        value.refuse(
            format!("{given} is no size of a request's head"),
            format!("write \"{}\" to \"{}\"", ByteCount(least), ByteCount(most)),
        );
        return None;
    }
    Some(given)
}

fn read_log(value: &Value<'_>) -> Option<edge::LogParams> {
    let table = value.table(&schema::EDGE_LOG)?;
    let path = table.need("path", "\"/var/log/cacheboy/access.log\"").and_then(|v| v.path())?;
    let mut log = edge::LogParams::new(path);
    if let Some(value) = table.get("format") {
        let known = [("squid", Format::Squid), ("json", Format::Json)];
        log.format = one_of(&value, "format of an access log", known)?;
    }
    if let Some(value) = table.get("addresses") {
        log.addresses = read_addresses(&value)?;
    }
    Some(log)
}

fn read_addresses(value: &Value<'_>) -> Option<Addresses> {
    let known = [("truncated", Addresses::Truncated), ("whole", Addresses::Whole)];
    one_of(value, "way to write addresses", known)
}

/// What one of a few words stands for.
pub(crate) fn one_of<T, const N: usize>(
    value: &Value<'_>,
    what: &str,
    known: [(&str, T); N],
) -> Option<T> {
    let text = value.text()?;
    let words: Vec<String> = known.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let remedy = format!("write {}", words.join(" or "));
    let found = known.into_iter().find(|(word, _)| *word == text);
    if found.is_none() {
        value.refuse(format!("\"{text}\" is no {what}"), remedy);
    }
    found.map(|(_, meaning)| meaning)
}

/// A name that the kernel could have given (`dev_valid_name`).
fn read_interface(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
    if text.is_empty() || text.len() > limits::INTERFACE_BYTES || !is_plain || text.contains("..") {
        let remedy = "write the name of a network interface, as `ip link` shows it: \"eth0\"";
        value.refuse("is not the name of an interface", remedy);
        return None;
    }
    Some(text.to_owned())
}

fn read_store(value: &Value<'_>) -> Option<edge::StoreParams> {
    let table = value.table(&schema::EDGE_STORE)?;
    let path = table.need("path", "\"/srv/cacheboy\"").and_then(|v| v.path());
    let size = table.need("size", "\"900 GiB\"").and_then(|v| Some((v.clone(), v.bytes()?)));
    let block_bytes = match table.get("block") {
        Some(value) => read_block(&value),
        None => Some(edge::params::BLOCK_BYTES_DEFAULT),
    };
    let (size_value, size) = size?;
    at_least(&size_value, size, limits::STORE_BLOCKS_MIN, block_bytes?);
    Some(edge::StoreParams { path: path?, size, block_bytes: block_bytes? })
}

fn read_block(value: &Value<'_>) -> Option<u32> {
    let given = value.bytes()?;
    let step = *limits::BLOCK_BYTES.start();
    let bytes = u32::try_from(given.0).ok();
    let bytes = bytes.filter(|b| limits::BLOCK_BYTES.contains(b) && b.is_multiple_of(step));
    if bytes.is_none() {
        value.refuse(
            format!("{given} is no size of a block"),
            "write 4 KiB to 64 MiB in steps of 4 KiB; \"256 KiB\" suits most",
        );
    }
    bytes
}

fn at_least(value: &Value<'_>, given: ByteCount, blocks: u64, block_bytes: u32) {
    let least = ByteCount(u64::from(block_bytes).saturating_mul(blocks));
    if given < least {
        value.refuse(
            format!("{given} is less than {blocks} blocks"),
            format!("write at least \"{least}\", or make the blocks smaller"),
        );
    }
}

fn read_master(table: &Table<'_>) -> Option<master::Params> {
    let listen = read_http_listen(table, &schema::MASTER_LISTEN, "[\"0.0.0.0:8080\"]");
    let tree: Option<PathBuf> = table.need("tree", "\"/srv/mirror\"").and_then(|v| v.path());
    Some(master::Params { listen, tree: tree? })
}
