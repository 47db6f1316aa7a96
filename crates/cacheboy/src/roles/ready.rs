//! What a successor sees to before it says that it is ready: everything that can make its start fail
//! and can be seen while its predecessor is still at work. What fails here costs nothing; what fails
//! later leaves the predecessor without its stores until a start succeeds.

use std::path::Path;

use anyhow::{Context as _, Result};
use config::HostConfig;
use rt::file::{LockError, lock_folder};
use rt::handover::Sockets;
use rt::tls::Certificate;
use rt::{admin, listen};

/// Looks at all of it, and binds the addresses in `sockets`. Blocks; needs a tokio runtime.
pub(super) fn look(config: &HostConfig, sockets: &Sockets) -> Result<()> {
    for files in &config.certificates {
        Certificate::load(files).context("TLS cannot be spoken")?;
    }
    state_dir(&config.host.state_dir)?;
    if let Some(edge) = &config.edge {
        edge::look(edge)?;
    }
    if config.dns.is_some() || config.edge.is_some() {
        config.location.open()?;
    }
    bind_all(config, sockets)
}

/// Makes the folder and sees that it can be locked; that its owner holds it now is as it should be.
fn state_dir(path: &Path) -> Result<()> {
    super::make_state_dir(path)?;
    match lock_folder(path) {
        Ok(_) | Err(LockError::InUse { .. }) => Ok(()),
        Err(error) => Err(error).context("state_dir cannot be used"),
    }
}

/// Binds the addresses of all roles.
fn bind_all(config: &HostConfig, sockets: &Sockets) -> Result<()> {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    for listen in config.http_listeners() {
        listen::tcp_shared(sockets, listen, workers)?;
        if listen.http3 {
            listen::quic(sockets, listen.address)?;
        }
    }
    for address in config.health.iter().flat_map(|health| &health.listen) {
        listen::tcp(sockets, *address)?;
    }
    let acme = config.health.iter().filter_map(|health| health.acme.as_ref());
    let hand_out = acme.filter_map(|acme| acme.hand_out.as_ref());
    for address in hand_out.flat_map(|hand_out| &hand_out.listen) {
        listen::tcp(sockets, *address)?;
    }
    if let Some(dns) = &config.dns {
        for address in &dns.listen {
            listen::udp_shared(sockets, *address, dns::udp_threads(dns.udp_threads))?;
            listen::tcp(sockets, *address)?;
        }
    }
    for address in config.bgp.iter().flat_map(|bgp| bgp.listen.iter().chain(&bgp.publish)) {
        listen::tcp(sockets, *address)?;
    }
    if let Some(listen) = &config.admin {
        admin::bind(listen, sockets)?;
    }
    Ok(())
}
