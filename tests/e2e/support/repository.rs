//! A package repository, in Debian's and in RPM's form, that changes every second: each file is
//! replaced on its own, as a mirror's synchronisation does it, and the whole takes some milliseconds.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::output;

/// Packages in the repository: its indexes have some 100 KiB.
const PACKAGES: u32 = 400;
const CHANGES_EVERY: Duration = Duration::from_secs(1);

/// A key to sign with, in a folder of its own.
pub(crate) struct SigningKey(PathBuf);

impl SigningKey {
    /// Makes one below `folder`.
    pub(crate) fn generate(folder: &Path) -> Self {
        let home = folder.join("gnupg");
        fs::create_dir_all(&home).unwrap();
        assert!(Command::new("chmod").arg("700").arg(&home).status().unwrap().success());
        let key = Self(home);
        let mut make = key.gpg();
        make.args(["--passphrase", "", "--quick-gen-key", "test <t@example.org>", "ed25519"]);
        let made = output(make.args(["sign", "never"]));
        assert_eq!(made.code, 0, "{}", made.err);
        let mut export = key.gpg();
        let exported =
            output(export.arg("--output").arg(key.public()).args(["--armor", "--export"]));
        assert_eq!(exported.code, 0, "{}", exported.err);
        key
    }

    /// The file of its public half.
    pub(crate) fn public(&self) -> PathBuf {
        self.0.join("public.asc")
    }

    fn gpg(&self) -> Command {
        let mut command = Command::new("gpg");
        command.env("GNUPGHOME", &self.0).args(["--batch", "--yes", "--quiet"]);
        command.stdin(Stdio::null());
        command
    }

    /// A detached signature.
    fn sign(&self, text: &str) -> String {
        let file = self.0.join("text");
        fs::write(&file, text).unwrap();
        let signed =
            output(self.gpg().args(["--armor", "--detach-sign", "--output", "-"]).arg(&file));
        assert_eq!(signed.code, 0, "{}", signed.err);
        signed.out
    }
}

impl Drop for SigningKey {
    fn drop(&mut self) {
        // Its agent would outlive the test.
        let mut kill = Command::new("gpgconf");
        let _ = kill.env("GNUPGHOME", &self.0).args(["--kill", "gpg-agent"]).status();
    }
}

/// The repository, changing until this value is dropped.
pub(crate) struct Changing {
    stop: Arc<AtomicBool>,
    version: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Changing {
    /// Publishes at these folders, the same at each, and goes on doing so.
    pub(crate) fn start(folders: Vec<PathBuf>, key: SigningKey) -> Self {
        let (stop, version) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
        publish(&folders, &key, 1);
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&version));
        let thread = std::thread::spawn(move || {
            while !ends.load(Relaxed) {
                std::thread::sleep(CHANGES_EVERY);
                let version = counts.fetch_add(1, Relaxed) + 1;
                publish(&folders, &key, version);
            }
        });
        Self { stop, version, thread: Some(thread) }
    }

    /// How often it has changed.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}

fn publish(folders: &[PathBuf], key: &SigningKey, version: u64) {
    let files = [debian(key, version), rpm(key, version)].concat();
    for folder in folders {
        for (name, text) in &files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            // Whole or not at all, but file by file.
            let new = folder.join(".new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &file).unwrap();
        }
    }
}

/// Files in the order in which they are published: the index last.
type Files = Vec<(String, String)>;

fn debian(key: &SigningKey, version: u64) -> Files {
    let mut packages = String::new();
    for n in 0..PACKAGES {
        let stanza = format!(
            "Package: hello{n}\nArchitecture: amd64\nVersion: 1.{version}\nMaintainer: Nobody \
             <n@example.org>\nFilename: pool/hello{n}_1.{version}_amd64.deb\nSize: 1000\nSHA256: \
             {}\nDescription: greets\n\n",
            sha256(&format!("{n} {version}"))
        );
        packages.push_str(&stanza);
    }
    let translation = format!("Package: hello0\nDescription-en: greets {version} times\n\n");
    let date = output(Command::new("date").args(["-u", "-R"])).out;
    let mut release = format!(
        "Origin: test\nSuite: stable\nCodename: stable\nArchitectures: amd64\nComponents: main\n\
         Date: {}\nSHA256:\n",
        date.trim().replace("+0000", "UTC")
    );
    let indexes =
        [("main/binary-amd64/Packages", packages), ("main/i18n/Translation-en", translation)];
    for (name, text) in &indexes {
        writeln!(release, " {} {} {name}", sha256(text), text.len()).unwrap();
    }
    let signature = key.sign(&release);
    let indexes = indexes.into_iter().map(|(name, text)| (name.to_owned(), text));
    let top = [("Release.gpg".to_owned(), signature), ("Release".to_owned(), release)];
    let files = indexes.chain(top);
    files.map(|(name, text)| (format!("debian/dists/stable/{name}"), text)).collect()
}

fn rpm(key: &SigningKey, version: u64) -> Files {
    let header = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    let (mut primary, mut filelists, mut other) = (String::new(), String::new(), String::new());
    for n in 0..PACKAGES {
        let id = sha256(&format!("rpm {n} {version}"));
        let name = format!("hello{n}");
        let evr = format!("<version epoch=\"0\" ver=\"1.{version}\" rel=\"1\"/>");
        primary.push_str(&format!(
            "<package type=\"rpm\"><name>{name}</name><arch>noarch</arch>{evr}<checksum \
             type=\"sha256\" pkgid=\"YES\">{id}</checksum><summary>greets</summary><description>\
             greets</description><packager/><url/><time file=\"1\" build=\"1\"/><size \
             package=\"1000\" installed=\"1000\" archive=\"1000\"/><location \
             href=\"{name}-1.{version}-1.noarch.rpm\"/><format><rpm:license>MIT</rpm:license>\
             <rpm:provides><rpm:entry name=\"{name}\" flags=\"EQ\" epoch=\"0\" ver=\"1.{version}\" \
             rel=\"1\"/></rpm:provides></format></package>\n"
        ));
        let package = format!("<package pkgid=\"{id}\" name=\"{name}\" arch=\"noarch\">{evr}");
        filelists.push_str(&format!("{package}<file>/usr/bin/{name}</file></package>\n"));
        other.push_str(&format!("{package}</package>\n"));
    }
    let space = "xmlns=\"http://linux.duke.edu/metadata";
    let rpm_space = "xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\"";
    let count = format!("packages=\"{PACKAGES}\"");
    let lists = [
        (
            "primary",
            format!(
                "{header}<metadata {space}/common\" {rpm_space} {count}>\n{primary}</metadata>\n"
            ),
        ),
        (
            "filelists",
            format!("{header}<filelists {space}/filelists\" {count}>\n{filelists}</filelists>\n"),
        ),
        ("other", format!("{header}<otherdata {space}/other\" {count}>\n{other}</otherdata>\n")),
    ];
    let mut index =
        format!("{header}<repomd {space}/repo\" {rpm_space}><revision>{version}</revision>\n");
    for (name, text) in &lists {
        let (sum, length) = (sha256(text), text.len());
        index.push_str(&format!(
            "<data type=\"{name}\"><checksum type=\"sha256\">{sum}</checksum><open-checksum \
             type=\"sha256\">{sum}</open-checksum><location href=\"repodata/{name}.xml\"/>\
             <timestamp>{version}</timestamp><size>{length}</size><open-size>{length}</open-size>\
             </data>\n"
        ));
    }
    index.push_str("</repomd>\n");
    let signature = key.sign(&index);
    let lists = lists.into_iter().map(|(name, text)| (format!("{name}.xml"), text));
    let top = [("repomd.xml.asc".to_owned(), signature), ("repomd.xml".to_owned(), index)];
    let files = lists.chain(top);
    files.map(|(name, text)| (format!("rpm/repodata/{name}"), text)).collect()
}
