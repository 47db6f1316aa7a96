//! What the fuzzer of the maps found worth keeping is read again by every test run: no input may
//! panic, every refusal is explained, and what is accepted survives being printed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use nodemap::admin;
use proptest::prelude::*;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/maps");

fn load(text: String) -> Result<admin::AdminMap, Vec<nodemap::Finding>> {
    admin::load(&[(PathBuf::from("input.toml"), text)])
}

/// What must hold for any input. Gives whether it was accepted.
fn holds(text: &str) -> bool {
    let lines = text.split('\n').count();
    match load(text.to_owned()) {
        Ok(map) => {
            assert_eq!(load(map.print()).as_ref(), Ok(&map));
            true
        }
        Err(findings) => {
            assert!(!findings.is_empty());
            for finding in findings {
                assert!(!finding.problem.is_empty() && !finding.remedy.is_empty(), "{finding}");
                assert!(finding.line <= lines, "{finding}");
            }
            false
        }
    }
}

fn corpus() -> Vec<(String, String)> {
    let paths = std::fs::read_dir(Path::new(CORPUS)).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let text = String::from_utf8(std::fs::read(&path).unwrap()).ok()?;
        Some((path.display().to_string(), text))
    };
    paths.filter_map(read).collect()
}

#[test]
fn the_corpus_of_maps_holds() {
    let (accepted, refused): (Vec<_>, Vec<_>) =
        corpus().into_iter().partition(|(_, text)| holds(text));
    let names = |list: &[(String, String)]| list.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert!(accepted.len() >= 3, "accepted only {:?}", names(&accepted));
    assert!(refused.len() >= 6, "refused only {:?}", names(&refused));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    /// One of the corpus with some characters taken out and others put in.
    #[test]
    fn damaged_maps_are_refused_or_read_but_never_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..4usize, "[\\PC\n]|[]\\[{}=\".,#\n ]{0,3}"),
            1..6,
        ),
    ) {
        let corpus = corpus();
        let mut text: Vec<char> = which.get(&corpus).1.chars().collect();
        for (at, removed, inserted) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted.chars());
        }
        holds(&text.iter().collect::<String>());
    }
}
