//! Config files as people have them: the examples in `deploy/` and in the reference page are
//! accepted, faulty ones give exactly the findings of `tests/golden/config`, and the page tells the
//! truth about keys and defaults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{HostConfig, schema};
use edge::params::{Addresses, Format};
use health_proto::probe::{Expect, HttpQuestion, Method, Place, Question, RecordKind, Scheme};
use health_proto::setup::{Check, Compare, GuardSetup, MasterCheck, Other, Setup, Timing};
use model::{ByteCount, Rate};
use nodemap::Finding;
use rt::admin::AdminListen;
use rt::follow::Source;
use rt::listen::Listen;
use rt::tls::CertificateFiles;

fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

fn accepted(read: Result<HostConfig, Vec<Finding>>) -> HostConfig {
    read.unwrap_or_else(|findings| panic!("{}", lines(&findings)))
}

fn parse(text: &str) -> Result<HostConfig, Vec<Finding>> {
    config::parse(Path::new("etc/host.toml"), text)
}

#[test]
fn the_examples_in_deploy_are_accepted() {
    let load = |name: &str| accepted(config::load(&top("deploy").join(name)));
    let edge = load("edge.toml");
    assert_eq!(edge.host.name.as_str(), "mirror1-au");
    assert_eq!(edge.edge.unwrap().stores[1].path, Path::new("/srv/cacheboy2"));
    assert_eq!(load("dns.toml").dns.unwrap().listen.len(), 2);
    assert_eq!(load("health.toml").health.unwrap().maps, Path::new("/etc/cacheboy/maps"));
    assert_eq!(load("bgp.toml").bgp.unwrap().peers.len(), 2);
    assert_eq!(load("master.toml").master.unwrap().tree, Path::new("/srv/mirror"));
    let examples = std::fs::read_dir(top("deploy")).unwrap();
    let names = examples.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name.ends_with(".toml")) {
        load(&name);
    }
}

/// After a change of wording run with `CACHEBOY_GOLDEN=write`, and read the difference.
#[test]
fn faulty_configs_give_exactly_their_findings() {
    let folder = top("tests/golden/config");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    cases.sort();
    assert!(cases.len() >= 5, "only {} cases found", cases.len());
    let write = std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write");
    for case in cases {
        let text = std::fs::read_to_string(&case).unwrap();
        let findings = config::parse(Path::new(case.file_name().unwrap()), &text)
            .expect_err("a faulty config was accepted");
        let expected = case.with_extension("findings.txt");
        if write {
            std::fs::write(&expected, lines(&findings)).unwrap();
        }
        let expected = std::fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(lines(&findings), expected, "{}", case.display());
        assert!(!lines(&findings).contains("secret"), "a password is repeated");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge.toml");
    let missing = config::load(&file).unwrap_err();
    assert_eq!(
        lines(&missing),
        format!(
            "{}: cannot be read (No such file or directory (os error 2)): name the config file of \
             this host, and check who may read it\n",
            file.display()
        )
    );
    std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    let binary = config::load(&file).unwrap_err();
    assert_eq!(
        lines(&binary),
        format!(
            "{}:1: is not UTF-8 text: byte 0xff: save it as UTF-8 (iconv -f ISO-8859-1 -t UTF-8 \
             turns Latin-1 into it)\n",
            file.display()
        )
    );
    let pipe = dir.path().join("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let zero = dir.path().join("zero.toml");
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    for file in [pipe, zero, dir.path().to_owned()] {
        let endless = config::load(&file).unwrap_err();
        assert_eq!(endless[0].problem, "cannot be read (not a regular file)");
    }
}

const EVERYTHING: &str = r#"
[host]
name = "all"
state_dir = "../state"
[follow]
node_map = ["http://[::1]:8053/node-map", "file:map.json"]
keys = ["RWQBAQEBAQEBAYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"]
[location]
country = "geo/c.mmdb"
asn = "/geo/a.mmdb"
databases_move_percent = 30
routes = "http://192.0.2.60:8054/routes"
routes_hold_s = 60
routes_move_percent = 10
[admin]
listen = "unix:run/admin.sock"
[tls]
publisher = true
[[tls.certificate]]
chain = "tls/a.pem"
key = "/tls/a.key"
[edge]
listen = ["127.0.0.1:80", { address = "[::1]:443", tls = true, http3 = true, congestion = "bbr", rate = "200 Mbit/s" }]
connect_timeout_ms = 10
first_byte_timeout_ms = 20
between_bytes_timeout_ms = 600000
fill_memory = "16 MiB"
store_memory = "64 MiB"
upstream_ca = "ca.pem"
drain_notice_s = 3
drain_deadline_s = 4
[edge.limits]
connections = 1000
head_bytes = "8 KiB"
head_timeout_s = 10
requests_per_client = 16
exempt = ["192.0.2.0/24", "2001:db8::/32"]
copies_per_day = 5
copies_rate = "2 Mbit/s"
[[edge.store]]
path = "cache"
size = "8 MiB"
block = "64 KiB"
[[edge.store]]
path = "/cache"
size = "1 TB"
[[edge.log]]
path = "log/access.log"
[[edge.log]]
path = "/log/access.json"
format = "json"
addresses = "whole"
[edge.bill]
interface = "eth0"
[dns]
listen = ["127.0.0.1:53", "[::1]:53"]
udp_threads = 2
zone_files = "zones"
nsid = "ns1"
version = "Cacheboy 1"
cookie_secret_file = "cookies"
proxy_from = ["192.0.2.8/32"]
[dns.rate_limit]
answers_per_second = 2000
negative_per_second = 10
errors_per_second = 0
refused_per_second = 20
slip = 3
exempt = ["192.0.2.0/24"]
[dns.log]
path = "log/queries.log"
sample = 100
addresses = "whole"
[[dns.sign]]
zone = "cdn.example"
active = ["a.pem"]
published = ["/k/b.private"]
withdrawn = ["old.pem"]
cds = "publish"
validity_s = 86400
[[dns.transfer]]
zone = "static.example"
keys = ["ns2.tsig", "/k/ns3.tsig"]
[health]
listen = ["127.0.0.1:8053"]
maps = "../maps"
maps_move_percent = 60
key = "/etc/map.key"
webhook = "http://127.0.0.1:9000/hook"
[health.probe]
interval_ms = 100
timeout_ms = 100
rise = 1
fall = 100
port = 7080
path = "/health?x=1"
budget_per_s = 50
contact = "noc@cdn.example"
ca = "ca.pem"
[health.probe.connect_to]
"2001:db8:77::11" = "[::1]:7080"
[health.acme]
directory = "https://ca.example/directory"
contact = ["mailto:noc@cdn.example"]
challenge = "dns-01"
ca = "ca.pem"
listen = ["127.0.0.1:8055"]
address = "health1.example:8055"
[[health.peer]]
name = "hc2"
url = "http://192.0.2.61:8053"
key = "RWQBAQEBAQEBAYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
[[health.canary]]
project = "p"
name = "start"
host = "p.example"
path = "/canary"
scheme = "https"
port = 8443
range = "0-3"
status = 206
length = "4 B"
sha256 = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
interval_ms = 1000
timeout_ms = 500
[[health.master]]
project = "p"
path = "/marker"
hash = true
behind_s = 60
[[health.redirector]]
name = "ns1"
address = "192.0.2.53:53"
query = "p.cdn.example"
type = "AAAA"
[[health.outside]]
name = "far"
address = "198.51.100.9:53"
[master]
listen = ["127.0.0.1:8080", { address = "127.0.0.1:8443", tls = true }]
tree = "tree"
[bgp]
asn = 4200000000
identifier = "192.0.2.1"
listen = ["192.0.2.1:179"]
publish = ["127.0.0.1:8054"]
hold_s = 30
[[bgp.peer]]
name = "router1"
address = "192.0.2.254"
asn = "AS64501"
port = 1790
view = "here"
passive = true
local_address = "192.0.2.1"
md5_file = "bgp.key"
hops = 2
max_prefixes_v4 = 100
max_prefixes_v6 = 10
[[bgp.peer]]
name = "router2"
address = "2001:db8::254"
asn = 64502
[[bgp.mrt]]
name = "collector1"
file = "rib.gz"
view = "far"
from = "2001:db8::253"
[[bgp.mrt]]
name = "collector2"
file = "/srv/rib.mrt"
"#;

fn plain(address: &str) -> Listen {
    address.parse::<std::net::SocketAddr>().unwrap().into()
}

/// What the checks above mean.
fn setup() -> Setup {
    let name = |text: &str| text.parse::<model::Name>().unwrap();
    let host = |text: &str| text.parse::<model::HostName>().unwrap();
    let sha256 = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c";
    let expect = Expect { status: 206, length: Some(4), sha256: Some(sha256.parse().unwrap()) };
    let question = HttpQuestion {
        scheme: Scheme::Https,
        method: Method::Get,
        host: "p.example".into(),
        sni: Some(host("p.example")),
        path: "/canary".into(),
        range: Some((0, 3)),
        hash: false,
        expect,
    };
    let timing = Timing { interval_ms: 1000, timeout_ms: 500, ..Timing::default() };
    let (start, question) = (name("start"), Question::Http(question));
    let check = Check { name: start, timing, port: 8443, question };
    let of_masters = MasterCheck {
        name: name("content"),
        timing: Timing::default(),
        path: "/marker".into(),
        method: Method::Get,
        hash: true,
        expect: Expect::default(),
        compare: Compare::Marker { behind_ms: 60_000 },
    };
    let other = |at: &str, question| Other {
        timing: Timing::default(),
        place: Place::Address(at.parse().unwrap()),
        question,
    };
    let query = Question::Dns { name: host("p.cdn.example"), kind: RecordKind::Aaaa };
    Setup {
        guards: GuardSetup { moved_percent: 60, ..GuardSetup::default() },
        budget_per_s: 50,
        checks: [(name("p"), vec![check])].into(),
        masters: [(name("p"), vec![of_masters])].into(),
        redirectors: [(name("ns1"), other("192.0.2.53:53", query))].into(),
        outside: [(name("far"), other("198.51.100.9:53", Question::Tcp))].into(),
        ..Setup::default()
    }
}

#[test]
fn every_key_arrives_where_it_belongs() {
    let config = accepted(parse(EVERYTHING));
    assert_eq!(config.host.state_dir, Path::new("etc/../state"));
    let follow = config.follow.unwrap();
    let key = nodemap::signature::SecretKey::new([1; 32], [1; 8]).unwrap().public_key();
    assert_eq!(follow.keys.0, std::slice::from_ref(&key));
    assert_eq!(
        follow.node_map,
        [
            Source::Http("http://[::1]:8053/node-map".parse().unwrap()),
            Source::File("etc/map.json".into())
        ]
    );
    assert_eq!(config.location.country.unwrap(), Path::new("etc/geo/c.mmdb"));
    assert_eq!(config.location.asn.unwrap(), Path::new("/geo/a.mmdb"));
    let routes = rt::routes::RoutesParams {
        source: rt::routes::RouteSource::Http("http://192.0.2.60:8054/routes".parse().unwrap()),
        hold_s: 60,
        move_percent: 10,
    };
    assert_eq!(config.location.routes, Some(routes));
    assert_eq!(config.location.move_percent, Some(30));
    assert_eq!(config.admin, Some(AdminListen::Unix("etc/run/admin.sock".into())));
    assert!(config.fetches_certificates);
    let edge = config.edge.unwrap();
    let https = Listen {
        address: "[::1]:443".parse().unwrap(),
        tls: true,
        http3: true,
        congestion: Some("bbr".to_owned()),
        rate: Some(Rate(200_000_000)),
    };
    assert_eq!(edge.listen, [plain("127.0.0.1:80"), https]);
    let files = CertificateFiles { chain: "etc/tls/a.pem".into(), key: "/tls/a.key".into() };
    assert_eq!(config.certificates, [files]);
    assert_eq!(edge.timeouts.connect, Duration::from_millis(10));
    assert_eq!(edge.timeouts.first_byte, Duration::from_millis(20));
    assert_eq!(edge.timeouts.between_bytes, Duration::from_secs(600));
    assert_eq!(edge.fill_memory, ByteCount(16 << 20));
    assert_eq!(edge.store_memory, ByteCount(64 << 20));
    assert_eq!(edge.pace.notice, Duration::from_secs(3));
    assert_eq!(edge.pace.deadline, Duration::from_secs(4));
    assert_eq!(edge.upstream_ca.unwrap(), Path::new("etc/ca.pem"));
    let limits = edge::LimitParams {
        connections: Some(1000),
        head_bytes: ByteCount(8 << 10),
        head_timeout: Duration::from_secs(10),
        requests_per_client: Some(16),
        exempt: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        copies_per_day: Some(5),
        copies_rate: Rate(2_000_000),
    };
    assert_eq!(edge.limits, limits);
    let store = |path: &str, size, block_bytes| edge::StoreParams {
        path: path.into(),
        size: ByteCount(size),
        block_bytes,
    };
    assert_eq!(
        edge.stores,
        [store("etc/cache", 8 << 20, 64 << 10), store("/cache", 1_000_000_000_000, 256 << 10)]
    );
    let json = edge::LogParams {
        format: Format::Json,
        addresses: Addresses::Whole,
        ..edge::LogParams::new("/log/access.json".into())
    };
    assert_eq!(edge.logs, [edge::LogParams::new("etc/log/access.log".into()), json]);
    assert_eq!(edge.bill_interface.as_deref(), Some("eth0"));
    let dns = config.dns.unwrap();
    assert_eq!(dns.listen, ["127.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
    assert_eq!(dns.udp_threads, Some(2));
    assert_eq!(dns.zone_files.as_deref(), Some(Path::new("etc/zones")));
    assert_eq!((dns.nsid.as_deref(), dns.version.as_deref()), (Some("ns1"), Some("Cacheboy 1")));
    assert_eq!(dns.cookie_secret_file.as_deref(), Some(Path::new("etc/cookies")));
    assert_eq!(dns.proxy_from, ["192.0.2.8/32".parse().unwrap()]);
    let rates = dns::Rates {
        per_second: [2000, 10, 0, 20],
        slip: 3,
        exempt: vec!["192.0.2.0/24".parse().unwrap()],
    };
    assert_eq!(dns.rates, rates);
    let keys = vec!["etc/ns2.tsig".into(), "/k/ns3.tsig".into()];
    let transfer = dns::TransferParams { zone: "static.example".parse().unwrap(), keys };
    assert_eq!(dns.transfers, [transfer]);
    let log = dns.log.unwrap();
    assert_eq!((log.path.as_path(), log.sample), (Path::new("etc/log/queries.log"), 100));
    assert_eq!(log.addresses, Addresses::Whole);
    let [signed] = dns.sign.as_slice() else { panic!("one signed zone") };
    assert_eq!(
        (signed.zone.as_str(), signed.validity_s, signed.cds),
        ("cdn.example", 86_400, dns::Cds::Publish)
    );
    let keys: Vec<_> = signed.keys.iter().map(|key| (key.path.as_path(), key.duty)).collect();
    let expected = [
        (Path::new("etc/a.pem"), dns::Duty::Active),
        (Path::new("/k/b.private"), dns::Duty::Published),
        (Path::new("etc/old.pem"), dns::Duty::Withdrawn),
    ];
    assert_eq!(keys, expected);
    let health = config.health.unwrap();
    assert_eq!(health.listen, ["127.0.0.1:8053".parse().unwrap()]);
    assert_eq!(health.maps, Path::new("etc/../maps"));
    assert_eq!(health.setup.guards.moved_percent, 60);
    assert_eq!(health.location.asn.as_deref(), Some(Path::new("/geo/a.mmdb")));
    assert_eq!(health.key.as_deref(), Some(Path::new("/etc/map.key")));
    assert_eq!(health.probe.timing.interval_ms, 100);
    assert_eq!(health.probe.timing.timeout_ms, 100);
    assert_eq!(health.probe.timing.rise, 1);
    assert_eq!(health.probe.timing.fall, 100);
    assert_eq!(health.probe.port, 7080);
    assert_eq!(health.probe.path, "/health?x=1");
    assert_eq!(health.probe.contact.as_deref(), Some("noc@cdn.example"));
    assert_eq!(health.probe.ca.as_deref(), Some(Path::new("etc/ca.pem")));
    let connect_to =
        BTreeMap::from([("2001:db8:77::11".parse().unwrap(), "[::1]:7080".parse().unwrap())]);
    assert_eq!(health.probe.connect_to, connect_to);
    assert_eq!(health.setup, setup());
    assert_eq!(health.webhook.unwrap().to_string(), "http://127.0.0.1:9000/hook");
    let [peer] = health.peers.as_slice() else { panic!("one peer") };
    assert_eq!(
        (peer.name.as_str(), peer.url.to_string()),
        ("hc2", "http://192.0.2.61:8053/".into())
    );
    assert_eq!(peer.key, key);
    let master = config.master.unwrap();
    let https = Listen { tls: true, ..plain("127.0.0.1:8443") };
    assert_eq!(master.listen, [plain("127.0.0.1:8080"), https]);
    let acme = health::AcmeParams {
        directory: "https://ca.example/directory".parse().unwrap(),
        contact: vec!["mailto:noc@cdn.example".into()],
        challenge: health::Challenge::Dns01,
        ca: Some("etc/ca.pem".into()),
        hand_out: Some(health::HandOutParams {
            listen: vec!["127.0.0.1:8055".parse().unwrap()],
            address: "health1.example:8055".into(),
        }),
    };
    assert_eq!(health.acme, Some(acme));
    assert_eq!(master.tree, Path::new("etc/tree"));
    let bgp = config.bgp.unwrap();
    assert_eq!((bgp.asn.get(), bgp.identifier.to_string()), (4_200_000_000, "192.0.2.1".into()));
    assert_eq!(bgp.listen, ["192.0.2.1:179".parse().unwrap()]);
    assert_eq!((bgp.publish, bgp.hold_s), (vec!["127.0.0.1:8054".parse().unwrap()], 30));
    let name = |text: &str| text.parse::<model::Name>().unwrap();
    let peer = bgp::PeerParams {
        name: name("router1"),
        address: "192.0.2.254".parse().unwrap(),
        port: 1790,
        asn: model::Asn::new(64501).unwrap(),
        view: name("here"),
        passive: true,
        local_address: Some("192.0.2.1".parse().unwrap()),
        md5_file: Some("etc/bgp.key".into()),
        hops: Some(2),
        max_prefixes: [100, 10],
    };
    let plain = bgp::PeerParams {
        name: name("router2"),
        address: "2001:db8::254".parse().unwrap(),
        port: bgp::PORT,
        asn: model::Asn::new(64502).unwrap(),
        view: name("router2"),
        passive: false,
        local_address: None,
        md5_file: None,
        hops: None,
        max_prefixes: bgp::PREFIXES_MAX,
    };
    assert_eq!(bgp.peers, [peer, plain]);
    let file = bgp::MrtParams {
        name: name("collector1"),
        file: "etc/rib.gz".into(),
        view: name("far"),
        from: Some("2001:db8::253".parse().unwrap()),
    };
    let plain = bgp::MrtParams {
        name: name("collector2"),
        file: "/srv/rib.mrt".into(),
        view: name("collector2"),
        from: None,
    };
    assert_eq!(bgp.files, [file, plain]);
}

#[test]
fn every_key_of_the_schema_is_in_the_test_above() {
    for section in schema::SECTIONS {
        for key in section.keys {
            let name = key.name;
            let given = [
                format!("\n{name} = "),
                format!("{{ {name} = "),
                format!(", {name} = "),
                format!("[{name}"),
                format!(".{name}]"),
            ];
            let placeholder = key.name == "ADDRESS";
            assert!(
                placeholder || given.iter().any(|form| EVERYTHING.contains(form)),
                "{} {} is not tested",
                section.header,
                key.name
            );
        }
    }
}

#[test]
fn the_reference_page_has_every_key_as_the_code_knows_it() {
    let page = std::fs::read_to_string(top("docs/config.md")).unwrap();
    for section in schema::SECTIONS {
        let wanted = format!("### `{}`\n\n", section.header);
        let (_, rest) = page
            .split_once(&wanted)
            .unwrap_or_else(|| panic!("docs/config.md has no heading {wanted:?}"));
        let part = rest.split("\n### ").next().unwrap();
        let table = section.markdown();
        assert!(part.contains(&table), "docs/config.md: under {wanted:?} must stand\n{table}");
    }
}

#[test]
fn the_examples_of_the_reference_page_are_accepted() {
    let page = std::fs::read_to_string(top("docs/config.md")).unwrap();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        accepted(parse(example));
    }
}

#[test]
fn the_first_edge_and_its_checker_are_accepted() {
    let page = std::fs::read_to_string(top("docs/first-edge.md")).unwrap();
    let hosts: Vec<&str> = page
        .split("```toml\n")
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|text| text.starts_with("[host]"))
        .collect();
    let names: Vec<String> =
        hosts.iter().map(|text| accepted(parse(text)).host.name.to_string()).collect();
    assert_eq!(names, ["health1", "edge1"]);
}

#[test]
fn the_defaults_of_the_reference_page_are_those_of_the_code() {
    let text = "[host]\nname = \"all\"\nstate_dir = \"s\"\n[follow]\nnode_map = [\"file:m\"]\n\
                [edge]\nlisten = [\"127.0.0.1:80\"]\nstore = [{ path = \"c\", size = \"1 GiB\" }]\n\
                [health]\nlisten = [\"127.0.0.1:81\"]\nmaps = \"maps\"\n";
    let config = accepted(parse(text));
    let (edge, health) = (config.edge.unwrap(), config.health.unwrap());
    assert_eq!((config.location, config.admin), (rt::steering::LocationParams::default(), None));
    let size = |bytes| format!("`\"{}\"`", ByteCount(bytes));
    let millis = |duration: Duration| duration.as_millis().to_string();
    let timing = health.probe.timing;
    for (header, key, value) in [
        ("[edge]", "connect_timeout_ms", millis(edge.timeouts.connect)),
        ("[edge]", "first_byte_timeout_ms", millis(edge.timeouts.first_byte)),
        ("[edge]", "between_bytes_timeout_ms", millis(edge.timeouts.between_bytes)),
        ("[edge]", "fill_memory", size(edge.fill_memory.0)),
        ("[edge]", "store_memory", size(edge.store_memory.0)),
        ("[[edge.store]]", "block", size(edge.stores[0].block_bytes.into())),
        ("[health.probe]", "interval_ms", timing.interval_ms.to_string()),
        ("[health.probe]", "timeout_ms", timing.timeout_ms.to_string()),
        ("[health.probe]", "rise", timing.rise.to_string()),
        ("[health.probe]", "fall", timing.fall.to_string()),
        ("[health.probe]", "port", health.probe.port.to_string()),
        ("[health.probe]", "path", format!("`{:?}`", health.probe.path)),
    ] {
        let section = schema::SECTIONS.iter().find(|s| s.header == header).unwrap();
        let known = section.keys.iter().find(|k| k.name == key).unwrap();
        assert_eq!(known.default, value, "{header} {key}");
    }
}

#[test]
fn a_finding_on_what_a_key_names_stands_at_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("master.toml");
    std::fs::write(&file, "[master]\nlisten = [\"127.0.0.1:80\"]\n\ntree = \"tree\"\n").unwrap();
    let opened = config::ConfigFile::open(&file).unwrap();
    assert_eq!(lines(&opened.config().unwrap_err()), lines(&config::load(&file).unwrap_err()));
    for (keys, place) in [
        (&["master", "tree"][..], "4: master.tree"),
        (&["master", "gone"], "1: master.gone"),
        (&["gone"], " gone"),
    ] {
        let finding = opened.finding(keys, "is wrong".into(), "mend it".into());
        let expected = format!("{}:{place}: is wrong: mend it", file.display());
        assert_eq!(finding.to_string(), expected);
    }
}
