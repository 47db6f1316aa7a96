//! Clients that people download with, over HTTP and HTTPS: what they ask for in parts, at once and in
//! several sittings at different edges, is the file to the byte.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::path::Path;
use std::process::Command;

use support::download::{LENGTH, content, done, got, put, some_of};
use support::network::Network;
use support::output;

/// Where the edges have a file, without and with TLS.
fn urls(network: &Network, edge: usize, name: &str) -> [String; 2] {
    let plain = format!("http://{}/{name}", network.edge(edge));
    [plain, format!("https://{}/{name}", network.tls_edge(edge))]
}

fn wget(network: &Network, url: &str, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("wget");
    command.args(["--no-config", "-nv", "--tries=1", "-c", "-O"]).arg(folder.join("file"));
    command.arg("--ca-certificate").arg(network.certificate()).args(more).arg(url);
    command
}

#[test]
fn wget_goes_on_at_another_edge() {
    let network = Network::start("127.80.10", "");
    let bytes = content(1, LENGTH);
    put(&network, "image", &bytes);
    for (number, url) in urls(&network, 0, "image").iter().enumerate() {
        let folder = network.folder(&format!("wget-{number}"));
        let slowly = ["--limit-rate=4m"];
        some_of(&mut wget(&network, url, &folder, &slowly), &folder, 3 << 20);
        assert!(got(&folder).len() < LENGTH, "it was ended before its end");
        done(&output(&mut wget(&network, &urls(&network, 1, "image")[number], &folder, &[])));
        assert!(got(&folder) == bytes, "{url}");
    }
}

#[test]
fn aria2_takes_sixteen_parts_at_once() {
    let network = Network::start("127.80.11", "");
    let bytes = content(2, LENGTH);
    put(&network, "image", &bytes);
    // The first time it is cold.
    for (number, url) in urls(&network, 0, "image").iter().enumerate() {
        let folder = network.folder(&format!("aria2-{number}"));
        let mut command = Command::new("aria2c");
        command.args(["--no-conf", "-x16", "-s16", "-k1M", "--file-allocation=none", "-o", "file"]);
        command.arg("--ca-certificate").arg(network.certificate());
        done(&output(command.arg("-d").arg(&folder).arg(url)));
        assert!(got(&folder) == bytes, "{url}");
    }
}

#[test]
fn curl_gets_the_ranges_it_asks_for() {
    let network = Network::start("127.80.12", "");
    let bytes = content(3, LENGTH);
    put(&network, "image", &bytes);
    let folder = network.folder("curl");
    for url in urls(&network, 0, "image") {
        let ranges =
            [("0-0", 0..1), ("65535-65537", 65_535..65_538), ("20000000-", 20_000_000..LENGTH)];
        for (range, part) in ranges.into_iter().chain([("-70000", LENGTH - 70_000..LENGTH)]) {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--http1.1", "-w", "%{http_code}", "-r", range, "--cacert"]);
            curl.arg(network.certificate()).arg("-o").arg(folder.join("file")).arg(&url);
            let ran = output(&mut curl);
            done(&ran);
            assert_eq!(ran.out, "206", "{range} of {url}");
            assert!(got(&folder) == bytes[part], "{range} of {url}");
        }
    }
}
