//! HTTP/2 with clients that others wrote: curl, nghttp and h2load, over TLS and by prior knowledge.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::process::Command;

use support::network::Network;
use support::{output, until};

#[test]
fn curl_gets_every_byte_over_each_version_on_one_listener() {
    const NET: &str = "127.80.41";
    let network = Network::start(NET, "");
    let content: Vec<u8> = (0..5_000_003u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect();
    fs::write(network.tree().join("file"), &content).unwrap();
    let (folder, chain) = (network.folder("curl"), network.certificate());
    let https = format!("https://{NET}.1:7443/file");
    let http = format!("http://{NET}.1:7080/file");
    for (option, url, version) in [
        ("--http2", &https, "2"),
        ("--http1.1", &https, "1.1"),
        ("--http2-prior-knowledge", &http, "2"),
        ("--http1.1", &http, "1.1"),
        ("--http2", &http, "1.1"), // an upgrade in the clear is not taken (RFC 9113 section 3.1)
    ] {
        let file = folder.join("file");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-f", "-w", "%{http_version} %{http_code}", option, "-o"]).arg(&file);
        let ran = output(curl.arg("--cacert").arg(&chain).arg(url));
        assert_eq!(ran.out, format!("{version} 200"), "{option} {url}: {}", ran.err);
        assert!(fs::read(&file).unwrap() == content, "{option} {url}");
        // A part of it, too.
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-f", "-r", "4999999-", option, "-o"]).arg(&file);
        assert_eq!(output(curl.arg("--cacert").arg(&chain).arg(url)).code, 0);
        assert!(fs::read(&file).unwrap() == content[4_999_999..], "{option} {url}");
    }
}

#[test]
fn nghttp_and_h2load_find_nothing_wrong() {
    const NET: &str = "127.80.42";
    let network = Network::start(NET, "");
    fs::write(network.tree().join("small"), vec![7; 1024]).unwrap();
    fs::write(network.tree().join("large"), vec![8; 300_000]).unwrap();
    for base in [format!("https://{NET}.1:7443"), format!("http://{NET}.1:7080")] {
        let small = format!("{base}/small");
        let ran = output(Command::new("nghttp").arg(&small));
        assert_eq!((ran.code, ran.out.len()), (0, 1024), "{base}: {}", ran.err);
        // Windows as small as they may be, and small answers beside large ones.
        let mut load = Command::new("h2load");
        load.args(["-n", "2000", "-c", "4", "-m", "50", "-w", "16", "-W", "16"]);
        let ran = output(load.args([&small, &format!("{base}/large")]));
        let want = "2000 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(ran.out.contains(want), "{base}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains("status codes: 2000 2xx"), "{base}: {}", ran.out);
    }
    // Counted at once, shown within a second.
    until("all of it is in the metrics", || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "http://admin/metrics", "--unix-socket"]);
        let metrics = output(curl.arg(network.dir().join("one.sock"))).out;
        ["requests_total 4002", "connections_total 10", "goaways_total{reason=\"flood\"} 0"]
            .iter()
            .all(|shown| metrics.contains(&format!("\ncacheboy_edge_http2_{shown}\n")))
    });
}
