//! Which request fields of clients may travel to masters by the choice of a project.

use super::schema::limits;

/// Fields that the edge itself decides about: what a client puts there would change which object,
/// which bytes of it or whose copy comes back, or how the message is framed.
const TAKEN: [&str; 35] = [
    "accept-encoding",
    "age",
    "authorization",
    "cache-control",
    "cdn-loop",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-http-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Why a field may not travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldFault {
    /// No field name in lower case (RFC 9110 section 5.1).
    #[error("is not a field name in lower case")]
    Name,
    /// Others would get what one client made of an object.
    #[error("is a field that edges set or take out themselves")]
    Taken,
}

impl FieldFault {
    pub(super) fn remedy(self) -> String {
        match self {
            Self::Name => format!(
                "write it in lower case, without the colon, at most {} bytes: \"req-num\"",
                limits::REQUEST_FIELD_BYTES
            ),
            Self::Taken => "take it out: every client shares what is fetched, so masters must \
                            not answer it to one of them"
                .to_owned(),
        }
    }
}

/// Whether `name` may travel from clients to masters.
pub(crate) fn check(name: &str) -> Result<(), FieldFault> {
    let token =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > limits::REQUEST_FIELD_BYTES || !name.bytes().all(token) {
        return Err(FieldFault::Name);
    }
    // `If-*`, and what says who the client is, which edges strip.
    let family = ["if-", "x-forwarded-", "proxy-", "sec-"];
    if TAKEN.contains(&name) || family.iter().any(|start| name.starts_with(start)) {
        return Err(FieldFault::Taken);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_an_object_does_not_travel() {
        for good in ["req-num", "x-test", "accept-language", "user-agent"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for taken in TAKEN.into_iter().chain(["if-anything", "x-forwarded-for", "sec-fetch-mode"]) {
            assert_eq!(check(taken), Err(FieldFault::Taken), "{taken}");
        }
        for bad in ["", "Req-Num", "a b", "a:", "\u{e4}", &"a".repeat(65)] {
            assert_eq!(check(bad), Err(FieldFault::Name), "{bad}");
        }
    }
}
