//! NOTIFICATION: why a session ends (RFC 4271 sections 4.5 and 6, RFC 4486, 6608, 7313, 8203, 9003).

use std::fmt;

use crate::frame::{self, Kind};

/// Octets of a reason in words that are read (RFC 9003 section 2).
const REASON_BYTES_MAX: usize = 255;
/// Octets of data that are kept of a NOTIFICATION of the other side: it is shown, nothing else.
const DATA_BYTES_MAX: usize = 512;

macro_rules! codes {
    ($($name:ident = ($code:literal, $subcode:literal, $word:literal),)*) => {
        /// The errors that this crate tells or understands. Prints one stable word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the names are those of the RFCs
        pub enum Code {
            $($name,)*
            /// One that no RFC read here has: code and subcode.
            Other(u8, u8),
        }

        impl Code {
            /// All but `Other`.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Code and subcode as they stand in the message.
            pub fn numbers(self) -> (u8, u8) {
                match self {
                    $(Self::$name => ($code, $subcode),)*
                    Self::Other(code, subcode) => (code, subcode),
                }
            }

            /// By code and subcode.
            pub fn of(code: u8, subcode: u8) -> Self {
                match (code, subcode) {
                    $(($code, $subcode) => Self::$name,)*
                    (code, subcode) => Self::Other(code, subcode),
                }
            }

            /// The word for logs and metrics.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                    Self::Other(..) => "other",
                }
            }
        }
    };
}

codes! {
    NotSynchronised = (1, 1, "not-synchronised"),
    BadMessageLength = (1, 2, "bad-message-length"),
    BadMessageType = (1, 3, "bad-message-type"),
    OpenUnspecific = (2, 0, "open-unspecific"),
    UnsupportedVersion = (2, 1, "unsupported-version"),
    BadPeerAs = (2, 2, "bad-peer-as"),
    BadIdentifier = (2, 3, "bad-identifier"),
    UnsupportedParameter = (2, 4, "unsupported-parameter"),
    UnacceptableHoldTime = (2, 6, "unacceptable-hold-time"),
    UnsupportedCapability = (2, 7, "unsupported-capability"),
    UpdateUnspecific = (3, 0, "update-unspecific"),
    MalformedAttributeList = (3, 1, "malformed-attribute-list"),
    UnrecognisedWellKnown = (3, 2, "unrecognised-well-known"),
    MissingWellKnown = (3, 3, "missing-well-known"),
    AttributeFlags = (3, 4, "attribute-flags"),
    AttributeLength = (3, 5, "attribute-length"),
    InvalidOrigin = (3, 6, "invalid-origin"),
    InvalidNextHop = (3, 8, "invalid-next-hop"),
    OptionalAttribute = (3, 9, "optional-attribute"),
    InvalidNetwork = (3, 10, "invalid-network"),
    MalformedAsPath = (3, 11, "malformed-as-path"),
    HoldTimerExpired = (4, 0, "hold-timer-expired"),
    FsmUnspecific = (5, 0, "unexpected-message"),
    UnexpectedInOpenSent = (5, 1, "unexpected-in-open-sent"),
    UnexpectedInOpenConfirm = (5, 2, "unexpected-in-open-confirm"),
    UnexpectedInEstablished = (5, 3, "unexpected-in-established"),
    CeaseUnspecific = (6, 0, "cease"),
    MaxPrefixes = (6, 1, "max-prefixes"),
    Shutdown = (6, 2, "shutdown"),
    Deconfigured = (6, 3, "deconfigured"),
    Reset = (6, 4, "reset"),
    Rejected = (6, 5, "rejected"),
    ConfigChange = (6, 6, "config-change"),
    Collision = (6, 7, "collision"),
    OutOfResources = (6, 8, "out-of-resources"),
    HardReset = (6, 9, "hard-reset"),
    RefreshLength = (7, 1, "refresh-length"),
    SendHoldTimerExpired = (8, 0, "send-hold-timer-expired"),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(code, subcode) => write!(f, "other ({code}/{subcode})"),
            known => f.pad(known.word()),
        }
    }
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What is wrong.
    pub code: Code,
    /// What the RFC of the code has beside it; of the other side at most 512 octets.
    pub data: Vec<u8>,
}

impl Notification {
    /// One without data.
    pub fn new(code: Code) -> Self {
        Self { code, data: Vec::new() }
    }

    /// One with data.
    pub fn with(code: Code, data: &[u8]) -> Self {
        Self { code, data: data.to_vec() }
    }

    /// The message.
    pub fn compose(&self) -> Vec<u8> {
        let (code, subcode) = self.code.numbers();
        let mut body = vec![code, subcode];
        let room = frame::BYTES_MAX.saturating_sub(frame::HEADER_BYTES).saturating_sub(body.len());
        body.extend(self.data.iter().take(room));
        frame::compose(Kind::Notification, &body)
    }

    /// From the body of a message; one that is too short says nothing, but ends the session as well.
    pub fn parse(body: &[u8]) -> Self {
        let (code, rest) = body.split_first().unwrap_or((&0, &[]));
        let (subcode, data) = rest.split_first().unwrap_or((&0, &[]));
        let data = data.get(..DATA_BYTES_MAX).unwrap_or(data);
        Self { code: Code::of(*code, *subcode), data: data.to_vec() }
    }

    /// What the other side's operator says of a shutdown or reset (RFC 9003), without control
    /// characters; empty where nothing, or no text, is said.
    pub fn reason(&self) -> String {
        if !matches!(self.code, Code::Shutdown | Code::Reset) {
            return String::new();
        }
        let Some((length, text)) = self.data.split_first() else { return String::new() };
        let text = text.get(..usize::from(*length).min(REASON_BYTES_MAX)).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).collect()
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        let reason = self.reason();
        if reason.is_empty() { Ok(()) } else { write!(f, " ({reason})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart_by_number_and_word() {
        for code in Code::ALL {
            let (number, subcode) = code.numbers();
            assert_eq!(Code::of(number, subcode), *code);
            let same = Code::ALL.iter().filter(|other| other.word() == code.word());
            assert_eq!(same.count(), 1, "{code}");
        }
        assert_eq!(Code::of(99, 7).to_string(), "other (99/7)");
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let notification = Notification::with(Code::UnsupportedVersion, &[0, 4]);
        let bytes = notification.compose();
        assert_eq!(bytes[16..], [0, 23, 3, 2, 1, 0, 4]);
        assert_eq!(Notification::parse(&bytes[19..]), notification);
        assert_eq!(Notification::parse(&[]).code, Code::Other(0, 0));
        let huge = Notification::with(Code::OptionalAttribute, &[7; 9000]).compose();
        assert_eq!(huge.len(), frame::BYTES_MAX);
        assert_eq!(Notification::parse(&huge[19..]).data.len(), DATA_BYTES_MAX);
    }

    #[test]
    fn reasons_are_text_without_control_characters() {
        for (code, data, expected) in [
            (Code::Shutdown, &b"\x08new \x1bway"[..], "new way"),
            (Code::Shutdown, b"\xffshort", ""),
            (Code::Reset, b"\x02\xff\xfe", ""),
            (Code::Collision, b"\x02no", ""),
            (Code::Shutdown, b"", ""),
        ] {
            assert_eq!(Notification::with(code, data).reason(), expected, "{data:?}");
        }
        let told = Notification::with(Code::Shutdown, b"\x05night");
        assert_eq!(told.to_string(), "shutdown (night)");
    }
}
