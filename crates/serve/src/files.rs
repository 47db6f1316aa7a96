//! Who may have how many of the files that this process may open.
//!
//! A client's connection is one, and so is a store's open body, a connection to a master, and
//! whatever else the process has. What is left for clients is a limit: above it they wait in the
//! kernel's queue, rather than that those inside find no file left for their content.

/// Part of the files that stores keep open for their next use.
const STORES_PART: usize = 8;
/// Part of the files that masters and everything else may need where there are few.
const OTHERS_PART: usize = 3;
/// Above this they need no more: blocks on their way and turns at masters bound them.
const OTHERS_MAX: usize = 1_500;
/// The most connections of clients, whatever the process may open: 16 KiB of each is half a gigabyte.
const CONNECTIONS_MAX: usize = 32_768;

/// Files of this process, by who may have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// What stores may keep open for their next use, all together.
    pub stores: usize,
    /// Connections of clients.
    pub connections: usize,
}

impl Files {
    /// Of this process, as it may open now (and raised to what it may at most).
    pub fn of_process() -> Self {
        Self::of(
            usize::try_from(sys::limits::raise_open_files().unwrap_or(0)).unwrap_or(usize::MAX),
        )
    }

    /// Of a process that may open `limit` files.
    pub fn of(limit: usize) -> Self {
        let stores = limit.div_euclid(STORES_PART);
        let others = limit.div_euclid(OTHERS_PART).min(OTHERS_MAX);
        let connections = limit.saturating_sub(stores).saturating_sub(others);
        Self { stores, connections: connections.clamp(1, CONNECTIONS_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_clients_and_slow_ones_fit_beside_stores_and_masters() {
        for (limit, stores, connections) in [
            (0, 0, 1),
            (1_024, 128, 555),
            (20_000, 2_500, 16_000),
            (1_048_576, 131_072, CONNECTIONS_MAX),
        ] {
            assert_eq!(Files::of(limit), Files { stores, connections }, "{limit}");
        }
    }
}
