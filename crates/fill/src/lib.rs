//! The fill machine: which missing blocks of one representation are asked of which master, when,
//! and what happens when that fails.
//!
//! Flow: a client is blocked at a block ([`Fill::handle_want`]) -> [`Fill::poll`] asks for a run of
//! contiguous missing blocks by one upstream request -> the shell reports what upstream does
//! (`handle_*`), keeps the bytes and stores full blocks -> clients read on from the store. When a
//! run cannot be had from any master, the clients blocked on it are failed; nobody waits for ever.
//!
//! Pure: counts bytes, never sees them; time comes as an argument; which blocks are held is asked
//! of the store at each poll, so there is one truth about it.
//!
//! Invariants: a block that is held or in flight is never asked again (E2); nothing here knows
//! the pace of a client (E3); at most [`Limits::runs_max`] requests at once, so that a shell with
//! one block buffer a run has bounded memory (E5).
//!
//! Reading order: [`geometry`] (blocks and bytes), [`masters`] (whom to ask; how soon
//! each answers: `latency`), `run` (one upstream
//! request), [`machine`] (the whole), [`failure`] (why a run ended).

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod failure;
pub mod geometry;
mod latency;
pub mod machine;
pub mod masters;
mod run;

pub use failure::Failure;
pub use geometry::Geometry;
pub use machine::{ClientId, Fill, Limits, Next, Output, Reach, RunId};
pub use masters::{Choice, MasterId, Masters, Shown};
pub use run::Room;
