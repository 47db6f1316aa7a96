//! `[health]` -> parameters.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use health::{AcmeParams, Challenge, HandOutParams, Params, Peer, ProbeParams};
use health_proto::Setup;
use health_proto::probe::{
    Expect, HttpQuestion, Method, Place, Question, RecordKind, Scheme, Sha256,
};
use health_proto::setup::{Check, Compare, MasterCheck, Other, Timing};
use model::Name;
use nodemap::toml_read::{Table, Value};
use rt::steering::LocationParams;

use super::{one_of, read_listen};
use crate::schema::{self, limits};

pub(super) fn read(table: &Table<'_>) -> Option<Params> {
    let listen = read_listen(table, "[\"192.0.2.60:8053\"]");
    let maps = table.need("maps", "\"/etc/cacheboy/maps\"").and_then(|v| v.path());
    let of_probe = table.get("probe").and_then(|v| v.table(&schema::HEALTH_PROBE));
    let probe = of_probe.as_ref().map(read_probe).unwrap_or_default();
    let key = table.get("key").and_then(|v| v.path());
    let setup = read_setup(table, of_probe.as_ref());
    let peers = tables(table, "peer", read_peer);
    let webhook = table.get("webhook").and_then(|v| read_webhook(&v));
    if let Some(value) = table.get("peer")
        && key.is_none()
    {
        value.refuse("needs a key of this checker too", "add key = FILE to [health]");
    }
    let of_acme = table.get("acme").and_then(|v| v.table(&schema::HEALTH_ACME));
    let acme = of_acme.and_then(|table| read_acme(&table));
    let location = LocationParams::default();
    Some(Params { listen, maps: maps?, key, probe, location, setup, peers, webhook, acme })
}

fn read_probe(table: &Table<'_>) -> ProbeParams {
    let mut probe = ProbeParams::default();
    let number = |key: &'static str, range, default: u32| {
        table.get(key).and_then(|v| v.u32_in(range)).unwrap_or(default)
    };
    let millis = |ms: u64| u32::try_from(ms).unwrap_or(u32::MAX);
    let interval = number("interval_ms", 100..=3_600_000, millis(probe.timing.interval_ms));
    probe.timing.interval_ms = interval.into();
    let timeout = number("timeout_ms", 10..=interval, millis(probe.timing.timeout_ms));
    probe.timing.timeout_ms = timeout.into();
    probe.timing.rise = number("rise", 1..=100, probe.timing.rise);
    probe.timing.fall = number("fall", 1..=100, probe.timing.fall);
    let port = number("port", 1..=u16::MAX.into(), probe.port.into());
    probe.port = u16::try_from(port).unwrap_or(probe.port);
    // The default timeout is longer than a short interval may bear.
    if probe.timing.check().is_err() && table.get("timeout_ms").is_none() {
        table.refuse(
            format!("timeout_ms is {timeout} when it is not given, more than interval_ms"),
            format!("add timeout_ms = {} or less", interval / 2),
        );
    }
    if let Some(path) = table.get("path").and_then(|v| read_url_path(&v)) {
        probe.path = path;
    }
    probe.contact = table.get("contact").and_then(|v| Some(v.text()?.to_owned()));
    probe.ca = table.get("ca").and_then(|v| v.path());
    if let Some(table) = table.get("connect_to").and_then(|v| v.table(&schema::HEALTH_CONNECT_TO)) {
        probe.connect_to = read_connect_to(&table);
    }
    probe
}

fn read_url_path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if !text.starts_with('/') || text.parse::<http::uri::PathAndQuery>().is_err() {
        value.refuse("is no URL path", "write it from its / on: \"/.well-known/cacheboy/health\"");
        return None;
    }
    Some(text.to_owned())
}

fn read_connect_to(table: &Table<'_>) -> BTreeMap<IpAddr, SocketAddr> {
    let mut read = BTreeMap::new();
    for (word, value) in table.entries() {
        let address = word.text().parse::<IpAddr>();
        if address.is_err() {
            word.refuse("is no IP address", "write a node's address as the maps have it");
        }
        if let (Ok(address), Some(to)) = (address, value.socket_addr())
            && read.insert(address, to).is_some()
        {
            word.refuse("is there already, written differently", "keep one of the two");
        }
    }
    read
}

/// Whom to ask besides the nodes' own pages.
fn read_setup(table: &Table<'_>, of_probe: Option<&Table<'_>>) -> Setup {
    let mut setup = Setup::default();
    let budget = of_probe.and_then(|t| t.get("budget_per_s")?.u32_in(limits::PROBES_PER_SECOND));
    setup.budget_per_s = budget.unwrap_or(setup.budget_per_s);
    let moved = table.get("maps_move_percent").and_then(|v| v.u32_in(limits::MAPS_MOVE_PERCENT));
    setup.guards.moved_percent = moved.unwrap_or(setup.guards.moved_percent);
    for (project, check) in tables(table, "canary", read_canary) {
        setup.checks.entry(project).or_default().push(check);
    }
    for (project, check) in tables(table, "master", read_master_check) {
        setup.masters.entry(project).or_default().push(check);
    }
    setup.outside = tables(table, "outside", read_outside).into_iter().collect();
    setup.redirectors = tables(table, "redirector", read_redirector).into_iter().collect();
    setup
}

fn tables<T>(
    table: &Table<'_>,
    key: &'static str,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> Vec<T> {
    let value = table.get(key);
    value.map(|v| v.tables_of(limits::CHECKS, "checks", |v| read(v))).unwrap_or_default()
}

fn read_canary(value: &Value<'_>) -> Option<(Name, Check)> {
    let table = value.table(&schema::HEALTH_CANARY)?;
    let project = table.need("project", "\"videolan\"").and_then(|v| v.name());
    let host = table.need("host", "\"download.videolan.example\"").and_then(|v| v.host_name());
    let path = table.need("path", "\"/canary\"").and_then(|v| read_url_path(&v));
    let scheme = table.get("scheme").and_then(|v| read_scheme(&v)).unwrap_or(Scheme::Http);
    let port = match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    let port = number(&table, "port", 1..=u16::MAX.into(), port);
    let range = table.get("range").and_then(|v| read_range(&v));
    let status = if range.is_some() { 206 } else { 200 };
    let status = number(&table, "status", 100..=599, status);
    let expect = Expect {
        status: u16::try_from(status).unwrap_or_default(),
        length: table.get("length").and_then(|v| v.bytes()).map(|bytes| bytes.0),
        sha256: table.get("sha256").and_then(|v| v.parsed::<Sha256>("a SHA-256")),
    };
    let (host, path) = (host?, path?);
    let question = HttpQuestion {
        scheme,
        method: Method::Get,
        host: host.to_string(),
        sni: Some(host),
        path,
        range,
        hash: false,
        expect,
    };
    let check = Check {
        name: name_of(&table, "canary")?,
        timing: read_timing(&table),
        port: u16::try_from(port).unwrap_or_default(),
        question: Question::Http(question),
    };
    Some((project?, check))
}

fn read_master_check(value: &Value<'_>) -> Option<(Name, MasterCheck)> {
    let table = value.table(&schema::HEALTH_MASTER)?;
    let project = table.need("project", "\"videolan\"").and_then(|v| v.name());
    let path = table.need("path", "\"/SHA256SUMS\"").and_then(|v| read_url_path(&v));
    let behind_s = table.get("behind_s").and_then(|v| v.u32_in(limits::BEHIND_S));
    let hash = table.get("hash").and_then(|v| v.bool()).unwrap_or_default();
    let compare = match behind_s {
        Some(s) => Compare::Marker { behind_ms: u64::from(s).saturating_mul(1000) },
        None => Compare::Content,
    };
    let check = MasterCheck {
        name: name_of(&table, "content")?,
        timing: read_timing(&table),
        path: path?,
        method: if hash { Method::Get } else { Method::Head },
        hash,
        expect: Expect::default(),
        compare,
    };
    Some((project?, check))
}

fn read_outside(value: &Value<'_>) -> Option<(Name, Other)> {
    let table = value.table(&schema::HEALTH_OUTSIDE)?;
    let name = table.need("name", "\"quad9\"").and_then(|v| v.name());
    let at = table.need("address", "\"192.0.2.9:53\"").and_then(|v| v.socket_addr());
    let (timing, place) = (Timing::default(), Place::Address(at?));
    Some((name?, Other { timing, place, question: Question::Tcp }))
}

fn read_webhook(value: &Value<'_>) -> Option<http::Uri> {
    let read = value.text()?.parse::<http::Uri>().ok();
    let read = read.filter(|read| read.scheme_str() == Some("http") && read.authority().is_some());
    if read.is_none() {
        // It may carry a password, so it is not repeated.
        let remedy = "write http://HOST[:PORT]/PATH; a proxy on this host can take it on over TLS";
        value.refuse("is no URL that can be posted to", remedy);
    }
    read
}

fn read_acme(table: &Table<'_>) -> Option<AcmeParams> {
    const EXAMPLE: &str = "\"https://acme-staging-v02.api.letsencrypt.org/directory\"";
    let directory = table.need("directory", EXAMPLE).and_then(|v| read_directory(&v));
    let contact = table.get("contact");
    let contact = contact.map(|v| v.list_of(limits::CONTACTS, "contacts", read_contact));
    let challenges = [("http-01", Challenge::Http01), ("dns-01", Challenge::Dns01)];
    let challenge = table.get("challenge").and_then(|v| one_of(&v, "challenge", challenges));
    let (ca, hand_out) = (table.get("ca").and_then(|v| v.path()), read_hand_out(table));
    Some(AcmeParams {
        directory: directory?,
        contact: contact.unwrap_or_default(),
        challenge: challenge.unwrap_or_default(),
        ca,
        hand_out,
    })
}

fn read_hand_out(table: &Table<'_>) -> Option<HandOutParams> {
    const EXAMPLE: &str = "\"health1.example:8054\"";
    if table.get("listen").is_none() {
        if let Some(value) = table.get("address") {
            value.refuse("is of no use alone", "add listen = [\"ADDRESS:PORT\"], or take it out");
        }
        return None;
    }
    let listen = read_listen(table, "[\"192.0.2.60:8054\"]");
    let address = table.need("address", EXAMPLE)?;
    let text = address.text()?;
    let parsed = text.parse::<http::uri::Authority>().ok();
    let has_port = parsed.is_some_and(|a| a.port_u16().is_some() && !a.as_str().contains('@'));
    if !has_port {
        address.refuse("is no HOST:PORT", format!("write it as nodes reach it: {EXAMPLE}"));
    }
    has_port.then(|| HandOutParams { listen, address: text.to_owned() })
}

fn read_directory(value: &Value<'_>) -> Option<http::Uri> {
    let read = value.text()?.parse::<http::Uri>().ok();
    let read = read.filter(|read| read.scheme_str() == Some("https") && read.authority().is_some());
    if read.is_none() {
        value.refuse("is no URL of a directory", "write https://HOST[:PORT]/PATH");
    }
    read
}

fn read_contact(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let is_mail = text.strip_prefix("mailto:").is_some_and(|address| address.contains('@'));
    if !is_mail {
        value.refuse("is no contact", "write \"mailto:NAME@HOST\"");
    }
    is_mail.then(|| text.to_owned())
}

fn read_peer(value: &Value<'_>) -> Option<Peer> {
    let table = value.table(&schema::HEALTH_PEER)?;
    let name = table.need("name", "\"hc2\"").and_then(|v| v.name());
    let key = table.need("key", "\"RW...\"").and_then(|v| v.parsed("a public key"));
    let url = table.need("url", "\"http://192.0.2.61:8053\"")?;
    let read = url.text()?.parse::<http::Uri>().ok();
    let read = read.filter(|read| read.scheme_str() == Some("http") && read.authority().is_some());
    if read.is_none() {
        url.refuse("is no URL of a checker", "write http://HOST:PORT");
    }
    Some(Peer { name: name?, url: read?, key: key? })
}

fn read_redirector(value: &Value<'_>) -> Option<(Name, Other)> {
    let table = value.table(&schema::HEALTH_REDIRECTOR)?;
    let name = table.need("name", "\"ns1\"").and_then(|v| v.name());
    let at = table.need("address", "\"192.0.2.53:53\"").and_then(|v| v.socket_addr());
    let query = table.need("query", "\"videolan.cdn.example\"").and_then(|v| v.host_name());
    let kind = table.get("type").and_then(|v| read_kind(&v)).unwrap_or(RecordKind::A);
    let question = Question::Dns { name: query?, kind };
    let (timing, place) = (Timing::default(), Place::Address(at?));
    Some((name?, Other { timing, place, question }))
}

/// The name of a check; `default` is one.
fn name_of(table: &Table<'_>, default: &str) -> Option<Name> {
    match table.get("name") {
        Some(value) => value.name(),
        None => default.parse().ok(),
    }
}

fn number(
    table: &Table<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<u32>,
    default: u32,
) -> u32 {
    table.get(key).and_then(|v| v.u32_in(range)).unwrap_or(default)
}

fn read_timing(table: &Table<'_>) -> Timing {
    let default = Timing::default();
    let interval = number(table, "interval_ms", 100..=3_600_000, 10_000);
    let timeout = number(table, "timeout_ms", 10..=interval, interval.min(2000));
    Timing { interval_ms: interval.into(), timeout_ms: timeout.into(), ..default }
}

fn read_scheme(value: &Value<'_>) -> Option<Scheme> {
    match value.text()? {
        "http" => Some(Scheme::Http),
        "https" => Some(Scheme::Https),
        _ => {
            value.refuse("is no scheme", "write \"http\" or \"https\"");
            None
        }
    }
}

fn read_kind(value: &Value<'_>) -> Option<RecordKind> {
    match value.text()? {
        "SOA" => Some(RecordKind::Soa),
        "A" => Some(RecordKind::A),
        "AAAA" => Some(RecordKind::Aaaa),
        _ => {
            value.refuse("is no type that is asked for", "write \"SOA\", \"A\" or \"AAAA\"");
            None
        }
    }
}

fn read_range(value: &Value<'_>) -> Option<(u64, u64)> {
    let ends = value.text()?.split_once('-');
    let read = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let read = read.filter(|(first, last): &(u64, u64)| first <= last);
    if read.is_none() {
        value.refuse("is no range", "write the first and the last byte: \"0-65535\"");
    }
    read
}
