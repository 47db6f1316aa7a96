//! What sessions, commits and answers share: the table, and what is shown of each peer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bgp_proto::session::{End, Session};
use bgp_proto::{PeerId, Rib, ViewId};
use model::time::utc;
use model::{Family, Name};
use rt::{Context, Metrics, clock};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::{MrtParams, Params, PeerParams};

/// What is shown of a peer.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    state: &'static str,
    since_ms: u64,
    /// The session is up, and the peer has told its whole table (or had a minute for it).
    pub(crate) is_complete: bool,
    agreed: Value,
    last_end: Value,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) params: PeerParams,
    pub(crate) id: PeerId,
    pub(crate) shown: Mutex<Shown>,
    /// Somebody wants it to be asked for all of its routes again.
    pub(crate) refresh: Notify,
}

/// One file of routes.
#[derive(Debug)]
pub(crate) struct MrtFile {
    pub(crate) params: MrtParams,
    pub(crate) id: PeerId,
    shown: Mutex<MrtShown>,
}

/// What is shown of a file.
#[derive(Debug, Default)]
struct MrtShown {
    /// When what is in the table was read, unix milliseconds.
    read_ms: Option<u64>,
    /// Why what was read last is not in the table.
    error: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) params: Params,
    rib: Mutex<Rib>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) files: Vec<MrtFile>,
    /// Views by name.
    pub(crate) views: BTreeMap<Name, ViewId>,
    /// Raised whenever what followers are told is another than before.
    pub(crate) news: watch::Sender<u64>,
    pub(crate) metrics: Metrics,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// A desk with an empty table, whose hash tables have this secret; `None` when there are too many
    /// peers.
    pub(crate) fn new(params: Params, secret: [u64; 2], context: &Context) -> Option<Self> {
        let mut rib = Rib::new(secret);
        let (mut peers, mut views) = (Vec::new(), BTreeMap::new());
        for peer in params.peers.iter().take(crate::PEERS_MAX.saturating_add(1)) {
            let view = rib.add_view(peer.view.as_str())?;
            views.insert(peer.view.clone(), view);
            let id = rib.add_peer(view, peer.asn == params.asn)?;
            let shown = Mutex::new(Shown { state: "idle", ..Shown::default() });
            peers.push(Peer { params: peer.clone(), id, shown, refresh: Notify::new() });
        }
        let mut files = Vec::new();
        for file in params.files.iter().take(crate::FILES_MAX) {
            let view = rib.add_view(file.view.as_str())?;
            views.insert(file.view.clone(), view);
            let id = rib.add_peer(view, false)?;
            files.push(MrtFile { params: file.clone(), id, shown: Mutex::default() });
        }
        let enough = peers.len() <= crate::PEERS_MAX;
        let (news, _) = watch::channel(0);
        let metrics = context.metrics.clone();
        let desk = Self { params, rib: Mutex::new(rib), peers, files, views, news, metrics };
        enough.then_some(desk)
    }

    /// The table. Whoever has it is quick: all sessions wait meanwhile.
    pub(crate) fn rib(&self) -> MutexGuard<'_, Rib> {
        locked(&self.rib)
    }

    /// The peer or file of this name, whose routes are in the table by this number.
    pub(crate) fn source(&self, name: &str) -> Option<PeerId> {
        self.sources().find(|(known, _)| known.as_str() == name).map(|(_, id)| id)
    }

    /// What the peer or file of this number is called.
    pub(crate) fn name_of(&self, id: PeerId) -> Option<&Name> {
        self.sources().find(|(_, known)| *known == id).map(|(name, _)| name)
    }

    fn sources(&self) -> impl Iterator<Item = (&Name, PeerId)> {
        let files = self.files.iter().map(|file| (&file.params.name, file.id));
        self.peers.iter().map(|peer| (&peer.params.name, peer.id)).chain(files)
    }

    /// Whether somebody has told all of his routes in a view, or a file of it was read.
    pub(crate) fn is_up(&self, view: &str) -> bool {
        let read = |file: &MrtFile| locked(&file.shown).read_ms.is_some();
        self.peers.iter().any(|p| p.params.view.as_str() == view && p.is_complete())
            || self.files.iter().any(|f| f.params.view.as_str() == view && read(f))
    }

    /// Tells those who wait that there is something new.
    pub(crate) fn tell(&self) {
        self.news.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// What `/status` shows.
    pub(crate) fn show(&self) -> Value {
        let rib = self.rib();
        let peers: serde_json::Map<_, _> = self
            .peers
            .iter()
            .map(|peer| {
                let [v4, v6] = rib.peer_counts(peer.id);
                let shown = locked(&peer.shown);
                let value = json!({
                    "address": peer.params.address,
                    "asn": peer.params.asn,
                    "view": peer.params.view,
                    "state": shown.state,
                    "since": utc(shown.since_ms),
                    "complete": shown.is_complete,
                    "agreed": shown.agreed,
                    "last_end": shown.last_end,
                    "routes": { "v4": v4, "v6": v6 },
                });
                (peer.params.name.to_string(), value)
            })
            .collect();
        let file = |file: &MrtFile| {
            let [v4, v6] = rib.peer_counts(file.id);
            let shown = locked(&file.shown);
            let value = json!({
                "file": file.params.file,
                "view": file.params.view,
                "from": file.params.from,
                "read": shown.read_ms.map(utc),
                "error": shown.error,
                "routes": { "v4": v4, "v6": v6 },
            });
            (file.params.name.to_string(), value)
        };
        let files: serde_json::Map<_, _> = self.files.iter().map(file).collect();
        let views: serde_json::Map<_, _> = rib
            .views()
            .map(|(view, name)| {
                let [v4, v6] = rib.view_counts(view);
                (
                    name.to_owned(),
                    json!({ "version": rib.version(view), "routes": { "v4": v4, "v6": v6 } }),
                )
            })
            .collect();
        json!({
            "asn": self.params.asn,
            "identifier": self.params.identifier,
            "peers": peers,
            "files": files,
            "views": views,
            "attribute_sets": rib.attribute_sets(),
        })
    }
}

impl MrtFile {
    /// Shows when it was read, or why not.
    pub(crate) fn show(&self, read: Result<u64, String>) {
        let mut shown = locked(&self.shown);
        match read {
            Ok(at_ms) => *shown = MrtShown { read_ms: Some(at_ms), error: None },
            Err(error) => shown.error = Some(error),
        }
    }
}

impl Peer {
    /// Shows where its session is.
    pub(crate) fn show(&self, session: &Session, is_complete: bool) {
        let mut shown = locked(&self.shown);
        if shown.state != session.state() {
            shown.state = session.state();
            shown.since_ms = clock::now().wall_ms;
            shown.agreed = session.agreed().map_or(Value::Null, |agreed| {
                let families: Vec<Family> = agreed.rules.families.each().collect();
                json!({
                    "identifier": agreed.identifier,
                    "hold_s": agreed.hold_s,
                    "families": families,
                    "four_octet_as": agreed.rules.four_octet_as,
                    "route_refresh": agreed.route_refresh,
                    "enhanced_refresh": agreed.enhanced_refresh,
                    "extended_message": agreed.extended_message,
                    "restart_s": agreed.graceful.map(|said| said.restart_s),
                })
            });
            shown.last_end = session
                .last_end()
                .map_or(Value::Null, |(end, at_ms)| json!({ "why": why(end), "at": utc(*at_ms) }));
        }
        shown.is_complete = is_complete;
    }

    /// Has it asked for all of its routes again (RFC 2918).
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub(crate) fn ask_again(&self) -> Result<(), &'static str> {
        let can = match &locked(&self.shown).agreed {
            Value::Null => return Err("its session is not up"),
            agreed => agreed.get("route_refresh").and_then(Value::as_bool).unwrap_or(false),
        };
        if !can {
            return Err("it does not know route refresh (RFC 2918): restart its session");
        }
        self.refresh.notify_one();
        Ok(())
    }

    /// Whether it has told its whole table.
    pub(crate) fn is_complete(&self) -> bool {
        locked(&self.shown).is_complete
    }
}

/// Why a connection ended, for people.
pub(crate) fn why(end: &End) -> String {
    match end {
        End::Closed => "the peer closed the connection, or it broke".to_owned(),
        End::Replaced => "the peer came back with another connection".to_owned(),
        End::Told(said) => format!("the peer says {said}"),
        End::Ours(said) => format!("we said {said}"),
    }
}

/// The word of it, for metrics.
pub(crate) fn word(end: &End) -> &'static str {
    match end {
        End::Closed => "closed",
        End::Replaced => "replaced",
        End::Told(said) | End::Ours(said) => said.code.word(),
    }
}
