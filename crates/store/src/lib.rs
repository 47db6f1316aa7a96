//! Representations as blocks on a disk: what an edge has in its cache.
//!
//! A representation is one version of an object: an opaque head, a length, and its body in blocks
//! that may arrive in any order. Large ones have a file of their own that holds body byte N at offset
//! N; small ones are packed into segments. A held run of bytes is an [`Extent`]: a file, an offset and
//! a length that can be sent as they are.
//!
//! Invariants
//! - A byte given out is the byte that was stored: a block counts as held only after its write
//!   went through; its CRC32C is written down with it and compared at its first use after the
//!   store was opened, and by the scrub. A block in doubt is a miss.
//! - Kill the process at any instant: every representation is right or absent afterwards, and
//!   what [`Store::flush`] had finished is there. The same holds after power loss.
//! - A start reads the index log and nothing else; an object in the index costs less than 100 bytes.
//! - The files never occupy more than [`Params::capacity`]: room is reserved before it is used,
//!   and given back only once the file system has given it back. Folders are not counted.
//! - There are never two representations of one place in memory, and what is in memory without being
//!   in use stays below [`Params::memory`]. A small object that was asked for once takes none there.
//! - While anybody holds a reference to a representation, none of its blocks is removed. Whatever
//!   nobody refers to can make room, flushed or not.
//! - One store for a folder: the disk is locked while it is open or until [`Store::hand_over`], after
//!   which it writes nothing, and a body file is never made over one that is there.
//! - A disk that fails makes writes fail; what is held is still read.
//!
//! Tour, in the order of a representation's life: [`store`](Store) creates it, `load` finds it again
//! in the `index` and brings it among the `live`; [`representation`](Representation) takes and gives
//! its blocks (`file_body`, `packed` into `segments`); `flush` makes it durable, in the bytes that
//! `meta`, `record` and `entry` know (`docs/formats/store.md`); `shared` keeps the budget, `evict`
//! makes room in the order of `sieve`; `hand_over` gives the folder to the next process, behind the
//! `gate` that all changes pass; `scrub` looks whether it is still what it was; `recover` brings
//! everything back at the next start, `sweep` takes away what a killed process left.
//! [`disk`] is the seam to the operating system, and `testing` a disk that lies, breaks and
//! loses power.
//!
//! Knows nothing of HTTP, time or any runtime. All but [`Store::look_up`], [`Store::set_head`],
//! [`Store::usage`] and the getters of a representation may block on the disk.
#![warn(clippy::indexing_slicing)]

pub mod disk;
mod entry;
mod evict;
mod file_body;
mod flush;
mod gate;
mod hand_over;
mod index;
mod live;
mod load;
mod log;
mod meta;
mod moves;
mod names;
mod packed;
mod record;
mod recover;
mod representation;
mod scrub;
mod segments;
mod shared;
mod sieve;
mod store;
mod sweep;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod handed;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod room;
#[cfg(test)]
mod small;
#[cfg(test)]
mod tests;

pub use disk::{Disk, Entry, Lock};
pub use load::Held;
pub use names::Key;
pub use recover::OpenError;
pub use representation::{Extent, Reading, Representation};
pub use scrub::Scrubbed;
pub use shared::WriteError;
pub use store::{Params, Store, Usage};
