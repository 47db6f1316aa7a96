//! DNS cookies (RFC 7873), in the form that all servers behind one address can agree on (RFC 9018).
//!
//! A client that comes back with a cookie of ours has the address that it says it has: it is not
//! limited. Everybody who sends the option gets a cookie; nobody has to have one.

use std::fmt;
use std::net::IpAddr;

use model::Now;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as SipHasher24Wide};

/// Bytes of a secret.
pub const COOKIE_SECRET_BYTES: usize = 16;

/// Bytes of a client's cookie, of ours, and of both.
const CLIENT_BYTES: usize = 8;
const SERVER_BYTES: usize = 16;
const BOTH_BYTES: usize = CLIENT_BYTES + SERVER_BYTES;
/// The longest server cookie that anybody may use (RFC 7873 section 4).
const SERVER_BYTES_MAX: usize = 32;
/// Version 1 and three reserved bytes (RFC 9018 section 4.1 and 4.2).
const VERSION: [u8; 4] = [1, 0, 0, 0];
/// How old a cookie may be, and how far in the future, seconds (RFC 9018 section 4.3).
const AGE_MAX_S: i32 = 3600;
const AHEAD_MAX_S: i32 = 300;
/// From what age on a client gets a new one, seconds (same section).
const RENEW_AGE_S: i32 = 1800;
/// How long a key that is made of a host's own secret is used for new cookies: a week. RFC 7873
/// section 7.1 wants no more than 26 days.
const PERIOD_S: u64 = 7 * 86_400;

/// What server cookies are made and known by.
#[derive(Clone, Copy)]
pub struct CookieKeys {
    /// Makes new ones.
    current: [u8; COOKIE_SECRET_BYTES],
    /// Knows those made before or, on other servers, already after a change of the secret.
    others: [Option<[u8; COOKIE_SECRET_BYTES]>; 2],
}

impl fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKeys(..)")
    }
}

impl CookieKeys {
    /// Makes cookies by `current` and knows those of `others` too.
    pub fn new(
        current: [u8; COOKIE_SECRET_BYTES],
        others: [Option<[u8; COOKIE_SECRET_BYTES]>; 2],
    ) -> Self {
        Self { current, others }
    }

    /// The keys of a host that shares no secret: one a week, made of `secret`.
    pub fn of_week(secret: &[u8; COOKIE_SECRET_BYTES], now: Now) -> Self {
        let period = now.wall_s() / PERIOD_S;
        let key = |period: u64| {
            let mut hasher = SipHasher24Wide::new_with_key(secret);
            std::hash::Hasher::write(&mut hasher, &period.to_le_bytes());
            hasher.finish128().as_bytes()
        };
        // The clock of the process before may have been ahead.
        let others = [period.checked_sub(1), period.checked_add(1)];
        Self { current: key(period), others: others.map(|period| period.map(key)) }
    }

    /// The cookie of the answer to `cookie`, and whether its sender is known by it.
    pub(crate) fn judge(&self, cookie: Cookie, peer: IpAddr, now: Now) -> Judged {
        // Seconds since 1970, to be compared by serial arithmetic (RFC 9018 section 4.3).
        let now_s = u32::try_from(now.wall_s() & u64::from(u32::MAX)).unwrap_or(0);
        if let Some(server) = cookie.server
            && let Some(is_fresh) = self.known(&cookie.client, &server, peer, now_s)
        {
            let server = if is_fresh { server } else { self.make(&cookie.client, peer, now_s) };
            return Judged { bytes: joined(cookie.client, server), known: true };
        }
        let server = self.make(&cookie.client, peer, now_s);
        Judged { bytes: joined(cookie.client, server), known: false }
    }

    /// Whether a server cookie that is one of ours, and may be used, need not be replaced yet.
    fn known(
        &self,
        client: &[u8; CLIENT_BYTES],
        server: &[u8; SERVER_BYTES],
        peer: IpAddr,
        now_s: u32,
    ) -> Option<bool> {
        let (head, hash) = server.split_first_chunk::<8>()?;
        let [version, _, _, _, time @ ..] = *head;
        let age = now_s.wrapping_sub(u32::from_be_bytes(time)).cast_signed();
        if version != VERSION[0] || !(-AHEAD_MAX_S..=AGE_MAX_S).contains(&age) {
            return None;
        }
        // Compared as numbers: in one step, whatever the difference is.
        let hash = u64::from_le_bytes(*hash.first_chunk()?);
        let is_by = |key| hash_of(key, client, head, peer) == hash;
        if is_by(&self.current) {
            return Some(age < RENEW_AGE_S);
        }
        self.others.iter().flatten().any(is_by).then_some(false)
    }

    fn make(&self, client: &[u8; CLIENT_BYTES], peer: IpAddr, now_s: u32) -> [u8; SERVER_BYTES] {
        let head = joined(VERSION, now_s.to_be_bytes());
        joined(head, hash_of(&self.current, client, &head, peer).to_le_bytes())
    }
}

/// RFC 9018 section 4.4.
fn hash_of(
    key: &[u8; COOKIE_SECRET_BYTES],
    client: &[u8; CLIENT_BYTES],
    head: &[u8; 8],
    peer: IpAddr,
) -> u64 {
    let fixed: [u8; 16] = joined(*client, *head);
    let hasher = SipHasher24::new_with_key(key);
    match peer.to_canonical() {
        IpAddr::V4(v4) => hasher.hash(&joined::<16, 4, 20>(fixed, v4.octets())),
        IpAddr::V6(v6) => hasher.hash(&joined::<16, 16, 32>(fixed, v6.octets())),
    }
}

/// `a` and then `b`; `C` is `A + B`.
fn joined<const A: usize, const B: usize, const C: usize>(a: [u8; A], b: [u8; B]) -> [u8; C] {
    let mut both = [0; C];
    both.iter_mut().zip(a.into_iter().chain(b)).for_each(|(to, from)| *to = from);
    both
}

/// A well-formed COOKIE option of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    client: [u8; CLIENT_BYTES],
    /// Of the length that ours have.
    server: Option<[u8; SERVER_BYTES]>,
    /// Whether there was one, of whatever length.
    has_server: bool,
}

impl Cookie {
    /// Reads the option's data; `None` is FORMERR (RFC 7873 section 5.2.2).
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (client, server) = data.split_first_chunk()?;
        let is_sound = server.is_empty() || (8..=SERVER_BYTES_MAX).contains(&server.len());
        let has_server = !server.is_empty();
        is_sound.then_some(Self { client: *client, server: server.try_into().ok(), has_server })
    }

    /// Whether the client sent a server's cookie too.
    pub(crate) fn has_server(&self) -> bool {
        self.has_server
    }
}

/// What a cookie of a query comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// The client's cookie and ours, for the reply.
    pub(crate) bytes: [u8; BOTH_BYTES],
    /// The client has the address it says it has: it got our cookie there lately.
    pub(crate) known: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        assert_eq!(hex.len(), 2 * N);
        std::array::from_fn(byte)
    }

    fn at(wall_s: u32) -> Now {
        Now { mono_ns: 0, wall_ms: u64::from(wall_s) * 1000 }
    }

    const SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";

    /// RFC 9018, appendix A.
    #[test]
    fn cookies_are_those_of_every_other_server() {
        let keys = CookieKeys::new(bytes(SECRET), [None; 2]);
        let peer = "198.51.100.100".parse().unwrap();
        // A.1: a new client.
        let first = Cookie::read(&bytes::<8>("2464c4abcf10c957")).unwrap();
        let judged = keys.judge(first, peer, at(1_559_731_985));
        let cookie = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
        assert_eq!(judged, Judged { bytes: bytes(cookie), known: false });
        // A.2: the same client later, at an age at which it gets a new one.
        let again = Cookie::read(&bytes::<24>(cookie)).unwrap();
        let judged = keys.judge(again, peer, at(1_559_734_385));
        let cookie = "2464c4abcf10c957010000005cf7a871d4a564a1442aca77";
        assert_eq!(judged, Judged { bytes: bytes(cookie), known: true });
        // A.3: another client, whose cookie has reserved bits set and is too old.
        let peer = "203.0.113.203".parse().unwrap();
        let old = bytes::<24>("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
        let given = Cookie::read(&old).unwrap();
        let judged = keys.judge(given, peer, at(0x5cf7_8f71));
        assert_eq!(judged, Judged { bytes: old, known: true });
        let judged = keys.judge(given, peer, at(1_559_734_700));
        let cookie = "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e";
        assert_eq!(judged, Judged { bytes: bytes(cookie), known: false });
        // A.4: IPv6, and a secret that was changed.
        let new = bytes("445536bcd2513298075a5d379663c962");
        let keys = CookieKeys::new(new, [Some(bytes("dd3bdf9344b678b185a6f5cb60fca715")), None]);
        let peer = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let cookie = "22681ab97d52c298010000005cf7c57926556bd0934c72f8";
        let judged =
            keys.judge(Cookie::read(&bytes::<24>(cookie)).unwrap(), peer, at(1_559_741_961));
        let cookie = "22681ab97d52c298010000005cf7c609a6bb79d16625507a";
        assert_eq!(judged, Judged { bytes: bytes(cookie), known: true });
    }

    #[test]
    fn a_cookie_is_good_for_its_address_its_client_and_an_hour() {
        let keys = CookieKeys::new(bytes(SECRET), [None; 2]);
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let made = at(u32::MAX - 10);
        let mut given = Cookie::read(&[1; 8]).unwrap();
        let first = keys.judge(given, peer, made).bytes;
        given = Cookie::read(&first).unwrap();
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        // The clock of RFC 9018 wraps.
        let after = |s: u64| Now { mono_ns: 0, wall_ms: made.wall_ms + s * 1000 };
        for (peer, now, known, same) in [
            (peer, made, true, true),
            (mapped, made, true, true),
            (peer, after(1799), true, true),
            (peer, after(1800), true, false),
            (peer, after(3600), true, false),
            (peer, after(3601), false, false),
            (peer, at(u32::MAX - 310), true, true),
            (peer, at(u32::MAX - 311), false, false),
            ("192.0.2.2".parse().unwrap(), made, false, false),
        ] {
            let judged = keys.judge(given, peer, now);
            assert_eq!((judged.known, judged.bytes == first), (known, same), "{peer} {now:?}");
        }
        for changed in 0..24 {
            let mut bytes = first;
            bytes[changed] ^= 1;
            let judged = keys.judge(Cookie::read(&bytes).unwrap(), peer, made);
            assert!(!judged.known, "byte {changed}");
        }
    }

    #[test]
    fn keys_of_a_week_know_those_of_the_weeks_beside_it() {
        let secret = [7; COOKIE_SECRET_BYTES];
        let peer = "2001:db8::1".parse().unwrap();
        let known = |made: u64, used: u64| {
            let now = Now { mono_ns: 0, wall_ms: PERIOD_S * 100_000 };
            let first = Cookie::read(&[1; 8]).unwrap();
            let key = |week: u64| Now { mono_ns: 0, wall_ms: week * PERIOD_S * 1000 };
            let given = CookieKeys::of_week(&secret, key(made)).judge(first, peer, now).bytes;
            let given = Cookie::read(&given).unwrap();
            CookieKeys::of_week(&secret, key(used)).judge(given, peer, now).known
        };
        assert!(known(5, 5) && known(5, 6) && known(6, 5) && known(0, 0));
        assert!(!known(5, 7) && !known(7, 5));
    }

    #[test]
    fn options_of_other_lengths_are_malformed() {
        for length in 0..64 {
            let read = Cookie::read(&vec![9; length]);
            let sound = length == 8 || (16..=40).contains(&length);
            assert_eq!(read.is_some(), sound, "{length}");
            assert_eq!(read.is_some_and(|cookie| cookie.server.is_some()), length == 24);
            assert_eq!(read.is_some_and(|cookie| cookie.has_server()), sound && length > 8);
        }
    }
}
