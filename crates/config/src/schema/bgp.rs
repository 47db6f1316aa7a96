//! Keys of `[bgp]`.

use nodemap::toml_read::{Section, key};

pub(crate) const BGP: Section = Section {
    header: "[bgp]",
    keys: &[
        key("asn", "AS number", "required", "the AS that this collector is of"),
        key(
            "identifier",
            "IPv4 address",
            "required",
            "the BGP identifier: one of its addresses; no two speakers of an AS have the same",
        ),
        key(
            "listen",
            "list of 1 to 16 `\"ADDRESS:PORT\"`",
            "peers cannot connect",
            "where peers connect; the port of BGP is 179",
        ),
        key(
            "publish",
            "list of 1 to 16 `\"ADDRESS:PORT\"`",
            "nowhere",
            "where routes and status are served over HTTP (see bgp.md), to whoever can connect",
        ),
        key(
            "hold_s",
            "3 to 3600",
            "90",
            "seconds of silence after which a session is over; the lower one of both sides counts",
        ),
        key(
            "peer",
            "list of tables, see below",
            "required without `mrt`",
            "the routers: up to 256",
        ),
        key("mrt", "list of tables, see below", "none", "files of routes: up to 64"),
    ],
};

pub(crate) const BGP_MRT: Section = Section {
    header: "[[bgp.mrt]]",
    keys: &[
        key(
            "name",
            "name: `a-z`, `0-9` and `-`",
            "required",
            "what it is called in logs, metrics and requests; no peer has the same",
        ),
        key(
            "file",
            "file",
            "required",
            "in the MRT format (TABLE_DUMP_V2 or BGP4MP), as it is or compressed by gzip or bzip2; read again when it changes",
        ),
        key(
            "view",
            "name: `a-z`, `0-9` and `-`",
            "its name",
            "the view that its routes are in; peers and files of one view are compared",
        ),
        key(
            "from",
            "IP address",
            "of a dump the route with the shortest path, of messages those of the only peer",
            "only the routes of this peer of the collector that wrote the file",
        ),
    ],
};

pub(crate) const BGP_PEER: Section = Section {
    header: "[[bgp.peer]]",
    keys: &[
        key(
            "name",
            "name: `a-z`, `0-9` and `-`",
            "required",
            "what it is called in logs, metrics and requests",
        ),
        key("address", "IP address", "required", "where it is; no other may have the same"),
        key(
            "asn",
            "AS number",
            "required",
            "its AS; the same as that of `[bgp]` for a router of our own",
        ),
        key("port", "1 to 65535", "179", "its port, where we connect"),
        key(
            "view",
            "name: `a-z`, `0-9` and `-`",
            "its name",
            "the view that its routes are in; peers of one view are compared",
        ),
        key(
            "passive",
            "true or false",
            "false",
            "whether it is waited for, instead of connecting to it too",
        ),
        key(
            "local_address",
            "IP address",
            "as the system chooses",
            "the address that we connect from",
        ),
        key(
            "md5_file",
            "file",
            "none",
            "the key that both sides sign with (TCP MD5, RFC 2385): 1 to 80 bytes on one line",
        ),
        key(
            "hops",
            "1 to 254",
            "any",
            "it is at most so many hops away, 1 for a neighbour; what comes from further is dropped (RFC 5082), and the peer must do the same",
        ),
        key(
            "max_prefixes_v4",
            "1 to 20000000",
            "2000000",
            "more IPv4 routes end the session for ten minutes",
        ),
        key(
            "max_prefixes_v6",
            "1 to 20000000",
            "500000",
            "more IPv6 routes end the session for ten minutes",
        ),
    ],
};
