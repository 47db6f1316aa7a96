//! Handshakes over TCP, counted by what came of them.

use std::io;

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use serde_json::{Map, Value};

use crate::metrics::{Counter, Metrics, tls as metric};

const RESULTS: [&str; 4] = ["ok", "failed", "timeout", "unknown-name"];
const VERSIONS: [&str; 2] = ["1.2", "1.3"];
const RESUMED: [&str; 2] = ["no", "yes"];

/// The counters of a host; a clone for each listener.
#[derive(Clone, Debug)]
pub struct Handshakes {
    /// In the order of [`RESULTS`].
    results: [Counter; 4],
    /// By version, and whether the client resumed.
    sessions: [[Counter; 2]; 2],
}

impl Handshakes {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            results: RESULTS.map(|word| metrics.counter(&metric::HANDSHAKES, &[word])),
            sessions: VERSIONS.map(|version| {
                RESUMED.map(|resumed| metrics.counter(&metric::SESSIONS, &[version, resumed]))
            }),
        }
    }

    /// One came to its end.
    pub fn note_done(&self, connection: &ServerConnection) {
        let [ok, ..] = &self.results;
        ok.inc();
        let [old, new] = &self.sessions;
        let is_new = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let [full, resumed] = if is_new { new } else { old };
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        if is_resumed { resumed.inc() } else { full.inc() }
    }

    /// One ended early.
    pub fn note_failed(&self, error: &io::Error) {
        let [_, failed, _, unknown_name] = &self.results;
        if names_nobody(error) { unknown_name.inc() } else { failed.inc() }
    }

    /// One took too long.
    pub fn note_timeout(&self) {
        let [_, _, timeout, _] = &self.results;
        timeout.inc();
    }

    /// For `/status`.
    pub(super) fn status(&self) -> Value {
        let results = RESULTS.iter().zip(&self.results);
        let by_result: Map<String, Value> =
            results.map(|(word, count)| ((*word).to_owned(), count.get().into())).collect();
        let sessions = VERSIONS.iter().zip(&self.sessions);
        let by_version: Map<String, Value> = sessions
            .map(|(version, [full, resumed])| {
                let counts = serde_json::json!({ "full": full.get(), "resumed": resumed.get() });
                ((*version).to_owned(), counts)
            })
            .collect();
        serde_json::json!({ "handshakes": by_result, "sessions": by_version })
    }
}

/// Whether there was no certificate for the client. rustls has only words for it; a test holds that
/// they are these.
fn names_nobody(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::General(text)) if text.contains("certificate chain resolved"))
}
