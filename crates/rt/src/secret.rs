//! A secret of this host that outlives its processes: bytes from the system's random source, kept in
//! a file that only this user may read. `docs/formats/secret.md`.

use std::io;
use std::path::Path;

use crate::clock;
use crate::file::{read_bounded, write_atomic_private};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"CBSECRET";
const VERSION: u32 = 1;
/// Magic word and version.
const HEAD_BYTES: usize = 12;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A newer program wrote the file.
    #[error("it is of a newer version: start that program again, or remove the file")]
    Newer,
    /// It cannot be read or written.
    #[error("the file cannot be read or written")]
    File(#[source] io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// The secret in the file at `path`; made and written when there is none. A damaged file is
/// replaced, which is logged.
pub fn of(path: &Path) -> Result<[u8; SECRET_BYTES], SecretError> {
    let length = HEAD_BYTES.saturating_add(SECRET_BYTES);
    match read_bounded(path, u64::try_from(length).unwrap_or(u64::MAX)) {
        Ok(bytes) => match parse(&bytes)? {
            Some(secret) => return Ok(secret),
            None => tracing::warn!(path = %path.display(), "a damaged secret is replaced"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            tracing::warn!(path = %path.display(), "a damaged secret is replaced");
        }
        Err(error) => return Err(SecretError::File(error)),
    }
    let secret = clock::secret().ok_or(SecretError::Random)?;
    let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &secret].concat();
    write_atomic_private(path, &bytes).map_err(SecretError::File)?;
    Ok(secret)
}

/// `None`: damaged.
fn parse(bytes: &[u8]) -> Result<Option<[u8; SECRET_BYTES]>, SecretError> {
    let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let Some((version, secret)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    match (magic == MAGIC, u32::from_le_bytes(*version)) {
        (true, VERSION) => Ok(secret.try_into().ok()),
        (true, version) if version > VERSION => Err(SecretError::Newer),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_stays_the_same_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = of(&path).unwrap();
        assert_ne!(secret, [0; SECRET_BYTES]);
        assert_eq!(of(&path).unwrap(), secret);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(of(&dir.path().join("another")).unwrap(), secret);
    }

    #[test]
    fn a_damaged_secret_is_replaced_and_a_newer_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = of(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..75], &whole[1..], &[&whole[..], b"x"].concat(), b"", &[0; 76]] {
            fs::write(&path, damaged).unwrap();
            let new = of(&path).unwrap();
            assert_ne!(new, secret, "{} bytes", damaged.len());
            assert_eq!(of(&path).unwrap(), new);
        }
        let newer = [&MAGIC[..], &2u32.to_le_bytes(), &[1; 90]].concat();
        fs::write(&path, &newer[..76]).unwrap();
        assert!(matches!(of(&path), Err(SecretError::Newer)));
        assert_eq!(fs::read(&path).unwrap(), newer[..76]);
    }
}
