//! The certificate of a test's edges.

use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use sha2::{Digest, Sha256};

/// Makes one for these names and addresses, `chain.pem` and `key.pem` in a new folder. Gives the digest
/// of its key, in the form in which browsers are told whom to trust.
pub(crate) fn make(folder: &Path, names: &[String]) -> String {
    fs::create_dir_all(folder).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    fs::write(folder.join("chain.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    base64(&Sha256::digest(key.subject_public_key_info()))
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for sextet in 0..4 {
            let value = (bits >> (18 - 6 * sextet)) & 63;
            let is_there = sextet <= three.len();
            text.push(if is_there { ALPHABET[value as usize] as char } else { '=' });
        }
    }
    text
}
