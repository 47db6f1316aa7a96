//! The table against what its page says, and against the plainest table there is.

use std::collections::{BTreeMap, BTreeSet};

use model::route::{AsPath, Communities, Community, Origin};
use proptest::prelude::*;

use super::*;
use crate::open::Families;
use crate::update::Rules;

fn attributes(path: &str, med: u32) -> Attributes {
    Attributes {
        next_hop: "192.0.2.1".parse().unwrap(),
        origin: Origin::Igp,
        as_path: path.parse::<AsPath>().unwrap(),
        med: Some(med),
        local_pref: None,
        communities: Communities::new([Community(med)], [], []),
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A table of one view and so many peers.
fn rib(peers: u16) -> (Rib, ViewId, Vec<PeerId>) {
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("v").unwrap();
    let peers = (0..peers).map(|_| rib.add_peer(view, false).unwrap()).collect();
    (rib, view, peers)
}

fn shown(rib: &Rib, view: ViewId) -> Vec<String> {
    rib.export(view).map(|(prefix, set)| format!("{prefix} {}", set.as_path)).collect()
}

#[test]
fn a_view_shows_what_is_announced_in_prefix_order() {
    let (mut rib, view, peers) = rib(1);
    for text in ["2001:db8::/32", "10.0.0.0/8", "9.0.0.0/8", "10.0.0.0/24", "::/0", "10.128.0.0/9"]
    {
        rib.announce(peers[0], net(text), attributes("1 2", 0));
    }
    assert_eq!(shown(&rib, view), [""; 0], "not before a commit");
    assert!(rib.is_dirty() && rib.commit() && !rib.is_dirty());
    let expected =
        ["9.0.0.0/8", "10.0.0.0/8", "10.0.0.0/24", "10.128.0.0/9", "::/0", "2001:db8::/32"];
    assert_eq!(shown(&rib, view), expected.map(|prefix| format!("{prefix} 1 2")));
    assert_eq!((rib.peer_counts(peers[0]), rib.view_counts(view)), ([4, 2], [4, 2]));
    assert_eq!((rib.attribute_sets(), rib.version(view)), (1, 1));
    // Between others, and gone.
    rib.announce(peers[0], net("9.0.0.0/9"), attributes("3", 0));
    rib.withdraw(peers[0], net("10.0.0.0/24"));
    rib.withdraw(peers[0], net("99.0.0.0/8"));
    assert!(rib.commit());
    assert_eq!(shown(&rib, view)[..3], ["9.0.0.0/8 1 2", "9.0.0.0/9 3", "10.0.0.0/8 1 2"]);
    // The same again is no change.
    rib.announce(peers[0], net("9.0.0.0/9"), attributes("3", 0));
    assert!(!rib.commit());
    assert_eq!(rib.version(view), 2);
}

#[test]
fn the_best_of_a_view_is_decided_as_the_page_says() {
    let base = attributes("1 2", 5);
    let with = |change: &dyn Fn(&mut Attributes)| {
        let mut changed = base.clone();
        change(&mut changed);
        changed
    };
    let path = |text: &str| text.parse::<AsPath>().unwrap();
    // Each is better than the base, from a peer that stands behind the base's.
    for better in [
        with(&|a| a.local_pref = Some(101)),
        with(&|a| {
            a.as_path = path("9");
            a.origin = Origin::Incomplete;
        }),
        with(&|a| a.med = Some(4)),
        with(&|a| a.med = None),
    ] {
        let (mut rib, view, peers) = rib(2);
        rib.announce(peers[1], net("10.0.0.0/8"), better.clone());
        rib.announce(peers[0], net("10.0.0.0/8"), base.clone());
        rib.commit();
        assert_eq!(**rib.best(view, net("10.0.0.0/8")).unwrap(), better);
    }
    // Each is not.
    for worse in [
        with(&|a| a.local_pref = Some(99)),
        with(&|a| a.as_path = path("1 2 3")),
        with(&|a| a.origin = Origin::Egp),
        with(&|a| a.med = Some(6)),
        // The MED of another neighbour says nothing.
        with(&|a| {
            a.as_path = path("3 2");
            a.med = Some(1);
        }),
    ] {
        let (mut rib, view, peers) = rib(2);
        rib.announce(peers[1], net("10.0.0.0/8"), worse);
        rib.announce(peers[0], net("10.0.0.0/8"), base.clone());
        rib.commit();
        assert_eq!(**rib.best(view, net("10.0.0.0/8")).unwrap(), base);
    }
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("v").unwrap();
    let internal = rib.add_peer(view, true).unwrap();
    let external = rib.add_peer(view, false).unwrap();
    let other = with(&|a| a.communities = Communities::default());
    rib.announce(internal, net("10.0.0.0/8"), base.clone());
    rib.announce(external, net("10.0.0.0/8"), other.clone());
    rib.commit();
    assert_eq!(**rib.best(view, net("10.0.0.0/8")).unwrap(), other, "of another AS");
}

#[test]
fn views_are_apart() {
    let mut rib = Rib::new([1, 2]);
    let (one, two) = (rib.add_view("one").unwrap(), rib.add_view("two").unwrap());
    assert_eq!(rib.add_view("one"), Some(one));
    let (a, b) = (rib.add_peer(one, false).unwrap(), rib.add_peer(two, false).unwrap());
    rib.announce(a, net("10.0.0.0/8"), attributes("1", 0));
    rib.announce(b, net("10.0.0.0/8"), attributes("2", 0));
    rib.announce(b, net("11.0.0.0/8"), attributes("2", 0));
    rib.commit();
    assert_eq!(shown(&rib, one), ["10.0.0.0/8 1"]);
    assert_eq!(shown(&rib, two), ["10.0.0.0/8 2", "11.0.0.0/8 2"]);
    assert_eq!(rib.views().collect::<Vec<_>>(), [(one, "one"), (two, "two")]);
    rib.clear(a, Family::V4);
    rib.commit();
    assert_eq!((rib.version(one), rib.version(two)), (2, 1));
    assert_eq!(shown(&rib, one), [""; 0]);
}

#[test]
fn what_is_stale_goes_unless_it_comes_again() {
    let (mut rib, view, peers) = rib(1);
    for text in ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "2001:db8::/32"] {
        rib.announce(peers[0], net(text), attributes("1", 0));
    }
    rib.commit();
    rib.mark_stale(peers[0], Family::V4);
    assert!(!rib.commit(), "stale routes are routes");
    rib.announce(peers[0], net("10.0.0.0/8"), attributes("1", 0));
    rib.announce(peers[0], net("11.0.0.0/8"), attributes("2", 0));
    rib.sweep(peers[0], Family::V4);
    rib.commit();
    assert_eq!(shown(&rib, view), ["10.0.0.0/8 1", "11.0.0.0/8 2", "2001:db8::/32 1"]);
    assert_eq!(rib.peer_counts(peers[0]), [2, 1]);
    rib.sweep(peers[0], Family::V4);
    assert!(!rib.commit());
}

#[test]
fn followers_are_told_what_changed() {
    let (mut rib, view, peers) = rib(1);
    assert_eq!(rib.changes_since(view, 0), Some(vec![]));
    rib.announce(peers[0], net("10.0.0.0/8"), attributes("1", 0));
    rib.commit();
    rib.announce(peers[0], net("10.0.0.0/8"), attributes("2", 0));
    rib.announce(peers[0], net("11.0.0.0/8"), attributes("2", 0));
    rib.commit();
    rib.withdraw(peers[0], net("11.0.0.0/8"));
    rib.commit();
    let told = |version| {
        let changes = rib.changes_since(view, version)?;
        let path = |set: Option<Arc<Attributes>>| set.map(|set| set.as_path.to_string());
        Some(changes.into_iter().map(|(p, set)| (p.to_string(), path(set))).collect::<Vec<_>>())
    };
    let (ten, eleven) = ("10.0.0.0/8".to_owned(), "11.0.0.0/8".to_owned());
    assert_eq!(told(0), Some(vec![(ten, Some("2".into())), (eleven.clone(), None)]));
    assert_eq!(told(2), Some(vec![(eleven, None)]));
    assert_eq!((told(3), told(4)), (Some(vec![]), None));
}

#[test]
fn changes_are_remembered_for_a_bounded_while() {
    let mut history = History::default();
    let many = |n: usize| vec![net("10.0.0.0/8"); n];
    history.add(many(1));
    history.add(many(history::CHANGES_MAX));
    assert_eq!((history.version(), history.since(0), history.since(2)), (2, None, Some(vec![])));
    assert_eq!(history.since(1), Some(many(1)), "just fits");
    history.add(many(history::CHANGES_MAX + 1));
    assert_eq!((history.since(2), history.since(3)), (None, Some(vec![])));
}

#[test]
fn what_nobody_announces_is_forgotten() {
    let (mut rib, view, peers) = rib(2);
    let prefix = |n: u32| IpNet::new(std::net::Ipv4Addr::from(n << 12).into(), 20).unwrap();
    for round in 0..20u32 {
        for n in 0..1000 {
            rib.announce(peers[0], prefix(round * 1000 + n), attributes("1", round * 1000 + n));
        }
        rib.commit();
        assert_eq!((shown(&rib, view).len(), rib.attribute_sets()), (1000, 1000));
        rib.clear(peers[0], Family::V4);
        rib.commit();
        assert_eq!((rib.attribute_sets(), rib.view_counts(view)), (0, [0, 0]));
    }
    assert!(rib.v4.places() <= 2000, "{}", rib.v4.places());
    assert!(rib.sets.bound() <= 2000);
}

#[test]
fn people_see_what_a_peer_announces() {
    let (mut rib, view, peers) = rib(2);
    rib.announce(peers[0], net("10.0.0.0/8"), attributes("1 7", 0));
    rib.announce(peers[0], net("10.1.0.0/16"), attributes("1 {8 9}", 0));
    rib.announce(peers[0], net("2001:db8::/32"), attributes("1 7", 0));
    rib.announce(peers[1], net("10.1.0.0/16"), attributes("2 7", 0));
    rib.commit();
    let heard = |after: Option<&str>| {
        let heard = rib.heard(peers[0], after.map(net));
        heard.map(|(prefix, _)| prefix.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(heard(None), ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"]);
    assert_eq!(heard(Some("10.0.0.0/8")), ["10.1.0.0/16", "2001:db8::/32"]);
    assert_eq!(heard(Some("10.9.0.0/16")), ["2001:db8::/32"]);
    assert_eq!(heard(Some("2001:db8::/32")), [""; 0]);
    let origins: Vec<_> = rib.origins(peers[0]).into_iter().collect();
    assert_eq!(origins, [(None, [1, 0]), (Asn::new(7), [1, 1])]);
    let found = |address: &str| {
        let found = rib.lookup(view, address.parse().unwrap());
        found.iter().map(|(p, peer, _)| format!("{p} {}", peer.0)).collect::<Vec<_>>()
    };
    assert_eq!(found("10.1.2.3"), ["10.1.0.0/16 0", "10.1.0.0/16 1"]);
    assert_eq!(found("10.2.0.0"), ["10.0.0.0/8 0"]);
    assert_eq!(found("11.0.0.0"), [""; 0]);
}

#[test]
fn messages_are_taken_over() {
    let (mut rib, view, peers) = rib(1);
    let rules = Rules {
        four_octet_as: false,
        internal: false,
        families: Families::ALL,
        extended_next_hop: false,
    };
    let body = [
        &[0, 2, 8, 11, 0, 18, 0x40, 1, 1, 0, 0x40, 2, 4, 2, 1, 0, 9][..],
        &[0x40, 3, 4, 192, 0, 2, 1, 8, 10, 16, 10, 1],
    ]
    .concat();
    rib.announce(peers[0], net("11.0.0.0/8"), attributes("1", 0));
    let applied = rib.apply(peers[0], Update::parse(&body, &rules).unwrap());
    assert_eq!(applied, Applied { announced: 2, withdrawn: 1 });
    rib.commit();
    assert_eq!(shown(&rib, view), ["10.0.0.0/8 9", "10.1.0.0/16 9"]);
    // The same prefixes with an origin that is none: they are gone.
    let broken: Vec<u8> =
        body.iter().enumerate().map(|(at, byte)| if at == 9 { 7 } else { *byte }).collect();
    let applied = rib.apply(peers[0], Update::parse(&broken, &rules).unwrap());
    assert_eq!(applied, Applied { announced: 0, withdrawn: 3 });
    rib.commit();
    assert_eq!(rib.view_counts(view), [0, 0]);
}

/// One step of a random history: who, what, which prefix, which attributes.
type Step = (u16, u8, u8, u32);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The table against the plainest one there is: a map of maps, all decided anew each time.
    #[test]
    fn it_is_as_a_plain_table(steps in prop::collection::vec((0u16..3, 0u8..16, 0u8..24, 0u32..4), 1..300)) {
        let steps: Vec<Step> = steps;
        let (mut rib, view, peers) = rib(3);
        let mut plain = BTreeMap::<(u16, IpNet), (u32, bool)>::new();
        let mut told = BTreeMap::<IpNet, u32>::new();
        let mut version = 0;
        for (who, what, which, carried) in steps {
            let peer = peers[usize::from(who)];
            let prefix = if which < 16 {
                net(&format!("10.{}.0.0/{}", which * 16, 8 + which % 5 * 3)).trunc()
            } else {
                net(&format!("2001:db8:{which}::/48"))
            };
            let family = Family::of(prefix.addr());
            let here = |(p, n): &(u16, IpNet)| *p == who && Family::of(n.addr()) == family;
            match what {
                0..8 => {
                    rib.announce(peer, prefix, attributes("1", carried));
                    plain.insert((who, prefix), (carried, false));
                }
                8..11 => {
                    rib.withdraw(peer, prefix);
                    plain.remove(&(who, prefix));
                }
                11 => {
                    rib.clear(peer, family);
                    plain.retain(|key, _| !here(key));
                }
                12 => {
                    rib.mark_stale(peer, family);
                    plain.iter_mut().filter(|(key, _)| here(key)).for_each(|(_, v)| v.1 = true);
                }
                13 => {
                    rib.sweep(peer, family);
                    plain.retain(|key, value| !(here(key) && value.1));
                }
                _ => {
                    rib.commit();
                    let prefixes: BTreeSet<IpNet> = plain.keys().map(|(_, prefix)| *prefix).collect();
                    let best = |prefix: &IpNet| {
                        let of = |(key, value): (&(u16, IpNet), &(u32, bool))| (key.1 == *prefix).then_some(value.0);
                        plain.iter().filter_map(of).min().unwrap()
                    };
                    let expected: Vec<_> = prefixes.iter().map(|p| (*p, best(p))).collect();
                    let found: Vec<_> = rib.export(view).map(|(p, set)| (p, set.med.unwrap())).collect();
                    prop_assert_eq!(&found, &expected);
                    for (prefix, set) in rib.changes_since(view, version).unwrap() {
                        match set {
                            Some(set) => told.insert(prefix, set.med.unwrap()),
                            None => told.remove(&prefix),
                        };
                    }
                    version = rib.version(view);
                    prop_assert_eq!(&told.into_iter().collect::<Vec<_>>(), &expected);
                    told = expected.into_iter().collect();
                    for (who, peer) in (0..).zip(&peers) {
                        let held = plain.keys().filter(|(p, _)| *p == who).count();
                        prop_assert_eq!(rib.peer_counts(*peer).iter().sum::<u32>() as usize, held);
                        prop_assert_eq!(rib.heard(*peer, None).count(), held);
                    }
                    let different: BTreeSet<_> = plain.values().map(|value| value.0).collect();
                    prop_assert_eq!(rib.attribute_sets(), different.len());
                }
            }
        }
    }
}
