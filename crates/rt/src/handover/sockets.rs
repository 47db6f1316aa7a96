//! The listening sockets of a process: those that it was handed, and those that it will hand on.
//!
//! A socket is known by its name (`tcp 0.0.0.0:80`, `udp [::]:53`, `unix /run/cacheboy/admin.sock`,
//! `private edge`, `quic [::]:443 2`): a config that names the same address gets the socket that is there, with the
//! connections and queries that wait in it. Several may have one name. They come from a predecessor
//! or from systemd (`LISTEN_FDS`, known by their addresses).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{SockRef, Type};

/// Tells a successor which descriptors are which sockets: lines of a number, a blank and a name.
pub(super) const SOCKETS: &str = "CACHEBOY_SOCKETS";
/// The first descriptor that systemd passes.
const SYSTEMD_FIRST: i32 = 3;
/// More sockets than any config names.
const SOCKETS_MAX: i32 = 1024;

/// A clone for each who listens.
#[derive(Clone, Default)]
pub struct Sockets(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Whether there may be a successor to hand them on to.
    keeps: bool,
    /// Handed to this process and not asked for yet.
    inherited: Vec<Named>,
    /// In use; to be handed on.
    held: Vec<Named>,
}

struct Named {
    name: String,
    socket: OwnedFd,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &[Named]| all.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let inner = self.lock();
        write!(f, "Sockets({:?}, unclaimed {:?})", names(&inner.held), names(&inner.inherited))
    }
}

/// The name of a TCP listener.
pub fn tcp(address: SocketAddr) -> String {
    format!("tcp {address}")
}

/// The name of a UDP socket.
pub fn udp(address: SocketAddr) -> String {
    format!("udp {address}")
}

/// The name of a unix listener.
pub fn unix(path: &Path) -> String {
    format!("unix {}", path.display())
}

impl Sockets {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the environment says this process was left: by a predecessor, or by systemd.
    pub(super) fn from_environment() -> Self {
        let inherited = match std::env::var(SOCKETS) {
            Ok(list) => by_list(&list),
            Err(_) => by_systemd(),
        };
        Self(Arc::new(Mutex::new(Inner { keeps: true, inherited, held: Vec::new() })))
    }

    /// All sockets of this name that the process was handed, or what `bind` makes.
    ///
    /// # Errors
    /// Those of `bind`, and that a descriptor cannot be copied.
    pub fn take_or<S: From<OwnedFd> + Into<OwnedFd>>(
        &self,
        name: &str,
        bind: impl FnOnce() -> io::Result<Vec<S>>,
    ) -> io::Result<Vec<S>> {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.inherited);
        let (ours, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|n| n.name == name);
        inner.inherited = others;
        let ours: Vec<OwnedFd> = if ours.is_empty() {
            bind()?.into_iter().map(Into::into).collect()
        } else {
            ours.into_iter().map(|named| named.socket).collect()
        };
        for socket in ours.iter().take(if inner.keeps { usize::MAX } else { 0 }) {
            inner.held.push(Named { name: name.to_owned(), socket: socket.try_clone()? });
        }
        Ok(ours.into_iter().map(S::from).collect())
    }

    /// Takes all sockets that the process was handed by names that begin so, with the rest of those.
    pub fn take_named(&self, beginning: &str) -> Vec<(String, OwnedFd)> {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.inherited);
        let (ours, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|n| n.name.starts_with(beginning));
        inner.inherited = others;
        let rest = |name: String| name.get(beginning.len()..).unwrap_or_default().to_owned();
        ours.into_iter().map(|named| (rest(named.name), named.socket)).collect()
    }

    /// Hands on `socket` by `name` too, where there may be a successor.
    pub fn hand_on(&self, name: String, socket: OwnedFd) {
        let mut inner = self.lock();
        if inner.keeps {
            inner.held.push(Named { name, socket });
        }
    }

    /// Makes what was taken so far what the process was handed: it was only to be seen whether it
    /// can be had.
    pub fn put_back(&self) {
        let mut inner = self.lock();
        let held = std::mem::take(&mut inner.held);
        inner.inherited.extend(held);
    }

    /// Closes what was handed to this process and nobody asked for.
    pub fn drop_unclaimed(&self) {
        for Named { name, socket } in std::mem::take(&mut self.lock().inherited) {
            tracing::info!(socket = name, "a socket is not listened on any more");
            drop(socket);
            if let Some(path) = name.strip_prefix("unix ") {
                // A socket file without a listener misleads whoever connects.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Copies for a successor, and what tells it which is which.
    pub(super) fn for_successor(&self) -> io::Result<(Vec<OwnedFd>, String)> {
        let inner = self.lock();
        let (mut copies, mut list) = (Vec::new(), String::new());
        for Named { name, socket } in &inner.held {
            let copy = socket.try_clone()?;
            list.push_str(&format!("{} {name}\n", copy.as_raw_fd()));
            copies.push(copy);
        }
        Ok((copies, list))
    }

    /// Lets go of all, so that a listener that is closed is closed indeed.
    pub fn release(&self) {
        let mut inner = self.lock();
        inner.keeps = false;
        inner.held.clear();
    }
}

fn by_list(list: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for line in list.lines() {
        let Some((number, name)) = line.split_once(' ') else { continue };
        let Some(socket) = number.parse().ok().and_then(left_open) else { continue };
        found.push(Named { name: name.to_owned(), socket });
    }
    found
}

fn by_systemd() -> Vec<Named> {
    let number = |key| std::env::var(key).ok().and_then(|value| value.parse::<i32>().ok());
    let is_ours =
        number("LISTEN_PID").is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()));
    let count = number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0).clamp(0, SOCKETS_MAX);
    let numbers = SYSTEMD_FIRST..SYSTEMD_FIRST.saturating_add(count);
    let sockets = numbers.filter_map(left_open);
    sockets.filter_map(|socket| Some(Named { name: name_of(&socket)?, socket })).collect()
}

/// A socket that whoever started this process left open.
fn left_open(number: i32) -> Option<OwnedFd> {
    let descriptor = sys::process::take_left_open(number).ok()?;
    SockRef::from(&descriptor).r#type().ok()?;
    Some(descriptor)
}

/// What a socket is called by its kind and address.
fn name_of(socket: &OwnedFd) -> Option<String> {
    let socket = SockRef::from(socket);
    let address = socket.local_addr().ok()?;
    let kind = socket.r#type().ok()?;
    match (address.as_socket(), address.as_pathname()) {
        (Some(address), _) if kind == Type::STREAM => Some(tcp(address)),
        (Some(address), _) if kind == Type::DGRAM => Some(udp(address)),
        (_, Some(path)) if kind == Type::STREAM => Some(unix(path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn what_is_handed_is_taken_by_its_name_and_else_bound() {
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = there.local_addr().unwrap();
        let descriptor = OwnedFd::from(there);
        assert_eq!(name_of(&descriptor), Some(tcp(address)));
        let sockets = Sockets::from_environment();
        sockets.lock().inherited.push(Named { name: tcp(address), socket: descriptor });
        let never = || -> io::Result<Vec<TcpListener>> { panic!("it is there") };
        let taken = sockets.take_or(&tcp(address), never).unwrap();
        assert_eq!(taken[0].local_addr().unwrap(), address);

        let bind = || Ok(vec![UdpSocket::bind("127.0.0.1:0")?]);
        let bound = sockets.take_or("udp somewhere", bind).unwrap();
        let name = udp(bound[0].local_addr().unwrap());
        assert_eq!(name_of(&bound[0].try_clone().unwrap().into()), Some(name));
        let (copies, list) = sockets.for_successor().unwrap();
        let wanted = format!(
            "{} tcp {address}\n{} udp somewhere\n",
            copies[0].as_raw_fd(),
            copies[1].as_raw_fd()
        );
        assert_eq!(list, wanted);
        drop((copies, taken));
        sockets.release();
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody holds it any more");
    }

    #[test]
    fn what_is_handed_on_by_a_name_is_taken_by_its_beginning() {
        let sockets = Sockets::from_environment();
        let (pipe, other) = crate::listen::pipe().unwrap();
        sockets.hand_on("quic 127.0.0.1:443 7".to_owned(), pipe);
        sockets.hand_on("quic 127.0.0.1:4433 8".to_owned(), other);
        sockets.put_back();
        let named = sockets.take_named("quic 127.0.0.1:443 ");
        assert_eq!(named.iter().map(|(rest, _)| rest.as_str()).collect::<Vec<_>>(), ["7"]);
        assert!(sockets.take_named("quic 127.0.0.1:443 ").is_empty());
        assert_eq!(sockets.take_named("quic 127.0.0.1:4433 ").len(), 1);
    }

    #[test]
    fn a_list_that_lies_gives_nothing() {
        assert!(by_list("0 tcp 127.0.0.1:80\n-1 x\nword\n99999 udp 1\n\n").is_empty());
    }
}
