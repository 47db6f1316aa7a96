//! How many connections each client holds, so that none can hold all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections by client; as many entries as there are connections at most.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<HashMap<IpAddr, usize>>);

/// A place of a client; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Clients {
    /// A place for `peer`, unless it has `max` already. IPv6 counts by its /64.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, max: usize) -> Option<Place> {
        let client = match peer.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        };
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(client).or_default();
        if *count >= max {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Place { clients: Arc::clone(self), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = held.entry(self.client) {
            *entry.get_mut() = entry.get().saturating_sub(1);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_places_and_leaves_nothing_behind() {
        let clients = Arc::new(Clients::default());
        let enter = |peer: &str| clients.enter(peer.parse().unwrap(), 2);
        let held = [enter("192.0.2.1"), enter("::ffff:192.0.2.1")];
        assert!(held.iter().all(Option::is_some) && enter("192.0.2.1").is_none());
        let other = [enter("192.0.2.2"), enter("2001:db8::1"), enter("2001:db8::2")];
        assert!(other.iter().all(Option::is_some) && enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(held);
        assert!(enter("192.0.2.1").is_some());
        drop(other);
        assert!(clients.0.lock().unwrap().is_empty());
    }
}
