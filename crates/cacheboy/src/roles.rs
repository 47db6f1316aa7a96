//! Playing roles: from a config file to running shells.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use config::HostConfig;
use model::time::utc;
use nodemap::Finding;
use rt::file::{Lock, LockError};
use rt::follow::Following;
use rt::handover::{Handed, Predecessor, Sockets, Successor};
use rt::identity::Identity;
use rt::metrics::host as metric;
use rt::routes::RouteSource;
use rt::signals::{Pace, Signals};
use rt::tls::Certificates;
use rt::tls::fetch::Fetcher;
use rt::{Context, Phase, Shutdown, admin, notify};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

use crate::cli::RoleArgs;

mod ready;

/// How often a successor tries to lock `state_dir`, and after what time each.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Which roles to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    All,
    Edge,
    Dns,
    Health,
    Master,
    Bgp,
}

/// Every fault of a file at once, so that nobody has to start five times.
#[derive(Debug)]
pub(crate) struct Findings(Vec<Finding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "{n} fault{} to mend:", if n == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}

impl std::error::Error for Findings {}

/// The value, or all findings as one error.
pub(crate) fn accepted<T>(result: Result<T, Vec<Finding>>) -> Result<T> {
    Ok(result.map_err(Findings)?)
}

/// Reads a config file.
pub(crate) fn load(path: &Path) -> Result<HostConfig> {
    accepted(config::load(path))
}

/// Plays until a signal ends it, until a successor has taken over, or until a role fails.
pub(crate) async fn run(args: &RoleArgs, play: Play, handed: Handed) -> Result<ExitCode> {
    if args.end_with_parent && !handed.is_successor() {
        sys::process::end_with_parent().context("cannot tie this process to its parent")?;
    }
    rt::log::init();
    let signals = Signals::take().context("cannot listen for signals")?;
    let hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let sockets = handed.sockets.clone();
    let mut before = handed.dialogue().context("the process before cannot be talked to")?;
    let played = async {
        let config = only(load(&args.config)?, play, &args.config)?;
        let host = begin(&config, sockets, &mut before).await?;
        let (context, pace) = (host.clone(), pace(&config));
        tokio::spawn(signals.conduct(context.shutdown.clone(), pace));
        context.reopen.on_signal().context("cannot listen for SIGUSR1")?;
        let mut roles = start(config, &context).await?;
        let predecessor = Arc::new(Mutex::new(before.predecessor()));
        if roles.all_serve().await {
            context.sockets.drop_unclaimed();
            if let Err(error) = before.serving().await {
                tracing::warn!(%error, "the process before does not hear that this one serves");
            }
            notify::ready("serving");
            tokio::spawn(notify::watchdog(context.alive.clone(), context.shutdown.clone()));
            let hand_over = Predecessor::new(context.clone(), pace.deadline);
            show(&context, Arc::clone(&predecessor), hand_over.successor());
            tokio::spawn(hand_over.conduct(hang_up));
        }
        // Whoever waits for this process waits for those before it too.
        let those_before = async {
            tokio::select! {
                () = before.predecessor_gone() => {}
                () = context.shutdown.reached(Phase::Cut) => {}
            }
            *predecessor.lock().unwrap_or_else(PoisonError::into_inner) = None;
            Ok(())
        };
        tokio::try_join!(roles.until_all_end(&context.shutdown), those_before)?;
        anyhow::Ok(())
    };
    let outcome = played.await;
    match &outcome {
        // Several processes may write to one log while they hand over.
        Ok(()) => tracing::info!(pid = std::process::id(), "stopped"),
        Err(error) => before.failed(&format!("{error:#}")).await,
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// How the process leaves. Only an edge is steered to, and has transfers that are worth waiting for.
fn pace(config: &HostConfig) -> Pace {
    config.edge.as_ref().map_or_else(Pace::default, |edge| edge.pace)
}

/// What all roles stand on: sockets, what is on disk, certificates, the admin listener.
async fn begin(config: &HostConfig, sockets: Sockets, before: &mut Successor) -> Result<Context> {
    let files = sys::limits::raise_open_files().context("cannot raise the limit of open files")?;
    let is_successor = before.predecessor().is_some();
    if is_successor {
        ready::look(config, &sockets)?;
        sockets.put_back();
        before.take_over().await.context("what is on disk is not handed over")?;
    }
    let state_dir = config.host.state_dir.clone();
    make_state_dir(&state_dir)?;
    let own = lock(&state_dir, is_successor).await.context("state_dir cannot be used")?;
    let mut context = Context::new(config.host.name.clone(), state_dir);
    context.sockets = sockets;
    context.certificates = certificates(config, &context).context("TLS cannot be spoken")?;
    context.on_yield("state_dir", async move { drop(own) });
    if let Some(certificates) = context.certificates.clone() {
        let shown = certificates.clone();
        context.status.set("certificates", move || shown.status());
        let shown = certificates.clone();
        context.status.set("tls", move || shown.handshakes_status());
        let keeping = tokio::spawn(certificates.keep(context.shutdown.clone()));
        context.on_yield("certificates", async move {
            // It ends by itself, after what it was writing.
            let _ = keeping.await;
        });
    }
    if let Some(listen) = config.admin.clone() {
        admin::start(listen, &context)?;
    }
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    tracing::info!(host = %context.name, pid, version, open_files = files, "starting");
    Ok(context)
}

fn make_state_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| {
        format!("cannot make state_dir {}: is its parent writable?", path.display())
    })
}

/// Locks `state_dir`. A predecessor that was killed may not have lost it yet when that is seen.
async fn lock(state_dir: &Path, is_successor: bool) -> Result<Lock, LockError> {
    for _ in 0..if is_successor { LOCK_TRIES } else { 0 } {
        match rt::file::lock_folder(state_dir) {
            Err(LockError::InUse { .. }) => tokio::time::sleep(LOCK_PAUSE).await,
            result => return result,
        }
    }
    rt::file::lock_folder(state_dir)
}

/// The process itself in `/status`.
fn show(
    context: &Context,
    predecessor: Arc<Mutex<Option<u32>>>,
    successor: Arc<Mutex<Option<u32>>>,
) {
    let shutdown = context.shutdown.clone();
    let read = |pid: &Mutex<Option<u32>>| *pid.lock().unwrap_or_else(PoisonError::into_inner);
    context.status.set("process", move || {
        serde_json::json!({
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "phase": shutdown.phase().word(),
            "since": utc(shutdown.since_ms()),
            "leaving": shutdown.is_leaving(),
            "predecessor": read(&predecessor),
            "successor": read(&successor),
        })
    });
    let (shutdown, gauge) = (context.shutdown.clone(), context.metrics.gauge(&metric::PHASE, &[]));
    tokio::spawn(async move {
        for (number, phase) in (0..).zip(Phase::ALL) {
            shutdown.reached(phase).await;
            gauge.set(number);
        }
    });
}

/// The config with the sections of `play` alone.
fn only(mut config: HostConfig, play: Play, path: &Path) -> Result<HostConfig> {
    let keep = |role| play == Play::All || play == role;
    config.edge = config.edge.filter(|_| keep(Play::Edge));
    config.dns = config.dns.filter(|_| keep(Play::Dns));
    config.health = config.health.filter(|_| keep(Play::Health));
    config.master = config.master.filter(|_| keep(Play::Master));
    config.bgp = config.bgp.filter(|_| keep(Play::Bgp));
    let none = config.edge.is_none()
        && config.dns.is_none()
        && config.health.is_none()
        && config.master.is_none()
        && config.bgp.is_none();
    if none {
        let wanted = match play {
            Play::All => "no section of a role ([edge], [dns], [health], [master], [bgp])",
            Play::Edge => "no [edge] section",
            Play::Dns => "no [dns] section",
            Play::Health => "no [health] section",
            Play::Master => "no [master] section",
            Play::Bgp => "no [bgp] section",
        };
        bail!("{} has {wanted}: add it, or run another role", path.display());
    }
    let routes = config.location.routes.as_ref().map(|routes| &routes.source);
    let follows = config.edge.is_some() || config.dns.is_some();
    if follows && config.bgp.is_none() && routes == Some(&RouteSource::Local) {
        let remedy =
            "run all of its roles in one process (cacheboy run), or name its publish address";
        bail!("{}: [location] routes is \"local\", and no bgp role here: {remedy}", path.display());
    }
    Ok(config)
}

/// The certificates, where a listener of the roles that are played needs them.
fn certificates(config: &HostConfig, context: &Context) -> Result<Option<Certificates>> {
    if !config.http_listeners().any(|listen| listen.tls) {
        return Ok(None);
    }
    Ok(Some(Certificates::load(
        &config.certificates,
        config.fetches_certificates,
        &context.state_dir,
        &context.metrics,
    )?))
}

/// How many roles there are.
const ROLES_MAX: usize = 5;

/// The roles of a process at work.
struct Roles {
    tasks: JoinSet<(&'static str, Result<()>)>,
    /// One word from each that serves.
    serve: mpsc::Receiver<()>,
    first_error: Option<anyhow::Error>,
}

/// Starts each role that has a section as a task.
async fn start(config: HostConfig, context: &Context) -> Result<Roles> {
    let mut tasks = JoinSet::new();
    let (serves, serve) = mpsc::channel::<()>(ROLES_MAX);
    if let Some(params) = config.master {
        let (context, serves) = (context.clone(), serves.clone());
        tasks.spawn(role("master", async move {
            let bound = master::Master::bind(params, context)?;
            let _ = serves.try_send(());
            bound.serve().await;
            Ok(())
        }));
    }
    if let Some(params) = config.health {
        let (context, serves) = (context.clone(), serves.clone());
        tasks.spawn(role("health", async move {
            let shutdown = context.shutdown.clone();
            // It waits for file systems that may hang.
            let bound = tokio::select! {
                bound = health::Health::bind(params, context) => bound?,
                () = shutdown.reached(Phase::Draining) => return Ok(()),
            };
            let _ = serves.try_send(());
            bound.serve().await;
            Ok(())
        }));
    }
    if let Some(params) = config.bgp {
        let (context, serves) = (context.clone(), serves.clone());
        tasks.spawn(role("bgp", async move {
            let bound = bgp::Bgp::bind(params, context)?;
            let _ = serves.try_send(());
            Ok(bound.serve().await?)
        }));
    }
    if config.edge.is_none() && config.dns.is_none() {
        return Ok(Roles { tasks, serve, first_error: None });
    }
    let follow = config.follow.context("edge and dns need [follow] node_map")?;
    let following = rt::follow::start(follow, context);
    let watched = rt::steering::start(config.location, following.clone(), context).await?;
    if config.edge.is_some() && config.fetches_certificates {
        fetch_certificates(context, following.clone()).await?;
    }
    if let Some(params) = config.edge {
        let (context, watched, serves) = (context.clone(), watched.clone(), serves.clone());
        tasks.spawn(role("edge", async move {
            let bound = edge::bind(params, following, watched, context).await?;
            let _ = serves.try_send(());
            bound.serve().await;
            Ok(())
        }));
    }
    if let Some(params) = config.dns {
        let context = context.clone();
        tasks.spawn(role("dns", async move {
            let bound = dns::Dns::bind(params, watched, context).await?;
            let _ = serves.try_send(());
            Ok(bound.serve().await?)
        }));
    }
    Ok(Roles { tasks, serve, first_error: None })
}

/// Has the certificates of this node come from the publisher, where a listener needs any.
async fn fetch_certificates(context: &Context, following: Following) -> Result<()> {
    let Some(certificates) = context.certificates.clone() else { return Ok(()) };
    let state_dir = context.state_dir.clone();
    let identity = spawn_blocking(move || Identity::open(&state_dir)).await??;
    tracing::info!(identity = %identity.digest(), "fetching certificates as the node with this identity");
    let (node, identity) = (context.name.clone(), Arc::new(identity));
    let (state_dir, metrics) = (&context.state_dir, &context.metrics);
    let fetcher = Fetcher::new(certificates, identity, node, state_dir, following, metrics);
    let fetching = tokio::spawn(fetcher.run(context.shutdown.clone()));
    context.on_yield("fetched certificates", async move {
        // It ends by itself, after what it was writing.
        let _ = fetching.await;
    });
    Ok(())
}

async fn role(
    name: &'static str,
    work: impl Future<Output = Result<()>> + Send,
) -> (&'static str, Result<()>) {
    (name, work.await)
}

impl Roles {
    /// Waits until every role serves; false when one has ended before.
    async fn all_serve(&mut self) -> bool {
        for _ in 0..self.tasks.len() {
            tokio::select! {
                ended = self.tasks.join_next() => {
                    self.first_error = ended.and_then(ended_badly);
                    return false;
                }
                Some(()) = self.serve.recv() => {}
            }
        }
        true
    }

    /// Waits for every role; the first that fails ends the others.
    async fn until_all_end(mut self, shutdown: &Shutdown) -> Result<()> {
        if self.first_error.is_some() {
            shutdown.end_soon();
        }
        while let Some(ended) = self.tasks.join_next().await {
            if let Some(error) = ended_badly(ended) {
                shutdown.end_soon();
                self.first_error.get_or_insert(error);
            }
        }
        self.first_error.map_or(Ok(()), Err)
    }
}

/// Why a role cannot go on; nothing when it ended as it should.
fn ended_badly(ended: Result<(&'static str, Result<()>), JoinError>) -> Option<anyhow::Error> {
    let error = match ended {
        Ok((_, Ok(()))) => return None,
        Ok((role, Err(error))) => error.context(format!("{role} cannot go on")),
        Err(error) => anyhow::Error::new(error).context("a role ended by a defect"),
    };
    tracing::error!("{error:#}");
    Some(error)
}
