//! Online signing: every answer from a zone that has a key is signed as it is given (RFC 4033 to
//! 4035 as RFC 6840 and RFC 9364 have them).
//!
//! A zone has one kind of key, which signs its key set and its data alike (a combined signing
//! key); a second one of the kind takes its place in a rollover ([`Duty`]).
//!
//! Reading order:
//! 1. `key` and `key_file`: a [`Key`] from the text of its files; DNSKEY, DS, key tag.
//! 2. `zone`: [`ZoneKeys`], who signs and what the parent shall know (CDS, CDNSKEY; RFC 7344).
//! 3. `canonical`: records of a message in the form that is signed (RFC 4034 section 6).
//! 4. `window`: from when to when a signature holds, and when the next one takes its place.
//! 5. `cache`: signatures by what they sign, read without a lock.
//! 6. `budget`: how many signatures a second may be made of names that clients think up.
//! 7. [`Signer`] is what all threads share of this, [`Pen`] what one thread writes with; `sealer`
//!    puts it to work on one reply.
//! 8. `denial`: that a name or type is not there, in one NSEC record (RFC 9824).
//!
//! The pen signs what stands in a message already, record set by record set, so that nothing that
//! makes answers knows of signatures, and what is signed is what is sent.
//!
//! ECDSA takes random numbers from the system by way of `ring`, which adds the private key and what
//! is signed to them: such a signature differs each time; all else here is repeatable.

mod budget;
mod cache;
mod canonical;
pub(crate) mod denial;
mod key;
mod key_file;
mod sealer;
mod signer;
mod window;
mod zone;

pub use key::{Algorithm, Key};
pub use key_file::{KeyError, ZONE_FIELD};
pub(crate) use sealer::Sealer;
pub(crate) use signer::Exhausted;
pub use signer::{Pen, Signed, Signer};
pub use zone::{Cds, Duty, Keyring, ZoneKeys, ZoneKeysError};

#[cfg(test)]
mod answers;
#[cfg(test)]
mod tests;
