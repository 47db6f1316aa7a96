//! Text of key files to a [`Key`].
//!
//! Two forms are read: the `.private` file that `dnssec-keygen`, `ldns-keygen` and Knot's `keymgr`
//! write, whose public half stands in the `.key` file beside it; and PEM of PKCS #8, as `openssl
//! genpkey` and `cacheboy dnssec keygen` write it, which holds both halves. Times of creation and
//! use in a `.private` file are left alone: the configuration says what a key does.

use model::{HostName, base64};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};

use super::key::{Algorithm, FLAGS, Key, Pair};

/// What a PEM file says before its key (RFC 7468 section 2) of the zone that it was made for: nothing
/// else in it does.
pub const ZONE_FIELD: &str = "zone:";
/// The name of the algorithm in DER (RFC 8017 appendix A.1).
const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";

/// Why there is no key in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither of the two forms.
    #[error(
        "it is neither a .private file nor PEM of PKCS #8 (BEGIN PRIVATE KEY): convert it with \
         openssl pkcs8 -topk8 -nocrypt"
    )]
    Form,
    /// The other half.
    #[error("it is the public half of a key: name the .private file of the same name")]
    PublicHalf,
    /// Made for another zone.
    #[error("it was made for the zone {0}: make one for this zone with cacheboy dnssec keygen")]
    OtherZone(String),
    /// Needs a passphrase.
    #[error("it is encrypted: nobody is there to type a passphrase; write it with -nocrypt")]
    Encrypted,
    /// Another algorithm, by what the file calls it.
    #[error("its algorithm is {0}: make a key of ECDSAP256SHA256 or ED25519")]
    Algorithm(String),
    /// A field of the `.private` file is missing or damaged.
    #[error("its {0} is missing or damaged")]
    Field(&'static str),
    /// The `.key` file is missing.
    #[error("its public half is missing: put the .key file beside it")]
    NoPublic,
    /// The `.key` file is damaged.
    #[error("the .key file beside it is no DNSKEY record")]
    Public,
    /// The `.key` file is of another zone.
    #[error("the .key file beside it is of the zone {0}")]
    Zone(String),
    /// A zone-signing or revoked key.
    #[error(
        "its flags are {0}: one key signs a whole zone here, make it with flags 257 (dnssec-keygen \
         -f KSK)"
    )]
    Flags(u16),
    /// The halves do not belong together.
    #[error("private and public half do not belong together")]
    Mismatch,
}

impl Key {
    /// Reads the private key of `zone`; `public` is the `.key` file beside a `.private` one, if
    /// there is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(
        zone: &HostName,
        private: &str,
        public: Option<&str>,
        random: &SystemRandom,
    ) -> Result<Self, KeyError> {
        if private.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            return Err(KeyError::Encrypted);
        }
        if let Some(made_for) = field(private, ZONE_FIELD)
            && !made_for.trim_end_matches('.').eq_ignore_ascii_case(zone.as_str())
        {
            return Err(KeyError::OtherZone(made_for.to_owned()));
        }
        if private.contains("-----BEGIN RSA PRIVATE KEY-----") {
            return Err(KeyError::Algorithm("RSA".to_owned()));
        }
        if let Some(der) = pkcs8(private) {
            return of_pkcs8(&der?, random);
        }
        if private.lines().any(|line| line.split_whitespace().any(|word| word == "DNSKEY")) {
            return Err(KeyError::PublicHalf);
        }
        if !private.starts_with("Private-key-format: v1.") {
            return Err(KeyError::Form);
        }
        let algorithm = algorithm(private)?;
        let secret = field(private, "PrivateKey:").and_then(base64::decode);
        let secret = secret.filter(|secret| secret.len() == 32);
        let secret = secret.ok_or(KeyError::Field("PrivateKey"))?;
        let public = public.map(|text| public_half(zone, text, algorithm)).transpose()?;
        of_halves(algorithm, &secret, public, random)
    }
}

/// The value of a line `name value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Of a `.private` file: `Algorithm: 13 (ECDSAP256SHA256)`.
fn algorithm(private: &str) -> Result<Algorithm, KeyError> {
    let value = field(private, "Algorithm:").ok_or(KeyError::Field("Algorithm"))?;
    let number = value.split_whitespace().next().and_then(|number| number.parse().ok());
    number.and_then(Algorithm::of).ok_or_else(|| KeyError::Algorithm(value.to_owned()))
}

/// The public key in the text of a `.key` file: `ZONE [TTL] [IN] DNSKEY 257 3 ALGORITHM BASE64`.
fn public_half(zone: &HostName, text: &str, algorithm: Algorithm) -> Result<Vec<u8>, KeyError> {
    let lines = text.lines().map(|line| line.split(';').next().unwrap_or_default().trim());
    let record = lines.into_iter().find(|line| !line.is_empty()).ok_or(KeyError::Public)?;
    let mut words = record.split_whitespace();
    let owner = words.next().ok_or(KeyError::Public)?;
    words.find(|word| word.eq_ignore_ascii_case("DNSKEY")).ok_or(KeyError::Public)?;
    if !owner.trim_end_matches('.').eq_ignore_ascii_case(zone.as_str()) {
        return Err(KeyError::Zone(owner.to_owned()));
    }
    let mut number = || words.next().and_then(|word| word.parse::<u16>().ok());
    let flags = number().ok_or(KeyError::Public)?;
    if flags != FLAGS {
        return Err(KeyError::Flags(flags));
    }
    let (protocol, named) = (number(), number());
    let public = base64::decode(&words.collect::<String>()).ok_or(KeyError::Public)?;
    if protocol != Some(3) || named != Some(algorithm.number().into()) {
        return Err(KeyError::Public);
    }
    Ok(public)
}

fn of_halves(
    algorithm: Algorithm,
    secret: &[u8],
    public: Option<Vec<u8>>,
    random: &SystemRandom,
) -> Result<Key, KeyError> {
    let pair = match algorithm {
        Algorithm::EcdsaP256Sha256 => {
            // A public key is the point in uncompressed form (SEC 1 section 2.3.3) without its
            // first byte (RFC 6605 section 4).
            let point = [&[4], &public.ok_or(KeyError::NoPublic)?[..]].concat();
            let pair = EcdsaKeyPair::from_private_key_and_public_key(
                &ECDSA_P256_SHA256_FIXED_SIGNING,
                secret,
                &point,
                random,
            );
            Pair::Ecdsa(pair.map_err(|_| KeyError::Mismatch)?)
        }
        Algorithm::Ed25519 => {
            let pair = match &public {
                Some(public) => Ed25519KeyPair::from_seed_and_public_key(secret, public),
                None => Ed25519KeyPair::from_seed_unchecked(secret),
            };
            Pair::Ed25519(pair.map_err(|_| KeyError::Mismatch)?)
        }
    };
    Ok(of_pair(pair))
}

/// The bytes between the lines of PEM; `None` when there is no private key in PEM.
fn pkcs8(text: &str) -> Option<Result<Vec<u8>, KeyError>> {
    let (_, rest) = text.split_once("-----BEGIN PRIVATE KEY-----")?;
    let body = rest.split_once("-----END PRIVATE KEY-----").map(|(body, _)| body);
    Some(body.and_then(base64::decode).ok_or(KeyError::Field("base64")))
}

fn of_pkcs8(der: &[u8], random: &SystemRandom) -> Result<Key, KeyError> {
    if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
        return Ok(of_pair(Pair::Ed25519(pair)));
    }
    if der.windows(RSA.len()).any(|bytes| bytes == RSA) {
        return Err(KeyError::Algorithm("RSA".to_owned()));
    }
    match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random) {
        Ok(pair) => Ok(of_pair(Pair::Ecdsa(pair))),
        Err(why) => Err(KeyError::Algorithm(format!("not to be read ({why})"))),
    }
}

fn of_pair(pair: Pair) -> Key {
    let public = match &pair {
        Pair::Ecdsa(pair) => pair.public_key().as_ref().get(1..).unwrap_or_default().to_vec(),
        Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
    };
    Key::new(pair, &public)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_key_of_the_zone_say_what_to_do() {
        let zone: HostName = "cdn.example".parse().unwrap();
        let random = SystemRandom::new();
        let der = Key::generate(Algorithm::Ed25519, &random).unwrap();
        let pem = |head: &str, der: &[u8]| {
            let body = base64::encode(der);
            format!("{head}-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
        };
        let read = |text: &str| Key::read(&zone, text, None, &random);
        assert!(read(&pem("", &der)).is_ok());
        assert!(read(&pem("zone: CDN.example.\n", &der)).is_ok());
        let error = |text: &str| read(text).map(|key| key.tag()).unwrap_err();
        let other = KeyError::OtherZone("example.org".into());
        assert_eq!(error(&pem("zone: example.org\n", &der)), other);
        let rsa = KeyError::Algorithm("RSA".into());
        assert_eq!(error(&pem("", &[&[0x30, 0x0d, 6, 9], RSA, &[5, 0]].concat())), rsa);
        assert_eq!(error("-----BEGIN RSA PRIVATE KEY-----\nAA==\n"), rsa);
        let public = "; This is a key-signing key\ncdn.example. IN DNSKEY 257 3 13 AA==\n";
        assert_eq!(error(public), KeyError::PublicHalf);
        assert_eq!(error("hello"), KeyError::Form);
    }
}
