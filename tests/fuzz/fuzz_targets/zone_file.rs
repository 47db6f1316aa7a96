//! Any bytes as a zone file: findings or records, and names can be made of them.
#![no_main]

use std::path::Path;
use std::sync::{Arc, Once};

use dns_proto::{left_out, zonefile};
use libfuzzer_sys::fuzz_target;
use nodemap::AdminMap;

/// A panic that the reader catches is none to report; any other still ends the run.
static QUIET: Once = Once::new();

fuzz_target!(|text: &[u8]| {
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    let apex = "cdn.example".parse().unwrap();
    match zonefile::parse(Path::new("fuzz.zone"), &apex, text) {
        Ok(file) => {
            assert!(file.records() > 0);
            left_out(&AdminMap::default(), &[Arc::new(file)]);
        }
        Err(findings) => assert!(!findings.is_empty()),
    }
});
