//! Keys of `[location]`.

use nodemap::toml_read::{Section, key};

pub(crate) const LOCATION: Section = Section {
    header: "[location]",
    keys: &[
        key(
            "country",
            "file in MaxMind format",
            "none: no client has a country",
            "country and continent of addresses",
        ),
        key(
            "asn",
            "file in MaxMind format",
            "none: no client has an AS number",
            "AS numbers of addresses; may be the same file",
        ),
        key(
            "databases_move_percent",
            "percent, 1 to 100",
            "20",
            "how many of all known addresses a changed database may have answered otherwise; one that moves more waits for `cacheboy geoip confirm`",
        ),
        key(
            "routes",
            "`\"http://HOST[:PORT]/routes\"` or `\"local\"`",
            "none: no live routes",
            "the routing table of a `bgp` role, `local`: that of this process; origin ASes, and what rules of maps look at",
        ),
        key(
            "routes_hold_s",
            "seconds, 0 to 86400",
            "120",
            "how long the routes of a view stay after its last session has gone",
        ),
        key(
            "routes_move_percent",
            "percent, 1 to 100",
            "5",
            "how many of all known addresses a change of routes moves at once; the rest follows in steps of as many every 10 s",
        ),
    ],
};
