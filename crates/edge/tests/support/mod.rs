//! An edge in this process, masters that do what a test tells them, and a client that checks every
//! byte. All on 127.0.0.1 with ports of the kernel's choice.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "the same")]

pub mod client;
pub mod edge;
pub mod hits;
pub mod origin;

use sha2::{Digest, Sha256};

/// Bytes of a block of the edges under test.
pub const BLOCK: usize = 64 << 10;

/// Content that differs at every place and between names and versions.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = model::Dice::seeded(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&dice.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Asserts that two bodies are the same without printing them.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    assert_eq!(sha256(found), sha256(expected), "content");
}
