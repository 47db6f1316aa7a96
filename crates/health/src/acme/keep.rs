//! Certificates and the account on disk: `STATE_DIR/acme/AUTHORITY/`, one folder for each directory, so
//! that what was ordered for a trial is never taken for the real thing.
//!
//! A certificate is one file, its key before its chain, so that both are always each other's.
//! Files can be read by this user alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use health_proto::acme::Validity;
use http::Uri;
use model::Name;
use rt::tls::{Certificate, CertificateFiles};
use rt::{clock, file};
use serde::{Deserialize, Serialize};

/// Who has got which certificate.
const GIVEN_FILE: &str = "given.json";
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest list of who has got what, bytes.
const GIVEN_BYTES_MAX: u64 = 16 << 20;

/// A certificate that is kept.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) name: String,
    pub(super) validity: Validity,
}

/// Name of a certificate -> the nodes that have got it with its key.
type Given = BTreeMap<String, BTreeSet<Name>>;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    folder: PathBuf,
    /// Held by who changes the file of it.
    given: Arc<Mutex<Given>>,
}

impl Keep {
    /// Makes the folder of the authority with this directory.
    pub(super) fn open(state_dir: &Path, directory: &Uri) -> Result<Self, (PathBuf, io::Error)> {
        let host = directory.host().unwrap_or_default();
        let path = directory.path().trim_matches('/');
        let word: String = format!("{host}-{path}").chars().map(file_char).collect();
        let folder = state_dir.join("acme").join(word);
        let made = fs::create_dir_all(&folder)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o700)));
        made.map_err(|error| (folder.clone(), error))?;
        let given = read_given(&folder.join(GIVEN_FILE))
            .map_err(|error| (folder.join(GIVEN_FILE), error))?;
        Ok(Self { folder, given: Arc::new(Mutex::new(given)) })
    }

    /// Where the account is.
    pub(super) fn account_file(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Those of `names` that are there and can be used. Blocks.
    pub(super) fn load_all(&self, names: &[String]) -> Vec<Issued> {
        let load = |name: &String| match file::read_bounded(&self.path(name), FILE_BYTES_MAX) {
            Ok(pem) => self.read(name, &pem).inspect_err(|why| {
                tracing::warn!(name, why, "the certificate that is kept cannot be used");
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(String::new()),
            Err(error) => {
                tracing::warn!(name, %error, "the certificate that is kept cannot be read");
                Err(String::new())
            }
        };
        names.iter().filter_map(|name| load(name).ok()).collect()
    }

    /// Keeps the certificate of `name`, key and chain in PEM, once it is found to be one. Blocks.
    pub(super) fn put(&self, name: &str, pem: &str) -> Result<Issued, String> {
        let issued = self.read(name, pem.as_bytes())?;
        if issued.validity.until_ms <= clock::now().wall_ms {
            return Err("what was issued has expired already: is this host's clock right?".into());
        }
        let path = self.path(name);
        let written = file::write_atomic_private(&path, pem.as_bytes());
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        // Nobody has this one yet.
        let mut given = self.given();
        if given.remove(name).is_some() {
            self.write(&given).map_err(|error| format!("cannot write {GIVEN_FILE}: {error}"))?;
        }
        Ok(issued)
    }

    /// The certificates of `names` for `node`; that it has got them is written down first. Blocks.
    pub(super) fn give(
        &self,
        node: &Name,
        names: &BTreeSet<String>,
    ) -> io::Result<Vec<(String, String)>> {
        let mut given = self.given();
        let mut all = Vec::new();
        let mut is_new = false;
        for name in names {
            let pem = file::read_bounded(&self.path(name), FILE_BYTES_MAX)?;
            let pem = String::from_utf8(pem).map_err(io::Error::other)?;
            is_new |= given.entry(name.clone()).or_default().insert(node.clone());
            all.push((name.clone(), pem));
        }
        if is_new {
            self.write(&given)?;
        }
        Ok(all)
    }

    /// The names of the certificates that `node` has got.
    pub(super) fn given_to(&self, node: &Name) -> Vec<String> {
        let given = self.given();
        let had = given.iter().filter(|(_, nodes)| nodes.contains(node));
        had.map(|(name, _)| name.clone()).collect()
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, given: &Given) -> io::Result<()> {
        let document = serde_json::to_vec(&GivenDocument { format: 1, given: given.clone() })?;
        file::write_atomic_private(&self.folder.join(GIVEN_FILE), &document)
    }

    fn read(&self, name: &str, pem: &[u8]) -> Result<Issued, String> {
        let path = self.path(name);
        let files = CertificateFiles { chain: path.clone(), key: path };
        let read = Certificate::parse(&files, pem, pem).map_err(|error| error.to_string())?;
        if !read.names.iter().any(|own| own == name) {
            return Err(format!("it is for {}, and not for {name}", read.names.join(", ")));
        }
        let ms = |s: i64| u64::try_from(s).unwrap_or(0).saturating_mul(1000);
        let validity = Validity { from_ms: ms(read.not_before_s), until_ms: ms(read.not_after_s) };
        Ok(Issued { name: name.to_owned(), validity })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(file_name(name))
    }
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct GivenDocument {
    format: u32,
    given: Given,
}

fn read_given(path: &Path) -> io::Result<Given> {
    let bytes = match file::read_bounded(path, GIVEN_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Given::new()),
        Err(error) => return Err(error),
    };
    let document: GivenDocument = serde_json::from_slice(&bytes)?;
    if document.format != 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of a newer version"));
    }
    Ok(document.given)
}

/// The file of a name: `*` is for shells.
fn file_name(name: &str) -> String {
    format!("{}.pem", name.replace('*', "_"))
}

fn file_char(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(names: &[&str]) -> String {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        made.signing_key.serialize_pem() + &made.cert.pem()
    }

    #[test]
    fn what_is_kept_is_sound_and_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let directory = "https://ca.example/directory".parse().unwrap();
        let keep = Keep::open(dir.path(), &directory).unwrap();
        keep.put("a.example", &pem(&["a.example"])).unwrap();
        keep.put("*.b.example", &pem(&["*.b.example"])).unwrap();
        let folder = dir.path().join("acme/ca.example-directory");
        for (path, mode) in [("", 0o700), ("a.example.pem", 0o600), ("_.b.example.pem", 0o600)] {
            let found = fs::metadata(folder.join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
        let why = keep.put("c.example", &pem(&["a.example"])).unwrap_err();
        assert_eq!(why, "it is for a.example, and not for c.example");
        assert!(keep.put("c.example", "nothing").is_err());
        fs::write(folder.join("c.example.pem"), "nothing").unwrap();
        let names = ["a.example", "*.b.example", "c.example", "d.example"].map(str::to_owned);
        let read: Vec<String> = keep.load_all(&names).into_iter().map(|i| i.name).collect();
        assert_eq!(read, ["a.example", "*.b.example"]);
        let node: Name = "edge1".parse().unwrap();
        let given = keep.give(&node, &["a.example".to_owned()].into()).unwrap();
        assert!(given[0].1.contains("PRIVATE KEY"));
        assert_eq!(keep.given_to(&node), ["a.example"]);
        let again = Keep::open(dir.path(), &directory).unwrap();
        assert_eq!(again.given_to(&node), ["a.example"], "it is known after a restart");
        again.put("a.example", &pem(&["a.example"])).unwrap();
        assert!(again.given_to(&node).is_empty(), "nobody has the new one");
        let staging = "https://staging.ca.example/directory".parse().unwrap();
        let other = Keep::open(dir.path(), &staging).unwrap();
        assert!(other.load_all(&names).is_empty(), "each authority has a folder of its own");
    }
}
