//! The demo network as running processes: started from their config files, watched until they
//! serve, killed and started again by the check, and always stopped.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::HeaderMap;
use nodemap::NodeMap;
use rt::client::{Get, Reply};
use rt::handover::Sockets;
use tokio::process::{Child, Command};

use super::dig;
use super::layout::{HOSTS, Host, Layout, NAME, Role, host_named};

/// How long the network may take until it serves.
const READY: Duration = Duration::from_secs(20);
/// How long a process may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(5);
/// Pause between looks at something that is about to change.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Running processes, in the order of [`HOSTS`].
pub(crate) struct Network {
    pub(crate) layout: Layout,
    running: Vec<(&'static Host, Child)>,
}

impl Network {
    /// Starts every process; `ready` says when they serve.
    pub(crate) fn start(layout: Layout) -> Result<Self> {
        let mut network = Self { layout, running: Vec::new() };
        for host in &HOSTS {
            network.start_host(host)?;
        }
        Ok(network)
    }

    /// Starts one process that is not running.
    pub(crate) fn start_host(&mut self, host: &'static Host) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.layout.log(host));
        let log =
            log.with_context(|| format!("cannot write {}", self.layout.log(host).display()))?;
        let program = std::env::current_exe().context("cannot find this program on disk")?;
        let child = Command::new(program)
            .args([host.role.word(), "--end-with-parent", "--config"])
            .arg(self.layout.config(host))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot write the log twice")?)
            .stderr(log)
            // Ctrl-C goes to the whole foreground group; the processes are stopped by us, in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", host.name))?;
        self.running.push((host, child));
        Ok(())
    }

    /// Kills one process with SIGKILL and waits until it is gone.
    pub(crate) async fn kill9(&mut self, host: &Host) -> Result<()> {
        let place = self.running.iter().position(|(running, _)| running.name == host.name);
        let Some(place) = place else { bail!("{} is not running", host.name) };
        let (_, mut child) = self.running.remove(place);
        child.kill().await.with_context(|| format!("cannot kill {}", host.name))
    }

    /// Waits until every process serves and every node is up.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        let deadline = rt::clock::now().plus_ms(READY.as_millis() as u64);
        loop {
            self.all_alive()?;
            let waiting_for = match self.first_not_ready().await {
                None => return Ok(()),
                Some(reason) => reason,
            };
            if rt::clock::now() > deadline {
                bail!(
                    "not ready after {} s: {waiting_for}: see the logs in {}",
                    READY.as_secs(),
                    self.layout.dir.display()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What does not serve yet, in words.
    async fn first_not_ready(&self) -> Option<String> {
        for host in &HOSTS {
            let url = format!("http://{}/status", host.admin());
            if get(&url, None, None).await.is_err() {
                return Some(format!("{} does not answer", host.name));
            }
        }
        match node_map().await {
            Err(error) => return Some(format!("health1: {error:#}")),
            Ok(map) => {
                for (name, states) in &map.states {
                    for state in [&states.v4, &states.v6].into_iter().flatten() {
                        if state.state != model::State::Up {
                            return Some(format!("{name} is {}: {}", state.state, state.reason));
                        }
                    }
                }
            }
        }
        let answer = dig::ask_udp(&dig::Question::a(NAME)).await;
        match answer {
            Ok(answer) if !answer.addresses.is_empty() => None,
            Ok(answer) => Some(format!("ns1 answers {}", answer.rcode)),
            Err(error) => Some(format!("ns1: {error:#}")),
        }
    }

    /// An error with the end of its log when a process has ended by itself.
    pub(crate) fn all_alive(&mut self) -> Result<()> {
        for (host, child) in &mut self.running {
            if let Some(status) = child.try_wait().context("cannot watch a process")? {
                let log = fs::read_to_string(self.layout.log(host)).unwrap_or_default();
                let lines: Vec<_> = log.lines().rev().take(5).collect();
                let end = lines.into_iter().rev().collect::<Vec<_>>().join("\n  ");
                bail!("{} ended by itself ({status}):\n  {end}", host.name);
            }
        }
        Ok(())
    }

    /// Ends every process: SIGTERM, then SIGKILL for what does not go.
    pub(crate) async fn stop(&mut self) {
        for (_, child) in &self.running {
            if let Some(pid) = child.id() {
                // Gone already is as good.
                let _ = sys::process::terminate(pid);
            }
        }
        for (host, mut child) in self.running.drain(..).rev() {
            if tokio::time::timeout(STOP, child.wait()).await.is_err() {
                eprintln!("{} did not stop in {} s and is killed", host.name, STOP.as_secs());
                let _ = child.kill().await;
            }
        }
    }
}

/// The error of the first address that somebody else holds. Needs a tokio runtime.
pub(crate) fn free_addresses() -> Result<()> {
    let sockets = Sockets::default();
    for host in &HOSTS {
        let advice = "another demo may be running: stop it first";
        if host.role == Role::Dns {
            rt::listen::udp_shared(&sockets, host.address(), 1).context(advice)?;
        }
        for address in [host.address(), host.admin()] {
            rt::listen::tcp(&sockets, address).context(advice)?;
        }
    }
    let ipv6 = SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), super::layout::HTTP_PORT);
    rt::listen::tcp(&sockets, ipv6).context("the demo needs the IPv6 loopback address")?;
    Ok(())
}

/// The node map as health publishes it.
pub(crate) async fn node_map() -> Result<NodeMap> {
    let url = format!("http://{}/node-map", host_named("health1").address());
    let reply = get(&url, None, None).await?;
    NodeMap::parse(&reply.body).context("health1 published something else")
}

/// One GET; `host` is the `Host` header, `connect_to` the machine, `url` otherwise decides.
pub(crate) async fn get(
    url: &str,
    connect_to: Option<SocketAddr>,
    headers: Option<HeaderMap>,
) -> Result<Reply> {
    let ask = Get {
        url: url.parse().with_context(|| format!("{url} is not a URL"))?,
        connect_to,
        headers: headers.unwrap_or_default(),
        timeout: Duration::from_secs(20),
        body_bytes_max: 256 << 20,
    };
    Ok(rt::client::get(ask).await?)
}
