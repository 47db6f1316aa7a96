//! The words of Cacheboy: what every other room talks about.
//!
//! Owns the small value types that cross room boundaries, each with the one way to parse and print
//! it. Pure: no I/O, no clock, no randomness of its own.
//!
//! Reading order: [`name`] (what things are called), [`place`] (where a client is), [`quantity`]
//! (how much, how fast), [`route`] (what routers say of prefixes), [`policy`] (what a project
//! wants of edges), [`state`] (what is known of a node), [`time`] (now and dice), [`base64`].

pub mod base64;
pub mod name;
pub mod place;
pub mod policy;
pub mod quantity;
pub mod route;
pub mod state;
pub mod time;

pub use name::{HostName, Name};
pub use place::{Asn, Continent, CountryCode, Family, Location};
pub use policy::{Completion, Query};
pub use quantity::{ByteCount, Rate};
pub use state::{NodeState, PERMILLE, State};
pub use time::{Dice, Now};
