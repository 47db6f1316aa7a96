//! Short hands of this crate's own tests.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};
use model::Now;

use crate::reply::Reply;
use crate::stored::StoredHead;

/// Fri, 01 Jan 2027 00:00:00 GMT: the moment tests begin.
pub(crate) const START: Now = Now { mono_ns: 7_000_000_000, wall_ms: 1_798_761_600_000 };

pub(crate) fn fields(list: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// A head as if it had just come, in no time.
pub(crate) fn head(status: u16, list: &[(&str, &str)]) -> StoredHead {
    StoredHead {
        status: StatusCode::from_u16(status).unwrap(),
        headers: fields(list),
        request_ms: START.wall_ms,
        response_ms: START.wall_ms,
        master: None,
    }
}

/// A reply that just came, in no time.
pub(crate) fn reply(status: u16, headers: &HeaderMap) -> Reply<'_> {
    let status = StatusCode::from_u16(status).unwrap();
    Reply { status, headers, asked: START, got: START }
}
