//! The command line: what can be asked, and the help that explains it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use http::Uri;
use ipnet::IpNet;
use model::{HostName, Name};
use rt::admin::AdminAddress;
use usage::table::Subject;

/// A content-delivery network for open-source downloads, in one program.
///
/// Edges cache and serve large files, a DNS redirector sends each client to a node near it, a
/// health checker decides which nodes are up, masters hold the files. A host plays the roles that
/// its config file has sections for.
///
/// Start with `cacheboy demo`: it runs the whole network on this machine.
#[derive(Debug, Parser)]
#[command(name = "cacheboy", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 it failed or found something, 2 wrong usage.\n\
     Logs go to standard error; CACHEBOY_LOG chooses their detail (default: info).";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole network on loopback, as real processes
    Demo(DemoArgs),
    /// Play every role that the config file has a section for
    Run(RoleArgs),
    /// Serve clients from a cache that fills from masters
    Edge(RoleArgs),
    /// Answer DNS queries with nodes near the client
    Dns(RoleArgs),
    /// Probe nodes and publish the node map
    Health(RoleArgs),
    /// Serve a content tree to edges
    Master(RoleArgs),
    /// Hear the routes of routers, and tell them to whoever asks
    Bgp(RoleArgs),
    /// Check config files, map folders and databases, and say what to mend
    Check(CheckArgs),
    /// Say where a client would be sent, and why
    Explain(ExplainArgs),
    /// Show country and network of an address
    Lookup(LookupArgs),
    /// Show the location databases that a host steers by, or let in one that was held back
    Geoip(GeoipArgs),
    /// Say which clients would move from which pools and nodes to which
    Map(MapArgs),
    /// Say who got what, by the access logs of edges
    Report(ReportArgs),
    /// Drain a node, end that, or say what it is doing
    Node(NodeArgs),
    /// Show the whole network as its checker sees it, or be a check of Nagios
    Status(StatusArgs),
    /// Show the certificates that the publisher orders, or have one ordered anew
    Cert(CertArgs),
    /// Make keys of zones, and show what their parents need to know
    Dnssec(DnssecArgs),
    /// Take content out of use on the edges before its time, and say what each of them did
    Purge(PurgeArgs),
    /// Print the manual page, or write those of all commands
    Man(ManArgs),
    /// Print completions of commands and options for a shell
    Completions {
        /// For this one
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, which must be there
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Play clients through the network, print what held, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder for configs, maps, caches and logs, written anew [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Serve this folder instead of generated files; it must hold a file `.cacheboy-tree`
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub(crate) content: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// The host's config file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Config files (*.toml), map folders, node maps (*.json), databases (*.mmdb)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["config", "maps"])))]
pub(crate) struct ExplainArgs {
    /// Address of the client; of a prefix, its first address
    #[arg(value_parser = address)]
    pub(crate) client: IpAddr,
    /// Steered name, host or short name of a project, or the fixed name of a node (NODE.NAME)
    pub(crate) name: String,
    /// Use the node map that the host with this config file runs on, or publishes
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Use these admin maps, as if no node had been probed yet
    #[arg(long, value_name = "DIR")]
    pub(crate) maps: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) databases: DatabaseArgs,
    /// Say what the edge of this node does with the client, too
    #[arg(long, value_name = "NODE")]
    pub(crate) at: Option<Name>,
    /// Nodes that the client cannot use, as it says itself by `?avoid=NODE,NODE`
    #[arg(long, value_name = "NODE", value_delimiter = ',', requires = "at")]
    pub(crate) avoid: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LookupArgs {
    /// The address; of a prefix, its first one
    #[arg(value_parser = address)]
    pub(crate) address: IpAddr,
    /// Use the databases of this config file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) databases: DatabaseArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// A checker, http://HOST:PORT; of several the first that answers
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub(crate) health: Vec<Uri>,
    /// Ask the checker of this config file, or those it follows
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one line and exit as Nagios and Icinga want it: 0 ok, 1 warning, 2 critical, 3 unknown
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON, all that the checker says
    #[arg(long, conflicts_with = "check")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GeoipArgs {
    #[command(subcommand)]
    pub(crate) command: GeoipCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GeoipCommand {
    /// Show the databases in use, and what stands in the way of newer ones
    Info {
        /// The config file of the DNS server or edge, which must be running
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the databases in that wait since they would move many clients at once
    Confirm {
        /// The config file of the DNS server or edge, which must be running
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(subcommand)]
    pub(crate) command: MapCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Compare two maps, or one with two databases
    Diff(MapDiffArgs),
    /// Work out weights by capacities, preferences and what clients ask for; changes nothing
    Plan(MapPlanArgs),
    /// List the node maps that this host published lately, or print one
    Show {
        /// Print the one of this generation
        #[arg(value_name = "GENERATION")]
        generation: Option<u64>,
        /// The config file of the publisher
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Publish what an earlier map said of nodes, pools and projects, until the maps are edited again
    Rollback {
        /// Its generation, as `cacheboy map show` lists it
        #[arg(value_name = "GENERATION")]
        generation: u64,
        /// The config file of the publisher
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Show an edit that waits since it would move many clients at once, or let it in
    Confirm {
        /// Let in the edit of this name, as it is shown
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// The config file of the publisher, which must be running
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a key that signs node maps, in the files of minisign
    Keygen {
        /// The secret key, to be made; the public one goes into FILE.pub
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = MAP_DIFF_HELP)]
pub(crate) struct MapDiffArgs {
    /// A folder of admin maps, or a node map (*.json), as it is now
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The same as it would be
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Count bytes by these access logs, Squid's native format or JSON, gzipped or not; - is standard input
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub(crate) usage: Vec<PathBuf>,
    /// How many countries and networks to show, the largest
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Use the databases of this config file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) databases: DatabaseArgs,
    /// The country database that OLD goes with, where it is another one
    #[arg(long, value_name = "FILE")]
    pub(crate) old_country: Option<PathBuf>,
    /// The AS number database that OLD goes with, where it is another one
    #[arg(long, value_name = "FILE")]
    pub(crate) old_asn: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const MAP_DIFF_HELP: &str = "A folder of admin maps counts as if no node had been probed: all that are not drained serve. Of two\n\
                             databases the new ones tell the countries and networks shown.\n\
                             Exit codes: 0 done, 1 a log could not be read to its end, 2 wrong usage.";

#[derive(Debug, Args)]
#[command(after_help = MAP_PLAN_HELP)]
pub(crate) struct MapPlanArgs {
    /// A folder of admin maps, or a node map (*.json)
    #[arg(value_name = "MAPS")]
    pub(crate) maps: PathBuf,
    /// What clients ask for, as `cacheboy report demand --format json` prints it
    #[arg(long, value_name = "FILE")]
    pub(crate) usage: Option<PathBuf>,
    /// The node map of now, whose states count and whose plan clients are moved from
    #[arg(long, value_name = "NODE-MAP")]
    pub(crate) current: Option<PathBuf>,
    /// Use the databases of this config file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) databases: DatabaseArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const MAP_PLAN_HELP: &str = "Without --usage the weights of the maps hold.\n\
                             Exit codes: 0 done, 1 there is too little room for all (the plan is printed), 2 wrong usage.";

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Have health take the node out of answers; it goes on serving everybody who comes
    Drain {
        #[command(flatten)]
        target: NodeTarget,
        /// Why, for those who look at its status
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
        /// End by itself after this time: 90s, 30m, 2h or 3d [default: when it is undrained]
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        time: Option<u64>,
    },
    /// End that
    Undrain {
        #[command(flatten)]
        target: NodeTarget,
    },
    /// Say whether it is drained, and how much it is sending
    Status {
        #[command(flatten)]
        target: NodeTarget,
    },
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("reach").required(true).args(["config", "maps", "node"])))]
pub(crate) struct NodeTarget {
    /// The node [default: this host]
    #[arg(value_name = "NAME", conflicts_with = "node")]
    pub(crate) name: Option<Name>,
    /// This host by its own [admin]; another node by the node map of the host with this config file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// By the `admin` key of the node in these admin maps
    #[arg(long, value_name = "DIR", requires = "name")]
    pub(crate) maps: Option<PathBuf>,
    /// The node with this admin listener, http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADMIN")]
    pub(crate) node: Option<AdminAddress>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Show each name with its certificate, when it is ordered next, and why there is none
    Status {
        /// A checker, http://HOST:PORT; of several the first that answers
        #[arg(long, value_name = "URL", required_unless_present = "config")]
        health: Vec<Uri>,
        /// Ask the checker of this config file, or those it follows
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the publisher order certificates with new keys now
    #[command(group(ArgGroup::new("which").required(true).args(["name", "node"])))]
    Reissue {
        /// The name of the certificate, such as download.project.example
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// All that this node has got: after it was removed from the maps, or was stolen
        #[arg(long, value_name = "NODE")]
        node: Option<Name>,
        /// The config file of the publisher
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Print the line of the maps that lets this host fetch certificates; makes its key when there is none
    Identity {
        /// The config file of the host; run it as the user that runs the host
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DnssecArgs {
    #[command(subcommand)]
    pub(crate) command: DnssecCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DnssecCommand {
    /// Make a key, and print its DS and DNSKEY records
    Keygen {
        /// Name of the zone
        #[arg(value_name = "ZONE")]
        zone: HostName,
        /// Where to write the private key; there must be no file yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What it signs with
        #[arg(long, value_enum, default_value_t = KeyAlgorithm::P256)]
        algorithm: KeyAlgorithm,
    },
    /// Print the DS records that the parents of signed zones shall have, and the keys
    Ds {
        /// The config file of a host that signs them
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Only of this zone
        #[arg(value_name = "ZONE")]
        zone: Option<HostName>,
    },
}

/// What a key signs with.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KeyAlgorithm {
    /// ECDSA P-256 with SHA-256 (13): every validator knows it
    P256,
    /// Ed25519 (15)
    Ed25519,
}

#[derive(Debug, Args)]
#[command(after_help = REPORT_HELP)]
pub(crate) struct ReportArgs {
    /// By what
    #[arg(value_parser = subject(), value_name = "SUBJECT")]
    pub(crate) subject: ReportSubject,
    /// Access logs, Squid's native format or JSON, gzipped or not; - is standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub(crate) log: Vec<PathBuf>,
    /// Only what ended at this time (UTC) or later: 2026-11-30, 2026-11-30T12:00 or 2026-11-30T12:00:00
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<u64>,
    /// Only what ended before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) to: Option<u64>,
    /// How many of the largest to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// What to print
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(crate) format: ReportFormat,
    /// Use the databases of this config file, and for projects its node map
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tell the project of Squid's lines, which have hosts only, by these admin maps
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) maps: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) databases: DatabaseArgs,
}

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportSubject {
    /// Who got most, by one thing.
    Table(Subject),
    /// What planning goes by: project x country x AS x family.
    Demand,
}

/// Its word.
const DEMAND: &str = "demand";

/// The form of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people
    Table,
    /// For spreadsheets: the rows alone
    Csv,
    /// For programs
    Json,
}

const REPORT_HELP: &str = "One MByte is 1,000,000 bytes. Lines that are not understood are left out, and counted.\n\
                           Exit codes: 0 done, 1 a log could not be read to its end (what was read is \
                           shown), 2 wrong usage.";

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("source").required(true).args(["config", "maps", "node"])),
    group(ArgGroup::new("what").required(true).multiple(true).args(["target", "project"])),
    after_help = PURGE_HELP
)]
pub(crate) struct PurgeArgs {
    /// http://HOST/PATH, or with --project a /PATH; with a * at its end all that begins so
    #[arg(value_name = "URL")]
    pub(crate) target: Option<String>,
    /// All of this project, or of it the /PATH that is given
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<Name>,
    /// Let edges confirm what they hold before they use it again, instead of dropping it
    #[arg(long)]
    pub(crate) soft: bool,
    /// Ask every edge what it would do, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Every node of the node map of the host with this config file, and this host by its own [admin]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Every node of these admin maps, by its `admin` key
    #[arg(long, value_name = "DIR")]
    pub(crate) maps: Option<PathBuf>,
    /// The node with this admin listener, http://HOST:PORT or unix:PATH; may be given more than once
    #[arg(long, value_name = "ADMIN")]
    pub(crate) node: Vec<AdminAddress>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const PURGE_HELP: &str = "Exit codes: 0 every node did it, 1 some did not (named, with the reason), \
                          2 wrong usage.\nRead docs/purge.md before you purge a whole project.";

/// Which databases to look into when no config file names them.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// Country database (MaxMind format) [default: the built-in demo data]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) country: Option<PathBuf>,
    /// AS number database (MaxMind format) [default: the built-in demo data]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) asn: Option<PathBuf>,
}

/// A length of time in seconds.
fn seconds(text: &str) -> Result<u64, &'static str> {
    const WRITE: &str = "write a number and s, m, h or d: 90s, 30m, 2h, 3d";
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400u64)];
    let read = |(unit, factor): (&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor)
    };
    match units.into_iter().find_map(read) {
        Some(0) => Err("that is over at once: leave it out to drain until the node is undrained"),
        found => found.ok_or(WRITE),
    }
}

/// By what reports are made.
fn subject() -> impl TypedValueParser<Value = ReportSubject> {
    let words = Subject::ALL.map(Subject::word).into_iter().chain([DEMAND]);
    PossibleValuesParser::new(words).try_map(|word| match word.as_str() {
        DEMAND => Ok(ReportSubject::Demand),
        word => word.parse().map(ReportSubject::Table),
    })
}

/// A moment in UTC, as milliseconds since 1970.
fn time(text: &str) -> Result<u64, &'static str> {
    model::time::parse_utc(text).ok_or("write 2026-11-30, 2026-11-30T12:00 or 2026-11-30T12:00:00")
}

/// An address, or the first one of a prefix: prefixes are what these commands print.
fn address(text: &str) -> Result<IpAddr, String> {
    let first = |net: IpNet| net.network();
    text.parse()
        .or_else(|_| text.parse().map(first))
        .map_err(|_| "write an address or a prefix: 192.0.2.1, 192.0.2.0/24 or 2001:db8::1".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_prefix_stands_for_its_first_address() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0"),
            ("2001:db8::7/32", "2001:db8::"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(address(text), Ok(expected));
            let cli = Cli::try_parse_from(["cacheboy", "lookup", text]).unwrap();
            assert!(matches!(cli.command, Command::Lookup(args) if args.address == expected));
        }
        for text in ["192.0.2.0/33", "192.0.2", "example.com", ""] {
            assert!(address(text).unwrap_err().contains("192.0.2.0/24"), "{text}");
        }
    }

    #[test]
    fn explain_without_a_map_names_both_ways_to_give_one() {
        let parse = |more: &[&str]| {
            Cli::try_parse_from([&["cacheboy", "explain", "192.0.2.1", "a.example"], more].concat())
        };
        let error = parse(&[]).unwrap_err().to_string();
        assert!(error.contains("--config <FILE>") && error.contains("--maps <DIR>"), "{error}");
        assert!(parse(&["--config", "a", "--maps", "b"]).is_err());
        assert!(parse(&["--config", "a", "--country", "b"]).is_err());
        assert!(parse(&["--maps", "b", "--country", "b"]).is_ok());
    }

    #[test]
    fn purge_names_what_and_where() {
        let parse = |line: &str| {
            let words = ["cacheboy", "purge"].into_iter().chain(line.split_whitespace());
            Cli::try_parse_from(words).is_ok()
        };
        for good in [
            "http://a/b --maps m",
            "--project p --config c",
            "/a* --project p --node http://a:1 --node unix:/b --soft --dry-run --json",
        ] {
            assert!(parse(good), "{good}");
        }
        for bad in [
            "http://a/b",
            "--maps m",
            "http://a/b --maps m --config c",
            "http://a/b --node a:1",
            "--project P --maps m",
        ] {
            assert!(!parse(bad), "{bad}");
        }
    }

    #[test]
    fn node_names_how_it_is_reached_and_how_long_it_is_drained() {
        let parse = |line: &str| {
            let words = ["cacheboy", "node"].into_iter().chain(line.split_whitespace());
            Cli::try_parse_from(words).is_ok()
        };
        for good in [
            "drain --config c",
            "drain --config c --for 2h --reason disk --json",
            "undrain one --maps m",
            "status --node unix:/b",
        ] {
            assert!(parse(good), "{good}");
        }
        for bad in [
            "drain",
            "drain one",
            "drain --maps m",
            "drain one --node unix:/b",
            "status --for 2h --config c",
        ] {
            assert!(!parse(bad), "{bad}");
        }
        for (text, length) in [("90s", Some(90)), ("2h", Some(7200)), ("3d", Some(259_200))] {
            assert_eq!(seconds(text).ok(), length);
        }
        for text in ["", "0s", "2", "h", "-1s", "1.5h", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
