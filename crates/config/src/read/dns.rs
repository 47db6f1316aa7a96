//! `[dns]` -> parameters.

use dns::{LogParams, Params, Rates, TEXT_BYTES_MAX, TransferParams};
use ipnet::IpNet;
use nodemap::toml_read::{Table, Value};

use super::{read_addresses, read_listen};
use crate::schema::{self, limits};
use crate::sign;

pub(super) fn read(table: &Table<'_>) -> Params {
    let listen = read_listen(table, "[\"192.0.2.53:53\"]");
    let text = |key: &'static str| table.get(key).and_then(|v| read_text(&v));
    let rates = table.get("rate_limit").and_then(|v| v.table(&schema::DNS_RATE_LIMIT));
    let proxies = table.get("proxy_from").map(|v| v.list_of(limits::PROXIES, "prefixes", prefix));
    Params {
        proxy_from: proxies.unwrap_or_default(),
        udp_threads: table.get("udp_threads").and_then(|v| v.u32_in(limits::UDP_THREADS)),
        nsid: text("nsid"),
        version: text("version"),
        zone_files: table.get("zone_files").and_then(|v| v.path()),
        cookie_secret_file: table.get("cookie_secret_file").and_then(|v| v.path()),
        sign: table.get("sign").map(|v| sign::read(&v)).unwrap_or_default(),
        transfers: table.get("transfer").map(|v| read_transfers(&v)).unwrap_or_default(),
        log: table.get("log").and_then(|v| read_log(&v)),
        rates: rates.map(|t| read_rates(&t)).unwrap_or_default(),
        ..Params::new(listen)
    }
}

fn read_log(value: &Value<'_>) -> Option<LogParams> {
    let table = value.table(&schema::DNS_LOG)?;
    let path = table.need("path", "\"/var/log/cacheboy/queries.log\"").and_then(|v| v.path());
    let sample = table.get("sample").and_then(|v| v.u32_in(limits::SAMPLE)).unwrap_or(1);
    let addresses = table.get("addresses").and_then(|v| read_addresses(&v)).unwrap_or_default();
    Some(LogParams { path: path?, sample, addresses })
}

fn read_transfers(value: &Value<'_>) -> Vec<TransferParams> {
    value.tables_of(limits::SIGNED_ZONES, "zones", |value| {
        let table = value.table(&schema::DNS_TRANSFER)?;
        let zone = table.need("zone", "\"static.example\"").and_then(|v| v.host_name());
        let keys = table.need("keys", "[\"keys/ns2.tsig\"]");
        let keys = keys.map(|v| v.list_of(limits::TRANSFER_KEYS, "key files", |v| v.path()));
        Some(TransferParams { zone: zone?, keys: keys? })
    })
}

fn prefix(value: &Value<'_>) -> Option<IpNet> {
    value.parsed("a prefix such as 192.0.2.0/24")
}

/// What the server says of itself.
fn read_text(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if text.is_empty() || text.len() > TEXT_BYTES_MAX || !is_printable {
        let remedy = format!("write 1 to {TEXT_BYTES_MAX} printable ASCII characters");
        value.refuse("is not what others can read", remedy);
        return None;
    }
    Some(text.to_owned())
}

fn read_rates(table: &Table<'_>) -> Rates {
    let Rates { per_second: [answers, negative, errors, refused], slip, exempt } = Rates::default();
    let rate = |key: &'static str, default| {
        let given = table.get(key).and_then(|v| v.u32_in(limits::ANSWERS_PER_SECOND));
        given.unwrap_or(default)
    };
    let given = table.get("slip").and_then(|v| v.u32_in(limits::SLIP));
    let networks = table.get("exempt").map(|v| v.list_of(limits::EXEMPT, "prefixes", prefix));
    Rates {
        per_second: [
            rate("answers_per_second", answers),
            rate("negative_per_second", negative),
            rate("errors_per_second", errors),
            rate("refused_per_second", refused),
        ],
        slip: given.and_then(|n| u8::try_from(n).ok()).unwrap_or(slip),
        exempt: networks.unwrap_or(exempt),
    }
}
