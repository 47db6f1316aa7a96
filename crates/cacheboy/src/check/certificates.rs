//! What is wrong with the certificates of a host, now or soon.

use std::collections::BTreeSet;

use config::{ConfigFile, HostConfig};
use model::time::utc;
use model::{HostName, Now};
use nodemap::Finding;
use nodemap::toml_read::KeyPath;
use rt::tls::{Certificate, CertificateFiles, is_open_to_others};

/// How long before its end a certificate is complained of.
const SOON_S: i64 = 14 * 86_400;
/// Hosts that a finding names at most.
const HOSTS_SHOWN: usize = 12;

/// Reads all of them. `None` when one cannot be used.
pub(super) fn read(
    file: &ConfigFile,
    all: &[CertificateFiles],
    now: Now,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Certificate>> {
    let mut read = Vec::new();
    for (at, files) in all.iter().enumerate() {
        let path = KeyPath::of(&["tls", "certificate"]).index(at);
        if is_open_to_others(&files.key) {
            let problem = format!("everybody on this machine may read {}", files.key.display());
            let remedy = format!("chmod o= {}", files.key.display());
            findings.push(file.finding_of(&path.clone().key("key"), problem, remedy));
        }
        match Certificate::load(files) {
            Ok(certificate) => {
                findings.extend(date(&certificate, now).map(|(problem, remedy)| {
                    file.finding_of(&path.key("chain"), problem, remedy.to_owned())
                }));
                read.push(certificate);
            }
            Err(error) => {
                let text = error.to_string();
                let (problem, remedy) = text.split_once(": ").unwrap_or((&text, "name another"));
                findings.push(file.finding_of(&path, problem.to_owned(), remedy.to_owned()));
            }
        }
    }
    (read.len() == all.len()).then_some(read)
}

/// Whether it holds now and for some time.
fn date(certificate: &Certificate, now: Now) -> Option<(String, &'static str)> {
    let shown = |seconds: i64| utc(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
    let now_s = i64::try_from(now.wall_ms / 1000).unwrap_or(i64::MAX);
    let (name, end) = (certificate.first_name(), shown(certificate.not_after_s));
    let problem = if certificate.not_after_s <= now_s {
        format!("the certificate of {name} has expired at {end}")
    } else if certificate.not_before_s > now_s {
        let start = shown(certificate.not_before_s);
        return Some((
            format!("the certificate of {name} holds from {start} on, not yet"),
            "set the clock, or wait with it until then",
        ));
    } else if certificate.not_after_s <= now_s.saturating_add(SOON_S) {
        format!("the certificate of {name} expires soon, at {end}")
    } else {
        return None;
    };
    Some((problem, "renew it, and replace both files"))
}

/// Certificates that no listener shows: `tls` was forgotten there, or they are left over.
pub(super) fn idle(file: &ConfigFile, config: &HostConfig) -> Option<Finding> {
    if config.certificates.is_empty() || config.http_listeners().any(|listen| listen.tls) {
        return None;
    }
    Some(
        file.finding(
            &["tls", "certificate"],
            "no listener of this host speaks TLS, so that nobody is shown it".to_owned(),
            "write the listener as { address = \"0.0.0.0:443\", tls = true }, or take it away"
                .to_owned(),
        ),
    )
}

/// Hosts of projects that no certificate has.
pub(super) fn uncovered(
    file: &ConfigFile,
    shown: &[Certificate],
    hosts: &BTreeSet<HostName>,
) -> Option<Finding> {
    let covers = |host: &HostName| shown.iter().any(|c| c.covers(host.as_str()));
    let mut without: Vec<&str> =
        hosts.iter().filter(|host| !covers(host)).map(HostName::as_str).collect();
    if without.is_empty() {
        return None;
    }
    if without.len() > HOSTS_SHOWN {
        without.truncate(HOSTS_SHOWN);
        without.push("...");
    }
    Some(file.finding(
        &["tls", "certificate"],
        format!("no certificate is for these hosts of the maps: {}", without.join(", ")),
        "add one for each, or clients of https:// are refused".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const CONFIG: &str = "[host]\nname = \"e\"\nstate_dir = \"s\"\n[follow]\n\
        node_map = [\"file:m\"]\n[edge]\nlisten = [{ address = \"127.0.0.1:443\", tls = true }]\n\
        store = [{ path = \"c\", size = \"1 GiB\" }]\n\
        [[tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
        [[tls.certificate]]\nchain = \"b.pem\"\nkey = \"b.key\"\n";

    #[test]
    fn dates_keys_and_hosts_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            let key = KeyPair::generate().unwrap();
            let names = vec![format!("{name}.example"), format!("*.{name}.example")];
            let mut params = CertificateParams::new(names).unwrap();
            params.not_before = date_time_ymd(2026, 1, 2);
            params.not_after = date_time_ymd(2026, 3, 4);
            let certificate = params.self_signed(&key).unwrap();
            fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            let file = dir.path().join(format!("{name}.key"));
            fs::write(&file, key.serialize_pem()).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        }
        let path = dir.path().join("e.toml");
        fs::write(&path, CONFIG).unwrap();
        let file = ConfigFile::open(&path).unwrap();
        let all = file.config().unwrap().certificates;
        let folder = format!("{}/", dir.path().display());
        let look = |wall_s: u64| {
            let (now, mut findings) = (Now { wall_ms: wall_s * 1000, ..Now::default() }, vec![]);
            let read = read(&file, &all, now, &mut findings);
            let lines = findings.iter().map(|f| f.to_string().replace(&folder, ""));
            (read, lines.collect::<Vec<_>>())
        };
        const START: u64 = 1_767_312_000;
        const END: u64 = 1_772_582_400;
        let of_both = |what: &str| {
            [(10, "a"), (13, "b")].map(|(line, name)| {
                format!(
                    "e.toml:{line}: tls.certificate.chain: the certificate of {name}.example {what}"
                )
            })
        };
        let mend = "renew it, and replace both files";
        assert_eq!(look(START).1, Vec::<String>::new());
        assert_eq!(look(END - 14 * 86_400 - 1).1, Vec::<String>::new());
        let early = "holds from 2026-01-02 00:00:00Z on, not yet: set the clock, or wait with it until then";
        assert_eq!(look(START - 1).1, of_both(early));
        let soon = format!("expires soon, at 2026-03-04 00:00:00Z: {mend}");
        assert_eq!(look(END - 14 * 86_400).1, of_both(&soon));
        let over = format!("has expired at 2026-03-04 00:00:00Z: {mend}");
        assert_eq!(look(END).1, of_both(&over));

        let shown = look(START).0.unwrap();
        let hosts = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        assert!(uncovered(&file, &shown, &hosts(&["a.example", "x.b.example"])).is_none());
        let finding = uncovered(&file, &shown, &hosts(&["c.example", "x.y.b.example"])).unwrap();
        assert_eq!(
            finding.to_string().replace(&folder, ""),
            "e.toml:9: tls.certificate: no certificate is for these hosts of the maps: c.example, \
             x.y.b.example: add one for each, or clients of https:// are refused"
        );

        let key = dir.path().join("a.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        fs::copy(dir.path().join("a.key"), dir.path().join("b.key")).unwrap();
        fs::set_permissions(dir.path().join("b.key"), fs::Permissions::from_mode(0o600)).unwrap();
        let (read, lines) = look(START);
        assert!(read.is_none());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(
            lines[0],
            "e.toml:11: tls.certificate.key: everybody on this machine may read a.key: chmod o= a.key"
        );
        assert!(lines[1].starts_with(
            "e.toml:12: tls.certificate: the key in b.key does not belong to the first certificate in \
             b.pem: name the key "
        ));
    }
}
