//! Every key of the admin maps: what the reader accepts and `docs/maps.md` shows.

use crate::toml_read::{Section, key};

mod steering;

pub(super) use steering::{
    MAP, MAP_ASN, MAP_CONTINENT, MAP_COUNTRY, MAX_SHARE, OVERRIDE, POOL, ROUTE_RULE, SERVE,
};

/// How much of each there may be.
pub(crate) mod limits {
    use std::ops::RangeInclusive;

    /// Largest weight of a node in a pool.
    pub(crate) const WEIGHT: u32 = 65_535;
    /// Addresses of one node or host.
    pub(crate) const NODE_ADDRESSES: usize = 8;
    /// Pools in one list.
    pub(crate) const POOLS: usize = 32;
    /// Overrides of a map.
    pub(crate) const OVERRIDES: usize = 10_000;
    /// Rules of one map by live routes: each is held against every different route.
    pub(crate) const ROUTE_RULES: usize = 1000;
    /// Views that one map believes.
    pub(crate) const VIEWS: usize = 64;
    /// AS numbers and countries that a node serves.
    pub(crate) const SERVE_ASNS: usize = 1000;
    pub(crate) const SERVE_COUNTRIES: usize = 250;
    /// Largest share of a node or site, percent: 100 would be none.
    pub(crate) const SHARE_PERCENT: RangeInclusive<u32> = 1..=99;
    /// How far back shares are counted, seconds.
    pub(crate) const SHARE_WINDOW_S: RangeInclusive<u32> = 10..=3600;
    /// Name servers of a zone.
    pub(crate) const NAME_SERVERS: usize = 13;
    /// TXT records of one name.
    pub(crate) const TXT_RECORDS: usize = 16;
    /// Bytes of the text of one TXT record. All records of a name go into one answer, which has at
    /// most 65,535 bytes with all that is around them.
    pub(crate) const TXT_BYTES: usize = 4000;
    /// Hosts of a project.
    pub(crate) const HOSTS: usize = 1000;
    /// Masters of a project.
    pub(crate) const MASTERS: usize = 16;
    /// TTLs of answers, seconds: below 5 resolvers ask more than they cache, above a day no change
    /// is in effect before the next one.
    pub(crate) const TTL_S: RangeInclusive<u32> = 5..=86_400;
    /// TTL of negative answers, seconds (RFC 2308 section 5 advises 3 hours at most).
    pub(crate) const NEGATIVE_TTL_S: u32 = 10_800;
    /// Nodes in one steered answer.
    pub(crate) const ANSWERS: u32 = 8;
    /// Port of a node.
    pub(crate) const PORT: RangeInclusive<u32> = 1..=65_535;
    /// Names of parameters in the query policy of a project.
    pub(crate) const QUERY_NAMES: usize = 64;
    /// Bytes of the name of one.
    pub(crate) const QUERY_NAME_BYTES: usize = 128;
    /// Request fields that fills carry.
    pub(crate) const REQUEST_FIELDS: usize = 16;
    /// Bytes of the name of one.
    pub(crate) const REQUEST_FIELD_BYTES: usize = 64;
    /// How long an object may be served stale while it is confirmed, seconds: 30 days.
    pub(crate) const STALE_WHILE_REVALIDATE_S: u32 = 2_592_000;
    /// Age below which a reload is answered from what is held, seconds: a day.
    pub(crate) const RELOAD_MIN_AGE_S: u32 = 86_400;
    /// Path policies of a project: each request may be held against all of them.
    pub(crate) const PATHS: usize = 64;
    /// Bytes of a glob.
    pub(crate) const GLOB_BYTES: usize = 256;
    /// Lifetime of objects, seconds: a year (RFC 9111 section 1.2.2 knows up to 2^31).
    pub(crate) const PATH_TTL_S: u32 = 31_536_000;
    /// How long an error is remembered, seconds: a day.
    pub(crate) const PATH_NEGATIVE_TTL_S: u32 = 86_400;
    /// Requests to a master at a time.
    pub(crate) const REQUESTS: RangeInclusive<u32> = 1..=10_000;
    /// Caps of a node: each request is held against all of them.
    pub(crate) const CAPS: usize = 16;
    /// Projects, AS numbers and countries of a cap.
    pub(crate) const CAP_PROJECTS: usize = 100;
    pub(crate) const CAP_ASNS: usize = 1000;
    pub(crate) const CAP_COUNTRIES: usize = 250;
    /// Smallest cap, and smallest commit by p95.
    pub(crate) const CAP_RATE_BITS_S: u64 = 64_000;
    /// Smallest commit by the month.
    pub(crate) const COMMIT_BYTES: u64 = 1_000_000_000;
    /// Smallest budget of a master: below it one block takes minutes, and is given up.
    pub(crate) const MASTER_RATE_BITS_S: u64 = 1_000_000;
}

/// TTL of a zone's own records when the map gives none, seconds.
pub const ZONE_TTL_S: u32 = 3600;
/// TTL of negative answers when the map gives none, seconds.
pub const NEGATIVE_TTL_S: u32 = 60;
/// TTL of steered answers when the map gives none, seconds.
pub const PROJECT_TTL_S: u32 = 60;

/// Nodes in one steered answer when the map gives none.
pub const ANSWERS: u32 = 1;
/// How far back shares are counted when the map gives nothing, seconds.
pub const SHARE_WINDOW_S: u32 = 60;
/// Port of a node's HTTP service when the map gives none.
pub const NODE_PORT: u16 = 80;
/// Age below which a reload is answered from what is held, when the map gives none, seconds.
pub const RELOAD_MIN_AGE_S: u32 = 60;
/// `redirect_above` when none is written.
pub const REDIRECT_ABOVE: model::ByteCount = model::ByteCount(1 << 20);

/// All sections that people write, in the order of the reference page.
pub const SECTIONS: [&Section; 20] = [
    &ROOT,
    &SITE,
    &NODE,
    &CAP,
    &SERVE,
    &POOL,
    &MAP,
    &MAP_ASN,
    &MAP_COUNTRY,
    &MAP_CONTINENT,
    &OVERRIDE,
    &ROUTE_RULE,
    &ZONE,
    &ZONE_SOA,
    &ZONE_HOST,
    &ZONE_TXT,
    &PROJECT,
    &MAX_SHARE,
    &MASTER,
    &PATH,
];

pub(super) const ROOT: Section = Section {
    header: "the whole file",
    keys: &[
        key("site", "tables by name", "none", "where nodes stand"),
        key("node", "tables by name", "none", "the machines that serve clients"),
        key("pool", "tables by name", "none", "sets of nodes with weights"),
        key("map", "tables by name", "none", "which clients get which pools"),
        key("zone", "tables by DNS name", "none", "DNS zones that we are authoritative for"),
        key("project", "tables by name", "none", "the customers of the CDN"),
    ],
};

/// A table whose keys are names: `[node]`, `[pool]`, ...
pub(super) const ENTRIES: Section =
    Section { header: "[KIND.NAME]", keys: &[key("NAME", "table", "none", "an entry")] };

pub(super) const SITE: Section = Section {
    header: "[site.NAME]",
    keys: &[
        key(
            "capacity",
            "rate, such as `\"2 Gbit/s\"`",
            "unlimited",
            "what the uplink of the site carries in all",
        ),
        key(
            "coordinates",
            "`[latitude, longitude]`, degrees, -90 to 90 and -180 to 180",
            "none",
            "where it is on the globe, rounded to six digits after the point; for people",
        ),
    ],
};

pub(super) const NODE: Section = Section {
    header: "[node.NAME]",
    keys: &[
        key("site", "name of a site", "required", "where the node stands"),
        key(
            "addresses",
            "list of 1 to 8 IP addresses",
            "required",
            "what clients get in answers; no two nodes share one",
        ),
        key(
            "country",
            "ISO 3166-1 code in capitals",
            "none",
            "country it stands in; for people and reports",
        ),
        key("asn", "AS number, 1 to 4294967295", "none", "AS it stands in; for people and reports"),
        key(
            "port",
            "1 to 65535",
            "80",
            "where it serves HTTP to clients, and to edges that fill from it",
        ),
        key(
            "admin",
            "`\"http://HOST[:PORT]\"`",
            "none",
            "where `cacheboy purge` reaches its admin listener, most often the near end of a tunnel; no two nodes share one",
        ),
        key("capacity", "rate, such as `\"1 Gbit/s\"`", "unlimited", "what the node can send"),
        key(
            "billing",
            "`p95`, `monthly` or `flat`",
            "not said",
            "what the sponsor's bill goes by: the 95th percentile of 5-minute rates, the bytes of a month, or no traffic",
        ),
        key(
            "commit",
            "with `p95` a rate from `\"64 kbit/s\"` up, with `monthly` a size from `\"1 GB\"` up",
            "required with `p95` and `monthly`",
            "what the sponsor pays for; the node sees to it that the bill stays below it",
        ),
        key(
            "cap",
            "list of tables, 1 to 16, see below",
            "none",
            "what it sends at most to some clients",
        ),
        key("serve", "table, see below", "everybody", "the only clients that it serves"),
        key("sponsor", "text", "none", "who gives it"),
        key(
            "identity",
            "`\"sha256:...\"`, as `cacheboy cert identity` prints it on the node",
            "none: it fetches no certificates",
            "the key by which the publisher knows the node when it fetches certificates",
        ),
        key(
            "trust",
            "`full` or `guest`",
            "`full`",
            "a guest never gets certificates with their keys from the publisher",
        ),
        key(
            "drain",
            "text: why",
            "none",
            "takes it out of all answers while this stands here, whatever probes say",
        ),
    ],
};

pub(super) const CAP: Section = Section {
    header: "[[node.NAME.cap]]",
    keys: &[
        key(
            "rate",
            "rate from `\"64 kbit/s\"` up",
            "required",
            "of content, shared evenly by all it holds for",
        ),
        key("projects", "list of 1 to 100 projects", "all", "for content of these projects"),
        key("asns", "list of 1 to 1000 AS numbers", "all", "for clients in these ASes"),
        key(
            "countries",
            "list of 1 to 250 ISO 3166-1 codes in capitals",
            "all",
            "for clients in these countries",
        ),
    ],
};

pub(super) const ZONE: Section = Section {
    header: "[zone.\"NAME\"]",
    keys: &[
        key(
            "ns",
            "list of 1 to 13 DNS names",
            "required",
            "its name servers; those inside the zone need a `host` entry",
        ),
        key("soa", "table, see below", "required", "start of authority"),
        key(
            "ttl_s",
            "seconds, 5 to 86400",
            "3600",
            "TTL of the zone's own records (SOA, NS, host, txt)",
        ),
        key("host", "table, see below", "none", "fixed addresses of names in the zone"),
        key("txt", "table, see below", "none", "TXT records of names in the zone"),
    ],
};

pub(super) const ZONE_SOA: Section = Section {
    header: "[zone.\"NAME\".soa]",
    keys: &[
        key(
            "contact",
            "DNS name",
            "required",
            "mailbox with a point for the @: `noc.cdn.example` for noc@cdn.example",
        ),
        key(
            "negative_ttl_s",
            "seconds, 0 to 10800",
            "60",
            "how long resolvers remember that a name does not exist",
        ),
    ],
};

pub(super) const ZONE_HOST: Section = Section {
    header: "[zone.\"NAME\".host]",
    keys: &[key(
        "NAME",
        "list of 1 to 8 IP addresses",
        "none",
        "a name in the zone with fixed addresses",
    )],
};

pub(super) const ZONE_TXT: Section = Section {
    header: "[zone.\"NAME\".txt]",
    keys: &[key(
        "NAME",
        "list of 1 to 16 texts of at most 4000 bytes",
        "none",
        "a name in the zone with TXT records, one for each text",
    )],
};

pub(super) const PROJECT: Section = Section {
    header: "[project.NAME]",
    keys: &[
        key(
            "name",
            "DNS name in one of the zones",
            "required",
            "the steered name, to which the customer's name is a CNAME; `NODE.NAME` leads to one node",
        ),
        key(
            "hosts",
            "list of 1 to 1000 DNS names, or `\"*\"`",
            "required",
            "every `Host` that edges accept for it; one project may have `\"*\"`: all that no other has",
        ),
        key("map", "name of a map", "required", "which clients get which pools"),
        key("ttl_s", "seconds, 5 to 86400", "60", "TTL of steered answers"),
        key(
            "all_down",
            "`last-good`, `all`, `pool:NAME`, `nodata` or `servfail`",
            "`last-good`",
            "what is answered when no node of any of its pools is up",
        ),
        key(
            "answers",
            "1 to 8",
            "1",
            "nodes in one answer, of the pool that answers, each once; the first is the one chosen by weight",
        ),
        key(
            "answers_elsewhere",
            "0 to 8, with `answers` at most 8",
            "0",
            "nodes behind those, of the pools further on in the list that serve",
        ),
        key(
            "sticky",
            "true or false",
            "false",
            "whether all clients inside the scope of an answer get the same nodes as long as these serve, rather than others each time",
        ),
        key(
            "ecs",
            "true or false",
            "true",
            "whether the client's network that a resolver tells (RFC 7871) decides; else the resolver's address does, and answers have scope 0",
        ),
        key(
            "tls",
            "`files` or `acme`",
            "`files`",
            "where the certificates of its hosts come from: files on each edge, or ordered by the publisher of node maps and fetched by edges (certificates.md)",
        ),
        key(
            "https_record",
            "true or false",
            "false",
            "whether the name has an HTTPS record (RFC 9460) with `h2`, with `http3` also `h3`, and the addresses of the nodes; browsers then use HTTPS on port 443 from the first request on",
        ),
        key(
            "max_share",
            "table, see below",
            "none",
            "the largest share of its answers that one node, or one site, gets",
        ),
        key(
            "master",
            "tables by name, 1 to 16",
            "required",
            "its origins, tried in the order of their names",
        ),
        key(
            "completion",
            "`popular`, `complete` or `demanded`",
            "`popular`",
            "how much of an object edges fetch: all of it once there is demand, all of it at once, or only what clients ask for",
        ),
        key(
            "query",
            "`keep`, `drop` or a list of 1 to 64 names of parameters",
            "`keep`",
            "what of a query makes another object and goes to masters: all, nothing, or these parameters",
        ),
        key(
            "stale_while_revalidate_s",
            "seconds, 0 to 2592000",
            "0",
            "how long beyond its lifetime an object is served while it is confirmed behind, where the master does not say",
        ),
        key(
            "reload_min_age_s",
            "seconds, 0 to 86400",
            "60",
            "a client that reloads (`no-cache`, `max-age=0`) gets what is held if it was confirmed less than so long ago",
        ),
        key(
            "request_fields",
            "list of 1 to 16 field names in lower case",
            "none",
            "request fields of clients that fills carry to masters; one object for all values",
        ),
        key(
            "unsafe_methods",
            "true or false",
            "false",
            "whether methods other than GET, HEAD, TRACE and CONNECT are passed to a master; else they are answered with 405",
        ),
        key(
            "http3",
            "true or false",
            "false",
            "whether edges offer HTTP/3 to clients that come over HTTPS; bulk over it costs an edge more than twice the CPU",
        ),
        key(
            "redirect",
            "true or false",
            "false",
            "whether edges send clients that belong to another pool, or ask to avoid a node, to another node (302); see [redirect.md](redirect.md)",
        ),
        key(
            "redirect_above",
            "size",
            "`\"1 MiB\"`",
            "clients that belong elsewhere are sent there only for objects of at least this size",
        ),
        key(
            "alternates",
            "true or false",
            "false",
            "whether edges name two other nodes beside content (`Link: rel=duplicate`, RFC 6249)",
        ),
        key(
            "parents",
            "name of a pool",
            "none",
            "edges outside this pool fill from its nodes, and from masters when those fail",
        ),
        key(
            "path",
            "list of tables, 1 to 64, see below",
            "none",
            "what holds for some of its paths; the first that matches decides",
        ),
    ],
};

/// `[project.NAME.master]`, a table whose keys are names.
pub(super) const MASTERS: Section = Section {
    header: "[project.NAME.master.NAME]",
    keys: &[key("NAME", "table", "none", "a master")],
};

pub(super) const MASTER: Section = Section {
    header: "[project.NAME.master.NAME]",
    keys: &[
        key(
            "url",
            "`\"http://HOST[:PORT][/PREFIX]\"`, or with `https://`",
            "required",
            "where it is; the prefix is put before every path; certificates are verified",
        ),
        key(
            "host",
            "`\"HOST\"` or `\"HOST:PORT\"`",
            "the one in `url`",
            "the `Host` that is sent to it, and the name that its certificate must have",
        ),
        key(
            "requests_max",
            "1 to 10000",
            "64",
            "requests that one edge has under way to it at a time",
        ),
        key(
            "rate",
            "rate from `\"1 Mbit/s\"` up",
            "unlimited",
            "what one edge fetches from it at most",
        ),
    ],
};

pub(super) const PATH: Section = Section {
    header: "[[project.NAME.path]]",
    keys: &[
        key(
            "glob",
            "pattern of at most 256 bytes, without the leading slash",
            "required",
            "the paths: `*` and `?` stay inside a segment, `**` crosses slashes, `[ab]` and `{a,b}` are alternatives",
        ),
        key(
            "ttl_s",
            "seconds, 0 to 31536000",
            "what the master says",
            "how long after the master gave or confirmed it an object is fresh; 0: confirmed at every request",
        ),
        key(
            "negative_ttl_s",
            "seconds, 0 to 86400",
            "30, or what the master says",
            "how long a 404 or 410 is remembered; 0: not at all",
        ),
        key(
            "completion",
            "`popular`, `complete` or `demanded`",
            "the project's",
            "how much of an object edges fetch",
        ),
        key(
            "group",
            "name",
            "none",
            "objects of one group are confirmed together, every `ttl_s` seconds by the wall clock, the same on all edges",
        ),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_as_they_are() {
        let kind = |section: &Section, name: &str| {
            section.keys.iter().find(|k| k.name == name).unwrap().kind
        };
        let ttl = format!("seconds, {} to {}", limits::TTL_S.start(), limits::TTL_S.end());
        for (section, name, limit) in [
            (&NODE, "addresses", format!("1 to {} IP", limits::NODE_ADDRESSES)),
            (&ZONE_HOST, "NAME", format!("1 to {} IP", limits::NODE_ADDRESSES)),
            (&POOL, "NAME", format!("0 to {}", limits::WEIGHT)),
            (&MAP, "default", format!("1 to {} pools", limits::POOLS)),
            (&MAP_ASN, "NUMBER", format!("1 to {} pools", limits::POOLS)),
            (&MAP_COUNTRY, "CODE", format!("1 to {} pools", limits::POOLS)),
            (&MAP_CONTINENT, "CODE", format!("1 to {} pools", limits::POOLS)),
            (&ZONE, "ns", format!("1 to {} DNS", limits::NAME_SERVERS)),
            (&ZONE, "ttl_s", ttl.clone()),
            (&ZONE_SOA, "negative_ttl_s", format!("0 to {}", limits::NEGATIVE_TTL_S)),
            (&ZONE_TXT, "NAME", format!("1 to {} texts", limits::TXT_RECORDS)),
            (&ZONE_TXT, "NAME", format!("{} bytes", limits::TXT_BYTES)),
            (&PROJECT, "hosts", format!("1 to {} DNS", limits::HOSTS)),
            (&PROJECT, "ttl_s", ttl),
            (&MAP, "override", format!("1 to {}", limits::OVERRIDES)),
            (&MAP, "rule", format!("1 to {}", limits::ROUTE_RULES)),
            (&MAP, "views", format!("1 to {} views", limits::VIEWS)),
            (&ROUTE_RULE, "pools", format!("1 to {} pools", limits::POOLS)),
            (&OVERRIDE, "pools", format!("1 to {} pools", limits::POOLS)),
            (&SERVE, "asn", format!("1 to {} AS", limits::SERVE_ASNS)),
            (&SERVE, "country", format!("1 to {} ISO", limits::SERVE_COUNTRIES)),
            (
                &MAX_SHARE,
                "nodes",
                format!("{} to {}", limits::SHARE_PERCENT.start(), limits::SHARE_PERCENT.end()),
            ),
            (
                &MAX_SHARE,
                "sites",
                format!("{} to {}", limits::SHARE_PERCENT.start(), limits::SHARE_PERCENT.end()),
            ),
            (
                &MAX_SHARE,
                "window_s",
                format!("{} to {}", limits::SHARE_WINDOW_S.start(), limits::SHARE_WINDOW_S.end()),
            ),
            (&PROJECT, "answers", format!("1 to {}", limits::ANSWERS)),
            (&PROJECT, "answers_elsewhere", format!("0 to {}", limits::ANSWERS)),
            (&PROJECT, "master", format!("1 to {}", limits::MASTERS)),
            (&NODE, "port", format!("{} to {}", limits::PORT.start(), limits::PORT.end())),
            (&NODE, "cap", format!("1 to {}", limits::CAPS)),
            (&NODE, "commit", format!("\"{}\"", model::Rate(limits::CAP_RATE_BITS_S))),
            (&NODE, "commit", format!("\"{}\"", model::ByteCount(limits::COMMIT_BYTES))),
            (&CAP, "rate", format!("\"{}\"", model::Rate(limits::CAP_RATE_BITS_S))),
            (&CAP, "projects", format!("1 to {} projects", limits::CAP_PROJECTS)),
            (&CAP, "asns", format!("1 to {} AS", limits::CAP_ASNS)),
            (&CAP, "countries", format!("1 to {} ISO", limits::CAP_COUNTRIES)),
            (&PROJECT, "query", format!("1 to {} names", limits::QUERY_NAMES)),
            (
                &PROJECT,
                "stale_while_revalidate_s",
                format!("0 to {}", limits::STALE_WHILE_REVALIDATE_S),
            ),
            (&PROJECT, "reload_min_age_s", format!("0 to {}", limits::RELOAD_MIN_AGE_S)),
            (&PROJECT, "request_fields", format!("1 to {} field", limits::REQUEST_FIELDS)),
            (&PROJECT, "path", format!("1 to {}", limits::PATHS)),
            (
                &MASTER,
                "requests_max",
                format!("{} to {}", limits::REQUESTS.start(), limits::REQUESTS.end()),
            ),
            (&MASTER, "rate", format!("\"{}\"", model::Rate(limits::MASTER_RATE_BITS_S))),
            (&PATH, "glob", format!("{} bytes", limits::GLOB_BYTES)),
            (&PATH, "ttl_s", format!("0 to {}", limits::PATH_TTL_S)),
            (&PATH, "negative_ttl_s", format!("0 to {}", limits::PATH_NEGATIVE_TTL_S)),
        ] {
            let kind = kind(section, name);
            assert!(kind.contains(&limit), "{} {name}: {kind:?} has no {limit:?}", section.header);
        }
    }
}
