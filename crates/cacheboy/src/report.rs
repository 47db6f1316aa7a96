//! `cacheboy report`: who got what, by the access logs.
//!
//! Phases: what is needed to understand lines (databases, hosts of projects) -> [`files`]: logs in parts,
//! read by as many threads as there are cores, each with sums of its own -> [`count`]: what a line is
//! counted under -> all sums together, as a table.

pub(crate) mod count;
mod demand;
pub(crate) mod files;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap::error::ErrorKind;
use config::HostConfig;
use nodemap::AdminMap;
use usage::sums::Sums;
use usage::table::{Subject, Table};

use crate::cli::{Cli, ReportArgs, ReportFormat, ReportSubject};
use crate::out::say;
use crate::{explain, geo, roles};
use count::{Counter, Hosts, Period, What};
use files::Reading;

/// Reads the logs and prints the table.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        let why = "--from is not before --to: nothing can be in between";
        Cli::command().error(ErrorKind::ValueValidation, why).exit();
    }
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let ReportSubject::Table(subject) = args.subject else {
        return demand(args, config.as_ref());
    };
    let what = what(args, subject, config.as_ref())?;
    let names = match subject {
        Subject::Asn => geo::names(config.as_ref(), &args.databases)?,
        _ => None,
    };
    let (counters, read) = files::read(&args.log, || Counter::new(&what))?;
    let mut sums = Sums::default();
    counters.into_iter().for_each(|counter| sums.merge(counter.sums));
    let mut table = Table::new(subject, &sums, args.top);
    if let Some(names) = names {
        let found = names.find(&table.networks().collect())?;
        table.name_networks(|asn| found.get(&asn).cloned());
    }
    match args.format {
        ReportFormat::Table => say!("{}", table.text().trim_end())?,
        ReportFormat::Csv => say!("{}", table.csv().trim_end())?,
        ReportFormat::Json => {
            let mut document = table.json();
            document["malformed"] = read.malformed().into();
            document["failed"] = read.failures().collect::<Vec<_>>().into();
            say!("{document:#}")?;
        }
    }
    Ok(complain(&read))
}

/// What planning goes by.
fn demand(args: &ReportArgs, config: Option<&HostConfig>) -> Result<ExitCode> {
    let (demand, read) = demand::read(args, config)?;
    match args.format {
        ReportFormat::Table => say!("{}", demand.text(args.top).trim_end())?,
        ReportFormat::Csv => say!("{}", demand.csv().trim_end())?,
        ReportFormat::Json => {
            let mut document = demand.json();
            document["malformed"] = read.malformed().into();
            document["failed"] = read.failures().collect::<Vec<_>>().into();
            say!("{document:#}")?;
        }
    }
    Ok(complain(&read))
}

/// Says what of the logs could not be read or understood.
pub(crate) fn complain(read: &Reading) -> ExitCode {
    if let Some(words) = read.first_malformed() {
        eprintln!("cacheboy: {words}");
    }
    let mut code = ExitCode::SUCCESS;
    for failure in read.failures() {
        eprintln!("cacheboy: {failure}");
        code = ExitCode::FAILURE;
    }
    code
}

fn what(args: &ReportArgs, subject: Subject, config: Option<&HostConfig>) -> Result<What> {
    let locator = match subject {
        Subject::Country => Some(geo::locator(config, &args.databases)?),
        _ => None,
    };
    let map = match subject {
        Subject::Project => map(args, config)?,
        _ => None,
    };
    Ok(What {
        subject,
        period: Period { from_ms: args.from, to_ms: args.to },
        locator,
        hosts: map.map(|map| Hosts::new(&map)).unwrap_or_default(),
    })
}

/// The map that tells whose hosts are whose.
fn map(args: &ReportArgs, config: Option<&HostConfig>) -> Result<Option<AdminMap>> {
    Ok(match (&args.maps, config) {
        (Some(dir), _) => Some(roles::accepted(nodemap::admin::load_dir(dir))?),
        (None, Some(config)) => Some(explain::running_map(config)?.map),
        (None, None) => None,
    })
}
