//! `cacheboy report`: who got what, by the access logs.
//!
//! Phases: what is needed to understand lines (databases, hosts of projects) -> [`files`]: logs in parts,
//! read by as many threads as there are cores, each with sums of its own -> [`count`]: what a line is
//! counted under -> all sums together, as a table.

mod count;
mod files;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap::error::ErrorKind;
use usage::table::{Subject, Table};

use crate::cli::{Cli, ReportArgs, ReportFormat};
use crate::out::say;
use crate::{explain, geo, roles};
use count::{Hosts, What};

/// Reads the logs and prints the table.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        let why = "--from is not before --to: nothing can be in between";
        Cli::command().error(ErrorKind::ValueValidation, why).exit();
    }
    let what = what(args)?;
    let read = files::read(&args.log, &what)?;
    let name_of = |asn: &str| {
        let asn = asn.parse().ok()?;
        what.locator.as_ref()?.as_name(asn).map(str::to_owned)
    };
    let table = Table::new(args.subject, &read.sums, args.top, name_of);
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
    if let Some(words) = read.first_malformed() {
        eprintln!("cacheboy: {words}");
    }
    let mut code = ExitCode::SUCCESS;
    for failure in read.failures() {
        eprintln!("cacheboy: {failure}");
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

fn what(args: &ReportArgs) -> Result<What> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let locator = match args.subject {
        Subject::Asn | Subject::Country => Some(geo::locator(config.as_ref(), &args.databases)?),
        Subject::Project | Subject::Node | Subject::Missteered => None,
    };
    let map = match (args.subject, &args.maps, &config) {
        (Subject::Project, Some(dir), _) => Some(roles::accepted(nodemap::admin::load_dir(dir))?),
        (Subject::Project, None, Some(config)) => Some(explain::running_map(config)?.map),
        _ => None,
    };
    Ok(What {
        subject: args.subject,
        from_ms: args.from,
        to_ms: args.to,
        locator,
        hosts: map.map(|map| Hosts::new(&map)).unwrap_or_default(),
    })
}
