//! DNS query bytes to DNS answer bytes, over a snapshot of zones and steering.
//!
//! [`answer`] is a plain function of (snapshot, query, asker, desk): no sockets, no clock; what it
//! remembers between queries lies on the desk. It answers whatever bytes come in, never panics, and
//! never writes more than the transport carries.
//!
//! Flow and reading order:
//! 1. [`Asker`] and [`Desk`]: who asks and when, what an answering thread keeps; [`Manners`]: how
//!    those who ask are treated.
//! 2. `wire`: numbers of the protocol, a reader over bytes, names in wire form.
//! 3. `query`: bytes -> a query, or the reason why not (RFC 1035 section 4, RFC 6891); its client
//!    subnet in `subnet` (RFC 7871), its cookie in `cookie` (RFC 7873, RFC 9018).
//! 4. [`zonefile`]: standard zone files -> record sets.
//! 5. `records`: record sets written once, when names are made.
//! 6. `names`: maps and zone files -> names and what they hold (RFC 1034 section 4.3.2).
//! 7. [`Snapshot`]: names and steering, swapped whole.
//! 8. [`answer`]: what a query gets.
//! 9. `caller`: what a reply owes to whoever asked, and replies that no zone has a part in.
//! 10. `limit`: how much a network gets over UDP.
//! 11. [`dnssec`]: signatures of the answers of zones that have keys.
//! 12. `tsig`: messages that are signed with a key both ends have; `transfer`: copies of zones for those
//!     who have one.
//! 13. `reply`: the answer's bytes within the size limit (RFC 2181 section 9, RFC 6891); its
//!     `options`.
//! 14. [`Described`]: a query in words, for logs.
//!
//! Invariants:
//! - S2: each address inside the announced scope has the class that was answered; names that are
//!   not steered announce scope 0.
//! - The question comes back byte for byte, so that its case is kept (draft-vixie-dnsext-dns0x20).
//! - Outside the zones everything is REFUSED; inside, negative answers carry the SOA (RFC 2308).
//!
//! Knows nothing of: recursion, zones of other servers.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod answer;
mod asker;
mod caller;
mod cookie;
mod described;
pub mod dnssec;
mod limit;
mod manners;
mod names;
mod options;
mod outcome;
mod query;
mod records;
mod reply;
mod snapshot;
mod subnet;
mod transfer;
mod tsig;
mod wire;
pub mod zonefile;

pub use answer::answer;
pub use asker::{Asker, Desk, Transport};
pub use cookie::{COOKIE_SECRET_BYTES, CookieKeys};
pub use described::Described;
pub use limit::{Kind, Limited, Limiter, PER_SECOND_MAX, Rates, SLIP_MAX};
pub use manners::{Manners, TEXT_BYTES_MAX};
pub use names::{LeftOut, Why, left_out};
pub use outcome::{Answered, Dropped, Led, Outcome, Sort};
pub use snapshot::Snapshot;
pub use transfer::Transfers;
pub use tsig::{KeyFileError, TsigKey};
pub use wire::UDP_BYTES_MAX;

#[cfg(test)]
mod conversations;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
