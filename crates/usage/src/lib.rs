//! What was sent to whom: the record of an access, the formats of its log, sums, and reports.
//!
//! Flow: an edge makes a [`Record`] of each answer that has ended -> a line of its access log, and a
//! part of sums -> `cacheboy report` reads the lines again and prints tables, or the [`demand`] that planning goes by.
//!
//! Knows nothing of files, sockets, threads or clocks.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod demand;
pub mod read;
pub mod record;
pub mod sums;
pub mod table;
pub mod write;

pub use record::{ConnectionRecord, Outcome, Record, Way};
