//! One certificate: PEM files to a chain with its key, its names and its dates.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use model::time::utc;
use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::file::read_bounded;

/// Largest file of a chain or a key, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// `[[tls.certificate]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM file: the certificate of the host itself first, then those that lead to its authority.
    pub chain: PathBuf,
    /// PEM file with its private key (PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {0} ({1}): name a PEM file that this process may read")]
    Read(PathBuf, io::Error),
    /// It is not PEM, or half written.
    #[error("{0} is not whole PEM ({reason}): convert it, or name another file", reason = why(.1))]
    NotPem(PathBuf, pem::Error),
    /// A key that a passphrase keeps.
    #[error(
        "the private key in {0} is encrypted, and nobody is there to type its passphrase: take it \
         off (openssl pkey -in OLD -out NEW)"
    )]
    Encrypted(PathBuf),
    /// There is none in it.
    #[error("no certificate is in {0}: name the file with the chain")]
    NoCertificate(PathBuf),
    /// What stands first in it is no certificate.
    #[error("the first certificate in {0} cannot be understood: get it anew from its authority")]
    NotX509(PathBuf),
    /// There is none in it.
    #[error("no private key is in {0}: name the file with the key of the first certificate")]
    NoKey(PathBuf),
    /// A kind of key that we do not speak with.
    #[error(
        "the private key in {0} cannot be used ({1}): use ECDSA P-256 or P-384, Ed25519, or RSA \
         of 2048 bits or more"
    )]
    BadKey(PathBuf, rustls::Error),
    /// The key is another one's.
    #[error(
        "the key in {key} does not belong to the first certificate in {chain}: name the key that \
         the certificate was made with, and put the certificate of the host first in the chain"
    )]
    Mismatch {
        /// The file of the chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Where it came from.
    pub files: CertificateFiles,
    /// The DNS names it is for, in lower case; those that begin with `*.` stand for one label.
    pub names: Vec<String>,
    /// From when it holds, Unix time in seconds.
    pub not_before_s: i64,
    /// Until when it holds, Unix time in seconds.
    pub not_after_s: i64,
    pub(super) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them. That it does not hold at this time is none.
    pub fn load(files: &CertificateFiles) -> Result<Self, LoadError> {
        Self::parse(files, &read(&files.chain)?, &read(&files.key)?)
    }

    /// The same of what is in the files, which are only named.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(
        files: &CertificateFiles,
        chain_pem: &[u8],
        key_pem: &[u8],
    ) -> Result<Self, LoadError> {
        let CertificateFiles { chain, key } = files;
        let der: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain_pem)
            .collect::<Result<_, _>>()
            .map_err(|error| LoadError::NotPem(chain.clone(), error))?;
        let first = der.first().ok_or_else(|| LoadError::NoCertificate(chain.clone()))?;
        let (_, parsed) =
            parse_x509_certificate(first).map_err(|_| LoadError::NotX509(chain.clone()))?;
        let names = parsed.subject_alternative_name();
        let names = names.map_err(|_| LoadError::NotX509(chain.clone()))?.map(|san| {
            let names = san.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            });
            names.collect()
        });
        let validity = parsed.validity();
        let (not_before_s, not_after_s) =
            (validity.not_before.timestamp(), validity.not_after.timestamp());
        let private = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            _ if is_encrypted(key_pem) => LoadError::Encrypted(key.clone()),
            pem::Error::NoItemsFound => LoadError::NoKey(key.clone()),
            error => LoadError::NotPem(key.clone(), error),
        })?;
        let certified = CertifiedKey::from_der(der.clone(), private, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                LoadError::Mismatch { chain: chain.clone(), key: key.clone() }
            }
            error => LoadError::BadKey(key.clone(), error),
        })?;
        Ok(Self {
            files: files.clone(),
            names: names.unwrap_or_default(),
            not_before_s,
            not_after_s,
            key: Arc::new(certified),
        })
    }

    /// What it is called in metrics: its first name, or its file where it has none.
    pub fn first_name(&self) -> &str {
        self.names.first().map_or_else(|| self.files.chain.to_str().unwrap_or("?"), String::as_str)
    }

    pub(super) fn status(&self) -> serde_json::Value {
        serde_json::json!({
            "chain": self.files.chain.display().to_string(),
            "names": self.names,
            "not_before": utc(millis(self.not_before_s)),
            "not_after": utc(millis(self.not_after_s)),
        })
    }

    /// Whether a client that asks for `name` (in lower case) may be shown this certificate
    /// (RFC 9525 section 6.3: a wildcard stands for exactly one label).
    pub fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|own| match own.strip_prefix("*.") {
            Some(own) => parent == Some(own),
            None => own == name,
        })
    }
}

/// What is wrong with PEM; the library shows the words of a section as numbers.
fn why(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("no -----END {}-----", String::from_utf8_lossy(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("its first line is {}", String::from_utf8_lossy(line))
        }
        error => error.to_string(),
    }
}

/// Whether a key is one of PKCS #8 or of older kinds that a passphrase keeps.
fn is_encrypted(pem: &[u8]) -> bool {
    [&b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|sign| pem.windows(sign.len()).any(|part| part == *sign))
}

/// Whether others than the owner and group of a key may read it.
pub fn is_open_to_others(key: &Path) -> bool {
    fs::metadata(key).is_ok_and(|found| found.permissions().mode() & 0o007 != 0)
}

/// Unix time in milliseconds; nothing before 1970.
fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    read_bounded(path, FILE_BYTES_MAX).map_err(|error| LoadError::Read(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    #[test]
    fn what_is_wrong_with_files_is_said_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let load = |chain: &str, key: &str| {
            let files =
                CertificateFiles { chain: dir.path().join("a.pem"), key: dir.path().join("a.key") };
            fs::write(&files.chain, chain).unwrap();
            fs::write(&files.key, key).unwrap();
            let error = Certificate::load(&files).err()?.to_string();
            Some(error.replace(&format!("{}/", dir.path().display()), ""))
        };
        assert_eq!(load(&chain, &key), None);
        let (half, _) = chain.split_at(chain.len() / 2);
        assert_eq!(
            load(half, &key).unwrap(),
            "a.pem is not whole PEM (no -----END CERTIFICATE-----): convert it, or name another file"
        );
        for (first, then) in [
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n", ""),
            (
                "-----BEGIN EC PRIVATE KEY-----\n",
                "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A\n\n",
            ),
        ] {
            let end = first.replace("BEGIN", "END");
            assert_eq!(
                load(&chain, &format!("{first}{then}AAAA\n{end}")).unwrap(),
                "the private key in a.key is encrypted, and nobody is there to type its passphrase: \
                 take it off (openssl pkey -in OLD -out NEW)"
            );
        }
    }
}
