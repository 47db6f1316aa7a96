//! For the tests of this crate: the network of the conversations, and queries as bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use locate::{Evidence, Locator};
use model::{Asn, CountryCode, Family, NodeState, State};
use nodemap::{NodeMap, NodeStates};
use steer::{ClassTable, Steering};

use crate::dnssec::Keyring;
use crate::wire::HEADER_BYTES;
use crate::zonefile::{self, ZoneFile};
use crate::{CookieKeys, Manners, Snapshot};

/// Generation of the node maps here.
pub(crate) const GENERATION: u64 = 1_764_547_200_000;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conversations/dns")
}

/// The node map of `file` with every node up.
pub(crate) fn node_map(file: &str) -> NodeMap {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let map = nodemap::admin::load(&[(path, text)]).unwrap_or_else(|findings| {
        panic!("{}", findings.iter().map(|f| format!("{f}\n")).collect::<String>())
    });
    let up = NodeState::new(State::Up, "test", 0);
    let states = map.nodes.iter().map(|(name, node)| {
        let of = |family| node.addresses_of(family).next().map(|_: IpAddr| up.clone());
        (name.clone(), NodeStates { v4: of(Family::V4), v6: of(Family::V6) })
    });
    let states: BTreeMap<_, _> = states.collect();
    NodeMap::new(GENERATION, "test", map, states)
}

pub(crate) fn locator() -> Locator {
    let text = std::fs::read_to_string(folder().join("locations.tsv")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let networks: Vec<(IpNet, Evidence)> = lines
        .map(|line| {
            let [net, asn, country] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
            let country: CountryCode = country.parse().unwrap();
            let asn: Asn = asn.parse().unwrap();
            let evidence =
                Evidence { asn: Some(asn), country: Some(country), continent: country.continent() };
            (net.parse().unwrap(), evidence)
        })
        .collect();
    locate::testing::locator(&networks).unwrap()
}

pub(crate) fn snapshot(map: NodeMap) -> Snapshot {
    with_files(map, Vec::new())
}

pub(crate) fn with_files(map: NodeMap, files: Vec<ZoneFile>) -> Snapshot {
    with_keys(map, files, Keyring::default())
}

pub(crate) fn with_keys(map: NodeMap, files: Vec<ZoneFile>, keyring: Keyring) -> Snapshot {
    let table = ClassTable::compile(&locator(), &map.map, 0).unwrap();
    let steering = Steering::new(Arc::new(table), Arc::new(map)).unwrap();
    let files = files.into_iter().map(Arc::new).collect();
    Snapshot::build(Arc::new(steering), files, keyring.into(), None)
}

/// The zone file `file` of the zone that it is called after.
pub(crate) fn zone_file(file: &str) -> ZoneFile {
    let apex = file.strip_suffix(".zone").unwrap().parse().unwrap();
    let path = folder().join(file);
    let text = std::fs::read(&path).unwrap();
    zonefile::parse(&path, &apex, &text).unwrap_or_else(|findings| {
        panic!("{}", findings.iter().map(|f| format!("{f}\n")).collect::<String>())
    })
}

/// A server that says everything it may.
pub(crate) fn manners() -> Manners {
    Manners {
        cookies: Some(CookieKeys::new([7; 16], [None; 2])),
        nsid: Some("ns1".into()),
        version: Some("cacheboy".into()),
        limiter: None,
        transfers: None,
        tcp_idle_ds: 200,
    }
}

/// A query, field by field.
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) opcode: u8,
    pub(crate) count: u16,
    pub(crate) recursion_desired: bool,
    pub(crate) edns: Option<u16>,
    pub(crate) version: u8,
    pub(crate) dnssec_ok: bool,
    pub(crate) compact_ok: bool,
    pub(crate) options: Vec<(u16, Vec<u8>)>,
}

impl Ask {
    pub(crate) fn new(name: &str, rtype: u16) -> Self {
        Self {
            name: name.to_owned(),
            rtype,
            class: 1,
            opcode: 0,
            count: 1,
            recursion_desired: false,
            edns: None,
            version: 0,
            dnssec_ok: false,
            compact_ok: false,
            options: Vec::new(),
        }
    }

    /// Adds a client subnet, written as it stands.
    pub(crate) fn subnet(mut self, net: IpNet) -> Self {
        let (family, octets) = match net.addr() {
            IpAddr::V4(v4) => (1u8, v4.octets().to_vec()),
            IpAddr::V6(v6) => (2, v6.octets().to_vec()),
        };
        let mut data = vec![0, family, net.prefix_len(), 0];
        data.extend(&octets[..usize::from(net.prefix_len()).div_ceil(8)]);
        self.options.push((8, data));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, self.opcode << 3 | u8::from(self.recursion_desired), 0];
        let opt =
            self.edns.is_some() || self.version > 0 || self.dnssec_ok || !self.options.is_empty();
        for count in [self.count, 0, 0, u16::from(opt)] {
            out.extend(count.to_be_bytes());
        }
        assert_eq!(out.len(), HEADER_BYTES);
        for _ in 0..self.count {
            out.extend(spelled(&self.name));
            out.extend(self.rtype.to_be_bytes());
            out.extend(self.class.to_be_bytes());
        }
        if opt {
            let mut data = Vec::new();
            for (code, bytes) in &self.options {
                data.extend(code.to_be_bytes());
                data.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
                data.extend(bytes);
            }
            out.extend([0, 0, 41]);
            out.extend(self.edns.unwrap_or(1232).to_be_bytes());
            out.extend([
                0,
                self.version,
                u8::from(self.dnssec_ok) << 7 | u8::from(self.compact_ok) << 6,
                0,
            ]);
            out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            out.extend(data);
        }
        out
    }
}

/// `name` in wire form with its spelling; `.` is the root.
fn spelled(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}
