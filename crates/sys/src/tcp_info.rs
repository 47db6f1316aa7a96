//! What the kernel measured of a TCP connection (`TCP_INFO`), as far as it is of use here.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of `struct tcp_info` (linux/tcp.h) up to the last field that is read. Kernels since 4.9 have
/// as many; the struct only grows at its end.
const BYTES: usize = 168;
/// Where the fields begin.
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const MIN_RTT: usize = 148;
const DATA_SEGS_OUT: usize = 156;
const DELIVERY_RATE: usize = 160;

/// A look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Bytes that the other side has acknowledged.
    pub acked_bytes: u64,
    /// Segments with data that were sent, those sent again among them.
    pub sent_segments: u64,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// Shortest round trip, microseconds; 0 when none was measured.
    pub min_rtt_us: u64,
    /// Newest rate at which data arrived, bytes per second; 0 when none was measured.
    pub delivery_rate: u64,
}

/// Looks at a TCP connection; one that has ended may be looked at as long as its socket is open.
///
/// # Errors
/// As `getsockopt(2)` has them; `Unsupported` when the kernel is older than 4.9.
pub fn of(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; BYTES];
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: pointer and length describe `bytes`, which the call fills up to the length that it
    // then stores in `length`; both live through the call. The descriptor is open because `socket`
    // is borrowed.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if usize::try_from(length).is_ok_and(|length| length < BYTES) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The kernel's word for a round trip that was not measured yet.
    let min_rtt = Some(u32_at(&bytes, MIN_RTT)).filter(|us| *us != u32::MAX).unwrap_or(0);
    Ok(TcpInfo {
        acked_bytes: u64_at(&bytes, BYTES_ACKED),
        sent_segments: u32_at(&bytes, DATA_SEGS_OUT).into(),
        retransmitted_segments: u32_at(&bytes, TOTAL_RETRANS).into(),
        min_rtt_us: min_rtt.into(),
        delivery_rate: u64_at(&bytes, DELIVERY_RATE),
    })
}

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_the_other_side_took_is_known_after_it_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 100_000]).unwrap();
        let mut taken = vec![0; 100_000];
        client.read_exact(&mut taken).unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        let info = of(&server).unwrap();
        assert!((100_000..=100_002).contains(&info.acked_bytes), "{info:?}");
        assert!(info.sent_segments > 0 && info.min_rtt_us > 0, "{info:?}");
        assert_eq!(info.retransmitted_segments, 0);
    }

    #[test]
    fn what_is_no_tcp_connection_has_none() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(of(&socket).is_err());
    }
}
