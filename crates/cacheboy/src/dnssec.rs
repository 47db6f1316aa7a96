//! `cacheboy dnssec`: keys of zones, and what their parents need to know.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use dns::{Duty, SignParams};
use dns_proto::dnssec::{Algorithm, Key, ZONE_FIELD};
use model::{HostName, base64};

use crate::cli::{DnssecArgs, DnssecCommand, KeyAlgorithm};
use crate::out::say;
use crate::roles;

/// Makes a key, or prints what is published of keys.
pub(crate) fn run(args: &DnssecArgs) -> Result<ExitCode> {
    match &args.command {
        DnssecCommand::Keygen { zone, file, algorithm } => keygen(zone, file, *algorithm)?,
        DnssecCommand::Ds { config, zone } => ds(config, zone.as_ref())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn keygen(zone: &HostName, file: &Path, algorithm: KeyAlgorithm) -> Result<()> {
    let algorithm = match algorithm {
        KeyAlgorithm::P256 => Algorithm::EcdsaP256Sha256,
        KeyAlgorithm::Ed25519 => Algorithm::Ed25519,
    };
    let der = Key::generate(algorithm, &rt::clock::random());
    let body = base64::encode(&der.context("the system gives no random numbers")?);
    // Never over a key that is there: what it signed could not be verified any more.
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
        bail!(
            "{} is there already: what its key signed could not be verified without it: name another \
             file, or move it away",
            file.display()
        );
    }
    let cannot = || format!("cannot write {}", file.display());
    let mut written = opened.with_context(cannot)?;
    writeln!(written, "{ZONE_FIELD} {zone}").with_context(cannot)?;
    writeln!(written, "-----BEGIN PRIVATE KEY-----").with_context(cannot)?;
    for line in body.as_bytes().chunks(64) {
        written.write_all(line).and_then(|()| writeln!(written)).with_context(cannot)?;
    }
    writeln!(written, "-----END PRIVATE KEY-----").with_context(cannot)?;
    written.sync_all().with_context(cannot)?;
    say!("; the private key is in {}", file.display())?;
    let key = dns::load_key(zone, file)?;
    say_ds(zone, &key)?;
    say_dnskey(zone, &key, "not in use yet: name the file in [[dns.sign]]")
}

fn ds(config: &Path, wanted: Option<&HostName>) -> Result<()> {
    let signed = roles::load(config)?.dns.map(|dns| dns.sign).unwrap_or_default();
    let is_wanted = |params: &&SignParams| wanted.is_none_or(|zone| *zone == params.zone);
    let signed: Vec<&SignParams> = signed.iter().filter(is_wanted).collect();
    if signed.is_empty() {
        let zone = wanted.map_or("no zone".to_owned(), |zone| format!("not {zone}"));
        bail!("{} signs {zone}: add [[dns.sign]] with the zone and its keys", config.display());
    }
    for params in signed {
        let keys = params.load()?;
        for (key, _) in keys.keys().filter(|(_, duty)| *duty != Duty::Withdrawn) {
            say_ds(&params.zone, key)?;
        }
        for (key, duty) in keys.keys() {
            say_dnskey(&params.zone, key, duty.word())?;
        }
    }
    Ok(())
}

/// The DS record in the form of zone files; its numbers are the key's tag, its algorithm and that of
/// the digest.
fn say_ds(zone: &HostName, key: &Key) -> Result<()> {
    let ds = key.ds(zone);
    let digest: String = ds.iter().skip(4).map(|byte| format!("{byte:02X}")).collect();
    say!("{zone}. IN DS {} {} 2 {digest}", key.tag(), key.algorithm().number())?;
    Ok(())
}

/// The DNSKEY record in the form of zone files.
fn say_dnskey(zone: &HostName, key: &Key, what: &str) -> Result<()> {
    let public = base64::encode(key.dnskey().get(4..).unwrap_or_default());
    let (algorithm, tag) = (key.algorithm(), key.tag());
    say!("{zone}. IN DNSKEY 257 3 {} {public} ; {algorithm} {tag}, {what}", algorithm.number())?;
    Ok(())
}
