//! HTTP/3 against a real edge, by a client that shares no code with ours: aioquic.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::process::Command;

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
node_map = ["http://127.87.0.1:7083/node-map"]

[master]
listen = ["127.87.0.1:7082"]
tree = "tree"

[health]
listen = ["127.87.0.1:7083"]
maps = "maps"

[health.probe]
port = 7080

[[tls.certificate]]
chain = "chain.pem"
key = "key.pem"

[edge]
listen = ["127.87.0.1:7080", { address = "127.87.0.1:7443", tls = true, http3 = true }]

[[edge.store]]
path = "cache"
size = "1 GiB"
"#;

const MAP: &str = r#"
[site.here]
[node.one]
site = "here"
addresses = ["127.87.0.1"]
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
url = "http://127.87.0.1:7082"
[project.silent]
name = "silent.cdn.example"
hosts = ["silent.example"]
map = "default"
[project.silent.master.here]
url = "http://127.87.0.1:7082"
"#;

const OFFER: &str = "h3=\":7443\"; ma=86400";

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_independent_client_gets_every_byte_and_hears_of_http_3_where_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("tree")).unwrap();
    fs::create_dir_all(at("maps")).unwrap();
    let large: Vec<u8> = (0..7_000_001u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect();
    fs::write(at("tree/.cacheboy-tree"), "").unwrap();
    fs::write(at("tree/hello"), "hello\n").unwrap();
    fs::write(at("tree/large"), &large).unwrap();
    fs::write(at("maps/all.toml"), MAP).unwrap();
    fs::write(at("one.toml"), CONFIG).unwrap();
    let names = ["offered.example".to_owned(), "silent.example".to_owned()];
    certificate::make(dir.path(), &names);
    let mut command = cacheboy();
    command.args(["run", "--end-with-parent", "--config"]).arg(at("one.toml"));
    let log = fs::File::create(at("log")).unwrap();
    let mut host = command.stderr(log).spawn().unwrap();

    let curl = |project: &str, url: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--http1.1", "-D", "-", "--cacert"]).arg(at("chain.pem"));
        let resolve = format!("{project}.example:7443:127.87.0.1");
        curl.args(["--resolve", &resolve, "-H", &format!("Host: {project}.example"), url]);
        output(&mut curl).out
    };
    until("the edge serves", || curl("silent", "http://127.87.0.1:7080/hello").contains("hello\n"));
    let offered = format!("alt-svc: {OFFER}\r\n");
    let told = curl("offered", "https://offered.example:7443/hello");
    assert!(told.contains(&offered), "{told}");
    assert!(!curl("offered", "http://127.87.0.1:7080/hello").contains("alt-svc"));
    assert!(!curl("silent", "https://silent.example:7443/hello").contains("alt-svc"));

    let ask = |host: &str, connections: &Value| -> Value {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut client = Command::new(format!("{root}/target/tools/{AIOQUIC}/bin/python"));
        client.arg(format!("{root}/tests/e2e/h3_client.py")).args(["127.87.0.1", "7443", host]);
        let ran = output(client.arg(at("chain.pem")).arg(connections.to_string()));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
        serde_json::from_str(&ran.out).unwrap()
    };
    let range = json!([["range", "bytes=1000000-1999999"]]);
    let mut many = vec![json!({ "path": "/hello" }); 60];
    many.push(json!({ "path": "/large", "headers": [["priority", "u=5, i"]] }));
    let connections = ask(
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
    let whole = (200, 7_000_001, digest(&large));
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
    let silent = ask("silent.example", &json!([[{ "path": "/hello" }]]));
    let answer = &silent[0]["answers"][0];
    assert_eq!(answer["status"], 200, "{answer}");
    assert!(!answer["headers"].to_string().contains("alt-svc"), "{answer}");
    host.kill().unwrap();
    host.wait().unwrap();
}
