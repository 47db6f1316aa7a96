//! What keeps a role from writing its logs.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use config::{ConfigFile, HostConfig};
use nodemap::Finding;
use nodemap::toml_read::KeyPath;
use rt::file::without_waiting;

/// What is wrong with the path of each log: it names another's file, or none that can be written to.
pub(super) fn unwritable(file: &ConfigFile, config: &HostConfig) -> Vec<Finding> {
    let of_edge = config.edge.iter().flat_map(|edge| edge.logs.iter().map(|log| &log.path));
    let of_edge =
        of_edge.enumerate().map(|(at, path)| (KeyPath::of(&["edge", "log"]).index(at), path));
    let of_dns = config.dns.iter().filter_map(|dns| Some(&dns.log.as_ref()?.path));
    let of_dns = of_dns.map(|path| (KeyPath::of(&["dns", "log"]), path));
    let logs: Vec<(KeyPath, &PathBuf)> = of_edge.chain(of_dns).collect();
    let finding = |(at, (key, path)): (usize, &(KeyPath, &PathBuf))| {
        let is_taken = logs.iter().take(at).any(|(_, other)| other == path);
        let (problem, remedy) = if is_taken {
            let problem = format!("{} is the path of another log too", path.display());
            (problem, "give each log a file of its own".to_owned())
        } else {
            trouble(path)?
        };
        Some(file.finding_of(&key.clone().key("path"), problem, remedy))
    };
    logs.iter().enumerate().filter_map(finding).collect()
}

fn trouble(path: &Path) -> Option<(String, String)> {
    let folder = path.parent()?;
    if !folder.is_dir() {
        return Some((
            format!("{} is no folder: the log is not written", folder.display()),
            "make it, for the user that the role runs as".to_owned(),
        ));
    }
    let error = attempt(path, folder).err()?;
    Some((
        format!("{} cannot be written to ({error})", path.display()),
        "let the user that the role runs as write there, or name another file".to_owned(),
    ))
}

/// Opens the file as the role does. One that is not there is not made: should the role that runs take
/// it, its lines would go with it. A file of another name tells as well.
fn attempt(path: &Path, folder: &Path) -> io::Result<()> {
    // A pipe that nobody reads would be waited for without end.
    match without_waiting(OpenOptions::new().append(true)).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let other = folder.join(format!(".cacheboy-check-{}", std::process::id()));
            OpenOptions::new().append(true).create_new(true).open(&other)?;
            fs::remove_file(other)
        }
        opened => opened.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_needs_a_folder_that_can_be_written_to_and_a_path_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        fs::create_dir(here.join("is-a-folder")).unwrap();
        let config = "[host]\nname = \"h\"\nstate_dir = \"s\"\n[follow]\nnode_map = [\"file:m\"]\n\
                      [edge]\nlisten = [\"127.0.0.1:80\"]\n[[edge.store]]\npath = \"c\"\n\
                      size = \"1 GiB\"\n";
        let check = |paths: &[&str]| {
            let logs: String =
                paths.iter().map(|path| format!("[[edge.log]]\npath = \"{path}\"\n")).collect();
            let path = here.join("e.toml");
            fs::write(&path, format!("{config}{logs}")).unwrap();
            let file = ConfigFile::open(&path).unwrap();
            let findings = unwritable(&file, &file.config().unwrap());
            let shown = findings
                .iter()
                .map(|finding| finding.to_string().replace(&format!("{}/", here.display()), ""));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(check(&["a.log", "b.log", "/dev/null"]), [""; 0]);
        // It has left nothing behind.
        assert_eq!(fs::read_dir(here).unwrap().count(), 2);
        assert_eq!(
            check(&["a.log", "gone/a.log", "a.log"]),
            [
                "e.toml:14: edge.log.path: gone is no folder: the log is not written: make it, \
                 for the user that the role runs as",
                "e.toml:16: edge.log.path: a.log is the path of another log too: give each log a \
                 file of its own",
            ]
        );
        let made = std::process::Command::new("mkfifo").arg(here.join("pipe")).status().unwrap();
        assert!(made.success());
        let findings = check(&["is-a-folder", "/proc/a.log", "pipe"]);
        assert_eq!(findings.len(), 3, "{findings:?}");
        let start = "e.toml:12: edge.log.path: is-a-folder cannot be written to (Is a directory";
        assert!(findings[0].starts_with(start), "{findings:?}");
        assert!(findings[1].contains("/proc/a.log cannot be written to"), "{findings:?}");
        assert!(findings[2].contains("pipe cannot be written to"), "nobody reads it: {findings:?}");
    }
}
