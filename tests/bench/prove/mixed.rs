//! Mixed requests: whole, ranges, conditions, clients that go away, cold and warm, over every protocol,
//! and each byte of the answers looked at.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use crate::ask::{Ask, Asks};
use crate::books::{AllCame, Books, Came};
use crate::edge::{Edge, Ended, Shared, Way};
use crate::http1;
use crate::judge::Next;
use crate::objects;
use crate::restart::restart;

/// Requests that a client of `h1-pipelined` sends before it reads.
const PIPELINED: usize = 16;
/// Clients that share a connection of HTTP/2 or HTTP/3.
const SHARING: usize = 10;
/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Faults that are told in full.
const TOLD_MAX: usize = 20;

/// What is asked, whom, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Mixed {
    #[command(flatten)]
    pub(crate) edge: Edge,
    #[command(flatten)]
    pub(crate) books: Books,
    /// How to ask, one way after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "h1,h1-pipelined,https,h2c,h2,h3"
    )]
    pub(crate) ways: Vec<Way>,
    /// Requests of each way
    #[arg(short = 'n', long, default_value_t = 100_000)]
    pub(crate) requests: u64,
    /// Clients at the same time
    #[arg(short, long, default_value_t = 50)]
    pub(crate) clients: usize,
    /// Length of the large objects in MiB
    #[arg(long, default_value_t = 64)]
    pub(crate) large_mib: usize,
    /// The same seed asks the same
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// In each way the edge hands over to a successor so often: whoever is told to go, or was not
    /// answered, asks on another connection
    #[arg(long, default_value_t = 0, requires = "admin")]
    pub(crate) restarts: u32,
}

impl Mixed {
    /// Whether whoever met this goes on on another connection.
    fn goes_on(&self, fault: &anyhow::Error) -> bool {
        self.restarts > 0 && fault.is::<Ended>()
    }
}

/// What came of the requests of one way.
#[derive(Default)]
struct Tally {
    /// Requests that were begun.
    begun: AtomicU64,
    /// Answers that were what they must be.
    right: AtomicU64,
    /// Of these, those whose client went away before the end.
    left: AtomicU64,
    /// Times that a client went on on another connection.
    moved: AtomicU64,
    /// Bytes of their bodies.
    bytes: AtomicU64,
    came: Mutex<AllCame>,
    faults: Mutex<Vec<String>>,
}

/// Asks in every way; an error when any answer was wrong.
pub(crate) async fn run(mixed: &Mixed) -> Result<()> {
    let known = mixed.edge.know(objects::all(mixed.large_mib << 20)).await?;
    // Of each run other objects are cold.
    let mark = format!("{:x}", rt::clock::now().wall_ms);
    println!("way             requests   left early   moved       bytes   faults   seconds");
    let (mut faults, mut came) = (0, AllCame::new());
    for way in &mixed.ways {
        let asks = Asks::new(mixed.seed, format!("{mark}-{}", way.name()), &known);
        let began = rt::clock::now().mono_ns;
        let tally = beside_restarts(mixed, ask_all(mixed, *way, asks)).await?;
        let seconds = (rt::clock::now().mono_ns - began) as f64 / 1e9;
        let Tally { right, left, moved, bytes, faults: told, came: of_way, .. } = tally;
        came.extend(of_way.into_inner().unwrap_or_else(PoisonError::into_inner));
        let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!(
            "{:<13} {:>10} {:>12} {:>7} {:>11} {:>8} {seconds:>9.1}",
            way.name(),
            right.into_inner(),
            left.into_inner(),
            moved.into_inner(),
            bytes.into_inner(),
            told.len()
        );
        told.iter().take(TOLD_MAX).for_each(|fault| println!("  {fault}"));
        faults += told.len();
    }
    ensure!(faults == 0, "{faults} faults (the same draws again: --seed {})", mixed.seed);
    // Each process has metrics of its own.
    mixed.books.compare(&came, mixed.restarts == 0).await
}

/// Has the edge hand over meanwhile, as often as is wanted.
async fn beside_restarts<T>(mixed: &Mixed, asking: impl Future<Output = T>) -> Result<T> {
    let Some(admin) = mixed.books.admin.as_ref().filter(|_| mixed.restarts > 0) else {
        return Ok(asking.await);
    };
    let asking = async { (asking.await, Instant::now()) };
    let restarting = async { restart(admin, mixed.restarts).await.map(|()| Instant::now()) };
    let ((asked, over), restarted) = tokio::join!(asking, restarting);
    ensure!(restarted? <= over, "all was asked before the last hand-over: ask more (-n)");
    Ok(asked)
}

/// Lets all clients ask until enough was asked.
async fn ask_all(mixed: &Mixed, way: Way, asks: Asks) -> Tally {
    let tally = Arc::new(Tally::default());
    let asks = Arc::new(Mutex::new(asks));
    let mut clients = JoinSet::new();
    let mut shared = None;
    for number in 0..mixed.clients {
        if number % SHARING == 0 {
            shared = match mixed.edge.share(way).await {
                Ok(shared) => shared,
                Err(fault) => {
                    tally.fault(format!("cannot connect: {fault:#}"));
                    break;
                }
            };
        }
        let client = shared.clone().map_or(Client::Alone(None), Client::Sharing);
        let (mixed, tally, asks) = (mixed.clone(), Arc::clone(&tally), Arc::clone(&asks));
        clients.spawn(async move { client.work(way, &mixed, &asks, &tally).await });
    }
    while let Some(ended) = clients.join_next().await {
        if let Err(fault) = ended {
            tally.fault(fault.to_string());
        }
    }
    Arc::into_inner(tally).unwrap_or_default()
}

/// Whoever asks.
enum Client {
    /// Alone on its connection, which is made when it is needed.
    Alone(Option<http1::Connection>),
    Sharing(Shared),
}

impl Client {
    async fn work(mut self, way: Way, mixed: &Mixed, asks: &Mutex<Asks>, tally: &Tally) {
        let at_once = if way == Way::H1Pipelined { PIPELINED } else { 1 };
        loop {
            let batch: Vec<Ask> = {
                let mut asks = asks.lock().unwrap_or_else(PoisonError::into_inner);
                let wanted =
                    (0..at_once).take_while(|_| tally.begun.fetch_add(1, Relaxed) < mixed.requests);
                let may_be_whole = mixed.restarts > 0;
                wanted.map(|_| Ask { may_be_whole, ..asks.draw() }).collect()
            };
            if batch.is_empty() {
                return;
            }
            match &mut self {
                Self::Alone(connection) => {
                    in_row(connection, way, mixed, &batch, tally).await;
                }
                Self::Sharing(connection) => {
                    for ask in &batch {
                        let answer = loop {
                            let answer = timeout(PATIENCE, connection.ask(ask)).await;
                            if !matches!(&answer, Ok(Err(fault)) if mixed.goes_on(fault)) {
                                break answer;
                            }
                            tally.moved.fetch_add(1, Relaxed);
                            match mixed.edge.share(way).await {
                                Ok(Some(other)) => *connection = other,
                                _ => break answer,
                            }
                        };
                        tally.count(ask, mixed.restarts > 0, answer);
                    }
                }
            }
        }
    }
}

/// Sends requests at once and takes their answers; what stands behind one whose client goes away is sent
/// again on a new connection.
async fn in_row(
    connection: &mut Option<http1::Connection>,
    way: Way,
    mixed: &Mixed,
    batch: &[Ask],
    tally: &Tally,
) {
    let mut ahead = batch;
    while let [first, ..] = ahead {
        let mut open = match sent(connection.take(), way, mixed, ahead).await {
            Ok(open) => open,
            Err(fault) if mixed.goes_on(&fault) => {
                tally.moved.fetch_add(1, Relaxed);
                continue;
            }
            Err(fault) => {
                tally.count(first, false, Ok(Err(fault)));
                ahead = &ahead[1..];
                continue;
            }
        };
        loop {
            let [ask, rest @ ..] = ahead else {
                *connection = Some(open);
                break;
            };
            let answer = timeout(PATIENCE, open.take(ask)).await;
            if matches!(&answer, Ok(Err(fault)) if mixed.goes_on(fault)) {
                tally.moved.fetch_add(1, Relaxed);
                break;
            }
            ahead = rest;
            let stays = matches!(answer, Ok(Ok((_, Next::More))));
            let may_come_again = batch.len() > 1 || mixed.restarts > 0;
            tally.count(ask, may_come_again, answer.map(|taken| taken.map(|(bytes, _)| bytes)));
            if !stays {
                break;
            }
        }
    }
}

/// The connection, made when there is none, with the requests sent.
async fn sent(
    connection: Option<http1::Connection>,
    way: Way,
    mixed: &Mixed,
    asks: &[Ask],
) -> Result<http1::Connection> {
    let mut open = match connection {
        Some(open) => open,
        None => mixed.edge.http1(way).await?,
    };
    open.may_end = mixed.restarts > 0;
    open.send(asks).await?;
    Ok(open)
}

impl Tally {
    /// `again`: it may have been sent more than once.
    fn count(&self, ask: &Ask, again: bool, answer: Result<Result<u64>, Elapsed>) {
        match answer {
            Ok(Ok(bytes)) => {
                self.right.fetch_add(1, Relaxed);
                self.bytes.fetch_add(bytes, Relaxed);
                let left = ask.leave_after.is_some();
                if left {
                    self.left.fetch_add(1, Relaxed);
                }
                let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
                came.insert(ask.name.clone(), Came { bytes, left, again });
            }
            Ok(Err(fault)) => {
                self.fault(format!("{} {} {:?}: {fault:#}", ask.method, ask.target, ask.fields))
            }
            Err(_) => {
                self.fault(format!("{} {} {:?}: nothing came", ask.method, ask.target, ask.fields))
            }
        }
    }

    fn fault(&self, told: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}
