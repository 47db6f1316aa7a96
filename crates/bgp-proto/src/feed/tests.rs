//! Documents written, read, applied, damaged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::route::{AsPath, Communities, Community, LargeCommunity, Origin, SegmentKind};
use proptest::prelude::*;

use super::*;
use crate::PeerId;

fn attributes(asn: u32) -> Attributes {
    Attributes {
        next_hop: "192.0.2.1".parse().unwrap(),
        origin: Origin::Igp,
        as_path: AsPath::sequence(&[64500, asn]),
        med: None,
        local_pref: None,
        communities: Communities::default(),
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A table with one view, `one`, and one peer.
fn rib() -> (Rib, PeerId) {
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("one").unwrap();
    let peer = rib.add_peer(view, false).unwrap();
    (rib, peer)
}

fn shown(followed: &Followed) -> Vec<String> {
    let mut shown = Vec::new();
    for (view, of) in followed.views() {
        shown.extend(of.table.iter().map(|(net, what)| format!("{view} {net} {}", what.as_path)));
    }
    shown
}

#[test]
fn a_follower_has_the_whole_then_changes_then_nothing_new() {
    let (mut rib, peer) = rib();
    rib.announce(peer, net("10.0.0.0/8"), attributes(1));
    rib.announce(peer, net("10.1.0.0/16"), attributes(1));
    rib.announce(peer, net("2001:db8::/32"), attributes(2));
    rib.commit();
    let mut followed = Followed::default();
    let get =
        |rib: &Rib, followed: &Followed, up| document(rib, 7, Some(&followed.cursor()), |_| up);
    let whole = get(&rib, &followed, true).unwrap();
    followed.apply(Feed::read(&whole).unwrap()).unwrap();
    let one = ["one 10.0.0.0/8 64500 1", "one 10.1.0.0/16 64500 1", "one 2001:db8::/32 64500 2"];
    assert_eq!(shown(&followed), one);
    assert_eq!(get(&rib, &followed, true), None);

    // A session that goes is news, without a change of any route.
    let table = Arc::clone(&followed.views()["one"].table);
    let down = get(&rib, &followed, false).unwrap();
    followed.apply(Feed::read(&down).unwrap()).unwrap();
    assert!(!followed.views()["one"].up);
    assert!(Arc::ptr_eq(&table, &followed.views()["one"].table));
    assert!(down.len() < 64);

    rib.withdraw(peer, net("10.1.0.0/16"));
    rib.announce(peer, net("2001:db8::/32"), attributes(3));
    rib.announce(peer, net("0.0.0.0/0"), attributes(3));
    rib.commit();
    let delta = get(&rib, &followed, false).unwrap();
    let feed = Feed::read(&delta).unwrap();
    assert!(feed.views[0].from.is_some());
    let mut behind = Followed::default();
    assert_eq!(behind.apply(Feed::read(&delta).unwrap()), Err(Gap));
    followed.apply(feed).unwrap();
    let two = ["one 0.0.0.0/0 64500 3", "one 10.0.0.0/8 64500 1", "one 2001:db8::/32 64500 3"];
    assert_eq!(shown(&followed), two);

    // Another run of the publisher: the whole. And what is kept on a disk is the same again.
    let whole = document(&rib, 8, Some(&followed.cursor()), |_| true).unwrap();
    assert!(Feed::read(&whole).unwrap().views[0].from.is_none());
    let mut again = Followed::default();
    again.apply(Feed::read(&followed.document()).unwrap()).unwrap();
    assert_eq!((shown(&again), again.cursor()), (shown(&followed), followed.cursor()));
    // A view that is no more goes.
    followed.apply(Feed::read(&Writer::new(9).finish()).unwrap()).unwrap();
    assert!(followed.views().is_empty());
    for odd in ["", "x", "7,one", "7,one:1", "7,one:x:1"] {
        assert!(document(&rib, 7, Some(odd), |_| true).is_some(), "{odd}");
    }
}

#[test]
fn a_damaged_document_is_refused_whole() {
    let (mut rib, peer) = rib();
    for n in 0..50u32 {
        let net = IpNet::new(Ipv4Addr::from_bits(n << 24).into(), 8).unwrap();
        rib.announce(peer, net, attributes(n + 1));
    }
    rib.commit();
    let whole = document(&rib, 7, None, |_| true).unwrap();
    for cut in 0..whole.len() {
        assert_eq!(Feed::read(&whole[..cut]).err(), Some(FeedError::Damaged), "{cut}");
    }
    for at in 8..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let newer = at == 8;
        let expected = if newer { FeedError::Newer(0x11) } else { FeedError::Damaged };
        assert_eq!(Feed::read(&damaged).err(), Some(expected), "{at}");
        // With the sum put right no byte makes reading panic.
        let body = damaged.len() - 4;
        let sum = crc32c::crc32c(&damaged[..body]);
        damaged[body..].copy_from_slice(&sum.to_le_bytes());
        let _ = Feed::read(&damaged);
    }
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    let segment = (1..=4u8, prop::collection::vec(any::<u32>(), 1..4));
    let large = any::<[u32; 3]>()
        .prop_map(|[global, first, second]| LargeCommunity { global, local: [first, second] });
    (
        any::<Option<u128>>(),
        0..3u8,
        prop::collection::vec(segment, 0..3),
        any::<(Option<u32>, Option<u32>)>(),
        prop::collection::vec(any::<u32>(), 0..3),
        prop::collection::vec(large, 0..3),
        prop::collection::vec(any::<[u8; 8]>(), 0..3),
    )
        .prop_map(|(hop, origin, segments, (med, local_pref), standard, large, extended)| {
            let segments = segments
                .iter()
                .map(|(kind, asns)| (SegmentKind::of_code(*kind).unwrap(), asns.as_slice()));
            let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            Attributes {
                next_hop: hop.map_or(v4, |bits| Ipv6Addr::from_bits(bits).into()),
                origin: Origin::of_code(origin).unwrap(),
                as_path: AsPath::of_segments(segments),
                med,
                local_pref,
                communities: Communities::new(standard.into_iter().map(Community), large, extended),
            }
        })
}

fn any_net() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 0..=32u8)
        .prop_map(|(bits, length)| IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap());
    let v6 = (any::<u128>(), 0..=128u8)
        .prop_map(|(bits, length)| IpNet::new(Ipv6Addr::from_bits(bits).into(), length).unwrap());
    prop_oneof![v4, v6].prop_map(|net| net.trunc())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        sets in prop::collection::vec(any_attributes(), 1..6),
        rows in prop::collection::btree_map(any_net(), prop::option::of(any::<prop::sample::Index>()), 0..60),
        numbers in any::<(u64, u64, u64, bool)>(),
    ) {
        let sets: Vec<_> = sets.into_iter().map(Arc::new).collect();
        let changes: Vec<Change> = rows.iter()
            .map(|(net, at)| (*net, at.map(|at| Arc::clone(at.get(&sets))))).collect();
        let (epoch, from, version, up) = numbers;
        let mut writer = Writer::new(epoch);
        writer.view("one", up, Some(from), version, &changes);
        writer.view("two", !up, None, version, &changes);
        let feed = Feed::read(&writer.finish()).unwrap();
        prop_assert_eq!(feed.epoch, epoch);
        let [one, two] = &feed.views[..] else { panic!("two views") };
        prop_assert_eq!((one.view.as_str(), one.up, one.from, one.version), ("one", up, Some(from), version));
        prop_assert_eq!((two.view.as_str(), two.up, two.from), ("two", !up, None));
        prop_assert_eq!(&one.changes, &changes);
        prop_assert_eq!(&two.changes, &changes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut document = Writer::new(1).finish();
        document.truncate(document.len() - 5);
        document.append(&mut bytes);
        let sum = crc32c::crc32c(&document);
        document.extend(sum.to_le_bytes());
        if let Ok(feed) = Feed::read(&document) {
            let mut followed = Followed::default();
            let _ = followed.apply(feed);
        }
    }
}
