//! UDP datagrams in batches: `recvmmsg(2)` and `sendmmsg(2)`.
//!
//! A [`Batch`] belongs to one thread and one socket. Its turn: [`Batch::receive`] waits for at
//! least one datagram and takes what else is there; the owner looks at each with [`Batch::get`]
//! and writes answers; [`Batch::reply`] sends them, each to where its question came from and, on
//! a socket with [`crate::socket::tell_destination`], from the address it was sent to.
//!
//! Memory is fixed at creation. No allocation, no locks afterwards.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// What processors take from memory at a time.
const LINE_BYTES: usize = 64;
/// Room for one `IP_PKTINFO` or `IPV6_PKTINFO` message.
const CONTROL_BYTES: usize = 64;

/// Control messages are structs and must begin at their alignment.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Where the kernel puts one datagram.
struct Slot {
    from: libc::sockaddr_storage,
    part: libc::iovec,
    control: Control,
}

/// Buffers for a batch of datagrams and their senders.
pub struct Batch {
    /// `slots`, `bytes` and `headers` are raw memory owned by this value, freed in `drop`. They
    /// are reached through these pointers only, because the headers point into the other two.
    slots: *mut Slot,
    bytes: *mut u8,
    headers: *mut libc::mmsghdr,
    count: usize,
    datagram_bytes_max: usize,
    /// From one slot's bytes to the next one's.
    stride: usize,
    /// How many slots the last `receive` filled.
    filled: usize,
    /// How many headers the kernel may have written since they were last reset.
    dirty: usize,
    /// Reused by `reply`; its pointers are valid only inside one call.
    outgoing: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

/// One received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its bytes, at most the size the batch was made for.
    pub bytes: &'a [u8],
    /// Its sender.
    pub from: SocketAddr,
    /// Whether it was longer than the batch has room for, so that its end is missing.
    pub truncated: bool,
}

/// What became of a batch of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Handed to the kernel.
    pub sent: usize,
    /// Refused by the kernel, for example because the network is gone.
    pub failed: usize,
}

impl Batch {
    /// A batch of up to `count` datagrams (1 to 1024) of at most `datagram_bytes_max` bytes.
    pub fn new(count: usize, datagram_bytes_max: usize) -> Self {
        let count = count.clamp(1, 1024);
        let datagram_bytes_max = datagram_bytes_max.clamp(1, 65_535);
        // An odd number of cache lines: with a power of two the beginnings of all datagrams, which
        // are all that most of them have, would share a few lines of the first cache.
        let stride = (datagram_bytes_max.div_ceil(LINE_BYTES) | 1) * LINE_BYTES;
        // SAFETY: an all-zero `Slot` is valid: integers, byte arrays and a null pointer.
        let slot = || unsafe { MaybeUninit::<Slot>::zeroed().assume_init() };
        // SAFETY: an all-zero `mmsghdr` is valid: integers and null pointers.
        let header = || unsafe { MaybeUninit::<libc::mmsghdr>::zeroed().assume_init() };
        let batch = Self {
            slots: leak((0..count).map(|_| slot()).collect()),
            bytes: leak(vec![0u8; count * stride]),
            headers: leak((0..count).map(|_| header()).collect()),
            count,
            datagram_bytes_max,
            stride,
            filled: 0,
            dirty: count,
            outgoing: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
        };
        for i in 0..count {
            // SAFETY: `i` is below `count`, the length of all three allocations, and nobody else
            // holds a reference into them yet. The pointers stored here stay valid as long as
            // `batch`, which frees all three together.
            unsafe {
                let slot = batch.slots.add(i);
                (*slot).part.iov_base = batch.bytes.add(i * stride).cast();
                (*slot).part.iov_len = datagram_bytes_max;
                let header = &mut (*batch.headers.add(i)).msg_hdr;
                header.msg_name = (&raw mut (*slot).from).cast();
                header.msg_iov = &raw mut (*slot).part;
                header.msg_iovlen = 1;
                header.msg_control = (&raw mut (*slot).control).cast();
            }
        }
        batch
    }

    /// Waits for at least one datagram, takes as many as are there, and returns their number.
    /// With `wait` false, or when the socket has a read timeout that passes, there may be none.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nothing came in time, [`io::ErrorKind::Interrupted`]
    /// after a signal, others as `recvmmsg(2)` has them. The batch is then empty.
    pub fn receive(&mut self, socket: &impl AsFd, wait: bool) -> io::Result<usize> {
        for i in 0..self.dirty {
            // SAFETY: `dirty` is at most `count`, and `&mut self` means that no `Datagram` is out.
            let header = unsafe { &mut (*self.headers.add(i)).msg_hdr };
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_controllen = CONTROL_BYTES as _;
        }
        (self.filled, self.dirty) = (0, self.count);
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: `headers` is an array of `count` headers whose pointers lead to memory of this
        // batch, sized as they say; `&mut self` keeps everyone else out during the call. The null
        // timeout is allowed.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers,
                self.count as libc::c_uint,
                flags,
                ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        self.filled = got.min(self.count);
        self.dirty = self.filled;
        Ok(self.filled)
    }

    /// The datagram `i` of the last [`Batch::receive`]; `None` behind the last one, and for one
    /// whose sender is not an IP address.
    pub fn get(&self, i: usize) -> Option<Datagram<'_>> {
        if i >= self.filled {
            return None;
        }
        // SAFETY: `i` is below `filled`, hence below `count`; the kernel has filled this slot, and
        // `&self` keeps `receive`, the only writer, away while the references live.
        let (slot, header) = unsafe { (&*self.slots.add(i), &*self.headers.add(i)) };
        let length = (header.msg_len as usize).min(self.datagram_bytes_max);
        // SAFETY: slot `i` owns `stride` initialised bytes from this offset, and `length` is
        // not more. Writers are kept away as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes.add(i * self.stride), length) };
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        Some(Datagram { bytes, from: address(&slot.from)?, truncated })
    }

    /// Sends `replies[i]` to the sender of datagram `i` of the last [`Batch::receive`]; an empty
    /// reply means none. What the kernel refuses is counted and left out: UDP promises nothing.
    pub fn reply(&mut self, socket: &impl AsFd, replies: &[Vec<u8>]) -> Sent {
        self.outgoing.clear();
        self.parts.clear();
        for (i, reply) in replies.iter().enumerate().take(self.filled) {
            if !reply.is_empty() {
                self.parts.push(libc::iovec {
                    iov_base: reply.as_ptr().cast_mut().cast(),
                    iov_len: reply.len(),
                });
                let header = self.reply_header(i);
                self.outgoing.push(header);
            }
        }
        // `parts` grows no more: its addresses are settled.
        for (header, part) in self.outgoing.iter_mut().zip(&mut self.parts) {
            header.msg_hdr.msg_iov = part;
        }
        let sent = send_all(socket, &mut self.outgoing);
        self.outgoing.clear();
        self.parts.clear();
        sent
    }

    /// A header that leads to the sender of datagram `i` (below `filled`), without its bytes.
    fn reply_header(&mut self, i: usize) -> libc::mmsghdr {
        // SAFETY: `i` is below `filled`, hence below `count`, and `&mut self` excludes others.
        let (slot, got) = unsafe { (&mut *self.slots.add(i), &(*self.headers.add(i)).msg_hdr) };
        let mut header = *got;
        header.msg_flags = 0;
        header.msg_iovlen = 1;
        if header.msg_controllen >= size_of::<libc::cmsghdr>() {
            forget_interface(&mut slot.control);
        } else {
            header.msg_control = ptr::null_mut();
            header.msg_controllen = 0;
        }
        libc::mmsghdr { msg_hdr: header, msg_len: 0 }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: the three pointers and their lengths are what `leak` made them of, and nothing
        // borrows from this value any more.
        unsafe {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.slots, self.count)));
            let bytes = self.count * self.stride;
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.bytes, bytes)));
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.headers, self.count)));
        }
    }
}

/// Gives the items away as raw memory; [`Batch::drop`] takes it back.
fn leak<T>(items: Vec<T>) -> *mut T {
    Box::into_raw(items.into_boxed_slice()).cast()
}

/// Sends all of `headers`, stepping over those the kernel refuses.
fn send_all(socket: &impl AsFd, headers: &mut [libc::mmsghdr]) -> Sent {
    let mut result = Sent::default();
    let mut left = headers;
    while !left.is_empty() {
        // SAFETY: `left` is an array of valid headers: names and control messages lead into the
        // batch, bytes into the caller's replies, all borrowed until `reply` returns.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                left.as_mut_ptr(),
                left.len() as libc::c_uint,
                0,
            )
        };
        let done = match usize::try_from(sent) {
            Ok(sent) if sent > 0 => {
                result.sent += sent;
                sent
            }
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => 0,
            _ => {
                result.failed += 1;
                1
            }
        };
        left = left.get_mut(done..).unwrap_or_default();
    }
    result
}

/// Keeps the address out of a received packet-info message but not the interface, so that the
/// reply takes the way that the routing table says.
fn forget_interface(control: &mut Control) {
    const DATA: usize = size_of::<libc::cmsghdr>();
    // SAFETY: `Control` is aligned for and larger than a `cmsghdr`, which any bytes are valid for.
    let header = unsafe { ptr::read((&raw const *control).cast::<libc::cmsghdr>()) };
    let interface_at = match (header.cmsg_level, header.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => DATA,
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => DATA + size_of::<libc::in6_addr>(),
        _ => return,
    };
    if let Some(interface) = control.0.get_mut(interface_at..interface_at + size_of::<u32>()) {
        interface.fill(0);
    }
}

/// The IP address and port in `storage`.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that these bytes are a `sockaddr_in`, which is smaller than
            // the storage, aligned less, and valid for any bytes.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::socket;

    fn bound(address: &str) -> UdpSocket {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    /// Receives until `count` datagrams have come, and answers each with its bytes doubled.
    fn echo(batch: &mut Batch, socket: &UdpSocket, count: usize) -> Sent {
        let mut total = Sent::default();
        while total.sent + total.failed < count {
            let got = batch.receive(socket, true).unwrap();
            let replies: Vec<Vec<u8>> =
                (0..got).map(|i| batch.get(i).unwrap().bytes.repeat(2)).collect();
            let sent = batch.reply(socket, &replies);
            total.sent += sent.sent;
            total.failed += sent.failed;
        }
        total
    }

    #[test]
    fn each_reply_goes_to_its_own_sender() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let server = bound(host);
            let address = server.local_addr().unwrap();
            let clients: Vec<UdpSocket> = (0..20).map(|_| bound(host)).collect();
            for (i, client) in clients.iter().enumerate() {
                client.send_to(format!("q{i}").as_bytes(), address).unwrap();
            }
            let mut batch = Batch::new(8, 64);
            assert_eq!(echo(&mut batch, &server, 20), Sent { sent: 20, failed: 0 });
            for (i, client) in clients.iter().enumerate() {
                let mut buffer = [0; 64];
                let (n, from) = client.recv_from(&mut buffer).unwrap();
                assert_eq!(buffer[..n], *format!("q{i}q{i}").as_bytes());
                assert_eq!(from, address);
            }
        }
    }

    #[test]
    fn a_wildcard_socket_answers_from_the_address_that_was_asked() {
        for (wildcard, asked, v6) in [
            ("0.0.0.0:0", "127.0.0.9", false),
            ("[::]:0", "::1", true),
            ("[::]:0", "127.0.0.9", true),
        ] {
            let server = bound(wildcard);
            socket::tell_destination(&server, v6).unwrap();
            let port = server.local_addr().unwrap().port();
            let client = bound(if asked == "::1" { "[::1]:0" } else { "127.0.0.1:0" });
            client.send_to(b"x", (asked, port)).unwrap();
            let sent = echo(&mut Batch::new(4, 64), &server, 1);
            assert_eq!(sent, Sent { sent: 1, failed: 0 });
            let (_, from) = client.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(from.ip().to_string(), asked);
        }
    }

    #[test]
    fn a_long_datagram_is_marked_and_an_empty_reply_is_none() {
        let server = bound("127.0.0.1:0");
        let client = bound("127.0.0.1:0");
        client.send_to(b"0123456789", server.local_addr().unwrap()).unwrap();
        let mut batch = Batch::new(4, 4);
        assert_eq!(batch.receive(&server, true).unwrap(), 1);
        let got = batch.get(0).unwrap();
        let want = Datagram { bytes: b"0123", from: client.local_addr().unwrap(), truncated: true };
        assert_eq!(got, want);
        assert_eq!(batch.get(1), None);
        assert_eq!(batch.reply(&server, &[Vec::new()]), Sent::default());
        let nothing = batch.receive(&server, false).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.get(0), None);
    }

    #[test]
    fn options_are_taken_by_both_families() {
        socket::receive_buffer(&bound("127.0.0.1:0"), 1 << 20).unwrap();
        socket::ignore_path_mtu(&bound("127.0.0.1:0"), false).unwrap();
        socket::ignore_path_mtu(&bound("[::1]:0"), true).unwrap();
        assert!(socket::ignore_path_mtu(&bound("127.0.0.1:0"), true).is_err());
    }
}
