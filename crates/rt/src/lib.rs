//! What every shell needs and none should make for itself.
//!
//! In the order a process meets them: [`log`], [`clock`] (the only reader of clocks and entropy),
//! [`shutdown`] and [`signals`] (the phases of the end, and what leads through them), [`yielding`]
//! (what is done before a successor), [`handover`] (starting one), [`alive`] and [`notify`] (what
//! systemd is told), [`context`] (what a role is handed at start), [`listen`], [`tls`]
//! (the certificates of listeners), [`identity`] (what hosts know each other by), [`file`] (whole files or nothing), [`log_file`]
//! (logs of lines), [`metrics`] (one table of all
//! metrics), [`admin`] (`/metrics`, `/status`), [`client`]
//! (one bounded HTTP request), [`follow`] (the node map: last good file, then a long poll), [`routes`]
//! (the routing table, likewise), `background` (work that gives way to all else) and [`steering`] (node map, location databases and routes -> where clients
//! belong).

pub mod admin;
pub mod alive;
mod background;
pub mod client;
pub mod clock;
pub mod context;
pub mod file;
pub mod follow;
pub mod handover;
pub mod identity;
pub mod listen;
pub mod log;
pub mod log_file;
pub mod metrics;
pub mod notify;
pub mod routes;
pub mod secret;
pub mod shutdown;
pub mod signals;
pub mod steering;
pub mod tls;
pub mod yielding;

pub use context::Context;
pub use metrics::Metrics;
pub use shutdown::{Phase, Shutdown};
