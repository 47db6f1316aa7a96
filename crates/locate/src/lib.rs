//! Client address -> [`Location`](model::Location): AS number, country, continent, and the prefix
//! that decided.
//!
//! Flow: a MaxMind-format file -> `database` (read whole, every record decoded by the rules of
//! `record`) -> [`Locator`] (country and ASN database joined into one list of [`runs`], and [`Routes`],
//! the live routing table, over it). [`Sweep`] goes through all that it knows.
//!
//! Invariants:
//! - The runs of a locator are disjoint, ascending and cover the whole address space; neighbours
//!   differ; so are those of each view of routes. Hence the prefix of a location is the widest inside which
//!   neither a database nor a route says anything else.
//! - A file is judged whole when it is opened: a damaged one is refused then, never met later in a
//!   lookup.
//! - Unknown stays unknown: what neither a database nor a route says is `None`, and AS 0 is unknown.
//!
//! IPv4-mapped IPv6 addresses (RFC 4291 section 2.5.5.2) are looked up as IPv4. Other IPv6 forms
//! that carry an IPv4 address (6to4, IPv4-compatible) are not: there the database speaks for itself
//! or nothing is known.
//!
//! Knows nothing of maps, pools or nodes. Reads files when told to, and no clock.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod database;
mod locator;
#[cfg(any(test, feature = "testing"))]
pub mod mmdb_write;
mod names;
mod record;
mod routes;
pub mod runs;
mod sweep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use database::{DatabaseInfo, OpenError, Provides};
pub use locator::{Evidence, Locator};
pub use names::Names;
pub use routes::{Heard, Routes};
pub use sweep::Sweep;

#[cfg(test)]
mod tests;
