//! The document: JSON with `format: 1`, a text table and CSV.

use model::time::utc;
use model::{Asn, CountryCode, Family, Name};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::BIN_MS;
use crate::sums::Count;

/// The document version this code writes and reads.
pub const FORMAT: u32 = 1;
/// Word of the report in the document.
const REPORT: &str = "demand";

/// What was sent to whom in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// When the first of it ended, unix milliseconds.
    pub first_ms: u64,
    /// When the last of it ended.
    pub last_ms: u64,
    /// Project, country, AS and family each once.
    pub rows: Vec<Row>,
    /// What is in no row.
    pub others: Count,
    /// All of it.
    pub total: Count,
}

/// What was sent to one kind of client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The project.
    pub project: Name,
    /// Country of the clients; `None`: unknown.
    pub country: Option<CountryCode>,
    /// Their AS; `None`: unknown.
    pub asn: Option<Asn>,
    /// The family that they came by.
    pub family: Family,
    /// Bytes of content.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
    /// This row's part, by its bytes, of the rate that its project had in its country in the busiest five
    /// minutes, bits per second; `None` when nobody knows.
    #[serde(default)]
    pub peak_bits_per_s: Option<u64>,
}

/// Why a document was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not the JSON of this report.
    #[error("not what `cacheboy report demand --format json` prints")]
    Json(#[source] serde_json::Error),
    /// Another report.
    #[error(
        "a report by {0:?}, not by demand: make it with `cacheboy report demand --format json`"
    )]
    Other(String),
    /// Written by a newer Cacheboy.
    #[error("demand format {0} is newer than this program reads ({FORMAT}): upgrade this host")]
    Newer(u32),
}

impl Demand {
    /// Reads what [`Demand::json`] wrote; keys that nobody here knows are ignored.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(document: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            report: String,
        }
        #[derive(Deserialize)]
        struct Body {
            first_ms: u64,
            last_ms: u64,
            rows: Vec<Row>,
            others: Counted,
            total: Counted,
        }
        let head: Head = serde_json::from_slice(document).map_err(ReadError::Json)?;
        if head.report != REPORT {
            return Err(ReadError::Other(head.report.chars().take(40).collect()));
        }
        if head.format > FORMAT {
            return Err(ReadError::Newer(head.format));
        }
        let body: Body = serde_json::from_slice(document).map_err(ReadError::Json)?;
        let Body { first_ms, last_ms, rows, others, total } = body;
        Ok(Self { first_ms, last_ms, rows, others: others.into(), total: total.into() })
    }

    /// For programs: every row.
    pub fn json(&self) -> Value {
        json!({
            "format": FORMAT, "report": REPORT,
            "first": utc(self.first_ms), "last": utc(self.last_ms),
            "first_ms": self.first_ms, "last_ms": self.last_ms,
            "rows": self.rows,
            "others": Counted::from(self.others), "total": Counted::from(self.total),
        })
    }

    /// For people: the `top` largest rows.
    pub fn text(&self, top: usize) -> String {
        use std::fmt::Write as _;
        let mut out = format!("{} to {}\n\n", utc(self.first_ms), utc(self.last_ms));
        let mut line = |rate: &str, mbytes: String, requests: String, who: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{rate:>12} {mbytes:>14} {requests:>11}  {who}");
        };
        let word = |text: &str| text.to_owned();
        line("peak Mbit/s", word("MBytes"), word("requests"), word("family country asn project"));
        for row in self.rows.iter().take(top) {
            let rate = row.peak_bits_per_s.map_or(word("-"), |bits| cents(bits, 10_000));
            let country = row.country.map_or(word("-"), |country| country.to_string());
            let asn = row.asn.map_or(word("-"), |asn| asn.to_string());
            let who = format!("{} {country} {asn} {}", row.family, row.project);
            line(&rate, cents(row.bytes, 10_000), row.requests.to_string(), who);
        }
        let sum = |count: Count| (cents(count.bytes, 10_000), count.requests.to_string());
        let (mbytes, requests) = sum(self.others);
        line(
            "others",
            mbytes,
            requests,
            word("of no project or address, or too many to tell apart"),
        );
        let (mbytes, requests) = sum(self.total);
        line("total", mbytes, requests, format!("{} rows", self.rows.len()));
        out
    }

    /// For spreadsheets: every row, with a line of titles.
    pub fn csv(&self) -> String {
        let mut out = String::from("project,country,asn,family,bytes,requests,peak_bits_per_s\r\n");
        for row in &self.rows {
            let country = row.country.map(|country| country.to_string()).unwrap_or_default();
            let asn = row.asn.map(|asn| asn.get().to_string()).unwrap_or_default();
            let peak = row.peak_bits_per_s.map(|peak| peak.to_string()).unwrap_or_default();
            // Names, codes and numbers have nothing to quote.
            out.push_str(&format!(
                "{},{country},{asn},{},{},{},{peak}\r\n",
                row.project, row.family, row.bytes, row.requests
            ));
        }
        out
    }

    /// The rate to plan for, bits per second: the peak, or where nobody knows it the mean of the whole time.
    pub fn rate(&self, row: &Row) -> f64 {
        let span_ms = self.last_ms.saturating_sub(self.first_ms).max(BIN_MS);
        let mean = row.bytes as f64 * 8_000.0 / span_ms as f64;
        // A row whose own bytes are little may have less in its country's busiest minutes than on average.
        row.peak_bits_per_s.map_or(mean, |peak| mean.max(peak as f64))
    }
}

/// How a count is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Counted {
    bytes: u64,
    requests: u64,
}

impl From<Count> for Counted {
    fn from(Count { bytes, requests }: Count) -> Self {
        Self { bytes, requests }
    }
}

impl From<Counted> for Count {
    fn from(Counted { bytes, requests }: Counted) -> Self {
        Self { bytes, requests }
    }
}

/// A number of hundredths that are `cent` each, rounded down.
fn cents(value: u64, cent: u64) -> String {
    let number = value.checked_div(cent).unwrap_or_default();
    format!("{}.{:02}", number / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand() -> Demand {
        let row = |country: &str, asn, peak_bits_per_s| Row {
            project: "videolan".parse().unwrap(),
            country: country.parse().ok(),
            asn: Asn::new(asn),
            family: Family::V6,
            bytes: 45_000_000,
            requests: 9,
            peak_bits_per_s,
        };
        let count = Count { bytes: 90_000_001, requests: 19 };
        let rows = vec![row("AU", 7545, Some(2_500_000)), row("", 0, None)];
        let others = Count { bytes: 1, requests: 1 };
        Demand { first_ms: 1_000, last_ms: 601_000, rows, others, total: count }
    }

    #[test]
    fn what_is_written_reads_back() {
        let demand = demand();
        let document = serde_json::to_vec(&demand.json()).unwrap();
        assert_eq!(Demand::parse(&document).unwrap(), demand);
        let rates: Vec<f64> = demand.rows.iter().map(|row| demand.rate(row)).collect();
        assert_eq!(rates, [2_500_000.0, 600_000.0]);
    }

    #[test]
    fn what_is_something_else_is_refused() {
        for (document, expected) in [
            ("{", "not what `cacheboy report demand"),
            (r#"{"format":1,"report":"asn","rows":[]}"#, "a report by \"asn\", not by demand"),
            (r#"{"format":2,"report":"demand"}"#, "demand format 2 is newer"),
            (r#"{"format":1,"report":"demand"}"#, "not what `cacheboy report demand"),
        ] {
            let error = Demand::parse(document.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{document}: {error}");
        }
    }

    #[test]
    fn people_and_spreadsheets_get_the_same_rows() {
        let demand = demand();
        assert_eq!(
            demand.csv(),
            "project,country,asn,family,bytes,requests,peak_bits_per_s\r\n\
             videolan,AU,7545,v6,45000000,9,2500000\r\n\
             videolan,,,v6,45000000,9,\r\n"
        );
        let text = demand.text(1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "1970-01-01 00:00:01Z to 1970-01-01 00:10:01Z");
        assert_eq!(lines[3], "        2.50          45.00           9  v6 AU AS7545 videolan");
        assert_eq!(lines[5], "       total          90.00          19  2 rows");
        assert_eq!(lines.len(), 6);
    }
}
