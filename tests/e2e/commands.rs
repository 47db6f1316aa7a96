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

/// The commands that a help lists.
fn commands(help: &str) -> Vec<&str> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help").collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(output(cacheboy().args(["man", "--dir"]).arg(dir.path())).code, 0);
    let page = |name: &str| fs::read_to_string(dir.path().join(format!("{name}.1"))).expect(name);
    let help = output(cacheboy().arg("--help")).out;
    assert!(commands(&help).len() > 10, "{help}");
    for command in commands(&help) {
        let own = page(&format!("cacheboy-{command}"));
        assert!(own.contains(".SH SYNOPSIS") && own.contains(".SH OPTIONS"), "{own}");
    }
    assert!(page("cacheboy-node-drain").contains("\\-\\-reason"), "commands of commands too");
    assert_eq!(output(cacheboy().arg("man")).out, page("cacheboy"));
    let nowhere = output(cacheboy().args(["man", "--dir"]).arg(dir.path().join("nowhere")));
    assert_eq!(nowhere.code, 1);
    assert!(nowhere.err.contains("cannot write manual pages to"), "{}", nowhere.err);
}

#[test]
fn a_shell_completes_commands_and_options() {
    let script = output(cacheboy().args(["completions", "bash"])).out;
    let complete = |words: &str, at: usize, word: &str, before: &str| {
        let play = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={at}; _cacheboy cacheboy '{word}' '{before}'; \
             echo \"${{COMPREPLY[*]}}\""
        );
        output(std::process::Command::new("bash").args(["--norc", "-c", &play])).out
    };
    assert_eq!(complete("cacheboy mas", 1, "mas", "cacheboy"), "master\n");
    assert_eq!(complete("cacheboy edge --con", 2, "--con", "edge"), "--config\n");
    for shell in ["zsh", "fish"] {
        let script = output(cacheboy().args(["completions", shell])).out;
        assert!(script.contains("cacheboy") && script.contains("dnssec"), "{shell}: {script}");
    }
    assert_eq!(output(cacheboy().args(["completions", "cmd"])).code, 2);
}

/// The blocks of commands of a page, `<!-- run -->` before them or not.
fn blocks(page: &str, only_run: bool) -> Vec<String> {
    let mut blocks = Vec::new();
    let (mut inside, mut before) = (false, "");
    for line in page.lines().map(str::trim) {
        if inside && line == "```" {
            inside = false;
        } else if inside {
            let block: &mut String = blocks.last_mut().unwrap();
            block.push_str(line);
            block.push('\n');
        } else if line == "```sh" && (!only_run || before == "<!-- run -->") {
            inside = true;
            blocks.push(String::new());
        }
        before = line;
    }
    blocks
}

#[test]
fn commands_of_the_operators_page_do_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let copy = std::process::Command::new("cp")
        .arg("-r")
        .arg(root().join("maps"))
        .arg(dir.path())
        .output();
    assert!(copy.unwrap().status.success());
    let page = fs::read_to_string(root().join("docs/operate.md")).unwrap();
    let blocks = blocks(&page, true);
    assert!(blocks.len() >= 4, "{blocks:?}");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_cacheboy"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    for block in blocks {
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-euo", "pipefail", "-c", &block]).current_dir(dir.path());
        let ran = output(bash.env("PATH", &path));
        assert_eq!(ran.code, 0, "{block}\n{}{}", ran.out, ran.err);
    }
    let explain = |maps: &str, client: &str| {
        let mut command = cacheboy();
        command.args(["explain", client, "videolan", "--maps"]).arg(dir.path().join(maps));
        output(&mut command).out
    };
    assert!(explain("maps-new", "192.0.2.1").contains("cable cut"), "the override is there");
    assert!(explain("maps-new", "81.2.69.142").contains("drained"), "the node is drained");
    assert_ne!(
        explain("maps-new", "24.0.0.1"),
        explain("maps", "24.0.0.1"),
        "the weight is another"
    );
}

#[test]
fn pages_name_commands_and_options_that_there_are() {
    let mut helps = std::collections::BTreeMap::<Vec<String>, String>::new();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        for line in
            blocks(&fs::read_to_string(&path).unwrap(), false).iter().flat_map(|b| b.lines())
        {
            let Some(rest) = line.strip_prefix("cacheboy ") else { continue };
            let rest = rest.split(['#', '|', '&', '>']).next().unwrap();
            let words: Vec<_> = rest.split_whitespace().map(str::to_owned).collect();
            let known = |words: &[String]| {
                words.iter().all(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            };
            let two = words.len() > 1
                && ["map", "node", "cert", "dnssec", "geoip"].contains(&words[0].as_str());
            let command = words[..if two { 2 } else { 1 }].to_vec();
            assert!(known(&command), "{}: {line}", path.display());
            let help = helps.entry(command.clone()).or_insert_with(|| {
                let ran = output(cacheboy().args(&command).arg("--help"));
                assert_eq!(ran.code, 0, "{}: {line}\n{}", path.display(), ran.err);
                ran.out
            });
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option.as_str()), "{}: {line}: no {option}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "the pages are read: {seen} options");
}
