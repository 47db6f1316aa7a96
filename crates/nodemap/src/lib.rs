//! The admin map that people edit and the node map that health publishes.
//!
//! Flow: TOML files -> [`admin::load`] -> [`AdminMap`] -> (health adds states and a generation) ->
//! [`NodeMap`] -> JSON -> every DNS node and edge.
//!
//! Pure: takes text, gives values and [`Finding`]s; knows nothing of sockets or clocks.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod admin;
pub mod finding;
pub mod published;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod toml_read;
mod words;

pub use admin::{
    AdminMap, AllDown, Bill, Cap, Glob, HostPattern, Master, Node, PathPolicy, Project, Site, Soa,
    SteeringMap, Zone,
};
pub use finding::Finding;
pub use published::{NodeMap, NodeStates};
