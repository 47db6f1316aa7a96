//! From a folder to texts: reads its `*.toml`, and nothing that might never end.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::AdminMap;
use super::load::load_as;
use crate::Finding;

/// A map file larger than this is refused.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads every `*.toml` in `dir`, in the order of the names. May block for as long as the file
/// system does.
///
/// # Errors
/// All that is wrong in the files, or with the folder itself.
pub fn load_dir(dir: &Path) -> Result<AdminMap, Vec<Finding>> {
    let entries = fs::read_dir(dir).map_err(|e| vec![unreadable(dir, &e)])?;
    let mut paths = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| vec![unreadable(dir, &e)])?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    if paths.is_empty() {
        let remedy = "name the folder that holds the admin maps";
        return Err(vec![Finding::whole(dir, "holds no *.toml file", remedy)]);
    }
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let mut findings = Vec::new();
    for path in paths {
        match read_file(&path) {
            Ok(text) => files.push((path, text)),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() { load_as(dir, &files) } else { Err(findings) }
}

fn read_file(path: &Path) -> Result<String, Finding> {
    let kind = fs::metadata(path).map_err(|e| unreadable(path, &e))?.file_type();
    if let Some(kind) = other_than_file(kind) {
        let remedy = "keep only files with maps under names that end in .toml";
        return Err(Finding::whole(path, format!("is {kind}, not a file"), remedy));
    }
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes));
    read.map_err(|e| unreadable(path, &e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let problem = format!("has more than the {FILE_BYTES_MAX} bytes that a map file may have");
        return Err(Finding::whole(path, problem, "split it into several files"));
    }
    String::from_utf8(bytes).map_err(|error| Finding::not_utf8(path, &error))
}

fn unreadable(path: &Path, why: &io::Error) -> Finding {
    let remedy = "check that it exists and who may read it";
    Finding::whole(path, format!("cannot be read ({why})"), remedy)
}

/// What it is, if no file with a content that ends.
fn other_than_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a named pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}
