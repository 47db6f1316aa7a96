//! Keys of `[health]`.

use nodemap::toml_read::{Key, Section, key};

pub(crate) const HEALTH: Section = Section {
    header: "[health]",
    keys: &[
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"`",
            "required",
            "where `/node-map` and `/status` are served",
        ),
        key(
            "maps",
            "folder",
            "required",
            "the admin maps (see maps.md); edits are taken over as they are made",
        ),
        key(
            "maps_move_percent",
            "percent, 1 to 100",
            "50",
            "how many of a project's clients an edit may move to other nodes; one that moves more waits for `cacheboy map confirm`",
        ),
        key(
            "key",
            "file",
            "none: node maps are not signed",
            "the secret key that signs them, as `cacheboy map keygen` makes it",
        ),
        key("probe", "table, see below", "as its keys say", "how nodes are probed"),
        key("canary", "list of tables, see below", "none", "what nodes must serve of projects"),
        key("master", "list of tables, see below", "none", "what masters are compared by"),
        key("redirector", "list of tables, see below", "none", "DNS nodes of ours, to be watched"),
        key(
            "webhook",
            "`\"http://HOST[:PORT]/PATH\"`",
            "none",
            "each event is posted there as JSON",
        ),
        key(
            "acme",
            "table, see below",
            "none: no certificates are ordered",
            "where certificates of projects with `tls = \"acme\"` are ordered (certificates.md)",
        ),
        key(
            "peer",
            "list of tables, see below",
            "none: this checker is alone",
            "the other checkers",
        ),
        key(
            "outside",
            "list of tables, see below",
            "none",
            "what a checker must see to trust itself: when none of them answers, it freezes the map",
        ),
    ],
};

pub(crate) const HEALTH_PROBE: Section = Section {
    header: "[health.probe]",
    keys: &[
        key(
            "interval_ms",
            "milliseconds, 100 to 3600000",
            "10000",
            "longest time between two probes of an address",
        ),
        key(
            "timeout_ms",
            "milliseconds, 10 to `interval_ms`",
            "2000",
            "longest time a whole probe may take",
        ),
        key("rise", "1 to 100", "2", "passed probes in a row that make a down address up"),
        key("fall", "1 to 100", "3", "failed probes in a row that make an address down"),
        key("port", "1 to 65535", "80", "port of the nodes' HTTP service"),
        key(
            "path",
            "URL path",
            "`\"/.well-known/cacheboy/health\"`",
            "what is asked for; it must answer with status 200",
        ),
        key(
            "budget_per_s",
            "1 to 100000",
            "200",
            "probes a second, of all kinds; where more are wanted all come more rarely",
        ),
        key(
            "contact",
            "URL or address of mail",
            "none",
            "stands in the `User-Agent` of probes, for those who wonder about them",
        ),
        key(
            "ca",
            "file in PEM",
            "the system's alone",
            "authorities that probes over TLS trust besides those of the system",
        ),
        key(
            "connect_to",
            "table, see below",
            "none",
            "where to connect in place of a node's address",
        ),
    ],
};

pub(crate) const HEALTH_CONNECT_TO: Section = Section {
    header: "[health.probe.connect_to]",
    keys: &[key(
        "ADDRESS",
        "`\"ADDRESS:PORT\"`",
        "none",
        "for tests and demonstrations: a node's address in the maps, and where its probes really go",
    )],
};

pub(crate) const HEALTH_ACME: Section = Section {
    header: "[health.acme]",
    keys: &[
        key(
            "directory",
            "`\"https://HOST/PATH\"`",
            "required",
            "the directory of the authority (RFC 8555); to name it is to agree to its terms",
        ),
        key(
            "contact",
            "list of at most 8 addresses such as `\"mailto:noc@cdn.example\"`",
            "none",
            "whom the authority may write to",
        ),
        key(
            "challenge",
            "`\"http-01\"` or `\"dns-01\"`",
            "`\"http-01\"`",
            "how the authority sees that names are ours: it asks edges, or our DNS",
        ),
        key(
            "ca",
            "file in PEM",
            "the system's alone",
            "authorities that the directory may have its own certificate from, besides those of the system",
        ),
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"`",
            "nowhere",
            "where nodes fetch certificates with their keys; both ends prove who they are",
        ),
        key(
            "address",
            "`\"HOST:PORT\"`",
            "required with `listen`",
            "where nodes reach that; they learn it from the node map",
        ),
    ],
};

const INTERVAL: Key =
    key("interval_ms", "milliseconds, 100 to 3600000", "10000", "longest time between two probes");

const TIMEOUT: Key =
    key("timeout_ms", "milliseconds, 10 to `interval_ms`", "2000", "longest time of a whole probe");

const PROJECT: Key = key("project", "name of a project", "required", "whose");

pub(crate) const HEALTH_CANARY: Section = Section {
    header: "[[health.canary]]",
    keys: &[
        PROJECT,
        key("name", "name", "`\"canary\"`", "tells it from others of the project"),
        key("host", "host name", "required", "the `Host`, and the name asked for in TLS"),
        key("path", "URL path", "required", "the object"),
        key(
            "scheme",
            "`\"http\"` or `\"https\"`",
            "`\"http\"`",
            "with or without TLS; certificates are verified",
        ),
        key("port", "1 to 65535", "80 or 443", "the nodes' port"),
        key("range", "`\"FIRST-LAST\"`", "the whole", "bytes to ask for"),
        key("status", "100 to 599", "200, with a range 206", "what must come"),
        key("length", "size", "any", "length of what comes"),
        key("sha256", "64 hexadecimal digits", "any", "SHA-256 of what comes"),
        INTERVAL,
        TIMEOUT,
    ],
};

pub(crate) const HEALTH_MASTER: Section = Section {
    header: "[[health.master]]",
    keys: &[
        PROJECT,
        key("name", "name", "`\"content\"`", "tells it from others of the project"),
        key("path", "URL path", "required", "below the URL of each master"),
        key(
            "hash",
            "true or false",
            "false",
            "compare the bytes, where masters give no equal `ETag`",
        ),
        key(
            "behind_s",
            "1 to 2592000",
            "content is compared",
            "compare `Last-Modified`: a master that is further behind the newest is avoided",
        ),
        INTERVAL,
        TIMEOUT,
    ],
};

pub(crate) const HEALTH_REDIRECTOR: Section = Section {
    header: "[[health.redirector]]",
    keys: &[
        key("name", "name", "required", "what it is called in alarms"),
        key("address", "`\"ADDRESS:PORT\"`", "required", "where it is asked over UDP"),
        key("query", "host name", "required", "a name it must have records of"),
        key("type", "`\"SOA\"`, `\"A\"` or `\"AAAA\"`", "`\"A\"`", "of this type"),
    ],
};

pub(crate) const HEALTH_OUTSIDE: Section = Section {
    header: "[[health.outside]]",
    keys: &[
        key("name", "name", "required", "what it is called in alarms"),
        key("address", "`\"ADDRESS:PORT\"`", "required", "to this a connection must come about"),
    ],
};

pub(crate) const HEALTH_PEER: Section = Section {
    header: "[[health.peer]]",
    keys: &[
        key("name", "name", "required", "the `[host] name` of that checker"),
        key("url", "`\"http://HOST:PORT\"`", "required", "where it listens"),
        key("key", "public key of minisign: `\"RW...\"`", "required", "what it signs with"),
    ],
};
