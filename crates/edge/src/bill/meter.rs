//! Where the bill's bytes are counted: by the edge itself, or by the kernel on an interface.

use std::path::{Path, PathBuf};

use super::month::Sample;

/// Counts of an interface, or of the edge, since some start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    received: u64,
    sent: u64,
}

/// Tells what was received and sent from one look to the next.
#[derive(Debug)]
pub(super) struct Meter {
    /// Folder of the interface's counters.
    interface: Option<PathBuf>,
    /// As last read; `None` before the first time, and after it could not be read.
    counted: Option<Reading>,
    own: Reading,
}

impl Meter {
    pub(super) fn new(interface: Option<&str>) -> Self {
        let folder = |name| Path::new("/sys/class/net").join(name).join("statistics");
        Self { interface: interface.map(folder), counted: None, own: Reading::default() }
    }

    /// What was received and sent since the last look; `received` and `sent`: what the edge itself has,
    /// in all. Where the interface cannot be read the edge's own count stands in; the second value says
    /// so.
    pub(super) fn look(&mut self, received: u64, sent: u64) -> (Sample, bool) {
        let before = std::mem::replace(&mut self.own, Reading { received, sent });
        let own = Sample {
            received: received.saturating_sub(before.received),
            sent: sent.saturating_sub(before.sent),
        };
        let Some(folder) = &self.interface else { return (own, false) };
        let now = read(folder);
        let before = std::mem::replace(&mut self.counted, now);
        match (before, now) {
            (Some(before), Some(now)) => (
                Sample {
                    received: grown(before.received, now.received),
                    sent: grown(before.sent, now.sent),
                },
                false,
            ),
            (_, now) => (own, now.is_none()),
        }
    }
}

fn read(folder: &Path) -> Option<Reading> {
    let number =
        |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(Reading { received: number("rx_bytes")?, sent: number("tx_bytes")? })
}

/// How much a counter has grown. Some drivers count in 32 bits; an interface that was made anew begins
/// at 0.
fn grown(before: u64, now: u64) -> u64 {
    const WRAP: u64 = 1 << 32;
    match now.checked_sub(before) {
        Some(grown) => grown,
        None if before < WRAP && before.saturating_sub(now) > WRAP / 2 => {
            now.saturating_add(WRAP).saturating_sub(before)
        }
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap_and_begin_anew() {
        for (before, now, want) in [
            (10, 25, 15),
            (4_294_967_290, 4, 10),
            (1_000_000, 300, 300),
            (u64::MAX, 300, 300),
            (5_000_000_000, 4_999_999_999, 4_999_999_999),
        ] {
            assert_eq!(grown(before, now), want, "{before} {now}");
        }
    }

    #[test]
    fn an_interface_counts_and_what_the_edge_has_stands_in_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = Meter::new(None);
        meter.interface = Some(folder.path().to_owned());
        let set = |rx: &str, tx: &str| {
            std::fs::write(folder.path().join("rx_bytes"), rx).unwrap();
            std::fs::write(folder.path().join("tx_bytes"), tx).unwrap();
        };
        let sample = |received, sent| Sample { received, sent };
        assert_eq!(meter.look(1, 10), (sample(1, 10), true), "there is none");
        set("1000\n", "2000\n");
        assert_eq!(meter.look(3, 20), (sample(2, 10), false), "the first look");
        set("1500\n", "2700\n");
        assert_eq!(meter.look(5, 40), (sample(500, 700), false));
        std::fs::remove_file(folder.path().join("rx_bytes")).unwrap();
        assert_eq!(meter.look(6, 60), (sample(1, 20), true));
        set("10\n", "20\n");
        assert_eq!(meter.look(7, 80), (sample(1, 20), false));
        set("11\n", "22\n");
        assert_eq!(meter.look(8, 100), (sample(1, 2), false));
    }

    #[test]
    fn without_an_interface_the_edge_counts() {
        let mut meter = Meter::new(None);
        let sample = |received, sent| Sample { received, sent };
        assert_eq!(meter.look(5, 7), (sample(5, 7), false));
        assert_eq!(meter.look(5, 9), (sample(0, 2), false));
    }
}
