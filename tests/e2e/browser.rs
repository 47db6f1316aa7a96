//! A real browser: its page fetches files, whole and in part, and says what they hash to.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use sha2::{Digest, Sha256};
use support::download::{content, put};
use support::network::Network;
use support::until;

/// Files that are fetched all at once.
const FILES: [(&str, usize); 4] =
    [("one", 1 << 10), ("small", 100 << 10), ("middle", 1 << 20), ("large", 8 << 20)];
/// What is fetched of the last one: first byte, and the one after the last.
const PART: (usize, usize) = (65_535, 2_000_001);

/// The page tells the collector protocol, status, name and digest of each file.
const PAGE: &str = r#"<!doctype html><title>fetching</title><script>
const hex = bytes => [...new Uint8Array(bytes)].map(b => b.toString(16).padStart(2, "0")).join("");
const get = async (name, fields) => {
  const answer = await fetch(name, {headers: fields, cache: "no-store"});
  const digest = await crypto.subtle.digest("SHA-256", await answer.arrayBuffer());
  const spoken = performance.getEntriesByName(answer.url).at(-1).nextHopProtocol;
  return [spoken, answer.status, name, hex(digest)];
};
const part = {Range: "bytes=FIRST-LAST"};
Promise.all([...NAMES.map(name => get(name, {})), get("large", part)])
  .catch(fault => [["fault", fault]])
  .then(got => fetch("http://COLLECTOR/" + encodeURI(got.join(";")), {mode: "no-cors"}));
</script>
"#;

/// A browser; it ends with this value.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the page says in a browser that is given these words besides.
fn said(network: &Network, collector: &TcpListener, more: &[String]) -> Vec<String> {
    let profile = network.folder(more[0].trim_matches('-').split('=').next().unwrap());
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    chromium.args(["--disable-background-networking", "--disable-component-update"]);
    chromium.args(["--disable-sync", "--disable-dev-shm-usage"]);
    chromium.arg(format!("--user-data-dir={}", profile.display()));
    chromium.arg(format!("--ignore-certificate-errors-spki-list={}", network.key_digest()));
    chromium.args(more).arg(format!("https://{}/page.html", network.tls_edge(0)));
    let log = File::create(profile.join("log")).unwrap();
    let _browser = Browser(chromium.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let mut line = String::new();
    until("the page says what it got", || {
        let told = collector.accept();
        told.is_ok_and(|(page, _)| BufReader::new(page).read_line(&mut line).is_ok())
    });
    let told = line.trim_start_matches("GET /").split(' ').next().unwrap_or_default();
    told.split(';').map(str::to_owned).collect()
}

/// What it must say.
fn due(protocol: &str) -> Vec<String> {
    let hex = |bytes: &[u8]| -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let mut lines: Vec<_> = FILES
        .iter()
        .map(|(name, length)| format!("{protocol},200,{name},{}", hex(&content(9, *length))))
        .collect();
    let (name, length) = FILES[FILES.len() - 1];
    let part = hex(&content(9, length)[PART.0..PART.1]);
    lines.push(format!("{protocol},206,{name},{part}"));
    lines
}

#[test]
fn chromium_fetches_whole_files_and_parts() {
    let network = Network::start("127.80.13", "");
    for (name, length) in FILES {
        put(&network, name, &content(9, length));
    }
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let page = PAGE
        .replace("NAMES", &format!("{:?}", FILES.map(|(name, _)| name)))
        .replace("FIRST", &PART.0.to_string())
        .replace("LAST", &(PART.1 - 1).to_string())
        .replace("COLLECTOR", &collector.local_addr().unwrap().to_string());
    put(&network, "page.html", page.as_bytes());

    assert_eq!(said(&network, &collector, &["--disable-quic".to_owned()]), due("h2"));
    let forced = format!("--origin-to-force-quic-on={}", network.tls_edge(0));
    assert_eq!(said(&network, &collector, &[forced]), due("h3"));
}
