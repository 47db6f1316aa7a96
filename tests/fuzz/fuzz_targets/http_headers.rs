//! Any bytes as request and response heads, through every rule of `http-cache`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| http_cache::fuzz_headers(data));
