//! Digests of representations (RFC 9530): what their field says, read as a structured field.

use http::HeaderMap;
use http::header::HeaderName;

use crate::dictionary::{self, Value};

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Base64 of 32 bytes, without padding.
const SHA256_DIGITS: usize = 43;

/// The SHA-256 of the whole that `Repr-Digest` names, in base64 with padding; `None` when it names none,
/// or is not well-formed: then it says nothing (RFC 9651 section 4.2).
pub fn repr_sha256(headers: &HeaderMap) -> Option<String> {
    let written = repr_digest(headers, b"sha-256")?;
    (written.len() == SHA256_DIGITS).then(|| format!("{written}="))
}

/// The digest by one algorithm, in base64 without padding: with or without it, it is the same.
pub(crate) fn repr_digest(headers: &HeaderMap, algorithm: &[u8]) -> Option<String> {
    let lines: Vec<&[u8]> = headers.get_all(REPR_DIGEST).iter().map(|v| v.as_bytes()).collect();
    let members = dictionary::parse(&lines.join(&b','))?;
    let (_, value) = members.into_iter().find(|(key, _)| key == algorithm)?;
    let Value::Bytes(written) = value else { return None };
    let written = String::from_utf8(written).ok()?;
    Some(written.trim_end_matches('=').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    const A: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const B: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";

    #[test]
    fn what_names_a_sha_256() {
        for (lines, want) in [
            (&[format!("sha-256=:{A}:")][..], Some(A)),
            (&[format!("sha-256=:{}:", A.trim_end_matches('='))], Some(A)),
            (&[format!("sha-256=:{A}:;x=1")], Some(A)),
            (&[format!("sha-512=:AA==:, sha-256=:{A}:")], Some(A)),
            (&["sha-512=:AA==:".to_owned(), format!("sha-256=:{A}:")], Some(A)),
            (&[format!("sha-256=:{B}:, sha-256=:{A}:")], Some(A)),
            (&[format!("SHA-256=:{A}:")], None),
            (&[format!("sha-256 = :{A}:")], None),
            (&[format!("sha-256=:{A}")], None),
            (&[format!("sha-256={A}")], None),
            (&["sha-256=::".to_owned()], None),
            (&["sha-256=:AAAA:".to_owned()], None),
            (&["sha-256=:zz".to_owned()], None),
            (&["sha-256".to_owned()], None),
            (&[], None),
        ] {
            let list: Vec<_> = lines.iter().map(|line| ("repr-digest", line.as_str())).collect();
            assert_eq!(repr_sha256(&fields(&list)).as_deref(), want, "{lines:?}");
        }
    }
}
