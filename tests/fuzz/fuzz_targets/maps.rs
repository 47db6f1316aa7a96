//! Any text as an admin map: findings or a map, and a map prints to one that reads back the same.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let load = |text: String| nodemap::admin::load(&[(PathBuf::from("fuzz.toml"), text)]);
    if let Ok(map) = load(text.to_owned()) {
        assert_eq!(load(map.print()).as_ref(), Ok(&map));
    }
});
