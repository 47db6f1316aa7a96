//! What stands in signed answers: each record set of each section, and whether its signature holds.

use model::{Dice, HostName, Now};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, UnparsedPublicKey};

use super::canonical::SetReader;
use super::*;
use crate::testing::{Ask, manners, node_map, with_keys, zone_file};
use crate::wire::{HEADER_BYTES, Reader, rtype, text_of, wire_name};
use crate::{Asker, Desk, Outcome, Snapshot, Sort, Transport, answer};

/// Of RFC 8080 section 6.1, as in `tests`.
const PRIVATE: &str = "Private-key-format: v1.2\nAlgorithm: 15 (ED25519)\n\
    PrivateKey: ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=\n";
const NOW: Now = Now { mono_ns: 1_000_000_000_000, wall_ms: 1_800_000_000_000 };

fn zone() -> HostName {
    "cdn.example".parse().unwrap()
}

fn key() -> Key {
    Key::read(&zone(), PRIVATE, None, &SystemRandom::new()).unwrap()
}

/// The network of the conversations with `cdn.example` signed, `inner.cdn.example` not.
fn signed() -> Snapshot {
    let keys = ZoneKeys::new(&zone(), vec![(key(), Duty::Active)], Cds::Publish, 604_800).unwrap();
    let mut keyring = Keyring::default();
    keyring.add(zone(), keys);
    with_keys(node_map("network.toml"), vec![zone_file("cdn.example.zone")], keyring)
}

struct Server {
    snapshot: Snapshot,
    desk: Desk,
}

/// A reply: its sort and the lines of its sections, OPT record left out.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    sort: Sort,
    rcode: u8,
    lines: Vec<String>,
}

impl Server {
    fn new() -> Self {
        let signer = Signer::with_budget([7; 16], SystemRandom::new(), 20);
        let desk = Desk::new(Dice::seeded(1), manners()).with_pen(Pen::new(signer.into()));
        Self { snapshot: signed(), desk }
    }

    fn ask(&mut self, ask: &Ask, transport: Transport) -> (Sort, bool, Vec<u8>) {
        let peer = "198.51.100.1".parse().unwrap();
        let mut out = Vec::new();
        let asker = Asker { peer, transport, now: NOW };
        let outcome = answer(&self.snapshot, &ask.bytes(), &asker, &mut self.desk, &mut out);
        let Outcome::Answered(answered) = outcome else { panic!("an answer") };
        (answered.sort, answered.truncated, out)
    }

    fn says(&mut self, name: &str, rtype: u16) -> Said {
        let ask = Ask { dnssec_ok: true, ..Ask::new(name, rtype) };
        let (sort, _, reply) = self.ask(&ask, Transport::Tcp);
        Said { sort, rcode: reply[3] & 0xf, lines: lines(&reply) }
    }
}

/// A line for each record set: section, owner, type, then `signed` when its signature holds.
fn lines(reply: &[u8]) -> Vec<String> {
    let mut counts = Reader::new(&reply[6..HEADER_BYTES]);
    let counts: [u16; 3] = std::array::from_fn(|_| counts.u16().unwrap());
    let mut question = Reader::new(&reply[HEADER_BYTES..]);
    question.skip_name().unwrap();
    let mut at = reply.len() - question.left() + 4;
    let mut lines = Vec::new();
    for (section, count) in ["answer", "authority", "additional"].into_iter().zip(counts) {
        let mut sets: Vec<(Vec<u8>, u16, Vec<u8>)> = Vec::new();
        let mut signatures: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut left = count;
        while left > 0 {
            let mut reader = SetReader::default();
            let set = reader.read(reply, at).unwrap();
            left -= records(&reply[..set.end], at);
            at = set.end;
            let owner = reader.owner.clone();
            match set.rtype {
                rtype::OPT => {}
                rtype::RRSIG => {
                    let mut rest = Reader::new(&reader.records);
                    while rest.take(owner.len() + 8).is_some() {
                        let length = rest.u16().unwrap();
                        signatures
                            .push((owner.clone(), rest.take(length.into()).unwrap().to_vec()));
                    }
                }
                rtype => sets.push((owner, rtype, reader.records)),
            }
        }
        for (owner, rtype, records) in sets {
            let of = |(name, data): &&(Vec<u8>, Vec<u8>)| {
                *name == owner && data[..2] == rtype.to_be_bytes()
            };
            let holds = signatures.iter().filter(of).map(|(_, data)| verify(data, &records));
            let signed = holds.fold("", |_, ()| " signed");
            lines.push(format!("{section} {} {}{signed}", text_of(&owner), rtype::word(rtype)));
        }
    }
    assert_eq!(at, reply.len());
    lines
}

/// Number of records from `at` to the end.
fn records(message: &[u8], at: usize) -> u16 {
    let mut reader = Reader::new(&message[at..]);
    let mut count = 0;
    while reader.left() > 0 {
        reader.skip_name().unwrap();
        reader.take(8).unwrap();
        let length = reader.u16().unwrap();
        reader.take(length.into()).unwrap();
        count += 1;
    }
    count
}

fn verify(rrsig: &[u8], records: &[u8]) {
    let (fixed, signature) = rrsig.split_at(rrsig.len() - 64);
    assert_eq!(fixed[18..], wire_name(&zone()));
    let key = key();
    let public = UnparsedPublicKey::new(&ED25519, &key.dnskey()[4..]);
    public.verify(&[fixed, records].concat(), signature).expect("the signature holds");
}

#[test]
fn every_sort_of_answer_is_signed() {
    let mut server = Server::new();
    let mut check = |name: &str, rtype: u16, sort: Sort, expected: &[&str]| {
        let said = server.says(name, rtype);
        assert_eq!((said.sort, said.rcode), (sort, 0), "{name}: {:?}", said.lines);
        assert_eq!(said.lines, expected, "{name}");
    };
    let soa = "authority cdn.example. SOA signed";
    check("VideoLAN.cdn.example", 1, Sort::Steered, &["answer videolan.cdn.example. A signed"]);
    check("videolan.cdn.example", 28, Sort::Steered, &["answer videolan.cdn.example. AAAA signed"]);
    check("two.cdn.example", 16, Sort::Fixed, &["answer two.cdn.example. TXT signed"]);
    check("cdn.example", 48, Sort::Fixed, &["answer cdn.example. DNSKEY signed"]);
    check("cdn.example", 59, Sort::Fixed, &["answer cdn.example. CDS signed"]);
    check("cdn.example", 60, Sort::Fixed, &["answer cdn.example. CDNSKEY signed"]);
    check("cdn.example", 6, Sort::Fixed, &["answer cdn.example. SOA signed"]);
    check("cdn.example", 255, Sort::MinimalAny, &["answer cdn.example. HINFO signed"]);
    check(
        "cdn.example",
        2,
        Sort::Fixed,
        &[
            "answer cdn.example. NS signed",
            "additional ns1.cdn.example. A signed",
            "additional ns1.cdn.example. AAAA signed",
            "additional ns2.cdn.example. A signed",
        ],
    );
    check(
        "alias.cdn.example",
        1,
        Sort::Steered,
        &[
            "answer alias.cdn.example. CNAME signed",
            "answer www.cdn.example. CNAME signed",
            "answer videolan.cdn.example. A signed",
        ],
    );
    // RFC 9824 section 3.3: a wildcard's answer is signed for the name itself.
    check("a.b.wild.cdn.example", 16, Sort::Fixed, &["answer a.b.wild.cdn.example. TXT signed"]);
    check(
        "x.aliases.cdn.example",
        1,
        Sort::Fixed,
        &["answer x.aliases.cdn.example. CNAME signed", "answer mail.cdn.example. A signed"],
    );
    let nsec = |name: &str| format!("authority {name}. NSEC signed");
    check("videolan.cdn.example", 15, Sort::NoData, &[soa, &nsec("videolan.cdn.example")]);
    check("below.cdn.example", 1, Sort::NoData, &[soa, &nsec("below.cdn.example")]);
    check("a.wild.cdn.example", 1, Sort::NoData, &[soa, &nsec("a.wild.cdn.example")]);
    check("nobody.cdn.example", 1, Sort::NxName, &[soa, &nsec("nobody.cdn.example")]);
    check(
        "nowhere.cdn.example",
        1,
        Sort::NxName,
        &["answer nowhere.cdn.example. CNAME signed", soa, &nsec("nothing.cdn.example")],
    );
    check("videolan.cdn.example", 46, Sort::NoData, &[soa, &nsec("videolan.cdn.example")]);
    check("videolan.cdn.example", 47, Sort::Fixed, &["answer videolan.cdn.example. NSEC signed"]);
}

#[test]
fn delegations_carry_what_the_parent_vouches_for_and_nothing_else() {
    let mut server = Server::new();
    let glue = ["additional ns.deleg.cdn.example. A", "additional ns.deleg.cdn.example. AAAA"];
    let said = server.says("www.deleg.cdn.example", 1);
    let referral = ["authority deleg.cdn.example. NS", "authority deleg.cdn.example. DS signed"];
    assert_eq!(
        (said.sort, said.lines),
        (Sort::Referral, [&referral[..], &glue].concat().iter().map(|l| (*l).to_owned()).collect())
    );
    let said = server.says("deleg.cdn.example", 43);
    assert_eq!(
        (said.sort, said.lines),
        (Sort::Fixed, vec!["answer deleg.cdn.example. DS signed".to_owned()])
    );
    // A zone that is here too: its DS set is the parent's, its own records are not signed.
    let said = server.says("inner.cdn.example", 43);
    assert_eq!(said.lines, ["answer inner.cdn.example. DS signed"]);
    let said = server.says("inner.cdn.example", 6);
    assert_eq!(said.lines, ["answer inner.cdn.example. SOA"]);
    let said = server.says("nobody.inner.cdn.example", 1);
    assert_eq!(
        (said.sort, said.lines),
        (Sort::NxDomain, vec!["authority inner.cdn.example. SOA".to_owned()])
    );
}

/// The data of the NSEC record in a reply.
fn nsec(reply: &[u8]) -> Vec<u8> {
    let mut question = Reader::new(&reply[HEADER_BYTES..]);
    question.skip_name().unwrap();
    let mut at = reply.len() - question.left() + 4;
    loop {
        let mut reader = SetReader::default();
        let set = reader.read(reply, at).unwrap();
        if set.rtype == rtype::NSEC {
            return reader.records[reader.owner.len() + 10..].to_vec();
        }
        at = set.end;
    }
}

/// The bitmap of NSEC data for a name of this many bytes.
fn bitmap(name: &str, types: &[u16]) -> Vec<u8> {
    let name = wire_name(&name.parse().unwrap());
    let mut record = Vec::new();
    denial::push_record((0xc00c, &name), 60, types.iter().copied(), &mut record);
    record.split_off(12)
}

#[test]
fn nsec_records_list_what_is_there_but_never_what_was_asked_for() {
    let mut server = Server::new();
    let mut data = |name: &str, rtype: u16| {
        let ask = Ask { dnssec_ok: true, ..Ask::new(name, rtype) };
        nsec(&server.ask(&ask, Transport::Tcp).2)
    };
    for (name, asked, types) in [
        // A, TXT, AAAA, RRSIG, NSEC, CAA: what is steered and what stands beside it.
        ("videolan.cdn.example", 15, &[1, 16, 28, 46, 47, 257][..]),
        ("below.cdn.example", 1, &[46, 47]),
        ("nobody.cdn.example", 1, &[46, 47, 128]),
        ("a.wild.cdn.example", 1, &[15, 16, 46, 47]),
        ("cdn.example", 1, &[2, 6, 15, 16, 46, 47, 48, 59, 60, 257]),
        ("cdn.example", 43, &[2, 6, 15, 16, 46, 47, 48, 59, 60, 257]),
    ] {
        assert_eq!(data(name, asked), bitmap(name, types), "{name} {asked}");
    }
}

#[test]
fn clients_that_know_compact_answers_get_nxdomain() {
    let mut server = Server::new();
    let plain = server.ask(&Ask::new("nobody.cdn.example", 1), Transport::Udp);
    assert_eq!(
        (plain.0, lines(&plain.2)),
        (Sort::NxDomain, vec!["authority cdn.example. SOA".to_owned()])
    );
    let mut ask = Ask { dnssec_ok: true, ..Ask::new("nobody.cdn.example", 1) };
    ask.compact_ok = true;
    let (sort, _, reply) = server.ask(&ask, Transport::Udp);
    assert_eq!((sort, reply[3] & 0xf), (Sort::NxDomain, 3));
    let opt = reply.len() - 11;
    assert_eq!(reply[opt..], [0, 0, 41, 4, 208, 0, 0, 0xc0, 0, 0, 0]);
    let said = server.says("videolan.cdn.example", 128);
    assert_eq!((said.sort, said.rcode), (Sort::FormErr, 1));
}

#[test]
fn what_does_not_fit_with_its_signatures_is_truncated() {
    let mut server = Server::new();
    let bytes = |server: &mut Server, dnssec_ok| {
        let ask = Ask { dnssec_ok, edns: Some(1232), ..Ask::new("two.cdn.example", 16) };
        server.ask(&ask, Transport::Udp).2.len()
    };
    let (plain, signed) = (bytes(&mut server, false), bytes(&mut server, true));
    assert_eq!(signed - plain, 12 + 18 + 13 + 64);
    let ask = Ask { dnssec_ok: true, edns: Some(1232), ..Ask::new("big.cdn.example", 16) };
    let (_, truncated, reply) = server.ask(&ask, Transport::Udp);
    assert_eq!((truncated, lines(&reply)), (true, vec![]));
    // Additional records stay without theirs.
    let ask = Ask { dnssec_ok: true, edns: Some(512), ..Ask::new("cdn.example", 2) };
    let (_, truncated, reply) = server.ask(&ask, Transport::Udp);
    let unsigned = lines(&reply).iter().filter(|line| !line.ends_with(" signed")).count();
    assert_eq!((truncated, unsigned), (false, 3), "{:?}", lines(&reply));
}

#[test]
fn names_that_clients_think_up_are_answered_by_tcp_and_then_no_more() {
    let mut server = Server::new();
    let mut ask = |i: usize, transport| {
        let name = format!("x{i}.cdn.example");
        let (sort, truncated, reply) =
            server.ask(&Ask { dnssec_ok: true, ..Ask::new(&name, 1) }, transport);
        (sort, truncated, lines(&reply).len())
    };
    let udp: Vec<_> = (0..21).map(|i| ask(i, Transport::Udp)).collect();
    assert!(udp[..20].iter().all(|said| *said == (Sort::NxName, false, 2)));
    assert_eq!(udp[20], (Sort::NxName, true, 0));
    let tcp: Vec<_> = (30..51).map(|i| ask(i, Transport::Tcp)).collect();
    assert_eq!(tcp[19], (Sort::NxName, false, 2));
    assert_eq!(tcp[20], (Sort::ServFail, false, 0));
}
