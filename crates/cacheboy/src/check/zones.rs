//! The zone files of a config: read as the dns role reads them, and held against the maps.

use std::path::Path;
use std::sync::Arc;

use config::ConfigFile;
use dns_proto::LeftOut;
use dns_proto::zonefile::ZoneFile;
use nodemap::{AdminMap, Finding};

/// So many files that are not read are named.
const IGNORED_SHOWN: usize = 5;

/// The files of one folder.
pub(super) type Files = Arc<[Arc<ZoneFile>]>;

/// Reads all files of `folder`, which `file` names.
pub(super) fn read(file: &ConfigFile, folder: &Path) -> Result<Files, Vec<Finding>> {
    let opened = dns::ZoneFolder::open(folder).map(|zones| zones.files());
    opened.map_err(|findings| {
        // What is wrong with the folder is wrong with the key that names it.
        let named = |finding: Finding| match finding.file == folder {
            true => {
                let problem = format!("{}: {}", folder.display(), finding.problem);
                file.finding(&["dns", "zone_files"], problem, finding.remedy)
            }
            false => finding,
        };
        findings.into_iter().map(named).collect()
    })
}

/// What of the files contradicts the maps that are checked with them.
pub(super) fn left_out(map: Option<&AdminMap>, files: &Files) -> Vec<Finding> {
    let Some(map) = map else { return Vec::new() };
    dns_proto::left_out(map, files).iter().map(LeftOut::finding).collect()
}

/// What in `folder` is not read, because it is not called after a zone.
pub(super) fn ignored(folder: &Path) -> Option<Finding> {
    let entries = std::fs::read_dir(folder).ok()?;
    let names = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_zone = path.extension().is_some_and(|extension| extension == "zone");
        Some(path.file_name()?.to_string_lossy().into_owned()).filter(|name| {
            // What editors and people leave beside them is meant to be ignored.
            !is_zone && !name.starts_with('.') && !name.ends_with('~')
        })
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    let shown = names.iter().take(IGNORED_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > IGNORED_SHOWN { " and others" } else { "" };
    (!names.is_empty()).then(|| {
        let remedy = "call a zone file after its zone, NAME.zone, and keep other files elsewhere";
        Finding::whole(folder, format!("{shown}{more} are not read"), remedy)
    })
}
