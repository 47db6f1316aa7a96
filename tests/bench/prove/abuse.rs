//! Abuse: do ordinary clients notice it, does memory stay within its bound, and is each connection that
//! the edge ends counted, and ended as its manual says?

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::admin::Metrics;
use crate::ask::{Ask, Known};
use crate::attack::{Abuse, Plan};
use crate::crowd::read_slowly;
use crate::edge::{Edge, Way};
use crate::load::{self, Steady};
use crate::objects::Object;

const SMALL: usize = 1 << 10;
const LARGE: usize = 64 << 20;
/// What others on this machine do shows in a p99.9 too: a load that is over the bound is made again, so
/// often in all. What an attack does stays.
const TRIES: u32 = 3;
/// How long attackers have for coming before anything is measured.
const SETTLE: Duration = Duration::from_secs(1);
/// After the last one was ended the metric may have to catch up.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Who does what, and what may come of it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Abused {
    #[command(flatten)]
    pub(crate) edge: Edge,
    /// Its admin socket
    #[arg(long)]
    pub(crate) admin: PathBuf,
    /// What is done, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "slow-reads,rapid-reset,continuation,large-heads,zero-window,idle,slow-heads"
    )]
    pub(crate) kinds: Vec<Abuse>,
    /// One in so many of the attackers
    #[arg(long, default_value_t = 1)]
    pub(crate) one_in: u32,
    /// Ordinary clients, and what they ask for a second
    #[arg(long, default_value_t = 50)]
    pub(crate) clients: u32,
    #[arg(long, default_value_t = 1_000)]
    pub(crate) rate: u32,
    /// How long each load lasts
    #[arg(long, default_value_t = 7)]
    pub(crate) seconds: u32,
    /// The p99.9 of ordinary clients may be so many times that beside nobody
    #[arg(long, default_value_t = 2.0)]
    pub(crate) within: f64,
    /// What the edge may have of memory: what it holds of objects and of fills by default
    #[arg(long, default_value_t = 512)]
    pub(crate) rss_mib_max: u64,
}

/// What attackers saw.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    begun: AtomicU64,
    /// As the manual says.
    ended: AtomicU64,
}

/// Loads beside nobody and beside each kind of abuse; an error when ordinary clients noticed too much,
/// memory grew too much, or what the edge counts is not what attackers saw.
pub(crate) async fn run(abused: &Abused) -> Result<()> {
    let Abused { edge, clients, rate, seconds, .. } = abused;
    let known = edge.know(vec![Object::new(SMALL, 1, 0), Object::new(LARGE, 1, 0)]).await?;
    let [small, large] = known.as_slice() else { return Err(anyhow!("two objects")) };
    edge.http1(Way::H1).await?.ask(&Ask::whole(large)).await?;
    load::tell_columns();
    let steady = Steady { edge, small, clients: *clients, rate: *rate, seconds: *seconds };
    let alone = steady.load("nobody").await?;
    let bound_ms = load::bound(alone, abused.within);
    let mut faults = Vec::new();
    for kind in &abused.kinds {
        let name = kind.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let before = edge.rss_kib()?.unwrap_or_default();
        let beside = Beside { abused, steady: &steady, large, bound_ms };
        let took = beside.run(*kind, &name, &mut faults).await?;
        let (took_ms, after) = (took.as_secs_f64() * 1e3, edge.rss_kib()?.unwrap_or_default());
        if took_ms > bound_ms {
            faults.push(format!("{name}: p99.9 is {took_ms:.2} ms, {bound_ms:.2} are due"));
        }
        if before.max(after) > abused.rss_mib_max << 10 {
            faults.push(format!("{name}: {} MiB of memory", before.max(after) >> 10));
        }
    }
    println!("p99.9 of others: {bound_ms:.2} ms are due");
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

/// What every kind of abuse is held against.
struct Beside<'a> {
    abused: &'a Abused,
    steady: &'a Steady<'a>,
    large: &'a Arc<Known>,
    bound_ms: f64,
}

impl Beside<'_> {
    /// Loads beside one kind of abuse: the p99.9.
    async fn run(&self, kind: Abuse, name: &str, faults: &mut Vec<String>) -> Result<Duration> {
        let Self { abused, large, .. } = self;
        let plan = kind.plan();
        let count = (plan.connections / abused.one_in).max(1);
        let counted = async || Metrics::of(&abused.admin).await.map(|all| all.total(plan.counted));
        let (before, seen) = (counted().await?, Arc::<Seen>::default());
        let mut attackers = match kind {
            Abuse::SlowReads => read_slowly(&abused.edge, count, large).await?,
            _ => attack(abused, kind, &plan, count, large, &seen),
        };
        sleep(SETTLE).await;
        let load = async || self.steady.load(&format!("{name}, {count}")).await;
        let is_over = |took: &Duration| took.as_secs_f64() * 1e3 > self.bound_ms;
        let mut took = load().await?;
        let begun = || seen.begun.load(Relaxed);
        let ended = || seen.ended.load(Relaxed);
        // Of those who are not ended in any case, some might be for other reasons later.
        let early = (ended(), counted().await? - before);
        for _ in 1..TRIES {
            if is_over(&took) {
                took = took.min(load().await?);
            }
        }
        seen.stop.store(true, Relaxed);
        while kind.is_ended()
            && let Some(ended) = attackers.join_next().await
        {
            ended??;
        }
        while let Some(ended) = attackers.try_join_next() {
            ended??;
        }
        let mut counts = early;
        if kind.is_ended() {
            let until = Instant::now() + CATCH_UP;
            counts = (ended(), counted().await? - before);
            while counts.0 != counts.1 && Instant::now() < until {
                sleep(SETTLE / 10).await;
                counts = (ended(), counted().await? - before);
            }
        }
        let (begun, (ended, counted)) = (begun(), counts);
        println!("  {begun} connections, {ended} ended as documented, {counted} counted");
        if ended != counted || kind.is_ended() && ended != begun {
            faults.push(format!("{name}: of {begun} {ended} were ended, {counted} counted"));
        }
        Ok(took)
    }
}

/// Attackers, each with a connection at a time, until they are stopped.
fn attack(
    abused: &Abused,
    kind: Abuse,
    plan: &Plan,
    count: u32,
    large: &Arc<Known>,
    seen: &Arc<Seen>,
) -> JoinSet<Result<()>> {
    let mut attackers = JoinSet::new();
    for number in 0..count {
        let (edge, seen) = (Edge::clone(&abused.edge), Arc::clone(seen));
        let (large, pause) = (format!("/{}", large.object.name), plan.again_after);
        attackers.spawn(async move {
            // Not all in one moment.
            sleep(pause.unwrap_or(SETTLE) * number / count).await;
            while !seen.stop.load(Relaxed) {
                seen.begun.fetch_add(1, Relaxed);
                kind.once(&edge, &large).await?;
                seen.ended.fetch_add(1, Relaxed);
                let Some(pause) = pause else { break };
                sleep(pause).await;
            }
            Ok(())
        });
    }
    attackers
}
