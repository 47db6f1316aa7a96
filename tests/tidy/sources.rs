//! The form of source files.

use crate::{files_below, none, read};

/// Longest source file, in lines. Longer ones are split by phase.
const LINES_MAX: usize = 700;

/// All Rust sources of the house.
fn sources() -> Vec<String> {
    let mut files = files_below("crates", "rs");
    files.extend(files_below("tests", "rs"));
    assert!(files.len() > 50, "the sources are found: {}", files.len());
    files
}

#[test]
fn every_file_says_first_what_it_is() {
    let silent = sources().into_iter().filter(|file| !read(file).starts_with("//! "));
    none(silent.map(|file| format!("{file} does not begin with a module doc")).collect());
}

#[test]
fn no_file_is_too_long_to_read() {
    let counted = sources().into_iter().map(|file| (read(&file).lines().count(), file));
    let long = counted.filter(|(lines, _)| *lines > LINES_MAX);
    none(
        long.map(|(lines, file)| format!("{file} has {lines} lines, {LINES_MAX} at most"))
            .collect(),
    );
}

#[test]
fn no_test_is_ignored() {
    // Put together so that this file does not name it.
    let mark = ["#[", "ignore"].concat();
    let ignoring = sources().into_iter().filter(|file| read(file).contains(&mark));
    none(ignoring.map(|file| format!("{file} has an ignored test")).collect());
}
