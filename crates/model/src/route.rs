//! Routes: what routers say of the way to a prefix.
//!
//! [`Attributes`] are what one route carries beside its prefix; equal ones are kept once and shared
//! behind an `Arc`, so they are small: one allocation for the path, one for all communities. Then
//! [`AsPath`] (who passed the route on), the communities in `route/community.rs`, and what maps ask of
//! a path in [`PathPattern`] (`route/pattern.rs`). Many routes are a [`RouteTable`] (`route/table.rs`).
//!
//! Knows nothing of messages: who decodes them (RFC 4271, 7606) has already left out what is malformed.

mod community;
mod path;
mod pattern;
mod table;

use std::net::IpAddr;

use serde::Serialize;

pub use community::{Communities, Community, LargeCommunity, ParseCommunityError, Tag};
pub use path::{AsPath, Hop, ParsePathError, SegmentKind, Segments};
pub use pattern::{ParsePatternError, PathPattern};
pub use table::{Change, RouteTable, Row};

/// How a prefix came into BGP (RFC 4271 section 5.1.1); the lower one is preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// From the interior of the origin AS.
    Igp,
    /// By EGP.
    Egp,
    /// By other means.
    #[default]
    Incomplete,
}

impl Origin {
    /// The octet of the attribute.
    pub fn code(self) -> u8 {
        match self {
            Self::Igp => 0,
            Self::Egp => 1,
            Self::Incomplete => 2,
        }
    }

    /// By the octet of the attribute; `None` for one that was never defined.
    pub fn of_code(code: u8) -> Option<Self> {
        [Self::Igp, Self::Egp, Self::Incomplete].into_iter().find(|origin| origin.code() == code)
    }
}

/// What a route carries beside its prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Attributes {
    /// Whom the sender would hand packets to: of either family (RFC 8950), the global address where an
    /// IPv6 route has a link-local one too.
    pub next_hop: IpAddr,
    /// How the prefix came into BGP.
    pub origin: Origin,
    /// The ASes that the route went through, the nearest first.
    pub as_path: AsPath,
    /// `MULTI_EXIT_DISC`: lower is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// `LOCAL_PREF`: higher is preferred. Only inside an AS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// Tags of operators.
    pub communities: Communities,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_the_codes_of_the_rfc() {
        for (code, origin) in [
            (0, Some(Origin::Igp)),
            (1, Some(Origin::Egp)),
            (2, Some(Origin::Incomplete)),
            (3, None),
        ] {
            assert_eq!(Origin::of_code(code), origin);
            assert!(origin.is_none_or(|origin| origin.code() == code));
        }
        assert!(Origin::Igp < Origin::Egp && Origin::Egp < Origin::Incomplete);
    }

    #[test]
    fn attributes_stay_small() {
        // A full table has some hundred thousand different ones in memory.
        assert!(size_of::<Attributes>() <= 80, "{}", size_of::<Attributes>());
    }

    #[test]
    fn as_json_people_can_read_them() {
        let attributes = Attributes {
            next_hop: "198.51.100.1".parse().unwrap(),
            origin: Origin::Igp,
            as_path: "7545 4826 {1 2}".parse().unwrap(),
            med: Some(5),
            local_pref: None,
            communities: Communities::new(
                [Community(0xfde8_0078)],
                [LargeCommunity { global: 1, local: [2, 3] }],
                [[0, 2, 0xfd, 0xe8, 0, 0, 0, 100]],
            ),
        };
        let json = serde_json::to_value(&attributes).unwrap();
        let expected = serde_json::json!({
            "next_hop": "198.51.100.1",
            "origin": "igp",
            "as_path": "7545 4826 {1 2}",
            "med": 5,
            "communities": ["65000:120", "1:2:3", "0x0002fde800000064"],
        });
        assert_eq!(json, expected);
    }
}
