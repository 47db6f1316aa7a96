//! A host's config file: TOML to validated parameters of every role.
//!
//! [`load`] reads the file, [`parse`] reads text; both give a [`HostConfig`] or every finding at
//! once. `schema` has the keys, `read` takes them one section at a time, `check` holds the sections
//! against each other. Each role defines its own `Params`; this room only fills them in. Defaults
//! live with the roles.
//!
//! Relative paths are taken from the folder of the file. Whether files and folders exist is found
//! out by who opens them: a config may be checked on another machine.

mod check;
mod read;
pub mod schema;

use std::path::{Path, PathBuf};

use model::Name;
use nodemap::Finding;
use nodemap::toml_read::Document;
use rt::admin::AdminListen;
use rt::follow::FollowParams;

/// A config file larger than this is refused.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What one host is and does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// `[host]`.
    pub host: Host,
    /// `[follow]`; there when the host is an edge or a DNS server.
    pub follow: Option<FollowParams>,
    /// `[location]`.
    pub location: dns::LocationParams,
    /// `[admin]`.
    pub admin: Option<AdminListen>,
    /// `[edge]`.
    pub edge: Option<edge::Params>,
    /// `[dns]`.
    pub dns: Option<dns::Params>,
    /// `[health]`.
    pub health: Option<health::Params>,
    /// `[master]`.
    pub master: Option<master::Params>,
}

/// `[host]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the host; of an edge, that of its node.
    pub name: Name,
    /// Folder of what must survive a restart.
    pub state_dir: PathBuf,
}

/// Reads the config file `path`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the lines.
pub fn load(path: &Path) -> Result<HostConfig, Vec<Finding>> {
    let bytes = rt::file::read_bounded(path, FILE_BYTES_MAX);
    let text = bytes.map(String::from_utf8);
    let (problem, remedy) = match text {
        Ok(Ok(text)) => return parse(path, &text),
        Ok(Err(_)) => ("is not UTF-8 text".to_owned(), "write it anew as UTF-8"),
        Err(error) => (
            format!("cannot be read ({error})"),
            "name the config file of this host, and check who may read it",
        ),
    };
    let (file, key, remedy) = (path.to_owned(), String::new(), remedy.to_owned());
    Err(vec![Finding { file, line: 0, key, problem, remedy }])
}

/// Reads `text`; `path` names it in messages, and its folder is where relative paths start.
///
/// # Errors
/// Everything that is wrong, in the order of the lines.
pub fn parse(path: &Path, text: &str) -> Result<HostConfig, Vec<Finding>> {
    let document = Document::parse(path, text);
    let config = if document.is_sound() { read::host_config(&document) } else { None };
    let mut findings = document.into_findings();
    findings.sort();
    findings.dedup();
    match config {
        Some(config) if findings.is_empty() => Ok(config),
        _ => Err(findings),
    }
}
