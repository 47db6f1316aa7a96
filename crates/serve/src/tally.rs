//! What of a body has really left, told to whoever keeps account of it.

/// Keeps account of one body. Its last reference is dropped when the last byte has left, or never
/// will: then the account is complete.
pub trait Tally: Send + Sync {
    /// So many more bytes of content have left: the socket has taken them (HTTP/1.1; over TLS and in
    /// HTTP/2 what is written on it next), or QUIC has.
    fn sent(&self, bytes: u64);

    /// So many bytes are all of the body. Told, at its end, of one whose length is not known beforehand.
    fn is_whole_at(&self, bytes: u64);
}

/// Tells `tally`, if there is one, of `bytes`.
pub(crate) fn note_sent(tally: Option<&(dyn Tally + 'static)>, bytes: usize) {
    if let Some(tally) = tally
        && bytes > 0
    {
        tally.sent(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}
