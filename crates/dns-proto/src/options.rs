//! The options of a reply's OPT record beside the client subnet, which goes by the answer's scope.

use crate::wire::option;

/// An extended error (RFC 8914).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtendedError {
    pub(crate) code: u16,
    /// For people; may be empty.
    pub(crate) text: &'static str,
}

impl ExtendedError {
    /// "Other error", section 4.1: the project wants SERVFAIL when nobody serves.
    pub(crate) const NOBODY_SERVES: Self = Self { code: 0, text: "no node serves" };
    /// "Other error": too many signatures are wanted for names that are not there.
    pub(crate) const SIGNS_NO_MORE: Self = Self { code: 0, text: "too many names to sign" };
    /// "Invalid query type", RFC 9824 section 3.5.
    pub(crate) const NO_QUERY_TYPE: Self = Self { code: 30, text: "" };
    /// Section 4.15.
    pub(crate) const NOT_READY: Self = Self { code: 14, text: "no node map yet" };
    /// "Prohibited", section 4.19: zone transfers.
    pub(crate) const PROHIBITED: Self = Self { code: 18, text: "" };
    /// Section 4.21.
    pub(crate) const NOT_AUTHORITATIVE: Self = Self { code: 20, text: "" };
}

/// Code and length of an option.
const HEAD_BYTES: usize = 4;

/// What a reply says beside its records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    pub(crate) error: Option<ExtendedError>,
    /// The client's cookie and the server's (RFC 7873).
    pub(crate) cookie: Option<[u8; 24]>,
    /// What the server calls itself (RFC 5001).
    pub(crate) nsid: Option<&'a [u8]>,
    /// How long an idle connection is kept, in units of 100 ms (RFC 7828).
    pub(crate) keepalive_ds: Option<u16>,
}

impl Extras<'_> {
    /// Length of what [`Extras::write`] writes.
    pub(crate) fn length(&self) -> usize {
        let error = self.error.map(|error| error.text.len().saturating_add(2));
        let cookie = self.cookie.map(|cookie| cookie.len());
        let nsid = self.nsid.map(<[u8]>::len);
        let keepalive = self.keepalive_ds.map(|_| 2);
        let all = [error, cookie, nsid, keepalive].into_iter().flatten();
        all.fold(0, |sum: usize, data| sum.saturating_add(HEAD_BYTES).saturating_add(data))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(cookie) = &self.cookie {
            push(option::COOKIE, &[cookie], out);
        }
        if let Some(nsid) = self.nsid {
            push(option::NSID, &[nsid], out);
        }
        if let Some(idle) = self.keepalive_ds {
            push(option::KEEPALIVE, &[&idle.to_be_bytes()], out);
        }
        if let Some(error) = self.error {
            let data = [&error.code.to_be_bytes(), error.text.as_bytes()];
            push(option::EXTENDED_ERROR, &data, out);
        }
    }
}

fn push(code: u16, data: &[&[u8]], out: &mut Vec<u8>) {
    let length = data.iter().map(|part| part.len()).sum::<usize>();
    out.extend(code.to_be_bytes());
    // The longest is a name of the server, which has at most 64 bytes.
    out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    data.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_length_that_room_is_kept_for() {
        let mut extras = Extras::default();
        let mut out = Vec::new();
        extras.write(&mut out);
        assert_eq!((out.len(), extras.length()), (0, 0));
        extras.error = Some(ExtendedError::NOT_READY);
        extras.cookie = Some([7; 24]);
        extras.nsid = Some(b"ns1");
        extras.keepalive_ds = Some(200);
        extras.write(&mut out);
        assert_eq!(out.len(), extras.length());
        assert_eq!(out[..4], [0, 10, 0, 24]);
        assert_eq!(out[28..35], [0, 3, 0, 3, b'n', b's', b'1']);
        assert_eq!(out[35..41], [0, 11, 0, 2, 0, 200]);
        assert_eq!(out[41..47], [0, 15, 0, 17, 0, 14]);
        assert_eq!(&out[47..], b"no node map yet");
    }
}
