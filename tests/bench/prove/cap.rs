//! A cap of the node: whether what leaves to those it holds for is its rate over any ten seconds, and
//! shared evenly, and whether others are free of it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use locate::Evidence;
use locate::mmdb_write::Writer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::ask::{Ask, Known};
use crate::edge::{Client, Edge, Way};
use crate::objects::Object;

/// The network of the database, and an address in it; all others are of none.
const ASN: u32 = 64_500;
const NETWORK: &str = "127.77.0.0/16";
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 77, 0, 1));

const LARGE: usize = 64 << 20;
/// How often it is looked how much has come.
const SAMPLE: Duration = Duration::from_millis(100);
/// Over what time the rate must hold.
const WINDOW: Duration = Duration::from_secs(10);
/// Until all clients have begun.
const WARM_UP: Duration = Duration::from_secs(1);

/// The cap, and those it holds for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Cap {
    #[command(flatten)]
    pub(crate) edge: Edge,
    /// What the node map says, for clients of AS64500
    #[arg(long, default_value_t = 100_000_000)]
    pub(crate) bits_s: u64,
    /// How many clients there are, one load after the other
    #[arg(long, value_delimiter = ',', default_value = "1,1000")]
    pub(crate) clients: Vec<usize>,
    /// How they ask
    #[arg(long, value_enum, value_delimiter = ',', default_value = "h1,https,h2,h3")]
    pub(crate) ways: Vec<Way>,
    /// How long each load lasts
    #[arg(long, default_value_t = 12)]
    pub(crate) seconds: u32,
    /// By what part of it the rate may be missed over ten seconds
    #[arg(long, default_value_t = 0.02)]
    pub(crate) rate_within: f64,
    /// By what part of an even share that of any client may be missed
    #[arg(long, default_value_t = 0.10)]
    pub(crate) share_within: f64,
    /// How many times as fast as the cap somebody else must be
    #[arg(long, default_value_t = 3.0)]
    pub(crate) free_times: f64,
}

/// Where to write the database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Networks {
    pub(crate) file: PathBuf,
}

/// Writes a database in which the clients of the cap are in AS64500.
pub(crate) fn write_networks(networks: &Networks) -> Result<()> {
    let mut writer = Writer::new("Test", "clients of a cap", 0);
    let evidence = Evidence { asn: ASN.to_string().parse().ok(), country: None, continent: None };
    writer.insert(NETWORK.parse()?, &locate::testing::record(evidence, Some("CAPPED")));
    fs::write(&networks.file, writer.finish())
        .with_context(|| format!("cannot write {}", networks.file.display()))
}

/// Loads with each number of clients; an error when rate or shares did not hold, or one did not get
/// what it asked for.
pub(crate) async fn run(cap: &Cap) -> Result<()> {
    let known = cap.edge.know(vec![Object::new(LARGE, 1, 0)]).await?;
    let [large] = known.as_slice() else { return Err(anyhow!("one object")) };
    // All of it is there before anybody is held.
    let began = Instant::now();
    cap.edge.http1(Way::H1).await?.ask(&Ask::whole(large)).await?;
    let rate = LARGE as f64 * 8.0 / began.elapsed().as_secs_f64();
    println!("somebody else, cold: {:.0} Mbit/s", rate / 1e6);
    println!(
        "way    clients  Mbit/s over 10 s: least    most    off   share of each %: least    most"
    );
    let mut missed = Vec::new();
    for way in &cap.ways {
        for clients in &cap.clients {
            missed.extend(load(cap, *way, *clients, large).await?);
        }
    }
    let free = rate > cap.free_times * cap.bits_s as f64;
    ensure!(free, "somebody else had {:.0} Mbit/s", rate / 1e6);
    ensure!(missed.is_empty(), "{}", missed.join("; "));
    Ok(())
}

/// One load: what was missed.
async fn load(cap: &Cap, way: Way, clients: usize, large: &Arc<Known>) -> Result<Vec<String>> {
    let edge = Edge { from: Some(INSIDE), ..cap.edge.clone() };
    let mut running = JoinSet::new();
    let mut asks = Vec::new();
    for _ in 0..clients {
        let mut client = edge.client(way).await?;
        let ask = Arc::new(Ask::whole(large));
        asks.push(Arc::clone(&ask));
        running.spawn(async move { download(&mut client, &ask).await });
    }
    let came = || asks.iter().map(|ask| ask.came.load(Relaxed)).collect::<Vec<_>>();
    let began = Instant::now() + WARM_UP;
    let mut samples = Vec::new();
    let mut due = began;
    while due <= began + Duration::from_secs(cap.seconds.into()) {
        sleep_until(due).await;
        samples.push((began.elapsed(), came()));
        due += SAMPLE;
    }
    if let Some(ended) = running.try_join_next() {
        return Err(ended?.context("a download ended"));
    }
    let (rates, shares) = (rates(&samples), shares(&samples));
    let off = rates.iter().map(|rate| (rate / cap.bits_s as f64 - 1.0).abs()).fold(0.0, f64::max);
    let uneven = shares.iter().map(|share| (share - 1.0).abs()).fold(0.0, f64::max);
    println!(
        "{:<6} {clients:>7} {:>25.3} {:>7.3} {:>5.2}% {:>23.1} {:>7.1}",
        way.name(),
        least(&rates) / 1e6,
        most(&rates) / 1e6,
        off * 100.0,
        least(&shares) * 100.0,
        most(&shares) * 100.0
    );
    let mut missed = Vec::new();
    if off > cap.rate_within {
        missed.push(format!("{} {clients}: the rate is {:.2} % off", way.name(), off * 100.0));
    }
    if uneven > cap.share_within {
        missed.push(format!("{} {clients}: a share is {:.1} % off", way.name(), uneven * 100.0));
    }
    Ok(missed)
}

/// The same again and again, until something is wrong with it.
async fn download(client: &mut Client, ask: &Ask) -> anyhow::Error {
    loop {
        if let Err(fault) = client.ask(ask).await {
            return fault;
        }
    }
}

/// When it was looked, and what each client had then.
type Sample = (Duration, Vec<u64>);

/// Bits a second over each ten seconds, or over all there is where that is less.
fn rates(samples: &[Sample]) -> Vec<f64> {
    let mut rates = Vec::new();
    let Some((end, _)) = samples.last() else { return rates };
    for (number, (from, before)) in samples.iter().enumerate() {
        let to = (*from + WINDOW).min(*end);
        let until = samples[number..].iter().find(|(at, _)| *at >= to);
        let Some((until, after)) = until.filter(|_| number == 0 || *from + WINDOW <= *end) else {
            continue;
        };
        let bytes = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        rates.push(bytes as f64 * 8.0 / (*until - *from).as_secs_f64());
    }
    rates
}

/// What each client had of an even share, over all the time.
fn shares(samples: &[Sample]) -> Vec<f64> {
    let (Some((_, before)), Some((_, after))) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    let each: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let even = each.iter().sum::<u64>() as f64 / each.len() as f64;
    each.into_iter().map(|bytes| bytes as f64 / even).collect()
}

fn least(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}
