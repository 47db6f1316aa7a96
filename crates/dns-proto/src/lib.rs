//! DNS query bytes to DNS answer bytes, over a snapshot of zones and steering.
//!
//! [`answer`] is a plain function of (snapshot, query, peer, transport, dice): no sockets, no
//! clock, no state. It answers whatever bytes come in, never panics, and never writes more than
//! the transport carries.
//!
//! Flow and reading order:
//! 1. `wire`: numbers of the protocol, a reader over bytes, names in wire form.
//! 2. `query`: bytes -> a query, or the reason why not (RFC 1035 section 4, RFC 6891).
//! 3. `subnet`: the EDNS Client Subnet option (RFC 7871).
//! 4. `records`: record sets written once, when the snapshot is built.
//! 5. [`Snapshot`]: node map + steering -> names and what they hold (RFC 1034 section 4.3.2).
//! 6. [`answer`]: what a query gets.
//! 7. `reply`: the answer's bytes within the size limit (RFC 2181 section 9, RFC 6891).
//!
//! Invariants:
//! - S2: each address inside the announced scope has the class that was answered; names that are
//!   not steered announce scope 0.
//! - The question comes back byte for byte, so that its case is kept (draft-vixie-dnsext-dns0x20).
//! - Outside the zones everything is REFUSED; inside, negative answers carry the SOA (RFC 2308).
//!
//! Knows nothing of: recursion, zone transfer, DNSSEC, response rate limits.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod answer;
mod outcome;
mod query;
mod records;
mod reply;
mod snapshot;
mod subnet;
mod wire;

pub use answer::{Transport, answer};
pub use outcome::{Answered, Dropped, Outcome, Sort};
pub use snapshot::Snapshot;
pub use wire::UDP_BYTES_MAX;

#[cfg(test)]
mod conversations;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
