//! The whole network as real processes, judged by its own check and by dig and curl.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sha2::{Digest, Sha256};
use support::{cacheboy, output, until};

/// The demo's addresses are fixed: one network at a time.
static ADDRESSES: Mutex<()> = Mutex::new(());

/// A running demo; ends with Ctrl-C when dropped.
struct Demo {
    process: Child,
    dir: tempfile::TempDir,
    about: Value,
    _alone: MutexGuard<'static, ()>,
}

impl Demo {
    fn start() -> Self {
        let alone = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let mut process = cacheboy()
            .args(["demo", "--json", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut json = String::new();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        for line in stdout.lines() {
            let line = line.unwrap();
            json.push_str(&line);
            if line == "}" {
                break;
            }
        }
        let about = serde_json::from_str(&json).expect("the demo describes itself");
        Self { process, dir, about, _alone: alone }
    }

    fn stop(&mut self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success(), "Ctrl-C is a clean end");
    }

    fn dig(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("dig");
        command.args(["@127.77.0.53", "-p", "7053", "+tries=1", "+time=2"]).args(arguments);
        output(&mut command).out
    }

    fn config(&self, host: &str, role: &str) -> std::path::PathBuf {
        self.dir.path().join(host).join(format!("{role}.toml"))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // After a failed assertion nothing may stay behind; processes end with their parent.
        if self.process.try_wait().unwrap().is_none() {
            self.stop();
        }
    }
}

#[test]
fn the_check_holds() {
    let _alone = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let ran = output(cacheboy().args(["demo", "--check", "--json", "--dir"]).arg(dir.path()));
    let document: Value = serde_json::from_str(&ran.out)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", ran.out, ran.err));
    let steps = document["steps"].as_array().unwrap();
    for step in steps {
        assert_eq!(step["ok"], true, "{step:#}");
    }
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "resolve",
            "resolve-ipv6",
            "host",
            "download",
            "hit",
            "ranges",
            "download-ipv6",
            "edge-killed",
            "master-killed",
            "masters-killed",
            "weight"
        ]
    );
    assert_eq!((ran.code, &document["ok"]), (0, &Value::Bool(true)));
}

#[test]
fn real_clients_are_served_and_everything_stops() {
    let mut demo = Demo::start();
    assert_eq!(demo.about["hosts"].as_array().unwrap().len(), 7);

    // dig: the node of the client's network, with the scope the answer holds for.
    let answer = demo.dig(&["videolan.cdn.example", "+subnet=87.128.0.0/24"]);
    assert!(answer.contains("status: NOERROR"), "{answer}");
    assert!(answer.contains("127.77.0.13"), "{answer}");
    assert!(answer.contains("CLIENT-SUBNET: 87.128.0.0/24/"), "{answer}");
    let tcp = demo.dig(&["+tcp", "+short", "videolan.cdn.example", "+subnet=1.128.0.0/24"]);
    assert_eq!(tcp, "127.77.0.11\n");
    let aaaa = demo.dig(&["+short", "videolan.cdn.example", "AAAA", "+subnet=2003:40::/48"]);
    assert_eq!(aaaa, "2001:db8:77::13\n");
    assert_eq!(demo.dig(&["+short", "mirror1-us.videolan.cdn.example"]), "127.77.0.12\n");
    assert_eq!(demo.dig(&["+short", "cdn.example", "NS"]), "ns1.cdn.example.\n");
    let missing = demo.dig(&["nobody.cdn.example"]);
    assert!(missing.contains("status: NXDOMAIN") && missing.contains("SOA"), "{missing}");
    assert!(demo.dig(&["www.elsewhere.example"]).contains("status: REFUSED"));

    // curl: a miss, then a hit, the right bytes, and the project's own host name.
    let file = demo.dir.path().join("got");
    for wanted in ["fwd=uri-miss", "; hit"] {
        let head = curl(&["-o", file.to_str().unwrap(), "-D", "-"], "/vlc/4.0.0/NEWS");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let line = head.lines().find(|l| l.to_ascii_lowercase().starts_with("cache-status:"));
        assert!(line.unwrap_or("").contains(wanted), "{wanted}: {head}");
        let original = demo.dir.path().join("master1/tree/vlc/4.0.0/NEWS");
        assert_eq!(sha256(&file), sha256(&original));
    }
    let resumed =
        curl(&["-r", "100-199", "-o", file.to_str().unwrap(), "-D", "-"], "/vlc/4.0.0/NEWS");
    assert!(resumed.starts_with("HTTP/1.1 206"), "{resumed}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 100);

    // explain: the node, the entry that decided, and a word for each node left out.
    let why = output(
        cacheboy()
            .args(["explain", "--config"])
            .arg(demo.config("ns1", "dns"))
            .args(["114.160.0.1", "videolan.cdn.example"]),
    );
    for wanted in ["AS4713", "mirror1-au", "pool-not-reached", "mirror1-us"] {
        assert!(why.out.contains(wanted), "{wanted}: {}", why.out);
    }

    let log = std::fs::read_to_string(demo.dir.path().join("ns1/log")).unwrap();
    assert!(log.contains("demo data with known errors"), "the admin is told: {log}");

    invalid_edit_changes_nothing(&demo);
    second_demo_says_what_is_taken();
    demo.stop();
    assert!(std::net::TcpListener::bind("127.77.0.13:7080").is_ok(), "an edge stayed behind");
}

/// A broken map keeps the old one in use and is named in `/status`.
fn invalid_edit_changes_nothing(demo: &Demo) {
    let map = demo.dir.path().join("maps/steering.toml");
    let good = std::fs::read_to_string(&map).unwrap();
    std::fs::write(
        &map,
        good.replace("europe  = { mirror1-de = 100 }", "europe = { mirror9 = 1 }"),
    )
    .unwrap();
    let status =
        || output(Command::new("curl").args(["-sS", "http://127.77.0.31:7081/status"])).out;
    until("the fault shows in /status", || status().contains("mirror9"));
    let answer = demo.dig(&["+short", "videolan.cdn.example", "+subnet=87.128.0.0/24"]);
    assert_eq!(answer, "127.77.0.13\n");
    std::fs::write(&map, good).unwrap();
    until("the fault is gone from /status", || !status().contains("mirror9"));
}

fn second_demo_says_what_is_taken() {
    let second = output(cacheboy().arg("demo"));
    assert_eq!(second.code, 1);
    assert!(second.err.contains("another demo may be running"), "{}", second.err);
    assert!(second.err.contains("address in use"), "{}", second.err);
}

fn curl(options: &[&str], path: &str) -> String {
    let host = "download.videolan.example:7080";
    let mut command = Command::new("curl");
    command.args(["-sS", "--resolve", &format!("{host}:127.77.0.13")]).args(options);
    output(command.arg(format!("http://{host}{path}"))).out
}

fn sha256(path: &std::path::Path) -> [u8; 32] {
    Sha256::digest(std::fs::read(path).unwrap()).into()
}
