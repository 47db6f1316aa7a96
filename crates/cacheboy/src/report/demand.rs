//! `cacheboy report demand`: what planning goes by.

use anyhow::Result;
use config::HostConfig;
use locate::Locator;
use model::{Asn, CountryCode, Family, Name};
use usage::demand::{Client, Demand, Gathered};
use usage::read::{Access, Line};

use super::count::{Hosts, Period, address};
use super::files::{self, Count, Reading};
use crate::cli::ReportArgs;
use crate::geo;

/// Reads the logs.
pub(super) fn read(args: &ReportArgs, config: Option<&HostConfig>) -> Result<(Demand, Reading)> {
    let map = super::map(args, config)?;
    let what = What {
        period: Period { from_ms: args.from, to_ms: args.to },
        locator: geo::locator(config, &args.databases)?,
        hosts: map.map(|map| Hosts::new(&map)).unwrap_or_default(),
    };
    let make = || Counter { what: &what, gathered: Gathered::default(), key: Vec::new() };
    let (counters, reading) = files::read(&args.log, make)?;
    let mut counters = counters.into_iter().map(|counter| counter.gathered);
    let mut all = counters.next().unwrap_or_default();
    counters.for_each(|more| all.merge(more));
    Ok((all.demand(), reading))
}

/// What is needed to understand lines.
struct What {
    period: Period,
    /// Tells country and AS of lines that do not.
    locator: Locator,
    /// Tells the project of lines that do not.
    hosts: Hosts,
}

struct Counter<'a> {
    what: &'a What,
    gathered: Gathered,
    /// Room for a host.
    key: Vec<u8>,
}

impl Count for Counter<'_> {
    fn count(&mut self, line: &Line<'_>) {
        if let Line::Access(access) = line
            && !access.is_health
            && self.what.period.holds(access.ended_ms)
        {
            let client = self.what.client(access);
            let project = match &access.project {
                Some(project) => project,
                None => self.what.hosts.project(&access.host, &mut self.key),
            };
            let project: Option<Name> = text(project);
            self.gathered.add(project.as_ref(), client, access.bytes, access.ended_ms);
        }
    }
}

impl What {
    /// Whom the answer went to: as the edge knew it, else by the databases.
    fn client(&self, access: &Access<'_>) -> Option<Client> {
        let address = address(&access.client)?.to_canonical();
        let told: (Option<CountryCode>, Option<Asn>) = (text(&access.country), text(&access.asn));
        let (country, asn) = match told {
            (Some(_), Some(_)) => told,
            (country, asn) => {
                let known = self.locator.locate(address);
                (country.or(known.country), asn.or(known.asn))
            }
        };
        Some(Client { country, asn, family: Family::of(address) })
    }
}

fn text<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
