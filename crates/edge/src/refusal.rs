//! Requests that are refused, each with its stable word.

use http::{HeaderValue, Method, Response, StatusCode, header};
use http_cache::status::PROXY_STATUS;
use http_cache::{CacheStatus, ProxyError, RequestError, TargetError, proxy_status};
use rt::clock;
use serve::Body;

use crate::answers;
use crate::guard::copies::until_tomorrow_s;
use crate::state::Edge;

/// Seconds after which a client may ask again when this edge knows no projects yet.
const NO_MAP_RETRY_S: u32 = 5;
/// The same when too much of its address is answered already.
const TOO_MANY_RETRY_S: u32 = 10;
/// Methods of content.
const READING: &str = "GET, HEAD";
/// Methods of a project that lets others through to its masters. Further ones pass too.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not exactly one right `Host`.
    BadHost,
    /// Nobody knows yet what is served here.
    NoNodeMap,
    /// No project has this host.
    UnknownHost,
    /// A method that nobody knows.
    UnknownMethod,
    /// The project is for reading only.
    MethodNotAllowed,
    /// Never passed on, whatever the project says: TRACE and CONNECT.
    MethodNeverPassed,
    /// `CDN-Loop` names us (RFC 8586).
    Loop,
    /// A target that has no normal form.
    BadTarget(TargetError),
    /// The content of a request that would be passed on is in a transfer coding that nobody here can
    /// decode.
    UnknownCoding,
    /// The content of a request that was being passed on is not whole.
    BrokenContent,
    /// `only-if-cached`, and nothing that may be used is held.
    OnlyIfCached,
    /// As many requests of this client are answered and wait as may.
    TooMany,
    /// The network of this client has had the object too often today.
    Repeat,
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Target(why) => Self::BadTarget(why),
            RequestError::Method => Self::MethodNotAllowed,
        }
    }
}

impl Refusal {
    /// The words of all, for the counters.
    pub(crate) const WORDS: [&str; 12] = [
        "bad-host",
        "no-node-map",
        "unknown-host",
        "unknown-method",
        "method-not-allowed",
        "loop",
        "bad-target",
        "unknown-coding",
        "broken-content",
        "only-if-cached",
        "too-many",
        "repeat",
    ];

    /// The stable word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BadHost => "bad-host",
            Self::NoNodeMap => "no-node-map",
            Self::UnknownHost => "unknown-host",
            Self::UnknownMethod => "unknown-method",
            Self::MethodNotAllowed | Self::MethodNeverPassed => "method-not-allowed",
            Self::Loop => "loop",
            Self::BadTarget(_) => "bad-target",
            Self::UnknownCoding => "unknown-coding",
            Self::BrokenContent => "broken-content",
            Self::OnlyIfCached => "only-if-cached",
            Self::TooMany => "too-many",
            Self::Repeat => "repeat",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::BadHost | Self::BrokenContent => StatusCode::BAD_REQUEST,
            Self::NoNodeMap => StatusCode::SERVICE_UNAVAILABLE,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::UnknownMethod | Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::MethodNotAllowed | Self::MethodNeverPassed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::BadTarget(why) => RequestError::from(why).status(),
            Self::OnlyIfCached => StatusCode::GATEWAY_TIMEOUT,
            Self::TooMany | Self::Repeat => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn words(self) -> String {
        match self {
            Self::BadHost => "a request has exactly one Host, and a right one".into(),
            Self::NoNodeMap => "no node map yet".into(),
            Self::UnknownHost => "this host is not served here".into(),
            Self::UnknownMethod => "this method is not known here".into(),
            Self::MethodNotAllowed => RequestError::Method.to_string(),
            Self::MethodNeverPassed => "this method is not passed on".into(),
            Self::Loop => "this request has been here before".into(),
            Self::BadTarget(why) => why.to_string(),
            Self::UnknownCoding => "this transfer coding is not known here".into(),
            Self::BrokenContent => "the content of this request is not whole".into(),
            Self::OnlyIfCached => "not held here".into(),
            Self::TooMany => "too many requests of this address at once".into(),
            Self::Repeat => "this network has had this often enough today".into(),
        }
    }

    /// The answer; counted and, not too often, logged.
    pub(crate) fn answer(self, edge: &Edge, method: &Method) -> Response<Body> {
        let (word, status) = (self.as_str(), self.status());
        edge.counters.count_refused(word);
        if let Some(more) = edge.complaints.due(edge.me.node(), word, clock::now()) {
            let status = status.as_u16();
            tracing::info!(why = word, status, %method, more, "a request was refused");
        }
        let mut response = answers::text(status, &self.words());
        let headers = response.headers_mut();
        match self {
            Self::NoNodeMap => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(NO_MAP_RETRY_S));
            }
            Self::TooMany => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(TOO_MANY_RETRY_S));
            }
            Self::Repeat => {
                let tomorrow = until_tomorrow_s(clock::now());
                headers.insert(header::RETRY_AFTER, HeaderValue::from(tomorrow));
            }
            Self::MethodNotAllowed => {
                headers.insert(header::ALLOW, HeaderValue::from_static(READING));
            }
            Self::MethodNeverPassed => {
                headers.insert(header::ALLOW, HeaderValue::from_static(ALL_METHODS));
            }
            Self::Loop => {
                let value = proxy_status(&edge.me, ProxyError::ProxyLoopDetected, None, None);
                headers.append(PROXY_STATUS, value);
            }
            _ => {}
        }
        CacheStatus::default().with_detail(word).add(headers, &edge.me);
        if *method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }
}
