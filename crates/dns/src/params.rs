//! `[dns]` of a host's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use dns_proto::Rates;
use ipnet::IpNet;
use usage::write::Addresses;

use crate::keys::SignParams;
use crate::transfers::TransferParams;

/// What the role is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Addresses to listen on, UDP and TCP alike.
    pub listen: Vec<SocketAddr>,
    /// UDP threads for each address; `None`: one a core, at most 8.
    pub udp_threads: Option<u32>,
    /// Folder of zone files, each called after its zone: `NAME.zone`.
    pub zone_files: Option<PathBuf>,
    /// What the server calls itself (NSID, `id.server`); `None`: nothing. At most
    /// [`dns_proto::TEXT_BYTES_MAX`] bytes, as `version`.
    pub nsid: Option<String>,
    /// The answer to `version.bind`; `None`: refused.
    pub version: Option<String>,
    /// The secrets that servers behind one address share to make cookies; `None`: one of this
    /// host's own.
    pub cookie_secret_file: Option<PathBuf>,
    /// Who puts the header of the PROXY protocol, version 2, before what it sends: nobody else is
    /// believed.
    pub proxy_from: Vec<IpNet>,
    /// How much a network gets over UDP.
    pub rates: Rates,
    /// Zones whose answers are signed.
    pub sign: Vec<SignParams>,
    /// Zones that other servers may copy.
    pub transfers: Vec<TransferParams>,
    /// The log of queries; `None`: there is none.
    pub log: Option<LogParams>,
}

/// `[dns.log]`: the log of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogParams {
    /// A regular file, made when it is not there, in a folder that is.
    pub path: PathBuf,
    /// One query in so many is logged, by chance; 1: each.
    pub sample: u32,
    /// How much of addresses it has.
    pub addresses: Addresses,
}

impl Params {
    /// Listens on `listen`; the rest is as it is when nobody says anything.
    pub fn new(listen: Vec<SocketAddr>) -> Self {
        Self {
            listen,
            udp_threads: None,
            zone_files: None,
            nsid: None,
            version: None,
            cookie_secret_file: None,
            proxy_from: Vec::new(),
            rates: Rates::default(),
            sign: Vec::new(),
            transfers: Vec::new(),
            log: None,
        }
    }
}
