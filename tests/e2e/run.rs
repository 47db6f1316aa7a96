//! `cacheboy run`: a whole small network in one process, from one config file; and what it does
//! after `kill -9`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{cacheboy, output, until};

const CONFIG: &str = r#"
[host]
name = "one"
state_dir = "state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["http://127.79.0.1:7083/node-map"]

[master]
listen = ["127.79.0.1:7082"]
tree = "tree"

[health]
listen = ["127.79.0.1:7083"]
maps = "maps"

[health.probe]
port = 7080
interval_ms = 500
timeout_ms = 250

[edge]
listen = ["127.79.0.1:7080"]
drain_notice_s = 0

[[edge.store]]
path = "cache"
size = "100 MiB"

[dns]
listen = ["127.79.0.1:7053"]
"#;

const MAP: &str = r#"
[site.here]

[node.one]
site = "here"
addresses = ["127.79.0.1"]

[pool]
all = { one = 1 }

[map.default]
default = ["all"]

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }

[zone."cdn.example".host]
"ns1.cdn.example" = ["127.79.0.1"]

[project.files]
name = "files.cdn.example"
hosts = ["files.example"]
map = "default"

[project.files.master.here]
url = "http://127.79.0.1:7082"
"#;

fn start(dir: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = cacheboy();
    command.args(["run", "--end-with-parent", "--config"]).arg(dir.join("host.toml"));
    command.stderr(log).stdout(Stdio::null()).spawn().unwrap()
}

fn dig(arguments: &[&str]) -> String {
    let mut command = Command::new("dig");
    command.args(["@127.79.0.1", "-p", "7053", "+short", "+tries=1", "+time=1"]);
    output(command.args(arguments)).out
}

fn curl(dir: &Path, path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "-D", "-", "-o"]).arg(dir.join("got"));
    command.args(["--resolve", "files.example:7080:127.79.0.1"]);
    output(command.arg(format!("http://files.example:7080{path}"))).out
}

/// Whether a flush has written the metadata file of an object.
fn has_metadata(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() { has_metadata(&path) } else { path.extension().is_some_and(|e| e == "m") }
    })
}

/// No huge page keeps 2 MiB for one used byte, and a thread gives back what is free.
fn gives_memory_back(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!status.contains("THP_enabled:\t1"), "{status}");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // Threads come and go meanwhile.
    let mut names = threads.filter_map(|at| fs::read_to_string(at.ok()?.path().join("comm")).ok());
    assert!(names.any(|name| name == "memory\n"));
}

#[test]
fn every_role_in_one_process_and_again_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree")).unwrap();
    fs::create_dir_all(dir.join("maps")).unwrap();
    fs::write(dir.join("maps/all.toml"), MAP).unwrap();
    fs::write(dir.join("host.toml"), CONFIG).unwrap();
    fs::write(dir.join("tree/.cacheboy-tree"), "").unwrap();
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(dir.join("tree/a.bin"), &content).unwrap();
    let checked = output(cacheboy().arg("check").arg(dir.join("host.toml")).arg(dir.join("maps")));
    assert_eq!(checked.code, 0, "{}", checked.out);

    let mut process = start(dir);
    until("the redirector answers", || dig(&["files.cdn.example"]) == "127.79.0.1\n");
    until("the edge serves", || curl(dir, "/a.bin").starts_with("HTTP/1.1 200"));
    assert!(fs::read(dir.join("got")).unwrap() == content);
    let mut status = Command::new("curl");
    status.args(["-sS", "--unix-socket"]).arg(dir.join("admin.sock")).arg("http://admin/status");
    let status: serde_json::Value = serde_json::from_str(&output(&mut status).out).unwrap();
    for role in ["dns", "edge", "health", "master"] {
        assert!(status[role].is_object(), "{role} is missing: {status:#}");
    }
    gives_memory_back(process.id());
    until("what was stored is durable", || has_metadata(&dir.join("cache")));

    process.kill().unwrap();
    process.wait().unwrap();
    // The map on disk carries DNS and edge over a start without masters or maps.
    fs::remove_file(dir.join("tree/.cacheboy-tree")).unwrap();
    let mut process = start(dir);
    until("it answers again", || dig(&["files.cdn.example"]) == "127.79.0.1\n");
    until("the edge is back", || curl(dir, "/a.bin").starts_with("HTTP/1.1 200"));
    assert!(fs::read(dir.join("got")).unwrap() == content, "held content survives its master");
    let missing = curl(dir, "/b.bin");
    assert!(missing.starts_with("HTTP/1.1 503"), "a lost tree is never 404: {missing}");
    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert!(process.wait().unwrap().success(), "SIGTERM is a clean end");
}
