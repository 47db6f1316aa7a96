//! The admin map that people edit and the node map that health publishes.
//!
//! Flow: TOML files -> [`admin::load`] -> [`AdminMap`] -> (health adds states and a generation) ->
//! [`NodeMap`] -> JSON, signed ([`signature`]) -> every DNS node and edge.
//!
//! Pure: takes text, gives values and [`Finding`]s; knows nothing of sockets or clocks.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod admin;
pub mod finding;
pub mod published;
pub mod signature;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod toml_read;
mod words;

pub use admin::{
    AdminMap, AllDown, Bill, Cap, Glob, HostPattern, KeyDigest, Master, MaxShare, Node, Override,
    PathPolicy, Project, ProjectTls, RouteRule, Serve, Site, Soa, SteeringMap, Trust, Zone,
};
pub use finding::Finding;
pub use published::{Acme, HandOut, MasterState, MasterWord, NodeMap, NodeStates};
