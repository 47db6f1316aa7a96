//! Dumps and recorded messages, made by hand.

use model::Asn;

use super::*;

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Two peers: 192.0.2.1, AS 64500 (two octets), and 2001:db8::1, AS 4200000000.
fn index() -> Vec<u8> {
    let mut body = vec![192, 0, 2, 99, 0, 4, b'v', b'i', b'e', b'w', 0, 2];
    body.extend([0, 192, 0, 2, 1, 192, 0, 2, 1]);
    body.extend(64500u16.to_be_bytes());
    body.extend([3, 192, 0, 2, 2]);
    body.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    body.extend(4_200_000_000u32.to_be_bytes());
    record(13, 1, &body)
}

/// ORIGIN IGP and a path of these ASes.
fn path(asns: &[u32]) -> Vec<u8> {
    let mut out = vec![0x40, 1, 1, 0, 0x40, 2];
    out.push(u8::try_from(2 + 4 * asns.len()).unwrap());
    out.extend([2, u8::try_from(asns.len()).unwrap()]);
    out.extend(asns.iter().flat_map(|asn| asn.to_be_bytes()));
    out
}

const NEXT_HOP: [u8; 7] = [0x40, 3, 4, 192, 0, 2, 7];
/// `MP_REACH_NLRI` as dumps have it: the next hop alone.
const REACH: [u8; 20] = [0x80, 14, 17, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn entry(peer: u16, attributes: &[&[u8]]) -> Vec<u8> {
    let attributes = attributes.concat();
    let mut out = peer.to_be_bytes().to_vec();
    out.extend([0, 0, 0, 1]);
    out.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
    out.extend(attributes);
    out
}

/// A prefix with these entries.
fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1];
    body.extend_from_slice(prefix);
    body.extend(u16::try_from(entries.len()).unwrap().to_be_bytes());
    body.extend(entries.concat());
    record(13, subtype, &body)
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, MrtError> {
    let (mut records, mut out, mut all) = (Records::new(bytes), Vec::new(), Vec::new());
    while records.next(&mut out)? {
        all.append(&mut out);
    }
    Ok(all)
}

/// "PREFIX: PEER via NEXT HOP path PATH, ..."
fn shown(events: &[Event]) -> Vec<String> {
    let route =
        |peer: &IpAddr, of: &Attributes| format!("{peer} via {} path {}", of.next_hop, of.as_path);
    let show = |event: &Event| match event {
        Event::Table(prefix, entries) => {
            let entries: Vec<_> = entries.iter().map(|(peer, of)| route(peer, of)).collect();
            format!("{prefix}: {}", entries.join(", "))
        }
        Event::Told(peer, prefix, Some(of)) => format!("{prefix} now {}", route(peer, of)),
        Event::Told(peer, prefix, None) => format!("{prefix} gone of {peer}"),
        Event::Down(peer) => format!("{peer} down"),
    };
    events.iter().map(show).collect()
}

#[test]
fn a_dump_has_the_routes_of_all_peers() {
    let long = [&[24u8, 198, 51, 100][..]].concat();
    let v6 = [32u8, 0x20, 1, 0xd, 0xb8];
    let file = [
        index(),
        rib(
            2,
            &long,
            &[
                entry(0, &[&path(&[64500, 65550]), &NEXT_HOP]),
                entry(1, &[&path(&[4_200_000_000]), &NEXT_HOP]),
            ],
        ),
        // Multicast says nothing to us.
        rib(3, &long, &[]),
        rib(4, &v6, &[entry(1, &[&path(&[4_200_000_000, 7]), &REACH])]),
    ]
    .concat();
    assert_eq!(
        shown(&read(&file).unwrap()),
        [
            "198.51.100.0/24: 192.0.2.1 via 192.0.2.7 path 64500 65550, \
             2001:db8::1 via 192.0.2.7 path 4200000000",
            "2001:db8::/32: 2001:db8::1 via 2001:db8::7 path 4200000000 7",
        ]
    );
}

#[test]
fn next_hops_come_in_every_form() {
    // The whole MP_REACH_NLRI, as some collectors write it; IPv4 by an IPv6 next hop; path identifiers.
    let mut whole = vec![0x80, 14, 26, 0, 2, 1];
    whole.extend_from_slice(&REACH[3..]);
    whole.extend([0, 32, 0x20, 1, 0xd, 0xb8]);
    let with_path_id = |mut entry: Vec<u8>| {
        entry.splice(6..6, [0, 0, 0, 9]);
        entry
    };
    let v6 = [32u8, 0x20, 1, 0xd, 0xb8];
    let file = [
        index(),
        rib(4, &v6, &[entry(0, &[&path(&[1]), &whole])]),
        rib(2, &[8, 10], &[entry(0, &[&path(&[2]), &REACH])]),
        // Without flags, as BIRD writes it.
        rib(8, &[8, 10], &[with_path_id(entry(0, &[&path(&[3]), &[0], &NEXT_HOP[1..]]))]),
        rib(10, &v6, &[with_path_id(entry(0, &[&path(&[4]), &REACH]))]),
    ]
    .concat();
    assert_eq!(
        shown(&read(&file).unwrap()),
        [
            "2001:db8::/32: 192.0.2.1 via 2001:db8::7 path 1",
            "10.0.0.0/8: 192.0.2.1 via 2001:db8::7 path 2",
            "10.0.0.0/8: 192.0.2.1 via 192.0.2.7 path 3",
            "2001:db8::/32: 192.0.2.1 via 2001:db8::7 path 4",
        ]
    );
}

/// A malformed entry is left out (its ORIGIN is none), and so is one of a set of ASes.
#[test]
fn malformed_entries_are_no_routes() {
    let bad_origin = [&[0x40, 1, 1, 9][..], &path(&[1])[4..]].concat();
    let file = [
        index(),
        rib(
            2,
            &[8, 10],
            &[entry(0, &[&bad_origin, &NEXT_HOP]), entry(1, &[&path(&[7]), &NEXT_HOP])],
        ),
        rib(2, &[8, 11], &[entry(0, &[&path(&[1])])]),
    ]
    .concat();
    assert_eq!(
        shown(&read(&file).unwrap()),
        ["10.0.0.0/8: 2001:db8::1 via 192.0.2.7 path 7", "11.0.0.0/8: "]
    );
}

/// A message of the peer 192.0.2.1, AS numbers of so many octets.
fn told(kind: u16, subtype: u16, asn_octets: usize, rest: &[u8]) -> Vec<u8> {
    let mut body = vec![0; if kind == 17 { 4 } else { 0 }];
    body.extend(vec![0; 2 * asn_octets + 2]);
    body.extend([0, 1, 192, 0, 2, 1, 192, 0, 2, 99]);
    body.extend_from_slice(rest);
    record(kind, subtype, &body)
}

fn update(withdrawn: &[u8], attributes: &[u8], nlri: &[u8]) -> Vec<u8> {
    let mut out = vec![0xff; 16];
    let length = 19 + 4 + withdrawn.len() + attributes.len() + nlri.len();
    out.extend(u16::try_from(length).unwrap().to_be_bytes());
    out.push(2);
    out.extend(u16::try_from(withdrawn.len()).unwrap().to_be_bytes());
    out.extend_from_slice(withdrawn);
    out.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
    out.extend_from_slice(attributes);
    out.extend_from_slice(nlri);
    out
}

#[test]
fn recorded_messages_are_played_back() {
    let four = [&path(&[64500, 65550])[..], &NEXT_HOP].concat();
    let two = [&[0x40, 1, 1, 0, 0x40, 2, 4, 2, 1, 0xfb, 0xf4][..], &NEXT_HOP].concat();
    let file = [
        told(16, 4, 4, &update(&[], &four, &[8, 10, 8, 11])),
        told(17, 1, 2, &update(&[], &two, &[8, 12])),
        told(16, 4, 4, &update(&[8, 10], &[], &[])),
        // What the collector sent, and what is no UPDATE.
        told(16, 7, 4, &update(&[], &four, &[8, 13])),
        told(16, 4, 4, &[&[0xff; 16][..], &[0, 19, 4]].concat()),
        told(16, 5, 4, &[0, 6, 0, 1]),
        told(16, 0, 2, &[0, 3, 0, 4]),
    ]
    .concat();
    assert_eq!(
        shown(&read(&file).unwrap()),
        [
            "10.0.0.0/8 now 192.0.2.1 via 192.0.2.7 path 64500 65550",
            "11.0.0.0/8 now 192.0.2.1 via 192.0.2.7 path 64500 65550",
            "12.0.0.0/8 now 192.0.2.1 via 192.0.2.7 path 64500",
            "10.0.0.0/8 gone of 192.0.2.1",
            "192.0.2.1 down",
        ]
    );
    let Event::Told(_, _, Some(of)) = &read(&file).unwrap()[0] else { panic!() };
    assert_eq!(of.as_path.origin(), Asn::new(65550));
}

/// A record is longer than a message can be; nothing behind the message is taken for prefixes, and
/// those that it has do not cost their attributes each.
#[test]
fn a_message_is_no_larger_than_it_says() {
    let two = [&path(&[64500])[..], &NEXT_HOP].concat();
    let message = update(&[], &two, &[8, 10, 8, 11]);
    let behind = [&message[..], &[8, 12, 8, 13]].concat();
    let events = read(&told(16, 4, 4, &behind)).unwrap();
    let [Event::Told(_, _, Some(first)), Event::Told(_, _, Some(second))] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(Arc::ptr_eq(first, second));
}

#[test]
fn what_is_no_such_file_says_so() {
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(read(&[]).unwrap().is_empty());
    assert_eq!(error(&[0; 5]), "the file ends inside record 1: fetch it again");
    assert_eq!(error(&index()[..20]), "the file ends inside record 1: fetch it again");
    assert!(error(b"\x1f\x8b\x08\x00 this is gzip").contains("is it an MRT file?"));
    let early = rib(2, &[8, 10], &[]);
    assert_eq!(error(&early), "record 1 is malformed: it comes before the list of peers");
    let stranger = rib(2, &[8, 10], &[entry(2, &[])]);
    let text = error(&[index(), stranger].concat());
    assert_eq!(text, "record 2 is malformed: an entry is of a peer that is not in the list");
    assert!(error(&record(12, 1, &[0; 30])).contains("only TABLE_DUMP_V2 and BGP4MP"));
}

/// Every record cut off or with one octet changed ends with events or an error.
#[test]
fn no_octets_do_harm() {
    let four = [&path(&[64500, 65550])[..], &NEXT_HOP].concat();
    let file = [
        index(),
        rib(2, &[8, 10], &[entry(0, &[&path(&[1]), &NEXT_HOP])]),
        rib(4, &[32u8, 0x20, 1, 0xd, 0xb8], &[entry(1, &[&path(&[4]), &REACH])]),
        told(16, 4, 4, &update(&[8, 10], &four, &[8, 11])),
    ]
    .concat();
    for at in 0..file.len() {
        let _ = read(&file[..at]);
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] = value;
            let _ = read(&changed);
        }
    }
}

/// The committed corpus of the fuzz target, as far as it is files of routes: each is read or refused, and
/// most have events.
#[test]
fn the_fuzz_corpus_is_read_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/bgp_message");
    let mut events = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        events += read(&bytes).map_or(0, |events| events.len());
        for four_octet_as in [true, false] {
            let _ = Update::parse(&bytes, &rules(four_octet_as));
            let _ = crate::frame::first(&bytes, true);
        }
    }
    assert_eq!(events, 2);
}
