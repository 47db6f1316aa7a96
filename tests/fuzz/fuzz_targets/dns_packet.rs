//! Any bytes as a DNS message, over both transports, against the network of the conversations.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use dns_proto::dnssec::{Cds, Duty, Key, Keyring, Pen, Signer, ZoneKeys};
use dns_proto::{
    Asker, Desk, Manners, Outcome, Snapshot, Transport, UDP_BYTES_MAX, answer, zonefile,
};
use libfuzzer_sys::fuzz_target;
use locate::Locator;
use model::{Dice, HostName, Now};
use nodemap::NodeMap;
use ring::rand::SystemRandom;
use steer::{ClassTable, Steering};

const NETWORK: &str = include_str!("../../conversations/dns/network.toml");
const ZONES: [(&str, &str); 2] = [
    ("cdn.example", include_str!("../../conversations/dns/cdn.example.zone")),
    ("static.example", include_str!("../../conversations/dns/static.example.zone")),
];

/// The RFC 8080 key for `cdn.example`.
fn keyring() -> Keyring {
    let zone: HostName = "cdn.example".parse().unwrap();
    let private = "Private-key-format: v1.2\nAlgorithm: 15 (ED25519)\n\
        PrivateKey: ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=\n";
    let key = Key::read(&zone, private, None, &SystemRandom::new()).unwrap();
    let keys = ZoneKeys::new(&zone, vec![(key, Duty::Active)], Cds::Off, 604_800).unwrap();
    let mut keyring = Keyring::default();
    keyring.add(zone, keys);
    keyring
}

static SIGNER: LazyLock<Arc<Signer>> =
    LazyLock::new(|| Signer::new([1; 16], SystemRandom::new()).into());

static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    let map = nodemap::admin::load(&[(PathBuf::from("network.toml"), NETWORK.to_owned())]).unwrap();
    let map = NodeMap::new(1_764_547_200_000, "fuzz", map, Default::default());
    let locator = Locator::open(None, None).unwrap();
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    let steering = Steering::new(Arc::new(table), Arc::new(map)).unwrap();
    let files = ZONES.map(|(apex, text)| {
        let parsed = zonefile::parse(apex.as_ref(), &apex.parse().unwrap(), text.as_bytes());
        Arc::new(parsed.unwrap())
    });
    Snapshot::build(Arc::new(steering), files.into_iter().collect(), keyring().into(), None)
});

fuzz_target!(|message: &[u8]| {
    let peer: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    let mut out = Vec::new();
    for transport in [Transport::Udp, Transport::Tcp] {
        let asker = Asker { peer, transport, now: Now::default() };
        let pen = Pen::new(Arc::clone(&SIGNER));
        let mut desk = Desk::new(Dice::seeded(1), Manners::default()).with_pen(pen);
        let outcome = answer(&SNAPSHOT, message, &asker, &mut desk, &mut out);
        match outcome {
            Outcome::Dropped(_) => assert!(out.is_empty()),
            Outcome::Answered(_) => {
                assert_eq!(out[..2], message[..2]);
                assert!(transport == Transport::Tcp || out.len() <= UDP_BYTES_MAX.into());
            }
        }
    }
});
