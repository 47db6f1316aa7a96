//! Telling clients that they may come over HTTP/3 (`Alt-Svc`, RFC 7838).
//!
//! Only what comes over HTTPS is told: browsers believe nobody else (RFC 9114 section 3.1.1 would let
//! us). And only of projects that say so: bulk over HTTP/3 costs an edge more than twice the CPU of
//! HTTPS over TCP. Whoever comes over HTTP/3 is answered, whatever the project says.

use http::header::ALT_SVC;
use http::{HeaderMap, HeaderValue, Request, Response};
use serve::{Client, Listener};

use crate::host::host_of;
use crate::state::Edge;

/// For so long a client remembers it, seconds.
const MAX_AGE_S: u32 = 86_400;

/// What to tell clients of an edge with these listeners: the port of the first with HTTP/3.
pub(crate) fn of(listeners: &[Listener]) -> Option<HeaderValue> {
    let quic = listeners.iter().find_map(|listener| listener.quic.as_ref())?;
    let port = quic.address().ok()?.port();
    HeaderValue::try_from(format!("h3=\":{port}\"; ma={MAX_AGE_S}")).ok()
}

/// What the client of `request` is to be told.
pub(crate) fn to<T>(edge: &Edge, request: &Request<T>, client: Client) -> Option<HeaderValue> {
    let offer = edge.http3_offer.as_ref().filter(|_| client.is_secure)?;
    let host = host_of(request.version(), request.uri(), request.headers())?;
    let is_wanted = edge.projects.load().of_host(host)?.offers_http3();
    is_wanted.then(|| offer.clone())
}

/// Tells it.
pub(crate) fn add<T>(offer: Option<HeaderValue>, response: &mut Response<T>) {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.extend(offer.map(|offer| (ALT_SVC, offer)));
}
