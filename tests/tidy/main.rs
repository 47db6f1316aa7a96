//! Tidy: the house is as `docs/ARCHITECTURE.md` and `docs/STYLE.md` say it is.
//!
//! Nothing here runs Cacheboy. Each test reads the work tree (and asks `cargo tree`) and lists every
//! fault it finds, so that one run shows them all.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod docs;
mod rooms;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every file below `folder` whose name ends in `.extension`, relative to the root, in order. Build
/// output and hidden folders are left out.
fn files_below(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![root().join(folder)];
    while let Some(folder) = ahead.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                ahead.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                let relative = path.strip_prefix(root()).unwrap();
                found.push(relative.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Fails with all faults, one a line.
fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}
