//! `[bgp]` -> parameters.

use std::net::{IpAddr, Ipv4Addr};

use bgp::{FILES_MAX, MrtParams, PEERS_MAX, PORT, PREFIXES_MAX, Params, PeerParams};
use nodemap::toml_read::{Table, Value};

use crate::schema::{self, limits};

pub(super) fn read(table: &Table<'_>) -> Option<Params> {
    let listen = |key: &'static str| {
        table.get(key).map(|value| value.list_of(limits::LISTEN, "addresses", |v| v.socket_addr()))
    };
    let asn = table.need("asn", "64500").and_then(|v| v.asn());
    let identifier = table.need("identifier", "\"192.0.2.1\"").and_then(|v| read_identifier(&v));
    let hold_s = table.get("hold_s").and_then(|v| v.u32_in(limits::HOLD_S));
    let files = table.get("mrt").map(|v| v.tables_of(FILES_MAX, "files", read_file));
    let files = files.unwrap_or_default();
    let example = "[{ name = \"router1\", address = \"192.0.2.254\", asn = 64501 }]";
    let peers = if files.is_empty() { table.need("peer", example) } else { table.get("peer") };
    let peers = peers.map(|v| v.tables_of(PEERS_MAX, "peers", read_peer)).unwrap_or_default();
    for (at, file) in files.iter().enumerate() {
        let mut earlier = files.iter().take(at).map(|other| &other.name);
        if earlier.any(|name| *name == file.name) || peers.iter().any(|p| p.name == file.name) {
            table.refuse(
                format!("has two peers or files {}", file.name),
                "give every peer and file a name of its own",
            );
        }
    }
    for (at, peer) in peers.iter().enumerate() {
        let earlier = || peers.iter().take(at);
        let address = peer.address;
        if earlier().any(|other| other.name == peer.name) {
            table.refuse(
                format!("has two peers {}", peer.name),
                "give every peer a name of its own",
            );
        }
        if earlier().any(|other| other.address == address) {
            table.refuse(format!("has two peers at {address}"), "name every router once");
        }
    }
    if listen("listen").is_none() && peers.iter().any(|peer| peer.passive) {
        table.refuse(
            "waits for peers, and they cannot connect",
            "add listen = [\"192.0.2.1:179\"], or take `passive` away",
        );
    }
    Some(Params {
        listen: listen("listen").unwrap_or_default(),
        publish: listen("publish").unwrap_or_default(),
        asn: asn?,
        identifier: identifier?,
        hold_s: hold_s.and_then(|s| u16::try_from(s).ok()).unwrap_or(::bgp::HOLD_S),
        peers,
        files,
    })
}

fn read_file(value: &Value<'_>) -> Option<MrtParams> {
    let table = value.table(&schema::BGP_MRT)?;
    let name = table.need("name", "\"collector1\"").and_then(|v| v.name());
    let view = table.get("view").and_then(|v| v.name()).or_else(|| name.clone());
    let from = table.get("from").and_then(|v| v.parsed::<IpAddr>("an IP address"));
    let file = table.need("file", "\"routes.mrt.gz\"").and_then(|v| v.path());
    Some(MrtParams { name: name?, file: file?, view: view?, from })
}

fn read_identifier(value: &Value<'_>) -> Option<Ipv4Addr> {
    let identifier: Ipv4Addr = value.parsed("an IPv4 address")?;
    if identifier.is_unspecified() {
        value.refuse("is no identifier", "write one of the IPv4 addresses of this host");
        return None;
    }
    Some(identifier)
}

fn read_peer(value: &Value<'_>) -> Option<PeerParams> {
    let table = value.table(&schema::BGP_PEER)?;
    let address = |value: &Value<'_>| value.parsed::<IpAddr>("an IP address");
    let number = |key: &'static str, range, default: u32| {
        table.get(key).and_then(|v| v.u32_in(range)).unwrap_or(default)
    };
    let [v4, v6] = PREFIXES_MAX;
    let name = table.need("name", "\"router1\"").and_then(|v| v.name());
    let view = table.get("view").and_then(|v| v.name()).or_else(|| name.clone());
    let hops = table.get("hops").and_then(|v| v.u32_in(limits::HOPS));
    let port = number("port", 1..=65535, PORT.into());
    let at = table.need("address", "\"192.0.2.254\"").and_then(|v| address(&v));
    let asn = table.need("asn", "64501").and_then(|v| v.asn());
    let local_address = table.get("local_address").and_then(|v| address(&v));
    if let (Some(local), Some(at)) = (local_address, at)
        && local.is_ipv4() != at.is_ipv4()
    {
        table
            .refuse("connects from one family to another", "make both addresses IPv4 or both IPv6");
    }
    Some(PeerParams {
        name: name?,
        address: at?,
        port: u16::try_from(port).unwrap_or(PORT),
        asn: asn?,
        view: view?,
        passive: table.get("passive").and_then(|v| v.bool()).unwrap_or(false),
        local_address,
        md5_file: table.get("md5_file").and_then(|v| v.path()),
        hops: hops.and_then(|n| u8::try_from(n).ok()),
        max_prefixes: [
            number("max_prefixes_v4", limits::PREFIXES, v4),
            number("max_prefixes_v6", limits::PREFIXES, v6),
        ],
    })
}
