//! Squid's native format, and the AS number of the client as last field.

use std::net::IpAddr;

use super::text::{address, field, number, padded, part_of_field};
use crate::{Outcome, Record};

pub(super) fn access(client: IpAddr, record: &Record<'_>, out: &mut Vec<u8>) {
    number(record.ended_ms / 1000, out);
    out.push(b'.');
    padded(record.ended_ms % 1000, 3, b'0', out);
    out.push(b' ');
    padded(record.elapsed_ms, 6, b' ', out);
    out.push(b' ');
    address(client, out);
    out.push(b' ');
    out.extend_from_slice(code(record.outcome).as_bytes());
    if record.is_aborted {
        out.extend_from_slice(b"_ABORTED");
    }
    out.push(b'/');
    padded(record.status.into(), 3, b'0', out);
    out.push(b' ');
    number(record.bytes, out);
    out.push(b' ');
    field(record.method, out);
    out.push(b' ');
    url(record, out);
    out.extend_from_slice(b" - ");
    if record.upstream.is_empty() {
        out.extend_from_slice(b"NONE/-");
    } else {
        let word = if record.is_from_parent { "FIRST_UP_PARENT/" } else { "DIRECT/" };
        out.extend_from_slice(word.as_bytes());
        part_of_field(record.upstream, out);
    }
    out.push(b' ');
    let media_type = record.content_type.split([';', ' ', '\t']).next();
    field(media_type.unwrap_or_default(), out);
    out.extend_from_slice(b" AS");
    number(record.asn.map_or(0, |asn| asn.get()), out);
    out.push(b'\n');
}

fn url(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.host.is_empty() {
        return field(record.target, out);
    }
    part_of_field(record.scheme, out);
    out.extend_from_slice(b"://");
    part_of_field(record.host, out);
    part_of_field(record.target, out);
}

/// Squid's result code, of versions 2 and 3.
fn code(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Hit => "TCP_HIT",
        Outcome::Partial | Outcome::Miss | Outcome::Pass | Outcome::Absent | Outcome::Error => {
            "TCP_MISS"
        }
        Outcome::Revalidated => "TCP_REFRESH_UNMODIFIED",
        Outcome::Stale => "TCP_STALE_HIT",
        Outcome::Negative => "TCP_NEGATIVE_HIT",
        Outcome::Refused => "TCP_DENIED",
        Outcome::Redirected => "TCP_REDIRECT",
        Outcome::Health => "NONE",
    }
}
