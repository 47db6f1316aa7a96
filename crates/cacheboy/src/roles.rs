//! Playing roles: from a config file to running shells.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use config::HostConfig;
use nodemap::Finding;
use rt::signals::{Pace, Signals};
use rt::tls::Certificates;
use rt::{Context, Shutdown, admin};
use tokio::task::JoinSet;

use crate::cli::RoleArgs;

/// Which roles to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    All,
    Edge,
    Dns,
    Health,
    Master,
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

/// Plays until a signal ends it, or until a role fails.
pub(crate) async fn run(args: &RoleArgs, play: Play) -> Result<ExitCode> {
    if args.end_with_parent {
        sys::process::end_with_parent().context("cannot tie this process to its parent")?;
    }
    rt::log::init();
    let signals = Signals::take().context("cannot listen for signals")?;
    let config = load(&args.config)?;
    let config = only(config, play, &args.config)?;
    let state_dir = config.host.state_dir.clone();
    std::fs::create_dir_all(&state_dir).with_context(|| {
        format!("cannot make state_dir {}: is its parent writable?", state_dir.display())
    })?;
    let _own = rt::file::lock_folder(&state_dir).context("state_dir cannot be used")?;
    let files = sys::limits::raise_open_files().context("cannot raise the limit of open files")?;
    let mut context = Context::new(config.host.name.clone(), state_dir);
    context.certificates = certificates(&config, &context).context("TLS cannot be spoken")?;
    let shutdown = context.shutdown.clone();
    // Only an edge is steered to, and has transfers that are worth waiting for.
    let pace = config.edge.as_ref().map_or_else(Pace::default, |edge| edge.pace);
    tokio::spawn(signals.conduct(shutdown.clone(), pace));
    if let Some(certificates) = context.certificates.clone() {
        let shown = certificates.clone();
        context.status.set("certificates", move || shown.status());
        tokio::spawn(certificates.keep(shutdown.clone()));
    }
    if let Some(listen) = config.admin.clone() {
        admin::start(listen, context.metrics.clone(), context.status.clone(), shutdown.clone())
            .await?;
    }
    tracing::info!(host = %context.name, version = env!("CARGO_PKG_VERSION"), open_files = files, "starting");
    let outcome = until_all_end(start(config, &context)?, &shutdown).await;
    tracing::info!("stopped");
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The config with the sections of `play` alone.
fn only(mut config: HostConfig, play: Play, path: &Path) -> Result<HostConfig> {
    let keep = |role| play == Play::All || play == role;
    config.edge = config.edge.filter(|_| keep(Play::Edge));
    config.dns = config.dns.filter(|_| keep(Play::Dns));
    config.health = config.health.filter(|_| keep(Play::Health));
    config.master = config.master.filter(|_| keep(Play::Master));
    let none = config.edge.is_none()
        && config.dns.is_none()
        && config.health.is_none()
        && config.master.is_none();
    if none {
        let wanted = match play {
            Play::All => "no section of a role ([edge], [dns], [health], [master])",
            Play::Edge => "no [edge] section",
            Play::Dns => "no [dns] section",
            Play::Health => "no [health] section",
            Play::Master => "no [master] section",
        };
        bail!("{} has {wanted}: add it, or run another role", path.display());
    }
    Ok(config)
}

/// The certificates, where a listener of the roles that are played needs them.
fn certificates(config: &HostConfig, context: &Context) -> Result<Option<Certificates>> {
    let listeners = config.edge.iter().flat_map(|edge| &edge.listen);
    let mut listeners = listeners.chain(config.master.iter().flat_map(|master| &master.listen));
    if !listeners.any(|listen| listen.tls) {
        return Ok(None);
    }
    Ok(Some(Certificates::load(&config.certificates, &context.state_dir, &context.metrics)?))
}

type Roles = JoinSet<(&'static str, Result<()>)>;

/// Starts each role that has a section as a task.
fn start(config: HostConfig, context: &Context) -> Result<Roles> {
    let mut roles = Roles::new();
    if let Some(params) = config.master {
        let context = context.clone();
        roles.spawn(async { ("master", master::run(params, context).await.map_err(Into::into)) });
    }
    if let Some(params) = config.health {
        let context = context.clone();
        roles.spawn(async { ("health", health::run(params, context).await.map_err(Into::into)) });
    }
    if config.edge.is_none() && config.dns.is_none() {
        return Ok(roles);
    }
    let follow = config.follow.context("edge and dns need [follow] node_map")?;
    let following = rt::follow::start(follow, context);
    if let Some(params) = config.edge {
        let (context, following) = (context.clone(), following.clone());
        roles.spawn(async {
            ("edge", edge::run(params, following, context).await.map_err(Into::into))
        });
    }
    if let Some(params) = config.dns {
        let (context, location) = (context.clone(), config.location);
        roles.spawn(async {
            ("dns", dns::run(params, location, following, context).await.map_err(Into::into))
        });
    }
    Ok(roles)
}

/// Waits for every role; the first that fails ends the others.
async fn until_all_end(mut roles: Roles, shutdown: &Shutdown) -> Result<()> {
    let mut first_error = None;
    while let Some(ended) = roles.join_next().await {
        let error = match ended {
            Ok((_, Ok(()))) => continue,
            Ok((role, Err(error))) => error.context(format!("{role} cannot go on")),
            Err(error) => anyhow::Error::new(error).context("a role ended by a defect"),
        };
        tracing::error!("{error:#}");
        shutdown.end_soon();
        first_error.get_or_insert(error);
    }
    first_error.map_or(Ok(()), Err)
}
