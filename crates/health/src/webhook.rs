//! The webhook: each event is posted as a JSON document of its own, in order.
//!
//! One that is not taken is tried again, a few times, at growing distances; then it is lost, and so are those
//! for which no room is left meanwhile. Nothing else waits for that.

use std::time::Duration;

use bytes::Bytes;
use health_proto::Event;
use http::Uri;
use model::Name;
use rt::metrics::{Counter, health as metric};
use rt::{Context, Phase, client};
use serde::Serialize;
use tokio::sync::mpsc;

/// Events that wait.
const WAITING_MAX: usize = 1024;
/// How often one is tried.
const TRIES: u32 = 6;
/// Pause after the first try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });
/// How long the other end may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is posted.
#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    /// `[host] name` of who tells.
    checker: &'a Name,
    #[serde(flatten)]
    event: &'a Event,
}

/// Hands events to the task that posts them.
#[derive(Debug)]
pub(crate) struct Webhook {
    sender: mpsc::Sender<Event>,
    lost: Counter,
}

impl Webhook {
    /// Starts the task, which ends with the context.
    pub(crate) fn start(url: Uri, context: &Context) -> Self {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let count = |result| context.metrics.counter(&metric::WEBHOOK_EVENTS, &[result]);
        let (sent, lost) = (count("sent"), count("lost"));
        let (checker, shutdown, unsent) =
            (context.name.clone(), context.shutdown.clone(), lost.clone());
        let work = async move {
            while let Some(event) = receiver.recv().await {
                match tell(&url, &checker, &event).await {
                    Ok(()) => sent.inc(),
                    Err(error) => {
                        unsent.inc();
                        tracing::error!(%url, error, "an event is lost: the webhook does not take it");
                    }
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = shutdown.reached(Phase::Yielded) => {}
            }
        });
        Self { sender, lost }
    }

    /// Has these posted, as far as there is room.
    pub(crate) fn write(&self, events: &[Event]) {
        for event in events {
            if self.sender.try_send(event.clone()).is_err() {
                self.lost.inc();
            }
        }
    }
}

async fn tell(url: &Uri, checker: &Name, event: &Event) -> Result<(), String> {
    let document = serde_json::to_vec(&Document { format: 1, checker, event });
    let document = Bytes::from(document.map_err(|error| error.to_string())?);
    let mut pause = PAUSE;
    let mut why = String::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
        match client::post(url, document.clone(), TIMEOUT).await {
            Ok(status) if status.is_success() => return Ok(()),
            Ok(status) => why = format!("it answered {status}"),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use health_proto::event::What;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn event(at_ms: u64) -> Event {
        Event {
            at_ms,
            what: What::Node,
            node: Some("a".parse().unwrap()),
            family: None,
            project: None,
            master: None,
            from: "up".into(),
            to: "down".into(),
            reason: "status 503".into(),
            evidence: None,
        }
    }

    #[tokio::test]
    async fn each_event_is_told_once_it_is_taken_and_lost_when_it_never_is() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::new("hc".parse().unwrap(), dir.path().to_owned());
        let listener = TcpListener::bind("127.55.0.4:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap()).parse().unwrap();
        let webhook = Webhook::start(url, &context);
        webhook.write(&[event(1), event(2)]);
        let mut bodies = Vec::new();
        // The first is refused once, the second always.
        for status in [500, 200, 500, 500, 500, 500, 500, 500] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            while !text.ends_with('}') {
                text.push(char::from(stream.read_u8().await.unwrap()));
            }
            assert!(text.starts_with("POST /hook HTTP/1.1\r\n"), "{text}");
            bodies.push(text.split("\r\n\r\n").nth(1).unwrap().to_owned());
            let reply = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
        let body: serde_json::Value = serde_json::from_str(&bodies[1]).unwrap();
        assert_eq!(
            (&body["checker"], &body["at_ms"], &body["to"]),
            (&"hc".into(), &1.into(), &"down".into())
        );
        assert_eq!(bodies[0], bodies[1]);
        let count = |result| context.metrics.counter(&metric::WEBHOOK_EVENTS, &[result]).get();
        while count("lost") == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((count("sent"), count("lost")), (1, 1));
    }
}
