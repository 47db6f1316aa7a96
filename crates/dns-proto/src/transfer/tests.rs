//! Copies of zones, and who gets none.

use std::net::Ipv4Addr;
use std::path::Path;

use hickory_proto::op::Message;
use model::{Dice, Now};

use super::*;
use crate::testing::{Ask, manners, node_map, with_files, zone_file};
use crate::tsig::tests::{key, signed};
use crate::{Asker, Desk, Manners, Outcome, Transport, answer, zonefile};

const NOW: Now = Now { mono_ns: 1, wall_ms: 1_796_096_512_000 };
const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

struct Server {
    snapshot: Snapshot,
    desk: Desk,
}

/// Serves `large.example`, which `transfer.example` may copy, and `static.example`, which it may not.
fn server(records: usize) -> Server {
    let lines = (0..records).map(|n| format!("h{n} A 192.0.2.{}\n", n % 250));
    let head = "@ SOA ns1 noc 7 2 3 4 5\n NS ns1.dns.example.\n* TXT any\nchild NS ns.child\n\
                ns.child A 192.0.2.9\n";
    let text: String = std::iter::once(head.to_owned()).chain(lines).collect();
    let apex = "large.example".parse().unwrap();
    let file = zonefile::parse(Path::new("large.example.zone"), &apex, text.as_bytes()).unwrap();
    let snapshot =
        with_files(node_map("services.toml"), vec![file, zone_file("static.example.zone")]);
    let mut transfers = Transfers::default();
    assert!(transfers.allow(&apex, &Arc::new(key("hmac-sha256", SECRET))));
    // A name of the maps is no zone that can be copied, whoever may.
    let known = Arc::clone(transfers.keys.values().next().unwrap());
    assert!(transfers.allow(&"cdn.example".parse().unwrap(), &known));
    assert!(!transfers.allow(&apex, &Arc::new(key("hmac-sha256", SECRET))));
    let manners = Manners { transfers: Some(Arc::new(transfers)), ..manners() };
    Server { snapshot, desk: Desk::new(Dice::seeded(1), manners) }
}

impl Server {
    fn ask(&mut self, message: &[u8], transport: Transport) -> (&'static str, Vec<u8>) {
        let peer = Ipv4Addr::new(192, 0, 2, 1).into();
        let mut out = Vec::new();
        let asker = Asker { peer, transport, now: NOW };
        match answer(&self.snapshot, message, &asker, &mut self.desk, &mut out) {
            Outcome::Answered(answered) => (answered.sort.word(), out),
            Outcome::Dropped(why) => (why.word(), out),
        }
    }

    fn word(&mut self, message: &[u8], transport: Transport) -> &'static str {
        self.ask(message, transport).0
    }
}

fn query(zone: &str, rtype: u16) -> Vec<u8> {
    signed(&key("hmac-sha256", SECRET), &Ask::new(zone, rtype).bytes(), NOW.wall_ms / 1000)
}

#[test]
fn a_copy_is_the_file_between_two_soa_records() {
    let mut server = server(3000);
    for rtype in [rtype::AXFR, rtype::IXFR] {
        let (word, first) = server.ask(&query("large.example", rtype), Transport::Tcp);
        assert_eq!(word, "transfer");
        let mut messages = vec![first];
        let mut out = Vec::new();
        while server.desk.go_on(NOW, &mut out) {
            messages.push(out.clone());
        }
        assert!(messages.len() > 4 && messages.iter().all(|message| message.len() < 17 << 10));
        let messages: Vec<Message> =
            messages.iter().map(|m| Message::from_vec(m).unwrap()).collect();
        assert!(messages.iter().all(|message| message.metadata.authoritative));
        let records: Vec<String> = messages
            .iter()
            .flat_map(|message| &message.answers)
            .map(|record| format!("{} {} {}", record.name, record.record_type(), record.ttl))
            .collect();
        // SOA twice, NS, TXT, and the delegation with its glue.
        assert_eq!(records.len(), 3006);
        let soa = "large.example. SOA 3600";
        assert_eq!((records[0].as_str(), records[3005].as_str()), (soa, soa));
        assert_eq!(records.iter().filter(|record| *record == soa).count(), 2);
        for record in [
            "*.large.example. TXT 3600",
            "ns.child.large.example. A 3600",
            "h2999.large.example. A 3600",
        ] {
            assert!(records.iter().any(|found| found == record), "{record}");
        }
        assert!(!server.desk.go_on(NOW, &mut out));
    }
    // A query in between ends it.
    server.ask(&query("large.example", rtype::AXFR), Transport::Tcp);
    server.ask(&query("large.example", rtype::SOA), Transport::Tcp);
    assert!(!server.desk.go_on(NOW, &mut Vec::new()));
}

#[test]
fn nobody_else_gets_one_and_nothing_else_is_given() {
    let mut server = server(1);
    let plain = |zone: &str| Ask::new(zone, rtype::AXFR).bytes();
    assert_eq!(server.word(&plain("large.example"), Transport::Tcp), "refused");
    assert_eq!(server.word(&query("static.example", rtype::AXFR), Transport::Tcp), "refused");
    assert_eq!(server.word(&query("cdn.example", rtype::AXFR), Transport::Tcp), "refused");
    assert_eq!(server.word(&query("h0.large.example", rtype::AXFR), Transport::Tcp), "refused");
    assert_eq!(server.word(&query("large.example", rtype::AXFR), Transport::Udp), "refused");
    // The SOA record says to come over TCP.
    let (word, reply) = server.ask(&query("large.example", rtype::IXFR), Transport::Udp);
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!((word, reply.answers.len()), ("fixed", 1));
    // What is not there, in the words of both ends: 16 is BADSIG, 17 BADKEY, 18 BADTIME.
    let error = |server: &mut Server, message: &[u8]| {
        let (word, reply) = server.ask(message, Transport::Tcp);
        assert_eq!((word, reply[3] & 0xf), ("notauth", 9));
        let at = reply.len() - if reply.ends_with(&[0, 0]) { 4 } else { 10 };
        u16::from_be_bytes([reply[at], reply[at + 1]])
    };
    let axfr = plain("large.example");
    let now_s = NOW.wall_ms / 1000;
    let other = key("hmac-sha256", "MDEyMzQ1Njc4OWFiY2RlZw==");
    assert_eq!(error(&mut server, &signed(&other, &axfr, now_s)), 16);
    let other = key("hmac-sha512", SECRET);
    assert_eq!(error(&mut server, &signed(&other, &axfr, now_s)), 17);
    let ours = key("hmac-sha256", SECRET);
    assert_eq!(error(&mut server, &signed(&ours, &axfr, now_s - 301)), 18);
    // Any query may be signed, and NOTIFY must be.
    assert_eq!(server.word(&query("static.example", rtype::SOA), Transport::Udp), "fixed");
    let notify = |zone: &str| Ask { opcode: 4, ..Ask::new(zone, rtype::SOA) }.bytes();
    assert_eq!(server.word(&notify("large.example"), Transport::Udp), "refused");
    let notify = |zone: &str| signed(&key("hmac-sha256", SECRET), &notify(zone), now_s);
    assert_eq!(server.word(&notify("large.example"), Transport::Udp), "notify");
    assert_eq!(server.word(&notify("elsewhere.example"), Transport::Udp), "notauth");
}
