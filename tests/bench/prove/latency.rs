//! Load and latency, in the sense of the tests of bufferbloat: what does a small request wait for while
//! downloads fill a slow link, and how evenly do these come?
//!
//! What the link itself makes a packet wait shows in the same request on a connection of its own, which
//! shares nothing with the downloads but the link. What it takes longer beside bulk on one connection is
//! what the edge had ahead of it: that must be less than one round trip.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::ask::{Ask, Known};
use crate::edge::{Client, Edge, Way};
use crate::link::{self, Link};
use crate::objects::Object;

const SMALL: usize = 1 << 10;
const LARGE: usize = 64 << 20;
/// Downloads run so long before anything is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// The same request on a connection of its own comes so long after it.
const APART: Duration = Duration::from_millis(500);
/// How often bytes are counted.
const SAMPLE: Duration = Duration::from_millis(100);

/// The link, and what is loaded over it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    edge: Edge,
    /// How to ask: HTTP/1.1 on a connection for each download, HTTP/2 on one for all
    #[arg(long, value_enum, value_delimiter = ',', default_value = "h1,h2")]
    ways: Vec<Way>,
    /// Downloads at the same time
    #[arg(long, value_delimiter = ',', default_value = "0,1,4,32")]
    downloads: Vec<usize>,
    /// Small requests, one a second
    #[arg(long, default_value_t = 20)]
    seconds: usize,
    /// Bits a second of the link
    #[arg(long, default_value_t = 20_000_000)]
    bits_s: u64,
    /// Bytes that wait before it
    #[arg(long, default_value_t = 64 << 10)]
    queue_bytes: usize,
    /// Milliseconds that a byte travels, each way
    #[arg(long, default_value_t = 40)]
    delay_ms: u64,
}

/// Loads in every way with every number of downloads, and prints a line for each; an error when a small
/// request waited for a round trip longer than it would have on a connection of its own.
pub(crate) async fn run(latency: &Latency) -> Result<()> {
    let objects = vec![Object::new(SMALL, 1, 0), Object::new(LARGE, 1, 0)];
    let known = latency.edge.know(objects).await?;
    let [small, large] = known.as_slice() else { return Err(anyhow!("two objects")) };
    latency.edge.http1(Way::H1).await?.ask(&Ask::whole(large)).await?;
    let edge = latency.behind_link().await?;
    println!(
        "       down-    small request, ms                all downloads            each has, % of its share"
    );
    println!(
        "way    loads   median     p95     max   apart   Mbit/s  variation  empty     least    most"
    );
    let mut longest = 0.0_f64;
    for way in &latency.ways {
        for downloads in &latency.downloads {
            longest = longest.max(load(latency, &edge, *way, *downloads, small, large).await?);
        }
    }
    let round_trip = 2 * latency.delay_ms;
    println!(
        "at most {longest:.0} ms more than on a connection of its own, {round_trip} ms are due"
    );
    ensure!(longest <= round_trip as f64, "bulk made a small answer wait for {longest:.0} ms");
    Ok(())
}

impl Latency {
    /// The edge as it is seen over the link.
    async fn behind_link(&self) -> Result<Edge> {
        let delay = Duration::from_millis(self.delay_ms);
        let link = Link { bits_s: self.bits_s, queue_bytes: self.queue_bytes, delay };
        let mut edge = self.edge.clone();
        edge.http = link::start(link, edge.http).await?;
        if let Some(https) = edge.https {
            edge.https = Some(link::start(link, https).await?);
        }
        Ok(edge)
    }
}

/// One load; by how many milliseconds the median is longer than on a connection of its own.
async fn load(
    latency: &Latency,
    edge: &Edge,
    way: Way,
    downloads: usize,
    small: &Arc<Known>,
    large: &Arc<Known>,
) -> Result<f64> {
    if matches!(way, Way::H1Pipelined | Way::H3) {
        bail!("{} is not loaded here", way.name());
    }
    let shared = edge.share(way).await?;
    let mut running = JoinSet::new();
    let mut asks = Vec::new();
    for _ in 0..downloads {
        let mut client = edge.client_on(shared.as_ref(), way).await?;
        let ask = Arc::new(Ask::whole(large));
        asks.push(Arc::clone(&ask));
        running.spawn(async move {
            loop {
                if let Err(fault) = client.ask(&ask).await {
                    return fault;
                }
            }
        });
    }
    let came = || asks.iter().map(|ask| ask.came.load(Relaxed)).collect::<Vec<_>>();
    let mut client = edge.client_on(shared.as_ref(), way).await?;
    let mut apart = edge.client(if way == Way::H2 { Way::Https } else { Way::H1 }).await?;
    sleep(WARM_UP).await;
    let before = came();
    let sampled = async {
        let mut samples = Vec::new();
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            let at = ticks.tick().await;
            let bytes: u64 = came().iter().sum();
            if let Some((since, from)) = last.replace((at, bytes)) {
                let seconds = at.duration_since(since).as_secs_f64();
                samples.push((bytes - from) as f64 * 8e-6 / seconds);
            }
            if samples.len() >= latency.seconds * 10 {
                return samples;
            }
        }
    };
    let asked_apart = async {
        sleep(APART).await;
        ask_each_second(latency.seconds, &mut apart, small).await
    };
    let asked = ask_each_second(latency.seconds, &mut client, small);
    let (took, took_apart, samples) = tokio::join!(asked, asked_apart, sampled);
    let (took, took_apart) = (took?, took_apart?);
    if let Some(ended) = running.try_join_next() {
        return Err(ended?.context("a download ended"));
    }
    let each: Vec<u64> = came().iter().zip(&before).map(|(after, before)| after - before).collect();
    tell(way, &took, &took_apart, &samples, &each);
    Ok(at(&took, 0.5) - at(&took_apart, 0.5))
}

/// Of sorted figures the one that so large a part of them is below.
fn at(took: &[f64], part: f64) -> f64 {
    took[((took.len() as f64 * part) as usize).min(took.len() - 1)]
}

/// Small requests, one a second; how many milliseconds each took, the quick ones first.
async fn ask_each_second(
    count: usize,
    client: &mut Client,
    small: &Arc<Known>,
) -> Result<Vec<f64>> {
    let ask = Ask::whole(small);
    let mut took = Vec::new();
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..count {
        ticks.tick().await;
        let began = Instant::now();
        client.ask(&ask).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Prints a line. Variation is the standard deviation of the rate in each tenth of a second, as a part of
/// its mean; empty are the tenths in which nothing came; apart is the median on a connection of its own.
fn tell(way: Way, took: &[f64], apart: &[f64], samples: &[f64], each: &[u64]) {
    print!(
        "{:<6} {:>5} {:>8.0} {:>7.0} {:>7.0} {:>7.0}",
        way.name(),
        each.len(),
        at(took, 0.5),
        at(took, 0.95),
        at(took, 1.0),
        at(apart, 0.5)
    );
    let (Some(least), Some(most)) = (each.iter().min(), each.iter().max()) else {
        println!();
        return;
    };
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let squares = samples.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
    let variation = (squares / samples.len() as f64).sqrt() / mean;
    let empty = samples.iter().filter(|rate| **rate == 0.0).count();
    let share = each.iter().sum::<u64>() as f64 / each.len() as f64 / 100.0;
    println!(
        " {mean:>8.2} {variation:>10.2} {empty:>6} {:>9.0} {:>7.0}",
        *least as f64 / share,
        *most as f64 / share
    );
}
