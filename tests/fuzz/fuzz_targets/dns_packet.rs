//! Any bytes as a DNS message, over both transports, against the network of the conversations.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use dns_proto::{Outcome, Snapshot, Transport, UDP_BYTES_MAX, answer};
use libfuzzer_sys::fuzz_target;
use locate::Locator;
use model::Dice;
use nodemap::NodeMap;
use steer::{ClassTable, Steering};

const NETWORK: &str = include_str!("../../conversations/dns/network.toml");

static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    let map = nodemap::admin::load(&[(PathBuf::from("network.toml"), NETWORK.to_owned())]).unwrap();
    let map = NodeMap {
        format: nodemap::published::FORMAT,
        generation: 1_764_547_200_000,
        publisher: "fuzz".into(),
        map,
        states: Default::default(),
    };
    let locator = Locator::open(None, None).unwrap();
    let table = ClassTable::compile(&locator, &map.map.maps).unwrap();
    Snapshot::build(Arc::new(Steering::new(Arc::new(table), Arc::new(map)).unwrap()))
});

fuzz_target!(|message: &[u8]| {
    let peer: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    let mut out = Vec::new();
    for transport in [Transport::Udp, Transport::Tcp] {
        let outcome = answer(&SNAPSHOT, message, peer, transport, &mut Dice::seeded(1), &mut out);
        match outcome {
            Outcome::Dropped(_) => assert!(out.is_empty()),
            Outcome::Answered(_) => {
                assert_eq!(out[..2], message[..2]);
                assert!(transport == Transport::Tcp || out.len() <= UDP_BYTES_MAX.into());
            }
        }
    }
});
