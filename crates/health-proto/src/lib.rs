//! The checker without its sockets: probe results in, node states and node maps out.
//!
//! In the order of the flow: [`setup`] (what the config says), [`probe`] (what is asked of whom, what may
//! come back), `targets` (who is asked), `schedule` (when), `count` (how one target is counted), `watch`
//! (what this checker thinks of a node or master), `masters` (how these are compared), [`observe`] (what a
//! checker tells the others), [`council`] (what they say together, and who publishes), `standing` (what
//! is published of it), [`load`] (what nodes say of their load), [`guard`] (how far one step
//! may go), [`checker`] (the machine),
//! [`generation`] (the rule that numbers published maps, and the readers it listens to), [`event`]
//! (what changed), [`acme`] (which certificates are ordered, and when), [`alarm`] (what a person must look at), [`overview`] (what people see).
//!
//! Pure: time comes in as [`model::Now`], dice as [`model::Dice`]; this crate knows nothing of
//! sockets, files or HTTP. The invariants are H1, H2 and S3.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod acme;
pub mod alarm;
pub mod checker;
pub mod council;
mod count;
pub mod event;
pub mod generation;
pub mod guard;
pub mod load;
mod masters;
pub mod observe;
pub mod overview;
pub mod probe;
mod schedule;
pub mod setup;
mod standing;
mod targets;
mod watch;

pub use alarm::Alarm;
pub use checker::Checker;
pub use council::Role;
pub use event::Event;
pub use load::LoadReport;
pub use observe::Observations;
pub use overview::Overview;
pub use probe::{Failed, Failure, Passed, Probe, ProbeResult, Question, Target};
pub use setup::{Params, ParamsError, Setup};

#[cfg(test)]
mod conversations;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
