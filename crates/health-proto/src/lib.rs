//! The checker without its sockets: probe results in, node states and node maps out.
//!
//! In the order of the flow: [`probe`] (what is probed, what may come back, how one address is
//! counted), [`checker`] (the machine: schedule, states, publishing), [`generation`] (the rule that
//! numbers published maps, and the readers it listens to), [`overview`] (what people see).
//!
//! Pure: time comes in as [`model::Now`], dice as [`model::Dice`]; this crate knows nothing of
//! sockets, files or HTTP. The invariants are H1 (in its plain form, see [`checker`]) and H2.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod checker;
pub mod generation;
pub mod overview;
pub mod probe;

pub use checker::{Checker, Params, ParamsError};
pub use overview::Overview;
pub use probe::{Failure, Passed, Probe, ProbeResult, Target};

#[cfg(test)]
mod conversations;
#[cfg(test)]
mod tests;
