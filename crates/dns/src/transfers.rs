//! Who may copy zones (AXFR): the keys that `[[dns.transfer]]` names.
//!
//! Read once, when the role starts, as keys of signed zones are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dns_proto::{KeyFileError, Transfers, TsigKey};
use model::HostName;

use crate::keys::{KeysError, read_private};

/// `[[dns.transfer]]`: a zone that other servers may copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferParams {
    /// Name of the zone.
    pub zone: HostName,
    /// Key files (TSIG), each of somebody who may.
    pub keys: Vec<PathBuf>,
}

/// Why zones cannot be given to others.
#[derive(Debug, thiserror::Error)]
pub enum TransfersError {
    /// A key file cannot be read.
    #[error(transparent)]
    File(#[from] KeysError),
    /// A file holds no key that can be used.
    #[error("the key file {} cannot be used", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KeyFileError,
    },
    /// Two files have keys of one name.
    #[error(
        "the key in {} has the name of a key in another file: give each key a name of its own",
        path.display()
    )]
    Twice {
        /// The second file.
        path: PathBuf,
    },
}

/// Reads the keys.
///
/// # Errors
/// The first that cannot be used.
pub fn load_transfers(all: &[TransferParams]) -> Result<Transfers, TransfersError> {
    let mut transfers = Transfers::default();
    let mut read: HashMap<&PathBuf, Arc<TsigKey>> = HashMap::new();
    for params in all {
        for path in &params.keys {
            let key = match read.get(path) {
                Some(key) => Arc::clone(key),
                None => {
                    let key = TsigKey::read(&read_private(path, || made(path))?);
                    let path = || path.clone();
                    key.map_err(|source| TransfersError::Key { path: path(), source })?.into()
                }
            };
            if !transfers.allow(&params.zone, &key) {
                return Err(TransfersError::Twice { path: path.clone() });
            }
            read.insert(path, key);
        }
    }
    Ok(transfers)
}

fn made(path: &Path) -> String {
    format!("make it with `tsig-keygen -a hmac-sha256 NAME > {}`", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_read_once_and_must_be_private_and_of_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, mode: u32| {
            let path = dir.path().join(file);
            let key = "key \"a.example\" { algorithm hmac-sha256; \
                       secret \"MDEyMzQ1Njc4OWFiY2RlZg==\"; };";
            fs::write(&path, key).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let of = |zone: &str, keys: &[&PathBuf]| TransferParams {
            zone: zone.parse().unwrap(),
            keys: keys.iter().map(|path| (*path).clone()).collect(),
        };
        let (a, b, open) = (write("a", 0o600), write("b", 0o640), write("open", 0o644));
        load_transfers(&[of("one.example", &[&a]), of("two.example", &[&a])]).unwrap();
        let error = |keys: &[&PathBuf]| load_transfers(&[of("one.example", keys)]).unwrap_err();
        assert!(matches!(error(&[&a, &b]), TransfersError::Twice { path } if path == b));
        assert!(error(&[&open]).to_string().starts_with("everybody on this machine may read"));
        fs::write(&a, "key").unwrap();
        assert!(matches!(error(&[&a]), TransfersError::Key { .. }));
    }
}
