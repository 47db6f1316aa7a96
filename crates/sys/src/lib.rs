//! The system calls that need `unsafe`, each behind a safe function. The only crate of the house
//! that may use `unsafe`; every block states why it is sound.
//!
//! - [`beneath`]: opening files of a tree without being led out of it.
//! - [`file`]: reading from the page cache without ever waiting for a disk, and
//!   writing a whole file system back.
//! - [`datagram`]: receiving and sending UDP datagrams in batches.
//! - [`sendfile`]: file content to sockets without a copy.
//! - [`socket`]: socket options that the standard library does not have.
//! - [`tcp_info`]: what the kernel measured of a TCP connection.
//! - [`limits`]: how many files this process may open.
//! - [`memory`]: what the system gets back of this process.
//! - [`process`]: children that end with their parent, ending them, and what is left open to them.
//! - `counting`: an allocator that counts (feature `testing`).
//!
//! Knows nothing of HTTP, DNS or any runtime. Linux only.

pub mod beneath;
#[cfg(feature = "testing")]
pub mod counting;
pub mod datagram;
pub mod file;
pub mod limits;
pub mod memory;
pub mod process;
pub mod sendfile;
pub mod socket;
pub mod tcp_info;

pub use beneath::open_beneath;
pub use datagram::{Batch, Datagram, Sent};
pub use file::{punch_hole, read_nowait, sync_file_system};
