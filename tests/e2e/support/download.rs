//! A file to download, and clients that are ended in the middle.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::network::Network;
use super::{Ran, until};

/// How long the file is.
pub(crate) const LENGTH: usize = 24 << 20;

/// A version of the file: no two blocks of any versions are the same.
pub(crate) fn content(version: u32, length: usize) -> Vec<u8> {
    let words =
        (0..u32::try_from(length / 4).unwrap()).map(|n| n.wrapping_mul(2_654_435_761) ^ version);
    words.flat_map(u32::to_le_bytes).collect()
}

/// Puts a file into the tree that looks old: edges keep it for a day.
pub(crate) fn put(network: &Network, name: &str, bytes: &[u8]) {
    let (new, file) = (network.tree().join(".new"), network.tree().join(name));
    fs::write(&new, bytes).unwrap();
    let touched = Command::new("touch").args(["-d", "2020-01-01"]).arg(&new).status().unwrap();
    assert!(touched.success());
    fs::rename(new, file).unwrap();
}

/// Runs a client until it has so many bytes of `file` in its folder, and ends it.
pub(crate) fn some_of(command: &mut Command, folder: &Path, bytes: u64) {
    let mut client = command.stdout(Stdio::null()).spawn().unwrap();
    let file = folder.join("file");
    // Blocks, not length: segments are written where they belong.
    let taken = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&file).unwrap()) * 512;
    until("the client has some of the file", || file.exists() && taken() >= bytes);
    assert!(Command::new("kill").arg(client.id().to_string()).status().unwrap().success());
    client.wait().unwrap();
    assert!(fs::metadata(&file).unwrap().len() <= LENGTH as u64);
}

/// What a client has.
pub(crate) fn got(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("file")).unwrap()
}

/// Fails with what the client said unless it is content.
#[track_caller]
pub(crate) fn done(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}
