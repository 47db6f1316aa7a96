//! A host's config file: TOML to validated parameters of every role.
//!
//! [`load`] reads the file ([`ConfigFile`] keeps it, to report on what it names), [`parse`] reads
//! text; all give a [`HostConfig`] or every finding at
//! once. `schema` has the keys, `read` takes them one section at a time (`sign` those of
//! signed zones), `check` holds the sections
//! against each other. Each role defines its own `Params`; this room only fills them in. Defaults
//! live with the roles.
//!
//! Relative paths are taken from the folder of the file. Whether files and folders exist is found
//! out by who opens them: a config may be checked on another machine.

mod check;
mod read;
pub mod schema;
mod sign;

use std::path::{Path, PathBuf};

use model::Name;
use nodemap::Finding;
use nodemap::toml_read::{Document, KeyPath};
use rt::admin::AdminListen;
use rt::follow::FollowParams;
use rt::listen::Listen;
use rt::steering::LocationParams;
use rt::tls::CertificateFiles;

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
    pub location: LocationParams,
    /// `[admin]`.
    pub admin: Option<AdminListen>,
    /// `[[tls.certificate]]`; at least one when a listener speaks TLS.
    pub certificates: Vec<CertificateFiles>,
    /// `[tls] publisher`: whether the edge fetches certificates besides.
    pub fetches_certificates: bool,
    /// `[edge]`.
    pub edge: Option<edge::Params>,
    /// `[dns]`.
    pub dns: Option<dns::Params>,
    /// `[health]`.
    pub health: Option<health::Params>,
    /// `[master]`.
    pub master: Option<master::Params>,
    /// `[bgp]`.
    pub bgp: Option<bgp::Params>,
}

impl HostConfig {
    /// The listeners of the edge and of the master.
    pub fn http_listeners(&self) -> impl Iterator<Item = &Listen> {
        let of_edge = self.edge.iter().flat_map(|edge| &edge.listen);
        of_edge.chain(self.master.iter().flat_map(|master| &master.listen))
    }
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
    ConfigFile::open(path)?.config()
}

/// A config file as it was read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// That it cannot be read, as the one finding.
    pub fn open(path: &Path) -> Result<Self, Vec<Finding>> {
        let text = read_text(path)?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// What stands in it.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the lines.
    pub fn config(&self) -> Result<HostConfig, Vec<Finding>> {
        parse(&self.path, &self.text)
    }

    /// A finding on what the value of a key names, at the line of the key.
    pub fn finding(&self, keys: &[&str], problem: String, remedy: String) -> Finding {
        self.finding_of(&KeyPath::of(keys), problem, remedy)
    }

    /// The same for a path that leads through a list.
    pub fn finding_of(&self, path: &KeyPath, problem: String, remedy: String) -> Finding {
        let document = Document::parse(&self.path, &self.text);
        let line = document.line_of(path, 0).unwrap_or_default();
        Finding { file: self.path.clone(), line, key: path.to_string(), problem, remedy }
    }
}

fn read_text(path: &Path) -> Result<String, Vec<Finding>> {
    let bytes = rt::file::read_bounded(path, FILE_BYTES_MAX).map_err(|error| {
        let remedy = "name the config file of this host, and check who may read it";
        vec![Finding::whole(path, format!("cannot be read ({error})"), remedy)]
    })?;
    String::from_utf8(bytes).map_err(|error| vec![Finding::not_utf8(path, &error)])
}

/// Reads `text`; `path` names it in messages, and its folder is where relative paths start.
///
/// # Errors
/// Everything that is wrong, in the order of the lines.
pub fn parse(path: &Path, text: &str) -> Result<HostConfig, Vec<Finding>> {
    let document = Document::parse(path, text);
    if nodemap::admin::is_admin_map(&document)
        && !schema::ROOT.keys.iter().any(|k| document.has(k.name))
    {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Err(vec![Finding {
            file: path.to_owned(),
            line: 0,
            key: String::new(),
            problem: "is an admin map, not the config of a host".to_owned(),
            remedy: format!("check its folder, whose files are one map: {}", folder.display()),
        }]);
    }
    let config = if document.is_sound() { read::host_config(&document) } else { None };
    let mut findings = document.into_findings();
    findings.sort();
    findings.dedup();
    match config {
        Some(config) if findings.is_empty() => Ok(config),
        _ => Err(findings),
    }
}
