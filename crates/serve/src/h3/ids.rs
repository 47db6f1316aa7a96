//! Connection identifiers that say which process gave them.
//!
//! A process and those before it have one UDP socket between them, and only the destination
//! identifier of a datagram says whose connection it belongs to (RFC 9000 section 5.2). Ours have
//! twelve bytes: the mark of the process, six that nobody can foresee, and four that only who knows
//! the secret can make, so that no client's choice is taken for ours.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use ring::hmac;
use rt::Shutdown;

/// Bytes of an identifier, and of its parts in their order.
const ID_BYTES: usize = MARK_BYTES + NONCE_BYTES + SEAL_BYTES;
const MARK_BYTES: usize = 2;
const NONCE_BYTES: usize = 6;
const SEAL_BYTES: usize = 4;

/// The first bit of packets with a long header, and where their destination's length stands (RFC
/// 8999 section 5.1).
const LONG: u8 = 0x80;
const LONG_LENGTH_AT: usize = 5;

/// Which of the processes that share a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub(super) u16);

/// What identifiers of these processes are known by.
#[derive(Clone, Debug)]
pub(super) struct Seal(pub(super) Arc<hmac::Key>);

impl Seal {
    fn of(&self, marked: &[u8]) -> [u8; SEAL_BYTES] {
        hmac::sign(&self.0, marked).as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// The process that gave this identifier; `None` when none of ours did.
    pub(super) fn mark(&self, id: &[u8]) -> Option<Mark> {
        let (marked, seal) = id.split_last_chunk::<SEAL_BYTES>()?;
        let is_ours = id.len() == ID_BYTES && self.of(marked) == *seal;
        marked.first_chunk().filter(|_| is_ours).map(|mark| Mark(u16::from_be_bytes(*mark)))
    }
}

/// The destination identifier of a datagram, where it has the length of ours.
pub(super) fn destination(datagram: &[u8]) -> Option<&[u8]> {
    let (first, rest) = datagram.split_first()?;
    if first & LONG == 0 {
        return rest.get(..ID_BYTES);
    }
    let (length, rest) = datagram.get(LONG_LENGTH_AT..)?.split_first()?;
    rest.get(..ID_BYTES).filter(|_| usize::from(*length) == ID_BYTES)
}

/// Gives the identifiers of this process.
pub(super) struct Ids {
    pub(super) seal: Seal,
    pub(super) mark: Mark,
    /// Makes what nobody can foresee of a count.
    pub(super) nonces: hmac::Key,
    pub(super) given: u64,
    pub(super) shutdown: Shutdown,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.given = self.given.wrapping_add(1);
        let nonce = hmac::sign(&self.nonces, &self.given.to_be_bytes());
        let mut id = Vec::with_capacity(ID_BYTES);
        id.extend_from_slice(&self.mark.0.to_be_bytes());
        id.extend(nonce.as_ref().iter().take(NONCE_BYTES));
        let seal = self.seal.of(&id);
        id.extend_from_slice(&seal);
        ConnectionId::new(&id)
    }

    /// Whose connection is gone is told so (RFC 9000 section 10.3): clients of this process, and
    /// those of the ones before it. Once there may be a successor, others are its own.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match self.seal.mark(id) {
            Some(mark) if mark == self.mark || !self.shutdown.has_yielded() => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "this is a test")]
mod tests {
    use super::*;

    fn ids(mark: u16, secret: &[u8]) -> Ids {
        Ids {
            seal: Seal(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret))),
            mark: Mark(mark),
            nonces: hmac::Key::new(hmac::HMAC_SHA256, b"nonces"),
            given: 0,
            shutdown: Shutdown::default(),
        }
    }

    #[test]
    fn an_identifier_says_who_gave_it_to_those_who_know_the_secret() {
        let (mut ours, theirs) = (ids(0x1234, b"ours"), ids(0x1234, b"theirs"));
        let (one, other) = (ours.generate_cid(), ours.generate_cid());
        assert_ne!(one, other);
        for id in [one, other] {
            assert_eq!((id.len(), ours.seal.mark(&id)), (ours.cid_len(), Some(Mark(0x1234))));
            assert_eq!(theirs.seal.mark(&id), None);
            for place in 0..id.len() {
                let mut wrong = id.to_vec();
                wrong[place] ^= 1;
                assert_eq!(ours.seal.mark(&wrong), None, "{place}");
                assert_eq!(ours.seal.mark(&id[..place]), None, "{place}");
            }
        }
    }

    #[test]
    fn clients_of_former_processes_are_told_that_they_are_gone_and_those_of_a_successor_are_not() {
        let (ours, mut others) = (ids(7, b"secret"), ids(8, b"secret"));
        let id = others.generate_cid();
        ours.validate(&id).unwrap();
        ours.shutdown.give_up();
        assert!(ours.validate(&id).is_err());
        others.mark = Mark(7);
        ours.validate(&others.generate_cid()).unwrap();
    }

    #[test]
    fn the_destination_of_a_datagram_is_found_and_nothing_else_is_taken_for_it() {
        let id: Vec<u8> = (1..=12).collect();
        let short = [&[0x40], &id[..], b"sealed"].concat();
        assert_eq!(destination(&short), Some(&id[..]));
        let long = [&[0xc0, 0, 0, 0, 1, 12], &id[..], &[0], b"sealed"].concat();
        assert_eq!(destination(&long), Some(&id[..]));
        let eight = [&[0xc0, 0, 0, 0, 1, 8], &id[..], b"sealed"].concat();
        assert_eq!(destination(&eight), None);
        for end in 0..13 {
            assert_eq!(destination(&short[..end]), None, "{end}");
        }
        for end in 0..18 {
            assert_eq!(destination(&long[..end]), None, "{end}");
        }
    }
}
