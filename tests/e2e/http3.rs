//! HTTP/3 against a real edge, by a client that shares no code with ours: aioquic.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::{cacheboy, certificate, output, until};

/// Of `tests/run`, which puts it below `target/tools`.
const AIOQUIC: &str = "aioquic-1.2.0";

const CONFIG: &str = r#"
[host]
name = "one"
state_dir = "state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["http://NET:7083/node-map"]

[master]
listen = ["NET:7082"]
tree = "tree"

[health]
listen = ["NET:7083"]
maps = "maps"

[health.probe]
port = 7080

[[tls.certificate]]
chain = "chain.pem"
key = "key.pem"

[edge]
listen = ["NET:7080", { address = "NET:7443", tls = true, http3 = true }]

[[edge.store]]
path = "cache"
size = "1 GiB"
"#;

const MAP: &str = r#"
[site.here]
[node.one]
site = "here"
addresses = ["NET"]
[pool]
all = { one = 1 }
[map.default]
default = ["all"]
[zone."cdn.example"]
ns = ["ns1.example.net"]
soa = { contact = "noc.cdn.example" }
[project.offered]
name = "offered.cdn.example"
hosts = ["offered.example"]
map = "default"
http3 = true
unsafe_methods = true
[project.offered.master.here]
url = "http://NET:7082"
[project.silent]
name = "silent.cdn.example"
hosts = ["silent.example"]
map = "default"
[project.silent.master.here]
url = "http://NET:7082"
"#;

/// More than all buffers between an edge and a client that stands still hold.
const LARGE_BYTES: u32 = 30_000_001;

const OFFER: &str = "h3=\":7443\"; ma=86400";

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// A host with an edge and what it needs, and all successors of its process.
struct Host {
    dir: tempfile::TempDir,
    net: &'static str,
    first: Child,
}

impl Host {
    fn start(net: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("tree")).unwrap();
        fs::create_dir_all(at("maps")).unwrap();
        fs::write(at("tree/.cacheboy-tree"), "").unwrap();
        fs::write(at("tree/hello"), "hello\n").unwrap();
        fs::write(at("tree/large"), large()).unwrap();
        fs::write(at("maps/all.toml"), MAP.replace("NET", net)).unwrap();
        fs::write(at("one.toml"), CONFIG.replace("NET", net)).unwrap();
        let names = ["offered.example".to_owned(), "silent.example".to_owned()];
        certificate::make(dir.path(), &names);
        let mut command = cacheboy();
        // A group of its own, so that all successors can be ended with it.
        command.args(["run", "--config"]).arg(at("one.toml")).process_group(0);
        let log = fs::File::create(at("log")).unwrap();
        let first = command.stderr(log).spawn().unwrap();
        let host = Self { dir, net, first };
        let url = format!("http://{net}:7080/hello");
        until("the edge serves", || host.curl("silent", &url).contains("hello\n"));
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }

    /// Head and body of an answer over TCP.
    fn curl(&self, project: &str, url: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--http1.1", "-D", "-", "--cacert"]).arg(self.at("chain.pem"));
        let resolve = format!("{project}.example:7443:{}", self.net);
        curl.args(["--resolve", &resolve, "-H", &format!("Host: {project}.example"), url]);
        output(&mut curl).out
    }

    /// aioquic, asked for these connections.
    fn client(&self, host: &str, connections: &Value) -> Command {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut client = Command::new(format!("{root}/target/tools/{AIOQUIC}/bin/python"));
        client.arg(format!("{root}/tests/e2e/h3_client.py")).args([self.net, "7443", host]);
        client.arg(self.at("chain.pem")).arg(connections.to_string());
        client
    }

    /// What it got.
    fn ask(&self, host: &str, connections: &Value) -> Value {
        let ran = output(&mut self.client(host, connections));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
        serde_json::from_str(&ran.out).unwrap()
    }

    fn pid(&self) -> u64 {
        let mut ask = Command::new("curl");
        ask.args(["-sS", "--max-time", "5", "--unix-socket"]).arg(self.at("admin.sock"));
        let answer = output(ask.arg("http://admin/status")).out;
        let status: Value = serde_json::from_str(&answer).unwrap_or_default();
        status["process"]["pid"].as_u64().unwrap_or(0)
    }

    /// One hand-over, to its end; the process that was before.
    fn hand_over(&self) -> u64 {
        let before = self.pid();
        let sent = Command::new("kill").args(["-s", "HUP", &before.to_string()]).status().unwrap();
        assert!(sent.success());
        until("a successor serves", || ![0, before].contains(&self.pid()));
        before
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let group = format!("-{}", self.first.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).status();
        let _ = self.first.wait();
    }
}

#[test]
fn an_independent_client_gets_every_byte_and_hears_of_http_3_where_it_may() {
    let host = Host::start("127.87.0.1");
    let large = large();
    let offered = format!("alt-svc: {OFFER}\r\n");
    let told = host.curl("offered", "https://offered.example:7443/hello");
    assert!(told.contains(&offered), "{told}");
    assert!(!host.curl("offered", "http://127.87.0.1:7080/hello").contains("alt-svc"));
    assert!(!host.curl("silent", "https://silent.example:7443/hello").contains("alt-svc"));

    let range = json!([["range", "bytes=1000000-1999999"]]);
    let mut many = vec![json!({ "path": "/hello" }); 60];
    many.push(json!({ "path": "/large", "headers": [["priority", "u=5, i"]] }));
    let connections = host.ask(
        "offered.example",
        &json!([
            [
                { "path": "/hello" },
                { "path": "/large" },
                { "path": "/large", "headers": range },
                { "path": "/none" },
                { "path": "/hello", "method": "PUT", "content": "content" },
                { "path": "/hello", "headers": [["connection", "close"]] },
            ],
            many,
        ]),
    );
    let (first, second) = (&connections[0], &connections[1]);
    let whole = (200, LARGE_BYTES, digest(&large));
    for (number, (status, bytes, sha256)) in [
        (200, 6, digest(b"hello\n")),
        whole.clone(),
        (206, 1_000_000, digest(&large[1_000_000..2_000_000])),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = &first["answers"][number];
        assert_eq!(answer["status"], status, "{number}: {answer}");
        assert_eq!(answer["bytes"], bytes, "{number}");
        assert_eq!(answer["sha256"], *sha256, "{number}");
        let fields = answer["headers"].as_array().unwrap();
        assert!(fields.contains(&json!(["alt-svc", OFFER])), "{number}: {answer}");
    }
    let statuses = [3, 4].map(|number| first["answers"][number]["status"].clone());
    assert_eq!(statuses, [404, 405]);
    assert_eq!(first["answers"][5], json!({ "reset": 0x10e }));
    for answer in &second["answers"].as_array().unwrap()[..60] {
        assert_eq!((&answer["status"], &answer["bytes"]), (&json!(200), &json!(6)), "{answer}");
    }
    let last = &second["answers"][60];
    assert_eq!((&last["status"], &last["sha256"]), (&json!(200), &json!(whole.2)));
    assert_eq!((&first["resumed"], &second["resumed"]), (&json!(false), &json!(true)));

    // A project that does not offer it is answered all the same, and says nothing of it.
    let silent = host.ask("silent.example", &json!([[{ "path": "/hello" }]]));
    let answer = &silent[0]["answers"][0];
    assert_eq!(answer["status"], 200, "{answer}");
    assert!(!answer["headers"].to_string().contains("alt-svc"), "{answer}");
}

/// Two successors come while it runs: the first process hears of its client through both.
#[test]
fn a_download_outlives_hand_overs_and_newcomers_are_served_beside_it() {
    let host = Host::start("127.87.0.2");
    let mut command =
        host.client("offered.example", &json!([[{ "path": "/large", "held": true }]]));
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");

    let hello = json!([[{ "path": "/hello" }]]);
    let before = [(); 2].map(|()| {
        let before = host.hand_over();
        for _ in 0..3 {
            let answer = &host.ask("offered.example", &hello)[0]["answers"][0];
            assert_eq!((&answer["status"], &answer["bytes"]), (&json!(200), &json!(6)));
        }
        before
    });
    let runs = |pid: u64| Path::new(&format!("/proc/{pid}")).exists();
    assert!(runs(before[0]), "it has a response to finish: {}", host.log());
    writeln!(client.stdin.take().unwrap()).unwrap();
    let mut told = String::new();
    out.read_to_string(&mut told).unwrap();
    assert!(client.wait().unwrap().success());
    let told: Value = serde_json::from_str(&told).unwrap();
    let answer = &told[0]["answers"][0];
    let got = (&answer["status"], &answer["bytes"], &answer["sha256"]);
    let due = (&json!(200), &json!(LARGE_BYTES), &json!(digest(&large())));
    assert_eq!(got, due, "{}", host.log());
    assert!(!host.log().contains("HTTP/3 connections are closed"), "{}", host.log());
    // The first is this test's child, and is there until it is waited for.
    until("its successor has ended, which ends after it", || !runs(before[1]));
}
