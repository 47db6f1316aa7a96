//! RFC 7606 case by case, on messages put together here.

use model::route::Origin;

use super::*;

const RULES: Rules = Rules {
    four_octet_as: true,
    internal: false,
    families: Families::ALL,
    extended_next_hop: true,
};

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 10, 2, 2, 0, 0, 0xfd, 0xe9, 0, 0, 0, 7];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 1];
const NLRI: &[u8] = &[24, 203, 0, 113];
/// 2001:db8::/32 by next hop 2001:db8::1.
const REACH: &[u8] = &[
    0x80, 14, 26, 0, 2, 1, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 32, 0x20,
    1, 0xd, 0xb8,
];

/// The body of an UPDATE.
fn body(withdrawn: &[u8], attributes: &[&[u8]], nlri: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let length = |part: &[u8]| u16::try_from(part.len()).unwrap().to_be_bytes();
    [&length(withdrawn), withdrawn, &length(&attributes), &attributes, nlri].concat()
}

/// One line: what is announced, withdrawn and wrong.
fn said(body: &[u8], rules: &Rules) -> String {
    let update = match Update::parse(body, rules) {
        Ok(update) => update,
        Err(notification) => return format!("reset: {notification}"),
    };
    let mut words = Vec::new();
    for announced in update.announced.iter().flatten() {
        for prefix in announced.nlri.prefixes() {
            words.push(match &announced.attributes {
                Some(carried) => {
                    format!("{prefix} via {} path {}", carried.next_hop, carried.as_path)
                }
                None => format!("-{prefix}"),
            });
        }
    }
    for nlri in update.withdrawn {
        words.extend(nlri.prefixes().map(|prefix| format!("-{prefix}")));
    }
    words.extend(update.end_of_rib.map(|family| format!("end of {family}")));
    words.extend(update.faults.iter().map(|fault| format!("[{fault}]")));
    words.join(" ")
}

const GOOD: &str = "203.0.113.0/24 via 192.0.2.1 path 65001 7";

#[test]
fn routes_come_and_go() {
    let well_known = &[ORIGIN, AS_PATH, NEXT_HOP];
    assert_eq!(said(&body(&[], well_known, NLRI), &RULES), GOOD);
    assert_eq!(said(&body(&[8, 10], &[], &[]), &RULES), "-10.0.0.0/8");
    assert_eq!(said(&body(&[8, 10], well_known, NLRI), &RULES), format!("{GOOD} -10.0.0.0/8"));
    let six = "2001:db8::/32 via 2001:db8::1 path 65001 7";
    assert_eq!(said(&body(&[], &[ORIGIN, AS_PATH, REACH], &[]), &RULES), six);
    let both = body(&[], &[REACH, ORIGIN, AS_PATH, NEXT_HOP], NLRI);
    assert_eq!(said(&both, &RULES), format!("{GOOD} {six}"));
    let gone = &[0x80, 15, 4, 0, 2, 1, 0][..];
    assert_eq!(said(&body(&[], &[gone], &[]), &RULES), "-::/0");
    // The ends of both families (RFC 4724).
    assert_eq!(said(&body(&[], &[], &[]), &RULES), "end of v4");
    assert_eq!(said(&body(&[], &[&[0x80, 15, 3, 0, 2, 1]], &[]), &RULES), "end of v6");
    assert_eq!(said(&body(&[], &[&[0x90, 15, 0, 3, 0, 1, 1]], &[]), &RULES), "end of v4");
    // Attributes without prefixes say nothing, and that is not the end.
    assert_eq!(said(&body(&[], &[ORIGIN], &[]), &RULES), "");
}

#[test]
fn ipv4_routes_may_have_ipv6_next_hops_where_that_was_agreed_on() {
    let mut reach = vec![0x80, 14, 37, 0, 1, 1, 32];
    reach.extend([0; 16]);
    reach.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    // The octet that is reserved, and 0.0.0.0/0.
    reach.extend([0, 0]);
    reach[2] = u8::try_from(reach.len() - 3).unwrap();
    let message = body(&[], &[ORIGIN, AS_PATH, &reach], &[]);
    assert_eq!(said(&message, &RULES), "0.0.0.0/0 via fe80::9 path 65001 7");
    let plain = Rules { extended_next_hop: false, ..RULES };
    assert_eq!(said(&message, &plain), "reset: optional-attribute");
}

/// The table of RFC 7606 sections 3 and 7: one attribute of a sound message is another.
#[test]
fn faults_of_one_attribute() {
    let gone = "-203.0.113.0/24";
    for (attribute, expected) in [
        // 3 c
        (&[0xc0, 1, 1, 0][..], format!("{gone} [attribute 1: flags, withdraw]")),
        (&[0x40, 8, 4, 0, 1, 0, 2], format!("{gone} [attribute 8: flags, withdraw]")),
        // The Partial bit and those below the length bit say nothing.
        (&[0x6f, 1, 1, 0], GOOD.into()),
        // 3 g: the first counts.
        (&[0x40, 1, 1, 0, 0x40, 1, 1, 9], format!("{GOOD} [attribute 1: repeated, discard]")),
        // 7.1
        (&[0x40, 1, 2, 0, 0], format!("{gone} [attribute 1: length, withdraw]")),
        (&[0x40, 1, 1, 3], format!("{gone} [attribute 1: value, withdraw]")),
        // 7.2
        (&[0x40, 2, 1, 2], format!("{gone} [attribute 2: value, withdraw]")),
        (&[0x40, 2, 6, 2, 2, 0, 0, 0, 1], format!("{gone} [attribute 2: value, withdraw]")),
        (&[0x40, 2, 6, 9, 1, 0, 0, 0, 1], format!("{gone} [attribute 2: value, withdraw]")),
        (&[0x40, 2, 2, 2, 0], format!("{gone} [attribute 2: value, withdraw]")),
        (&[0x40, 2, 6, 3, 1, 0, 0, 0, 1], format!("{gone} [attribute 2: value, withdraw]")),
        // RFC 9774
        (&[0x40, 2, 6, 1, 1, 0, 0, 0, 1], format!("{gone} [attribute 2: as-set, withdraw]")),
        // 7.3
        (&[0x40, 3, 3, 1, 2, 3], format!("{gone} [attribute 3: length, withdraw]")),
        (&[0x40, 3, 4, 0, 0, 0, 0], format!("{gone} [attribute 3: value, withdraw]")),
        (&[0x40, 3, 4, 224, 0, 0, 1], format!("{gone} [attribute 3: value, withdraw]")),
        // 7.4
        (&[0x80, 4, 5, 0, 0, 0, 0, 0], format!("{gone} [attribute 4: length, withdraw]")),
        // 7.5: from another AS it is discarded, whatever it is.
        (&[0x40, 5, 3, 0, 0, 0], format!("{GOOD} [attribute 5: value, discard]")),
        // 7.6, 7.7
        (&[0x40, 6, 1, 0], format!("{GOOD} [attribute 6: length, discard]")),
        (&[0xc0, 7, 6, 0, 1, 1, 1, 1, 1], format!("{GOOD} [attribute 7: length, discard]")),
        (&[0xc0, 7, 8, 0, 0, 0, 1, 1, 1, 1, 1], GOOD.into()),
        // 7.8
        (&[0xc0, 8, 6, 0, 1, 0, 2, 0, 3], format!("{gone} [attribute 8: length, withdraw]")),
        (&[0xc0, 8, 0], format!("{gone} [attribute 8: length, withdraw]")),
        // 7.9, 7.10
        (&[0x80, 9, 3, 1, 2, 3], format!("{GOOD} [attribute 9: value, discard]")),
        (&[0x80, 10, 3, 1, 2, 3], format!("{GOOD} [attribute 10: value, discard]")),
        // 7.14, 7.15, RFC 8092
        (&[0xc0, 16, 4, 0, 0, 0, 0], format!("{gone} [attribute 16: length, withdraw]")),
        (&[0xc0, 16, 8, 99, 0, 0, 0, 0, 0, 0, 0], GOOD.into()),
        (
            &[0xc0, 25, 8, 99, 0, 0, 0, 0, 0, 0, 0],
            format!("{gone} [attribute 25: length, withdraw]"),
        ),
        (&[0xc0, 32, 4, 0, 0, 0, 1], format!("{gone} [attribute 32: length, withdraw]")),
        // RFC 6793 section 6
        (&[0xc0, 17, 6, 2, 1, 0, 0, 0, 1], format!("{GOOD} [attribute 17: value, discard]")),
        (&[0xc0, 18, 7, 0, 0, 0, 0, 0, 0, 0], format!("{GOOD} [attribute 18: length, discard]")),
        // Optional ones that nobody here knows.
        (&[0xc0, 200, 1, 1], GOOD.into()),
        (&[0x80, 128, 0], GOOD.into()),
        // RFC 4271 section 6.3, which was not revised.
        (&[0x40, 200, 1, 1], "reset: unrecognised-well-known".into()),
        // 3 g for those that hold prefixes, 7.11, 7.12
        (&[0x80, 15, 3, 0, 1, 1, 0x80, 15, 3, 0, 1, 1], "reset: malformed-attribute-list".into()),
        (&[0x80, 15, 2, 0, 1], "reset: optional-attribute".into()),
        (&[0x80, 15, 4, 0, 1, 1, 33], "reset: optional-attribute".into()),
        (&[0x80, 14, 4, 0, 2, 1, 0], "reset: optional-attribute".into()),
        (&[0x80, 14, 9, 0, 2, 1, 4, 1, 2, 3, 4, 0], "reset: optional-attribute".into()),
        // A family that is none of ours.
        (&[0x80, 14, 5, 0, 25, 70, 0, 0], GOOD.into()),
        (&[0x80, 15, 4, 0, 25, 70, 255], GOOD.into()),
        // Both kinds of faults: the stronger counts (3 h).
        (
            &[0x40, 6, 1, 0, 0x80, 4, 0],
            format!("{gone} [attribute 6: length, discard] [attribute 4: length, withdraw]"),
        ),
    ] {
        let others =
            [ORIGIN, AS_PATH, NEXT_HOP].into_iter().filter(|sound| sound[1] != attribute[1]);
        let attributes: Vec<_> = others.chain([attribute]).collect();
        assert_eq!(said(&body(&[], &attributes, NLRI), &RULES), expected, "{attribute:?}");
    }
}

#[test]
fn faults_of_the_whole() {
    let gone = "-203.0.113.0/24";
    for (message, expected) in [
        // 3 b
        (vec![0, 9, 0, 0], "reset: malformed-attribute-list".into()),
        (vec![0, 0, 0, 9, 0], "reset: malformed-attribute-list".into()),
        // 3 d
        (body(&[], &[AS_PATH, NEXT_HOP], NLRI), format!("{gone} [attribute 1: missing, withdraw]")),
        (body(&[], &[ORIGIN, NEXT_HOP], NLRI), format!("{gone} [attribute 2: missing, withdraw]")),
        (body(&[], &[ORIGIN, AS_PATH], NLRI), format!("{gone} [attribute 3: missing, withdraw]")),
        (
            body(&[], &[ORIGIN, REACH], &[]),
            "-2001:db8::/32 [attribute 2: missing, withdraw]".into(),
        ),
        // Those that hold prefixes say wrongly what they are: their prefixes are known all the same.
        (
            body(&[], &[ORIGIN, AS_PATH, &[&[0xc0], &REACH[1..]].concat()], &[]),
            "-2001:db8::/32 [attribute 14: flags, withdraw]".into(),
        ),
        // 4: the last attribute is cut, in its value or its head.
        (
            body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, &[0xc0, 8, 200, 1]], NLRI),
            format!("{gone} [attribute 8: overrun, withdraw]"),
        ),
        (
            body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, &[0xc0, 8]], NLRI),
            format!("{gone} [attribute 8: overrun, withdraw]"),
        ),
        // 5.2: there are no prefixes, and they may be in what is broken.
        (body(&[], &[&[0x40, 1, 1, 9]], &[]), "reset: malformed-attribute-list".into()),
        (body(&[8, 10], &[&[0x40, 1, 1, 9]], &[]), "reset: malformed-attribute-list".into()),
        (body(&[], &[&[0x40, 6, 1, 9]], &[]), "[attribute 6: length, discard]".into()),
        // 5.3
        (body(&[33, 1, 2, 3, 4, 5], &[], &[]), "reset: invalid-network".into()),
        (body(&[], &[ORIGIN, AS_PATH, NEXT_HOP], &[24, 1]), "reset: invalid-network".into()),
    ] {
        assert_eq!(said(&message, &RULES), expected, "{message:?}");
    }
}

#[test]
fn inside_an_as_more_is_said() {
    let rules = Rules { internal: true, ..RULES };
    let attributes: [&[u8]; 6] = [
        ORIGIN,
        &[0x40, 2, 0],
        NEXT_HOP,
        &[0x40, 5, 4, 0, 0, 0, 200],
        &[0x80, 9, 4, 1, 1, 1, 1],
        &[0x80, 10, 8, 1, 1, 1, 1, 2, 2, 2, 2],
    ];
    let message = body(&[], &attributes, NLRI);
    let update = Update::parse(&message, &rules).unwrap();
    let carried = update.announced[0].as_ref().unwrap().attributes.as_ref().unwrap();
    assert_eq!((carried.local_pref, carried.as_path.is_empty()), (Some(200), true));
    assert_eq!(update.faults, []);
    for bad in [&[0x40, 5, 3, 0, 0, 0][..], &[0x80, 9, 5, 0, 0, 0, 0, 0], &[0x80, 10, 0]] {
        let message = body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, bad], NLRI);
        let expected = format!("-203.0.113.0/24 [attribute {}: length, withdraw]", bad[1]);
        assert_eq!(said(&message, &rules), expected);
    }
}

#[test]
fn what_is_carried_is_read() {
    let attributes: [&[u8]; 7] = [
        &[0x40, 1, 1, 2],
        AS_PATH,
        NEXT_HOP,
        &[0x80, 4, 4, 0, 0, 1, 0],
        &[0xd0, 8, 0, 8, 0xfd, 0xe8, 0, 2, 0xfd, 0xe8, 0, 1],
        &[0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3],
        &[0xc0, 16, 8, 0, 2, 0xfd, 0xe8, 0, 0, 0, 100],
    ];
    let message = body(&[], &attributes, NLRI);
    let update = Update::parse(&message, &RULES).unwrap();
    let carried = update.announced[0].as_ref().unwrap().attributes.as_ref().unwrap();
    assert_eq!((carried.origin, carried.med), (Origin::Incomplete, Some(256)));
    assert_eq!(carried.communities.to_string(), "65000:1 65000:2 1:2:3 0x0002fde800000064");
}

#[test]
fn paths_of_two_octets_are_completed() {
    let rules = Rules { four_octet_as: false, ..RULES };
    let two: &[u8] = &[0x40, 2, 6, 2, 2, 0, 1, 0x5b, 0xa0];
    let four: &[u8] = &[0xc0, 17, 6, 2, 1, 0, 3, 0, 0];
    let of = |more: &[&[u8]]| {
        let attributes = [&[ORIGIN, two, NEXT_HOP, four], more].concat();
        said(&body(&[], &attributes, NLRI), &rules)
    };
    assert_eq!(of(&[]), "203.0.113.0/24 via 192.0.2.1 path 1 196608");
    // The aggregator says whether somebody on the way knew only two (RFC 6793 section 4.2.3).
    let known: &[u8] = &[0xc0, 7, 6, 0, 1, 1, 1, 1, 1];
    let trans: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 1, 1, 1, 1];
    let as4: &[u8] = &[0xc0, 18, 8, 0, 3, 0, 0, 1, 1, 1, 1];
    assert_eq!(of(&[known, as4]), "203.0.113.0/24 via 192.0.2.1 path 1 23456");
    assert_eq!(of(&[trans, as4]), "203.0.113.0/24 via 192.0.2.1 path 1 196608");
}

#[test]
fn families_that_were_not_agreed_on_are_ignored() {
    let rules = Rules { families: Families { v4: true, v6: false }, ..RULES };
    assert_eq!(said(&body(&[], &[ORIGIN, AS_PATH, REACH], &[]), &rules), "");
    assert_eq!(said(&body(&[], &[&[0x80, 15, 4, 0, 2, 1, 0]], &[]), &rules), "");
}
