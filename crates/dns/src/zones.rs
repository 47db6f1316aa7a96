//! The folder of zone files: read at the start, looked at a few times a second, and read anew where
//! something changed.
//!
//! Every `NAME.zone` in it has records of the zone NAME. A file counts as changed when it looks the
//! same twice in a row, so that one that is being written is left alone. What cannot be used changes
//! nothing: a bad file keeps its old records, and a folder that is gone or empty keeps them all, since
//! that is a mount that failed more often than somebody's intent. A file that is taken away takes its
//! records with it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dns_proto::zonefile::{self, ZoneFile};
use model::HostName;
use nodemap::Finding;

/// A zone file larger than this is refused: some two million records.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most files of a folder.
const FILES_MAX: usize = 10_000;

/// What tells a changed file from an unchanged one.
type Stamps = BTreeMap<PathBuf, (SystemTime, u64)>;

/// See the module. All of it blocks for as long as the file system does.
#[derive(Debug)]
pub struct ZoneFolder {
    folder: PathBuf,
    /// As the folder was when it was read.
    read: Stamps,
    /// As it was when it was last looked at.
    seen: Stamps,
    files: BTreeMap<PathBuf, Arc<ZoneFile>>,
    findings: Vec<Finding>,
}

impl ZoneFolder {
    /// Reads all files of `folder`.
    ///
    /// # Errors
    /// All that is wrong with them, or with the folder.
    pub fn open(folder: &Path) -> Result<Self, Vec<Finding>> {
        let stamps = stamps(folder).map_err(|finding| vec![finding])?;
        let mut opened = Self {
            folder: folder.to_owned(),
            read: Stamps::new(),
            seen: Stamps::new(),
            files: BTreeMap::new(),
            findings: Vec::new(),
        };
        opened.take(stamps);
        if opened.findings.is_empty() { Ok(opened) } else { Err(opened.findings) }
    }

    /// Looks for changes, and reads what has changed. Whether there is something new to answer from,
    /// or to tell.
    pub(crate) fn look(&mut self) -> bool {
        let stamps = match stamps(&self.folder) {
            Ok(stamps) => stamps,
            Err(finding) => {
                let findings = vec![finding];
                let new = findings != self.findings;
                self.findings = findings;
                // When it is back, all of it is read.
                self.read.clear();
                return new;
            }
        };
        if stamps == self.read {
            return false;
        }
        if stamps != self.seen {
            self.seen = stamps;
            return false;
        }
        self.take(stamps);
        true
    }

    /// Reads the files that `stamps` has and that are not read like that.
    fn take(&mut self, stamps: Stamps) {
        self.findings.retain(|finding| {
            let now = stamps.get(&finding.file);
            now.is_some() && now == self.read.get(&finding.file)
        });
        self.files.retain(|path, _| stamps.contains_key(path));
        for (path, stamp) in &stamps {
            if self.read.get(path) == Some(stamp) {
                continue;
            }
            match read(path) {
                Ok(file) => {
                    self.files.insert(path.clone(), Arc::new(file));
                }
                Err(findings) => self.findings.extend(findings),
            }
        }
        self.read = stamps;
    }

    /// The files in use.
    pub fn files(&self) -> Arc<[Arc<ZoneFile>]> {
        self.files.values().cloned().collect()
    }

    /// Why newer content is not in use.
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// The zone files in `folder`.
fn stamps(folder: &Path) -> Result<Stamps, Finding> {
    let unreadable = |error: io::Error| {
        let remedy = "check that the folder exists and who may read it";
        Finding::whole(folder, format!("cannot be read ({error})"), remedy)
    };
    let mut stamps = Stamps::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|extension| extension != "zone") {
            continue;
        }
        // One that is gone by now is not there.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        stamps.insert(path, (metadata.modified().map_err(unreadable)?, metadata.len()));
    }
    if stamps.is_empty() {
        let remedy = "name the folder of the zone files, each called after its zone: NAME.zone";
        return Err(Finding::whole(folder, "holds no *.zone file", remedy));
    }
    if stamps.len() > FILES_MAX {
        let problem = format!("holds {} zone files, more than {FILES_MAX}", stamps.len());
        return Err(Finding::whole(folder, problem, "take out those that nobody asks for"));
    }
    Ok(stamps)
}

fn read(path: &Path) -> Result<ZoneFile, Vec<Finding>> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let apex: HostName = name.parse().map_err(|error| {
        let remedy = "call the file after its zone: cdn.example.zone";
        vec![Finding::whole(path, format!("is not called after a zone ({error})"), remedy)]
    })?;
    let text = rt::file::read_bounded(path, FILE_BYTES_MAX).map_err(|error| {
        let remedy = "check what it is and who may read it; 64 MiB are the most";
        vec![Finding::whole(path, format!("cannot be read ({error})"), remedy)]
    })?;
    zonefile::parse(path, &apex, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    fn told(zones: &ZoneFolder) -> String {
        zones.findings().iter().map(|f| format!("{}\n", f.problem)).collect()
    }

    /// The number of records of each file in use.
    fn records(zones: &ZoneFolder) -> Vec<usize> {
        zones.files().iter().map(|file| file.records()).collect()
    }

    #[test]
    fn changes_are_taken_when_they_stand_still_and_faults_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        assert!(ZoneFolder::open(folder).unwrap_err()[0].problem.contains("holds no *.zone file"));
        write(folder, "a.example.zone", "www 60 A 192.0.2.1\n");
        write(folder, "b.example.zone", "www 60 A 192.0.2.1\nx 60 TXT y\n");
        write(folder, "README", "not a zone");
        let mut zones = ZoneFolder::open(folder).unwrap();
        assert_eq!(records(&zones), [1, 2]);
        assert!(!zones.look(), "nothing changed");

        let unchanged = Arc::clone(&zones.files()[1]);
        write(
            folder,
            "a.example.zone",
            "www 60 A 192.0.2.1\nw2 60 A 192.0.2.2\nw3 60 A 192.0.2.3\n",
        );
        assert!(!zones.look(), "it may still be written");
        assert!(zones.look());
        assert_eq!(records(&zones), [3, 2]);
        assert!(Arc::ptr_eq(&unchanged, &zones.files()[1]), "only what changed is read");

        write(folder, "a.example.zone", "www 60 A 192.0.2.999 and more of it\n");
        assert!(!zones.look() && zones.look());
        assert_eq!((records(&zones), told(&zones).lines().count()), (vec![3, 2], 1));
        assert!(!zones.look(), "told once");
        write(folder, "a.example.zone", "www 60 A 192.0.2.9\n");
        assert!(!zones.look() && zones.look());
        assert_eq!((records(&zones), told(&zones).as_str()), (vec![1, 2], ""));

        fs::remove_file(folder.join("b.example.zone")).unwrap();
        write(folder, "not a zone.zone", "x 60 TXT y\n");
        assert!(!zones.look() && zones.look());
        assert_eq!(records(&zones), [1]);
        assert!(told(&zones).starts_with("is not called after a zone"));

        fs::remove_file(folder.join("not a zone.zone")).unwrap();
        fs::rename(folder.join("a.example.zone"), folder.join("away")).unwrap();
        assert!(zones.look(), "an empty folder is told");
        assert!(!zones.look());
        assert_eq!((records(&zones), told(&zones).as_str()), (vec![1], "holds no *.zone file\n"));
        fs::rename(folder.join("away"), folder.join("a.example.zone")).unwrap();
        assert!(!zones.look() && zones.look());
        assert_eq!((records(&zones), told(&zones).as_str()), (vec![1], ""));
    }
}
