//! `cacheboy map keygen`: a key that signs node maps.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use nodemap::signature::SecretKey;

use crate::out::say;

/// Makes a key, and says where its halves belong.
pub(super) fn run(path: &Path) -> Result<ExitCode> {
    let none = "the system has no random numbers to give: try again";
    let seed = rt::clock::secret().context(none)?;
    let key = SecretKey::new(seed, rt::clock::secret().context(none)?)?;
    let public_path = with_pub(path);
    write_new(path, &key.to_file(), 0o600)?;
    write_new(&public_path, &key.public_key().to_file(), 0o644)?;
    let (secret, public) = (path.display(), public_path.display());
    say!("{secret} is the secret key; the publisher alone needs it, and must be able to read it:")?;
    say!("    [health]\n    key = \"{secret}\"")?;
    say!("{public} is the public key; whoever follows the node map gets it:")?;
    say!("    [follow]\n    keys = [\"{}\"]", key.public_key())?;
    Ok(ExitCode::SUCCESS)
}

fn with_pub(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// A key that is there already is somebody's, and is not written over.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.with_context(|| {
        format!("cannot make {}: it must not be there, and its folder must", path.display())
    })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))
}
