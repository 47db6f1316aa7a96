//! `docs/metrics.md` is printed from the tables. `UPDATE=1 cargo test -p rt` writes it anew.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::fmt::Write;
use std::path::Path;

use rt::metrics::{Kind, Metric, bgp, dns, edge, health, host, master, tls};

const HEAD: &str = "# Metrics\n\n\
    Every process shows these at `/metrics` of its `[admin]` listener, in Prometheus text format.\n\
    Names are stable. This page is printed from the tables in `crates/rt/src/metrics`.\n";

fn section(page: &mut String, title: &str, table: &[Metric]) {
    write!(page, "\n## {title}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
        .unwrap();
    for metric in table {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let (name, labels, help) = (metric.name, metric.labels.join(", "), metric.help);
        writeln!(page, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
}

#[test]
fn the_page_is_the_tables() {
    let mut page = HEAD.to_owned();
    section(&mut page, "Every host", host::ALL);
    section(&mut page, "Hosts that speak TLS", tls::ALL);
    section(&mut page, "dns", dns::ALL);
    section(&mut page, "edge", edge::ALL);
    section(&mut page, "health", health::ALL);
    section(&mut page, "master", master::ALL);
    section(&mut page, "bgp", bgp::ALL);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/metrics.md differs: UPDATE=1 cargo test -p rt writes it anew");
}
