//! Socket options that the standard library does not have.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

/// Sets an integer socket option.
fn set(socket: &impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call; the kernel
    // only reads it. The descriptor is open because `socket` is borrowed.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for a receive buffer of `bytes`: above the system's limit where this process may
/// (`SO_RCVBUFFORCE`), else as much as the limit allows.
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn receive_buffer(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Makes an IPv4 (`v6` false) or IPv6 UDP socket ignore path MTU messages: they can be forged,
/// and answers are small enough to pass (`IP_PMTUDISC_OMIT`; RFC 9715 section 3.1).
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn ignore_path_mtu(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
    }
}

/// Makes a UDP socket that is bound to the wildcard address tell where each datagram was sent to,
/// so that [`crate::Batch::reply`] answers from that very address.
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn tell_destination(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}
