//! Listening sockets, what configs say of them, and errors that say what to do when one cannot be
//! had.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use model::Rate;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

mod options;

pub use options::UNSENT_BYTES;

use crate::handover::sockets::{self, Sockets};

/// Connections the kernel keeps for us before `accept`.
const BACKLOG: i32 = 4096;

/// What the kernel holds of QUIC's datagrams that came, and that are to go. With its usual 208 KiB
/// one in 75 datagrams of a fast client was lost when measured.
const QUIC_BUFFER_BYTES: u32 = 8 * 1024 * 1024;

/// What waits in a pipe between processes.
const PIPE_BYTES: u32 = 1024 * 1024;

/// One entry of a role's `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub address: SocketAddr,
    /// HTTPS, with the host's certificates; plain HTTP otherwise.
    pub tls: bool,
    /// HTTP/3 too, over UDP on the same port; only with `tls`.
    pub http3: bool,
    /// The kernel's name of the congestion control of its connections; the system's otherwise.
    pub congestion: Option<String>,
    /// The most that one connection is sent.
    pub rate: Option<Rate>,
}

/// Plain HTTP with everything as the system has it.
impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: false, http3: false, congestion: None, rate: None }
    }
}

/// Why a socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else is there.
    #[error(
        "cannot listen on {protocol} {address}: address in use: stop what holds it \
         (`ss -lnp | grep {port}` shows it) or name another address as `listen` in the \
         config file", port = .address.port()
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// `tcp` or `udp`.
        protocol: &'static str,
    },
    /// Ports below 1024 need a capability.
    #[error(
        "cannot listen on {protocol} {address}: permission denied: give the process \
         CAP_NET_BIND_SERVICE or name a port above 1023 as `listen` in the config file"
    )]
    Denied {
        /// The address.
        address: SocketAddr,
        /// `tcp` or `udp`.
        protocol: &'static str,
    },
    /// The machine has no such address.
    #[error(
        "cannot listen on {protocol} {address}: this machine has no such address: add it to an \
         interface or choose another"
    )]
    NoAddress {
        /// The address.
        address: SocketAddr,
        /// `tcp` or `udp`.
        protocol: &'static str,
    },
    /// A TLS listener on a host without certificates.
    #[error(
        "cannot listen on tcp {address}: it is to speak TLS and this host has no certificate: add \
         [[tls.certificate]] or take `tls` away"
    )]
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on {protocol} {address}: the kernel refused")]
    Other {
        /// The address.
        address: SocketAddr,
        /// `tcp` or `udp`.
        protocol: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ListenError {
    fn new(protocol: &'static str, address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address, protocol },
            io::ErrorKind::PermissionDenied => Self::Denied { address, protocol },
            io::ErrorKind::AddrNotAvailable => Self::NoAddress { address, protocol },
            _ => Self::Other { address, protocol, source },
        }
    }
}

/// A TCP socket on `address`, not yet listening; a shared one lets others share it too.
fn bind_tcp(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart would wait for old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A TCP listener: the one of `sockets`, else a new one. Must be called inside a tokio runtime.
///
/// # Errors
/// When the address cannot be had.
pub fn tcp(sockets: &Sockets, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let bind = || {
        let socket = bind_tcp(address, false)?;
        socket.listen(BACKLOG)?;
        Ok(vec![socket])
    };
    let listen = || {
        let mut all = sockets.take_or(&sockets::tcp(address), bind)?;
        let socket = all.pop().ok_or(io::ErrorKind::NotFound)?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket.into())
    };
    listen().map_err(|source| ListenError::new("tcp", address, source))
}

/// `count` TCP listeners that share the address of `listen` (SO_REUSEPORT), each with a queue of its
/// own, or those of `sockets`, however many; with the options that `listen` asks for. Must be called
/// inside a tokio runtime.
///
/// A first socket is bound without sharing, so that an address that another process holds is an
/// error rather than half of the connections.
///
/// # Errors
/// When the address cannot be had.
pub fn tcp_shared(
    sockets: &Sockets,
    listen: &Listen,
    count: usize,
) -> Result<Vec<TcpListener>, ListenError> {
    let address = listen.address;
    let is_new = Cell::new(false);
    let bind = || -> io::Result<Vec<Socket>> {
        is_new.set(true);
        let probe = bind_tcp(address, false)?;
        // Port 0 asks for any port: the sockets must then share the one that was given.
        let bound = probe.local_addr()?.as_socket().unwrap_or(address);
        drop(probe);
        let new = (0..count.max(1)).map(|_| bind_tcp(bound, true));
        // All are bound before the first takes connections: none waits in one that fails.
        let new = new.collect::<io::Result<Vec<_>>>()?;
        // A connection has the options that its listener had when it came.
        new.iter().for_each(|socket| options::set(socket, listen));
        new.iter().try_for_each(|socket| socket.listen(BACKLOG))?;
        Ok(new)
    };
    let all = || -> io::Result<Vec<TcpListener>> {
        let all = sockets.take_or(&sockets::tcp(address), bind)?;
        let listening = all.into_iter().map(|socket| {
            if !is_new.get() {
                // Another config may ask for others than the process before.
                options::set(&socket, listen);
            }
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket.into())
        });
        listening.collect()
    };
    options::advise(listen);
    all().map_err(|source| ListenError::new("tcp", address, source))
}

/// A UDP socket for QUIC, with buffers that hold a burst of it: the one of `sockets`, else a new one.
///
/// # Errors
/// When the address cannot be had.
pub fn quic(sockets: &Sockets, address: SocketAddr) -> Result<UdpSocket, ListenError> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(vec![socket])
    };
    let listen = || {
        let mut all = sockets.take_or(&sockets::udp(address), bind)?;
        let socket: Socket = all.pop().ok_or(io::ErrorKind::NotFound)?;
        enlarge(&socket)?;
        Ok(socket.into())
    };
    listen().map_err(|source| ListenError::new("udp", address, source))
}

/// Two ends between which messages go (SOCK_SEQPACKET): whoever reads learns when the last copy of
/// the other end is closed. Neither blocks.
///
/// # Errors
/// When the kernel makes none.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
    for end in [&one, &other] {
        end.set_nonblocking(true)?;
        sys::socket::send_buffer(end, PIPE_BYTES)?;
    }
    Ok((one.into(), other.into()))
}

/// Asks for large buffers, and says so when they stay small.
fn enlarge(socket: &Socket) -> io::Result<()> {
    sys::socket::receive_buffer(socket, QUIC_BUFFER_BYTES)?;
    sys::socket::send_buffer(socket, QUIC_BUFFER_BYTES)?;
    for (buffer, bytes, sysctl) in [
        ("receive", socket.recv_buffer_size()?, "net.core.rmem_max"),
        ("send", socket.send_buffer_size()?, "net.core.wmem_max"),
    ] {
        // The kernel counts its own upkeep, and doubles what it was asked for.
        let bytes = u32::try_from(bytes.div_euclid(2)).unwrap_or(u32::MAX);
        if bytes < QUIC_BUFFER_BYTES {
            tracing::warn!(
                buffer,
                bytes,
                "a buffer of the HTTP/3 socket stays small, and bursts will be lost: set \
                 {sysctl} = {QUIC_BUFFER_BYTES}, or give the process CAP_NET_ADMIN"
            );
        }
    }
    Ok(())
}

/// `count` blocking UDP sockets that share `address` (SO_REUSEPORT), one for each thread; or those of
/// `sockets`, however many: queries wait in each.
///
/// A first socket is bound without sharing, so that an address that another process holds is an
/// error rather than half of the queries.
///
/// # Errors
/// When the address cannot be had.
pub fn udp_shared(
    sockets: &Sockets,
    address: SocketAddr,
    count: usize,
) -> Result<Vec<UdpSocket>, ListenError> {
    let bind = |address: SocketAddr, shared: bool| -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if shared {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    };
    let new = || -> io::Result<Vec<UdpSocket>> {
        let probe = bind(address, false)?;
        // Port 0 asks for any port: the sockets must then share the one that was given.
        let bound = probe.local_addr()?.as_socket().unwrap_or(address);
        drop(probe);
        (0..count).map(|_| bind(bound, true).map(UdpSocket::from)).collect()
    };
    let all = || -> io::Result<Vec<UdpSocket>> {
        let all = sockets.take_or(&sockets::udp(address), new)?;
        all.iter().try_for_each(|socket| socket.set_nonblocking(false))?;
        Ok(all)
    };
    all().map_err(|source| ListenError::new("udp", address, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_address_says_so() {
        let first = tcp(&Sockets::default(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let error = tcp(&Sockets::default(), address).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()));
        let elsewhere = tcp(&Sockets::default(), "203.0.113.1:0".parse().unwrap()).unwrap_err();
        assert!(matches!(elsewhere, ListenError::NoAddress { .. }), "{elsewhere}");
    }

    #[tokio::test]
    async fn workers_share_a_tcp_address_but_other_processes_do_not() {
        let listen = Listen::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let sockets = tcp_shared(&Sockets::default(), &listen, 2).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert_eq!(sockets[1].local_addr().unwrap(), address);
        assert!(matches!(
            tcp_shared(&Sockets::default(), &address.into(), 2),
            Err(ListenError::InUse { .. })
        ));
        assert!(matches!(tcp(&Sockets::default(), address), Err(ListenError::InUse { .. })));
    }

    #[tokio::test]
    async fn a_congestion_control_that_is_not_there_costs_a_warning_alone() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let congestion = Some("no-such-thing".to_owned());
        let listen = Listen { congestion, tls: true, rate: Some(Rate(64_000)), ..address.into() };
        let sockets = tcp_shared(&Sockets::default(), &listen, 1).unwrap();
        let client = tokio::net::TcpStream::connect(sockets[0].local_addr().unwrap());
        let (accepted, client) = tokio::join!(sockets[0].accept(), client);
        assert!(accepted.unwrap().0.nodelay().unwrap());
        drop(client.unwrap());
    }

    #[test]
    fn threads_share_a_udp_address_but_other_processes_do_not() {
        let sockets = udp_shared(&Sockets::default(), "127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert_eq!(sockets[1].local_addr().unwrap(), address);
        assert!(matches!(
            udp_shared(&Sockets::default(), address, 1),
            Err(ListenError::InUse { .. })
        ));
    }
}
