//! Plays `tests/conversations/dns/*.txt`. The words of the scripts are explained in the README
//! beside them. Replies are read by another implementation of the wire format than ours.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{RData, Record};
use model::{Dice, Family, Now, State};
use nodemap::NodeMap;

use crate::testing::{Ask, folder, manners, node_map, with_files, zone_file};
use crate::zonefile::ZoneFile;
use crate::{Asker, Desk, Limiter, Manners, Outcome, Rates, Snapshot, Transport, answer};

/// After a change that is meant run with `CACHEBOY_GOLDEN=write`, and read the difference.
#[test]
fn every_conversation_goes_as_written() {
    let write = std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write");
    let mut played = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        let script = fs::read_to_string(&path).unwrap();
        let actual = Player::new().play(&script);
        if write {
            fs::write(&path, &actual).unwrap();
        }
        assert!(actual == script, "{} went differently:\n{actual}", path.display());
        played += 1;
    }
    assert!(played >= 7, "only {played} conversations found");
}

struct Player {
    map: Option<NodeMap>,
    files: Vec<ZoneFile>,
    snapshot: Snapshot,
    now: Now,
    manners: Manners,
    out: String,
}

impl Player {
    fn new() -> Self {
        let map = node_map("network.toml");
        Self {
            snapshot: with_files(map.clone(), Vec::new()),
            map: Some(map),
            files: Vec::new(),
            now: Now::default(),
            manners: manners(),
            out: String::new(),
        }
    }

    /// The script with the replies that really came.
    fn play(mut self, script: &str) -> String {
        for line in script.lines().filter(|line| !line.starts_with('<')) {
            writeln!(self.out, "{line}").unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [verb, rest @ ..] = words.as_slice() {
                self.step(verb, rest);
            }
        }
        self.out
    }

    fn step(&mut self, verb: &str, rest: &[&str]) {
        match (verb, rest) {
            ("map", [file]) => self.map = Some(node_map(file)),
            ("now", [seconds]) => {
                self.now = Now::default().plus_ms(seconds.parse::<u64>().unwrap() * 1000);
                return;
            }
            ("limits", [answers, negative, errors, refused]) => {
                let per_second = [answers, negative, errors, refused].map(|n| n.parse().unwrap());
                let rates = Rates { per_second, ..Rates::default() };
                self.manners.limiter = Some(Arc::new(Limiter::new(rates, [5; 16])));
                return;
            }
            ("silent", []) => {
                self.manners = Manners::default();
                return;
            }
            ("no-map", []) => self.map = None,
            ("zone-file", [file]) => self.files.push(zone_file(file)),
            ("node", [name, family, state]) => {
                let state: State = serde_json::from_str(&format!("{state:?}")).unwrap();
                let family = if *family == "v4" { Family::V4 } else { Family::V6 };
                let states = self.map.as_mut().unwrap().states.get_mut(*name).unwrap();
                states.get_mut(family).as_mut().unwrap().state = state;
            }
            ("?", [client, name, rtype, options @ ..]) => {
                return self.ask(client, &question(name, rtype, options).bytes());
            }
            ("!", [client, hex @ ..]) => return self.ask(client, &bytes_of(&hex.concat())),
            ("#", _) => return,
            _ => panic!("not a line of a conversation: {verb} {rest:?}"),
        }
        let files = self.files.clone();
        let build = |map| with_files(map, files);
        self.snapshot = self.map.clone().map_or_else(Snapshot::not_ready, build);
        for left_out in self.snapshot.left_out() {
            let line = format!("< left out: {} ({})\n", left_out.set, left_out.why);
            if !self.out.contains(&line) {
                self.out.push_str(&line);
            }
        }
    }

    fn ask(&mut self, client: &str, message: &[u8]) {
        let (client, transport) = match client.strip_suffix("/tcp") {
            Some(client) => (client, Transport::Tcp),
            None => (client, Transport::Udp),
        };
        let client: IpAddr = client.parse().unwrap();
        let asker = Asker { peer: client, transport, now: self.now };
        let mut desk = Desk::new(Dice::seeded(1), self.manners.clone());
        let mut out = Vec::new();
        let replies: BTreeSet<String> = (0..64)
            .map(|_| {
                let outcome = answer(&self.snapshot, message, &asker, &mut desk, &mut out);
                text_of(outcome, message, &out)
            })
            .collect();
        self.out.push_str(&replies.into_iter().collect::<Vec<_>>().join("< or\n"));
    }
}

fn question(name: &str, rtype: &str, options: &[&str]) -> Ask {
    let rtype = match rtype.strip_prefix("TYPE") {
        Some(number) => number.parse().unwrap(),
        None => match rtype {
            "A" => 1,
            "NS" => 2,
            "CNAME" => 5,
            "SOA" => 6,
            "MX" => 15,
            "TXT" => 16,
            "AAAA" => 28,
            "SRV" => 33,
            "OPT" => 41,
            "DS" => 43,
            "SVCB" => 64,
            "HTTPS" => 65,
            "TSIG" => 250,
            "IXFR" => 251,
            "AXFR" => 252,
            "MAILB" => 253,
            "ANY" => 255,
            "CAA" => 257,
            other => panic!("which type is {other}?"),
        },
    };
    options.iter().fold(Ask::new(name, rtype), |mut ask, option| {
        match option.split_once('=').unwrap_or((option, "")) {
            ("edns", size) => ask.edns = Some(size.parse().unwrap()),
            ("version", version) => ask.version = version.parse().unwrap(),
            ("do", "") => ask.dnssec_ok = true,
            ("rd", "") => ask.recursion_desired = true,
            ("class", class) => ask.class = class.parse().unwrap(),
            ("opcode", opcode) => ask.opcode = opcode.parse().unwrap(),
            ("count", count) => ask.count = count.parse().unwrap(),
            ("ecs", net) => return ask.subnet(net.parse().unwrap()),
            ("option", option) => {
                let (code, hex) = option.split_once(':').unwrap();
                ask.options.push((code.parse().unwrap(), bytes_of(hex)));
            }
            other => panic!("which option is {other:?}?"),
        }
        ask
    })
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_of(outcome: Outcome, message: &[u8], reply: &[u8]) -> String {
    let sort = match outcome {
        Outcome::Dropped(why) => {
            assert!(reply.is_empty());
            return format!("< dropped: {}\n", why.word());
        }
        Outcome::Answered(answered) => answered.sort,
    };
    assert_eq!(reply[..2], message[..2], "the ID comes back");
    let Ok(read) = Message::from_vec(reply) else {
        return format!("< ({sort}) {}\n", hex_of(reply));
    };
    let code = u16::from(read.metadata.response_code);
    assert_eq!(code, sort.rcode(), "{sort}");
    let mut text = format!("< {}", words(code));
    let flags = &read.metadata;
    let all = [
        (flags.authoritative, "aa"),
        (flags.truncation, "tc"),
        (flags.recursion_desired, "rd"),
        (flags.recursion_available, "ra"),
        (flags.authentic_data, "ad"),
        (flags.checking_disabled, "cd"),
    ];
    for (_, word) in all.into_iter().filter(|(set, _)| *set) {
        write!(text, " {word}").unwrap();
    }
    writeln!(text, " ({sort}, {} bytes)", reply.len()).unwrap();
    for question in &read.queries {
        // The question's bytes come back as they are; its record type is in the line above.
        assert_eq!(reply.get(12..16), message.get(12..16));
        assert!(question.name().is_fqdn());
    }
    for (section, records) in [
        ("answer", &read.answers),
        ("authority", &read.authorities),
        ("additional", &read.additionals),
    ] {
        records
            .iter()
            .for_each(|record| writeln!(text, "< {section} {}", record_text(record)).unwrap());
    }
    if let Some(edns) = &read.edns {
        write!(text, "< opt size={} version={}", edns.max_payload(), edns.version()).unwrap();
        if edns.flags().dnssec_ok {
            text.push_str(" do");
        }
        for (code, option) in edns.options().as_ref() {
            text.push_str(&option_text(*code, option));
        }
        text.push('\n');
    }
    text
}

fn words(code: u16) -> &'static str {
    match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        23 => "BADCOOKIE",
        16 => "BADVERS",
        _ => panic!("response code {code}"),
    }
}

fn record_text(record: &Record) -> String {
    let data = match &record.data {
        RData::TXT(txt) => {
            let strings: Vec<String> =
                txt.txt_data.iter().map(|s| format!("{:?}", String::from_utf8_lossy(s))).collect();
            strings.join(" ")
        }
        other => other.to_string(),
    };
    format!("{} {} {} {}", record.name, record.ttl, record.record_type(), data.trim_end())
}

fn option_text(code: EdnsCode, option: &EdnsOption) -> String {
    match option {
        EdnsOption::Subnet(s) => {
            format!(" ecs={}/{} scope={}", s.addr(), s.source_prefix(), s.scope_prefix())
        }
        EdnsOption::Unknown(15, data) => {
            let [high, low, text @ ..] = data.as_slice() else { panic!("short: {data:?}") };
            let code = u16::from_be_bytes([*high, *low]);
            format!(" ede={code} ({})", String::from_utf8_lossy(text))
        }
        EdnsOption::Unknown(10, cookie) => format!(" cookie={}", hex_of(cookie)),
        EdnsOption::Unknown(11, idle) => format!(" keepalive={}", hex_of(idle)),
        EdnsOption::NSID(name) => format!(" nsid={}", String::from_utf8_lossy(name.as_ref())),
        other => panic!("which option is {code:?}: {other:?}?"),
    }
}
