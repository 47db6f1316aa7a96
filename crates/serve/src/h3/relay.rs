//! The way of datagrams from a process to the ones before it.
//!
//! At its start a listener makes a pipe, and its end for writing is handed on like a socket, by the
//! name `quic ADDRESS MARK`. A successor writes there what it hears for connections of the process
//! with that mark, which answers by the UDP socket itself. A pipe that is full loses datagrams, as
//! networks do; one that nobody reads or writes any more says so.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;

use quinn::udp::{EcnCodepoint, RecvMeta};
use rt::handover::Sockets;

use super::ids::{Mark, Seal, destination};
use super::quic::locked;

/// Bytes before a datagram: address (kind, bits, port, flow, scope), ECN, destination (kind, bits).
pub(super) const HEAD_BYTES: usize = 17 + 2 + 4 + 4 + 1 + 17;

/// Those before this process that may still have connections.
#[derive(Debug)]
pub(super) struct Formers {
    seal: Seal,
    all: Mutex<Vec<Former>>,
}

#[derive(Debug)]
struct Former {
    mark: Mark,
    pipe: UnixDatagram,
}

impl Formers {
    /// Those whose pipes this process was handed for the listener on `address`, and the mark that
    /// follows theirs.
    pub(super) fn take(sockets: &Sockets, address: SocketAddr, seal: Seal) -> (Self, Mark) {
        let mut all = Vec::new();
        for (mark, pipe) in sockets.take_named(&beginning(address)) {
            let Ok(mark) = mark.parse() else { continue };
            let pipe = UnixDatagram::from(pipe);
            // Nothing is ever written to this end: it is read to see whether there is another.
            let lives =
                matches!(pipe.recv(&mut [0; 1]), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
            if lives {
                hand_on(sockets, address, Mark(mark), &pipe);
                all.push(Former { mark: Mark(mark), pipe });
            }
        }
        let mark = all.last().map_or(0, |former| former.mark.0.wrapping_add(1));
        (Self { seal, all: Mutex::new(all) }, Mark(mark))
    }

    /// Passes on what belongs to one of them. The rest of `buffer` moves to its beginning; how many
    /// bytes that is.
    pub(super) fn pick(&self, buffer: &mut [u8], meta: &RecvMeta) -> usize {
        let mut formers = locked(&self.all);
        let length = meta.len.min(buffer.len());
        if formers.is_empty() {
            return length;
        }
        let (mut kept, mut at) = (0usize, 0usize);
        while at < length {
            let end = at.saturating_add(meta.stride.max(1)).min(length);
            let datagram = buffer.get(at..end).unwrap_or_default();
            if !self.pass_on(&mut formers, datagram, meta) {
                buffer.copy_within(at..end, kept);
                kept = kept.saturating_add(end.saturating_sub(at));
            }
            at = end;
        }
        kept
    }

    /// Whether a datagram belongs to one of them, and is on its way or lost.
    fn pass_on(&self, formers: &mut Vec<Former>, datagram: &[u8], meta: &RecvMeta) -> bool {
        let Some(mark) = destination(datagram).and_then(|id| self.seal.mark(id)) else {
            return false;
        };
        let Some(place) = formers.iter().position(|former| former.mark == mark) else {
            return false;
        };
        let sent = formers.get(place).map(|former| former.pipe.send(&pack(datagram, meta)));
        match sent {
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                // It has ended: its clients are told so.
                formers.remove(place);
                false
            }
            _ => true,
        }
    }
}

fn beginning(address: SocketAddr) -> String {
    format!("quic {address} ")
}

fn hand_on(sockets: &Sockets, address: SocketAddr, mark: Mark, pipe: &UnixDatagram) {
    match pipe.try_clone() {
        Ok(copy) => sockets.hand_on(format!("{}{}", beginning(address), mark.0), copy.into()),
        Err(error) => tracing::warn!(%error, "HTTP/3 connections will not outlive a hand-over"),
    }
}

/// A pipe to this process, whose other end is handed on.
///
/// # Errors
/// When it cannot be made.
pub(super) fn pipe(
    sockets: &Sockets,
    address: SocketAddr,
    mark: Mark,
) -> io::Result<tokio::net::UnixDatagram> {
    let (reads, writes): (OwnedFd, OwnedFd) = rt::listen::pipe()?;
    hand_on(sockets, address, mark, &UnixDatagram::from(writes));
    tokio::net::UnixDatagram::from_std(reads.into())
}

/// A datagram with what is known of it, as it goes through a pipe.
fn pack(datagram: &[u8], meta: &RecvMeta) -> Vec<u8> {
    let mut packed = Vec::with_capacity(HEAD_BYTES.saturating_add(datagram.len()));
    pack_ip(&mut packed, Some(meta.addr.ip()));
    packed.extend_from_slice(&meta.addr.port().to_be_bytes());
    let (flow, scope) = match meta.addr {
        SocketAddr::V4(_) => (0, 0),
        SocketAddr::V6(address) => (address.flowinfo(), address.scope_id()),
    };
    packed.extend_from_slice(&flow.to_be_bytes());
    packed.extend_from_slice(&scope.to_be_bytes());
    packed.push(meta.ecn.map_or(0, |ecn| ecn as u8));
    pack_ip(&mut packed, meta.dst_ip);
    packed.extend_from_slice(datagram);
    packed
}

fn pack_ip(to: &mut Vec<u8>, ip: Option<IpAddr>) {
    let (kind, bits) = match ip {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(ip.to_bits())),
        Some(IpAddr::V6(ip)) => (6, ip.to_bits()),
    };
    to.push(kind);
    to.extend_from_slice(&bits.to_be_bytes());
}

/// Puts a datagram that came through a pipe into `buffer`. `None` when it is none, or too long.
pub(super) fn unpack(packed: &[u8], buffer: &mut [u8]) -> Option<RecvMeta> {
    let (ip, rest) = unpack_ip(packed)?;
    let (port, rest) = rest.split_first_chunk()?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (scope, rest) = rest.split_first_chunk()?;
    let (ecn, rest) = rest.split_first()?;
    let (dst_ip, datagram) = unpack_ip(rest)?;
    buffer.get_mut(..datagram.len())?.copy_from_slice(datagram);
    let port = u16::from_be_bytes(*port);
    let addr = match ip? {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => {
            let (flow, scope) = (u32::from_be_bytes(*flow), u32::from_be_bytes(*scope));
            SocketAddrV6::new(ip, port, flow, scope).into()
        }
    };
    let (len, ecn) = (datagram.len(), EcnCodepoint::from_bits(*ecn));
    Some(RecvMeta { addr, len, stride: len, ecn, dst_ip })
}

fn unpack_ip(from: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (kind, rest) = from.split_first()?;
    let (bits, rest) = rest.split_first_chunk()?;
    let bits = u128::from_be_bytes(*bits);
    let ip = match kind {
        0 => None,
        4 => Some(IpAddr::V4(u32::try_from(bits).ok()?.into())),
        6 => Some(IpAddr::V6(bits.into())),
        _ => return None,
    };
    Some((ip, rest))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "this is a test")]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_comes_out_of_a_pipe_as_it_went_in() {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 443, 5, 6);
        for (addr, ecn, dst_ip) in [
            ("192.0.2.1:4433".parse().unwrap(), None, None),
            ("192.0.2.1:1".parse().unwrap(), Some(EcnCodepoint::Ce), "192.0.2.9".parse().ok()),
            (v6.into(), Some(EcnCodepoint::Ect0), "2001:db8::1".parse().ok()),
        ] {
            let packed = pack(b"sealed", &RecvMeta { addr, len: 6, stride: 6, ecn, dst_ip });
            assert_eq!(packed.len(), HEAD_BYTES + 6);
            let mut buffer = [0; 8];
            let meta = unpack(&packed, &mut buffer).unwrap();
            assert_eq!(&buffer[..meta.len], b"sealed");
            assert_eq!((meta.addr, meta.stride, meta.ecn, meta.dst_ip), (addr, 6, ecn, dst_ip));
            assert!(unpack(&packed, &mut [0; 5]).is_none());
            for end in 0..HEAD_BYTES {
                assert!(unpack(&packed[..end], &mut buffer).is_none(), "{end}");
            }
        }
    }
}
