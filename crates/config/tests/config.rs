//! Config files as people have them: the examples in `deploy/` and in the reference page are
//! accepted, faulty ones give exactly the findings of `tests/golden/config`, and the page tells the
//! truth about keys and defaults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{HostConfig, schema};
use edge::params::{Addresses, Format};
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
[location]
country = "geo/c.mmdb"
asn = "/geo/a.mmdb"
[admin]
listen = "unix:run/admin.sock"
[tls]
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
[health]
listen = ["127.0.0.1:8053"]
maps = "../maps"
[health.probe]
interval_ms = 100
timeout_ms = 100
rise = 1
fall = 100
port = 7080
path = "/health?x=1"
[health.probe.connect_to]
"2001:db8:77::11" = "[::1]:7080"
[master]
listen = ["127.0.0.1:8080", { address = "127.0.0.1:8443", tls = true }]
tree = "tree"
"#;

fn plain(address: &str) -> Listen {
    address.parse::<std::net::SocketAddr>().unwrap().into()
}

#[test]
fn every_key_arrives_where_it_belongs() {
    let config = accepted(parse(EVERYTHING));
    assert_eq!(config.host.state_dir, Path::new("etc/../state"));
    assert_eq!(
        config.follow.unwrap().node_map,
        [
            Source::Http("http://[::1]:8053/node-map".parse().unwrap()),
            Source::File("etc/map.json".into())
        ]
    );
    assert_eq!(config.location.country.unwrap(), Path::new("etc/geo/c.mmdb"));
    assert_eq!(config.location.asn.unwrap(), Path::new("/geo/a.mmdb"));
    assert_eq!(config.admin, Some(AdminListen::Unix("etc/run/admin.sock".into())));
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
    let health = config.health.unwrap();
    assert_eq!(health.listen, ["127.0.0.1:8053".parse().unwrap()]);
    assert_eq!(health.maps, Path::new("etc/../maps"));
    assert_eq!(health.probe.timing.interval_ms, 100);
    assert_eq!(health.probe.timing.timeout_ms, 100);
    assert_eq!(health.probe.timing.rise, 1);
    assert_eq!(health.probe.timing.fall, 100);
    assert_eq!(health.probe.port, 7080);
    assert_eq!(health.probe.path, "/health?x=1");
    let connect_to =
        BTreeMap::from([("2001:db8:77::11".parse().unwrap(), "[::1]:7080".parse().unwrap())]);
    assert_eq!(health.probe.connect_to, connect_to);
    let master = config.master.unwrap();
    let https = Listen { tls: true, ..plain("127.0.0.1:8443") };
    assert_eq!(master.listen, [plain("127.0.0.1:8080"), https]);
    assert_eq!(master.tree, Path::new("etc/tree"));
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
