//! Real package managers against a repository that changes every second, through two edges: with its
//! index files in a group they never see two times, without it they do.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

use support::network::Network;
use support::repository::{Changing, SigningKey};
use support::stand_in::StandIn;
use support::{Ran, output, until};

/// The same repository, with and without a group; the same lifetime for both.
const PATHS: &str = r#"
[[project.files.path]]
glob = "grouped/**"
ttl_s = 2
group = "index"

[[project.files.path]]
glob = "plain/**"
ttl_s = 2
"#;

/// Runs with the group, and more while the repository has not changed so often.
const RUNS: usize = 50;
const CHANGES: u64 = 8;
/// Runs without it in which a mismatch must come: on a quick machine few of them are in the middle
/// of a change.
const RUNS_WITHOUT: usize = 1500;
/// Clients at a time.
const CLIENTS: usize = 3;

/// What a run of a package manager came to.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Right,
    /// It saw files of different times.
    Mismatch,
}

/// Makes runs, some at a time, each through the next edge, until `is_enough` says so of the number of
/// runs begun and of mismatches; how many there were of both.
fn runs(
    is_enough: impl Fn(usize, usize) -> bool + Sync,
    one: impl Fn(usize, usize) -> Came + Sync,
) -> (usize, usize) {
    let (begun, mismatches) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (begun, mismatches, one) = (&begun, &mismatches, &one);
            let is_enough = &is_enough;
            scope.spawn(move || {
                loop {
                    let run = begun.fetch_add(1, Relaxed);
                    if is_enough(run, mismatches.load(Relaxed)) {
                        return;
                    }
                    if one(client, run) == Came::Mismatch {
                        mismatches.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    (begun.into_inner().saturating_sub(CLIENTS), mismatches.into_inner())
}

/// Plays a package manager's runs: without the group until one saw a mismatch, with it all of them.
fn play(manager: &str, net: &'static str, one: impl Fn(&str, &Path) -> Came + Sync) {
    let network = Network::start(net, PATHS);
    let key = SigningKey::generate(&network.folder("key"));
    fs::copy(key.public(), network.tree().join("key.asc")).unwrap();
    let folders = ["grouped", "plain"].map(|name| network.tree().join(name));
    let begun = AtomicU16::new(1);
    let changing = Changing::start(folders.into(), key);
    let run = |kind: &str, client: usize, run: usize| {
        // Each run is a client that nobody knows.
        let number = begun.fetch_add(1, Relaxed).to_be_bytes();
        let stand_in = StandIn::start([127, 99, number[0], number[1]].into(), network.edge(run));
        let url = format!("http://{}/{kind}", stand_in.address());
        one(&url, &network.folder(&format!("{manager}-{kind}-{client}")))
    };
    for edge in 0..2 {
        // Until then the edge does not know what belongs together.
        until("the edge has learned the group", || run("grouped", CLIENTS, edge) == Came::Right);
    }
    let before = changing.version();
    let (count, mismatches) = runs(
        |begun, _| begun >= RUNS && changing.version() - before >= CHANGES,
        |client, n| run("grouped", client, n),
    );
    let changes = changing.version() - before;
    println!(
        "{manager} with the group: {mismatches} mismatches in {count} runs, {changes} changes"
    );
    assert_eq!(mismatches, 0);
    for host in ["one", "two"] {
        let group = &network.status(host)["edge"]["groups"][0];
        println!("{host}: {group}");
        assert!(group["switches"].as_u64().unwrap() > 1, "{group:#}");
    }
    let (count, mismatches) = runs(
        |begun, mismatches| begun >= RUNS_WITHOUT || mismatches > 0,
        |client, n| run("plain", client, n),
    );
    println!("{manager} without: {mismatches} mismatches in {count} runs");
    assert!(mismatches > 0, "without the group it was right as well");
}

#[test]
fn apt_never_sees_two_times() {
    play("apt", "127.80.0", |url, folder| {
        let ran = apt(url, folder);
        let said = format!("{}{}", ran.out, ran.err);
        let mismatch = ["Hash Sum mismatch", "unexpected size", "invalid: BADSIG"];
        match ran.code {
            0 => Came::Right,
            _ if mismatch.iter().any(|words| said.contains(words)) => Came::Mismatch,
            _ => panic!("apt-get: {said}"),
        }
    });
}

/// The key that the repository is signed with.
fn fetch_key(url: &str, folder: &Path) -> PathBuf {
    let key = folder.join("key.asc");
    let host = url.rsplit_once('/').unwrap().0;
    let mut fetch = Command::new("curl");
    assert_eq!(output(fetch.arg("-sfo").arg(&key).arg(format!("{host}/key.asc"))).code, 0);
    key
}

/// `apt-get update` in a folder of its own: nothing of the machine's configuration counts.
fn apt(url: &str, folder: &Path) -> Ran {
    let at = |name: &str| folder.join(name).display().to_string();
    for part in ["state/lists/partial", "cache/archives/partial", "etc/none"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    let key = fetch_key(url, folder);
    let source = format!("deb [signed-by={}] {url}/debian stable main\n", key.display());
    fs::write(folder.join("sources.list"), source).unwrap();
    fs::write(folder.join("status"), "").unwrap();
    let config = format!(
        "Dir::Etc::Parts \"{none}\"; Dir::Etc::Main \"{none}/x\"; Dir::Etc::SourceParts \"{none}\"; \
         Dir::Etc::PreferencesParts \"{none}\"; Dir::Etc::SourceList \"{}\"; Dir::State \"{}\"; \
         Dir::State::Status \"{}\"; Dir::Cache \"{}\"; APT::Architecture \"amd64\"; \
         APT::Architectures {{ \"amd64\"; }}; APT::Sandbox::User \"\"; Acquire::Languages {{ \"en\"; }}; \
         Acquire::http::Proxy \"DIRECT\"; Acquire::Retries \"0\"; Debug::NoLocking \"1\";\n",
        at("sources.list"),
        at("state"),
        at("status"),
        at("cache"),
        none = at("etc/none"),
    );
    fs::write(folder.join("apt.conf"), config).unwrap();
    let mut command = Command::new("apt-get");
    command.env("APT_CONFIG", folder.join("apt.conf")).env("LC_ALL", "C");
    output(command.args(["update", "--error-on=any"]))
}

#[test]
fn dnf_never_sees_two_times() {
    play("dnf", "127.80.1", |url, folder| {
        let ran = dnf(url, folder);
        let said = format!("{}{}", ran.out, ran.err);
        let mismatch =
            ["checksum doesn't match", "GPG signature verification error", "Bad GPG signature"];
        match ran.code {
            0 => Came::Right,
            _ if mismatch.iter().any(|words| said.contains(words)) => Came::Mismatch,
            _ => panic!("dnf: {said}"),
        }
    });
}

/// `dnf makecache` from nothing, in a folder of its own.
fn dnf(url: &str, folder: &Path) -> Ran {
    let at = |name: &str| folder.join(name).display().to_string();
    let key = fetch_key(url, folder);
    for part in ["cache", "root", "repos"] {
        let _ = fs::remove_dir_all(folder.join(part));
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    let config = format!(
        "[main]\ncachedir={}\nlogdir={}\npersistdir={}\nreposdir={}\nplugins=0\nretries=1\n\
         [test]\nname=test\nbaseurl={url}/rpm\ngpgcheck=0\nrepo_gpgcheck=1\n\
         gpgkey=file://{}\n",
        at("cache"),
        at("root"),
        at("root"),
        at("repos"),
        key.display(),
    );
    fs::write(folder.join("dnf.conf"), config).unwrap();
    let mut command = Command::new("dnf");
    command.env("LC_ALL", "C.UTF-8").arg("-c").arg(folder.join("dnf.conf"));
    command.arg(format!("--installroot={}", at("root"))).args([
        "--releasever=1",
        "--refresh",
        "-y",
    ]);
    output(command.arg("makecache"))
}
