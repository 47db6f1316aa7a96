//! What keeps a zone from being signed.

use config::{ConfigFile, HostConfig};
use model::HostName;
use nodemap::toml_read::KeyPath;
use nodemap::{AdminMap, Finding};

use super::zones::Files;

/// The zones that a config signs.
pub(super) struct Signed {
    file: ConfigFile,
    /// In the order of the tables.
    zones: Vec<HostName>,
}

impl Signed {
    /// `None` where nothing is signed.
    pub(super) fn of(file: &ConfigFile, config: &HostConfig) -> Option<Self> {
        let zones: Vec<_> = config.dns.iter().flat_map(|dns| &dns.sign).collect();
        let zones: Vec<_> = zones.into_iter().map(|params| params.zone.clone()).collect();
        (!zones.is_empty()).then(|| Self { file: file.clone(), zones })
    }

    /// Those that are neither zones of `map` nor of zone files: a slip of the pen there leaves the zone
    /// that was meant without signatures, which is an outage where its parent has a DS record.
    pub(super) fn not_there<'a>(
        &'a self,
        map: &'a AdminMap,
        files: &'a [&Files],
    ) -> impl Iterator<Item = Finding> + 'a {
        let is_there = |zone: &HostName| {
            let mut of_files = files.iter().flat_map(|files| files.iter());
            map.zones.contains_key(zone) || of_files.any(|file| file.apex() == zone)
        };
        let missing = self.zones.iter().enumerate().filter(move |(_, zone)| !is_there(zone));
        missing.map(|(at, zone)| {
            let path = KeyPath::of(&["dns", "sign"]).index(at);
            let known: Vec<&str> = map.zones.keys().map(HostName::as_str).take(12).collect();
            self.file.finding_of(
                &path,
                format!(
                    "{zone} is no zone of the maps or of a zone file: nothing is signed by its keys"
                ),
                format!("name the zone as it is called there (the maps have {})", known.join(", ")),
            )
        })
    }
}

/// The signed zones with the tags of their keys, behind the summary of a host: what its parents must know.
pub(super) fn shown(config: &HostConfig) -> String {
    let signed = config.dns.iter().flat_map(|dns| &dns.sign).filter_map(|params| {
        let keys = params.load().ok()?;
        let keys = keys.keys().map(|(key, duty)| format!("{} ({})", key.tag(), duty.word()));
        Some(format!("; {} signed by {}", params.zone, keys.collect::<Vec<_>>().join(", ")))
    });
    signed.collect()
}

/// What is wrong with the key files of each signed zone. Whether the parent has their DS records is
/// not looked up: this needs no network.
pub(super) fn unusable(file: &ConfigFile, config: &HostConfig) -> Vec<Finding> {
    let signed = config.dns.iter().flat_map(|dns| &dns.sign).enumerate();
    let failed = signed.filter_map(|(at, params)| Some((at, params.load().err()?)));
    failed
        .map(|(at, error)| unusable_at(file, &KeyPath::of(&["dns", "sign"]).index(at), error))
        .collect()
}

/// What is wrong with the keys of those who may copy zones, and with the zones.
pub(super) fn not_to_copy(file: &ConfigFile, config: &HostConfig) -> Vec<Finding> {
    let Some(dns) = config.dns.as_ref().filter(|dns| !dns.transfers.is_empty()) else {
        return Vec::new();
    };
    let key = KeyPath::of(&["dns", "transfer"]);
    let unread = dns::load_transfers(&dns.transfers).err();
    let unread = unread.map(|error| unusable_at(file, &key, error));
    let signed = dns.transfers.iter().enumerate().filter_map(|(at, params)| {
        dns.sign.iter().find(|signed| signed.zone == params.zone)?;
        Some(file.finding_of(
            &key.clone().index(at),
            format!("{} is signed as it is answered: a copy would have no signatures", params.zone),
            "serve it from hosts with the same files and keys instead".to_owned(),
        ))
    });
    unread.into_iter().chain(signed).collect()
}

fn unusable_at(
    file: &ConfigFile,
    key: &KeyPath,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Finding {
    let text = format!("{:#}", anyhow::Error::new(error));
    let (problem, remedy) =
        text.rsplit_once(": ").unwrap_or((&text, "name a file that the user of the role may read"));
    file.finding_of(key, problem.to_owned(), remedy.to_owned())
}
