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
//! Invariants: a block that is held or in flight is never asked again, but by a hedge: one request
//! in a hundred, for the same bytes, of which one answer is read (E2). A run keeps pace with the
//! fastest client that wants it and never waits for a slower one (E3); it is never more than a
//! window ahead of that, unless there is proof of demand for the whole (E5). At most
//! [`Limits::runs_max`] requests at once and one for completion, so that a shell with one block
//! buffer a run has bounded memory (E5).
//!
//! Reading order: [`geometry`] (blocks and bytes), [`masters`] (whom to ask; how soon
//! each answers: `latency`; which parent: [`parents`]), `run` (one upstream request), [`machine`] (the whole) with `plan`
//! (what is asked next) and `proof` (whether the whole is to be had), [`hedges`] (how often a
//! second master may be asked), [`allowance`] (how much completion takes), [`failure`] (why a run ended).

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod allowance;
pub mod failure;
pub mod geometry;
pub mod hedges;
mod latency;
pub mod machine;
pub mod masters;
pub mod parents;
mod plan;
mod proof;
mod run;

pub use allowance::Allowance;
pub use failure::Failure;
pub use geometry::Geometry;
pub use hedges::Hedges;
pub use machine::{
    Around, Chosen, ClientId, Fill, Full, Head, Limits, Next, Output, Reach, RunId, Subject,
};
pub use masters::{Choice, MasterId, Masters, Shown};
pub use run::{Pace, Reason, Room};
