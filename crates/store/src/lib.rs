//! Temporary text: the tour follows.

pub mod disk;
mod representation;
mod store;

pub use disk::{Disk, Entry};
pub use representation::{Extent, Representation};
pub use store::{OpenError, Params, Store, Usage, WriteError};

/// Name of a cached thing: 128 bits of a collision-resistant hash, made by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 16]);
