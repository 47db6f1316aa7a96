//! A request of HTTP/1.1 and what is looked at in its answer.

use std::error::Error;
use std::io;

use bytes::Bytes;
use health_proto::Failure;
use health_proto::probe::{HttpQuestion, Method, Sha256};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use sha2::Digest;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Trail;

/// Most bytes of a health page that are read; more is a failure.
pub(crate) const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of anything else that are read, unless a longer one is expected.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a body that are kept as evidence.
const EVIDENCE_BODY_BYTES: usize = 256;

/// How long a body may be.
pub(super) fn bytes_max(question: &HttpQuestion, page: bool) -> usize {
    let most = if page { PAGE_BYTES_MAX } else { BODY_BYTES_MAX };
    let expected = question.expect.length.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    // One more than expected is enough to know that it is not that.
    expected.map_or(most, |bytes| bytes.saturating_add(1).max(EVIDENCE_BODY_BYTES))
}

/// The host of a `Host`, without port and brackets.
pub(super) fn bare_host(host: &str) -> &str {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split(']').next().unwrap_or(v6);
    }
    host.split(':').next().unwrap_or(host)
}

/// The request, as it also goes into the trail.
pub(super) fn request(
    question: &HttpQuestion,
    user_agent: &HeaderValue,
    trail: &mut Trail,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let wrong = |what: &str| Failure::Unreachable(format!("the {what} cannot be asked for"));
    let method = match question.method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
    };
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = question.path.parse().map_err(|_| wrong("path"))?;
    let host = HeaderValue::from_str(&question.host).map_err(|_| wrong("host"))?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, host);
    headers.insert(header::USER_AGENT, user_agent.clone());
    if let Some((first, last)) = question.range {
        let range = HeaderValue::from_str(&format!("bytes={first}-{last}"));
        headers.insert(header::RANGE, range.map_err(|_| wrong("range"))?);
    }
    trail.request = format!("{method} {} HTTP/1.1\r\n", question.path).into_bytes();
    note_fields(&mut trail.request, headers);
    *request.method_mut() = method;
    Ok(request)
}

/// Sends it and reads the whole answer, which must be as expected.
pub(super) async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    question: &HttpQuestion,
    bytes_max: usize,
    trail: &mut Trail,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| failure_of(&error))?;
    let driver = Driver(tokio::spawn(async move {
        // What goes wrong with it the sender hears.
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.map_err(|error| failure_of(&error))?;
    let (head, body) = response.into_parts();
    trail.response = format!("{:?} {}\r\n", head.version, head.status).into_bytes();
    note_fields(&mut trail.response, &head.headers);
    trail.response.extend_from_slice(b"\r\n");
    trail.seen.status = Some(head.status.as_u16());
    see_fields(head.status, &head.headers, trail);
    if head.status.as_u16() != question.expect.status {
        return Err(Failure::Status(head.status.as_u16()));
    }
    let hash = question.hash || question.expect.sha256.is_some();
    let (length, found) = read(body, bytes_max, hash, question, trail).await?;
    drop(driver);
    if question.method == Method::Get && trail.seen.length.is_none() {
        trail.seen.length = Some(length);
    }
    let length = if question.method == Method::Head { trail.seen.length } else { Some(length) };
    if let (Some(expected), Some(found)) = (question.expect.length, length)
        && expected != found
    {
        return Err(Failure::Length { expected, found });
    }
    trail.seen.sha256 = found;
    match (question.expect.sha256, found) {
        (Some(expected), Some(found)) if expected != found => {
            Err(Failure::Hash { expected, found })
        }
        _ => Ok(()),
    }
}

/// Ends the connection with its probe, also when that is given up.
struct Driver(tokio::task::JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the body; gives its length and its hash.
async fn read(
    mut body: Incoming,
    bytes_max: usize,
    hash: bool,
    question: &HttpQuestion,
    trail: &mut Trail,
) -> Result<(u64, Option<Sha256>), Failure> {
    let (mut length, mut hasher) = (0u64, sha2::Sha256::new());
    let mut room = EVIDENCE_BODY_BYTES;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure_of(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        let kept = data.get(..room).unwrap_or(&data);
        room = room.saturating_sub(kept.len());
        trail.response.extend_from_slice(kept);
        length = length.saturating_add(data.len() as u64);
        if length > bytes_max as u64 {
            return Err(match question.expect.length {
                Some(expected) => {
                    // What it says it has, if it says so.
                    let rest = body.size_hint().exact().unwrap_or_default();
                    Failure::Length { expected, found: length.saturating_add(rest) }
                }
                None => Failure::TooLarge { bytes_max },
            });
        }
        if hash {
            hasher.update(&data);
        }
    }
    Ok((length, hash.then(|| Sha256(hasher.finalize().into()))))
}

fn note_fields(text: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
}

fn see_fields(status: StatusCode, headers: &HeaderMap, trail: &mut Trail) {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    trail.seen.etag = text(header::ETAG).map(str::to_owned);
    let modified =
        text(header::LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok());
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    trail.seen.modified_ms = modified.and_then(|at| u64::try_from(at.as_millis()).ok());
    let length = match status {
        StatusCode::PARTIAL_CONTENT => {
            text(header::CONTENT_RANGE).and_then(|range| range.rsplit_once('/')).map(|r| r.1)
        }
        _ => text(header::CONTENT_LENGTH),
    };
    trail.seen.length = length.and_then(|length| length.trim().parse().ok());
}

fn failure_of(error: &hyper::Error) -> Failure {
    if error.is_parse() || is_nonsense(error) { Failure::NotHttp } else { Failure::Closed }
}

/// Whether a body broke because of what was in it, not because it ended.
fn is_nonsense(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)) {
            return true;
        }
        cause = error.source();
    }
    false
}
