//! Updating a stored head from a 304 (RFC 9111 sections 3.2 and 4.3.4).

use crate::reply::Reply;
use crate::stored::StoredHead;

/// The updated head; `None` when the 304 speaks of another representation, so that the object must
/// be asked for again without preconditions.
pub fn merge_304(stored: &StoredHead, reply: &Reply<'_>) -> Option<StoredHead> {
    let _ = (stored, reply);
    todo!()
}
