//! Downloads in parts and in several sittings, with real clients: what was begun at one edge goes on
//! at another, and a file that was replaced meanwhile never ends as a mixture that looks right.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::download::{LENGTH, content, done, got, put, some_of};
use support::network::Network;
use support::output;

fn url(network: &Network, edge: usize, name: &str) -> String {
    format!("http://{}/{name}", network.edge(edge))
}

fn aria2(url: &str, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("aria2c");
    command.args(["--no-conf", "-x8", "-s8", "-k1M", "--file-allocation=none", "-d"]);
    command.arg(folder).args(["-o", "file"]).args(more).arg(url);
    command
}

fn curl(url: &str, file: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "-f", "-o"]).arg(file).args(more).arg(url);
    command
}

#[test]
fn parts_at_once_and_sittings_at_other_edges_give_the_exact_bytes() {
    let network = Network::start("127.80.2", "");
    let bytes = content(1, LENGTH);
    put(&network, "a", &bytes);
    put(&network, "b", &bytes);
    let folder = |name: &str| -> PathBuf { network.folder(name) };

    done(&output(&mut aria2(&url(&network, 0, "a"), &folder("whole"), &[])));
    assert!(got(&folder("whole")) == bytes);

    let parts = folder("parts");
    let slowly = ["--max-overall-download-limit=4M"];
    some_of(&mut aria2(&url(&network, 0, "b"), &parts, &slowly), &parts, 3 << 20);
    assert!(parts.join("file.aria2").exists(), "it was ended before its end");
    done(&output(&mut aria2(&url(&network, 1, "b"), &parts, &["-c"])));
    assert!(got(&parts) == bytes);

    let row = folder("row");
    let mut slow = curl(&url(&network, 1, "b"), &row.join("file"), &["--limit-rate", "4M"]);
    some_of(&mut slow, &row, 3 << 20);
    assert!(got(&row).len() < LENGTH, "it was ended before its end");
    done(&output(&mut curl(&url(&network, 0, "b"), &row.join("file"), &["-C", "-"])));
    assert!(got(&row) == bytes);
}

#[test]
fn a_file_that_was_replaced_between_two_sittings_is_one_version_or_an_error() {
    let network = Network::start("127.80.3", "");
    let (first, second) = (content(1, LENGTH), content(2, LENGTH - (3 << 20)));
    for name in ["a", "c"] {
        put(&network, name, &first);
    }
    let begin = |name: &str| -> PathBuf {
        let folder = network.folder(name);
        let slowly = ["--max-overall-download-limit=4M"];
        some_of(&mut aria2(&url(&network, 0, name), &folder, &slowly), &folder, 3 << 20);
        folder
    };
    // The edge where it began has it, whatever the master has now.
    let folder = begin("a");
    put(&network, "a", &second);
    done(&output(&mut aria2(&url(&network, 0, "a"), &folder, &["-c"])));
    assert!(got(&folder) == first);
    // Another edge has never seen that version.
    let folder = begin("c");
    put(&network, "c", &second);
    let ran = output(&mut aria2(&url(&network, 1, "c"), &folder, &["-c"]));
    let is_one = || got(&folder) == first || got(&folder) == second;
    assert!(ran.code != 0 || is_one(), "a mixture: {}", ran.out);
    // From its beginning it is the new one.
    let anew = network.folder("anew");
    done(&output(&mut aria2(&url(&network, 1, "c"), &anew, &[])));
    assert!(got(&anew) == second);

    // A client that wants the rest of something longer is told so.
    put(&network, "d", &second);
    let longer = network.folder("longer").join("file");
    fs::write(&longer, &first[..second.len() + 1]).unwrap();
    let refused = output(&mut curl(&url(&network, 1, "d"), &longer, &["-C", "-"]));
    assert_ne!(refused.code, 0);
    assert!(fs::read(&longer).unwrap() == first[..=second.len()]);
}
