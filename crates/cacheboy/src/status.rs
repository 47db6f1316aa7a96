//! `cacheboy status`: the whole network as its checker sees it, for people and for Nagios.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use config::HostConfig;
use http::{HeaderMap, StatusCode, Uri};
use model::time::utc;
use rt::client::{self, Get};
use rt::follow::Source;
use serde_json::Value;

use crate::cli::StatusArgs;
use crate::out::say;
use crate::roles;

/// How long a checker may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest `/status` that is read: a thousand nodes have a few MiB.
const STATUS_BYTES_MAX: usize = 64 << 20;
/// A reader that polled in this time is one that is there; readers poll at least twice a minute.
const READER_SILENT_MS: u64 = 5 * 60 * 1000;

/// Prints what the first checker that answers says.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let found = ask(&args.health, args.config.as_deref()).await;
    if args.check {
        let verdict = match &found {
            Ok(status) => judge(status),
            Err(error) => Verdict { level: Level::Unknown, words: vec![format!("{error:#}")] },
        };
        let counted = found.as_ref().map(counted).unwrap_or_default();
        say!("CACHEBOY {} - {}{counted}", verdict.level.word(), verdict.words.join("; "))?;
        return Ok(ExitCode::from(verdict.level as u8));
    }
    let status = found?;
    match args.json {
        true => say!("{status:#}")?,
        false => say!("{}", table(&status, rt::clock::now().wall_ms).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the first checker says that answers: of `urls`, then of those of a config file.
pub(super) async fn ask(urls: &[Uri], config: Option<&Path>) -> Result<Value> {
    let mut urls = urls.to_vec();
    if let Some(path) = config {
        urls.extend(of_config(&roles::load(path)?));
    }
    let mut failures = String::new();
    for url in &urls {
        match status_of(url).await {
            Ok(status) => return Ok(status),
            Err(why) => {
                // Writing to a string cannot fail.
                let _ = write!(failures, "; {url}: {why:#}");
            }
        }
    }
    if urls.is_empty() {
        bail!("nobody to ask: the config has neither [health] nor a URL in [follow] node_map");
    }
    bail!("no checker answers{failures}")
}

/// Where the checkers of a host are: its own, then those it follows.
fn of_config(config: &HostConfig) -> Vec<Uri> {
    let own = config.health.iter().flat_map(|health| &health.listen).map(|address| {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, address.port()))
    });
    let followed = config.follow.iter().flat_map(|follow| &follow.node_map);
    let followed = followed.filter_map(|source| match source {
        Source::Http(url) => url.authority().map(|authority| format!("http://{authority}")),
        _ => None,
    });
    own.chain(followed).filter_map(|url| url.parse().ok()).collect()
}

async fn status_of(url: &Uri) -> Result<Value> {
    let Some(authority) = url.authority() else { bail!("is no URL: write http://HOST:PORT") };
    let ask = Get {
        url: format!("http://{authority}/status").parse()?,
        connect_to: None,
        headers: HeaderMap::new(),
        timeout: TIMEOUT,
        body_bytes_max: STATUS_BYTES_MAX,
    };
    let reply = client::get(ask).await?;
    if reply.status != StatusCode::OK {
        bail!("answered {}", reply.status);
    }
    let status: Value = serde_json::from_slice(&reply.body)?;
    if status["nodes"].is_object() { Ok(status) } else { bail!("is no checker") }
}

/// How bad it is; the number is what Nagios wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

#[derive(Debug)]
struct Verdict {
    level: Level,
    words: Vec<String>,
}

impl Verdict {
    fn add(&mut self, level: Level, words: String) {
        self.level = self.level.max(level);
        self.words.push(words);
    }
}

/// What a person should be told. Critical: a family in which no node serves, and alarms that say so (states
/// are held, the checker is cut off, a DNS node fails). Warning: everything else that is not as it should be.
fn judge(status: &Value) -> Verdict {
    let mut verdict = Verdict { level: Level::Ok, words: Vec::new() };
    for alarm in status["alarms"].as_array().into_iter().flatten() {
        let critical = alarm["severity"] == "critical";
        let level = if critical { Level::Critical } else { Level::Warning };
        verdict.add(level, text(alarm, "text").to_owned());
    }
    for family in ["v4", "v6"] {
        let of_family = || rows(status).filter(|row| row.family == family);
        if of_family().next().is_some() && !of_family().any(|row| row.serves()) {
            verdict.add(Level::Critical, format!("no node serves over {family}"));
        }
    }
    for row in rows(status).filter(|row| row.state() == "down") {
        let reason = text(row.view, "reason");
        verdict.add(Level::Warning, format!("{} {} is down: {reason}", row.node, row.family));
    }
    for (project, unfit) in entries(&status["unfit"]) {
        for view in unfit.as_array().into_iter().flatten() {
            let (node, family, reason) =
                (text(view, "node"), text(view, "family"), text(view, "reason"));
            verdict
                .add(Level::Warning, format!("{node} {family} is unfit for {project}: {reason}"));
        }
    }
    let findings = status["maps"]["findings"].as_array().map_or(0, Vec::len);
    if findings > 0 {
        verdict.add(Level::Warning, format!("{findings} findings in the maps folder"));
    }
    for certificate in status["acme"]["certificates"].as_array().into_iter().flatten() {
        let (name, state, why) =
            (text(certificate, "name"), text(certificate, "state"), text(certificate, "why"));
        match state {
            "expired" => {
                verdict
                    .add(Level::Critical, format!("the certificate of {name} has expired: {why}"));
            }
            "none" | "due" if !why.is_empty() => {
                verdict.add(Level::Warning, format!("no new certificate of {name}: {why}"));
            }
            _ => {}
        }
    }
    for (name, reader) in entries(&status["readers"]) {
        if reader["ahead"] == true {
            verdict.add(Level::Warning, format!("{name} has a node map from the future"));
        }
    }
    if verdict.words.is_empty() {
        verdict.words.push(format!("generation {}", status["generation"]));
    }
    verdict
}

/// Performance data of Nagios.
fn counted(status: &Value) -> String {
    let count = |word: &str| rows(status).filter(|row| row.state() == word).count();
    let words = ["up", "down", "unknown", "drained"];
    let counts = words.map(|word| format!("{word}={}", count(word)));
    format!(" | {}", counts.join(" "))
}

/// A node in one family.
struct Row<'a> {
    node: &'a str,
    family: &'a str,
    view: &'a Value,
}

impl Row<'_> {
    fn state(&self) -> &str {
        text(self.view, "state")
    }

    fn serves(&self) -> bool {
        matches!(self.state(), "up" | "unknown")
    }

    /// Milliseconds since the last probe of the address that was asked longest ago.
    fn probe_age_ms(&self) -> Option<u64> {
        let addresses = self.view["addresses"].as_array()?.iter();
        addresses.filter_map(|address| address["last_probe_age_ms"].as_u64()).max()
    }
}

fn rows(status: &Value) -> impl Iterator<Item = Row<'_>> {
    entries(&status["nodes"]).flat_map(|(node, families)| {
        entries(families).map(move |(family, view)| Row { node, family, view })
    })
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Everything, for people.
fn table(status: &Value, now_ms: u64) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, status, now_ms);
    out
}

fn write_table(out: &mut String, status: &Value, now_ms: u64) -> std::fmt::Result {
    let published_ms = status["published_ms"].as_u64().unwrap_or_default();
    let generation = status["generation"].as_u64().unwrap_or_default();
    writeln!(out, "publisher   {}", text(status, "publisher"))?;
    writeln!(out, "generation  {generation}, {} ago", age(now_ms.saturating_sub(published_ms)))?;
    if status["publishing"] == false {
        writeln!(out, "role        stands by: another checker publishes")?;
    }
    for alarm in status["alarms"].as_array().into_iter().flatten() {
        let since = utc(alarm["since_ms"].as_u64().unwrap_or_default());
        let (severity, words) = (text(alarm, "severity"), text(alarm, "text"));
        writeln!(out, "{severity:<11} {words}, since {since}")?;
    }
    for finding in status["maps"]["findings"].as_array().into_iter().flatten() {
        writeln!(out, "finding     {}", finding.as_str().unwrap_or_default())?;
    }
    writeln!(out, "\n{:<20} FAMILY  STATE    {:<21} PROBED  REASON", "NODE", "SINCE")?;
    for row in rows(status) {
        let since = utc(row.view["since_ms"].as_u64().unwrap_or_default());
        let probed = row.probe_age_ms().map_or_else(|| "never".to_owned(), age);
        let (node, family, state) = (row.node, row.family, row.state());
        let reason = text(row.view, "reason");
        writeln!(out, "{node:<20} {family:<7} {state:<8} {since:<21} {probed:<7} {reason}")?;
    }
    write_rest(out, status)?;
    writeln!(out, "\n{:<20} BEHIND   POLLED", "READER")?;
    for (name, reader) in entries(&status["readers"]) {
        let runs = reader["generation"].as_u64().unwrap_or_default();
        let polled_ms = reader["last_poll_age_ms"].as_u64().unwrap_or_default();
        let behind = match generation.saturating_sub(runs) {
            _ if reader["ahead"] == true => "ahead".to_owned(),
            _ if runs == 0 => "no map".to_owned(),
            0 => "-".to_owned(),
            ms => age(ms),
        };
        let silent = if polled_ms > READER_SILENT_MS { ", silent" } else { "" };
        writeln!(out, "{name:<20} {behind:<8} {} ago{silent}", age(polled_ms))?;
    }
    Ok(())
}

/// Nodes that are unfit for a project, masters, DNS nodes, what is outside, the other checkers.
fn write_rest(out: &mut String, status: &Value) -> std::fmt::Result {
    for (project, unfit) in entries(&status["unfit"]) {
        for view in unfit.as_array().into_iter().flatten() {
            let (node, family, reason) =
                (text(view, "node"), text(view, "family"), text(view, "reason"));
            writeln!(out, "unfit       {node} {family} for {project}: {reason}")?;
        }
    }
    for (project, masters) in entries(&status["masters"]) {
        for (master, view) in entries(masters) {
            let (state, reason) = (text(view, "state"), text(view, "reason"));
            writeln!(out, "master      {project}/{master} {state}: {reason}")?;
        }
    }
    for other in status["others"].as_array().into_iter().flatten() {
        let (kind, name, state) = (text(other, "kind"), text(other, "name"), text(other, "state"));
        writeln!(out, "{kind:<11} {name} {state}: {}", text(other, "last_result"))?;
    }
    for certificate in status["acme"]["certificates"].as_array().into_iter().flatten() {
        let (name, state) = (text(certificate, "name"), text(certificate, "state"));
        let until = certificate["not_after"].as_str();
        let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
        let why = certificate["why"].as_str().filter(|why| !why.is_empty());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        writeln!(out, "certificate {name} {state}{until}{why}")?;
    }
    for (name, view) in entries(&status["checkers"]) {
        let heard = view["last_heard_age_ms"].as_u64();
        let heard = heard.map_or("never heard".to_owned(), |ms| format!("heard {} ago", age(ms)));
        let counts = if view["counts"] == true { "counts" } else { "does not count" };
        writeln!(out, "checker     {name} {counts}, {heard}")?;
    }
    Ok(())
}

/// A time in its largest unit.
fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network() -> Value {
        let view = |state: &str, reason: &str| {
            json!({
                "state": state, "reason": reason, "since_ms": 1_000_000,
                "addresses": [{ "address": "192.0.2.1", "last_probe_age_ms": 4000 }],
            })
        };
        json!({
            "format": 1, "publisher": "hc", "generation": 2_000_000, "published_ms": 2_000_000,
            "holding": false, "maps": { "findings": [] },
            "nodes": {
                "a": { "v4": view("up", "status 200 in 3 ms"), "v6": view("up", "status 200") },
                "b": { "v4": view("drained", "new disk") },
            },
            "readers": {
                "ns1": { "generation": 2_000_000, "last_poll_age_ms": 5000 },
                "ns2": { "generation": 1_400_000, "last_poll_age_ms": 600_000 },
            },
        })
    }

    #[test]
    fn a_network_is_judged_by_what_people_must_do() {
        let judged = |edit: &dyn Fn(&mut Value)| {
            let mut status = network();
            edit(&mut status);
            let verdict = judge(&status);
            (verdict.level, verdict.words.join("; "))
        };
        assert_eq!(judged(&|_| ()), (Level::Ok, "generation 2000000".into()));
        assert_eq!(
            judged(&|s| {
                s["nodes"]["a"]["v4"]["state"] = "down".into();
                s["nodes"]["a"]["v4"]["reason"] = "status 503".into();
                s["nodes"]["b"]["v4"]["state"] = "up".into();
            }),
            (Level::Warning, "a v4 is down: status 503".into())
        );
        let (level, words) = judged(&|s| s["nodes"]["a"]["v6"]["state"] = "down".into());
        assert_eq!(level, Level::Critical);
        assert!(words.starts_with("no node serves over v6; a v6 is down"), "{words}");
        let unfit = json!({ "x": [{ "node": "a", "family": "v4", "reason": "status 404" }] });
        let (level, words) = judged(&|s| s["unfit"] = unfit.clone());
        assert_eq!((level, words.as_str()), (Level::Warning, "a v4 is unfit for x: status 404"));
        let orders = |state: &str, why: &str| json!({ "certificates": [{ "name": "x.example", "state": state, "why": why }] });
        for (state, why, level) in [
            ("good", "", Level::Ok),
            ("none", "", Level::Ok),
            ("due", "the authority refuses", Level::Warning),
            ("none", "the authority refuses", Level::Warning),
            ("expired", "", Level::Critical),
        ] {
            assert_eq!(judged(&|s| s["acme"] = orders(state, why)).0, level, "{state} {why}");
        }
        assert_eq!(judged(&|s| s["maps"]["findings"] = json!(["x"])).0, Level::Warning);
        assert_eq!(judged(&|s| s["readers"]["ns1"]["ahead"] = true.into()).0, Level::Warning);
        let alarm = json!([{ "severity": "critical", "text": "nobody has room" }]);
        let (level, words) = judged(&|s| s["alarms"] = alarm.clone());
        assert_eq!((level, words.as_str()), (Level::Critical, "nobody has room"));
        assert_eq!(counted(&network()), " | up=2 down=0 unknown=0 drained=1");
    }

    #[test]
    fn what_is_watched_besides_has_lines() {
        let mut out = String::new();
        let status = json!({
            "unfit": { "x": [{ "node": "a", "family": "v4", "reason": "status 404" }] },
            "masters": { "x": { "m1": { "state": "quarantined", "reason": "is behind" } } },
            "others": [
                { "kind": "redirector", "name": "ns1", "state": "up", "last_result": "answered in 1 ms" },
            ],
            "acme": { "certificates": [
                { "name": "x.example", "state": "good", "not_after": "2027-03-01 00:00:00Z", "why": "" },
                { "name": "y.example", "state": "none", "not_after": null, "why": "no" },
            ] },
            "checkers": { "hc2": { "counts": true, "last_heard_age_ms": 900 }, "hc3": { "counts": false } },
        });
        write_rest(&mut out, &status).unwrap();
        assert_eq!(
            out,
            "unfit       a v4 for x: status 404\n\
             master      x/m1 quarantined: is behind\n\
             redirector  ns1 up: answered in 1 ms\n\
             certificate x.example good until 2027-03-01 00:00:00Z\n\
             certificate y.example none: no\n\
             checker     hc2 counts, heard 0 s ago\n\
             checker     hc3 does not count, never heard\n"
        );
    }

    #[test]
    fn everything_is_in_the_table() {
        assert_eq!(
            table(&network(), 2_060_000),
            "publisher   hc\n\
             generation  2000000, 60 s ago\n\
             \n\
             NODE                 FAMILY  STATE    SINCE                 PROBED  REASON\n\
             a                    v4      up       1970-01-01 00:16:40Z  4 s     status 200 in 3 ms\n\
             a                    v6      up       1970-01-01 00:16:40Z  4 s     status 200\n\
             b                    v4      drained  1970-01-01 00:16:40Z  4 s     new disk\n\
             \n\
             READER               BEHIND   POLLED\n\
             ns1                  -        5 s ago\n\
             ns2                  10 min   10 min ago, silent\n"
        );
    }
}
