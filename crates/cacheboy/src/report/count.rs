//! What a line is counted under.

use std::collections::HashMap;
use std::net::IpAddr;

use locate::Locator;
use model::CountryCode;
use nodemap::{AdminMap, HostPattern};
use usage::read::{Access, Connection, Line};
use usage::sums::{Place, Sums};
use usage::table::{BETWEEN, Subject};

use super::files::Count;

/// What is asked of the logs, and what is needed to understand them.
#[derive(Debug)]
pub(crate) struct What {
    pub(crate) subject: Subject,
    pub(crate) period: Period,
    /// Tells the country of lines that do not.
    pub(crate) locator: Option<Locator>,
    /// Tells the project of lines that do not.
    pub(crate) hosts: Hosts,
}

/// The time whose lines count, milliseconds since 1970 UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// From this on.
    pub(crate) from_ms: Option<u64>,
    /// Before this.
    pub(crate) to_ms: Option<u64>,
}

impl Period {
    pub(crate) fn holds(self, ended_ms: u64) -> bool {
        self.from_ms.is_none_or(|from| ended_ms >= from)
            && self.to_ms.is_none_or(|to| ended_ms < to)
    }
}

/// Host -> project.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    exact: HashMap<Vec<u8>, Vec<u8>>,
    /// The project that has all other hosts.
    any: Option<Vec<u8>>,
}

impl Hosts {
    pub(crate) fn new(map: &AdminMap) -> Self {
        let mut hosts = Self::default();
        for (name, project) in &map.projects {
            let name = name.as_str().as_bytes().to_vec();
            for pattern in &project.hosts {
                match pattern {
                    HostPattern::Exact(host) => {
                        hosts.exact.insert(host.as_str().as_bytes().to_vec(), name.clone());
                    }
                    HostPattern::Any => hosts.any = Some(name.clone()),
                }
            }
        }
        hosts
    }

    /// The project that has the host of a URL, else the host itself without its port; `buffer` is room
    /// for that.
    pub(crate) fn project<'a>(&'a self, host: &[u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let port = host.iter().rposition(|byte| !byte.is_ascii_digit());
        let name = match port {
            Some(at) if host.get(at) == Some(&b':') => host.get(..at).unwrap_or_default(),
            _ => host,
        };
        let name = name.strip_suffix(b".").unwrap_or(name);
        buffer.clear();
        buffer.extend(name.iter().map(u8::to_ascii_lowercase));
        match self.exact.get(buffer).or(self.any.as_ref()) {
            Some(project) => project,
            None => buffer,
        }
    }
}

/// Counts lines.
#[derive(Debug)]
pub(crate) struct Counter<'a> {
    what: &'a What,
    pub(crate) sums: Sums,
    /// Room for a key that is made.
    key: Vec<u8>,
}

impl Count for Counter<'_> {
    /// Counts a line, if it is of the period that is asked for.
    fn count(&mut self, line: &Line<'_>) {
        let (Line::Access(Access { ended_ms, .. }) | Line::Connection(Connection { ended_ms, .. })) =
            line;
        if !self.what.period.holds(*ended_ms) {
            return;
        }
        match line {
            Line::Access(access) if access.is_health => {}
            Line::Access(access) => self.access(access),
            Line::Connection(connection) => self.connection(connection),
        }
    }
}

impl<'a> Counter<'a> {
    pub(crate) fn new(what: &'a What) -> Self {
        Self { what, sums: Sums::default(), key: Vec::new() }
    }

    fn access(&mut self, access: &Access<'_>) {
        let What { locator, hosts, .. } = self.what;
        let country: Option<CountryCode>;
        let place = match self.what.subject {
            Subject::Asn => Place::Key(&access.asn),
            Subject::Country if !access.country.is_empty() => Place::Key(&access.country),
            Subject::Country => {
                let client = address(&access.client);
                country = client.and_then(|client| locator.as_ref()?.locate(client).country);
                Place::Key(country.as_ref().map_or(&[], |country| country.as_str().as_bytes()))
            }
            Subject::Project => Place::Key(match &access.project {
                Some(project) => project,
                None => hosts.project(&access.host, &mut self.key),
            }),
            Subject::Node if access.node.is_empty() => Place::Unknown,
            Subject::Node => Place::Key(&access.node),
            Subject::Missteered => match &access.missteered {
                None => Place::Unknown,
                Some(pool) if pool.is_empty() => Place::Nowhere,
                Some(pool) => {
                    self.key.clear();
                    self.key.extend_from_slice(&access.node);
                    self.key.push(BETWEEN);
                    self.key.extend_from_slice(pool);
                    Place::Key(&self.key)
                }
            },
        };
        self.sums.add(place, access.bytes, &access.limit, access.ended_ms);
    }

    fn connection(&mut self, connection: &Connection<'_>) {
        let key = match self.what.subject {
            Subject::Asn => &connection.asn,
            Subject::Country => &connection.country,
            Subject::Node => &connection.node,
            // Connections carry requests of several projects.
            Subject::Project | Subject::Missteered => return,
        };
        self.sums.add_way(key, &connection.way);
    }
}

/// The address of a client; of a truncated one, the first it may have been.
pub(crate) fn address(client: &[u8]) -> Option<IpAddr> {
    let client = std::str::from_utf8(client).ok()?;
    client.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls_are_those_of_projects() {
        let name = |text: &str| text.as_bytes().to_vec();
        let exact = HashMap::from([(name("a.example"), name("a"))]);
        let some = Hosts { exact: exact.clone(), any: None };
        let all = Hosts { exact, any: Some(name("b")) };
        for (host, project) in [
            ("a.example", "a"),
            ("A.Example.:8080", "a"),
            ("other.example:80", "other.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("192.0.2.1", "192.0.2.1"),
            ("", ""),
            ("80", "80"),
        ] {
            assert_eq!(
                some.project(host.as_bytes(), &mut Vec::new()),
                project.as_bytes(),
                "{host}"
            );
            let project = if project == "a" { "a" } else { "b" };
            assert_eq!(all.project(host.as_bytes(), &mut Vec::new()), project.as_bytes(), "{host}");
        }
    }
}
