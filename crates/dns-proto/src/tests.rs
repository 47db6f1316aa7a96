//! Properties: whatever bytes come, the reply is a sound message within its limit; and every
//! address inside an announced scope gets the same (S2).

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use ipnet::IpNet;
use model::{Dice, Now};
use proptest::prelude::*;

use crate::testing::{Ask, manners, node_map, snapshot};
use crate::wire::{Reader, rtype};
use crate::{Asker, Desk, Outcome, Snapshot, Transport, UDP_BYTES_MAX, answer};

fn ask(
    snapshot: &Snapshot,
    message: &[u8],
    transport: Transport,
    desk: &mut Desk,
) -> (Outcome, Vec<u8>) {
    let mut out = vec![1, 2, 3];
    let peer = Ipv4Addr::new(192, 0, 2, 1).into();
    let asker = Asker { peer, transport, now: Now::default() };
    let outcome = answer(snapshot, message, &asker, desk, &mut out);
    (outcome, out)
}

/// What holds for the reply to any message.
fn check_reply(message: &[u8], transport: Transport, outcome: Outcome, reply: &[u8]) {
    let Outcome::Answered(answered) = outcome else {
        assert!(reply.is_empty());
        assert!(message.len() < 12 || message[2] & 0x80 != 0, "dropped without a reason");
        return;
    };
    assert_eq!(reply[..2], message[..2]);
    assert_eq!(reply[2] & 0xf9, 0x80 | message[2] & 0x79, "QR, opcode and RD: {reply:?}");
    assert_eq!(reply[2] & 0x02 != 0, answered.truncated);
    assert_eq!(reply[3], u8::try_from(answered.sort.rcode() & 0xf).unwrap(), "RA, Z, AD, CD clear");
    if transport == Transport::Udp {
        assert!(reply.len() <= usize::from(UDP_BYTES_MAX));
    }
    let mut reader = Reader::new(&reply[4..]);
    let counts: Vec<u16> = (0..4).map(|_| reader.u16().unwrap()).collect();
    for _ in 0..counts[0] {
        reader.skip_name().unwrap();
        reader.take(4).unwrap();
    }
    for _ in 0..counts[1..].iter().sum() {
        reader.skip_name().unwrap();
        reader.take(8).unwrap();
        let length = reader.u16().unwrap();
        reader.take(usize::from(length)).unwrap();
    }
    assert_eq!(reader.left(), 0, "the counts tell of every byte");
}

#[test]
fn the_fuzz_corpus_gets_sound_replies() {
    let network = snapshot(node_map("network.toml"));
    let empty = Snapshot::not_ready();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/dns_packet");
    let mut desk = Desk::new(Dice::seeded(1), manners());
    let mut sorts = BTreeSet::new();
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in &files {
        let message = fs::read(path).unwrap();
        for transport in [Transport::Udp, Transport::Tcp] {
            for snapshot in [&network, &empty] {
                let (outcome, reply) = ask(snapshot, &message, transport, &mut desk);
                check_reply(&message, transport, outcome, &reply);
                sorts.insert(format!("{outcome:?}"));
            }
        }
    }
    assert!(files.len() >= 20 && sorts.len() >= 10, "{} files: {sorts:?}", files.len());
}

fn any_ask() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "videolan.cdn.example",
        "GAMES.inner.cdn.example",
        "mirror1-us.videolan.cdn.example",
        "cdn.example",
        "big.cdn.example",
        "below.cdn.example",
        "x.y.cdn.example",
        "example",
        ".",
    ]);
    let option = (
        prop::sample::select(vec![3u16, 8, 8, 10, 10, 11, 15]),
        prop::collection::vec(any::<u8>(), 0..42),
    );
    (
        (name, prop_oneof![prop::sample::select(vec![1u16, 2, 6, 16, 28, 255]), any::<u16>()]),
        (prop_oneof![9 => Just(1u16), 1 => any::<u16>()], prop::option::of(any::<u16>())),
        (any::<bool>(), prop::collection::vec(option, 0..3)),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    )
        .prop_map(|((name, rtype), (class, edns), (dnssec_ok, options), changes)| {
            let mut bytes =
                Ask { class, edns, dnssec_ok, options, ..Ask::new(name, rtype) }.bytes();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_get_a_sound_reply_or_none(
        message in prop_oneof![4 => any_ask(), 1 => prop::collection::vec(any::<u8>(), 0..600)],
        tcp: bool,
    ) {
        thread_local!(static NETWORK: Snapshot = snapshot(node_map("network.toml")));
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        NETWORK.with(|network| {
            let (outcome, reply) = ask(network, &message, transport, &mut Desk::new(Dice::seeded(7), manners()));
            check_reply(&message, transport, outcome, &reply);
        });
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn everybody_inside_the_scope_gets_the_same(bits: u128, v4: bool, length in 1u8..=128, inside: [u128; 4]) {
        thread_local!(static NETWORK: Snapshot = snapshot(node_map("network.toml")));
        NETWORK.with(|network| {
            // Mostly near the prefixes that the network knows.
            let net: IpNet = if v4 {
                let base = [0xc000_0200u32, 0xc633_6400, 0xcb00_7100, 0][(bits >> 126) as usize];
                IpNet::new(Ipv4Addr::from(base ^ (bits as u32 & 0xffff)).into(), length.min(32))
            } else {
                let base = 0x2001_0db8_0000_u128 << 80;
                IpNet::new(Ipv6Addr::from(base ^ (bits & (0xf << 80 | u128::from(u64::MAX)))).into(), length)
            }.unwrap().trunc();
            let (answers, scope) = possible(network, net);
            for bits in inside {
                let address = within(net.addr(), scope, bits);
                let (others, _) = possible(network, address.into());
                prop_assert_eq!(&answers, &others, "{} scope {}, {}", net, scope, address);
            }
            Ok(())
        })?;
    }
}

/// Every answer that clients of `net` may get for any steered name, and the scope announced.
fn possible(network: &Snapshot, net: IpNet) -> (BTreeSet<String>, u8) {
    let mut answers = BTreeSet::new();
    let mut scopes = BTreeSet::new();
    let mut desk = Desk::new(Dice::seeded(3), manners());
    for name in ["videolan.cdn.example", "games.inner.cdn.example"] {
        for rtype in [rtype::A, rtype::AAAA] {
            let message = Ask::new(name, rtype).subnet(net).bytes();
            for _ in 0..24 {
                let (_, reply) = ask(network, &message, Transport::Udp, &mut desk);
                let reply = Message::from_vec(&reply).unwrap();
                let edns = reply.edns.unwrap();
                let Some(EdnsOption::Subnet(subnet)) = edns.option(EdnsCode::Subnet) else {
                    panic!("no client subnet in the reply")
                };
                assert_eq!((subnet.addr(), subnet.source_prefix()), (net.addr(), net.prefix_len()));
                scopes.insert(subnet.scope_prefix());
                answers.insert(format!("{name} {:?}", reply.answers));
            }
        }
    }
    assert_eq!(scopes.len(), 1, "one class, one scope: {scopes:?}");
    (answers, scopes.pop_first().unwrap())
}

/// `address` with the bits behind `length` replaced.
fn within(address: IpAddr, length: u8, bits: u128) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from(v4.to_bits() & !mask | bits as u32 & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv6Addr::from(v6.to_bits() & !mask | bits & mask).into()
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    let network = snapshot(node_map("network.toml"));
    let message = Ask::new("videolan.cdn.example", rtype::A)
        .subnet("192.0.2.128/25".parse().unwrap())
        .bytes();
    let mut desk = Desk::new(Dice::seeded(11), manners());
    let mut first = 0u32;
    for _ in 0..30_000 {
        let (_, reply) = ask(&network, &message, Transport::Udp, &mut desk);
        let reply = Message::from_vec(&reply).unwrap();
        first += u32::from(reply.answers[0].data.to_string() == "203.0.113.10");
    }
    // Weights 100 and 50; three standard deviations of a binomial with p = 2/3 are 245.
    assert!(first.abs_diff(20_000) < 245, "{first}");
}
