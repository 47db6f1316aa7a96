//! What is asked of whom, and what may come back.
//!
//! A [`Question`] says all that an asker must know; a [`ProbeResult`] carries all that people want to
//! see of the answer. Neither knows how one asks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use model::{Family, HostName, Name};
use serde::{Deserialize, Serialize};

/// Longest text of a request or response that is kept as evidence, bytes.
pub const EVIDENCE_BYTES_MAX: usize = 512;

/// Who is asked, and what for. Every target is counted by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An address of a node, for its health page.
    Node {
        /// The node.
        node: Name,
        /// One of its addresses. Clients are given them all, so each is asked.
        address: IpAddr,
    },
    /// An address of a node, for something of a project.
    Project {
        /// The project.
        project: Name,
        /// The node.
        node: Name,
        /// One of its addresses.
        address: IpAddr,
        /// Which of the project's checks.
        check: Name,
    },
    /// A master of a project.
    Master {
        /// The project.
        project: Name,
        /// The master.
        master: Name,
        /// Which of the checks of the project's masters.
        check: Name,
    },
    /// A DNS node of ours.
    Redirector {
        /// Its name in the config.
        name: Name,
    },
    /// Something outside the network, to learn whether this checker sees anything at all.
    Outside {
        /// Its name in the config.
        name: Name,
    },
}

impl Target {
    /// The family of a node's address that is asked.
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::Node { address, .. } | Self::Project { address, .. } => {
                Some(Family::of(*address))
            }
            Self::Master { .. } | Self::Redirector { .. } | Self::Outside { .. } => None,
        }
    }

    /// The kind, as one stable word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node { .. } => "node",
            Self::Project { .. } => "project",
            Self::Master { .. } => "master",
            Self::Redirector { .. } => "redirector",
            Self::Outside { .. } => "outside",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, address } => write!(f, "node {node} {address}"),
            Self::Project { project, node, address, check } => {
                write!(f, "{check} of project {project} at node {node} {address}")
            }
            Self::Master { project, master, check } => {
                write!(f, "{check} of master {project}/{master}")
            }
            Self::Redirector { name } => write!(f, "redirector {name}"),
            Self::Outside { name } => write!(f, "outside canary {name}"),
        }
    }
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// To this address.
    Address(SocketAddr),
    /// To whatever address the name has now.
    Name {
        /// The name.
        host: HostName,
        /// The port.
        port: u16,
    },
}

/// What to ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// One request of HTTP/1.1 over a new connection.
    Http(HttpQuestion),
    /// Whether a connection can be made.
    Tcp,
    /// Whether a certificate for the name is shown that holds now, by a known authority.
    Tls {
        /// The name that is asked for and must be in the certificate.
        name: HostName,
        /// With fewer days left people are told; the target passes until the certificate has ended.
        days_min: u32,
    },
    /// Whether a DNS server answers a query over UDP with records of the name.
    Dns {
        /// The name.
        name: HostName,
        /// The type of records.
        kind: RecordKind,
    },
}

/// A request of HTTP/1.1 and the answer that is expected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpQuestion {
    /// Over TLS or not.
    pub scheme: Scheme,
    /// GET or HEAD.
    pub method: Method,
    /// The value of `Host`.
    pub host: String,
    /// The name that TLS asks for; the certificate must have it.
    pub sni: Option<HostName>,
    /// The path with its query, from the slash on.
    pub path: String,
    /// First and last byte to ask for.
    pub range: Option<(u64, u64)>,
    /// Whether the hash of the body is wanted though none is expected: to be compared with others.
    pub hash: bool,
    /// What must come.
    pub expect: Expect,
}

/// Over TLS or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Not.
    Http,
    /// Over TLS.
    Https,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// With a body in the answer.
    Get,
    /// The head alone.
    Head,
}

/// A type of DNS records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordKind {
    /// Start of authority.
    Soa,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// What an answer of HTTP must be like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expect {
    /// Its status.
    pub status: u16,
    /// The length of its body, bytes.
    pub length: Option<u64>,
    /// The hash of its body.
    pub sha256: Option<Sha256>,
}

impl Default for Expect {
    fn default() -> Self {
        Self { status: 200, length: None, sha256: None }
    }
}

/// A hash of content; 64 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256(pub [u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits, as `sha256sum` prints it")]
pub struct NoSha256;

impl FromStr for Sha256 {
    type Err = NoSha256;

    fn from_str(text: &str) -> Result<Self, NoSha256> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NoSha256);
        }
        for (place, at) in bytes.iter_mut().zip((0..64usize).step_by(2)) {
            let digits = text.get(at..at.saturating_add(2)).ok_or(NoSha256)?;
            *place = u8::from_str_radix(digits, 16).map_err(|_| NoSha256)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = NoSha256;

    fn try_from(text: String) -> Result<Self, NoSha256> {
        text.parse()
    }
}

impl From<Sha256> for String {
    fn from(hash: Sha256) -> Self {
        hash.to_string()
    }
}

/// A probe to be made now. Exactly one result must be handed back for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Tells this probe from every other of the same checker.
    pub id: u64,
    /// Who is asked.
    pub target: Target,
    /// Where.
    pub place: Place,
    /// What.
    pub question: Question,
    /// Longest time the whole may take, milliseconds.
    pub timeout_ms: u64,
}

/// What a probe brought.
pub type ProbeResult = Result<Passed, Failed>;

/// The answer was as it should be, whole and in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// How long the whole probe took, milliseconds.
    pub took_ms: u64,
    /// What else was seen.
    pub seen: Seen,
}

impl Passed {
    /// A page of HTTP with status 200.
    pub fn page(took_ms: u64) -> Self {
        Self { took_ms, seen: Seen { status: Some(200), ..Seen::default() } }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seen.status {
            Some(status) => write!(f, "status {status} in {} ms", self.took_ms),
            None => write!(f, "answered in {} ms", self.took_ms),
        }
    }
}

/// What an answer that passed was like; each as far as the question brings it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Status of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Length of the whole representation, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Hash of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// `ETag` as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// `Last-Modified`, Unix time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ms: Option<u64>,
    /// When the certificate ends, Unix time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_end_ms: Option<u64>,
}

/// A probe that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// What was asked and what came.
    pub evidence: Evidence,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, evidence: Evidence::default() }
    }
}

/// What was asked and what came, in short: the head of the request and the beginning of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The request; empty when none was sent.
    pub request: String,
    /// The response; empty when none came.
    pub response: String,
}

impl Evidence {
    /// Both clipped to [`EVIDENCE_BYTES_MAX`] each, with other than printable characters replaced.
    pub fn new(request: &[u8], response: &[u8]) -> Self {
        Self { request: printable(request), response: printable(response) }
    }
}

fn printable(bytes: &[u8]) -> String {
    let kept = bytes.get(..EVIDENCE_BYTES_MAX).unwrap_or(bytes);
    let text = String::from_utf8_lossy(kept);
    let shown = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.replace("\r\n", "\n").chars().map(shown).collect()
}

/// Why a probe failed: the evidence that people see as the reason of a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody listens there.
    #[error("connect refused")]
    Refused,
    /// The network cannot reach the address, or this host may not; the text says which.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// Not everything came in time.
    #[error("no answer in {timeout_ms} ms")]
    NoAnswer {
        /// How long the probe waited, milliseconds.
        timeout_ms: u64,
    },
    /// The connection ended before the answer was whole.
    #[error("connection closed before the whole answer")]
    Closed,
    /// What came was not HTTP.
    #[error("answer is not HTTP")]
    NotHttp,
    /// Another status than the one expected.
    #[error("status {0}")]
    Status(u16),
    /// The body went on beyond what it may have.
    #[error("body over {bytes_max} bytes")]
    TooLarge {
        /// The limit, bytes.
        bytes_max: usize,
    },
    /// The body is shorter or longer than the object that should be there.
    #[error("{found} bytes, not {expected}")]
    Length {
        /// What should have come, bytes.
        expected: u64,
        /// What came, bytes.
        found: u64,
    },
    /// The body is not the object that should be there.
    #[error("wrong bytes: SHA-256 {found}, not {expected}")]
    Hash {
        /// Of what should have come.
        expected: Sha256,
        /// Of what came.
        found: Sha256,
    },
    /// The certificate does not hold: its time, its name or its authority; the text says which.
    #[error("certificate: {0}")]
    Certificate(String),
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(String),
    /// The DNS server gave no such records; the text says what.
    #[error("DNS: {0}")]
    Dns(String),
}

impl Failure {
    /// One stable word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::NoAnswer { .. } => "no-answer",
            Self::Closed => "closed",
            Self::NotHttp => "not-http",
            Self::Status(_) => "status",
            Self::TooLarge { .. } => "too-large",
            Self::Length { .. } => "length",
            Self::Hash { .. } => "hash",
            Self::Certificate(_) => "certificate",
            Self::Tls(_) => "tls",
            Self::Dns(_) => "dns",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_printed() {
        let text = "00ff".repeat(16);
        let hash: Sha256 = text.parse().unwrap();
        assert_eq!((hash.0[0], hash.0[1], hash.to_string()), (0, 255, text));
        for wrong in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Sha256>(), Err(NoSha256), "{wrong}");
        }
    }

    #[test]
    fn evidence_is_short_and_printable() {
        let long = [b'x'; 2 * EVIDENCE_BYTES_MAX];
        let evidence = Evidence::new(b"GET / HTTP/1.1\r\nHost: a\r\n", &long);
        assert_eq!(evidence.request, "GET / HTTP/1.1\nHost: a\n");
        assert_eq!(evidence.response.len(), EVIDENCE_BYTES_MAX);
        assert_eq!(Evidence::new(b"\x1b[2J", b"\xff").request, "\u{fffd}[2J");
    }
}
