//! Which snapshot a client began with: it keeps it for the length of one run of its package
//! manager, so that a switch in the middle of the run changes nothing for it.
//!
//! A connection is one client. A new connection joins what its address is bound to: clients that open
//! several (dnf) get one snapshot on all of them. Bounded: two generations of entries; forgetting
//! costs a client its run at worst.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use model::Now;

/// How long a client keeps the snapshot it began with, milliseconds.
pub(crate) const RUN_MAX_MS: u64 = 10_000;
/// Entries of one generation.
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Connection(SocketAddr),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    snapshot: u64,
    until_ns: u64,
}

/// Clients and the numbers of the snapshots they began with.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    young: HashMap<Who, Binding>,
    old: HashMap<Who, Binding>,
}

impl Bindings {
    /// The snapshot of a client: the one it began with while that is kept and its run may last, else
    /// `newest`, with which it begins then.
    pub(crate) fn of(
        &mut self,
        now: Now,
        client: SocketAddr,
        newest: u64,
        is_kept: impl Fn(u64) -> bool,
    ) -> u64 {
        let (connection, address) = (Who::Connection(client), Who::Address(client.ip()));
        let holds = |b: &Binding| b.until_ns > now.mono_ns && is_kept(b.snapshot);
        if let Some(binding) = self.get(connection).filter(holds) {
            return binding.snapshot;
        }
        let until_ns = now.plus_ms(RUN_MAX_MS).mono_ns;
        let snapshot = match self.get(address).filter(holds) {
            Some(binding) => binding.snapshot,
            None => {
                self.set(address, Binding { snapshot: newest, until_ns });
                newest
            }
        };
        self.set(connection, Binding { snapshot, until_ns });
        snapshot
    }

    fn get(&self, who: Who) -> Option<Binding> {
        self.young.get(&who).or_else(|| self.old.get(&who)).copied()
    }

    fn set(&mut self, who: Who, binding: Binding) {
        if self.young.len() >= ENTRIES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(who, binding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: u8, port: u16) -> SocketAddr {
        ([192, 0, 2, address], port).into()
    }

    #[test]
    fn a_client_keeps_what_it_began_with_for_one_run() {
        let mut bindings = Bindings::default();
        let t = Now::default();
        let kept = |_| true;
        assert_eq!(bindings.of(t, client(1, 1), 1, kept), 1);
        let later = t.plus_ms(RUN_MAX_MS - 1);
        assert_eq!(bindings.of(later, client(1, 1), 2, kept), 1);
        assert_eq!(bindings.of(later, client(1, 2), 2, kept), 1, "another of its connections");
        assert_eq!(bindings.of(later, client(2, 1), 2, kept), 2, "another client");
        let over = t.plus_ms(RUN_MAX_MS);
        assert_eq!(bindings.of(over, client(1, 2), 3, kept), 1, "its run began later");
        assert_eq!(bindings.of(over, client(1, 1), 3, kept), 3);
        assert_eq!(bindings.of(over, client(1, 3), 4, kept), 3);
    }

    #[test]
    fn a_snapshot_that_is_gone_binds_nobody() {
        let mut bindings = Bindings::default();
        let t = Now::default();
        assert_eq!(bindings.of(t, client(1, 1), 1, |_| true), 1);
        assert_eq!(bindings.of(t, client(1, 1), 5, |n| n > 1), 5);
    }

    #[test]
    fn memory_is_bounded() {
        let mut bindings = Bindings::default();
        for n in 0..u16::MAX {
            bindings.of(Now::default(), client(1, n), 1, |_| true);
        }
        assert!(bindings.young.len() + bindings.old.len() <= 2 * ENTRIES_MAX);
    }
}
