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
            assert!(finding.line > 0, "{finding}");
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
    std::fs::write(dir.path().join("a.toml"), [0xff, 0xfe]).unwrap();
    let findings = admin::load_dir(dir.path()).unwrap_err();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].file, dir.path().join("a.toml"));
    assert!(findings[0].problem.contains("UTF-8"), "{}", findings[0]);
}
