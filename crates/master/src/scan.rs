//! The walk through the tree when it comes up: every file is hashed before somebody asks for it,
//! and files that are gone are forgotten.
//!
//! One file at a time, so that requests keep most of the disk. Symbolic links are left to the first
//! request. A tree that gets lost under the walk ends it; nothing is forgotten then, because a file
//! is forgotten only when a tree with its marker says that it is not there.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use mirror::TreePath;
use rt::{Phase, Shutdown};

use crate::catalogue::{Catalogue, DigestError};
use crate::tree::{LookupError, Tree};

/// One directory's listing, names in order.
struct Listing {
    files: Vec<Vec<u8>>,
    directories: Vec<Vec<u8>>,
}

/// Walks the whole tree once; whether it came to the end.
pub(crate) async fn scan(tree: Arc<Tree>, catalogue: Arc<Catalogue>, shutdown: Shutdown) -> bool {
    forget_gone(&tree, &catalogue, &shutdown).await;
    // Names from the root down to each directory still to be read.
    let mut ahead: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    while let Some(directory) = ahead.pop() {
        let at = tree.root().join(as_path(&directory));
        let shown = at.display().to_string();
        let listing = match off_worker(move || list(at)).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(directory = %shown, %error, "cannot list, its files are hashed when asked for");
                continue;
            }
        };
        for name in listing.files {
            if shutdown.has_reached(Phase::Yielded) {
                return false;
            }
            let names = directory.iter().chain([&name]).map(Vec::as_slice);
            let Ok(path) = TreePath::from_names(names) else { continue };
            if hash(&tree, &catalogue, path).await.is_err() {
                return false;
            }
        }
        for name in listing.directories.into_iter().rev() {
            let mut below = directory.clone();
            below.push(name);
            ahead.push(below);
        }
    }
    let (files, hashed) = catalogue.figures();
    tracing::info!(files, hashed, "content index is complete");
    true
}

/// Drops from the index what is no longer in the tree.
async fn forget_gone(tree: &Arc<Tree>, catalogue: &Arc<Catalogue>, shutdown: &Shutdown) {
    let (tree, catalogue, shutdown) = (Arc::clone(tree), Arc::clone(catalogue), shutdown.clone());
    off_worker(move || {
        for path in catalogue.paths() {
            match tree.find(&path) {
                Err(LookupError::NotFound) => catalogue.forget(&path),
                Err(LookupError::Lost(_)) => return,
                _ if shutdown.has_reached(Phase::Yielded) => return,
                _ => {}
            }
        }
    })
    .await;
}

/// Makes sure that one file's digest is known; an error ends the walk.
async fn hash(tree: &Arc<Tree>, catalogue: &Arc<Catalogue>, path: TreePath) -> Result<(), ()> {
    let (at, wanted) = (Arc::clone(tree), path.clone());
    let found = match off_worker(move || at.find(&wanted)).await {
        Ok(found) => found,
        Err(LookupError::NotFound) => return Ok(()),
        Err(LookupError::Lost(_)) => return Err(()),
        Err(error @ LookupError::Unreadable { .. }) => {
            tracing::warn!(%path, %error, "cannot hash");
            return Ok(());
        }
    };
    match catalogue.digest(&path, &Arc::new(found.file), found.stamp).await {
        Ok(_) => Ok(()),
        Err(DigestError::Stopping) => Err(()),
        Err(error) => {
            tracing::warn!(%path, %error, "cannot hash, will try again when it is asked for");
            Ok(())
        }
    }
}

/// Reads one directory. Names that start with a dot are not content.
fn list(directory: PathBuf) -> io::Result<Listing> {
    use std::os::unix::ffi::OsStringExt;
    let mut listing = Listing { files: Vec::new(), directories: Vec::new() };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().into_vec();
        if name.starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            listing.directories.push(name);
        } else if kind.is_file() {
            listing.files.push(name);
        }
    }
    listing.files.sort_unstable();
    listing.directories.sort_unstable();
    Ok(listing)
}

fn as_path(names: &[Vec<u8>]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    names.iter().map(|name| std::ffi::OsStr::from_bytes(name)).collect()
}

/// Runs a blocking call where waiting does no harm.
pub(crate) async fn off_worker<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(call).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down and nobody will poll us again.
            Err(_) => std::future::pending().await,
        },
    }
}
