//! The other checkers: what each has seen is fetched from it, again and again.
//!
//! It counts only when it is signed with the key of that checker, says that it is of that checker, and
//! is of now (H1). What it means is the machine's to say.

use std::sync::Arc;
use std::time::Duration;

use health_proto::Observations;
use health_proto::observe::ObservationsError;
use http::{HeaderMap, StatusCode, Uri};
use model::Name;
use nodemap::signature::{PublicKey, Signature, TrustedKeys, VerifyError};
use rt::client::{self, Get, GetError, Reply};
use rt::metrics::{Counter, health as metric};
use rt::{Context, Phase, clock, follow};

use crate::desk::Desk;

/// Largest document that is read, bytes.
const BYTES_MAX: usize = 64 << 20;
/// How far the clocks of two checkers may be apart, milliseconds; what is older may be a replay.
const APART_MS_MAX: u64 = 60_000;
/// Longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Another checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its `[host] name`.
    pub name: Name,
    /// Where it is, `http://HOST:PORT`.
    pub url: Uri,
    /// What its observations are signed with.
    pub key: PublicKey,
}

/// Why a checker was not heard.
#[derive(Debug, thiserror::Error)]
enum Unheard {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Signature(#[from] VerifyError),
    #[error(transparent)]
    Document(#[from] ObservationsError),
    #[error("it is checker {0}")]
    Name(Name),
    #[error("its clock, or the document, is {0} s away from this host's clock")]
    Clock(u64),
}

/// Listens to one of them until nothing is published any more.
pub(crate) async fn listen(peer: Peer, desk: Arc<Desk>, interval: Duration, context: Context) {
    let errors = context.metrics.counter(&metric::PEER_ERRORS, &[peer.name.as_str()]);
    let pause = interval.checked_div(2).unwrap_or_default().min(PAUSE_MAX);
    let listening = listen_on(&peer, &desk, interval.max(pause), pause, &errors);
    tokio::select! {
        () = listening => {}
        () = context.shutdown.reached(Phase::Yielded) => {}
    }
}

async fn listen_on(peer: &Peer, desk: &Desk, timeout: Duration, pause: Duration, errors: &Counter) {
    let url = format!("http://{}/observations", peer.url.authority().map_or("", |a| a.as_str()));
    let trusted = TrustedKeys(vec![peer.key.clone()]);
    // The same error again and again is counted, not logged.
    let mut shown = String::new();
    loop {
        match look(&url, &peer.name, &trusted, timeout).await {
            Ok(seen) => {
                if !shown.is_empty() {
                    tracing::info!(checker = %peer.name, "heard again");
                    shown.clear();
                }
                if desk.checker().handle_observations(clock::now(), seen) {
                    desk.told.notify_one();
                }
            }
            Err(error) => {
                errors.inc();
                let words = error.to_string();
                if words != shown {
                    tracing::warn!(checker = %peer.name, error = words, "another checker is not heard");
                    shown = words;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn look(
    url: &str,
    name: &Name,
    trusted: &TrustedKeys,
    timeout: Duration,
) -> Result<Observations, Unheard> {
    let ask = Get {
        url: url.parse().map_err(|_| GetError::Url(url.to_owned()))?,
        connect_to: None,
        headers: HeaderMap::new(),
        timeout,
        body_bytes_max: BYTES_MAX,
    };
    read(&client::get(ask).await?, name, trusted, clock::now().wall_ms)
}

fn read(
    reply: &Reply,
    name: &Name,
    trusted: &TrustedKeys,
    now_ms: u64,
) -> Result<Observations, Unheard> {
    if reply.status != StatusCode::OK {
        return Err(Unheard::Status(reply.status));
    }
    let line = reply.headers.get(follow::SIGNATURE).and_then(|line| line.to_str().ok());
    let signature: Option<Signature> = line.and_then(|line| line.parse().ok());
    trusted.verify(&reply.body, signature.as_ref())?;
    let seen = Observations::parse(&reply.body)?;
    if seen.checker != *name {
        return Err(Unheard::Name(seen.checker));
    }
    match seen.at_ms.abs_diff(now_ms) {
        apart if apart > APART_MS_MAX => Err(Unheard::Clock(apart / 1000)),
        _ => Ok(seen),
    }
}

#[cfg(test)]
mod tests {
    use nodemap::signature::SecretKey;

    use super::*;

    #[test]
    fn only_what_a_checker_signed_of_itself_and_of_now_counts() {
        let key = |seed: u8| SecretKey::new([seed; 32], [seed; 8]).unwrap();
        let trusted = TrustedKeys(vec![key(1).public_key()]);
        let document = |checker: &str, at_ms: u64| {
            let seen = Observations {
                format: 1,
                checker: checker.parse().unwrap(),
                at_ms,
                isolated: false,
                generation: 0,
                publishing: false,
                outside: std::collections::BTreeMap::new(),
                views: Vec::new(),
            };
            seen.to_json()
        };
        let reply = |by: &SecretKey, document: &[u8], body: &[u8]| {
            let line = by.sign(document, "").signature.to_string();
            let headers = HeaderMap::from_iter([(follow::SIGNATURE, line.parse().unwrap())]);
            Reply { status: StatusCode::OK, headers, body: body.to_vec().into() }
        };
        let name: Name = "hc2".parse().unwrap();
        let heard = |reply: &Reply| read(reply, &name, &trusted, 100_000);
        let good = document("hc2", 90_000);
        assert_eq!(heard(&reply(&key(1), &good, &good)).unwrap().at_ms, 90_000);
        let foreign = heard(&reply(&key(2), &good, &good));
        assert!(matches!(foreign, Err(Unheard::Signature(VerifyError::Unknown(_)))));
        let changed = document("hc2", 90_001);
        let wrong = heard(&reply(&key(1), &good, &changed));
        assert!(matches!(wrong, Err(Unheard::Signature(VerifyError::Wrong(_)))));
        let other = document("hc3", 90_000);
        assert!(matches!(heard(&reply(&key(1), &other, &other)), Err(Unheard::Name(_))));
        let old = document("hc2", 30_000);
        assert!(matches!(heard(&reply(&key(1), &old, &old)), Err(Unheard::Clock(70))));
        let bare = Reply { headers: HeaderMap::new(), ..reply(&key(1), &good, &good) };
        assert!(matches!(heard(&bare), Err(Unheard::Signature(VerifyError::Unsigned))));
    }
}
