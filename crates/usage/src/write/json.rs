//! One flat object a line: the fields of [`Record`] or [`ConnectionRecord`] in their order. What is
//! empty or unknown is left out.

use std::net::IpAddr;

use model::{Asn, CountryCode};

use super::text::{address, in_json, number};
use crate::{ConnectionRecord, Record};

pub(super) fn access(client: IpAddr, record: &Record<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"ended_ms\":");
    number(record.ended_ms, out);
    out.extend_from_slice(b",\"elapsed_ms\":");
    number(record.elapsed_ms, out);
    origin(client, record.asn, record.country, out);
    word(",\"node\":\"", record.node, out);
    word(",\"project\":\"", record.project, out);
    text(",\"method\":\"", record.method, out);
    word(",\"scheme\":\"", record.scheme, out);
    word(",\"protocol\":\"", record.protocol, out);
    text(",\"host\":\"", record.host, out);
    text(",\"target\":\"", record.target, out);
    out.extend_from_slice(b",\"status\":");
    number(record.status, out);
    out.extend_from_slice(b",\"bytes\":");
    number(record.bytes, out);
    if record.is_aborted {
        out.extend_from_slice(b",\"is_aborted\":true");
    }
    word(",\"outcome\":\"", record.outcome.word(), out);
    word(",\"upstream\":\"", record.upstream, out);
    if record.is_from_parent {
        out.extend_from_slice(b",\"is_from_parent\":true");
    }
    text(",\"content_type\":\"", record.content_type, out);
    text(",\"range\":\"", record.range, out);
    text(",\"user_agent\":\"", record.user_agent, out);
    match record.missteered {
        Some("") => out.extend_from_slice(b",\"missteered\":\"\""),
        pool => text(",\"missteered\":\"", pool.unwrap_or_default(), out),
    }
    word(",\"limit\":\"", record.limit, out);
    out.extend_from_slice(b"}\n");
}

pub(super) fn connection(client: IpAddr, record: &ConnectionRecord<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":\"connection\",\"ended_ms\":");
    number(record.ended_ms, out);
    origin(client, record.asn, record.country, out);
    word(",\"node\":\"", record.node, out);
    for (key, value) in [
        (",\"acked_bytes\":", record.way.acked_bytes),
        (",\"sent_segments\":", record.way.sent_segments),
        (",\"retransmitted_segments\":", record.way.retransmitted_segments),
        (",\"min_rtt_us\":", record.way.min_rtt_us),
        (",\"delivery_rate\":", record.way.delivery_rate),
    ] {
        out.extend_from_slice(key.as_bytes());
        number(value, out);
    }
    out.extend_from_slice(b"}\n");
}

/// Where the client is.
fn origin(client: IpAddr, asn: Option<Asn>, country: Option<CountryCode>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"client\":\"");
    address(client, out);
    out.push(b'"');
    if let Some(asn) = asn {
        out.extend_from_slice(b",\"asn\":");
        number(asn.get(), out);
    }
    if let Some(country) = country {
        word(",\"country\":\"", country.as_str(), out);
    }
}

/// A key, its colon and the first quote, and a text; nothing when it is empty.
#[inline(always)] // so that keys are a few moves each, and no calls
fn text(key: &str, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        out.extend_from_slice(key.as_bytes());
        in_json(text, out);
        out.push(b'"');
    }
}

/// The same of a word or name of ours, in which nothing is special.
#[inline(always)]
fn word(key: &str, word: &str, out: &mut Vec<u8>) {
    debug_assert!(word.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\')));
    if !word.is_empty() {
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }
}
