//! Temporary text: the tour follows.
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod body;
pub mod disk;
mod server;

pub use body::{Body, BodyError, FileRange, Piece, Source};
pub use server::{Counters, Handler, Limits, http};
