//! Whether a reply may be kept (RFC 9111 section 3).

use crate::freshness::Policy;
use crate::reply::Reply;
use crate::request::Request;
use crate::stored::StoredHead;

/// Why a reply is not kept. Prints one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoCache {
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// The request had `Authorization` and the response does not allow sharing.
    Authorization,
    /// `Vary` names what we do not key on.
    Vary,
    /// `Vary: Accept-Encoding` with a coding we did not ask for.
    ContentEncoding,
    /// `Set-Cookie`.
    SetCookie,
    /// A status that is never kept (206 that fits nothing, 304, 416, 1xx ...).
    Status,
    /// An error without explicit freshness goes to its requester alone.
    Error,
    /// Neither validator nor explicit freshness.
    NoValidator,
    /// The length is not known beforehand.
    LengthUnknown,
}

impl NoCache {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        todo!()
    }

    /// Whether the reply to a neutral fill request may be wrong for a client with fields of its own,
    /// so that the request is to be passed on as the client made it.
    pub fn ask_for_client(self) -> bool {
        todo!()
    }
}

/// Keeps or refuses a reply to a request for the whole or a range.
pub fn storable(
    request: &Request,
    reply: &Reply<'_>,
    policy: &Policy,
) -> Result<StoredHead, NoCache> {
    let _ = (request, reply, policy);
    todo!()
}
