//! Every key of a host's config file: what the reader accepts and `docs/config.md` shows.

use nodemap::toml_read::{Key, Section, key};

mod bgp;
mod health;
mod location;

pub(crate) use bgp::{BGP, BGP_MRT, BGP_PEER};
pub(crate) use health::{
    HEALTH, HEALTH_ACME, HEALTH_CANARY, HEALTH_CONNECT_TO, HEALTH_MASTER, HEALTH_OUTSIDE,
    HEALTH_PEER, HEALTH_PROBE, HEALTH_REDIRECTOR,
};
pub(crate) use location::LOCATION;

/// How much of each there may be.
pub(crate) mod limits {
    use std::ops::RangeInclusive;

    /// Addresses that one role listens on.
    pub(crate) const LISTEN: usize = 16;
    /// Certificates of a host.
    pub(crate) const CERTIFICATES: usize = 1000;
    /// The least rate of a connection, bits per second.
    pub(crate) const RATE_MIN: u64 = 64_000;
    /// Sources of the node map.
    pub(crate) const SOURCES: usize = 8;
    /// Checks of each kind.
    pub(crate) const CHECKS: usize = 1000;
    /// Probes a second.
    pub(crate) const PROBES_PER_SECOND: RangeInclusive<u32> = 1..=100_000;
    /// How far a master may be behind, seconds: up to 30 days.
    pub(crate) const BEHIND_S: RangeInclusive<u32> = 1..=30 * 86_400;
    /// Whom an authority of certificates may write to.
    pub(crate) const CONTACTS: usize = 8;
    /// Keys that may sign node maps.
    pub(crate) const TRUSTED_KEYS: usize = 8;
    /// Bytes of the name of a network interface.
    pub(crate) const INTERFACE_BYTES: usize = 15;
    /// Disks of an edge.
    pub(crate) const STORES: usize = 64;
    /// Access logs of an edge.
    pub(crate) const LOGS: usize = 4;
    /// How long routes stay without a session, seconds.
    pub(crate) const ROUTES_HOLD_S: RangeInclusive<u32> = 0..=86_400;
    /// How many percent of clients an edit of the maps may move.
    pub(crate) const MAPS_MOVE_PERCENT: RangeInclusive<u32> = 1..=100;
    /// How many percent of clients a changed database may move.
    pub(crate) const DATABASES_MOVE_PERCENT: RangeInclusive<u32> = 1..=100;
    /// How many percent of clients a change of routes moves at once.
    pub(crate) const ROUTES_MOVE_PERCENT: RangeInclusive<u32> = 1..=100;
    /// Patience with masters, milliseconds.
    pub(crate) const TIMEOUT_MS: RangeInclusive<u32> = 10..=600_000;
    /// After SIGTERM: how long it is said, seconds.
    pub(crate) const NOTICE_S: RangeInclusive<u32> = 0..=3600;
    /// And how long running responses then have, seconds: up to a week.
    pub(crate) const DEADLINE_S: RangeInclusive<u32> = 0..=7 * 24 * 60 * 60;
    /// A store's blocks, bytes: a multiple of the smallest.
    pub(crate) const BLOCK_BYTES: RangeInclusive<u32> = 4096..=64 << 20;
    /// Blocks that a store, and the memory for fills, must have room for.
    pub(crate) const STORE_BLOCKS_MIN: u64 = 8;
    /// See [`STORE_BLOCKS_MIN`]; an edge fills at least two at a time.
    pub(crate) const FILL_BLOCKS_MIN: u64 = 2;
    /// Connections of an edge's clients.
    pub(crate) const CONNECTIONS: RangeInclusive<u32> = 1..=1_000_000;
    /// The head of a request, bytes.
    pub(crate) const HEAD_BYTES: RangeInclusive<u64> = 8 << 10..=256 << 10;
    /// Patience with the head of a request, seconds.
    pub(crate) const HEAD_TIMEOUT_S: RangeInclusive<u32> = 1..=600;
    /// Requests of one client at once, and copies of one object for one network a day.
    pub(crate) const PER_CLIENT: RangeInclusive<u32> = 1..=10_000;
    /// Networks that are never counted.
    pub(crate) const EXEMPT: usize = 1000;
    /// Prefixes of proxies.
    pub(crate) const PROXIES: usize = 64;
    /// Answers of a kind for a network, a second.
    pub(crate) const SAMPLE: RangeInclusive<u32> = 1..=1_000_000;
    pub(crate) const ANSWERS_PER_SECOND: RangeInclusive<u32> = 0..=dns::PER_SECOND_MAX;
    /// Of limited answers each how manieth is cut.
    pub(crate) const SLIP: RangeInclusive<u32> = 0..=15;
    /// Zones that are signed.
    pub(crate) const SIGNED_ZONES: usize = 1000;
    /// Keys of a zone with one duty.
    pub(crate) const KEYS: usize = 4;
    pub(crate) const TRANSFER_KEYS: usize = 16;
    /// How long signatures hold, seconds: more than the TTLs in caches, and less than one would wait
    /// for a stolen key's signatures to end.
    pub(crate) const VALIDITY_S: RangeInclusive<u32> = 86_400..=30 * 86_400;
    /// Hold times, seconds.
    pub(crate) const HOLD_S: RangeInclusive<u32> = 3..=3600;
    /// Routes of a peer.
    pub(crate) const PREFIXES: RangeInclusive<u32> = 1..=20_000_000;
    /// Hops to a peer.
    pub(crate) const HOPS: RangeInclusive<u32> = 1..=254;
    /// Threads for UDP.
    pub(crate) const UDP_THREADS: RangeInclusive<u32> = 1..=256;
}

/// All sections, in the order of the reference page.
pub const SECTIONS: [&Section; 32] = [
    &ROOT,
    &HOST,
    &FOLLOW,
    &LOCATION,
    &ADMIN,
    &TLS,
    &TLS_CERTIFICATE,
    &EDGE,
    &EDGE_LISTEN,
    &EDGE_STORE,
    &EDGE_LIMITS,
    &EDGE_LOG,
    &EDGE_BILL,
    &DNS,
    &DNS_RATE_LIMIT,
    &DNS_LOG,
    &DNS_SIGN,
    &DNS_TRANSFER,
    &HEALTH,
    &HEALTH_PROBE,
    &HEALTH_CONNECT_TO,
    &HEALTH_CANARY,
    &HEALTH_MASTER,
    &HEALTH_REDIRECTOR,
    &HEALTH_OUTSIDE,
    &HEALTH_PEER,
    &HEALTH_ACME,
    &MASTER,
    &MASTER_LISTEN,
    &BGP,
    &BGP_PEER,
    &BGP_MRT,
];

pub(crate) const ROOT: Section = Section {
    header: "the whole file",
    keys: &[
        key("host", "table", "required", "which host this is"),
        key("follow", "table", "required with `edge` or `dns`", "where the node map comes from"),
        key("location", "table", "none", "databases that say where a client address is"),
        key(
            "admin",
            "table",
            "no admin listener",
            "metrics and status of this host, and purging it",
        ),
        key("tls", "table", "none", "certificates of the listeners that speak TLS"),
        key("edge", "table", "not played", "serves content to clients"),
        key("dns", "table", "not played", "answers DNS queries with the right nodes"),
        key("health", "table", "not played", "probes nodes and publishes the node map"),
        key("master", "table", "not played", "holds the full tree that edges fill from"),
        key("bgp", "table", "not played", "hears the routes of routers"),
    ],
};

pub(crate) const HOST: Section = Section {
    header: "[host]",
    keys: &[
        key(
            "name",
            "name: `a-z`, `0-9` and `-`",
            "required",
            "this host; an edge is called as its node in the maps",
        ),
        key(
            "state_dir",
            "folder",
            "required",
            "where the host keeps what it must know after a restart; made when it is not there; one process at a time",
        ),
    ],
};

pub(crate) const FOLLOW: Section = Section {
    header: "[follow]",
    keys: &[
        key(
            "node_map",
            "list of 1 to 8 `\"http://HOST[:PORT]/node-map\"` or files",
            "required",
            "where the node map comes from, tried in order; a file must be replaced whole (renamed into place)",
        ),
        key(
            "keys",
            "list of 1 to 8 public keys of minisign: `\"RW...\"`",
            "none: every node map is taken",
            "one of them must have signed the node map, also the one on disk; that of a file is in `FILE.minisig`",
        ),
    ],
};

pub(crate) const ADMIN: Section = Section {
    header: "[admin]",
    keys: &[key(
        "listen",
        "`\"unix:PATH\"` or `\"127.0.0.1:PORT\"`",
        "required",
        "where `/metrics`, `/status` and, on an edge, `/purge` are served; only a unix socket or a loopback address: who can connect may do all of it",
    )],
};

pub(crate) const TLS: Section = Section {
    header: "[tls]",
    keys: &[
        key(
            "certificate",
            "list of tables, 1 to 1000",
            "required without `publisher`",
            "what clients are shown, chosen by the name they ask for; the first also for those that name no host (see tls.md)",
        ),
        key(
            "publisher",
            "true or false",
            "false",
            "an edge also fetches the certificates of the projects that it serves from the publisher of node maps (see certificates.md)",
        ),
    ],
};

pub(crate) const TLS_CERTIFICATE: Section = Section {
    header: "[[tls.certificate]]",
    keys: &[
        key(
            "chain",
            "PEM file",
            "required",
            "the certificate of the host, then those that lead to its authority; its names say for which hosts it is",
        ),
        key("key", "PEM file", "required", "its private key"),
    ],
};

pub(crate) const EDGE: Section = Section {
    header: "[edge]",
    keys: &[
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"` or tables, see below",
            "required",
            "where clients are served; an address alone is plain HTTP",
        ),
        key(
            "store",
            "list of tables, 1 to 64",
            "required",
            "the disks of the cache; an object lies on one of them",
        ),
        key("limits", "table, see below", "as its keys say", "what clients may take"),
        key("log", "list of tables, up to 4", "none", "access logs, see below"),
        key(
            "connect_timeout_ms",
            "milliseconds, 10 to 600000",
            "3000",
            "how long a connection to a master may take",
        ),
        key(
            "first_byte_timeout_ms",
            "milliseconds, 10 to 600000",
            "15000",
            "how long a master may take to begin its answer",
        ),
        key(
            "between_bytes_timeout_ms",
            "milliseconds, 10 to 600000",
            "15000",
            "how long a master may pause inside an answer",
        ),
        key(
            "fill_memory",
            "size, at least 2 blocks",
            "`\"256 MiB\"`",
            "memory for blocks on their way from masters",
        ),
        key(
            "store_memory",
            "size",
            "`\"256 MiB\"`",
            "memory for what the stores hold: heads, block maps, small bodies that are asked for often",
        ),
        key(
            "upstream_ca",
            "PEM file",
            "none: only those of the system",
            "certificates of authorities that `https://` masters may have theirs from, beside those that the system trusts",
        ),
        key("bill", "table, see below", "none", "how the traffic of the node is counted"),
        key(
            "drain_notice_s",
            "seconds, 0 to 3600",
            "30",
            "after SIGTERM, how long the health page says `draining` while connections are still taken: long enough for health to notice",
        ),
        key(
            "drain_deadline_s",
            "seconds, 0 to 604800",
            "21600",
            "how long running responses have once no connections are taken any more, after SIGTERM or when a successor has taken over",
        ),
    ],
};

const ADDRESS: Key = key("address", "`\"ADDRESS:PORT\"`", "required", "where");
const TLS_OF_LISTENER: Key =
    key("tls", "true or false", "false", "HTTPS, with the certificates of `[tls]`");
const CONGESTION: Key = key(
    "congestion",
    "a name that the kernel has, such as `\"bbr\"`",
    "as the system has it",
    "congestion control of its connections",
);
const RATE: Key = key(
    "rate",
    "rate, at least `\"64 kbit/s\"`",
    "no limit",
    "the most that one connection is sent; the kernel paces it",
);

pub(crate) const EDGE_LISTEN: Section = Section {
    header: "[[edge.listen]]",
    keys: &[
        ADDRESS,
        TLS_OF_LISTENER,
        key(
            "http3",
            "true or false",
            "false",
            "HTTP/3 too, over UDP on the same port; needs `tls`",
        ),
        CONGESTION,
        RATE,
    ],
};

pub(crate) const EDGE_BILL: Section = Section {
    header: "[edge.bill]",
    keys: &[key(
        "interface",
        "name of a network interface, such as `\"eth0\"`",
        "none: content that the edge sends and receives itself",
        "whose traffic is billed: all of it counts, as the kernel has it",
    )],
};

pub(crate) const EDGE_STORE: Section = Section {
    header: "[[edge.store]]",
    keys: &[
        key(
            "path",
            "folder",
            "required",
            "where this store lies; made when it is not there, used by nothing else",
        ),
        key(
            "size",
            "size, such as `\"900 GiB\"`, at least 8 blocks",
            "required",
            "what the store may occupy on its disk: a hard ceiling",
        ),
        key(
            "block",
            "size, 4 KiB to 64 MiB in steps of 4 KiB",
            "`\"256 KiB\"`",
            "unit in which new objects are stored and filled",
        ),
    ],
};

pub(crate) const EDGE_LIMITS: Section = Section {
    header: "[edge.limits]",
    keys: &[
        key(
            "connections",
            "1 to 1000000",
            "as many as the open files allow, at most 32768",
            "connections of clients at once; above it others make room, and clients wait (edge.md, \"Limits\")",
        ),
        key(
            "head_bytes",
            "size, 8 KiB to 256 KiB",
            "`\"16 KiB\"`",
            "the head of a request; a longer one is answered with 431",
        ),
        key(
            "head_timeout_s",
            "seconds, 1 to 600",
            "30",
            "how long the head of a request, and a pause between requests, may last: between this and twice this",
        ),
        key(
            "requests_per_client",
            "1 to 10000",
            "any number",
            "requests of one address (IPv6: one /64) that are answered at once; further ones wait, then get 429",
        ),
        key(
            "exempt",
            "list of at most 1000 prefixes, such as `\"192.0.2.0/24\"`",
            "none",
            "clients for whom `requests_per_client` and `copies_per_day` do not hold",
        ),
        key(
            "copies_per_day",
            "1 to 10000",
            "any number",
            "full copies of one object of 10 MiB or more that a network (/24, IPv6: /48) gets in a day of UTC; then it is paced, past twice as many it gets 429 until the next day",
        ),
        key(
            "copies_rate",
            "rate, at least `\"64 kbit/s\"`",
            "`\"1 Mbit/s\"`",
            "what all such responses to one network share",
        ),
    ],
};

pub(crate) const EDGE_LOG: Section = Section {
    header: "[[edge.log]]",
    keys: &[
        key(
            "path",
            "file",
            "required",
            "a line for each answer goes here; made when it is not there, its folder must be",
        ),
        key(
            "format",
            "`\"squid\"` or `\"json\"`",
            "`\"squid\"`",
            "how lines look, see [formats/access-log.md](formats/access-log.md)",
        ),
        key(
            "addresses",
            "`\"truncated\"` or `\"whole\"`",
            "`\"truncated\"`",
            "how much of clients' addresses is written: IPv4 to /24 and IPv6 to /48, or all",
        ),
    ],
};

pub(crate) const DNS: Section = Section {
    header: "[dns]",
    keys: &[
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"`",
            "required",
            "where queries are answered, over UDP and TCP",
        ),
        key(
            "udp_threads",
            "1 to 256",
            "one for each processor, at most 8",
            "threads that answer over UDP, for each address",
        ),
        key(
            "zone_files",
            "folder",
            "none",
            "zone files (RFC 1035) beside the zones of the maps, each called after its zone: `NAME.zone`; edits are taken over as they are made; see [dns.md](dns.md)",
        ),
        key(
            "nsid",
            "1 to 64 printable ASCII characters",
            "none",
            "what the server calls itself to those who ask (RFC 5001, and `id.server` in class CHAOS)",
        ),
        key(
            "version",
            "1 to 64 printable ASCII characters",
            "refused",
            "the answer to `version.bind` in class CHAOS",
        ),
        key(
            "cookie_secret_file",
            "file",
            "a secret of the host's own, in `state_dir`",
            "1 to 3 secrets of 32 hexadecimal digits, one a line, for servers that share an address: the first makes DNS cookies (RFC 9018), the others only know them; read again when it changes",
        ),
        key(
            "proxy_from",
            "list of at most 64 prefixes, such as `\"192.0.2.8/32\"`",
            "none",
            "proxies such as dnsdist, who must put the header of the PROXY protocol, version 2, before what they send, over UDP and TCP; nobody else is believed",
        ),
        key(
            "rate_limit",
            "table, see below",
            "as its keys say",
            "how much a network gets over UDP",
        ),
        key(
            "sign",
            "list of tables, see below",
            "none",
            "zones whose answers are signed (DNSSEC), see [dnssec.md](dnssec.md)",
        ),
        key(
            "transfer",
            "list of tables, see below",
            "none",
            "zones that other servers may copy (AXFR), see [dns.md](dns.md#copies-of-zones)",
        ),
        key("log", "table, see below", "none", "a log of queries"),
    ],
};

pub(crate) const DNS_RATE_LIMIT: Section = Section {
    header: "[dns.rate_limit]",
    keys: &[
        key(
            "answers_per_second",
            "0 to 100000",
            "1000",
            "answers with data for a network (IPv4 /24, IPv6 /56); twice as many at once; 0: any number",
        ),
        key(
            "negative_per_second",
            "0 to 100000",
            "200",
            "answers that there is no such name, or nothing of that type, in each zone",
        ),
        key(
            "errors_per_second",
            "0 to 100000",
            "100",
            "answers to malformed queries, failures, cookies alone",
        ),
        key("refused_per_second", "0 to 100000", "100", "refusals"),
        key(
            "slip",
            "0 to 15",
            "2",
            "each how manieth limited answer is cut (TC, or BADCOOKIE) instead of dropped, so that a real client comes again: 1 all, 0 none",
        ),
        key(
            "exempt",
            "list of at most 1000 prefixes, such as `\"192.0.2.0/24\"`",
            "none",
            "networks that are never limited; this host never is",
        ),
    ],
};

pub(crate) const DNS_LOG: Section = Section {
    header: "[dns.log]",
    keys: &[
        key(
            "path",
            "file",
            "required",
            "a JSON object a line for each query goes here, see [formats/query-log.md](formats/query-log.md); made when it is not there, its folder must be",
        ),
        key("sample", "1 to 1000000", "1", "one query in so many is logged, by chance; 1: each"),
        key(
            "addresses",
            "`\"truncated\"` or `\"whole\"`",
            "`\"truncated\"`",
            "how much of addresses is written, those of resolvers and of client subnets: IPv4 to /24 and IPv6 to /48, or all",
        ),
    ],
};

pub(crate) const DNS_SIGN: Section = Section {
    header: "[[dns.sign]]",
    keys: &[
        key("zone", "name of a zone", "required", "the zone that these keys are of"),
        key(
            "active",
            "list of 1 to 4 key files",
            "required",
            "the keys that sign: `.private` files with their `.key` file beside them, or PEM of PKCS #8",
        ),
        key(
            "published",
            "list of 1 to 4 key files",
            "none",
            "keys that will sign: they are in the key set, so that caches know them in time",
        ),
        key(
            "withdrawn",
            "list of 1 to 4 key files",
            "none",
            "keys that have signed: they are in the key set as long as caches hold signatures by them",
        ),
        key(
            "cds",
            "`\"off\"`, `\"publish\"` or `\"delete\"`",
            "`\"off\"`",
            "what CDS and CDNSKEY records ask of the parent: nothing; the DS records of all keys that are not withdrawn; no DS record at all",
        ),
        key(
            "validity_s",
            "86400 to 2592000",
            "604800",
            "how long signatures hold, seconds; a new one is given after a quarter of it",
        ),
    ],
};

pub(crate) const DNS_TRANSFER: Section = Section {
    header: "[[dns.transfer]]",
    keys: &[
        key("zone", "name of a zone", "required", "a zone that is all in a zone file"),
        key(
            "keys",
            "list of 1 to 16 key files",
            "required",
            "who has one of these keys (TSIG, as `tsig-keygen` writes them) may copy the zone",
        ),
    ],
};

pub(crate) const MASTER: Section = Section {
    header: "[master]",
    keys: &[
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"` or tables, see below",
            "required",
            "where edges are served; an address alone is plain HTTP",
        ),
        key(
            "tree",
            "folder",
            "required",
            "root of the files; it must hold the marker file `.cacheboy-tree`",
        ),
    ],
};

pub(crate) const MASTER_LISTEN: Section =
    Section { header: "[[master.listen]]", keys: &[ADDRESS, TLS_OF_LISTENER, CONGESTION, RATE] };

#[cfg(test)]
mod tests {
    use model::Rate;

    use super::*;

    #[test]
    fn limits_are_told_as_they_are() {
        let kind = |section: &Section, name: &str| {
            section.keys.iter().find(|k| k.name == name).unwrap().kind
        };
        let (short, long) = (limits::TIMEOUT_MS.start(), limits::TIMEOUT_MS.end());
        for (section, name, limit) in [
            (&FOLLOW, "node_map", format!("1 to {}", limits::SOURCES)),
            (&EDGE, "listen", format!("1 to {}", limits::LISTEN)),
            (&DNS, "listen", format!("1 to {}", limits::LISTEN)),
            (&HEALTH, "listen", format!("1 to {}", limits::LISTEN)),
            (&MASTER, "listen", format!("1 to {}", limits::LISTEN)),
            (&TLS, "certificate", format!("1 to {}", limits::CERTIFICATES)),
            (&EDGE_LISTEN, "rate", format!("at least `\"{}\"`", Rate(limits::RATE_MIN))),
            (&MASTER_LISTEN, "rate", format!("at least `\"{}\"`", Rate(limits::RATE_MIN))),
            (&EDGE, "store", format!("1 to {}", limits::STORES)),
            (&EDGE, "log", format!("up to {}", limits::LOGS)),
            (&EDGE, "connect_timeout_ms", format!("{short} to {long}")),
            (&EDGE, "first_byte_timeout_ms", format!("{short} to {long}")),
            (&EDGE, "between_bytes_timeout_ms", format!("{short} to {long}")),
            (&EDGE, "drain_notice_s", format!("0 to {}", limits::NOTICE_S.end())),
            (&EDGE, "drain_deadline_s", format!("0 to {}", limits::DEADLINE_S.end())),
            (&EDGE, "fill_memory", format!("{} blocks", limits::FILL_BLOCKS_MIN)),
            (&EDGE_STORE, "size", format!("{} blocks", limits::STORE_BLOCKS_MIN)),
            (&EDGE_STORE, "block", "4 KiB to 64 MiB".to_owned()),
            (&EDGE_LIMITS, "connections", format!("1 to {}", limits::CONNECTIONS.end())),
            (&EDGE_LIMITS, "requests_per_client", format!("1 to {}", limits::PER_CLIENT.end())),
            (&EDGE_LIMITS, "copies_per_day", format!("1 to {}", limits::PER_CLIENT.end())),
            (&EDGE_LIMITS, "exempt", format!("at most {}", limits::EXEMPT)),
            (&EDGE_LIMITS, "copies_rate", format!("at least `\"{}\"`", Rate(limits::RATE_MIN))),
            (&EDGE_LIMITS, "head_bytes", "8 KiB to 256 KiB".to_owned()),
            (&EDGE_LIMITS, "head_timeout_s", format!("1 to {}", limits::HEAD_TIMEOUT_S.end())),
            (&DNS_LOG, "sample", format!("1 to {}", limits::SAMPLE.end())),
            (&DNS, "udp_threads", format!("1 to {}", limits::UDP_THREADS.end())),
        ] {
            let kind = kind(section, name);
            assert!(kind.contains(&limit), "{} {name}: {kind:?} has no {limit:?}", section.header);
        }
        assert_eq!(limits::BLOCK_BYTES, 4096..=64 * 1024 * 1024);
        assert_eq!(limits::HEAD_BYTES, 8 * 1024..=256 * 1024);
    }
}
