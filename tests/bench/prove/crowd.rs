//! A crowd that does nothing: idle connections and slow readers beside a steady load of small requests.
//! What do the others notice of it, what does it cost, and does it get what it wants in the end?

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::ask::{Ask, Known};
use crate::edge::{Edge, Way};
use crate::http1::Resting;
use crate::load::{self, PATIENCE, Steady};
use crate::objects::Object;

/// Clients that make the steady load, and connections that are made at a time.
const CLIENTS: u32 = 20;
const SMALL: usize = 1 << 10;
const LARGE: usize = 64 << 20;
/// How long those that came last have for filling their buffers before they are a crowd that does nothing.
const SETTLE: Duration = Duration::from_secs(3);
/// A slow reader takes so much at a time, and pauses.
const SIP_BYTES: u64 = 2 << 10;
const SIP_PAUSE: Duration = Duration::from_secs(1);

/// How many do nothing, and what the others do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Crowd {
    #[command(flatten)]
    pub(crate) edge: Edge,
    /// Connections that have had one answer and stay
    #[arg(long, default_value_t = 14_000)]
    pub(crate) idle: u32,
    /// Clients that read 2 KiB a second of 64 MiB
    #[arg(long, default_value_t = 1_000)]
    pub(crate) slow: u32,
    /// Small requests a second of the others
    #[arg(long, default_value_t = 1_000)]
    pub(crate) rate: u32,
    /// How long each load lasts
    #[arg(long, default_value_t = 7)]
    pub(crate) seconds: u32,
    /// The p99.9 of the others may be so many times that beside nobody
    #[arg(long, default_value_t = 2.0)]
    pub(crate) within: f64,
}

/// Loads alone, beside idle connections, beside slow readers too; an error when any client did not
/// get what it asked for, or had to wait too much longer for it.
pub(crate) async fn run(crowd: &Crowd) -> Result<()> {
    let objects = vec![Object::new(SMALL, 1, 0), Object::new(LARGE, 1, 0)];
    let known = crowd.edge.know(objects).await?;
    let [small, large] = known.as_slice() else { return Err(anyhow!("two objects")) };
    // All of the large one is there before anybody sips of it.
    crowd.edge.http1(Way::H1).await?.ask(&Ask::whole(large)).await?;

    load::tell_columns();
    let Crowd { edge, rate, seconds, .. } = crowd;
    let steady = Steady { edge, small, clients: CLIENTS, rate: *rate, seconds: *seconds };
    let alone = steady.load("nobody").await?;
    let before = crowd.edge.rss_kib()?;
    let idle = connect_idle(crowd, small).await?;
    sleep(SETTLE).await;
    let with_idle = steady.load(&format!("{} idle", crowd.idle)).await?;
    let beside_idle = crowd.edge.rss_kib()?;
    let mut readers = read_slowly(edge, crowd.slow, large).await?;
    sleep(SETTLE).await;
    let everybody = format!("{} idle, {} slow readers", crowd.idle, crowd.slow);
    let with_all = steady.load(&everybody).await?;
    let beside_all = crowd.edge.rss_kib()?;

    tell_cost("idle connection", before, beside_idle, crowd.idle);
    tell_cost("slow reader", beside_idle, beside_all, crowd.slow);
    if let Some(ended) = readers.try_join_next() {
        ended??;
        bail!("a slow reader has read all of it already");
    }
    wake(idle, small).await?;
    println!("every idle connection answered again, every slow reader has right bytes so far");
    let bound_ms = load::bound(alone, crowd.within);
    let worst_ms = with_idle.max(with_all).as_secs_f64() * 1e3;
    println!("p99.9 is {worst_ms:.2} ms beside them at most, {bound_ms:.2} ms are due");
    ensure!(worst_ms <= bound_ms, "others waited: p99.9 is {worst_ms:.2} ms beside the crowd");
    Ok(())
}

fn tell_cost(what: &str, before: Option<u64>, after: Option<u64>, count: u32) {
    if let (Some(before), Some(after)) = (before, after) {
        let each = (after as f64 - before as f64) / f64::from(count.max(1));
        println!("memory of each {what}: {each:.1} KiB");
    }
}

/// Connections that had an answer and are quiet.
async fn connect_idle(crowd: &Crowd, small: &Arc<Known>) -> Result<Vec<Resting>> {
    let mut connecting = JoinSet::new();
    for number in 0..CLIENTS {
        let (crowd, small) = (crowd.clone(), Arc::clone(small));
        connecting.spawn(async move {
            let ask = Ask::whole(&small);
            let mut idle = Vec::new();
            for _ in (number..crowd.idle).step_by(CLIENTS as usize) {
                let mut connection = crowd.edge.http1(Way::H1).await?;
                timeout(PATIENCE, connection.ask(&ask)).await??;
                idle.push(connection.rest());
            }
            anyhow::Ok(idle)
        });
    }
    let mut idle = Vec::new();
    while let Some(some) = connecting.join_next().await {
        idle.extend(some??);
    }
    Ok(idle)
}

/// Readers that take little at a time, one after the other so that the client is never busy with all
/// of them at once; one that ends found a fault.
pub(crate) async fn read_slowly(
    edge: &Edge,
    count: u32,
    large: &Arc<Known>,
) -> Result<JoinSet<Result<()>>> {
    let mut readers = JoinSet::new();
    let began = Instant::now();
    for number in 0..count {
        let mut connection = edge.narrow().await?;
        let large = Arc::clone(large);
        readers.spawn(async move {
            let ask = Ask::whole(&large);
            connection.send(std::slice::from_ref(&ask)).await?;
            let mut judge = connection.begin(&ask).await?;
            let mut due = began + SIP_PAUSE * number / count;
            while judge.taken() < judge.length() {
                due += SIP_PAUSE;
                sleep_until(due).await;
                connection.more(&mut judge, SIP_BYTES).await?;
            }
            Ok(())
        });
    }
    Ok(readers)
}

/// Every idle connection is still one: it asks again.
async fn wake(idle: Vec<Resting>, small: &Arc<Known>) -> Result<()> {
    let (all, mut lost) = (idle.len(), 0);
    let ask = Ask::whole(small);
    for resting in idle {
        if timeout(PATIENCE, resting.wake().ask(&ask)).await?.is_err() {
            lost += 1;
        }
    }
    ensure!(lost == 0, "{lost} of {all} idle connections were closed");
    Ok(())
}
