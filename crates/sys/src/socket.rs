//! Socket options that the standard library does not have.

use std::io;
use std::net::IpAddr;
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

/// Lets a TCP socket take no more from its writer than it can send soon: it is writable again once
/// fewer than `bytes` are waiting unsent (`TCP_NOTSENT_LOWAT`). Connections have it from their listener.
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn unsent_at_most(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Sends at most so many bytes per second on each connection (`SO_MAX_PACING_RATE`). Connections have
/// it from their listener.
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn pace(socket: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    set_bytes(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())
}

/// Chooses the congestion control of a TCP socket by the kernel's name for it (`TCP_CONGESTION`).
/// Connections have it from their listener.
///
/// # Errors
/// `NotFound` when the kernel has none of this name, `PermissionDenied` when this process may not
/// choose it; else as `setsockopt(2)` has them.
pub fn choose_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Sets an option whose value is `bytes`.
fn set_bytes(socket: &impl AsFd, level: c_int, option: c_int, bytes: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the pointer and length describe `bytes`, which live through the call; the kernel only
    // reads them. The descriptor is open because `socket` is borrowed.
    let done = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, bytes.as_ptr().cast(), length)
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

/// Bytes that the other side of a TCP connection has acknowledged (`tcpi_bytes_acked` of `TCP_INFO`).
///
/// # Errors
/// As `getsockopt(2)` has them; `Unsupported` when the kernel is too old to tell.
pub fn acknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    /// Where the count stands in `struct tcp_info` of `linux/tcp.h`, which only grows at its end.
    const AT: usize = 120;
    let mut info = [0u8; AT + size_of::<u64>()];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: pointer and length describe `info`, which the call fills up to the length that it then
    // stores in `length`; both live through the call. The descriptor is open because `socket` is
    // borrowed.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    match info.last_chunk() {
        Some(bytes) if length as usize == info.len() => Ok(u64::from_ne_bytes(*bytes)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Asks for a send buffer of `bytes`, likewise (`SO_SNDBUFFORCE`).
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn send_buffer(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
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

/// Sends with this many hops to live (`IP_TTL`, `IPV6_UNICAST_HOPS`), and drops what comes with fewer
/// than `at_least` (`IP_MINTTL`, `IPV6_MINHOPCOUNT`; RFC 5082): of an IPv4 (`v6` false) or IPv6 socket.
///
/// # Errors
/// As `setsockopt(2)` has them.
pub fn hops(socket: &impl AsFd, v6: bool, hops: u8, at_least: u8) -> io::Result<()> {
    let (hops, at_least) = (c_int::from(hops), c_int::from(at_least));
    if v6 {
        /// From `linux/in6.h`.
        const IPV6_MINHOPCOUNT: c_int = 73;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops)?;
        set(socket, libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT, at_least)
    } else {
        /// From `linux/in.h`.
        const IP_MINTTL: c_int = 21;
        set(socket, libc::IPPROTO_IP, libc::IP_TTL, hops)?;
        set(socket, libc::IPPROTO_IP, IP_MINTTL, at_least)
    }
}

/// Signs every segment to and from `peer` with `key`, and drops what is not signed so (`TCP_MD5SIG`,
/// RFC 2385): of a listener, or of a socket before it connects. An empty key ends that.
///
/// # Errors
/// `InvalidInput` for keys of more than 80 bytes; else as `setsockopt(2)` has them.
pub fn sign_segments(socket: &impl AsFd, peer: IpAddr, key: &[u8]) -> io::Result<()> {
    /// `struct tcp_md5sig` of `linux/tcp.h`: a `sockaddr_storage` (128 bytes), flags and prefix length (a
    /// byte each), length of the key (2 bytes), interface (4), key.
    const KEY_AT: usize = 136;
    const KEY_BYTES_MAX: usize = 80;
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let length = u16::try_from(key.len()).map_err(|_| too_long())?;
    let mut option = [0u8; KEY_AT + KEY_BYTES_MAX];
    let mut put = |at: usize, bytes: &[u8]| {
        let place = option.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.map(|place| place.copy_from_slice(bytes)).ok_or_else(too_long)
    };
    let family = |number: c_int| (number as libc::sa_family_t).to_ne_bytes();
    match peer {
        // After the family two bytes of port, which is any.
        IpAddr::V4(address) => {
            put(0, &family(libc::AF_INET))?;
            put(4, &address.octets())?;
        }
        // ... and four of flow.
        IpAddr::V6(address) => {
            put(0, &family(libc::AF_INET6))?;
            put(8, &address.octets())?;
        }
    }
    put(130, &length.to_ne_bytes())?;
    put(KEY_AT, key)?;
    set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &option)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The value of an option, at most 16 bytes.
    fn get(socket: &impl AsFd, level: c_int, option: c_int) -> Vec<u8> {
        let mut bytes = [0u8; 16];
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: pointer and length describe `bytes`, which the call fills up to the length that it
        // then stores in `length`; both live through the call.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                level,
                option,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        assert_eq!(done, 0);
        bytes[..length as usize].to_vec()
    }

    #[test]
    fn connections_have_the_options_of_their_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(&listener, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).unwrap();
        unsent_at_most(&listener, 131_072).unwrap();
        pace(&listener, 10_000_000_000).unwrap();
        choose_congestion(&listener, "reno").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let tcp = libc::IPPROTO_TCP;
        assert_ne!(get(&accepted, tcp, libc::TCP_NODELAY), 0i32.to_ne_bytes());
        assert_eq!(get(&accepted, tcp, libc::TCP_NOTSENT_LOWAT), 131_072i32.to_ne_bytes());
        let rate = get(&accepted, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
        // Older kernels tell it in 32 bits.
        let expected = 10_000_000_000u64.to_ne_bytes();
        assert!(rate == expected || rate == u32::MAX.to_ne_bytes(), "{rate:?}");
        assert!(get(&accepted, tcp, libc::TCP_CONGESTION).starts_with(b"reno\0"));
    }

    #[test]
    fn what_the_other_side_acknowledged_is_known() {
        use std::io::{Read as _, Write as _};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let before = acknowledged_bytes(&accepted).unwrap();
        accepted.write_all(&[7; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        // The answer comes after the acknowledgement, or with it.
        client.write_all(&[1]).unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        assert_eq!(acknowledged_bytes(&accepted).unwrap() - before, 1000);
    }

    #[test]
    fn a_congestion_control_that_is_not_there_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = choose_congestion(&listener, "no-such-thing").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn connections_need_the_key_of_their_listener() {
        let key = b"a key of both";
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        match sign_segments(&listener, address.ip(), key) {
            Ok(()) => {}
            // A kernel without it says so when it is asked, not later.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT)),
        }
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let (signed, plain) = (socket().unwrap(), socket().unwrap());
        sign_segments(&signed, address.ip(), key).unwrap();
        signed.connect(&address.into()).unwrap();
        listener.accept().unwrap();
        // What is not signed is dropped without a word.
        plain.set_nonblocking(true).unwrap();
        let error = plain.connect(&address.into()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
        assert!(sign_segments(&listener, address.ip(), &[0; 81]).is_err());
    }

    #[test]
    fn hops_are_set_on_both_families() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        hops(&four, false, 255, 254).unwrap();
        let (ttl, at_least) =
            (get(&four, libc::IPPROTO_IP, libc::IP_TTL), get(&four, libc::IPPROTO_IP, 21));
        assert_eq!((ttl, at_least), (255i32.to_ne_bytes().to_vec(), 254i32.to_ne_bytes().to_vec()));
        if let Ok(six) = TcpListener::bind("[::1]:0") {
            hops(&six, true, 255, 255).unwrap();
            assert_eq!(get(&six, libc::IPPROTO_IPV6, 73), 255i32.to_ne_bytes());
        }
    }
}
