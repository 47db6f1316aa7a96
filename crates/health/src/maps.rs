//! The maps folder: notices edits, reads what settled.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, thread};

use nodemap::{AdminMap, Finding, admin};
use rt::file;
use tokio::sync::mpsc;

use crate::aside;

/// How often the folder is looked at. A change is taken over at the second look that sees it, so
/// that a file half written is not mistaken for an edit: within two looks, under 500 ms.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a look at the folder brought: maps, or all that is wrong with them.
pub(crate) type Found = Result<AdminMap, Vec<Finding>>;

/// A folder of maps and what was last seen in it. Contents are compared, not times: an edit within
/// one tick of the file system's clock counts.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    /// Fingerprint of what was read last.
    read: u64,
    /// Fingerprint of a change that the last look saw first.
    changing: Option<u64>,
}

impl Folder {
    /// Reads the folder. As [`Folder::look`], may block for as long as its file system does.
    pub(crate) fn open(dir: PathBuf) -> (Self, Found) {
        // The fingerprint is taken before reading: an edit in between is found by the next look.
        let read = fingerprint(&dir);
        let found = admin::load_dir(&dir);
        (Self { dir, read, changing: None }, found)
    }

    /// Reads the folder again if it has changed and the last look saw the same change.
    pub(crate) fn look(&mut self) -> Option<Found> {
        let seen = fingerprint(&self.dir);
        if seen == self.read {
            self.changing = None;
            return None;
        }
        if self.changing != Some(seen) {
            self.changing = Some(seen);
            return None;
        }
        let found = admin::load_dir(&self.dir);
        if fingerprint(&self.dir) != seen {
            // Swapped while it was read: what was found may be of both, so look again.
            self.changing = None;
            return None;
        }
        self.changing = None;
        self.read = seen;
        Some(found)
    }
}

/// A number that differs when the names or contents of the maps do.
fn fingerprint(dir: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut paths: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect(),
        Err(error) => {
            error.kind().hash(&mut hasher);
            Vec::new()
        }
    };
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    for path in paths {
        path.hash(&mut hasher);
        let content = file::read_bounded(&path, admin::FILE_BYTES_MAX);
        content.map_err(|error| error.kind()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Looks with `look` again and again, and gives what that brings; ends some time after nobody takes
/// it any more. A look may hang for ever without keeping anybody from ending.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn watch(
    mut look: impl FnMut() -> Option<Found> + Send + 'static,
) -> io::Result<mpsc::Receiver<Found>> {
    let (sender, receiver) = mpsc::channel(1);
    aside::start(move || {
        while !sender.is_closed() {
            if let Some(found) = look() {
                // Fails only when nobody takes it, which ends the loop.
                let _ = sender.blocking_send(found);
            }
            thread::sleep(LOOK_EVERY);
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::maps_of;

    #[test]
    fn a_change_is_read_when_two_looks_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        let one = maps_of(&[("a", "192.0.2.1")]);
        let two = maps_of(&[("a", "192.0.2.2")]);
        fs::write(&path, &one).unwrap();
        let (mut folder, found) = Folder::open(dir.path().to_owned());
        assert_eq!(found.unwrap().nodes.len(), 1);
        assert_eq!(folder.look(), None);

        // Of the same length, perhaps within one tick of the file's time.
        fs::write(&path, &two).unwrap();
        assert_eq!(folder.look(), None);
        let address = |found: Option<Found>| {
            found.unwrap().unwrap().nodes.values().next().unwrap().addresses[0].to_string()
        };
        assert_eq!(address(folder.look()), "192.0.2.2");
        assert_eq!(folder.look(), None);

        // Still being written: two looks see different things.
        fs::write(&path, "[node").unwrap();
        assert_eq!(folder.look(), None);
        fs::write(&path, &one).unwrap();
        assert_eq!(folder.look(), None);
        assert_eq!(address(folder.look()), "192.0.2.1");

        // Changed and changed back is no change; other files are none either.
        fs::write(&path, &two).unwrap();
        assert_eq!(folder.look(), None);
        fs::write(&path, &one).unwrap();
        fs::write(dir.path().join("a.toml~"), "x").unwrap();
        assert_eq!(folder.look(), None);
        assert_eq!(folder.look(), None);

        fs::remove_file(&path).unwrap();
        assert_eq!(folder.look(), None);
        let findings = folder.look().unwrap().unwrap_err();
        assert!(findings[0].to_string().contains("holds no *.toml file"), "{findings:?}");
        drop(dir);
        assert_eq!(folder.look(), None);
        let findings = folder.look().unwrap().unwrap_err();
        assert!(findings[0].to_string().contains("cannot be read"), "{findings:?}");
    }

    /// The nodes' addresses, once two looks have seen a change.
    fn addresses(folder: &mut Folder) -> Option<Vec<String>> {
        assert_eq!(folder.look(), None);
        let map = folder.look()?.unwrap();
        Some(map.nodes.values().map(|node| node.addresses[0].to_string()).collect())
    }

    #[test]
    fn a_folder_that_is_swapped_is_read_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (folder, node) in [("one", "192.0.2.1"), ("two", "192.0.2.2"), ("three", "192.0.2.3")] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("a.toml"), maps_of(&[("a", node)])).unwrap();
        }
        let link = |to: &str| {
            std::os::unix::fs::symlink(at(to), at("new")).unwrap();
            fs::rename(at("new"), at("maps")).unwrap();
        };
        link("one");
        let (mut folder, found) = Folder::open(at("maps"));
        assert!(found.is_ok());
        assert_eq!(addresses(&mut folder), None);
        link("two");
        assert_eq!(addresses(&mut folder).unwrap(), ["192.0.2.2"]);

        // By renaming folders, with looks at every moment.
        fs::remove_file(at("maps")).unwrap();
        assert_eq!(folder.look(), None);
        fs::rename(at("three"), at("maps")).unwrap();
        assert_eq!(addresses(&mut folder).unwrap(), ["192.0.2.3"]);
        fs::rename(at("maps"), at("old")).unwrap();
        fs::rename(at("one"), at("maps")).unwrap();
        assert_eq!(addresses(&mut folder).unwrap(), ["192.0.2.1"]);
    }

    #[test]
    fn what_is_no_file_is_a_finding_and_hangs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut whole = fs::File::create(at("a.toml")).unwrap();
        io::Write::write_all(&mut whole, maps_of(&[("a", "192.0.2.1")]).as_bytes()).unwrap();
        let (mut folder, found) = Folder::open(dir.path().to_owned());
        assert!(found.is_ok());
        std::os::unix::fs::symlink("/dev/zero", at("b.toml")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("c.toml")).status().unwrap().success());
        assert_eq!(folder.look(), None);
        let findings = folder.look().unwrap().unwrap_err();
        let problems: Vec<&str> = findings.iter().map(|f| f.problem.as_str()).collect();
        assert_eq!(problems, ["is a device, not a file", "is a named pipe, not a file"]);
        fs::remove_file(at("b.toml")).unwrap();
        fs::remove_file(at("c.toml")).unwrap();
        assert_eq!(addresses(&mut folder).unwrap(), ["192.0.2.1"]);
    }

    /// An editor or a script that truncates the file and writes it anew, with looks in between.
    #[test]
    fn a_file_emptied_for_a_while_is_a_finding_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.toml");
        fs::write(&path, maps_of(&[("a", "192.0.2.1")])).unwrap();
        let (mut folder, _) = Folder::open(dir.path().to_owned());
        fs::write(&path, "").unwrap();
        assert_eq!(folder.look(), None);
        assert!(folder.look().unwrap().is_err());
        assert_eq!(folder.look(), None);
        fs::write(&path, maps_of(&[("a", "192.0.2.1")])).unwrap();
        assert_eq!(addresses(&mut folder).unwrap(), ["192.0.2.1"]);
    }

    #[test]
    fn a_folder_with_a_file_missing_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let whole = maps_of(&[("a", "192.0.2.1")]);
        let (nodes, rest) = whole.split_at(whole.find("[pool]").unwrap());
        fs::write(dir.path().join("nodes.toml"), nodes).unwrap();
        fs::write(dir.path().join("rest.toml"), rest).unwrap();
        let (mut folder, found) = Folder::open(dir.path().to_owned());
        assert!(found.is_ok());
        fs::remove_file(dir.path().join("rest.toml")).unwrap();
        assert_eq!(folder.look(), None);
        let findings = folder.look().unwrap().unwrap_err();
        let kinds: Vec<&str> = findings.iter().map(|finding| finding.problem.as_str()).collect();
        assert_eq!(
            kinds,
            [
                "no file here has a project, so nobody would be served",
                "no file here has a zone, so nobody would be served"
            ]
        );
    }
}
