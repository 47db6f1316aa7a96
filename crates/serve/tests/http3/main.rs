//! HTTP/3 as a client sees it: quinn and h3 over loopback, glued by `h3-quinn` rather than by ours.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

#[path = "../support/book.rs"]
#[allow(unreachable_pub, reason = "other test programs have it too")]
mod book;
mod books;
mod crowded;
mod ends;
mod exchanges;
mod support;
