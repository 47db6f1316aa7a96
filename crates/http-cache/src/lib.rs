//! The rules of HTTP for a shared cache, as plain functions over heads: no I/O, no clock, no bodies.
//!
//! # A tour in flow order
//! 1. [`target`]: what is asked for: the normalised request target and its cache [`Key`].
//! 2. [`request`]: a client's request as far as the rules care: method, ranges, preconditions,
//!    request directives.
//! 3. [`step`]: what to do next with that request and what is held: serve, revalidate, fetch, pass,
//!    refuse.
//! 4. [`hygiene`]: what may travel on: hop-by-hop fields, `Via`, `CDN-Loop`, the neutral head of a
//!    fill.
//! 5. [`reply`]: an upstream reply's head: its length, and what it says of the representation that
//!    is being filled.
//! 6. [`storable`]: whether a reply may be kept, with one stable word for each refusal.
//! 7. [`stored`]: what is kept, and its bytes on disk; [`merge`] updates it from a 304; [`vary`]
//!    keeps apart what depends on the request.
//!    [`confirmed_elsewhere`] from the answer of a master that names the same content otherwise.
//! 8. [`freshness`]: how old it is, how long it may be used.
//! 9. [`validator`]: entity tags and dates, and the preconditions sent upstream.
//! 10. [`respond`]: the answer to the client from what is held: preconditions, then [`range`]s;
//!     [`ready`]: what of it can be worked out once.
//! 11. [`status`]: `Cache-Status` and `Proxy-Status`.
//! 12. [`errors`]: what an upstream's error means for what is held; [`invalidated`]: what a
//!     successful POST or PUT does.
//!
//! # Invariants
//! - Nothing here can panic on any input from the network: every index and sum is checked.
//! - A fill's request depends on the target alone, never on another field of the client's request,
//!   so that no client can change what others are given.
//! - An answer's `Content-Length` is the exact sum of its pieces.
//!
//! RFC 9110 (semantics), 9111 (caching), 5861 (stale-if-error, stale-while-revalidate), 8246
//! (immutable), 8586 (CDN-Loop), 9213
//! (CDN-Cache-Control), 9209 (Proxy-Status), 9211 (Cache-Status), 9530 (digests).
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod agree;
mod dictionary;
mod digest;
pub mod directives;
pub mod errors;
mod fields;
pub mod freshness;
mod fuzz;
pub mod hygiene;
mod invalidation;
pub mod merge;
pub mod range;
pub mod ready;
pub mod reply;
pub mod request;
pub mod respond;
pub mod status;
pub mod step;
pub mod storable;
pub mod stored;
pub mod target;
pub mod validator;
pub mod vary;

#[cfg(test)]
mod testing;

pub use agree::{
    confirmed_elsewhere, names_another, range_headers_elsewhere, revalidation_headers_elsewhere,
};
pub use digest::repr_sha256;
pub use fields::elements;
pub use freshness::{Ageing, Freshness, Policy, freshness};
pub use fuzz::fuzz_headers;
pub use hygiene::{Identity, asks_nothing_else};
pub use invalidation::{answers_get, invalidated};
pub use merge::merge_304;
pub use range::ByteRanges;
pub use ready::ReadyHead;
pub use reply::{ContentRange, Reply, same_representation};
pub use request::{Request, RequestError};
pub use respond::{Piece, Plan, respond};
pub use status::{CacheStatus, Forward, ProxyError, proxy_status};
pub use step::{Refusal, Served, Step, next_step};
pub use storable::{NoCache, storable};
pub use stored::StoredHead;
pub use target::{Key, Target, TargetError, key};
pub use validator::{Validator, range_headers, revalidation_headers, validator};
pub use vary::{Place, Selecting, Variants, varying};
