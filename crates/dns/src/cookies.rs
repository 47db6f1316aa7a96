//! Where the secrets of cookies come from: a file that several servers have, or one of this host's
//! own.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns_proto::{COOKIE_SECRET_BYTES, CookieKeys};
use model::Now;
use rt::secret::{self, SecretError};
use rt::{Phase, Shutdown};

/// The host's own secret, in its state directory.
const OWN_FILE: &str = "dns-cookie-secret";
/// A file larger than this is none of secrets.
const FILE_BYTES_MAX: u64 = 4096;
/// Secrets of a file: one that makes cookies and two that only know them.
const SECRETS_MAX: usize = 3;
/// How often it is looked whether there are others.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Why there are no cookies to be made.
#[derive(Debug, thiserror::Error)]
pub enum CookieError {
    /// The file cannot be read.
    #[error("cookie_secret_file {} cannot be read: is it there, and may this user read it?", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// Others may read it.
    #[error("anybody may read cookie_secret_file {path}: chmod 640 {path}", path = .0.display())]
    Open(PathBuf),
    /// It holds something else.
    #[error(
        "{}, line {line}: {problem}: write 1 to 3 secrets of 32 hexadecimal digits (openssl rand -hex 16), \
         one a line, the one that makes cookies first",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The first line that is wrong; 0: the whole.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The host's own secret is not to be had.
    #[error("{}", .0.display())]
    Own(PathBuf, #[source] SecretError),
}

/// Where secrets come from.
#[derive(Debug)]
enum Source {
    File(PathBuf),
    Own([u8; COOKIE_SECRET_BYTES]),
}

/// The keys in use.
#[derive(Debug)]
pub(crate) struct Cookies {
    source: Source,
    keys: ArcSwap<CookieKeys>,
    /// Why the newest file is not in use; `None` when it is.
    error: Mutex<Option<String>>,
}

impl Cookies {
    /// Reads `file`, or this host's own secret in `state_dir`, which is made when there is none.
    pub(crate) fn load(
        file: Option<&Path>,
        state_dir: &Path,
        now: Now,
    ) -> Result<Self, CookieError> {
        let source = match file {
            Some(path) => Source::File(path.to_owned()),
            None => {
                let path = state_dir.join(OWN_FILE);
                let whole =
                    secret::of(&path).map_err(|error| CookieError::Own(path.clone(), error))?;
                Source::Own(*whole.first_chunk().unwrap_or(&[0; COOKIE_SECRET_BYTES]))
            }
        };
        let keys = ArcSwap::from_pointee(source.keys(now)?);
        Ok(Self { source, keys, error: Mutex::default() })
    }

    /// The keys for the next queries.
    pub(crate) fn keys(&self) -> CookieKeys {
        **self.keys.load()
    }

    /// Why the newest secrets are not in use, for `/status`.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks again whether there are other keys, until shutdown.
    pub(crate) async fn keep(&self, shutdown: &Shutdown) {
        let pause = || tokio::time::timeout(LOOK_EVERY, shutdown.reached(Phase::Draining));
        while pause().await.is_err() {
            self.look(rt::clock::now());
        }
    }

    fn look(&self, now: Now) {
        let mut last = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        match self.source.keys(now) {
            Ok(keys) => {
                self.keys.store(keys.into());
                *last = None;
            }
            Err(error) => {
                let error = error.to_string();
                if last.as_ref() != Some(&error) {
                    tracing::error!(error, "the secrets of cookies stay as they were");
                }
                *last = Some(error);
            }
        }
    }
}

impl Source {
    fn keys(&self, now: Now) -> Result<CookieKeys, CookieError> {
        match self {
            Self::Own(secret) => Ok(CookieKeys::of_week(secret, now)),
            Self::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> Result<CookieKeys, CookieError> {
    let failed = |error| CookieError::Read(path.to_owned(), error);
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(CookieError::Open(path.to_owned()));
    }
    let bytes = rt::file::read_bounded(path, FILE_BYTES_MAX).map_err(failed)?;
    parse(&String::from_utf8_lossy(&bytes)).map_err(|(line, problem)| CookieError::Malformed {
        path: path.to_owned(),
        line,
        problem,
    })
}

/// One secret a line; empty lines and those that begin with `#` mean nothing.
fn parse(text: &str) -> Result<CookieKeys, (usize, &'static str)> {
    let mut secrets = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if secrets.len() >= SECRETS_MAX {
            return Err((line, "a fourth secret"));
        }
        secrets.push(secret_of(text).ok_or((line, "not 32 hexadecimal digits"))?);
    }
    match *secrets.as_slice() {
        [] => Err((0, "no secret")),
        [current] => Ok(CookieKeys::new(current, [None, None])),
        [current, other] => Ok(CookieKeys::new(current, [Some(other), None])),
        [current, other, third, ..] => Ok(CookieKeys::new(current, [Some(other), Some(third)])),
    }
}

fn secret_of(text: &str) -> Option<[u8; COOKIE_SECRET_BYTES]> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok();
    number.filter(|_| is_hex && text.len() == 2 * COOKIE_SECRET_BYTES).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";
    const B: &str = "445536bcd2513298075a5d379663c962";

    #[test]
    fn a_file_has_one_to_three_secrets() {
        assert_eq!(secret_of(A).unwrap()[..3], [0xe5, 0xe9, 0x73]);
        for (text, wrong) in [
            (A.to_owned(), None),
            (format!("# shared by ns1 and ns2\n\n{A}\n{B}\n"), None),
            (format!("{A}\n{B}\n{A}"), None),
            (String::new(), Some(0)),
            (format!("{A}\n{B}\n{A}\n{A}"), Some(4)),
            (format!("{A}\n{}", &B[1..]), Some(2)),
            (format!("{A}0"), Some(1)),
            (format!("+{}", &B[1..]), Some(1)),
            ("secret".to_owned(), Some(1)),
        ] {
            assert_eq!(parse(&text).err().map(|(line, _)| line), wrong, "{text}");
        }
    }

    #[test]
    fn a_changed_file_is_taken_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cookies");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let load = || Cookies::load(Some(&path), dir.path(), Now::default());
        assert!(matches!(load(), Err(CookieError::Read(..))));
        write(A, 0o644);
        assert!(matches!(load(), Err(CookieError::Open(_))));
        write(A, 0o640);
        let cookies = load().unwrap();
        let first = cookies.keys.load_full();
        write("secret", 0o640);
        cookies.look(Now::default());
        assert!(cookies.error().unwrap().contains("line 1"), "{:?}", cookies.error());
        assert!(std::sync::Arc::ptr_eq(&first, &cookies.keys.load_full()));
        write(B, 0o600);
        cookies.look(Now::default());
        assert_eq!(cookies.error(), None);
        assert!(!std::sync::Arc::ptr_eq(&first, &cookies.keys.load_full()));
    }

    #[test]
    fn a_host_without_a_file_keeps_a_secret_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        Cookies::load(None, dir.path(), Now::default()).unwrap();
        let kept = fs::read(dir.path().join(OWN_FILE)).unwrap();
        let again = Cookies::load(None, dir.path(), Now::default()).unwrap();
        assert!(matches!(again.source, Source::Own(secret) if kept[12..28] == secret));
    }
}
