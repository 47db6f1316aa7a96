//! A master over real sockets on loopback.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod content;
mod index;
mod refusals;
mod replaced;
