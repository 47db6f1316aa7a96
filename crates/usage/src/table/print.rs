//! The forms of a table: text, CSV, JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use model::time::utc;
use serde_json::{Map, Value, json};

use super::{Row, Subject, Table};
use crate::sums::{Count, Ways};

/// Bytes of a hundredth of a MByte.
const CENT_OF_MBYTE: u64 = 10_000;

/// Titles of the columns that connections fill, for people and for programs.
const WAY_TITLES: [(&str, &str); 4] = [
    ("connections", "connections"),
    ("RTT ms", "min_rtt_ms"),
    ("resent %", "retransmitted_percent"),
    ("Mbit/s", "delivery_mbit_s"),
];

impl Table {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Some((first, last)) = self.period_ms {
            let _ = writeln!(out, "{} to {}\n", utc(first), utc(last));
        }
        let mut lines = vec![self.titles()];
        lines.extend(self.ranked().map(|(rank, row)| self.line(rank, row)));
        let sum = |word: &str, count: Count, about: String| {
            let [mbytes, requests, percent] = self.figures(count);
            let mut line = vec![word.to_owned(), mbytes, requests, percent];
            line.extend(self.has_ways().then(|| measured(None)).into_iter().flatten());
            line.push(about);
            line
        };
        let unit = format!("{} of {}", self.rows.len(), self.keys);
        lines.push(sum("shown", self.shown, unit));
        if self.others != Count::default() {
            lines.push(sum("others", self.others, "too many or too long to tell apart".to_owned()));
        }
        if self.unknown != Count::default() {
            lines.push(sum("unknown", self.unknown, "the log does not say".to_owned()));
        }
        lines.push(sum("total", self.all, "all traffic".to_owned()));
        out.push_str(&aligned(&lines, if self.has_ways() { 8 } else { 4 }));
        if !self.limits.is_empty() {
            let title = ["limit", "MBytes", "requests"].map(str::to_owned);
            let line = |(word, count): &(String, Count)| {
                let [mbytes, requests, _] = self.figures(*count);
                vec![word.clone(), mbytes, requests]
            };
            let lines: Vec<_> =
                [title.to_vec()].into_iter().chain(self.limits.iter().map(line)).collect();
            let _ = write!(out, "\nheld back or refused by limits\n{}", aligned(&lines, 3));
        }
        out
    }

    /// For spreadsheets: the rows alone, with a line of titles.
    pub fn csv(&self) -> String {
        let mut titles =
            vec!["rank", self.subject.key_title(), "bytes", "mbytes", "requests", "percent"];
        if self.has_ways() {
            titles.extend(WAY_TITLES.map(|(_, title)| title));
        }
        titles.extend(self.subject.about_title());
        let mut out = titles.join(",") + "\r\n";
        for (rank, row) in self.ranked() {
            let [mbytes, requests, percent] = self.figures(row.sum.count);
            let bytes = row.sum.count.bytes.to_string();
            let mut cells =
                vec![rank.to_string(), row.key.clone(), bytes, mbytes, requests, percent];
            if self.has_ways() {
                cells.extend(measured(row.sum.ways.as_deref()));
            }
            cells.extend(self.subject.about_title().map(|_| row.about.clone()));
            let cells: Vec<_> = cells.iter().map(|cell| quoted(&inert(cell))).collect();
            out.push_str(&cells.join(","));
            out.push_str("\r\n");
        }
        out
    }

    /// For programs: all that the text says, and exact bytes.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.ranked().map(|(rank, row)| self.row(rank, row)).collect();
        let limits: Map<_, _> =
            self.limits.iter().map(|(word, count)| (word.clone(), counted(*count))).collect();
        json!({
            "format": 1, "report": self.subject.word(),
            "first": self.period_ms.map(|(first, _)| utc(first)),
            "last": self.period_ms.map(|(_, last)| utc(last)),
            "rows": rows, "keys": self.keys, "shown": counted(self.shown),
            "others": counted(self.others), "unknown": counted(self.unknown),
            "total": counted(self.all), "limits": limits,
        })
    }

    fn row(&self, rank: usize, row: &Row) -> Value {
        let count = row.sum.count;
        let key = match self.subject {
            _ if row.key.is_empty() => Value::Null,
            Subject::Asn => row.key.trim_start_matches("AS").parse::<u32>().ok().into(),
            _ => row.key.as_str().into(),
        };
        let mut object = Map::new();
        object.insert("rank".into(), rank.into());
        object.insert(self.subject.key_title().into(), key);
        if let Some(title) = self.subject.about_title() {
            object.insert(title.into(), row.about.as_str().into());
        }
        object.insert("bytes".into(), count.bytes.into());
        object.insert("requests".into(), count.requests.into());
        object.insert("percent".into(), number(&self.figures(count)[2]));
        if self.has_ways() {
            for ((_, title), figure) in WAY_TITLES.iter().zip(measured(row.sum.ways.as_deref())) {
                object.insert((*title).into(), number(&figure));
            }
        }
        object.into()
    }

    fn titles(&self) -> Vec<String> {
        let mut titles = vec!["rank", "MBytes", "requests", "% of overall"];
        if self.has_ways() {
            titles.extend(WAY_TITLES.map(|(title, _)| title));
        }
        titles.push(self.subject.key_title());
        titles.extend(self.subject.about_title());
        titles.into_iter().map(str::to_owned).collect()
    }

    fn line(&self, rank: usize, row: &Row) -> Vec<String> {
        let key = if row.key.is_empty() { "-" } else { &row.key };
        let mut line = vec![rank.to_string()];
        line.extend(self.figures(row.sum.count));
        if self.has_ways() {
            line.extend(measured(row.sum.ways.as_deref()));
        }
        line.push(key.to_owned());
        line.extend(self.subject.about_title().map(|_| row.about.clone()));
        line
    }

    /// MBytes, requests and percent of all bytes.
    fn figures(&self, count: Count) -> [String; 3] {
        let mbytes = rounded(count.bytes, CENT_OF_MBYTE);
        [cents(mbytes), count.requests.to_string(), percent(count.bytes, self.all.bytes)]
    }

    fn ranked(&self) -> impl Iterator<Item = (usize, &Row)> {
        (1..).zip(&self.rows)
    }

    /// Whether any line of a connection was read.
    fn has_ways(&self) -> bool {
        self.rows.iter().any(|row| row.sum.ways.is_some())
    }
}

/// The columns that connections fill; empty where nothing was measured.
fn measured(ways: Option<&Ways>) -> [String; 4] {
    let Some(ways) = ways else { return Default::default() };
    let rtt = ways.median_rtt_us().map(|us| cents(rounded(us, 10)));
    let rate = ways.mean_rate().map(|rate| cents(rounded(rate, 1250)));
    let resent =
        (ways.sent_segments > 0).then(|| percent(ways.retransmitted_segments, ways.sent_segments));
    [
        ways.connections.to_string(),
        rtt.unwrap_or_default(),
        resent.unwrap_or_default(),
        rate.unwrap_or_default(),
    ]
}

/// How many `unit`s, rounded half up.
fn rounded(value: u64, unit: u64) -> u128 {
    let unit = u128::from(unit.max(1));
    u128::from(value).saturating_add(unit / 2).checked_div(unit).unwrap_or(0)
}

/// A number of hundredths.
fn cents(number: u128) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// Of `whole`, with two digits.
fn percent(part: u64, whole: u64) -> String {
    let whole = u128::from(whole.max(1));
    let scaled = u128::from(part).saturating_mul(10_000).saturating_add(whole / 2);
    cents(scaled.checked_div(whole).unwrap_or(0))
}

fn counted(count: Count) -> Value {
    json!({ "bytes": count.bytes, "requests": count.requests })
}

/// A figure as a number; nothing where it is empty.
fn number(figure: &str) -> Value {
    serde_json::from_str(figure).unwrap_or(Value::Null)
}

/// A text that a spreadsheet would calculate, as a text: hosts are what any client wrote.
fn inert(cell: &str) -> Cow<'_, str> {
    match cell.starts_with(['=', '+', '-', '@']) {
        true => format!("'{cell}").into(),
        false => cell.into(),
    }
}

/// A cell of CSV (RFC 4180 section 2).
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Columns two spaces apart; the first `numbers` to the right, others to the left. What stands last in
/// its line takes the room it needs.
fn aligned(lines: &[Vec<String>], numbers: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let is_last =
            |line: &Vec<String>| column >= numbers && column.saturating_add(1) == line.len();
        let cells = lines.iter().filter(|line| !is_last(line)).filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ if column < numbers => write!(text, "  {cell:>width$}"),
                _ => write!(text, "  {cell:<width$}"),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Way;
    use crate::sums::{Place, Sums};

    fn sums() -> Sums {
        let mut sums = Sums::default();
        sums.add(Place::Key(b"7545"), 17_946_774_999, b"", 1_249_257_600_000);
        sums.add(Place::Key(b"7545"), 0, b"", 1_249_257_601_000);
        sums.add(Place::Key(b"4802"), 5_000, b"paced", 1_249_343_999_999);
        sums.add(Place::Key(b"1\x1b"), 4_999, b"paced", 1_249_257_600_001);
        sums.add(Place::Key(b""), 1, b"", 1_249_257_600_001);
        sums.add(Place::Unknown, 10_000, b"", 1_249_257_600_001);
        sums
    }

    /// The `top` networks, of which one has a name.
    fn networks(top: usize) -> Table {
        let mut table = Table::new(Subject::Asn, &sums(), top);
        table.name_networks(|asn| (asn.get() == 7545).then(|| "TPG, the \"Internet\"".to_owned()));
        table
    }

    #[test]
    fn for_people() {
        let text = networks(3).text();
        let wanted = "\
2009-08-03 00:00:00Z to 2009-08-03 23:59:59Z

rank       MBytes  requests  % of overall  asn     name
1        17946.77         2        100.00  AS7545  TPG, the \"Internet\"
2            0.01         1          0.00  AS4802
3            0.00         1          0.00  AS1?
shown    17946.78         4        100.00  3 of 4
unknown      0.01         1          0.00  the log does not say
total    17946.79         6        100.00  all traffic

held back or refused by limits
limit  MBytes  requests
paced    0.01         2
";
        assert_eq!(text, wanted);
    }

    #[test]
    fn for_spreadsheets_and_programs() {
        let table = networks(10);
        let wanted = "\
rank,asn,bytes,mbytes,requests,percent,name\r
1,AS7545,17946774999,17946.77,2,100.00,\"TPG, the \"\"Internet\"\"\"\r
2,AS4802,5000,0.01,1,0.00,\r
3,AS1?,4999,0.00,1,0.00,\r
4,,1,0.00,1,0.00,\r
";
        assert_eq!(table.csv(), wanted);
        let document = table.json();
        let row = json!({
            "rank": 1, "asn": 7545, "name": "TPG, the \"Internet\"", "bytes": 17_946_774_999_u64,
            "requests": 2, "percent": 100.0,
        });
        assert_eq!(document["rows"][0], row);
        assert_eq!(document["rows"][3]["asn"], Value::Null);
        assert_eq!(document["limits"], json!({ "paced": { "bytes": 9_999, "requests": 2 } }));
        assert_eq!(
            (&document["first"], &document["keys"]),
            (&json!("2009-08-03 00:00:00Z"), &json!(4))
        );
        let nothing = Table::new(Subject::Node, &Sums::default(), 10);
        assert_eq!(nothing.csv(), "rank,node,bytes,mbytes,requests,percent\r\n");
        assert!(nothing.text().ends_with("total    0.00         0          0.00  all traffic\n"));
    }

    #[test]
    fn spreadsheets_calculate_nothing_that_a_client_wrote() {
        let mut sums = Sums::default();
        let hosts = ["=1+1", "+1", "-1", "@a", "a=1", "=a,\"b\""];
        for (host, bytes) in hosts.into_iter().zip((1..=6).rev()) {
            sums.add(Place::Key(host.as_bytes()), bytes, b"", 0);
        }
        let table = Table::new(Subject::Project, &sums, 10);
        let csv = table.csv();
        let cell = |line: &str| {
            let (_, rest) = line.split_once(',').unwrap();
            rest.rsplitn(5, ',').last().unwrap().to_owned()
        };
        let cells: Vec<_> = csv.lines().skip(1).map(cell).collect();
        assert_eq!(cells, ["'=1+1", "'+1", "'-1", "'@a", "a=1", "\"'=a,\"\"b\"\"\""]);
        assert_eq!(table.json()["rows"][0]["project"], "=1+1", "programs read what was written");
    }

    #[test]
    fn connections_fill_columns() {
        let mut sums = Sums::default();
        sums.add(Place::Key(b"a\0asia"), 1_000_000, b"", 0);
        sums.add(Place::Key(b"b\0world"), 10, b"", 0);
        let way = Way {
            acked_bytes: 0,
            sent_segments: 300,
            retransmitted_segments: 1,
            min_rtt_us: 64_000,
            delivery_rate: 12_500_000,
        };
        sums.add_way(b"a\0asia", &way);
        sums.add_way(b"c", &way);
        let text = Table::new(Subject::Missteered, &sums, 10).text();
        let wanted = "\
1970-01-01 00:00:00Z to 1970-01-01 00:00:00Z

rank   MBytes  requests  % of overall  connections  RTT ms  resent %  Mbit/s  node  pool
1        1.00         1        100.00            1   61.44      0.33  100.00  a     asia
2        0.00         1          0.00                                         b     world
shown    1.00         2        100.00                                         2 of 2
total    1.00         2        100.00                                         all traffic
";
        assert_eq!(text, wanted);
    }
}
