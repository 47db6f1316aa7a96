//! A steady load of small requests, as ordinary clients make it, whatever others do meanwhile.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{Ask, Known};
use crate::edge::{Edge, Way};

/// An answer that takes longer never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Less than a time slice of the scheduler says nothing when client and edge share two cores.
const UNHEARD: Duration = Duration::from_millis(2);

/// Clients that ask for the same small object again and again.
pub(crate) struct Steady<'a> {
    pub(crate) edge: &'a Edge,
    pub(crate) small: &'a Arc<Known>,
    pub(crate) clients: u32,
    /// Requests a second of all of them.
    pub(crate) rate: u32,
    pub(crate) seconds: u32,
}

/// The line above what [`Steady::load`] prints.
pub(crate) fn tell_columns() {
    println!(
        "beside                         p50 ms   p99 ms  p99.9 ms   max ms  first ms    RSS MiB   all TCP MiB"
    );
}

/// What the p99.9 may be beside others: so many times that beside nobody.
pub(crate) fn bound(alone: Duration, times: f64) -> f64 {
    alone.max(UNHEARD).as_secs_f64() * 1e3 * times
}

impl Steady<'_> {
    /// Asks beside whatever there is, prints how long answers took, and returns the p99.9. First answers
    /// do not count there: whoever comes when all places are taken waits for one. The longest such wait is
    /// printed.
    pub(crate) async fn load(&self, beside: &str) -> Result<Duration> {
        // Beside 15,000 connections the kernel takes a millisecond to find a free port for one more: that is
        // not the edge's.
        let (mut connections, mut first) = (Vec::new(), Duration::ZERO);
        for _ in 0..self.clients {
            let mut connection = self.edge.http1(Way::H1).await?;
            let sent = Instant::now();
            timeout(PATIENCE, connection.ask(&Ask::whole(self.small))).await??;
            first = first.max(sent.elapsed());
            connections.push(connection);
        }
        let began = Instant::now();
        let mut clients = JoinSet::new();
        for (number, mut connection) in (0..self.clients).zip(connections) {
            let turns = (number..self.rate * self.seconds).step_by(self.clients as usize);
            let (rate, small) = (self.rate, Arc::clone(self.small));
            clients.spawn(async move {
                let ask = Ask::whole(&small);
                let mut took = Vec::new();
                for turn in turns {
                    let due = began + Duration::from_secs(1) * turn / rate;
                    // From when it should have been sent if the client is late because of the answer
                    // before; the lateness of its own alarm clock is not the edge's.
                    let since = if Instant::now() < due {
                        sleep_until(due).await;
                        Instant::now()
                    } else {
                        due
                    };
                    timeout(PATIENCE, connection.ask(&ask)).await??;
                    took.push(since.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut took = Vec::new();
        while let Some(client) = clients.join_next().await {
            took.extend(client??);
        }
        took.sort_unstable();
        let at = |part: f64| {
            let place = ((took.len() as f64 * part) as usize).min(took.len() - 1);
            took[place]
        };
        let at_ms = |part: f64| at(part).as_secs_f64() * 1e3;
        let rss = self.edge.rss_kib()?.map_or(f64::NAN, |kib| kib as f64 / 1024.0);
        println!(
            "{beside:<28} {:>8.2} {:>8.2} {:>9.2} {:>8.2} {:>9.2} {rss:>10.1} {:>13.0}",
            at_ms(0.5),
            at_ms(0.99),
            at_ms(0.999),
            at_ms(1.0),
            first.as_secs_f64() * 1e3,
            tcp_mib()?
        );
        Ok(at(0.999))
    }
}

/// What the kernel holds for TCP, both ends of everything.
fn tcp_mib() -> Result<f64> {
    let text = fs::read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let pages = line.and_then(|rest| rest.rsplit_once("mem ")).context("no memory of TCP")?.1;
    Ok(pages.trim().parse::<f64>()? * 4096.0 / f64::from(1 << 20))
}
