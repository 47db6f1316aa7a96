//! What a listening socket hands on to its connections: set once there, not for each of them.

use std::os::fd::AsFd;
use std::{fs, io};

use socket2::SockRef;

use super::Listen;

/// Bytes that may wait unsent in the kernel on a connection as it begins. Left to itself the kernel
/// takes 1.5 MiB for a client that reads nothing, and a thousand of those make it short of memory for
/// everybody's TCP. Who serves may raise it for clients that are fast.
pub const UNSENT_BYTES: u32 = 64 * 1024;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const QDISC: &str = "/proc/sys/net/core/default_qdisc";

/// Sets them on a socket of `listen`, however it was come by. What the kernel refuses is a warning:
/// the connections are served all the same.
pub(super) fn set(socket: &impl AsFd, listen: &Listen) {
    let address = listen.address;
    let note = |done: io::Result<()>, option: &str| {
        if let Err(error) = done {
            tracing::warn!(%address, %error, "{option} cannot be set; connections do without");
        }
    };
    // Small responses and the ends of large ones must not wait for the client's acknowledgement.
    note(SockRef::from(socket).set_tcp_nodelay(true), "TCP_NODELAY");
    note(sys::socket::unsent_at_most(socket, UNSENT_BYTES), "TCP_NOTSENT_LOWAT");
    if let Some(rate) = listen.rate {
        note(sys::socket::pace(socket, rate.0 / 8), "SO_MAX_PACING_RATE");
    }
    if let Some(name) = &listen.congestion
        && let Err(error) = sys::socket::choose_congestion(socket, name)
    {
        let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
        tracing::warn!(
            %address,
            %error,
            available = available.trim(),
            "the congestion control {name} cannot be had, the system's takes its place: load its \
             module (`modprobe tcp_{name}`), or choose one that is available"
        );
    }
}

/// What of `listen` works worse on this machine than it could; to be said once at the start.
pub(super) fn advise(listen: &Listen) {
    let qdisc = fs::read_to_string(QDISC).unwrap_or_default();
    if listen.congestion.as_deref() == Some("bbr") && !qdisc.is_empty() && qdisc.trim() != "fq" {
        tracing::warn!(
            address = %listen.address,
            default_qdisc = qdisc.trim(),
            "bbr paces best with the fq queue: `sysctl net.core.default_qdisc=fq` (new interfaces, \
             or `tc qdisc replace dev DEV root fq`); without it each connection needs timers of its own"
        );
    }
}
