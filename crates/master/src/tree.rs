//! Looking files up in the tree: blocking calls, to be made off the runtime's workers.
//!
//! The root is opened anew for each look-up and marker and file are resolved beneath that one
//! handle. So both belong to the same mount: "not found" is only said of a tree that was seen to be
//! there, and a lost mount is noticed by the next request. No handle is kept, so that a mount can be
//! taken away.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mirror::{Stamp, TREE_MARKER, TreePath};

/// What stands for a directory when its path is asked for with a slash at the end.
const INDEX_FILE: &str = "index.html";

/// A tree by the path of its root.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

/// A regular file of the tree, open.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where it was found: the directory's index file when a directory was asked for.
    pub(crate) path: TreePath,
    pub(crate) file: File,
    pub(crate) stamp: Stamp,
}

/// Why a look-up gives no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// The root or its marker is not there or cannot be read.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The tree is there and has no such file.
    #[error("no such file")]
    NotFound,
    /// Something is there, but the disk or the permissions do not give it.
    #[error("cannot read {path}")]
    Unreadable {
        /// The path in the tree.
        path: TreePath,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The tree is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The root cannot be opened.
    #[error("cannot open {0}: is it mounted?")]
    Root(PathBuf, #[source] io::Error),
    /// The root is there without its marker.
    #[error(
        "{0} has no marker file {TREE_MARKER}: is the disk mounted? If this is the tree, make an \
         empty file of that name at its root"
    )]
    Marker(PathBuf),
    /// The marker is there but cannot be read.
    #[error("cannot read the marker file {TREE_MARKER} of {0}")]
    MarkerUnreadable(PathBuf, #[source] io::Error),
}

impl Tree {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A handle of the root, when root and marker are there.
    pub(crate) fn open_root(&self) -> Result<File, Lost> {
        let root = File::open(&self.root).map_err(|e| Lost::Root(self.root.clone(), e))?;
        let marker = sys::open_beneath(&root, TREE_MARKER.as_bytes())
            .and_then(|marker| marker.metadata())
            .map(|metadata| metadata.is_file());
        match marker {
            Ok(true) => Ok(root),
            Ok(false) => Err(Lost::Marker(self.root.clone())),
            Err(e) if is_absence(&e) => Err(Lost::Marker(self.root.clone())),
            Err(e) => Err(Lost::MarkerUnreadable(self.root.clone(), e)),
        }
    }

    /// Opens the file that `path` names.
    pub(crate) fn find(&self, path: &TreePath) -> Result<Found, LookupError> {
        let root = self.open_root()?;
        let path = if path.names_directory() {
            path.join(INDEX_FILE).map_err(|_| LookupError::NotFound)?
        } else {
            path.clone()
        };
        let opened = sys::open_beneath(&root, path.as_bytes())
            .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        match opened {
            Ok((file, metadata)) if metadata.is_file() => {
                Ok(Found { path, file, stamp: stamp(&metadata) })
            }
            // Directories, FIFOs, devices and sockets are not content.
            Ok(_) => Err(LookupError::NotFound),
            Err(e) if is_absence(&e) => Err(LookupError::NotFound),
            Err(source) => Err(LookupError::Unreadable { path, source }),
        }
    }
}

/// The stamp of an open file.
pub(crate) fn stamp_of(file: &File) -> io::Result<Stamp> {
    file.metadata().map(|metadata| stamp(&metadata))
}

fn stamp(metadata: &Metadata) -> Stamp {
    let ns =
        |s: i64, ns: i64| i128::from(s).saturating_mul(1_000_000_000).saturating_add(ns.into());
    Stamp {
        size: metadata.len(),
        mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        inode: metadata.ino(),
    }
}

/// Whether an error of an open says that the tree offers nothing under the name, as opposed to a
/// disk or a permission in trouble. A link that leads out of the tree or in circles, and a socket
/// (ENXIO, which has no kind of its own), offer nothing.
fn is_absence(error: &io::Error) -> bool {
    const ENXIO: i32 = 6;
    const ELOOP: i32 = 40;
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::InvalidFilename
    ) || matches!(error.raw_os_error(), Some(ENXIO | ELOOP))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn path(request: &str) -> TreePath {
        TreePath::from_request(request).unwrap()
    }

    #[test]
    fn regular_files_beneath_the_root_are_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::create_dir_all(root.join("bare")).unwrap();
        fs::write(root.join(TREE_MARKER), "").unwrap();
        fs::write(root.join("docs/index.html"), "hello").unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("docs/index.html", root.join("latest")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        let tree = Tree::new(root);

        for (request, found_at) in [
            ("/docs/index.html", "docs/index.html"),
            ("/docs/", "docs/index.html"),
            ("/latest", "latest"),
        ] {
            let found = tree.find(&path(request)).unwrap();
            assert_eq!((found.path.to_string().as_str(), found.stamp.size), (found_at, 5));
        }
        let long = format!("/{}", "a".repeat(255));
        for request in [
            "/",
            "/docs",
            "/bare/",
            "/none",
            "/latest/",
            "/latest/x",
            "/out",
            "/circle",
            "/socket",
            &long,
        ] {
            let error = tree.find(&path(request)).unwrap_err();
            assert!(matches!(error, LookupError::NotFound), "{request}: {error:?}");
        }
    }

    #[test]
    fn without_its_marker_the_tree_is_lost_whatever_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        let tree = Tree::new(root.clone());
        let lost = |tree: &Tree| match tree.find(&path("/file")) {
            Err(LookupError::Lost(lost)) => lost,
            other => panic!("{other:?}"),
        };
        assert!(matches!(lost(&tree), Lost::Root(..)));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "content").unwrap();
        assert!(matches!(lost(&tree), Lost::Marker(_)));
        fs::create_dir(root.join(TREE_MARKER)).unwrap();
        assert!(matches!(lost(&tree), Lost::Marker(_)));
        fs::remove_dir(root.join(TREE_MARKER)).unwrap();
        fs::write(root.join(TREE_MARKER), "").unwrap();
        assert_eq!(tree.find(&path("/file")).unwrap().stamp.size, 7);
    }
}
