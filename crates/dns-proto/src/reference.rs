//! The look-up against a slow one written from the words of RFC 1034 section 4.3.2 and RFC 4592, over
//! random zones and questions.

use std::collections::BTreeSet;
use std::path::Path;

use hickory_proto::op::Message;
use model::Dice;
use proptest::prelude::*;

use crate::testing::{Ask, node_map, with_files};
use crate::wire::rtype::{self, A, CNAME, DS, MX, NS, SOA, TXT};
use crate::zonefile::{self, ZoneFile};
use crate::{Asker, Desk, Manners, Snapshot, Transport, answer};

/// The zones: one inside the other, and one apart.
const ZONES: [&str; 3] = ["z.example", "c.a.z.example", "other"];
/// The SOA record of each.
const AUTHORITY: &str = "ns.far.away. noc.far.away. 1 2 3 4 5";
const LABELS: [&str; 4] = ["a", "b", "c", "*"];

/// A record as a file has it, its owner without the final point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    zone: &'static str,
    owner: String,
    rtype: u16,
    data: String,
}

/// What a question should get: whether with AA, response code, answers, and the owner and type of
/// what stands in the authority section.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    authoritative: bool,
    code: u16,
    answers: BTreeSet<(String, u16, String)>,
    authority: Option<(String, u16)>,
}

/// The name and the names above it, the longest first; labels are plain.
fn upwards(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, above)| above))
}

fn is_in(name: &str, above: &str) -> bool {
    upwards(name).any(|name| name == above)
}

fn zone_of(name: &str) -> Option<&'static str> {
    upwards(name).find_map(|name| ZONES.into_iter().find(|zone| *zone == name))
}

/// The records that a zone has as its own.
fn of_zone<'a>(records: &'a [Record], zone: &str) -> impl Iterator<Item = &'a Record> + Clone {
    records.iter().filter(move |record| {
        let at_cut_of_ours = record.rtype == DS && ZONES.contains(&record.owner.as_str());
        record.zone == zone && (zone_of(&record.owner) == Some(zone) || at_cut_of_ours)
    })
}

/// RFC 1034 section 4.3.2.
fn expected(records: &[Record], name: &str, qtype: u16) -> Option<Expected> {
    let mut answers = BTreeSet::new();
    let mut name = name.to_owned();
    let mut passed = BTreeSet::new();
    let done =
        |answers, code, authority| Expected { authoritative: true, code, answers, authority };
    loop {
        // Step 2: the zone that is the nearest ancestor; the DS set stands in the parent's.
        let mut zone = match zone_of(&name) {
            Some(zone) => zone,
            None if answers.is_empty() => return None,
            None => return Some(done(answers, 0, None)),
        };
        if qtype == DS && name == zone {
            let above = name.split_once('.').and_then(|(_, above)| zone_of(above));
            zone = above.unwrap_or(zone);
        }
        let own = of_zone(records, zone);
        // A zone of ours below is there, whether the one above has a record of it or not.
        let below = |node: &str| ZONES.iter().any(|of| *of != zone && is_in(of, node));
        let exists =
            |node: &str| below(node) || own.clone().any(|record| is_in(&record.owner, node));
        let at = |node: &str, rtype: u16| -> Vec<Record> {
            own.clone().filter(|r| r.owner == node && r.rtype == rtype).cloned().collect()
        };
        // Step 3: down, label by label.
        let mut down: Vec<&str> = upwards(&name).take_while(|node| is_in(node, zone)).collect();
        down.reverse();
        let mut source = Some(name.clone());
        let mut encloser = zone;
        for node in down {
            let cut = node != zone && !(qtype == DS && node == name);
            if cut && !at(node, NS).is_empty() {
                // b: out of the authoritative data.
                let authoritative = !answers.is_empty();
                let authority = Some((node.to_owned(), NS));
                return Some(Expected { authoritative, code: 0, answers, authority });
            }
            if !exists(node) && node != zone {
                // c: a wildcard of the closest encloser, or there is no such name.
                let wildcard = format!("*.{encloser}");
                source = exists(&wildcard).then_some(wildcard);
                break;
            }
            encloser = node;
        }
        let soa = Some((zone.to_owned(), SOA));
        let Some(source) = source else { return Some(done(answers, 3, soa)) };
        // a: the whole name is matched.
        let alias = at(&source, CNAME).pop().filter(|_| qtype != CNAME);
        let Some(alias) = alias else {
            let found = at(&source, qtype);
            let none = found.is_empty();
            answers.extend(found.into_iter().map(|r| (name.clone(), r.rtype, r.data)));
            return Some(done(answers, 0, soa.filter(|_| none)));
        };
        let target = alias.data.clone();
        passed.insert(name.clone());
        answers.insert((name, CNAME, alias.data));
        if passed.contains(&target) || passed.len() > crate::answer::ALIASES_MAX {
            return Some(done(answers, 0, None));
        }
        name = target;
    }
}

/// What the server gives.
fn given(snapshot: &Snapshot, name: &str, qtype: u16) -> Option<Expected> {
    let asker = Asker {
        peer: [192, 0, 2, 1].into(),
        transport: Transport::Tcp,
        now: model::Now::default(),
    };
    let mut out = Vec::new();
    let mut desk = Desk::new(Dice::seeded(1), Manners::default());
    answer(snapshot, &Ask::new(name, qtype).bytes(), &asker, &mut desk, &mut out);
    let reply = Message::from_vec(&out).unwrap();
    let text = |name: &hickory_proto::rr::Name| {
        name.to_string().trim_end_matches('.').to_ascii_lowercase()
    };
    let code = u16::from(reply.metadata.response_code);
    if code == 5 {
        return None;
    }
    let answers = reply.answers.iter().map(|record| {
        let rtype = u16::from(record.record_type());
        let data = if rtype == DS { String::new() } else { record.data.to_string() };
        (text(&record.name), rtype, data.trim_end_matches('.').to_owned())
    });
    let authority = reply.authorities.first();
    Some(Expected {
        authoritative: reply.metadata.authoritative,
        code,
        answers: answers.collect(),
        authority: authority.map(|record| (text(&record.name), u16::from(record.record_type()))),
    })
}

/// What a name is given, if it lies below nothing that forbids it.
#[derive(Clone, Debug)]
enum Kind {
    Data(bool, bool, bool),
    Alias(String),
    Cut(bool),
}

fn name_in(zones: &'static [&'static str]) -> impl Strategy<Value = String> {
    let labels = prop::collection::vec(prop::sample::select(&LABELS[..]), 0..4);
    (labels, prop::sample::select(zones))
        .prop_map(|(labels, zone)| labels.into_iter().chain([zone]).collect::<Vec<_>>().join("."))
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => any::<(bool, bool, bool)>().prop_map(|(a, b, c)| Kind::Data(a, b, c)),
        2 => prop_oneof![4 => name_in(&ZONES), 1 => Just("far.away".to_owned())].prop_map(Kind::Alias),
        2 => any::<bool>().prop_map(Kind::Cut),
    ]
}

/// The records of one zone; `names` in any order.
fn records_of(zone: &'static str, names: &[(String, Kind)]) -> Vec<Record> {
    let record = |owner: &str, rtype, data: &str| Record {
        zone,
        owner: owner.to_owned(),
        rtype,
        data: data.to_owned(),
    };
    let mut records = vec![record(zone, SOA, AUTHORITY), record(zone, NS, "ns.far.away")];
    let mut taken: BTreeSet<&str> = [zone].into();
    let mut cuts = Vec::new();
    for (name, kind) in names.iter().filter(|(name, _)| is_in(name, zone)) {
        if !taken.insert(name) || cuts.iter().any(|cut: &&str| is_in(name, cut)) {
            continue;
        }
        match kind {
            Kind::Data(a, txt, mx) => {
                records.extend(a.then(|| record(name, A, "192.0.2.1")));
                records.extend(txt.then(|| record(name, TXT, "text")));
                records.extend(mx.then(|| record(name, MX, "10 far.away")));
            }
            Kind::Alias(target) => records.push(record(name, CNAME, target)),
            Kind::Cut(signed) => {
                let below = records.iter().any(|r| r.owner != *name && is_in(&r.owner, name));
                if name.starts_with('*') || below {
                    continue;
                }
                records.push(record(name, NS, "ns.far.away"));
                records.push(record(&format!("glue.{name}"), A, "192.0.2.2"));
                records.extend(signed.then(|| record(name, DS, "")));
                cuts.push(name.as_str());
            }
        }
    }
    records
}

fn file_of(zone: &'static str, records: &[Record]) -> Option<ZoneFile> {
    let mut text = String::new();
    for record in records {
        let (owner, data) = (&record.owner, &record.data);
        let rtype = rtype::word(record.rtype);
        let data = match record.rtype {
            DS => "1 13 2 ABCD".to_owned(),
            NS | CNAME | MX => format!("{data}."),
            _ => data.clone(),
        };
        text += &format!("{owner}. 300 {rtype} {data}\n");
    }
    // Circles of aliases are refused; all else here is sound.
    match zonefile::parse(Path::new(zone), &zone.parse().unwrap(), text.as_bytes()) {
        Ok(file) => Some(file),
        Err(findings) => {
            assert!(findings.iter().all(|f| f.problem.contains("circle")), "{text}{findings:?}");
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn answers_are_those_of_the_rfcs(
        names in prop::collection::vec((name_in(&ZONES), any_kind()), 0..24),
        questions in prop::collection::vec(
            (name_in(&["z.example", "c.a.z.example", "other", "example"]),
             prop::sample::select(vec![A, NS, CNAME, SOA, MX, TXT, DS])), 24),
    ) {
        let all: Vec<Vec<Record>> = ZONES.iter().map(|zone| records_of(zone, &names)).collect();
        let files: Option<Vec<ZoneFile>> =
            ZONES.into_iter().zip(&all).map(|(zone, records)| file_of(zone, records)).collect();
        prop_assume!(files.is_some());
        let snapshot = with_files(node_map("network.toml"), files.unwrap());
        let records = all.concat();
        for (name, qtype) in questions {
            prop_assert_eq!(
                given(&snapshot, &name, qtype), expected(&records, &name, qtype),
                "{} {} of {:?}", name, qtype, &records
            );
        }
    }
}
