//! Replays the committed corpus of the header fuzzer, and some of its neighbourhood.

use std::path::{Path, PathBuf};

fn corpus() -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/http_headers");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        let path = entry?.path();
        files.push((path.clone(), std::fs::read(path)?));
    }
    files.sort();
    Ok(files)
}

#[test]
fn the_corpus_breaks_no_invariant() {
    let corpus = corpus().unwrap();
    assert!(corpus.len() >= 10, "the corpus is gone");
    for (name, data) in &corpus {
        println!("{}", name.display());
        http_cache::fuzz_headers(data);
    }
}

/// Every prefix and every single-byte change to a few telling values, of every file.
#[test]
fn neither_does_its_neighbourhood() {
    for (name, data) in corpus().unwrap() {
        println!("{}", name.display());
        for n in 0..data.len() {
            http_cache::fuzz_headers(&data[..n]);
            for byte in [0u8, b'"', b',', b'%', b'\n', b'9', 0xff] {
                let mut changed = data.clone();
                changed[n] = byte;
                http_cache::fuzz_headers(&changed);
            }
        }
    }
}
