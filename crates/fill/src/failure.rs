//! Why an upstream request did not give what it was asked for.

/// The reason a run ended early. Prints one stable word, used in logs, metrics and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    /// No connection, or it broke before the answer began.
    #[error("connect")]
    Connect,
    /// The connection was not there within the connect timeout.
    #[error("connect-timeout")]
    ConnectTimeout,
    /// The certificate is not one of a known authority for this name, or its time is over.
    #[error("tls-certificate")]
    TlsCertificate,
    /// TLS could not be agreed on.
    #[error("tls")]
    Tls,
    /// As many requests as it may have are under way, and none ended in time.
    #[error("busy")]
    Busy,
    /// The client's own content broke off or paused for too long, or it took nothing of an answer that
    /// is for it alone while others waited for its place at the source.
    #[error("client")]
    Client,
    /// The answer did not begin within the first-byte timeout.
    #[error("first-byte-timeout")]
    FirstByteTimeout,
    /// The body paused longer than the between-bytes timeout.
    #[error("between-bytes-timeout")]
    BetweenBytesTimeout,
    /// The body ended or broke before its length.
    #[error("truncated")]
    Truncated,
    /// An answer that is neither the asked range nor a known refusal.
    #[error("status")]
    Status(u16),
    /// The parent could not get it either: that says nothing against the parent.
    #[error("parent")]
    Parent(u16),
    /// The master now has another representation (412, other validator, other length).
    #[error("changed")]
    Changed,
    /// The answer breaks HTTP.
    #[error("protocol")]
    Protocol,
    /// The block could not be written to the store.
    #[error("disk")]
    Disk,
    /// It let a client wait, and another master answered first.
    #[error("slow")]
    Slow,
    /// The whole does not have the digest that the master announced (RFC 9530).
    #[error("digest-mismatch")]
    DigestMismatch,
}

impl Failure {
    /// Whether time ran out (504) rather than something going wrong (502).
    pub fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::ConnectTimeout | Self::FirstByteTimeout | Self::BetweenBytesTimeout | Self::Slow
        )
    }

    /// Whether this speaks against the master as a whole, not against one object: such a master
    /// is skipped for a while. 500 is about the object; 502, 503 and 504 are about the machine.
    pub fn blames_master(self) -> bool {
        match self {
            Self::Connect
            | Self::ConnectTimeout
            | Self::TlsCertificate
            | Self::Tls
            | Self::FirstByteTimeout
            | Self::BetweenBytesTimeout
            | Self::Truncated
            | Self::Protocol
            | Self::Slow => true,
            Self::Status(code) => (502..=504).contains(&code),
            Self::Parent(_)
            | Self::Busy
            | Self::Client
            | Self::Changed
            | Self::Disk
            | Self::DigestMismatch => false,
        }
    }
}
