//! Files read and refused, with the words of every fault.

use std::sync::Arc;

use nodemap::AdminMap;
use proptest::prelude::*;

use super::*;
use crate::records::RecordSet;

const APEX: &str = "cdn.example";

fn read(text: &str) -> Result<ZoneFile, Vec<String>> {
    parse(Path::new("f"), &APEX.parse().unwrap(), text.as_bytes())
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

/// What is wrong with `text`, one finding a line.
fn faults(text: &str) -> String {
    read(text).unwrap_err().join("\n")
}

fn set<'a>(file: &'a ZoneFile, owner: &[u8], rtype: u16) -> &'a RecordSet {
    let mut sets = file.sets.iter();
    &sets.find(|set| *set.owner == *owner && set.set.rtype == rtype).unwrap().set
}

#[test]
fn every_form_that_the_rfcs_know_is_read() {
    let text = r#"
$TTL 300
@   IN SOA ns1 noc ( 2026120101 ; serial
        7200 1800 1209600
        60 )
    NS ns1
    NS NS.Other.Example.
$ORIGIN sub.cdn.example.
WWW 60 IN A 192.0.2.1
    60 A 192.0.2.2
    IN 60 AAAA 2001:db8::1
$ORIGIN cdn.example.
ns1 A 192.0.2.53
    TXT "one; string" two "with \"quotes\" and \\ and \200"
    MX 10 Mail.Example.
    CAA 0 issue "letsencrypt.org"
    SRV 1 2 443 Host.Example.
    HTTPS 1 . alpn="h2,h3" ipv4hint=192.0.2.1
    TYPE65280 \# 4 DEADBEEF
a.b.c   CNAME ns1
*.wild  TXT x
a\.b    TXT "escaped"
host A \# 4 C0000207"#;
    let file = read(text).unwrap();
    assert_eq!(file.records(), 17);
    let data = |owner: &[u8], rtype| -> Vec<Vec<u8>> {
        set(&file, owner, rtype).data().map(<[u8]>::to_vec).collect()
    };
    let ns1 = b"\x03ns1\x03cdn\x07example\0";
    let www = b"\x03www\x03sub\x03cdn\x07example\0";
    assert_eq!(data(www, 1), [[192, 0, 2, 1], [192, 0, 2, 2]]);
    assert_eq!(set(&file, www, 1).ttl_s, 60);
    let expected = b"\x02ns\x05other\x07example\0".to_vec();
    assert_eq!(data(b"\x03cdn\x07example\0", 2), [expected, ns1.to_vec()]);
    let txt = b"\x0bone; string\x03two\x19with \"quotes\" and \\ and \xc8".to_vec();
    assert_eq!(data(ns1, 16), [txt]);
    assert_eq!(data(ns1, 15), [b"\0\x0a\x04mail\x07example\0".to_vec()]);
    assert_eq!(data(ns1, 257), [b"\0\x05issueletsencrypt.org".to_vec()]);
    assert_eq!(data(ns1, 33), [b"\0\x01\0\x02\x01\xbb\x04host\x07example\0".to_vec()]);
    assert_eq!(
        data(ns1, 65),
        [b"\0\x01\0\0\x01\0\x06\x02h2\x02h3\0\x04\0\x04\xc0\0\x02\x01".to_vec()]
    );
    assert_eq!(data(ns1, 65280), [[0xde, 0xad, 0xbe, 0xef]]);
    assert_eq!(data(b"\x01a\x01b\x01c\x03cdn\x07example\0", 5), [ns1]);
    assert_eq!(data(b"\x03a.b\x03cdn\x07example\0", 16), [b"\x07escaped"]);
    assert_eq!(data(b"\x04host\x03cdn\x07example\0", 1), [[192, 0, 2, 7]]);
    assert_eq!(set(&file, ns1, 65280).ttl_s, 300);
}

#[test]
fn faults_name_line_key_and_remedy() {
    let cases = [
        ("", "f: has no records: put the file back, or take it away to give the zone up"),
        ("\n\nwww A 192.0.2.256\n", "f:3:"),
        ("www A\n", "f:1:"),
        ("; one\nwww 1h A 192.0.2.1\n", "f:2: expected rtype, not \"1h\": write NAME [TTL] [IN]"),
        ("x AX 192.0.2.1\n", "f:1: expected rtype, not \"AX\": write NAME [TTL] [IN] TYPE DATA"),
        ("x AX\n", "f:1: expected rtype, not \"AX\""),
        ("$TTL 1h\n", "f:1: expected decimal number, not \"1h\": write a number; times are in"),
        ("a TXT \"open\n", "f:1: a quote is opened here and never closed: close it"),
        ("a TXT b\n\n@ SOA a b ( 1 2\n 3 4 5 ; )\na A 192.0.2.1\n", "f:3: a parenthesis is opened"),
        ("a TXT b\n@ SOA a b ( 1 2\n", "f:2: a parenthesis is opened here and never closed"),
        ("www A 192.0.2.1 192.0.2.2\n", "f:1: trailing tokens: take out what is too much"),
        ("  A 192.0.2.1\n", "f:1: missing last owner: begin the line with a name"),
        ("$GENERATE 1-2 a A 192.0.2.$\n", "f:1: unknown control: $GENERATE: only $ORIGIN"),
        ("a TXT x\n$INCLUDE other.zone\n", "f:2: $INCLUDE: is not read"),
        ("a TXT x\nb.other. A 192.0.2.1\n", "f:2: b.other. A: does not lie in the zone"),
        ("a CH TXT x\n", "f:1: different class"),
        ("a 4294967295 TXT x\n", "f:1: a.cdn.example. TXT: has a TTL that counts as 0"),
        ("a 60 TXT x\na 61 TXT y\n", "f:2: a.cdn.example. TXT: has another TTL"),
        ("a DNAME b\n", "f:1: a.cdn.example. DNAME: cannot stand in a zone file here: write the"),
        ("a TYPE250 \\# 1 00\n", "f:1: a.cdn.example. TSIG: cannot stand"),
        ("a DNSKEY 257 3 13 AAAA\n", "f:1: a.cdn.example. DNSKEY: cannot stand"),
        ("@ CNAME a\n", "f:1: cdn.example. CNAME: stands at the top of the zone"),
        ("a CNAME b\na TXT x\n", "f:1: a.cdn.example. CNAME: has other records beside it"),
        ("a CNAME b\na CNAME c\n", "f:1: a.cdn.example. CNAME: is there twice"),
        ("a CNAME b\nb CNAME c\nc CNAME b\n", "f:1: a.cdn.example. CNAME: leads in a circle"),
        ("a SOA b c 1 2 3 4 5\n", "f:1: a.cdn.example. SOA: does not stand at the top"),
        ("@ SOA b c 1 2 3 4 5\n@ SOA b c 2 2 3 4 5\n", "f:1: cdn.example. SOA: is there twice"),
        ("@ SOA b c 1 2 3 4 5\n", "f:1: cdn.example. SOA: has no name servers beside it"),
        ("*.a NS b\n", "f:1: *.a.cdn.example. NS: delegates every name"),
        ("a DS 1 13 2 ABCD\n", "f:1: a.cdn.example. DS: stands where nothing is delegated"),
        ("a NS b.other.\na TXT x\n", "f:2: a.cdn.example. TXT: stands beside a delegation"),
        ("a NS b.other.\nb.a TXT x\n", "f:2: b.a.cdn.example. TXT: lies below a delegation"),
        ("a NS n.a\n", "f:1: a.cdn.example. NS: leads to n.a.cdn.example., whose address is not"),
        ("a MX 1 b\nb CNAME c\n", "f:1: a.cdn.example. MX: leads to b.cdn.example., which is an"),
    ];
    for (text, expected) in cases {
        let found = faults(text);
        assert!(found.starts_with(expected), "{text:?}: {found}\nexpected {expected}");
    }
    assert_eq!(
        read("a NS n.a\nn.a A 192.0.2.1\na NS a\na AAAA 2001:db8::1\na DS 1 13 2 ABCD\n")
            .unwrap()
            .records(),
        5
    );
    let many: String = (0..5000).map(|i| format!("many TXT \"text {i}\"\n")).collect();
    assert!(faults(&many).contains("many.cdn.example. TXT: does not fit an answer"));
    let wrong: String = (0..500).map(|i| format!("n{i}.other. A 192.0.2.1\n")).collect();
    assert_eq!(read(&wrong).unwrap_err().len(), FINDINGS_MAX);
    let (path, apex) = (Path::new("f"), &"cdn.example".parse().unwrap());
    let mut reading = Reading { path, apex, groups: BTreeMap::new(), findings: Vec::new() };
    reading.read(wrong.as_bytes(), &wire_name(apex));
    assert_eq!(reading.findings.len(), FINDINGS_MAX, "no more are kept while it is read");
}

#[test]
fn aliases_end_within_the_limit() {
    let chain = |n: usize| -> String {
        (0..n).map(|i| format!("a{i} CNAME a{}\n", i + 1)).collect::<String>() + "z TXT x\n"
    };
    assert!(read(&chain(ALIASES)).is_ok());
    assert!(faults(&chain(ALIASES + 1)).contains("a0.cdn.example. CNAME: leads in a circle"));
}

const ALIASES: usize = crate::answer::ALIASES_MAX;

/// The files of the fuzz corpus.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/zone_file");
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

/// Whether `text` is a zone file; names can be made of one.
fn is_sound(text: &[u8]) -> bool {
    match parse(Path::new("f"), &APEX.parse().unwrap(), text) {
        Ok(file) => {
            assert!(file.records() > 0);
            crate::left_out(&AdminMap::default(), &[Arc::new(file)]);
            true
        }
        Err(findings) => {
            assert!(!findings.is_empty());
            false
        }
    }
}

#[test]
fn the_fuzz_corpus_is_read_or_refused() {
    let files = corpus();
    let sound = files.iter().filter(|text| is_sound(text)).count();
    assert!(sound >= 4 && files.len() >= sound + 8, "{sound} of {}", files.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_files_are_read_or_refused(
        which: prop::sample::Index,
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(&b"\"\\()$;@#. \n\ta*0\xff"[..])),
            0..6,
        ),
        cut: prop::sample::Index,
    ) {
        let mut text = corpus().swap_remove(which.index(corpus().len()));
        for (at, byte) in changes {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        is_sound(&text);
        text.truncate(cut.index(text.len() + 1));
        is_sound(&text);
    }
}
