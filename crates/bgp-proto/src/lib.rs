//! BGP without its sockets: bytes of messages in, routes out.
//!
//! # A tour in flow order
//! 1. [`frame`]: where a message ends. [`open`], [`refresh`], [`notification`]: the small messages.
//! 2. [`nlri`] and [`update`]: routes that come and go, with the error handling of RFC 7606.
//! 3. [`rib`]: what each peer announces, and the best of it in each view.
//! 4. [`session`]: the machine of one peer, one file a state.
//! 5. [`feed`]: the document by which other hosts follow the table. [`mrt`]: files of routes.
//!
//! # Invariants
//! - B1: no session can send an UPDATE that announces or withdraws a prefix: nothing composes one, but for
//!   `mrt`, which gives what a dump says the form in which it is read at once.
//! - No message, of whatever bytes, panics; each is read in time linear in its length.
//! - Time comes in as [`model::Now`]; this crate knows nothing of sockets, files or HTTP.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod feed;
pub mod frame;
pub mod mrt;
pub mod nlri;
pub mod notification;
pub mod open;
pub mod refresh;
pub mod rib;
pub mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod update;
mod wire;

pub use frame::{Frame, Kind};
pub use notification::{Code, Notification};
pub use open::{Capabilities, Families, Open};
pub use rib::{PeerId, Rib, ViewId};
pub use session::Session;
pub use update::{Rules, Update};
