//! Session tickets: what lets a client that was here before begin without a full handshake.
//!
//! The keys that seal them lie in a file of the state directory, so that tickets are good after a
//! restart, and with the process that takes over from this one. A key seals for [`ROTATION_MS`] and
//! opens for as long again; then what it sealed is worth nothing to anybody. The format is
//! `docs/formats/tls-tickets.md`.
//!
//! A ticket is the key's id, a nonce, and the session sealed by ChaCha20-Poly1305 (RFC 8439) with the
//! id as associated data. RFC 5077 section 4, RFC 8446 section 4.6.1.

use std::fmt;
use std::path::{Path, PathBuf};

use arc_swap::ArcSwap;
use model::Now;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::server::ProducesTickets;

use crate::{clock, file};

/// How long a key seals, milliseconds.
const ROTATION_MS: u64 = 12 * 3600 * 1000;
const MAGIC: &[u8; 8] = b"CBTICKET";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const ID_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const KEY_BYTES: usize = 8 + ID_BYTES + SECRET_BYTES;
/// Largest ticket; a session without a client's certificate needs a few hundred bytes.
const TICKET_BYTES_MAX: usize = 4096;

/// The keys, and the file they are kept in.
#[derive(Debug)]
pub(super) struct Tickets {
    file: PathBuf,
    keys: ArcSwap<Keys>,
}

#[derive(Clone, Debug)]
struct Keys {
    seals: Key,
    /// Opens what was sealed before the last change.
    before: Option<Key>,
}

#[derive(Clone)]
struct Key {
    made_ms: u64,
    id: [u8; ID_BYTES],
    secret: [u8; SECRET_BYTES],
}

/// Its secret stays one.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("made_ms", &self.made_ms).finish_non_exhaustive()
    }
}

/// The system gave no entropy.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoEntropy;

impl Key {
    fn new(now: Now) -> Result<Self, NoEntropy> {
        let id = clock::secret().ok_or(NoEntropy)?;
        let secret = clock::secret().ok_or(NoEntropy)?;
        Ok(Self { made_ms: now.wall_ms, id, secret })
    }

    /// Made less than `age_ms` ago. One from the future is of a clock that was wrong, and too old.
    fn is_younger(&self, age_ms: u64, now: Now) -> bool {
        now.wall_ms.abs_diff(self.made_ms) < age_ms
    }

    fn aead(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.secret).ok().map(LessSafeKey::new)
    }

    fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = clock::secret()?;
        let mut sealed = session.to_vec();
        let aad = Aad::from(&self.id);
        self.aead()?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .ok()?;
        Some([&self.id[..], &nonce, &sealed].concat())
    }

    fn open(&self, nonce: [u8; NONCE_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut session = sealed.to_vec();
        let aad = Aad::from(&self.id);
        let opened = self
            .aead()?
            .open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut session)
            .ok()?
            .len();
        session.truncate(opened);
        Some(session)
    }
}

impl Keys {
    /// Those of the file that are young enough, with a new one in front where none may seal any more.
    /// And whether that changed anything.
    fn renewed(found: &[Key], now: Now) -> Result<(Self, bool), NoEntropy> {
        let opens = |key: &&Key| key.is_younger(ROTATION_MS.saturating_mul(2), now);
        let mut found = found.iter().filter(opens).cloned();
        let newest = found.next();
        match newest {
            Some(seals) if seals.is_younger(ROTATION_MS, now) => {
                Ok((Self { seals, before: found.next() }, false))
            }
            before => Ok((Self { seals: Key::new(now)?, before }, true)),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.seals).chain(&self.before)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let count: u32 = if self.before.is_some() { 2 } else { 1 };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        for key in self.all() {
            bytes.extend(key.made_ms.to_le_bytes());
            bytes.extend(key.id);
            bytes.extend(key.secret);
        }
        bytes
    }
}

/// The keys of a file, newest first.
fn parse(bytes: &[u8]) -> Option<Vec<Key>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (magic, numbers) = head.split_first_chunk::<8>()?;
    let (version, count) = numbers.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(count.try_into().ok()?);
    let (keys, excess) = rest.as_chunks::<KEY_BYTES>();
    let is_whole = excess.is_empty() && u32::try_from(keys.len()) == Ok(count);
    if magic != MAGIC || u32::from_le_bytes(*version) != VERSION || !is_whole || count > 2 {
        return None;
    }
    keys.iter().map(parse_key).collect()
}

fn parse_key(bytes: &[u8; KEY_BYTES]) -> Option<Key> {
    let (made_ms, rest) = bytes.split_first_chunk()?;
    let (id, secret) = rest.split_first_chunk()?;
    Some(Key { made_ms: u64::from_le_bytes(*made_ms), id: *id, secret: secret.try_into().ok()? })
}

impl Tickets {
    /// The keys in `file`. Where it is missing or damaged, and where its keys are too old, there are
    /// new ones, in memory alone if they cannot be written.
    pub(super) fn open(file: &Path, now: Now) -> Result<Self, NoEntropy> {
        let bytes = file::read_bounded(file, 1024);
        let found = match &bytes {
            Ok(bytes) => parse(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Vec::new()),
            Err(_) => None,
        };
        if found.is_none() {
            tracing::warn!(
                file = %file.display(),
                "the keys of session tickets cannot be read: there are new ones, and clients of before begin anew"
            );
        }
        let (keys, is_new) = Keys::renewed(&found.unwrap_or_default(), now)?;
        let tickets = Self { file: file.to_owned(), keys: ArcSwap::from_pointee(keys) };
        if is_new {
            tickets.write();
        }
        Ok(tickets)
    }

    /// A new key takes over when the newest has sealed for long enough. Blocks.
    pub(super) fn rotate_if_due(&self, now: Now) {
        let known: Vec<Key> = self.keys.load().all().cloned().collect();
        match Keys::renewed(&known, now) {
            Ok((_, false)) => {}
            Ok((keys, true)) => {
                self.keys.store(keys.into());
                self.write();
            }
            Err(error) => tracing::warn!(%error, "the key of session tickets stays"),
        }
    }

    fn write(&self) {
        let bytes = self.keys.load().to_bytes();
        if let Err(error) = file::write_atomic_private(&self.file, &bytes) {
            tracing::warn!(
                %error,
                file = %self.file.display(),
                "the keys of session tickets cannot be written: after a restart clients begin anew"
            );
        }
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    /// Seconds for which even the last ticket of a key is good.
    fn lifetime(&self) -> u32 {
        u32::try_from(ROTATION_MS / 1000).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let ticket = self.keys.load().seals.seal(session)?;
        (ticket.len() <= TICKET_BYTES_MAX).then_some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let (id, rest) = ticket.split_first_chunk::<ID_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        // Ids are no secret: whoever holds a ticket has read it.
        self.keys.load().all().find(|key| key.id == *id)?.open(*nonce, sealed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall_ms: 1_800_000_000_000 + ms, ..Now::default() }
    }

    #[test]
    fn a_ticket_is_good_after_a_restart_and_for_one_change_of_keys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tls-tickets");
        let tickets = Tickets::open(&file, at(0)).unwrap();
        let ticket = tickets.encrypt(b"a session").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for (ms, opened) in [
            (1, Some(b"a session".to_vec())),
            (ROTATION_MS, Some(b"a session".to_vec())),
            (2 * ROTATION_MS, None),
        ] {
            let again = Tickets::open(&file, at(ms)).unwrap();
            assert_eq!(again.decrypt(&ticket), opened, "{ms}");
            tickets.rotate_if_due(at(ms));
            assert_eq!(tickets.decrypt(&ticket), opened, "{ms}");
        }
        assert_ne!(tickets.encrypt(b"x").unwrap()[..ID_BYTES], ticket[..ID_BYTES]);
    }

    #[test]
    fn what_was_not_sealed_here_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let tickets = Tickets::open(&dir.path().join("a"), at(0)).unwrap();
        let stranger = Tickets::open(&dir.path().join("b"), at(0)).unwrap();
        let ticket = tickets.encrypt(b"a session").unwrap();
        assert_eq!(stranger.decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken[at] ^= 1;
            assert_eq!(tickets.decrypt(&broken), None, "{at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at}");
        }
        assert_eq!(tickets.encrypt(&[0; TICKET_BYTES_MAX]), None);
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tls-tickets");
        drop(Tickets::open(&file, at(0)).unwrap());
        let good = std::fs::read(&file).unwrap();
        assert_eq!(good.len(), HEAD_BYTES + KEY_BYTES);
        let newer = [&good[..8], &2u32.to_le_bytes(), &good[12..]].concat();
        let many =
            [&good[..12], &3u32.to_le_bytes(), &good[16..], &good[16..], &good[16..]].concat();
        for damaged in [&good[1..], &good[..20], b"", &newer, &many] {
            std::fs::write(&file, damaged).unwrap();
            let tickets = Tickets::open(&file, at(0)).unwrap();
            let again = Tickets::open(&file, at(1)).unwrap();
            let ticket = tickets.encrypt(b"a session").unwrap();
            assert_eq!(again.decrypt(&ticket).unwrap(), b"a session");
        }
    }

    #[test]
    fn nothing_that_can_be_read_says_the_secret() {
        let key = Key { made_ms: 1, id: [2; 16], secret: [3; 32] };
        assert_eq!(format!("{key:?}"), "Key { made_ms: 1, .. }");
    }
}
