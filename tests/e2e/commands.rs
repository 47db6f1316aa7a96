//! Commands that end by themselves: what they print, and how they refuse.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use support::{cacheboy, output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_sample_maps_and_configs_are_clean() {
    let ran = output(cacheboy().arg("check").arg(root().join("maps")));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains(": ok: "), "{}", ran.out);
    let database = root().join("maps/geo/demo-2026-06-17.mmdb");
    let ran = output(cacheboy().arg("check").arg(database));
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("demo"), "the database says what it is: {}", ran.out);
}

#[test]
fn check_names_file_line_key_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    fs::write(&file, "[pool]\nasia = { mirror9 = 100 }\n").unwrap();
    let ran = output(cacheboy().arg("check").arg(dir.path()));
    assert_eq!(ran.code, 1);
    let line = ran.out.lines().find(|line| line.contains("mirror9")).expect(&ran.out);
    assert!(line.starts_with(&format!("{}:2: pool.asia", file.display())), "{line}");
    assert!(line.contains("[node.mirror9]"), "the remedy: {line}");
}

#[test]
fn a_role_refuses_to_start_and_tells_everything_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge.toml");
    let text = "[host]\nname = \"Edge 1\"\nstate_dir = \"state\"\n\n[edge]\nlisten = [\"nowhere\"]\n\
                colour = \"blue\"\n\n[[edge.store]]\npath = \"cache\"\nsize = \"much\"\n";
    fs::write(&file, text).unwrap();
    let ran = output(cacheboy().args(["edge", "--config"]).arg(&file));
    assert_eq!(ran.code, 1);
    for (line, key) in
        [(2, "host.name"), (6, "edge.listen"), (7, "edge.colour"), (11, "edge.store")]
    {
        let start = format!("{}:{line}: {key}", file.display());
        assert!(ran.err.contains(&start), "{start} is missing:\n{}", ran.err);
    }
}

#[test]
fn a_missing_or_corrupt_database_stops_the_redirector_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("dns.toml");
    for (database, content) in [("missing.mmdb", None), ("corrupt.mmdb", Some("not a database"))] {
        if let Some(content) = content {
            fs::write(dir.path().join(database), content).unwrap();
        }
        let text = format!(
            "[host]\nname = \"ns1\"\nstate_dir = \"state\"\n[follow]\nnode_map = [\"file:map.json\"]\n\
             [location]\ncountry = \"{database}\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\n"
        );
        fs::write(&config, text).unwrap();
        let ran = output(cacheboy().args(["dns", "--config"]).arg(&config));
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(database), "{}", ran.err);
    }
}

#[test]
fn lookup_and_explain_work_without_a_network() {
    let ran = output(cacheboy().args(["lookup", "87.128.0.1"]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("country    DE\n"), "{}", ran.out);
    assert!(ran.out.contains("AS3320 Deutsche Telekom AG"), "{}", ran.out);
    assert!(ran.err.contains("demo data"), "it warns: {}", ran.err);

    let maps = root().join("crates/cacheboy/demo/maps");
    let explain = |name: &str| {
        output(cacheboy().args(["explain", "--json", "--maps"]).arg(&maps).args(["24.0.0.1", name]))
    };
    for name in ["videolan", "videolan.cdn.example", "Download.VideoLAN.example."] {
        let ran = explain(name);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect(&ran.err);
        assert_eq!(document["decided_by"]["continent"], "NA", "{document:#}");
    }
    let unknown = explain("nobody.example");
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.err.contains("videolan.cdn.example"),
        "it names what there is: {}",
        unknown.err
    );
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let mut child = cacheboy()
        .args(["lookup", "87.128.0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!said.contains("panicked") && !said.contains("cannot write"), "{said}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let full = cacheboy().args(["lookup", "87.128.0.1"]).stdout(full).output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(said.contains("cannot write to standard output"), "{said}");
}

#[test]
fn the_demo_spares_a_folder_that_is_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("maps")).unwrap();
    fs::write(dir.path().join("maps/nodes.toml"), "mine").unwrap();
    let ran = output(cacheboy().args(["demo", "--dir"]).arg(dir.path()));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("holds other files"), "{}", ran.err);
    assert_eq!(fs::read_to_string(dir.path().join("maps/nodes.toml")).unwrap(), "mine");
    let missing = dir.path().join("nowhere");
    let ran = output(cacheboy().args(["demo", "--content"]).arg(&missing));
    assert!(ran.err.contains("no such folder"), "{}", ran.err);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [&["edge"][..], &["explain", "1.2.3.4", "a.example"], &["unknown"], &["check"]]
    {
        assert_eq!(output(cacheboy().args(arguments)).code, 2, "{arguments:?}");
    }
}
