//! `cacheboy report` on logs of every kind: the published table of one node into the exchange WAIX comes
//! out of a log again, and what is broken is said.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use locate::Evidence;
use locate::mmdb_write::Writer;
use locate::testing::record;
use serde_json::Value;

use support::{Ran, cacheboy, output};

/// MBytes and requests of all traffic of that day, as the table says.
const ALL: (u64, u64) = (60_123_250_000, 28_037);
/// 2009-08-03T00:00:00Z.
const DAY_MS: u64 = 1_249_257_600_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Network, MBytes, requests, percent and name, as they were published.
fn published() -> Vec<[String; 5]> {
    let file = root().join("tests/golden/report/usage-2009-08-waix.tsv");
    let text = fs::read_to_string(file).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("AS"));
    let rows: Vec<_> = rows
        .map(|row| {
            let cells: Vec<String> = row.split('\t').map(str::to_owned).collect();
            <[String; 5]>::try_from(cells).unwrap()
        })
        .collect();
    assert_eq!(rows.len(), 20);
    rows
}

/// A log of that day in lines of Squid, and what the table does not show as that of 30 more networks.
fn log() -> Vec<String> {
    let mut keys: Vec<(String, u64, u64)> = published()
        .into_iter()
        .map(|[asn, mbytes, requests, ..]| {
            let cents: u64 = mbytes.replace('.', "").parse().unwrap();
            (asn, cents * 10_000, requests.parse().unwrap())
        })
        .collect();
    let mut bytes_left = ALL.0 - keys.iter().map(|key| key.1).sum::<u64>();
    let mut requests_left = ALL.1 - keys.iter().map(|key| key.2).sum::<u64>();
    for shares in (1..=30).rev() {
        let (bytes, requests) = (bytes_left / shares, requests_left / shares);
        keys.push((format!("AS{}", 64_512 + shares), bytes, requests));
        (bytes_left, requests_left) = (bytes_left - bytes, requests_left - requests);
    }
    let mut lines = Vec::new();
    for (number, (asn, bytes, requests)) in keys.into_iter().enumerate() {
        for request in 0..requests {
            let (each, rest) = (bytes / requests, bytes % requests);
            let bytes = if request == 0 { each + rest } else { each };
            let ms = DAY_MS + request * 1000;
            lines.push(format!(
                "{}.{:03}   {request} 198.18.{number}.0 TCP_HIT/200 {bytes} GET \
                 http://download.example/vlc/vlc-1.0.1.exe - NONE/- application/x-msdownload {asn}\n",
                ms / 1000,
                ms % 1000,
            ));
        }
    }
    lines
}

/// A database that has the names of the published networks, and the first ten in New Zealand.
fn database(dir: &Path) -> PathBuf {
    let mut writer = Writer::new("Test", "networks of a test", 0);
    for (number, [asn, .., name]) in published().into_iter().enumerate() {
        let country = (number < 10).then(|| "NZ".parse().unwrap());
        let evidence = Evidence { asn: asn.parse().ok(), country, continent: None };
        let network = format!("198.18.{number}.0/24").parse().unwrap();
        writer.insert(network, &record(evidence, Some(&name)));
    }
    let file = dir.join("both.mmdb");
    fs::write(&file, writer.finish()).unwrap();
    file
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn report(args: &[&str], logs: &[&Path]) -> Ran {
    output(cacheboy().arg("report").args(args).arg("--log").args(logs))
}

#[test]
fn the_table_of_an_exchange_comes_out_of_its_log_again() {
    let dir = tempfile::tempdir().unwrap();
    let database = database(dir.path());
    let lines = log();
    let (plain, packed) = (dir.path().join("access.log"), dir.path().join("access.log.1.gz"));
    fs::write(&plain, lines[..9_000].concat()).unwrap();
    // As two runs of logrotate leave it: two members, cut anywhere.
    let older = lines[9_000..20_000].concat().into_bytes();
    let (one, two) = older.split_at(older.len() / 2);
    fs::write(&packed, [gzipped(one), gzipped(two)].concat()).unwrap();
    let mut command = cacheboy();
    command.args(["report", "asn", "--format", "csv", "--asn"]).arg(&database);
    command.arg("--log").args([&plain, &packed, Path::new("-")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines[20_000..].concat().as_bytes()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
    let csv = String::from_utf8(done.stdout).unwrap();
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("rank,asn,bytes,mbytes,requests,percent,name"));
    for ((rank, row), [asn, mbytes, requests, percent, name]) in (1..).zip(rows).zip(published()) {
        let bytes = mbytes.replace('.', "");
        let wanted = format!("{rank},{asn},{bytes}0000,{mbytes},{requests},{percent},{name}");
        assert_eq!(row, wanted);
    }
    assert_eq!(csv.lines().count(), 21);

    fs::write(&plain, lines.concat()).unwrap();
    let all = ["country", "--country", database.to_str().unwrap()];
    let ran = report(&all, &[&plain]);
    let words: Vec<Vec<&str>> = ran.out.lines().map(|l| l.split_whitespace().collect()).collect();
    let nz: u64 =
        published()[..10].iter().map(|row| row[1].replace('.', "").parse::<u64>().unwrap()).sum();
    let nz_mbytes = format!("{}.{:02}", nz / 100, nz % 100);
    assert!(
        words.iter().any(|w| w[..] == ["1", &nz_mbytes, "20847", "84.06", "NZ"]),
        "{}",
        ran.out
    );
    assert!(
        words.iter().any(|w| w[..] == ["total", "60123.25", "28037", "100.00", "all", "traffic"])
    );
}

#[test]
fn json_lines_tell_projects_nodes_limits_and_who_was_missteered() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.json");
    let line = |ms: u64, bytes: u64, more: &str| {
        format!(
            "{{\"ended_ms\":{ms},\"client\":\"192.0.2.0\",\"asn\":7545,\"country\":\"AU\",\"node\":\"one\",\
             \"host\":\"a.example\",\"bytes\":{bytes},{more}}}\n"
        )
    };
    let text = [
        line(DAY_MS, 1, r#""project":"film","missteered":"","limit":"paced""#),
        line(DAY_MS + 1000, 10, r#""project":"film","missteered":"asia","limit":"""#),
        line(DAY_MS + 2000, 100, r#""project":"","missteered":"","limit":"too-many""#),
        line(DAY_MS + 2000, 3, r#""outcome":"health""#),
        format!(
            "{{\"kind\":\"connection\",\"ended_ms\":{DAY_MS},\"asn\":7545,\"country\":\"AU\",\
             \"node\":\"one\",\"acked_bytes\":9,\"sent_segments\":4,\"retransmitted_segments\":1,\
             \"min_rtt_us\":50000,\"delivery_rate\":1250000}}\n"
        ),
        format!(
            "{}.000 1 192.0.2.0 TCP_HIT/200 1000 GET http://Download.Videolan.example:80/a - NONE/- a/b\n",
            DAY_MS / 1000 + 3
        ),
    ];
    fs::write(&log, text.concat()).unwrap();
    let json = |args: &[&str]| -> Value {
        let ran = report(&[args, &["--format", "json"]].concat(), &[&log]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        serde_json::from_str(&ran.out).unwrap()
    };
    let maps = root().join("maps");
    let document = json(&["project", "--maps", maps.to_str().unwrap()]);
    let projects = document["rows"].as_array().unwrap().iter();
    let projects: Vec<_> =
        projects.map(|row| (row["project"].clone(), row["bytes"].clone())).collect();
    let wanted = [("videolan".into(), 1000), (Value::Null, 100), ("film".into(), 11)];
    assert_eq!(projects, wanted.map(|(name, bytes)| (name, Value::from(bytes))));
    assert_eq!(document["limits"]["too-many"]["bytes"], 100);
    assert_eq!(document["limits"]["paced"]["requests"], 1);
    assert_eq!((&document["malformed"], &document["failed"]), (&0.into(), &Value::Array(vec![])));

    let document =
        json(&["project", "--from", "2009-08-03T00:00:01", "--to", "2009-08-03T00:00:02Z"]);
    assert_eq!(document["total"], serde_json::json!({ "bytes": 10, "requests": 1 }));
    let document = json(&["node"]);
    let row = &document["rows"][0];
    assert_eq!((&row["node"], &row["bytes"]), (&"one".into(), &111.into()));
    assert_eq!(
        (&row["retransmitted_percent"], &row["delivery_mbit_s"]),
        (&25.0.into(), &10.0.into())
    );
    assert_eq!(document["unknown"]["bytes"], 1000);
    let document = json(&["missteered"]);
    let row = &document["rows"][0];
    assert_eq!(
        (&row["node"], &row["pool"], &row["bytes"]),
        (&"one".into(), &"asia".into(), &10.into())
    );
    assert_eq!((&document["keys"], &document["unknown"]["requests"]), (&1.into(), &1.into()));
}

#[test]
fn demand_tells_projects_countries_networks_and_families_apart() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.json");
    let line = |ms: u64, client: &str, bytes: u64, more: &str| {
        format!(
            "{{\"ended_ms\":{ms},\"client\":\"{client}\",\"node\":\"one\",\"host\":\"a\",\"bytes\":{bytes}{more}}}\n"
        )
    };
    let perth = r#","asn":7545,"country":"AU","project":"film""#;
    let text = [
        line(DAY_MS, "192.0.2.0", 15_000_000, perth),
        line(DAY_MS + 299_999, "192.0.2.0", 22_500_000, perth),
        line(DAY_MS + 300_000, "2001:db8::", 7_500_000, perth),
        line(DAY_MS, "203.0.113.0", 5, r#","country":"NZ","project":"film""#),
        line(DAY_MS, "203.0.113.0", 70, r#","asn":1,"country":"NZ","project":"""#),
        line(DAY_MS, "203.0.113.0", 900, r#","asn":1,"country":"NZ","outcome":"health""#),
        // Squid's lines have neither project nor country: both are looked up.
        format!(
            "{}.000 1 24.1.0.0 TCP_HIT/200 1000 GET http://download.videolan.example/a - NONE/- a/b\n",
            DAY_MS / 1000
        ),
    ];
    fs::write(&log, text.concat()).unwrap();
    let maps = root().join("maps");
    let ran = report(&["demand", "--format", "json", "--maps", maps.to_str().unwrap()], &[&log]);
    // Without databases it says that it takes those of the demo.
    assert_eq!((ran.code, ran.err.lines().count()), (0, 1), "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["format"], &document["report"]), (&1.into(), &"demand".into()));
    assert_eq!(document["total"], serde_json::json!({ "bytes": 45_001_075, "requests": 6 }));
    assert_eq!(document["others"], serde_json::json!({ "bytes": 70, "requests": 1 }));
    let rows: Vec<String> = document["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let keys =
                ["project", "country", "asn", "family", "bytes", "requests", "peak_bits_per_s"];
            keys.map(|key| row[key].to_string()).join(" ")
        })
        .collect();
    // 37.5 MB in the five minutes of most are 1 Mbit/s, of which IPv4 had 37.5 / 45 of all bytes.
    assert_eq!(rows[0], r#""film" "AU" 7545 "v4" 37500000 2 833333"#);
    assert_eq!(rows[1], r#""film" "AU" 7545 "v6" 7500000 1 166666"#);
    assert!(
        rows[2].starts_with(r#""videolan" "US" "#) && rows[2].contains(r#" "v4" 1000 1 "#),
        "{}",
        rows[2]
    );
    assert!(rows[3].starts_with(r#""film" "NZ" "#), "{}", rows[3]);
    assert_eq!(rows.len(), 4);
}

#[test]
fn what_is_broken_is_said_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let good = "1249257600.000 1 192.0.2.0 TCP_HIT/200 1000 GET http://a/b - NONE/- a/b AS1\n";
    let (log, packed, none) =
        (dir.path().join("a.log"), dir.path().join("b.gz"), dir.path().join("none"));
    let long = "x".repeat(3 << 20);
    let text = format!("{good}\n\u{7f}\0nothing\n{{\"bytes\":\n{long}\n{good}");
    fs::write(&log, text).unwrap();
    let ran = report(&["node"], &[&log]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains("total      0.00         2"), "{}", ran.out);
    let first = format!(
        "cacheboy: 3 of 6 lines were not understood and are left out; the first is {}:3: does not \
         begin with a time, seconds.milliseconds\n",
        log.display()
    );
    assert_eq!(ran.err, first);

    // Bytes that do not repeat: what is missing is missing.
    let lines: String = (0..10_000).map(|i| good.replace("1000", &format!("{}", i * i))).collect();
    let whole = gzipped(lines.as_bytes());
    fs::write(&packed, &whole[..whole.len() / 2]).unwrap();
    let ran = report(&["node"], &[&packed, &none, &log]);
    assert_eq!(ran.code, 1);
    let (half, absent) = (
        format!("cannot read {} to its end: ", packed.display()),
        format!("cannot read {}: No such file or directory (os error 2): nothing", none.display()),
    );
    for failure in [half, absent] {
        assert!(ran.err.contains(&failure), "{failure}: {}", ran.err);
    }
    let total = ran.out.lines().find(|line| line.starts_with("total")).unwrap();
    let requests: u32 = total.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!((1000..10_000).contains(&requests), "{total}");

    // A line without end costs no memory, however well it is packed: it is passed over as it comes out of the decoder.
    let bomb = gzipped(&vec![b'a'; 64 << 20]);
    fs::write(&packed, bomb.repeat(4)).unwrap();
    let mut limited = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_cacheboy");
    limited.args([
        "-c",
        "ulimit -v 4000000; exec \"$@\"",
        "bash",
        program,
        "report",
        "node",
        "--log",
    ]);
    let ran = output(limited.arg(&packed));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("1 of 1 lines were not understood"), "{}", ran.err);
    assert!(ran.err.contains(":1: longer than 1 MiB"), "{}", ran.err);
}

#[test]
fn what_is_asked_wrongly_says_what_to_write() {
    for (args, words) in [
        (
            &["report", "colour", "--log", "a"][..],
            "asn, country, project, node, missteered, demand",
        ),
        (&["report", "asn"], "--log <FILE>"),
        (&["report", "asn", "--log", "a", "--from", "today"], "write 2026-11-30"),
        (
            &["report", "asn", "--log", "a", "--from", "2026-11-30", "--to", "2026-11-30"],
            "--from is not before --to",
        ),
        (&["node", "drain", "--for", "0s"], "leave it out to drain until the node is undrained"),
    ] {
        let ran = output(cacheboy().args(args));
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    for subject in ["asn", "country"] {
        let database = format!("--{subject}");
        let ran = output(cacheboy().args(["report", subject, &database, "nosuch", "--log", "a"]));
        let words = "cannot read nosuch: check its name and its permissions: No such file";
        assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
    }
}
