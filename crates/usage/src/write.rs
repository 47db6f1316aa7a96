//! Lines of access logs, written: Squid's native format and our JSON. What [`crate::read`] reads.
//!
//! A line is put at the end of a buffer, with its end; nothing is allocated beside. Whatever clients
//! send, a line stays one line with all its fields.

mod json;
mod squid;
mod text;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{ConnectionRecord, Record};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Squid's native format, and the AS number as last field. Has no lines of connections.
    #[default]
    Squid,
    /// One object a line.
    Json,
}

/// How much of clients' addresses is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4 to /24, IPv6 to /48.
    #[default]
    Truncated,
    /// All of them.
    Whole,
}

/// Puts the line of an answer at the end of `out`.
pub fn access(format: Format, addresses: Addresses, record: &Record<'_>, out: &mut Vec<u8>) {
    let client = addresses.of(record.client);
    match format {
        Format::Squid => squid::access(client, record, out),
        Format::Json => json::access(client, record, out),
    }
}

/// Puts the line of a connection at the end of `out`, if the format has such lines.
pub fn connection(
    format: Format,
    addresses: Addresses,
    record: &ConnectionRecord<'_>,
    out: &mut Vec<u8>,
) {
    if format == Format::Json {
        json::connection(addresses.of(record.client), record, out);
    }
}

impl Addresses {
    /// What is written of an address; an IPv4-mapped one is that IPv4 address.
    pub fn of(self, address: IpAddr) -> IpAddr {
        match (self, address.to_canonical()) {
            (Self::Whole, address) => address,
            (Self::Truncated, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                Ipv4Addr::new(a, b, c, 0).into()
            }
            (Self::Truncated, IpAddr::V6(address)) => {
                let [a, b, c, ..] = address.segments();
                Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use model::{Asn, Dice};

    use super::*;
    use crate::read::{self, Line};
    use crate::{Outcome, Way};

    pub(crate) fn record() -> Record<'static> {
        Record {
            ended_ms: 1_244_332_800_123,
            elapsed_ms: 211,
            client: "203.0.113.77".parse().unwrap(),
            asn: Asn::new(17746),
            country: "NZ".parse().ok(),
            node: "mirror1-au",
            project: "videolan",
            method: "GET",
            scheme: "http",
            protocol: "HTTP/1.1",
            host: "download.example",
            target: "/vlc/a.exe",
            status: 200,
            bytes: 45_637,
            is_aborted: false,
            outcome: Outcome::Hit,
            upstream: "",
            is_from_parent: false,
            content_type: "application/x-msdownload",
            range: "",
            user_agent: "curl/8",
            missteered: None,
            limit: "",
        }
    }

    fn written(format: Format, addresses: Addresses, record: &Record<'_>) -> String {
        let mut out = Vec::new();
        access(format, addresses, record, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn squid(record: &Record<'_>) -> String {
        written(Format::Squid, Addresses::Truncated, record)
    }

    #[test]
    fn the_line_of_the_first_cacheboy() {
        assert_eq!(
            squid(&record()),
            "1244332800.123    211 203.0.113.0 TCP_HIT/200 45637 GET \
             http://download.example/vlc/a.exe - NONE/- application/x-msdownload AS17746\n"
        );
        let other = Record {
            ended_ms: 1_000_000_000_007,
            elapsed_ms: 1_234_567,
            client: "2001:db8:1:2::3".parse().unwrap(),
            asn: None,
            scheme: "https",
            target: "/a b?c=\u{e4}\t",
            status: 0,
            bytes: 0,
            is_aborted: true,
            outcome: Outcome::Miss,
            upstream: "m1",
            content_type: "text/plain; charset=utf-8",
            ..record()
        };
        assert_eq!(
            squid(&other),
            "1000000000.007 1234567 2001:db8:1:: TCP_MISS_ABORTED/000 0 GET \
             https://download.example/a%20b?c=%C3%A4%09 - DIRECT/m1 text/plain AS0\n"
        );
        let of_parent = squid(&Record { is_from_parent: true, ..other });
        assert!(of_parent.contains(" - FIRST_UP_PARENT/m1 text/plain "), "{of_parent}");
        let bare = Record { host: "", target: "", method: "", content_type: "", ..record() };
        assert!(squid(&bare).ends_with(" 45637 - - - NONE/- - AS17746\n"), "{}", squid(&bare));
    }

    #[test]
    fn outcomes_in_the_words_of_squid() {
        let words = [
            (Outcome::Hit, "TCP_HIT"),
            (Outcome::Partial, "TCP_MISS"),
            (Outcome::Miss, "TCP_MISS"),
            (Outcome::Revalidated, "TCP_REFRESH_UNMODIFIED"),
            (Outcome::Stale, "TCP_STALE_HIT"),
            (Outcome::Pass, "TCP_MISS"),
            (Outcome::Negative, "TCP_NEGATIVE_HIT"),
            (Outcome::Absent, "TCP_MISS"),
            (Outcome::Error, "TCP_MISS"),
            (Outcome::Refused, "TCP_DENIED"),
            (Outcome::Redirected, "TCP_REDIRECT"),
            (Outcome::Health, "NONE"),
        ];
        assert_eq!(words.map(|(outcome, _)| outcome), Outcome::ALL);
        for (outcome, word) in words {
            let line = squid(&Record { outcome, ..record() });
            assert!(line.contains(&format!(" {word}/200 ")), "{line}");
        }
    }

    #[test]
    fn json_has_every_field_that_is_known() {
        let whole = Record {
            is_aborted: true,
            upstream: "m1",
            is_from_parent: true,
            range: "bytes=0-",
            missteered: Some("asia"),
            limit: "paced",
            ..record()
        };
        assert_eq!(
            written(Format::Json, Addresses::Whole, &whole),
            concat!(
                r#"{"ended_ms":1244332800123,"elapsed_ms":211,"client":"203.0.113.77","asn":17746,"#,
                r#""country":"NZ","node":"mirror1-au","project":"videolan","method":"GET","#,
                r#""scheme":"http","protocol":"HTTP/1.1","host":"download.example","#,
                r#""target":"/vlc/a.exe","status":200,"bytes":45637,"is_aborted":true,"#,
                r#""outcome":"hit","upstream":"m1","is_from_parent":true,"#,
                r#""content_type":"application/x-msdownload","range":"bytes=0-","#,
                r#""user_agent":"curl/8","missteered":"asia","limit":"paced"}"#,
                "\n"
            )
        );
        let bare = Record {
            asn: None,
            country: None,
            project: "",
            content_type: "",
            user_agent: "a\"\\\n\u{1}\u{e4}",
            missteered: Some(""),
            ..record()
        };
        assert_eq!(
            written(Format::Json, Addresses::Truncated, &bare),
            concat!(
                r#"{"ended_ms":1244332800123,"elapsed_ms":211,"client":"203.0.113.0","#,
                r#""node":"mirror1-au","method":"GET","scheme":"http","protocol":"HTTP/1.1","#,
                r#""host":"download.example","target":"/vlc/a.exe","status":200,"bytes":45637,"#,
                r#""outcome":"hit","user_agent":"a\"\\\u000A\u0001ä","missteered":""}"#,
                "\n"
            )
        );
    }

    #[test]
    fn addresses_are_truncated_unless_they_are_wanted_whole() {
        for (address, truncated, whole) in [
            ("192.0.2.255", "192.0.2.0", "192.0.2.255"),
            ("::ffff:192.0.2.9", "192.0.2.0", "192.0.2.9"),
            ("2001:db8:ffff:1::1", "2001:db8:ffff::", "2001:db8:ffff:1::1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(Addresses::Truncated.of(address).to_string(), truncated);
            assert_eq!(Addresses::Whole.of(address).to_string(), whole);
        }
    }

    #[test]
    fn a_connection_is_read_back_as_it_was_written() {
        let way = Way {
            acked_bytes: 1,
            sent_segments: 20,
            retransmitted_segments: 300,
            min_rtt_us: 4_000,
            delivery_rate: u64::MAX,
        };
        let Record { ended_ms, client, asn, country, node, .. } = record();
        let left = ConnectionRecord { ended_ms, client, asn, country, node, way };
        let mut out = Vec::new();
        connection(Format::Squid, Addresses::Whole, &left, &mut out);
        assert!(out.is_empty());
        connection(Format::Json, Addresses::Whole, &left, &mut out);
        let Ok(Line::Connection(found)) = read::line(out.strip_suffix(b"\n").unwrap()) else {
            panic!("{}", String::from_utf8_lossy(&out))
        };
        assert_eq!((found.ended_ms, found.way), (ended_ms, way));
        assert_eq!(
            (&*found.asn, &*found.country, &*found.node),
            (&b"17746"[..], &b"NZ"[..], node.as_bytes())
        );
    }

    /// A text of anything that a client may send.
    fn any_text(dice: &mut Dice) -> String {
        let characters =
            ['a', '/', '"', '\\', ' ', '\t', '\u{7f}', '\u{0}', '\u{e4}', '\u{1f600}', '{', '%'];
        let length = dice.below(12);
        let mut any = || characters[usize::try_from(dice.below(12)).unwrap()];
        (0..length).map(|_| any()).collect()
    }

    #[test]
    fn whatever_is_written_is_read_back_the_same() {
        let mut dice = Dice::seeded(5);
        for _ in 0..2_000 {
            let texts: [String; 6] = std::array::from_fn(|_| any_text(&mut dice));
            let [target, method, content_type, range, user_agent, host] = &texts;
            let record = Record {
                ended_ms: dice.below(1 << 40),
                bytes: dice.below(u64::MAX),
                asn: Asn::new(u32::try_from(dice.below(3)).unwrap()),
                target,
                method,
                content_type,
                range,
                user_agent,
                host,
                ..record()
            };
            for format in [Format::Squid, Format::Json] {
                let line = written(format, Addresses::Truncated, &record);
                let line = line.strip_suffix('\n').unwrap();
                assert!(!line.contains('\n'), "{line}");
                let Ok(Line::Access(found)) = read::line(line.as_bytes()) else { panic!("{line}") };
                assert_eq!(
                    (found.ended_ms, found.bytes),
                    (record.ended_ms, record.bytes),
                    "{line}"
                );
                let asn = record.asn.map_or(String::new(), |asn| asn.get().to_string());
                assert_eq!(
                    (&*found.asn, &*found.client),
                    (asn.as_bytes(), &b"203.0.113.0"[..]),
                    "{line}"
                );
                if format == Format::Json {
                    assert_eq!(found.host, Cow::Borrowed(host.as_bytes()), "{line}");
                    assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
                } else {
                    assert_eq!(line.split_ascii_whitespace().count(), 11, "{line}");
                }
            }
        }
    }
}
