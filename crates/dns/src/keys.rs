//! The keys of signed zones: from the files that `[[dns.sign]]` names to what signs.
//!
//! Read once, when the role starts: a change of keys is a change of the configuration, which a
//! hand-over takes in without losing a query.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dns_proto::Snapshot;
use dns_proto::dnssec::{Cds, Duty, Key, KeyError, Keyring, Pen, Signer, ZoneKeys, ZoneKeysError};
use model::HostName;
use model::time::utc;
use rt::file::read_bounded;
use rt::metrics::{Gauge, dns as metric};
use rt::tls::is_open_to_others;
use rt::{Context, Phase, Shutdown};
use serde_json::{Value, json};

/// How long signatures hold when the configuration does not say, seconds.
pub const VALIDITY_S_DEFAULT: u32 = 7 * 86_400;
/// A key file larger than this is none.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// How often it is looked when the first signature ends.
const EXPIRY_EVERY: Duration = Duration::from_secs(30);

/// `[[dns.sign]]`: a zone whose answers are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignParams {
    /// Name of the zone.
    pub zone: HostName,
    /// Its keys.
    pub keys: Vec<KeyFile>,
    /// What its parent is told.
    pub cds: Cds,
    /// How long signatures hold, seconds.
    pub validity_s: u32,
}

/// A key of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The file of the private key.
    pub path: PathBuf,
    /// What the key does.
    pub duty: Duty,
}

/// Why a zone cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file is not there.
    #[error("there is no key file {}: {remedy}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// How it is made.
        remedy: String,
    },
    /// A file cannot be read.
    #[error("cannot read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The private key is not private.
    #[error("everybody on this machine may read {path}: chmod o= {path}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A file holds no key that can be used.
    #[error("the key file {} cannot be used", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The keys of a zone do not go together.
    #[error("the zone {zone} cannot be signed")]
    Zone {
        /// The zone.
        zone: HostName,
        /// Why.
        source: ZoneKeysError,
    },
}

impl SignParams {
    /// Reads the keys.
    ///
    /// # Errors
    /// The first that cannot be used, or why they cannot be together.
    pub fn load(&self) -> Result<ZoneKeys, KeysError> {
        let load = |file: &KeyFile| Ok((load_key(&self.zone, &file.path)?, file.duty));
        let keys = self.keys.iter().map(load).collect::<Result<Vec<_>, KeysError>>()?;
        let zone = || self.zone.clone();
        ZoneKeys::new(&self.zone, keys, self.cds, self.validity_s)
            .map_err(|source| KeysError::Zone { zone: zone(), source })
    }
}

/// What signs the answers of this host.
#[derive(Debug)]
pub(crate) struct Signing {
    pub(crate) keyring: Arc<Keyring>,
    signer: Arc<Signer>,
    expiry: Gauge,
}

impl Signing {
    /// Reads the keys of all zones; `None` when none is signed.
    pub(crate) fn load(all: &[SignParams], context: &Context) -> Result<Option<Self>, KeysError> {
        if all.is_empty() {
            return Ok(None);
        }
        let keyring = load(all)?;
        for duty in Duty::ALL {
            let keys = keyring.zones().flat_map(|(_, keys)| keys.keys());
            let count = keys.filter(|(_, of)| *of == duty).count();
            let gauge = context.metrics.gauge(&metric::KEYS, &[duty.word()]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let hash_key = rt::clock::secret().ok_or(KeysError::Random)?;
        let signer = Arc::new(Signer::new(hash_key, rt::clock::random()));
        let expiry = context.metrics.gauge(&metric::SIGNATURES_EXPIRY, &[]);
        Ok(Some(Self { keyring: Arc::new(keyring), signer, expiry }))
    }

    /// What one answering thread signs with.
    pub(crate) fn pen(&self) -> Pen {
        Pen::new(Arc::clone(&self.signer))
    }

    /// Keeps the gauge of the first expiry until shutdown.
    pub(crate) async fn watch(&self, shutdown: Shutdown) {
        loop {
            let soonest = self.signer.soonest_expiry_s(rt::clock::now()).unwrap_or(0);
            self.expiry.set(i64::try_from(soonest).unwrap_or(i64::MAX));
            tokio::select! {
                () = shutdown.reached(Phase::Draining) => return,
                () = tokio::time::sleep(EXPIRY_EVERY) => {}
            }
        }
    }

    /// The zones that have keys, and are not there: nothing is signed by them.
    pub(crate) fn unserved<'a>(
        &'a self,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = &'a HostName> + 'a {
        self.keyring.zones().map(|(zone, _)| zone).filter(|zone| !snapshot.signs(zone))
    }

    /// For `/status`.
    pub(crate) fn status(&self, snapshot: &Snapshot) -> Value {
        let soonest = self.signer.soonest_expiry_s(rt::clock::now());
        let key = |(key, duty): (&Key, Duty)| {
            json!({
                "tag": key.tag(),
                "algorithm": key.algorithm().to_string(),
                "duty": duty.word(),
            })
        };
        let mut zones: Vec<_> = self.keyring.zones().collect();
        zones.sort_by_key(|(zone, _)| zone.as_str());
        let zones = zones.into_iter().map(|(zone, keys)| {
            json!({
                "zone": zone.as_str(),
                "served": snapshot.signs(zone),
                "keys": keys.keys().map(key).collect::<Vec<_>>(),
            })
        });
        json!({
            "zones": zones.collect::<Vec<_>>(),
            "signatures_expire": soonest.map(|s| utc(s.saturating_mul(1000))),
            "memory_bytes": Signer::memory_bytes(),
        })
    }
}

/// The keys of all zones.
fn load(all: &[SignParams]) -> Result<Keyring, KeysError> {
    let mut keyring = Keyring::default();
    for params in all {
        keyring.add(params.zone.clone(), params.load()?);
    }
    Ok(keyring)
}

/// Reads one key of `zone`.
///
/// # Errors
/// Why it cannot be used.
pub fn load_key(zone: &HostName, path: &Path) -> Result<Key, KeysError> {
    let made = || format!("make it with `cacheboy dnssec keygen {zone} {}`", path.display());
    let private = read_private(path, made)?;
    let has_half = path.extension().is_some_and(|extension| extension == "private");
    let public = match has_half.then(|| read(&path.with_extension("key"))) {
        None => None,
        Some(Ok(text)) => Some(text),
        Some(Err(KeysError::Read { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
            None
        }
        Some(Err(error)) => return Err(error),
    };
    Key::read(zone, &private, public.as_deref(), &rt::clock::random())
        .map_err(|source| KeysError::Key { path: path.to_owned(), source })
}

/// Reads a file that not everybody may read; `made` says how one is made that is not there.
pub(crate) fn read_private(
    path: &Path,
    made: impl FnOnce() -> String,
) -> Result<String, KeysError> {
    let text = read(path).map_err(|error| match error {
        KeysError::Read { path, source } if source.kind() == io::ErrorKind::NotFound => {
            KeysError::Missing { path, remedy: made() }
        }
        error => error,
    })?;
    if is_open_to_others(path) {
        return Err(KeysError::Open { path: path.to_owned() });
    }
    Ok(text)
}

fn read(path: &Path) -> Result<String, KeysError> {
    let failed = |source| KeysError::Read { path: path.to_owned(), source };
    let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(failed)?;
    String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// RFC 8080 section 6.1.
    const PRIVATE: &str = "Private-key-format: v1.2\nAlgorithm: 15 (ED25519)\n\
        PrivateKey: ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=\n";

    fn zone() -> HostName {
        "example.com".parse().unwrap()
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn keys_are_read_with_their_public_half_and_only_when_they_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("Kexample.com.+015+03613.private");
        let missing = load_key(&zone(), &path).unwrap_err().to_string();
        assert!(missing.contains("make it with `cacheboy dnssec keygen example.com "), "{missing}");
        write(&path, PRIVATE, 0o640);
        assert_eq!(load_key(&zone(), &path).unwrap().tag(), 3613);
        write(&path.with_extension("key"), "example.org. IN DNSKEY 257 3 15 AA==\n", 0o644);
        let error = load_key(&zone(), &path).unwrap_err();
        assert!(matches!(error, KeysError::Key { source: KeyError::Zone(_), .. }), "{error}");
        write(&path, PRIVATE, 0o644);
        let error = load_key(&zone(), &path).unwrap_err();
        let shown = path.display();
        let expected = format!("everybody on this machine may read {shown}: chmod o= {shown}");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_zone_has_the_keys_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.private");
        write(&path, PRIVATE, 0o600);
        let file = |duty| KeyFile { path: path.clone(), duty };
        let (cds, validity_s) = (Cds::Off, VALIDITY_S_DEFAULT);
        let mut params =
            SignParams { zone: zone(), keys: vec![file(Duty::Active)], cds, validity_s };
        let keyring = load(std::slice::from_ref(&params)).unwrap();
        assert_eq!(keyring.of(&zone()).unwrap().keys().count(), 1);
        params.keys = vec![file(Duty::Active), file(Duty::Published)];
        let error = load(&[params]).unwrap_err();
        assert_eq!(error.to_string(), "the zone example.com cannot be signed");
    }
}
