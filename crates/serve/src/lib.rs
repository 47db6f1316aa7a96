//! Bytes to clients: connections in HTTP/1.1, 2 and 3, response bodies from memory and from files,
//! and the real disk under a store. Used by edge and master alike.
//!
//! - [`http`] accepts connections, hands each request to a [`Handler`] and sends what it answers,
//!   within [`Limits`]; what goes wrong on the wire is counted in [`Counters`]. One task a
//!   connection.
//! - [`Body`] is what a handler answers with: nothing, bytes, a part of a file, or pieces pulled
//!   from a [`Source`] at the client's own pace. It comes as [`Chunk`]s: over plain HTTP/1.1 files
//!   leave by `sendfile(2)`, everywhere else their bytes are read.
//! - [`pace::Shaper`]: a rate that bodies share ([`Body::paced`]).
//! - [`Tally`] is told of each byte of a body as it leaves; [`Handler::leave`] of each connection that
//!   has ended, with what was measured of the [`Way`] to its client.
//! - [`disk::FsDisk`] is the [`store::Disk`] of a real folder.
//!
//! Invariants
//! - A body that cannot go on is visibly broken off: the connection ends before the announced
//!   length (or before the last chunk), never after fewer bytes that look whole.
//! - A response of HTTP/2 that cannot go on ends with RST_STREAM, never with END_STREAM.
//! - A connection of HTTP/1.1 holds in memory at most [`Limits::head_bytes_max`] of a request and one
//!   chunk of 256 KiB beyond 64 KiB of a response, however slow its client is; one of HTTP/2 a little
//!   more, whatever the number of its streams.
//! - A connection of HTTP/1.1 on which nothing is asked holds no buffers.
//! - What is not HTTP is answered with 400 (431 when too large) and closed.
//!
//! Knows nothing of caching, keys or projects. RFC 9110, RFC 9112, RFC 9113, RFC 9218.
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod aside;
mod body;
mod cached;
mod chunk;
mod connection;
mod crowd;
mod date;
pub mod disk;
mod entry;
mod file_range;
mod files;
mod h2;
pub mod h3;
mod handshake;
mod head;
mod io;
pub mod pace;
mod priority;
mod pulse;
mod request;
mod server;
mod tally;
mod unsent;
mod way;

pub use body::{Body, BodyError, Piece, Source};
pub use chunk::Chunk;
pub use crowd::Shed;
pub use file_range::{Elsewhere, FileRange};
pub use files::Files;
pub use handshake::Tls;
pub use request::{Client, RequestBody};
pub use server::{BindError, Counters, Goaway, Handler, Limits, Listener, http};
pub use tally::Tally;
pub use way::Way;
