//! A DNS server before programs that others wrote: clients (dig, kdig), whose wire formats are not ours,
//! a resolver in front that validates and sends client subnets (unbound), and copies of zones by TSIG.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use model::{Family, NodeState, State};
use nodemap::{NodeMap, NodeStates};
use support::{cacheboy, output, until};

const SERVER: &str = "127.88.1.1";
const RESOLVER: &str = "127.88.1.2";
const PORT: &str = "7153";

const MAP: &str = r#"
[site.here]
[node.one]
site = "here"
addresses = ["203.0.113.10", "2001:db8::10"]
[node.two]
site = "here"
addresses = ["203.0.113.20", "2001:db8::20"]

[pool]
one = { one = 1 }
two = { two = 1 }

[map.default]
default = ["one"]
[[map.default.override]]
prefix = "198.51.100.0/24"
pools = ["two"]
owner = "test"
reason = "another answer for some"

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."cdn.example".host]
"ns1.cdn.example" = ["192.0.2.53"]
[zone."cdn.example".txt]
"long.cdn.example" = ["LONG"]

[project.files]
name = "files.cdn.example"
hosts = ["files.example"]
map = "default"
ttl_s = 60
[project.files.master.here]
url = "http://127.0.0.1:7082"
"#;

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
nsid = "ns1.test"

[[dns.sign]]
zone = "cdn.example"
active = ["key.pem"]

[[dns.transfer]]
zone = "static.example"
keys = ["transfer.tsig"]
"#;

const KEY: &str = "key \"transfer.example\" {\n\talgorithm hmac-sha256;\n\tsecret \
                   \"MDEyMzQ1Njc4OWFiY2RlZg==\";\n};\n";

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
  module-config: "subnetcache validator iterator"
  send-client-subnet: SERVER
  client-subnet-zone: "cdn.example"
  client-subnet-always-forward: yes
  trust-anchor: "ANCHOR"
stub-zone:
  name: "cdn.example"
  stub-addr: SERVER@PORT
"#;

/// A node map with every node up.
fn node_map() -> String {
    let text = MAP.replace("LONG", &"x".repeat(250 * 8));
    let map = nodemap::admin::load(&[("all.toml".into(), text)]).unwrap();
    let up = NodeState::new(State::Up, "test", 0);
    let states = map.nodes.iter().map(|(name, node)| {
        let of = |family: Family| node.addresses_of(family).next().map(|_| up.clone());
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
        let lines: String = (0..2000).map(|n| format!("h{n} 60 A 192.0.2.{}\n", n % 250)).collect();
        let head = "@ SOA ns1 noc 7 7200 1800 1209600 60\n NS ns1\nns1 A 192.0.2.53\n";
        write("zones/static.example.zone", &format!("{head}{lines}"));
        write("transfer.tsig", KEY);
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(dir.path().join("transfer.tsig"), private).unwrap();
        write("dns.toml", CONFIG);
        let mut keygen = cacheboy();
        keygen.args(["dnssec", "keygen", "cdn.example", "key.pem"]).current_dir(dir.path());
        let made = output(&mut keygen);
        assert_eq!(made.code, 0, "{}", made.err);
        // Never over a key that is there.
        let again = output(&mut keygen);
        assert!(again.code == 1 && again.err.contains("is there already"), "{}", again.err);
        let anchor = made.out.lines().find(|line| line.contains(" DS ")).unwrap();
        write("unbound.conf", &UNBOUND.replace("ANCHOR", anchor));
        let log = |name: &str| fs::File::create(dir.path().join(name)).unwrap();
        let mut server = cacheboy();
        server.args(["dns", "--end-with-parent", "--config", "dns.toml"]).current_dir(dir.path());
        let server = server.stderr(log("dns.log")).stdout(Stdio::null()).spawn().unwrap();
        let mut resolver = Command::new("unbound");
        resolver.args(["-d", "-c", "unbound.conf"]).current_dir(dir.path());
        let resolver = resolver.stderr(log("unbound.log")).stdout(Stdio::null()).spawn().unwrap();
        let running = Self { dir, children: vec![server, resolver] };
        until("the server answers", || running.dig(SERVER, "cdn.example SOA").contains("NOERROR"));
        until("the resolver answers", || {
            running.dig(RESOLVER, "cdn.example SOA").contains("status:")
        });
        running
    }

    fn run(&self, program: &str, arguments: &str) -> String {
        let mut command = Command::new(program);
        let ran = output(command.args(arguments.split_whitespace()).current_dir(self.dir.path()));
        format!("{}{}", ran.out, ran.err)
    }

    fn dig(&self, server: &str, question: &str) -> String {
        self.run("dig", &format!("@{server} -p {PORT} +tries=1 +time=5 +nocookie {question}"))
    }
}

/// Whether `text` has all of `parts`, and none of those that begin with `!`.
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        let (wanted, part) = match part.strip_prefix('!') {
            Some(part) => (false, part),
            None => (true, *part),
        };
        assert_eq!(text.contains(part), wanted, "{part}\n{text}");
    }
}

#[test]
fn foreign_programs_get_what_the_standards_promise() {
    let running = Running::start();
    edns(&running);
    kdig(&running);
    resolver_in_front(&running);
    copies(&running);
}

/// The set of questions by which servers are judged for their EDNS (RFC 6891): what is not known is
/// ignored, but for a version, and the reply has an OPT record whenever the query has one.
fn edns(running: &Running) {
    let opt = "EDNS: version: 0, flags:";
    let set: [(&str, &[&str]); 13] = [
        ("+noedns +norec cdn.example SOA", &["status: NOERROR", "ANSWER: 1", "!EDNS:", " aa"]),
        ("+edns=0 +norec cdn.example SOA", &["status: NOERROR", "ANSWER: 1", opt]),
        ("+edns=100 +noednsneg +norec cdn.example SOA", &["status: BADVERS", "ANSWER: 0", opt]),
        ("+edns=0 +norec +ednsopt=100 cdn.example SOA", &["status: NOERROR", opt, "!OPT=100"]),
        ("+edns=0 +norec +ednsflags=0x40 cdn.example SOA", &["status: NOERROR", opt, "!MBZ"]),
        ("+edns=100 +noednsneg +norec +ednsopt=100 cdn.example SOA", &["status: BADVERS", opt]),
        (
            "+edns=100 +noednsneg +norec +ednsflags=0x40 cdn.example SOA",
            &["status: BADVERS", "!MBZ"],
        ),
        ("+edns=100 +noednsneg +norec +dnssec cdn.example SOA", &["status: BADVERS", "flags: do"]),
        ("+edns=0 +norec +dnssec cdn.example SOA", &["status: NOERROR", "flags: do", "RRSIG"]),
        (
            "+edns=0 +norec +dnssec +bufsize=512 +ignore long.cdn.example TXT",
            &["flags: qr aa tc", opt],
        ),
        ("+edns=0 +norec +tcp long.cdn.example TXT", &["status: NOERROR", "ANSWER: 1", "! tc"]),
        ("+edns=0 +norec +nsid cdn.example SOA", &["ns1.test"]),
        (
            "+edns=0 +norec +subnet=198.51.100.0/24 files.cdn.example A",
            &["203.0.113.20", "CLIENT-SUBNET: 198.51.100.0/24/24"],
        ),
    ];
    for (question, parts) in set {
        assert_has(&running.dig(SERVER, question), parts);
    }
    let cookie = running.run("dig", &format!("@{SERVER} -p {PORT} +cookie cdn.example SOA"));
    assert_has(&cookie, &["status: NOERROR", "(good)"]);
}

/// Another client, with another reader of answers.
fn kdig(running: &Running) {
    let ask = |question: &str| running.run("kdig", &format!("@{SERVER} -p {PORT} {question}"));
    assert_has(
        &ask("+dnssec files.cdn.example AAAA"),
        &["status: NOERROR", "2001:db8::10", "RRSIG"],
    );
    assert_has(
        &ask("+tcp +keepopen files.cdn.example A cdn.example NS"),
        &["203.0.113.10", "ns1.cdn.example."],
    );
    assert_has(
        &ask("+bufsize=1232 +padding +nsid nobody.cdn.example A"),
        &["status: NXDOMAIN", "SOA"],
    );
    assert_has(&ask("files.cdn.example ANY"), &["HINFO", "RFC8482"]);
    assert_has(
        &ask("+subnet=198.51.100.7/32 files.cdn.example A"),
        &["203.0.113.20", "198.51.100.7/32/24"],
    );
    assert_has(&ask("elsewhere.example A"), &["status: REFUSED"]);
    assert_has(
        &running.run("drill", &format!("-p {PORT} @{SERVER} h7.static.example A")),
        &["192.0.2.7"],
    );
}

/// A resolver that validates, and asks for each network of clients by itself.
fn resolver_in_front(running: &Running) {
    let ask = |network: &str| {
        let question = format!("+dnssec +subnet={network} files.cdn.example A");
        let text = running.dig(RESOLVER, &question);
        assert_has(&text, &["status: NOERROR", " ad;"]);
        text
    };
    for _ in 0..10 {
        assert_has(&ask("198.51.100.0/24"), &["203.0.113.20", "!203.0.113.10"]);
        assert_has(&ask("192.0.2.0/24"), &["203.0.113.10", "!203.0.113.20"]);
    }
    // All but the first round came out of its cache: the scopes say for whom.
    let mut curl = Command::new("curl");
    curl.args(["-s", "--unix-socket", "admin.sock", "http://localhost/metrics"]);
    let metrics = output(curl.current_dir(running.dir.path())).out;
    let steered = "cacheboy_dns_node_answers_total{node=\"two\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(steered)).unwrap();
    // One each of dig and kdig before, and one of the resolver, which may have asked twice.
    assert!((3..8).contains(&count.parse::<u32>().unwrap()), "{metrics}");
}

/// Copies of a zone, for those who have the key (RFC 5936, RFC 8945).
fn copies(running: &Running) {
    let key = "-k transfer.tsig";
    for question in [format!("{key} static.example AXFR"), format!("{key} static.example IXFR=1")] {
        let copy = running.dig(SERVER, &question);
        assert_has(&copy, &["XFR size: 2004 records", "!Couldn't verify", "h1999.static.example."]);
    }
    let ours = "-y hmac-sha256:transfer.example:MDEyMzQ1Njc4OWFiY2RlZg==";
    let of_kdig = format!("@{SERVER} -p {PORT} {ours} static.example AXFR");
    assert_has(&running.run("kdig", &of_kdig), &["2004 records", "!WARNING", "!;; ERROR"]);
    assert_has(&running.dig(SERVER, "static.example AXFR"), &["Transfer failed"]);
    assert_has(&running.dig(SERVER, &format!("{key} cdn.example AXFR")), &["Transfer failed"]);
    // Whoever has the key may sign anything; the answer is signed, and dig verifies it.
    let signed = running.dig(SERVER, &format!("{key} static.example SOA"));
    assert_has(
        &signed,
        &["status: NOERROR", "TSIG PSEUDOSECTION", "!could not be validated", "!Couldn't verify"],
    );
    let other = "-y hmac-sha256:transfer.example:MDEyMzQ1Njc4OWFiY2RlZw==";
    assert_has(
        &running.dig(SERVER, &format!("{other} static.example SOA")),
        &["NOTAUTH", "BADSIG"],
    );
    let other = "-y hmac-sha256:stranger.example:MDEyMzQ1Njc4OWFiY2RlZg==";
    assert_has(
        &running.dig(SERVER, &format!("{other} static.example SOA")),
        &["NOTAUTH", "BADKEY"],
    );
    assert_has(
        &running.dig(SERVER, &format!("{key} +opcode=notify +norec static.example SOA")),
        &["opcode: NOTIFY, status: NOERROR"],
    );
    assert_has(
        &running.dig(SERVER, "+opcode=notify +norec static.example SOA"),
        &["opcode: NOTIFY, status: REFUSED"],
    );
}
