//! Temporary text: the tour follows.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod params;

pub use params::{Params, StoreParams, Timeouts};

/// Why the edge cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] rt::listen::ListenError),
}

/// Serves until the context's shutdown.
pub async fn run(
    _params: Params,
    _node_map: rt::follow::Following,
    _context: rt::Context,
) -> Result<(), Error> {
    todo!()
}
