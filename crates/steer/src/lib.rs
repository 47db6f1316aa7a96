//! Location x map -> class; class + node map -> nodes, with a reason for each left out.
//!
//! Flow: [`table`] joins what every steering map says of every address into one [`ClassTable`],
//! made at start and whenever a steering map or a database changes; [`walk`] goes through the pools
//! of a class against the node states; [`Steering`] does that beforehand for every project, class
//! and address family, made anew at every change of health or weights; [`explain`] shows the same
//! walk to people; [`redirect`] is what an edge does with a client that came to it.
//!
//! Invariants:
//! - S1: a [`Plan`] is never empty because nodes are down, unless the project chose that.
//! - S2: every address inside the scope of a [`Hit`] has its class, and one bit shorter would hold
//!   another.
//! - S5: [`Steering::plan`] and [`Steering::explain`] come from the same [`walk`]; edges and people are
//!   told by the same [`Steering::decide`].
//! - Weight 0 means never; a drained node never either.
//!
//! Knows nothing of DNS or HTTP messages, sockets or clocks. Randomness is an argument.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod explain;
pub mod redirect;
mod steering;
pub mod table;
pub mod walk;

pub use explain::{DecidedBy, Explanation};
pub use steering::{Candidate, OutdatedTable, Plan, Steering};
pub use table::{ClassId, ClassTable, CompileError, Hit};
pub use walk::{Excluded, Verdict};

#[cfg(test)]
mod tests;
