//! Location x map -> class; class + node map -> nodes, with a reason for each left out.
//!
//! Flow: `compile` joins what the [`Rules`] of an admin map say of every address into one
//! [`ClassTable`] ([`table`], searched by `trie`), of live routes by `routed`, made at start and whenever the
//! rules, a database or routes change, or an override expires; [`walk`] goes through the pools
//! of a class against the node states; [`Steering`] does that beforehand for every project, class
//! and address family, made anew at every change of health or weights; [`choose`] takes the nodes of one answer from a
//! [`Plan`]; [`explain`] shows the same
//! walk to people; [`redirect`] is what an edge does with a client that came to it.
//!
//! Invariants:
//! - S1: a [`Plan`] is never empty because nodes are down, unless the project chose that.
//! - S2: every address inside the scope of a [`Hit`] has its class, and one bit shorter would hold
//!   another.
//! - S5: [`Steering::plan`] and [`Steering::explain`] come from the same [`walk`]; edges and people are
//!   told by the same [`Steering::decide`].
//! - S3: a guard keeps what a node or site gets of a project's answers below its share, as long as
//!   anybody else has room.
//!   A [`Step`] keeps what a change of routes moves at once below its share of all clients.
//! - Weight 0 means never; a drained node never either.
//!
//! Knows nothing of DNS or HTTP messages, sockets or clocks. Randomness is an argument.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod choose;
mod compile;
pub mod diff;
pub mod explain;
pub mod guard;
mod lookup;
mod overlay;
mod plan;
pub mod planning;
pub mod redirect;
mod routed;
mod rules;
mod steering;
mod step;
pub mod table;
mod trie;
pub mod walk;

pub use choose::{ANSWERS_MAX, Choice, Client};
pub use explain::{DecidedBy, Explanation};
pub use guard::Guard;
pub use lookup::Lookup;
pub use plan::{Candidate, Plan};
pub use rules::Rules;
pub use steering::{OutdatedTable, Steering};
pub use step::Step;
pub use table::{Audience, ClassId, ClassTable, CompileError, Hit};
pub use walk::{Excluded, LAST_RESORT_TTL_S, Verdict};

#[cfg(test)]
mod tests;
