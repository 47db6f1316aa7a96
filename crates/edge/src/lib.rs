//! The edge role: serves clients from its disks and fills what is missing from masters.
//!
//! A tour in the order a request takes: [`handler`] (host to project, target to key) -> [`asked`] (what is held to a step) -> [`flight`] (one question for each key, however many wait; [`early`]: of whom a few may ask for other parts of
//! it) -> [`fetch`] (the question:
//! first fetch or revalidation, masters in turn) -> [`accept`] (what is taken of their answers) -> [`filling`] (the fill machine with its clients
//! and block buffers) -> [`pour`] (upstream bytes into blocks) -> [`deliver`] (blocks to the
//! client) -> [`past`] (bytes straight from a master when the store takes no more). Beside it:
//! [`refusal`], [`redirect`] and [`pass`] (requests that are refused, whose clients are sent to another
//! node, or that are passed on), [`home`] (masters that
//! disagree), [`rules`] (what a project says of paths), [`group`] (index files that are served from
//! snapshots), [`host`] (what a request names), [`upstream`] (connections to sources, with bounded patience), [`probe`] (whether a bad
//! source is good again), [`project`] and [`sources`] (hosts, masters and parents of the node map),
//! [`stores`] (the disks), [`caps`] and [`bill`] (how fast bytes leave), [`hand_over`] (giving them to the next process), [`reading`] and [`signed`] (what is kept of heads), [`memo`] (errors and other things known of keys), [`purge`] (what is not
//! used any more), [`answers`] (what is not content), [`visitor`] and [`access`] (who asks, and what is booked of each answer), [`account`] (the books: logs and sums), [`counters`], [`complaints`] (warnings,
//! not too many), [`shell`] (listeners and the node map).
//!
//! Invariants: one filling for a representation and one question for a key, so that a block is
//! asked for once (E2); questions and fills are tasks of their own, never a client's (E3); an error
//! never replaces what is held (E4); memory is bounded: block buffers by `fill_memory`, of which one
//! of several projects has at most half, a waiting client by one copy of 64 KiB, what is remembered of
//! keys by count, connections by the listener (E5).
//!
//! The rules of HTTP are those of `http-cache`, the plan of a fill is `fill`'s; this room moves
//! bytes.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod accept;
mod access;
mod account;
mod answers;
mod asked;
mod audience;
mod bill;
mod caps;
mod check;
mod coming;
mod complaints;
mod connections;
mod counters;
mod deliver;
mod drain;
mod early;
mod fetch;
mod filling;
mod flight;
mod group;
mod guard;
mod hand_over;
mod handler;
mod hedge;
mod home;
mod host;
mod lane;
mod memo;
mod offer;
pub mod params;
mod pass;
mod past;
mod pour;
mod probe;
mod project;
mod purge;
mod question;
mod reach;
mod reader;
mod reading;
mod redirect;
mod refusal;
mod rules;
mod shell;
mod signed;
mod slot;
mod sources;
mod spool;
mod state;
mod stores;
mod upstream;
mod variants;
mod visitor;

pub use params::{LimitParams, LogParams, Params, StoreParams, Timeouts};
pub use shell::{Bound, Error, bind, bind_on, look};
pub use stores::StoresError;
pub use upstream::tls::CaError;
