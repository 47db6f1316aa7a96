//! `[[bgp.mrt]]`: files of routes, for those who cannot peer. A file is read whole before anything of it
//! is used, and again when it has changed and stands still; what cannot be read changes nothing.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bgp_proto::mrt::{Event, MrtError, Records};
use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use ipnet::IpNet;
use model::Family;
use model::route::Attributes;
use rt::metrics::bgp as metric;
use rt::{Phase, Shutdown, clock};

use crate::desk::{Desk, MrtFile};
use crate::{MrtParams, PREFIXES_MAX};

/// How often files are looked at.
const POLL: Duration = Duration::from_secs(5);
/// Routes put into the table before sessions have their turn.
const AT_ONCE: usize = 4096;
/// Different attributes that are kept of no route, beyond as many as there are of routes.
const SETS_IDLE_MAX: usize = 4096;
/// Octets read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Why a file was not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("cannot be opened: is it there, and may this user read it?")]
    Open(#[source] io::Error),
    #[error(transparent)]
    Read(#[from] MrtError),
    #[error("has messages of {0} and {1}: say `from` which of them is meant")]
    Several(IpAddr, IpAddr),
    #[error("has more than {0} routes")]
    TooMany(usize),
    #[error("has no route{}", .0.map_or_else(String::new, |from| format!(" of {from}")))]
    Empty(Option<IpAddr>),
    #[error("a defect")]
    Defect(#[from] tokio::task::JoinError),
}

/// What tells a changed file from an unchanged one.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Keeps the routes of one file in the table, until shutdown.
pub(crate) async fn follow(desk: Arc<Desk>, at: usize, shutdown: Shutdown) {
    let Some(path) = desk.files.get(at).map(|file| file.params.file.clone()) else { return };
    // What it was when it was read last, and when it was looked at last.
    let (mut read, mut seen) = (None::<Stamp>, None::<Stamp>);
    loop {
        let now = stamp(&path);
        // The first time it is read as it is: a file that grows is read again anyway.
        if read != Some(now) && (seen == Some(now) || read.is_none()) {
            read = Some(now);
            let work = Arc::clone(&desk);
            let taken = tokio::task::spawn_blocking(move || {
                work.files.get(at).map_or(Ok([0; 2]), |file| take(&work, file))
            });
            let taken = taken.await.map_err(LoadError::from).and_then(|taken| taken);
            if let Some(file) = desk.files.get(at) {
                note(&desk, file, &taken);
            }
        }
        seen = Some(now);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = shutdown.reached(Phase::Draining) => return,
        }
    }
}

fn note(desk: &Desk, file: &MrtFile, taken: &Result<[u32; 2], LoadError>) {
    let (name, path) = (&file.params.name, file.params.file.display());
    match taken {
        Ok([v4, v6]) => tracing::info!(%name, %path, v4, v6, "routes read from a file"),
        Err(error) => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            desk.metrics.counter(&metric::MRT_ERRORS, &[name.as_str()]).inc();
            tracing::error!(%name, %path, %error, cause, "a file of routes was not used: those of before stay");
        }
    }
    file.show(taken.as_ref().map(|_| clock::now().wall_ms).map_err(ToString::to_string));
    // Whether the view has all its routes is news too.
    desk.tell();
}

/// Reads a file and puts its routes into the place of those of before.
fn take(desk: &Desk, file: &MrtFile) -> Result<[u32; 2], LoadError> {
    let routes = load(&file.params)?;
    for family in Family::ALL {
        desk.rib().mark_stale(file.id, family);
    }
    for some in routes.chunks(AT_ONCE) {
        let mut rib = desk.rib();
        for (prefix, attributes) in some {
            rib.announce(file.id, *prefix, Attributes::clone(attributes));
        }
    }
    let mut rib = desk.rib();
    for family in Family::ALL {
        rib.sweep(file.id, family);
    }
    let counts = rib.peer_counts(file.id);
    for (family, count) in Family::ALL.iter().zip(counts) {
        let labels = [file.params.name.as_str(), &family.to_string()];
        desk.metrics.gauge(&metric::ROUTES, &labels).set(count.into());
    }
    Ok(counts)
}

/// One route for each prefix.
type Routes = Vec<(IpNet, Arc<Attributes>)>;

#[derive(Default)]
struct Loading {
    routes: HashMap<IpNet, Arc<Attributes>>,
    /// Those of the routes, each once, and some that no route has any more.
    sets: HashSet<Arc<Attributes>>,
    /// How many were left when those were dropped last.
    sets_kept: usize,
    /// Whose recorded messages were heard.
    speaker: Option<IpAddr>,
}

/// Reads a file: of a dump the route of `from`, or without it the one with the shortest path; of
/// recorded messages what holds at their end.
fn load(params: &MrtParams) -> Result<Routes, LoadError> {
    let limit = PREFIXES_MAX.iter().fold(0usize, |sum, n| sum.saturating_add(*n as usize));
    let mut records = Records::new(open(&params.file).map_err(LoadError::Open)?);
    let (mut loading, mut events) = (Loading::default(), Vec::new());
    while records.next(&mut events)? {
        for event in events.drain(..) {
            loading.take(event, params.from)?;
        }
        if loading.routes.len() > limit {
            return Err(LoadError::TooMany(limit));
        }
    }
    // An empty table would take all routes away: that is hardly meant.
    if loading.routes.is_empty() {
        return Err(LoadError::Empty(params.from));
    }
    Ok(loading.routes.into_iter().collect())
}

impl Loading {
    fn take(&mut self, event: Event, from: Option<IpAddr>) -> Result<(), LoadError> {
        let is_meant = |peer: &IpAddr| from.is_none_or(|from| from == *peer);
        match event {
            Event::Table(prefix, entries) => {
                let entries = entries.into_iter().filter(|(peer, _)| is_meant(peer));
                // Of equal ones the first.
                let best = entries.min_by_key(|(_, of)| of.as_path.length());
                if let Some((_, attributes)) = best {
                    self.put(prefix, Arc::new(attributes));
                }
            }
            Event::Told(peer, prefix, what) if is_meant(&peer) => {
                self.is_alone(peer)?;
                match what {
                    Some(attributes) => self.put(prefix, attributes),
                    None => _ = self.routes.remove(&prefix),
                }
            }
            Event::Down(peer) if is_meant(&peer) => {
                self.is_alone(peer)?;
                self.routes.clear();
            }
            Event::Told(..) | Event::Down(_) => {}
        }
        Ok(())
    }

    /// What one peer withdraws another may still have: messages of several make no table.
    fn is_alone(&mut self, peer: IpAddr) -> Result<(), LoadError> {
        let speaker = *self.speaker.get_or_insert(peer);
        if speaker == peer { Ok(()) } else { Err(LoadError::Several(speaker, peer)) }
    }

    fn put(&mut self, prefix: IpNet, attributes: Arc<Attributes>) {
        let set = match self.sets.get(&attributes) {
            Some(set) => Arc::clone(set),
            None => {
                self.sets.insert(Arc::clone(&attributes));
                attributes
            }
        };
        self.routes.insert(prefix, set);
        // Recorded messages go on for days: what was told in between is not kept.
        if self.sets.len() > self.sets_kept.saturating_mul(2).saturating_add(SETS_IDLE_MAX) {
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.sets_kept = self.sets.len();
        }
    }
}

/// Opens a file; what its first octets say it was compressed by is undone.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(3).read_to_end(&mut magic)?;
    file.rewind()?;
    let file = BufReader::with_capacity(BUFFER_BYTES, file);
    // Records are read by a few octets.
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        b"BZh" => Box::new(BufReader::new(MultiBzDecoder::new(file))),
        _ => Box::new(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::route::{AsPath, Communities, Origin};

    #[test]
    fn what_was_told_in_between_is_not_kept() {
        let mut loading = Loading::default();
        let (peer, prefix) = ("192.0.2.1".parse().unwrap(), "198.51.100.0/24".parse().unwrap());
        let of = |med| Attributes {
            next_hop: peer,
            origin: Origin::Igp,
            as_path: AsPath::default(),
            med: Some(med),
            local_pref: None,
            communities: Communities::default(),
        };
        let most = 3 * SETS_IDLE_MAX;
        for med in 0..100_000 {
            loading.take(Event::Told(peer, prefix, Some(Arc::new(of(med)))), None).unwrap();
            assert!(loading.sets.len() <= most, "{} at {med}", loading.sets.len());
        }
        assert_eq!(loading.routes.len(), 1);
        assert_eq!(*loading.routes[&prefix], of(99_999));
    }
}
