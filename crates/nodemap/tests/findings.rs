//! Broken maps and the exact findings they give: the wording is what an admin works with.
//!
//! Each folder of `tests/golden/maps` is one map; `findings.txt` in it is what must be said. After a
//! change of wording run with `CACHEBOY_GOLDEN=write`, and read the difference before committing it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use nodemap::admin;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/maps")
}

/// The `*.toml` of a folder by their bare names, so that findings do not depend on where it lies.
fn read(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| PathBuf::from(entry.unwrap().file_name()))
        .filter(|name| name.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files.into_iter().map(|n| (n.clone(), std::fs::read_to_string(dir.join(n)).unwrap())).collect()
}

#[test]
fn broken_maps_give_exactly_their_findings() {
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 10, "only {} cases found", cases.len());
    let write = std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write");
    for case in cases {
        let findings = admin::load(&read(&case)).expect_err("a broken map was accepted");
        let found: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        let expected = case.join("findings.txt");
        if write {
            std::fs::write(&expected, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(found, expected, "{}", case.display());
    }
}

#[test]
fn every_finding_says_where_what_and_what_to_do() {
    for case in std::fs::read_dir(golden()).unwrap() {
        let case = case.unwrap().path();
        for finding in admin::load(&read(&case)).unwrap_err() {
            let whole = finding.file == Path::new(".") || finding.problem.contains("of a host");
            assert!(finding.line > 0 || whole, "{finding}");
            assert!(!finding.problem.is_empty() && !finding.remedy.is_empty(), "{finding}");
            assert!(finding.to_string().len() < 400, "{finding}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_read_or_holds_nothing_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let findings = admin::load_dir(&missing).unwrap_err();
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!(
            "{}: cannot be read (No such file or directory (os error 2)): check that it exists and \
             who may read it",
            missing.display()
        )]
    );
    let findings = admin::load_dir(dir.path()).unwrap_err();
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!(
            "{}: holds no *.toml file: name the folder that holds the admin maps",
            dir.path().display()
        )]
    );
}

#[test]
fn what_is_no_text_or_no_file_is_a_finding_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.toml"), "# fine\n[site.x] # Sm\u{e5}land").unwrap();
    std::fs::write(at("b.toml"), b"# fine\n[site.y] # Sm\xe5land\n").unwrap();
    std::fs::write(at("c.toml"), [0xff, 0xfe]).unwrap();
    // A write would wait for its reader for ever, and a reader for its writer.
    assert!(std::process::Command::new("mkfifo").arg(at("d.toml")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", at("e.toml")).unwrap();
    std::fs::create_dir(at("f.toml")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("g.toml")).unwrap();
    let large = std::fs::File::create(at("h.toml")).unwrap();
    large.set_len(admin::FILE_BYTES_MAX + 1).unwrap();
    let folder = format!("{}/", dir.path().display());
    let findings = admin::load_dir(dir.path()).unwrap_err();
    let found: Vec<String> =
        findings.iter().map(|finding| finding.to_string().replacen(&folder, "", 1)).collect();
    let no_text = "save it as UTF-8 (iconv -f ISO-8859-1 -t UTF-8 turns Latin-1 into it)";
    let no_file = "keep only files with maps under names that end in .toml";
    assert_eq!(
        found,
        [
            format!("b.toml:2: is not UTF-8 text: byte 0xe5: {no_text}"),
            format!("c.toml:1: is not UTF-8 text: byte 0xff: {no_text}"),
            format!("d.toml: is a named pipe, not a file: {no_file}"),
            format!("e.toml: is a device, not a file: {no_file}"),
            format!("f.toml: is a folder, not a file: {no_file}"),
            format!("g.toml: is a socket, not a file: {no_file}"),
            "h.toml: has more than the 16777216 bytes that a map file may have: split it into \
             several files"
                .to_owned(),
        ]
    );
}

/// While files are being replaced one by one, some of them are missing for a moment.
#[test]
fn a_folder_with_one_file_missing_is_refused() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../maps");
    let whole = read(&samples);
    assert!(whole.len() > 4);
    assert!(admin::load(&whole).is_ok());
    for (missing, _) in &whole {
        let rest: Vec<_> = whole.iter().filter(|(name, _)| name != missing).cloned().collect();
        let findings = admin::load(&rest).unwrap_err();
        assert!(!findings.is_empty(), "{} is not missed", missing.display());
    }
    // The two that hold one another up.
    let without = |names: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in whole.iter().filter(|(n, _)| !names.contains(&n.to_str().unwrap())) {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let findings = admin::load_dir(dir.path()).unwrap_err();
        let start = format!("{}: ", dir.path().display());
        findings
            .iter()
            .map(|finding| finding.to_string().strip_prefix(&start).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        without(&["projects.toml", "steering.toml", "pools.toml", "zones.toml"]),
        [
            "no file here has a project, so nobody would be served: put the file back that has it, \
             or define [project.NAME]",
            "no file here has a zone, so nobody would be served: put the file back that has it, or \
             define [zone.\"NAME\"]",
        ]
    );
    let all: Vec<&str> = whole.iter().map(|(name, _)| name.to_str().unwrap()).collect();
    let but_sites: Vec<&str> = all.into_iter().filter(|name| *name != "sites.toml").collect();
    assert_eq!(without(&but_sites).len(), 3, "{:?}", without(&but_sites));
}
