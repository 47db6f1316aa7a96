//! From the table of a project to a [`Project`].

use std::collections::BTreeMap;
use std::str::FromStr;

use model::{Completion, Name, Query, Rate};

use super::schema::{self, limits};
use super::{
    AllDown, HostPattern, Master, MaxShare, PathPolicy, Project, ProjectTls, fields, master,
};
use crate::toml_read::{Table, Value};
use crate::words::{clip, guess, list};

pub(super) fn read_project(table: &Table<'_>) -> Option<Project> {
    let name = table.need("name", "\"PROJECT.cdn.example\"").and_then(|v| v.host_name());
    let hosts = table
        .need("hosts", "[\"download.PROJECT.example\"]")
        .map(|v| v.list_of(limits::HOSTS, "hosts", host_pattern))
        .unwrap_or_default();
    let map = table.need("map", "\"default\"").and_then(|v| v.name());
    let ttl_s = table.get("ttl_s").and_then(|v| v.u32_in(limits::TTL_S));
    let all_down = table.get("all_down").and_then(|v| read_all_down(&v));
    let (answers, answers_elsewhere) = read_answers(table);
    let sticky = table.get("sticky").and_then(|v| v.bool());
    let ecs = table.get("ecs").and_then(|v| v.bool());
    let tls = table.get("tls").and_then(|v| read_tls(&v));
    let https_record = table.get("https_record").and_then(|v| v.bool());
    let max_share = table.get("max_share").and_then(|v| read_max_share(&v));
    let masters = read_masters(table);
    let completion = table.get("completion").and_then(|v| read_completion(&v));
    let query = table.get("query").and_then(|v| read_query(&v));
    let seconds = |key, max| table.get(key).and_then(|v| v.u32_in(0..=max));
    let stale = seconds("stale_while_revalidate_s", limits::STALE_WHILE_REVALIDATE_S);
    let reload = seconds("reload_min_age_s", limits::RELOAD_MIN_AGE_S);
    let fields = table.get("request_fields");
    let fields = fields.map(|v| v.list_of(limits::REQUEST_FIELDS, "field names", request_field));
    let unsafe_methods = table.get("unsafe_methods").and_then(|v| v.bool());
    let http3 = table.get("http3").and_then(|v| v.bool());
    let redirect = table.get("redirect").and_then(|v| v.bool());
    let above = table.get("redirect_above").and_then(|v| v.bytes());
    let alternates = table.get("alternates").and_then(|v| v.bool());
    let parents = table.get("parents").and_then(|v| v.name());
    let paths = table.get("path").map(|v| v.tables_of(limits::PATHS, "paths", read_path));
    Some(Project {
        name: name?,
        hosts,
        map: map?,
        ttl_s: ttl_s.unwrap_or(schema::PROJECT_TTL_S),
        all_down: all_down.unwrap_or_default(),
        answers,
        answers_elsewhere,
        sticky: sticky.unwrap_or_default(),
        ecs: ecs.unwrap_or(true),
        tls: tls.unwrap_or_default(),
        https_record: https_record.unwrap_or_default(),
        max_share,
        masters,
        completion: completion.unwrap_or_default(),
        query: query.unwrap_or_default(),
        stale_while_revalidate_s: stale.unwrap_or_default(),
        reload_min_age_s: reload.unwrap_or(schema::RELOAD_MIN_AGE_S),
        request_fields: fields.unwrap_or_default(),
        unsafe_methods: unsafe_methods.unwrap_or_default(),
        http3: http3.unwrap_or_default(),
        redirect: redirect.unwrap_or_default(),
        redirect_above: above.unwrap_or(schema::REDIRECT_ABOVE),
        alternates: alternates.unwrap_or_default(),
        parents,
        paths: paths.unwrap_or_default(),
    })
}

fn read_tls(value: &Value<'_>) -> Option<ProjectTls> {
    match value.text()? {
        "files" => Some(ProjectTls::Files),
        "acme" => Some(ProjectTls::Acme),
        _ => {
            value.refuse("says not where certificates come from", "write \"files\" or \"acme\"");
            None
        }
    }
}

/// `answers` and `answers_elsewhere`, which share the places of an answer.
fn read_answers(table: &Table<'_>) -> (u32, u32) {
    let elsewhere = table.get("answers_elsewhere");
    let answers = table.get("answers").and_then(|v| v.u32_in(1..=limits::ANSWERS));
    let answers = answers.unwrap_or(schema::ANSWERS);
    let most = limits::ANSWERS.saturating_sub(answers);
    let behind = elsewhere.and_then(|v| {
        let behind = v.u32_in(0..=limits::ANSWERS)?;
        if behind > most {
            let problem = format!("{behind} nodes behind {answers} are too many for one answer");
            v.refuse(problem, format!("write at most {most}, or a smaller answers"));
        }
        Some(behind.min(most))
    });
    (answers, behind.unwrap_or_default())
}

fn read_max_share(value: &Value<'_>) -> Option<MaxShare> {
    let table = value.table(&schema::MAX_SHARE)?;
    let percent = |key| table.get(key).map(|v| v.u32_in(limits::SHARE_PERCENT));
    let (nodes, sites) = (percent("nodes"), percent("sites"));
    let window_s = table.get("window_s").and_then(|v| v.u32_in(limits::SHARE_WINDOW_S));
    if nodes.is_none() && sites.is_none() {
        table.refuse("limits nothing", "add nodes = 50 or sites = 50, or take it out");
        return None;
    }
    Some(MaxShare {
        nodes: nodes.flatten(),
        sites: sites.flatten(),
        window_s: window_s.unwrap_or(schema::SHARE_WINDOW_S),
    })
}

fn host_pattern(value: &Value<'_>) -> Option<HostPattern> {
    let text = value.text()?;
    let refuse = |problem: &str, remedy: &str| {
        value.refuse(format!("{:?} {problem}", clip(text)), remedy);
        None
    };
    match text {
        "*" => Some(HostPattern::Any),
        text if text.contains('/') => {
            refuse("is a URL", "write its host alone, without http:// and path")
        }
        text if text.contains(':') => {
            refuse("has a port", "write the host alone; it holds on every port")
        }
        text if text.contains('*') => refuse(
            "is a pattern",
            "write every host out, or \"*\" alone for all that no other project has",
        ),
        _ => value.host_name().map(HostPattern::Exact),
    }
}

fn read_all_down(value: &Value<'_>) -> Option<AllDown> {
    let text = value.text()?;
    let read = AllDown::try_from(text.to_owned());
    if read.is_err() {
        value.refuse(
            format!("{:?} is no way to answer", clip(text)),
            "write last-good, all, pool:NAME, nodata or servfail",
        );
    }
    read.ok()
}

fn read_completion(value: &Value<'_>) -> Option<Completion> {
    word_of(value, "way to complete an object", &Completion::ALL.map(|c| c.to_string()))
}

fn read_query(value: &Value<'_>) -> Option<Query> {
    if value.is_list() {
        let names = value.list_of(limits::QUERY_NAMES, "names of parameters", query_name);
        return (!names.is_empty()).then_some(Query::Only(names));
    }
    let remedy = "write keep, drop or a list of parameter names: [\"id\", \"v\"]";
    value.text_or(remedy)?;
    word_of(value, "query policy", &["keep", "drop", "a list of names"].map(str::to_owned))
}

/// A value that is one of a few words.
pub(super) fn word_of<T: FromStr>(value: &Value<'_>, what: &str, words: &[String]) -> Option<T> {
    let text = value.text()?;
    let read = text.parse().ok();
    if read.is_none() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let remedy = format!("{}write one of: {}", guess(text, &words), list(&words));
        value.refuse(format!("{:?} is no {what}", clip(text)), remedy);
    }
    read
}

/// A name as it stands in URLs (RFC 3986 `query`, without what separates parameters).
fn query_name(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let plain = |b: u8| b.is_ascii_graphic() && !b"&=#?\"<>\\^`{|}".contains(&b);
    if text.is_empty() || text.len() > limits::QUERY_NAME_BYTES || !text.bytes().all(plain) {
        let remedy = format!(
            "write it as it stands in URLs before the =, with %XX for what may not stand there, \
             at most {} bytes",
            limits::QUERY_NAME_BYTES
        );
        value.refuse(format!("{:?} is not the name of a parameter", clip(text)), remedy);
        return None;
    }
    Some(text.to_owned())
}

fn request_field(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if let Err(fault) = fields::check(text) {
        value.refuse(format!("{:?} {fault}", clip(text)), fault.remedy());
        return None;
    }
    Some(text.to_owned())
}

fn read_path(value: &Value<'_>) -> Option<PathPolicy> {
    let table = value.table(&schema::PATH)?;
    let glob = table.need("glob", "\"**/SHA256SUMS*\"").and_then(|v| v.parsed("a glob"));
    let seconds = |key, max| table.get(key).and_then(|v| v.u32_in(0..=max));
    let policy = PathPolicy {
        glob: glob?,
        ttl_s: seconds("ttl_s", limits::PATH_TTL_S),
        negative_ttl_s: seconds("negative_ttl_s", limits::PATH_NEGATIVE_TTL_S),
        completion: table.get("completion").and_then(|v| read_completion(&v)),
        group: table.get("group").and_then(|v| v.name()),
    };
    if policy.group.is_some() && table.get("ttl_s").is_none() {
        table.refuse(
            "has a group and no ttl_s",
            "add ttl_s = 60: the seconds from one confirmation of the group to the next",
        );
    }
    if policy.group.is_some() && policy.ttl_s == Some(0) {
        let remedy = "write 1 or more: the group is confirmed every so many seconds";
        table.refuse("has a group and ttl_s = 0", remedy);
    }
    Some(policy)
}

fn read_master_rate(value: &Value<'_>) -> Option<Rate> {
    let rate = value.rate()?;
    if rate.0 < limits::MASTER_RATE_BITS_S {
        value.refuse(
            format!("{rate} is too little to fetch blocks with"),
            format!("write \"{}\" or more", Rate(limits::MASTER_RATE_BITS_S)),
        );
        return None;
    }
    Some(rate)
}

fn read_masters(table: &Table<'_>) -> BTreeMap<Name, Master> {
    let example = "{ m1 = { url = \"http://master1.example:8080\" } }";
    let Some(masters) = table.need("master", example).and_then(|v| v.table(&schema::MASTERS))
    else {
        return BTreeMap::new();
    };
    if masters.is_empty() {
        masters.refuse("has no masters", format!("name at least one: master = {example}"));
    }
    let mut read = BTreeMap::new();
    for (at, (word, value)) in masters.entries().enumerate() {
        if at == limits::MASTERS {
            word.refuse("is one master too many", format!("give at most {}", limits::MASTERS));
        }
        let name = word.parse("a name");
        let Some(table) = value.table(&schema::MASTER) else { continue };
        let url = table.need("url", "\"http://master1.example:8080\"");
        let url = url.and_then(|v| master::read_url(&v));
        let host = table.get("host").and_then(|v| master::read_host(&v));
        let requests_max = table.get("requests_max").and_then(|v| v.u32_in(limits::REQUESTS));
        let rate = table.get("rate").and_then(|v| read_master_rate(&v));
        if let (Some(name), Some(url)) = (name, url) {
            read.insert(name, Master { url, host, requests_max, rate });
        }
    }
    read
}
