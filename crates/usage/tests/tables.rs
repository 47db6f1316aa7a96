//! Tables that the first Cacheboy CDN published, turned into logs: the same tables come out again.
//!
//! Every request of them is a line here, read as the command reads it. `tests/golden/report/README.md`
//! says where the tables are from.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use model::Asn;
use usage::read::{Access, Line, Lines, line};
use usage::sums::{Place, Sums};
use usage::table::{Subject, Table};

/// MBytes and requests of all traffic of that week, as the tables say.
const ALL_OF_JUNE: [&str; 2] = ["18473721.25", "26272660"];

/// A published table: key, MBytes, requests, and what else stood there.
struct Published {
    rows: Vec<[String; 5]>,
    /// MBytes and requests of all traffic.
    all: [String; 2],
}

fn published(file: &str, all: [&str; 2]) -> Published {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/report").join(file);
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.next().unwrap().contains("mbytes\trequests"));
    let rows = lines.map(|line| {
        let mut cells = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    });
    Published { rows: rows.collect(), all: all.map(str::to_owned) }
}

/// Bytes of a number of MBytes with two digits.
fn bytes(mbytes: &str) -> u64 {
    mbytes.replace('.', "").parse::<u64>().unwrap() * 10_000
}

/// Lines of a log in which `requests` bring `bytes` in all: pieces, and how often each comes.
fn log(bytes: u64, requests: u64, line: &dyn Fn(u64) -> String) -> Vec<(String, u64)> {
    const AT_ONCE: u64 = 1000;
    let each = bytes / requests;
    let last = bytes - each * (requests - 1);
    let (pieces, rest) = ((requests - 1) / AT_ONCE, (requests - 1) % AT_ONCE);
    let many = |number: u64| line(each).repeat(number as usize);
    vec![(many(AT_ONCE), pieces), (many(rest), 1), (line(last), 1)]
}

/// Reads such a log by the key that `key_of` finds.
fn read(sums: &mut Sums, pieces: &[(String, u64)], key_of: impl Fn(&Access<'_>) -> Vec<u8>) {
    let mut lines = Lines::default();
    for (piece, times) in pieces {
        for _ in 0..*times {
            lines.push(piece.as_bytes(), |text| match line(text.unwrap()).unwrap() {
                Line::Access(access) => {
                    let key = key_of(&access);
                    sums.add(Place::Key(&key), access.bytes, b"", access.ended_ms);
                }
                Line::Connection(_) => panic!("there is none"),
            });
        }
    }
    assert!(lines.is_at_end_of_line());
}

/// Reads what the table says, and the traffic that it does not show as that of many other keys.
fn sums(
    table: &Published,
    others: &[String],
    line: impl Fn(&str, u64) -> String,
    key_of: impl Fn(&Access<'_>) -> Vec<u8> + Copy,
) -> Sums {
    let mut sums = Sums::default();
    let mut put = |key: &str, bytes, requests| {
        read(&mut sums, &log(bytes, requests, &|bytes| line(key, bytes)), key_of);
    };
    let (mut bytes_left, mut requests_left) =
        (bytes(&table.all[0]), table.all[1].parse::<u64>().unwrap());
    for [key, mbytes, requests, ..] in &table.rows {
        let (bytes, requests) = (bytes(mbytes), requests.parse().unwrap());
        put(key, bytes, requests);
        (bytes_left, requests_left) = (bytes_left - bytes, requests_left - requests);
    }
    for (key, shares) in others.iter().zip((1..=others.len() as u64).rev()) {
        let (bytes, requests) = (bytes_left / shares, requests_left / shares);
        put(key, bytes, requests);
        (bytes_left, requests_left) = (bytes_left - bytes, requests_left - requests);
    }
    assert_eq!((bytes_left, requests_left), (0, 0));
    sums
}

/// The cells of a table as CSV, without those of exact bytes.
fn cells(table: &Table) -> Vec<Vec<String>> {
    let csv = table.csv();
    let rows = csv.split_terminator("\r\n").skip(1);
    rows.map(|row| {
        row.split(',').enumerate().filter(|(i, _)| *i != 2).map(|(_, c)| c.to_owned()).collect()
    })
    .collect()
}

#[test]
fn the_week_of_june_2009_by_network() {
    let published = published("usage-2009-06-asn.tsv", ALL_OF_JUNE);
    let line = |asn: &str, bytes: u64| {
        format!(
            "1244332800.000 9 192.0.2.0 TCP_HIT/200 {bytes} GET http://a/b - NONE/- a/b {asn}\n"
        )
    };
    let others: Vec<String> = (64_512..64_712).map(|asn| format!("AS{asn}")).collect();
    let sums = sums(&published, &others, line, |access| access.asn.to_vec());
    let names: HashMap<Asn, &str> = published
        .rows
        .iter()
        .map(|[asn, .., name]| (asn.parse().unwrap(), name.as_str()))
        .collect();
    let mut table = Table::new(Subject::Asn, &sums, 20);
    assert!(table.networks().all(|asn| names.contains_key(&asn)));
    table.name_networks(|asn| names.get(&asn).map(|name| (*name).to_owned()));
    for ((rank, cells), row) in (1..).zip(cells(&table)).zip(&published.rows) {
        let [asn, mbytes, requests, percent, name] = row.each_ref().map(String::as_str);
        assert_eq!(cells, [&*rank.to_string(), asn, mbytes, requests, percent, name]);
    }
    let text = table.text();
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    let words =
        |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(last[1]), "shown 5234195.59 6878234 28.33 20 of 220");
    assert_eq!(words(last[0]), "total 18473721.25 26272660 100.00 all traffic");
}

#[test]
fn the_week_of_june_2009_by_country() {
    let published = published("usage-2009-06-country.tsv", ALL_OF_JUNE);
    // The first Cacheboy wrote small letters, and uk for GB.
    let code = |country: &str| if country == "uk" { "GB".into() } else { country.to_uppercase() };
    let line = |country: &str, bytes: u64| {
        let country = code(country);
        format!("{{\"ended_ms\":1244332800000,\"country\":\"{country}\",\"bytes\":{bytes}}}\n")
    };
    let others: Vec<String> = (0..100).map(|n| format!("X{n}")).collect();
    let sums = sums(&published, &others, line, |access| access.country.to_vec());
    let table = Table::new(Subject::Country, &sums, 20);
    assert_eq!(cells(&table).len(), 20);
    for ((rank, cells), row) in (1..).zip(cells(&table)).zip(&published.rows) {
        let [country, mbytes, requests, ..] = row.each_ref().map(String::as_str);
        assert_eq!(cells[..4], [&*rank.to_string(), &*code(country), mbytes, requests]);
    }
    assert_eq!(table.json()["total"]["requests"], 26_272_660);
    assert_eq!(table.json()["total"]["bytes"], 18_473_721_250_000_u64);
}
