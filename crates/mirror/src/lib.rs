//! The rules of a master: which path names which file, and how a file's content is named.
//!
//! A master holds the full tree of a project. Several masters of one project must be
//! interchangeable block by block, so everything a client could compare is derived from content
//! alone, never from inode numbers, times or file systems:
//!
//! - [`path`]: a request path becomes a [`TreePath`] or is [`Refused`] with one stable word;
//! - [`digest`]: SHA-256 of the content, the strong `ETag` and the `Repr-Digest` made from it
//!   (RFC 9110 section 8.8.3, RFC 9530);
//! - [`index`]: remembers each file's digest beside the [`Stamp`] it had when it was hashed, so that
//!   a file is hashed once and again only when the stamp moved;
//! - [`media`]: `Content-Type` by extension.
//!
//! Pure: no clock, no network, and no file is opened here; the `master` shell does that. What a
//! tree looks like when it is lost is the one fact about disks stated here: see [`TREE_MARKER`].
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod digest;
pub mod index;
pub mod media;
pub mod path;

pub use digest::{ContentDigest, ContentHasher};
pub use index::{Index, IndexError, Stamp};
pub use path::{Refused, TreePath};

/// Name of the file that must stand at the root of every tree.
///
/// An unmounted disk looks like an empty directory, and an empty directory looks like a tree whose
/// files were all deleted. The marker tells the two apart: without it a master answers 503 for
/// everything and never 404, so that no cache forgets content because a mount failed. The file's
/// content is free; an empty file will do.
pub const TREE_MARKER: &str = ".cacheboy-tree";
