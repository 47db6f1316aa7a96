//! Bytes as a list of what a peer, the clock and an operator do to a BGP session: what must hold does.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.iter();
    bgp_proto::testing::operations(|n| bytes.next().map(|byte| u64::from(*byte) % n));
});
