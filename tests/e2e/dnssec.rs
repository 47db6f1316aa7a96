//! Signed zones before foreign judges: a validating resolver (unbound) with our key as its trust
//! anchor, delv, and drill.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::{Family, NodeState, State};
use nodemap::{NodeMap, NodeStates};
use support::{cacheboy, output, until};

const SERVER: &str = "127.88.0.1";
const RESOLVER: &str = "127.88.0.2";
const PORT: &str = "7053";

const MAP: &str = r#"
[site.here]

[node.one]
site = "here"
addresses = ["203.0.113.10", "2001:db8::10"]

[node.four]
site = "here"
addresses = ["203.0.113.20"]

[pool]
all = { one = 1 }
four = { four = 1 }

[map.default]
default = ["all"]
[map.four]
default = ["four"]

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."cdn.example".host]
"ns1.cdn.example" = ["192.0.2.53"]
"www.below.cdn.example" = ["192.0.2.80"]
[zone."cdn.example".txt]
"two.cdn.example" = ["second", "first"]

[zone."plain.cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."plain.cdn.example".txt]
"plain.cdn.example" = ["not signed"]

[zone."ed.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."ed.example".txt]
"ed.example" = ["signed by two algorithms"]

[zone."wrong.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."wrong.example".txt]
"wrong.example" = ["signed by another key"]

[project.files]
name = "files.cdn.example"
hosts = ["files.example"]
map = "default"
https_record = true
[project.files.master.here]
url = "http://127.0.0.1:7082"

[project.four]
name = "four.cdn.example"
hosts = ["four.example"]
map = "four"
[project.four.master.here]
url = "http://127.0.0.1:7082"
"#;

const ZONE: &str = "\
$ORIGIN cdn.example.
$TTL 60
*.wild TXT \"any\"
alias CNAME files
deep CNAME x.wild
child NS ns.child
ns.child A 192.0.2.99
secure NS ns.child
secure DS 12345 13 2 0102030405060708091011121314151617181920212223242526272829303132
";

const CONFIG: &str = r#"
[host]
name = "ns1"
state_dir = "state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["file:map.json"]

[dns]
listen = ["SERVER:PORT"]
zone_files = "zones"

[[dns.sign]]
zone = "cdn.example"
active = ["one.pem"]
published = ["next.pem"]
cds = "publish"

[[dns.sign]]
zone = "ed.example"
active = ["ed.pem"]
withdrawn = ["old.pem"]

[[dns.sign]]
zone = "wrong.example"
active = ["wrong.pem"]

[[dns.sign]]
zone = "misspelt.example"
active = ["misspelt.pem"]
"#;

const UNBOUND: &str = r#"
server:
  interface: RESOLVER@PORT
  access-control: 127.0.0.0/8 allow
  do-ip6: no
  do-not-query-localhost: no
  outgoing-interface: RESOLVER
  username: ""
  chroot: ""
  pidfile: ""
  directory: "."
  use-syslog: no
  module-config: "validator iterator"
  val-log-level: 2
"#;

/// A node map with every node up.
fn node_map() -> String {
    let map = nodemap::admin::load(&[("all.toml".into(), MAP.to_owned())]).unwrap();
    let up = NodeState::new(State::Up, "test", 0);
    let states = map.nodes.iter().map(|(name, node)| {
        let of = |family| node.addresses_of(family).next().map(|_| up.clone());
        (name.clone(), NodeStates { v4: of(Family::V4), v6: of(Family::V6) })
    });
    let states: BTreeMap<_, _> = states.collect();
    let map = NodeMap::new(1_790_000_000_000, "test", map, states);
    serde_json::to_string(&map).unwrap()
}

/// The server and the resolver; they end with this value.
struct Running {
    dir: tempfile::TempDir,
    children: Vec<Child>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = |text: &str| {
            text.replace("SERVER", SERVER).replace("RESOLVER", RESOLVER).replace("PORT", PORT)
        };
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), place(text)).unwrap();
        write("map.json", &node_map());
        fs::create_dir(dir.path().join("zones")).unwrap();
        write("zones/cdn.example.zone", ZONE);
        write("dns.toml", CONFIG);
        keygen(dir.path(), "cdn.example", "one.pem", "p256");
        keygen(dir.path(), "cdn.example", "next.pem", "p256");
        keygen(dir.path(), "ed.example", "ed.pem", "ed25519");
        keygen(dir.path(), "ed.example", "old.pem", "p256");
        keygen(dir.path(), "wrong.example", "wrong.pem", "p256");
        keygen(dir.path(), "misspelt.example", "misspelt.pem", "p256");
        let stranger = keygen(dir.path(), "wrong.example", "stranger.pem", "p256");

        let ran =
            output(cacheboy().args(["dnssec", "ds", "--config"]).arg(dir.path().join("dns.toml")));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let unknown = ["wrong.", "misspelt."];
        let is_ds = |line: &&str| {
            line.contains(" DS ") && !unknown.iter().any(|zone| line.starts_with(zone))
        };
        let anchors: Vec<&str> = ran.out.lines().chain(stranger.lines()).filter(is_ds).collect();
        assert_eq!(anchors.len(), 3, "{}", ran.out);
        let wrong = stranger.lines().filter(|line| line.contains(" DS "));
        let mut unbound = place(UNBOUND);
        for anchor in anchors.into_iter().chain(wrong) {
            unbound.push_str(&format!("  trust-anchor: \"{anchor}\"\n"));
        }
        for zone in ["cdn.example", "plain.cdn.example", "ed.example", "wrong.example"] {
            unbound.push_str(&format!(
                "stub-zone:\n  name: \"{zone}\"\n  stub-addr: {SERVER}@{PORT}\n"
            ));
        }
        write("unbound.conf", &unbound);

        let log = |name: &str| fs::File::create(dir.path().join(name)).unwrap();
        let mut server = cacheboy();
        server.args(["dns", "--end-with-parent", "--config", "dns.toml"]).current_dir(dir.path());
        let server = server.stderr(log("dns.log")).stdout(Stdio::null()).spawn().unwrap();
        let mut resolver = Command::new("unbound");
        resolver.args(["-d", "-c", "unbound.conf"]).current_dir(dir.path());
        let resolver = resolver.stderr(log("unbound.log")).stdout(Stdio::null()).spawn().unwrap();
        let running = Self { dir, children: vec![server, resolver] };
        until("the server answers", || dig(SERVER, &["cdn.example", "SOA"]).status == "NOERROR");
        until("the resolver answers", || !dig(RESOLVER, &["cdn.example", "SOA"]).status.is_empty());
        running
    }

    fn logs(&self) -> String {
        ["dns.log", "unbound.log"]
            .map(|name| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default())
            .join("\n")
    }
}

/// Makes a key; gives what is printed of it.
fn keygen(dir: &Path, zone: &str, file: &str, algorithm: &str) -> String {
    let mut command = cacheboy();
    command.args(["dnssec", "keygen", zone, file, "--algorithm", algorithm]).current_dir(dir);
    let ran = output(&mut command);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out
}

/// An answer as dig shows it.
struct Answer {
    status: String,
    /// The resolver vouches for it.
    authentic: bool,
    text: String,
}

impl Answer {
    /// The data of the records of the answer section with this type.
    fn data(&self, rtype: &str) -> Vec<&str> {
        let section = self.text.split(";; ANSWER SECTION:").nth(1).unwrap_or_default();
        let lines = section.lines().skip(1).take_while(|line| !line.is_empty());
        let fields = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.nth(3)? == rtype).then(|| line.split_once(rtype).unwrap().1.trim())
        });
        let mut data: Vec<&str> = fields.collect();
        data.sort_unstable();
        data
    }
}

fn dig(server: &str, question: &[&str]) -> Answer {
    let mut command = Command::new("dig");
    command.args(["-p", PORT, "+tries=1", "+time=5", "+dnssec"]).arg(format!("@{server}"));
    let text = output(command.args(question)).out;
    let behind = |mark: &str| text.split(mark).nth(1).unwrap_or_default();
    let status = behind("status: ").split(',').next().unwrap_or_default().to_owned();
    let flags = behind("flags: ").split(';').next().unwrap_or_default();
    let authentic = flags.split_whitespace().any(|flag| flag == "ad");
    Answer { status, authentic, text }
}

#[test]
fn foreign_judges_accept_what_is_signed_and_nothing_else() {
    let running = Running::start();
    let ask = |question: &[&str]| dig(RESOLVER, question);
    let vouched = |question: &[&str]| {
        let answer = ask(question);
        let all = (answer.status.as_str(), answer.authentic);
        assert_eq!(all, ("NOERROR", true), "{question:?}\n{}{}", answer.text, running.logs());
        answer
    };

    // Steered names, and what stands for them.
    assert_eq!(vouched(&["files.cdn.example", "A"]).data("A"), ["203.0.113.10"]);
    assert_eq!(vouched(&["files.cdn.example", "AAAA"]).data("AAAA"), ["2001:db8::10"]);
    assert_eq!(
        vouched(&["files.cdn.example", "HTTPS"]).data("HTTPS"),
        ["1 . alpn=\"h2\" ipv4hint=203.0.113.10 ipv6hint=2001:db8::10"]
    );
    assert_eq!(vouched(&["FILES.cdn.Example", "A", "+tcp"]).data("A"), ["203.0.113.10"]);
    assert_eq!(vouched(&["one.files.cdn.example", "A"]).data("A"), ["203.0.113.10"]);
    let alias = vouched(&["alias.cdn.example", "A"]);
    assert_eq!(
        (alias.data("CNAME"), alias.data("A")),
        (vec!["files.cdn.example."], vec!["203.0.113.10"])
    );
    // Sets of several records, the apex, the key set and what the parent is told.
    assert_eq!(vouched(&["two.cdn.example", "TXT"]).data("TXT"), ["\"first\"", "\"second\""]);
    assert_eq!(vouched(&["cdn.example", "NS"]).data("NS"), ["ns1.cdn.example."]);
    assert_eq!(vouched(&["cdn.example", "SOA"]).data("SOA").len(), 1);
    assert_eq!(vouched(&["cdn.example", "DNSKEY"]).data("DNSKEY").len(), 2);
    assert_eq!(vouched(&["cdn.example", "CDS"]).data("CDS").len(), 2);
    assert_eq!(vouched(&["cdn.example", "CDNSKEY"]).data("CDNSKEY").len(), 2);
    // Wildcards.
    assert_eq!(vouched(&["a.b.wild.cdn.example", "TXT"]).data("TXT"), ["\"any\""]);
    assert_eq!(vouched(&["deep.cdn.example", "TXT"]).data("TXT"), ["\"any\""]);
    // What is not there: a name, a type, of a wildcard, between names, of a steered name.
    for question in [
        ["nobody.cdn.example", "A"],
        ["a.nobody.cdn.example", "AAAA"],
        ["files.cdn.example", "MX"],
        ["four.cdn.example", "AAAA"],
        ["x.wild.cdn.example", "A"],
        ["below.cdn.example", "A"],
        ["cdn.example", "MX"],
        ["alias.cdn.example", "MX"],
    ] {
        let answer = vouched(&question);
        assert!(
            answer.text.contains("ANSWER: 0") || answer.text.contains("CNAME"),
            "{}",
            answer.text
        );
    }
    // Delegations: without DS, with one, and to a zone that is here too.
    assert_eq!(vouched(&["child.cdn.example", "DS"]).data("DS").len(), 0);
    assert_eq!(vouched(&["secure.cdn.example", "DS"]).data("DS").len(), 1);
    assert_eq!(vouched(&["plain.cdn.example", "DS"]).data("DS").len(), 0);
    let plain = ask(&["plain.cdn.example", "TXT"]);
    assert_eq!((plain.status.as_str(), plain.authentic), ("NOERROR", false), "{}", plain.text);
    // Two algorithms at once.
    let both = vouched(&["ed.example", "TXT"]);
    assert_eq!(both.data("TXT"), ["\"signed by two algorithms\""]);
    assert_eq!(dig(SERVER, &["ed.example", "TXT"]).data("RRSIG").len(), 2);
    // A key that the parent does not know.
    assert_eq!(ask(&["wrong.example", "TXT"]).status, "SERVFAIL");
    assert_eq!(ask(&["wrong.example", "TXT", "+cd"]).data("TXT"), ["\"signed by another key\""]);

    compact_denial();
    delv_and_drill(running.dir.path());
    shown(running.dir.path());
    checked(running.dir.path());
}

/// What the operator sees.
fn shown(dir: &Path) {
    let page = |path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--unix-socket", "admin.sock"]).arg(format!("http://localhost{path}"));
        output(curl.current_dir(dir)).out
    };
    let metrics = page("/metrics");
    for (duty, count) in [("active", 4), ("published", 1), ("withdrawn", 1)] {
        let line = format!("cacheboy_dns_keys{{duty=\"{duty}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let counted = |result: &str| {
        let name =
            format!("cacheboy_dns_signatures_total{{result=\"{result}\",transport=\"udp\"}} ");
        metrics.split(&name).nth(1).and_then(|rest| rest.lines().next()?.parse::<u64>().ok())
    };
    assert!(counted("made") > Some(10) && counted("found") > Some(0), "{metrics}");
    let status: serde_json::Value = serde_json::from_str(&page("/status")).unwrap();
    let signing = &status["dns"]["signing"];
    assert_eq!(signing["zones"][1]["zone"], "ed.example", "{signing}");
    assert_eq!(signing["zones"][1]["served"], true);
    assert_eq!(signing["zones"][2]["served"], false, "misspelt.example is not there");
    assert!(metrics.contains("cacheboy_dns_signed_zones_unserved 1\n"), "{metrics}");
    assert_eq!(signing["zones"][1]["keys"][0]["algorithm"], "ED25519");
    assert_eq!(signing["zones"][1]["keys"][1]["duty"], "withdrawn");
    assert!(signing["signatures_expire"].is_string(), "{signing}");
}

/// What `cacheboy check` says of keys.
fn checked(dir: &Path) {
    let check = || output(cacheboy().args(["check", "dns.toml"]).current_dir(dir));
    assert_eq!(check().code, 0, "{}", check().out);
    fs::set_permissions(dir.join("ed.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(dir.join("wrong.pem")).unwrap();
    let ran = check();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len()), (1, 2), "{}", ran.out);
    assert!(lines[0].contains("everybody on this machine may read"), "{}", lines[0]);
    assert!(lines[0].contains(": chmod o= "), "{}", lines[0]);
    assert!(lines[1].contains("there is no key file"), "{}", lines[1]);
}

/// RFC 9824 on the wire.
fn compact_denial() {
    let denied = dig(SERVER, &["nobody.cdn.example", "A"]);
    assert_eq!(denied.status, "NOERROR");
    assert!(
        denied.text.contains("\\000.nobody.cdn.example. RRSIG NSEC TYPE128"),
        "{}",
        denied.text
    );
    assert_eq!(dig(SERVER, &["nobody.cdn.example", "A", "+nodnssec"]).status, "NXDOMAIN");
    let steered = dig(SERVER, &["files.cdn.example", "MX"]);
    assert!(
        steered.text.contains("\\000.files.cdn.example. A AAAA RRSIG NSEC SVCB HTTPS"),
        "{}",
        steered.text
    );
    assert_eq!(dig(SERVER, &["files.cdn.example", "TYPE128"]).status, "FORMERR");
}

/// Validators that are asked at the server itself.
fn delv_and_drill(dir: &Path) {
    let mut command = cacheboy();
    let ran = output(command.args(["dnssec", "ds", "--config", "dns.toml"]).current_dir(dir));
    let record =
        ran.out.lines().find(|l| l.starts_with("cdn.example. IN DNSKEY") && l.contains("active"));
    let record = record.unwrap().split(';').next().unwrap();
    let key = record.split_once(" 13 ").unwrap().1.trim();
    let anchor = format!("trust-anchors {{ cdn.example. static-key 257 3 13 \"{key}\"; }};\n");
    fs::write(dir.join("anchor"), anchor).unwrap();
    fs::write(dir.join("anchor.key"), format!("{record}\n")).unwrap();
    for question in
        [["files.cdn.example", "AAAA"], ["cdn.example", "DNSKEY"], ["nobody.cdn.example", "A"]]
    {
        let mut delv = Command::new("delv");
        delv.args(["-p", PORT, "-a", "anchor", "+root=cdn.example"]).arg(format!("@{SERVER}"));
        let ran = output(delv.args(question).current_dir(dir));
        let said = format!("{}{}", ran.out, ran.err);
        let validated = said.contains("; fully validated")
            || said.contains("; negative response, fully validated");
        assert!(validated, "{question:?}: {said}");
    }
    let mut drill = Command::new("drill");
    drill.args(["-p", PORT, "-k", "anchor.key", "-S"]).arg(format!("@{SERVER}"));
    let ran = output(drill.args(["files.cdn.example", "A"]).current_dir(dir));
    assert!(ran.out.contains("Chase successful"), "{}{}", ran.out, ran.err);
}
