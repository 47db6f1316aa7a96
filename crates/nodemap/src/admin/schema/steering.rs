//! Keys of what steers clients.

use crate::toml_read::{Section, key};

pub(in super::super) const SERVE: Section = Section {
    header: "[node.NAME.serve]",
    keys: &[
        key("asn", "list of 1 to 1000 AS numbers", "none", "clients in one of these ASes"),
        key(
            "country",
            "list of 1 to 250 ISO 3166-1 codes in capitals",
            "none",
            "clients in one of these countries",
        ),
    ],
};

pub(in super::super) const POOL: Section = Section {
    header: "[pool]",
    keys: &[key(
        "NAME",
        "`{ NODE = weight, ... }`, weights 0 to 65535, not all 0",
        "none",
        "a set of nodes; each is given in proportion to its weight, one of weight 0 never",
    )],
};

pub(in super::super) const MAP: Section = Section {
    header: "[map.NAME]",
    keys: &[
        key(
            "default",
            "list of 1 to 32 pools",
            "required",
            "pools of all clients that nothing below names",
        ),
        key(
            "override",
            "list of tables, 1 to 10000, see below",
            "none",
            "pools by prefix; decides before all else",
        ),
        key(
            "rule",
            "list of tables, 1 to 1000, see below",
            "none",
            "pools by live routes, the first that matches; decides where no override did",
        ),
        key(
            "views",
            "list of 1 to 64 views",
            "all, by name",
            "the views of the routing table that are believed: of several that have a route the first",
        ),
        key(
            "asn",
            "table, see below",
            "none",
            "pools by AS number of the client; decides where no override or rule did",
        ),
        key(
            "country",
            "table, see below",
            "none",
            "pools by country; decides where no AS number did",
        ),
        key(
            "continent",
            "table, see below",
            "none",
            "pools by continent; decides where no country did",
        ),
    ],
};

pub(in super::super) const MAP_ASN: Section = Section {
    header: "[map.NAME.asn]",
    keys: &[key(
        "NUMBER",
        "list of 1 to 32 pools",
        "none",
        "for clients in this AS, written `7545` or `AS7545`",
    )],
};

pub(in super::super) const MAP_COUNTRY: Section = Section {
    header: "[map.NAME.country]",
    keys: &[key(
        "CODE",
        "list of 1 to 32 pools",
        "none",
        "for clients in this country, by ISO 3166-1 code in capitals; the United Kingdom is `GB`",
    )],
};

pub(in super::super) const MAP_CONTINENT: Section = Section {
    header: "[map.NAME.continent]",
    keys: &[key(
        "CODE",
        "list of 1 to 32 pools",
        "none",
        "for clients in this continent: `AF` `AN` `AS` `EU` `NA` `OC` `SA`",
    )],
};

pub(in super::super) const OVERRIDE: Section = Section {
    header: "[[map.NAME.override]]",
    keys: &[
        key(
            "prefix",
            "IPv4 or IPv6 prefix, without host bits",
            "required",
            "for all clients in it; of several that hold a client the longest decides",
        ),
        key("pools", "list of 1 to 32 pools", "required", "their pools, in order"),
        key("owner", "text", "required", "whom to ask about it"),
        key("reason", "text", "required", "why it is there; `explain` shows both"),
        key(
            "expires",
            "moment, such as `2027-01-31T00:00:00Z`",
            "never",
            "from when on it is ignored; takes effect by itself",
        ),
    ],
};

pub(in super::super) const ROUTE_RULE: Section = Section {
    header: "[[map.NAME.rule]]",
    keys: &[
        key(
            "view",
            "name of a view",
            "the first that has a route",
            "looks at the route of this view; without more: it has one",
        ),
        key("next_hop", "IP address", "any", "the next hop of the route"),
        key(
            "community",
            "`\"65000:120\"`, or a large one: `\"65000:1:2\"`",
            "any",
            "a community of the route",
        ),
        key("neighbour", "AS number", "any", "the first AS of its path"),
        key("origin", "AS number", "any", "the last AS of its path"),
        key(
            "as_path",
            "pattern of at most 256 bytes, such as `\"^ 7545 * 4826 $\"`",
            "any",
            "what its path is like, see below",
        ),
        key("pools", "list of 1 to 32 pools", "required", "the pools of such clients, in order"),
    ],
};

pub(in super::super) const MAX_SHARE: Section = Section {
    header: "[project.NAME.max_share]",
    keys: &[
        key(
            "nodes",
            "percent, 1 to 99",
            "no limit",
            "share of the answers that one node gets at most",
        ),
        key(
            "sites",
            "percent, 1 to 99",
            "no limit",
            "share that the nodes of one site get together",
        ),
        key("window_s", "seconds, 10 to 3600", "60", "how far back answers are counted"),
    ],
};
